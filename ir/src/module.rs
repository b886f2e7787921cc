//! A module: top-level operations in program order, each with a [`Body`] of its own, and resources.
//!
//! Top-level operations use no values of one another (symbols connect them), which is what lets
//! passes work on bodies in parallel. Where a text has some that do, as MLIR allows, they are all in one body, a [`GROUP`].

use crate::attr::Attr;
use crate::body::Body;
use crate::intern::Name;
use crate::loc::Loc;
use crate::op_def::{OpDef, Regions, Traits};
use indexmap::IndexMap;
use std::sync::Arc;

/// The root of a body that holds several top-level operations, which use one another's values. Text has no such operation: what is in it stands
/// in the module.
pub static GROUP: OpDef = OpDef {
    summary: "Top-level operations that use one another's values.",
    regions: Regions::Exactly(1),
    traits: Traits::GRAPH_REGION.union(Traits::SINGLE_BLOCK).union(Traits::ISOLATED),
    ..OpDef::new("rc.module.group")
};

/// The bytes of a large constant: row-major, little-endian elements. Shared, possibly a memory map.
#[derive(Clone)]
pub struct Blob {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// Alignment in bytes that the text form states.
    pub align: u32,
    text: bool,
}

impl Blob {
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Blob {
        Blob { bytes: Arc::new(bytes), align: 64, text: false }
    }
    /// A text, which dumps show as such.
    pub fn text(text: impl AsRef<str>) -> Blob {
        Blob { text: true, ..Blob::new(text.as_ref().as_bytes().to_vec()) }
    }
    /// The text, where this is one.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()).ok().filter(|_| self.text)
    }
    pub fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }
}
impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        self.bytes() == other.bytes()
    }
}
impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.bytes().len())
    }
}

#[derive(Clone, Debug)]
pub struct Module {
    /// The module's attributes: target, options, format version.
    pub attrs: Attr,
    pub loc: Loc,
    /// Top-level operations in program order.
    pub bodies: Vec<Body>,
    /// What `dense_resource<name>` refers to.
    pub resources: IndexMap<Name, Blob>,
    /// Resources that rc has no use for, as they are written.
    pub foreign: Vec<ForeignResources>,
}

/// `dialect_resources: { owner: { … } }` of another dialect than `builtin`, or `external_resources: { owner: { … } }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignResources {
    pub external: bool,
    pub owner: Name,
    /// With its braces.
    pub text: Box<str>,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({} @{})", self.name(self.root()), self.symbol().unwrap_or_default())
    }
}

impl Default for Module {
    fn default() -> Self {
        Module {
            attrs: Attr::empty_dict(),
            loc: Loc::UNKNOWN,
            bodies: Vec::new(),
            resources: IndexMap::new(),
            foreign: Vec::new(),
        }
    }
}

impl Module {
    pub fn new() -> Module {
        Self::default()
    }
    /// The body of the symbol `name`.
    pub fn symbol(&self, name: impl Into<Name>) -> Option<&Body> {
        let name = name.into();
        self.bodies.iter().find(|b| b.symbol() == Some(name))
    }
    pub fn symbol_mut(&mut self, name: impl Into<Name>) -> Option<&mut Body> {
        let name = name.into();
        self.bodies.iter_mut().find(|b| b.symbol() == Some(name))
    }
    /// A symbol name starting with `hint` that the module does not have.
    pub fn fresh_symbol(&self, hint: &str) -> Name {
        let taken = |name: &str| self.bodies.iter().any(|b| b.symbol().is_some_and(|s| s == name));
        if !taken(hint) {
            return Name::new(hint);
        }
        let fresh = (0..).map(|i| format!("{hint}_{i}")).find(|name| !taken(name));
        Name::new(&fresh.expect("an endless range"))
    }
    pub fn attr(&self, name: &str) -> Option<Attr> {
        self.attrs.get(name)
    }
    pub fn set_attr(&mut self, name: &str, value: Attr) {
        self.attrs = self.attrs.with(Name::new(name), Some(value));
    }
    /// Adds a large constant under a name made from its content, and gives `dense_resource<name> : ty`. The name is a cryptographic hash: constants
    /// that differ do not share one.
    pub fn add_resource(&mut self, hint: &str, ty: crate::types::Type, blob: Blob) -> Attr {
        let hash = blake3::hash(blob.bytes()).to_hex();
        let name = Name::new(&format!("{hint}_{}", &hash[..32]));
        self.resources.entry(name).or_insert(blob);
        Attr::resource(name, ty)
    }
}
