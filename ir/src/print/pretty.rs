//! The pretty form: operations, functions, regions. How an op's parts are laid out is in `pretty_op`.

use super::pretty_op::Layout;
use super::{Printer, implicit_terminator, is_bare_op_name, short, types};
use crate::attr::{Attr, AttrData};
use crate::body::{Block, Body, Op, Region, Value};
use crate::intern::Name;
use crate::op_def::{Arity, AttrKind, GroupSyntax, OpDef, OpName, Traits};
use crate::types::Type;
use std::ops::Range;

impl Printer<'_> {
    pub(super) fn pretty_module_start(&mut self, attrs: Attr) {
        self.out.push_str("module");
        let name = attrs.get("sym_name").and_then(|n| n.as_str());
        if let Some(name) = name {
            self.out.push(' ');
            let _ = types::write_symbol(&mut self.out, Name::new(name));
        }
        let entries = attrs.as_dict().unwrap_or_default();
        let rest: Vec<_> = entries.iter().copied().filter(|e| name.is_none() || e.0 != "sym_name").collect();
        if !rest.is_empty() {
            self.out.push_str(" attributes ");
            let _ = types::write_attr(&mut self.out, Attr::dict(rest), self.options.form);
        }
        self.out.push_str(" {\n");
    }

    pub(super) fn pretty_op(&mut self, body: &Body, op: Op, indent: usize) {
        let Some(layout) = Layout::of(body, op) else {
            return self.generic_op(body, op, indent);
        };
        self.indent(indent);
        self.results(body, op);
        self.op_name(body.name(op));
        match layout.def {
            Some(def) if def.has(Traits::FUNCTION) => self.function(body, op, def, indent),
            def => self.plain_op(body, op, def, &layout.groups, indent),
        }
        self.trailing_loc(body.loc(op));
        self.out.push('\n');
    }

    fn op_name(&mut self, name: OpName) {
        if let Some(text) = self.op_names.get(&name) {
            self.out.push_str(text);
            return;
        }
        let mut text = String::new();
        if is_bare_op_name(name) {
            text.push_str(if name.def().is_some() { name.pretty() } else { name.as_str() });
        } else {
            let _ = types::write_string(&mut text, name.as_str());
        }
        self.out.push_str(&text);
        self.op_names.insert(name, text);
    }

    fn plain_op(&mut self, body: &Body, op: Op, def: Option<&'static OpDef>, groups: &[Range<usize>], indent: usize) {
        let entries = body.attrs(op).as_dict().unwrap_or_default();
        let mut hidden: Vec<&str> = Vec::new();
        if let Some(name) = def.filter(|d| d.has(Traits::SYMBOL)).and_then(|_| body.attr(op, "sym_name")) {
            self.out.push(' ');
            let _ = types::write_symbol(&mut self.out, Name::new(name.as_str().unwrap_or_default()));
            hidden.push("sym_name");
        }
        let mut iters = 0;
        match def {
            None if body.operand_count(op) > 0 => {
                self.out.push(' ');
                self.values(body, body.operands(op));
            }
            None => {}
            Some(def) => {
                let maps = index_maps(body, op, def);
                if maps.is_some() {
                    hidden.push("maps");
                }
                if def.has_segments() {
                    hidden.push("operandSegmentSizes");
                }
                iters = self.operand_groups(body, op, def, groups, maps);
            }
        }
        if body.has_extra(op) && !body.successors(op).is_empty() {
            self.out.push(' ');
            self.successors(body, op);
        }
        if let Some(props) = body.props(op) {
            self.out.push_str(" <");
            self.attr(props);
            self.out.push('>');
        }
        self.kind_dict(def, entries, &hidden, " ");
        if body.has_extra(op) {
            self.pretty_regions(body, op, def, iters, indent);
        }
        if body.result_count(op) > 0 {
            self.out.push_str(" : ");
            for (i, result) in body.results(op).enumerate() {
                if i > 0 {
                    self.out.push_str(", ");
                }
                self.result_type(body.ty(result));
            }
        }
    }

    /// A type; a function's in parentheses.
    fn result_type(&mut self, ty: Type) {
        if ty.as_function().is_some() {
            self.out.push('(');
            self.ty(ty);
            self.out.push(')');
        } else {
            self.ty(ty);
        }
    }

    // ---- operands ----

    /// Prints all groups and gives the number of loop-carried values.
    fn operand_groups(
        &mut self,
        body: &Body,
        op: Op,
        def: &OpDef,
        groups: &[Range<usize>],
        maps: Option<&[Attr]>,
    ) -> usize {
        let operands: Vec<Value> = body.operands(op).collect();
        let mut printer = Operands { body, operands: &operands, maps };
        let (mut printed, mut iters) = (0, 0);
        // Plain operands come first, then groups with names; brackets follow what they belong to.
        for named in [false, true] {
            let mut in_named = false;
            for (group, range) in def.operands.iter().zip(groups) {
                if group.syntax != GroupSyntax::Bracketed {
                    in_named = matches!(group.syntax, GroupSyntax::Named | GroupSyntax::Iter);
                }
                if in_named != named {
                    continue;
                }
                match group.syntax {
                    GroupSyntax::Plain => {
                        for i in range.clone() {
                            self.out.push_str(if printed == 0 { " " } else { ", " });
                            printer.operand(self, i);
                            printed += 1;
                        }
                    }
                    GroupSyntax::Bracketed => {
                        if range.is_empty() && (group.arity == Arity::Optional || printed == 0) {
                            continue;
                        }
                        self.out.push_str(if printed == 0 { " [" } else { "[" });
                        printer.list(self, range.clone());
                        self.out.push(']');
                        printed += 1;
                    }
                    GroupSyntax::Named if !range.is_empty() => {
                        self.out.push(' ');
                        self.out.push_str(group.name);
                        self.out.push('(');
                        printer.list(self, range.clone());
                        self.out.push(')');
                        printed += 1;
                    }
                    GroupSyntax::Iter if !range.is_empty() => {
                        iters = range.len();
                        self.out.push_str(" iter(");
                        let entry = body.op_ref(op).entry(0).expect("checked by the layout");
                        let args: Vec<Value> = body.block_args(entry).collect();
                        let carried = &args[args.len() - iters..];
                        for (k, i) in range.clone().enumerate() {
                            self.out.push_str(if k == 0 { "" } else { ", " });
                            self.value(body, carried[k]);
                            self.out.push_str(" = ");
                            printer.operand(self, i);
                        }
                        self.out.push(')');
                        printed += 1;
                    }
                    _ => {}
                }
            }
        }
        iters
    }

    // ---- attributes ----

    /// `{…}` without the keys in `hidden`, declared attributes in their kind's spelling; `lead` in front.
    fn kind_dict(&mut self, def: Option<&OpDef>, entries: &[(Name, Attr)], hidden: &[&str], lead: &str) {
        let mut first = true;
        for &(key, value) in entries.iter().filter(|e| !hidden.contains(&e.0.as_str())) {
            if first {
                self.out.push_str(lead);
                self.out.push('{');
            } else {
                self.out.push_str(", ");
            }
            first = false;
            self.key(key);
            if matches!(value.data(), AttrData::Unit) {
                continue;
            }
            self.out.push_str(" = ");
            match def.and_then(|d| d.attr_def(key.as_str())) {
                Some(declared) if declared.kind != AttrKind::Any && self.alias(value).is_none() => {
                    let _ = short::write_kind(&mut self.out, declared.kind, value);
                }
                _ => self.attr(value),
            }
        }
        if !first {
            self.out.push('}');
        }
    }

    // ---- regions ----

    fn pretty_regions(&mut self, body: &Body, op: Op, def: Option<&OpDef>, iters: usize, indent: usize) {
        let regions = body.regions(op);
        let implicit = def.and_then(implicit_terminator);
        for (i, &region) in regions.iter().enumerate() {
            self.out.push_str(if i == 0 { " (" } else { ", " });
            let entry = body.first_block(region);
            let labelled = entry.is_some_and(|b| self.names.is_target(b));
            let leading = entry.map_or(0, |b| body.block_args(b).len()) - if i == 0 { iters } else { 0 };
            if let (Some(entry), false, true) = (entry, labelled, leading > 0) {
                self.out.push('(');
                self.block_args(body, body.block_args(entry).take(leading));
                self.out.push_str(") ");
            }
            self.out.push_str("{\n");
            self.pretty_region(body, region, labelled, implicit, indent);
            self.indent(indent);
            self.out.push('}');
        }
        if !regions.is_empty() {
            self.out.push(')');
        }
    }

    /// The blocks of a region; that of the entry block has a label only where asked, or where nothing else shows it.
    fn pretty_region(&mut self, body: &Body, region: Region, labelled: bool, implicit: Option<OpName>, indent: usize) {
        let single = body.blocks(region).len() == 1;
        for (i, block) in body.blocks(region).enumerate() {
            let empty = body.first_op(block).is_none() && body.block_args(block).len() == 0;
            if i > 0 || labelled || empty {
                self.block_label(body, block, indent);
            }
            let last = body.last_op(block);
            for op in body.ops(block) {
                let omitted = single && Some(op) == last && implicit == Some(body.name(op)) && is_bare(body, op);
                if !omitted {
                    self.op(body, op, indent + 1);
                }
            }
        }
    }

    // ---- functions ----

    fn function(&mut self, body: &Body, op: Op, def: &OpDef, indent: usize) {
        let visibility = body.attr(op, "sym_visibility").and_then(|v| v.as_str()).filter(|v| is_visibility(v));
        let mut hidden = vec!["sym_name", "function_type", "arg_attrs", "res_attrs"];
        if let Some(visibility) = visibility {
            self.out.push(' ');
            self.out.push_str(visibility);
            hidden.push("sym_visibility");
        }
        self.out.push(' ');
        let name = body.attr(op, "sym_name").and_then(|n| n.as_str()).unwrap_or_default();
        let _ = types::write_symbol(&mut self.out, Name::new(name));
        let ty = body.attr(op, "function_type").and_then(|t| t.as_type()).expect("checked by the layout");
        let (inputs, results) = ty.as_function().expect("checked by the layout");
        let region = body.regions(op)[0];
        self.parameters(body, op, inputs, body.first_block(region));
        self.function_results(body.attr(op, "res_attrs"), results);
        self.kind_dict(Some(def), body.attrs(op).as_dict().unwrap_or_default(), &hidden, " attributes ");
        if body.first_block(region).is_some() {
            self.out.push_str(" {\n");
            self.pretty_region(body, region, false, implicit_terminator(def), indent);
            self.indent(indent);
            self.out.push('}');
        }
    }

    fn parameters(&mut self, body: &Body, op: Op, inputs: &[Type], entry: Option<Block>) {
        let attrs = body.attr(op, "arg_attrs").and_then(|a| a.as_array());
        self.out.push('(');
        for (i, &ty) in inputs.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            if let Some(entry) = entry {
                self.value(body, body.block_arg(entry, i));
                self.out.push_str(": ");
            }
            self.ty(ty);
            self.attr_dict(attrs.map_or(Attr::empty_dict(), |a| a[i]));
        }
        self.out.push(')');
    }

    fn function_results(&mut self, attrs: Option<Attr>, results: &[Type]) {
        let attrs = attrs.and_then(|a| a.as_array());
        match (results, attrs) {
            ([], _) => {}
            ([one], None) if one.as_function().is_none() => {
                self.out.push_str(" -> ");
                self.ty(*one);
            }
            _ => {
                self.out.push_str(" -> (");
                for (i, &ty) in results.iter().enumerate() {
                    self.out.push_str(if i > 0 { ", " } else { "" });
                    self.ty(ty);
                    self.attr_dict(attrs.map_or(Attr::empty_dict(), |a| a[i]));
                }
                self.out.push(')');
            }
        }
    }
}

/// An op's operands, each with its index map where the op has them.
struct Operands<'b> {
    body: &'b Body,
    operands: &'b [Value],
    maps: Option<&'b [Attr]>,
}

impl Operands<'_> {
    fn operand(&mut self, printer: &mut Printer, i: usize) {
        printer.value(self.body, self.operands[i]);
        if let Some(maps) = self.maps {
            let _ = types::write_dims(&mut printer.out, maps[i].as_shape().unwrap_or_default());
        }
    }
    fn list(&mut self, printer: &mut Printer, range: Range<usize>) {
        for i in range.clone() {
            printer.out.push_str(if i == range.start { "" } else { ", " });
            self.operand(printer, i);
        }
    }
}

/// The `maps` of an indexed op, where each operand has one: they print behind the operands.
fn index_maps(body: &Body, op: Op, def: &OpDef) -> Option<&'static [Attr]> {
    let maps = body.attr(op, "maps").filter(|_| def.has(Traits::INDEXED))?.as_array()?;
    let fits = !maps.is_empty() && maps.len() == body.operand_count(op) && maps.iter().all(|m| m.as_shape().is_some());
    fits.then_some(maps)
}

/// Whether the op is nothing but its name.
fn is_bare(body: &Body, op: Op) -> bool {
    body.operand_count(op) == 0
        && body.result_count(op) == 0
        && !body.has_extra(op)
        && body.attrs(op) == Attr::empty_dict()
}

/// The words that stand before a function's name.
pub fn is_visibility(text: &str) -> bool {
    matches!(text, "public" | "private" | "nested")
}
