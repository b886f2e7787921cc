//! Automatic aliases: `#schedule0 = #rc.schedule<…>` before the module, and `#schedule0` where the attribute stands.

use super::{Printer, types};
use crate::attr::{Attr, AttrData};
use crate::body::Body;
use crate::module::Module;
use crate::op_def::{AttrKind, OpDef};
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};

/// An attribute whose text is longer than this many bytes gets an alias,
const LONG: usize = 100;
/// and one that occurs again if it is longer than this.
const REPEATED: usize = 60;

/// Aliases by attribute.
pub(super) type Aliases = FxHashMap<Attr, String>;

impl Printer<'_> {
    /// Chooses the module's aliases and writes what they stand for.
    pub(super) fn define_aliases(&mut self, module: &Module) {
        let mut numbers: FxHashMap<String, usize> = FxHashMap::default();
        let mut taken: FxHashSet<String> = FxHashSet::default();
        for (attr, count) in candidates(module) {
            let mut text = String::new();
            let _ = types::write_attr(&mut text, attr, self.options.form);
            if text.len() <= if count > 1 { REPEATED } else { LONG } {
                continue;
            }
            let AttrData::Dialect { name, .. } = attr.data() else { continue };
            let stem = name.as_str().replace('.', "_");
            let number = numbers.entry(stem.clone()).or_default();
            let alias = (*number..).map(|n| (n, format!("#{stem}{n}"))).find(|(_, alias)| !taken.contains(alias));
            let Some((used, alias)) = alias else { continue };
            *number = used + 1;
            self.out.push_str(&format!("{alias} = {text}\n"));
            taken.insert(alias.clone());
            self.aliases.insert(attr, alias);
        }
        if !self.aliases.is_empty() && self.options.form == super::Form::Pretty {
            self.out.push('\n');
        }
    }
}

/// Whether a declaration asks for a dialect attribute.
fn may_have(def: &OpDef) -> bool {
    def.attrs.iter().any(|attr| matches!(attr.kind, AttrKind::Dialect(_)))
}

/// The dialect attributes that declarations ask for, in the order of their first mention, with how often they occur.
fn candidates(module: &Module) -> IndexMap<Attr, usize> {
    let mut counts = IndexMap::new();
    let has_some = |body: &Body| body.ops_since(0).any(|op| body.name(op).def().is_some_and(may_have));
    for body in module.bodies.iter().filter(|body| has_some(body)) {
        for op in body.walk() {
            let Some(def) = body.name(op).def() else { continue };
            for &(key, value) in body.attrs(op).as_dict().unwrap_or_default() {
                let declared = || def.attr_def(key.as_str()).map(|d| d.kind);
                if matches!(value.data(), AttrData::Dialect { .. }) && matches!(declared(), Some(AttrKind::Dialect(_)))
                {
                    *counts.entry(value).or_insert(0) += 1;
                }
            }
        }
    }
    counts
}
