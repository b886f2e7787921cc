//! Text of the IR: MLIR's generic form, and the pretty form that people read.
//!
//! Both forms parse back to the same module, and may be mixed: an operation that does not fit its
//! declaration prints in the generic form inside pretty text.

mod aliases;
mod generic;
mod names;
mod pretty;
mod pretty_op;
mod resources;
mod short;
pub mod types;

pub use names::{is_default_label, name_in_text};
pub use pretty::is_visibility;
pub use pretty_op::is_bare_op_name;
pub use short::{is_bare_word, write_params, write_short};

use crate::attr::{Attr, AttrData};
use crate::body::{Body, OpRef, Value};
use crate::intern::Name;
use crate::module::{GROUP, Module};
use crate::op_def::{OpDef, OpName, Traits};
use crate::types::Type;
use names::Names;
use rustc_hash::FxHashMap;
use std::io;

/// Which of the two forms to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// MLIR's generic form, which `mlir-opt --allow-unregistered-dialect` reads.
    Generic,
    Pretty,
}

/// How to print a module.
#[derive(Clone, Copy, Debug)]
pub struct PrintOptions {
    pub form: Form,
    /// Whether locations print, as `loc(…)` after each operation.
    pub debug_info: bool,
    /// Whether the bytes of large constants print, after the operations.
    pub resources: bool,
}

impl PrintOptions {
    pub const PRETTY: PrintOptions = PrintOptions { form: Form::Pretty, debug_info: false, resources: true };
    pub const GENERIC: PrintOptions = PrintOptions { form: Form::Generic, ..PrintOptions::PRETTY };
}

impl Default for PrintOptions {
    fn default() -> Self {
        PrintOptions::PRETTY
    }
}

/// The text of a module.
pub fn print_module(module: &Module, options: &PrintOptions) -> String {
    let mut printer = Printer::new(*options, None);
    printer.module(module);
    printer.out
}

/// Writes the text of a module piece by piece: a large one is never in memory as a whole.
pub fn write_module(module: &Module, options: &PrintOptions, to: &mut dyn io::Write) -> io::Result<()> {
    let mut printer = Printer::new(*options, Some(to));
    printer.module(module);
    printer.flush();
    printer.status
}

/// The text of one top-level operation.
pub fn print_body(body: &Body, options: &PrintOptions) -> String {
    let mut printer = Printer::new(*options, None);
    printer.body(body, 0);
    printer.out
}

/// The text of one operation and what is in it, with the names that its values have in the whole body.
pub fn print_op(op: OpRef, options: &PrintOptions) -> String {
    let mut printer = Printer::new(*options, None);
    printer.names = Names::of(op.body);
    printer.op(op.body, op.op, 0);
    printer.out.truncate(printer.out.trim_end().len());
    printer.out
}

impl std::fmt::Display for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_module(self, &PrintOptions::PRETTY))
    }
}
impl std::fmt::Display for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_body(self, &PrintOptions::PRETTY))
    }
}
impl std::fmt::Display for OpRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_op(*self, &PrintOptions::PRETTY))
    }
}

/// Attributes that the generic form keeps in an op's properties, `<{…}>`, whether declared or not.
const INHERENT: [&str; 7] = [
    "arg_attrs",
    "function_type",
    "operandSegmentSizes",
    "resultSegmentSizes",
    "res_attrs",
    "sym_name",
    "sym_visibility",
];

/// Whether the attribute `key` of a registered op belongs in its properties, `<{…}>`.
pub fn is_inherent(def: &OpDef, key: &str) -> bool {
    def.attr_def(key).is_some() || INHERENT.contains(&key)
}

/// Output is handed on when it has grown to this many bytes.
const CHUNK: usize = 1 << 16;
/// The text of an attribute is kept for its next occurrence up to this many bytes.
const CACHED: usize = 256;

/// Text of interned things by id: what is printed often is written once and copied.
#[derive(Default)]
struct TextCache {
    spans: Vec<(u32, u32)>,
    text: String,
}

impl TextCache {
    #[inline]
    fn get(&self, id: u32) -> Option<&str> {
        let &(start, end) = self.spans.get(id as usize)?;
        (end > 0).then(|| &self.text[start as usize..end as usize])
    }
    fn put(&mut self, id: u32, text: &str) {
        if text.is_empty() || self.text.len() + text.len() > u32::MAX as usize {
            return;
        }
        if self.spans.len() <= id as usize {
            self.spans.resize(id as usize + 1, (0, 0));
        }
        let start = self.text.len() as u32;
        self.text.push_str(text);
        self.spans[id as usize] = (start, self.text.len() as u32);
    }
}

/// What both forms share: the output, and the text of what was printed before.
struct Printer<'a> {
    out: String,
    to: Option<&'a mut dyn io::Write>,
    status: io::Result<()>,
    options: PrintOptions,
    types: TextCache,
    attrs: TextCache,
    names: Names,
    aliases: aliases::Aliases,
    /// How the names of operations print in the generic form,
    quoted: TextCache,
    /// and in the pretty one.
    op_names: FxHashMap<OpName, String>,
}

impl<'a> Printer<'a> {
    fn new(options: PrintOptions, to: Option<&'a mut dyn io::Write>) -> Self {
        Printer {
            out: String::new(),
            to,
            status: Ok(()),
            options,
            types: TextCache::default(),
            attrs: TextCache::default(),
            names: Names::default(),
            aliases: aliases::Aliases::default(),
            quoted: TextCache::default(),
            op_names: FxHashMap::default(),
        }
    }

    fn flush(&mut self) {
        if let (Some(to), Ok(())) = (&mut self.to, &self.status) {
            self.status = to.write_all(self.out.as_bytes());
        }
        self.out.clear();
    }
    fn flush_if_full(&mut self) {
        if self.out.len() >= CHUNK && self.to.is_some() {
            self.flush();
        }
    }

    fn module(&mut self, module: &Module) {
        // A text without anything is no module.
        let nothing = module.bodies.is_empty() && module.resources.is_empty();
        self.define_aliases(module);
        let wrapped = self.options.form == Form::Generic || module.attrs != Attr::empty_dict() || nothing;
        match self.options.form {
            Form::Generic => self.generic_module_start(module.attrs),
            Form::Pretty if wrapped => self.pretty_module_start(module.attrs),
            Form::Pretty => {}
        }
        for body in &module.bodies {
            self.top_level(body, usize::from(wrapped));
        }
        if nothing && self.options.form == Form::Generic {
            // A region without a block is not a module's to MLIR.
            self.out.push_str("^bb0:\n");
        }
        match self.options.form {
            Form::Generic => self.generic_module_end(module.attrs),
            Form::Pretty if wrapped => self.out.push('}'),
            Form::Pretty => {}
        }
        if wrapped {
            self.trailing_loc(module.loc);
            self.out.push('\n');
        }
        if self.options.resources {
            self.resources(module);
        }
    }

    fn top_level(&mut self, body: &Body, indent: usize) {
        if body.name(body.root()) != &GROUP {
            return self.body(body, indent);
        }
        self.names.renew(body);
        let ops = body.entry().into_iter().flat_map(|block| body.ops(block));
        ops.for_each(|op| self.op(body, op, indent));
    }

    fn body(&mut self, body: &Body, indent: usize) {
        self.names.renew(body);
        self.op(body, body.root(), indent);
    }

    fn op(&mut self, body: &Body, op: crate::body::Op, indent: usize) {
        match self.options.form {
            Form::Generic => self.generic_op(body, op, indent),
            Form::Pretty => self.pretty_op(body, op, indent),
        }
        self.flush_if_full();
    }

    // ---- pieces ----

    fn indent(&mut self, indent: usize) {
        const SPACES: &str = "                                                                ";
        let mut left = indent * 2;
        while left > 0 {
            let n = left.min(SPACES.len());
            self.out.push_str(&SPACES[..n]);
            left -= n;
        }
    }

    fn ty(&mut self, ty: Type) {
        if let Some(text) = self.types.get(ty.id()) {
            self.out.push_str(text);
            return;
        }
        let start = self.out.len();
        let _ = types::write_type(&mut self.out, ty, self.options.form);
        self.types.put(ty.id(), &self.out[start..]);
    }

    fn attr(&mut self, attr: Attr) {
        if let Some(alias) = self.alias(attr) {
            return self.out.push_str(&alias);
        }
        if let Some(text) = self.attrs.get(attr.id()) {
            self.out.push_str(text);
            return;
        }
        let start = self.out.len();
        let _ = types::write_attr(&mut self.out, attr, self.options.form);
        if self.out.len() - start <= CACHED {
            self.attrs.put(attr.id(), &self.out[start..]);
        }
    }

    fn alias(&self, attr: Attr) -> Option<String> {
        if self.aliases.is_empty() { None } else { self.aliases.get(&attr).cloned() }
    }

    fn key(&mut self, key: Name) {
        let _ = types::write_key(&mut self.out, key);
    }

    /// `{…}` in the generic spelling with a space in front, unless empty.
    fn attr_dict(&mut self, dict: Attr) {
        if !matches!(dict.data(), AttrData::Dict(entries) if entries.is_empty()) {
            self.out.push(' ');
            self.attr(dict);
        }
    }

    fn value(&mut self, body: &Body, value: Value) {
        self.names.write_use(&mut self.out, body, value);
    }

    fn values(&mut self, body: &Body, values: impl Iterator<Item = Value>) {
        for (i, value) in values.enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.value(body, value);
        }
    }

    /// `%a, %b:2 = `, unless there are no results.
    fn results(&mut self, body: &Body, op: crate::body::Op) {
        if body.result_count(op) == 0 {
            return;
        }
        self.names.write_results(&mut self.out, body, op);
        self.out.push_str(" = ");
    }

    /// `[^bb1, ^bb2]`, unless there are none.
    fn successors(&mut self, body: &Body, op: crate::body::Op) {
        let successors = body.successors(op);
        if successors.is_empty() {
            return;
        }
        self.out.push('[');
        for (i, &block) in successors.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.names.write_block(&mut self.out, block);
        }
        self.out.push(']');
    }

    /// `%x: t, %y: t`.
    fn block_args(&mut self, body: &Body, args: impl Iterator<Item = Value>) {
        for (i, arg) in args.enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.value(body, arg);
            self.out.push_str(": ");
            self.ty(body.ty(arg));
        }
    }

    /// `^bb0(%x: t):` and a new line.
    fn block_label(&mut self, body: &Body, block: crate::body::Block, indent: usize) {
        self.indent(indent);
        self.names.write_block(&mut self.out, block);
        if body.block_args(block).len() > 0 {
            self.out.push('(');
            self.block_args(body, body.block_args(block));
            self.out.push(')');
        }
        self.out.push_str(":\n");
    }

    /// ` loc(…)`, where locations are asked for.
    fn trailing_loc(&mut self, loc: crate::loc::Loc) {
        if self.options.debug_info {
            self.out.push_str(" loc(");
            let _ = types::write_loc(&mut self.out, loc);
            self.out.push(')');
        }
    }
}

/// The attributes of a registered op that stay out of its properties.
fn discardable(def: Option<&OpDef>, key: Name) -> bool {
    def.is_none_or(|def| !is_inherent(def, key.as_str()))
}

/// The name of the operation that an op with [`Traits::IMPLICIT_TERMINATOR`] may leave out at the end
/// of its regions: the `yield` of its dialect, where there is one.
pub fn implicit_terminator(def: &OpDef) -> Option<OpName> {
    if !def.has(Traits::IMPLICIT_TERMINATOR) {
        return None;
    }
    let (dialect, _) = def.name.rsplit_once('.')?;
    let name = OpName::new(&format!("{dialect}.yield"));
    name.def().is_some_and(|d| d.has(Traits::TERMINATOR)).then_some(name)
}
