//! The generic form, to MLIR's letter.

use super::{Printer, discardable, types};
use crate::attr::{Attr, AttrData};
use crate::body::{Body, Op, Region};
use crate::intern::Name;
use crate::op_def::OpName;

impl Printer<'_> {
    pub(super) fn generic_module_start(&mut self, attrs: Attr) {
        self.out.push_str("\"builtin.module\"()");
        let entries = attrs.as_dict().unwrap_or_default();
        self.properties(entries, is_module_property);
        self.out.push_str(" ({\n");
    }

    pub(super) fn generic_module_end(&mut self, attrs: Attr) {
        self.out.push_str("})");
        let entries = attrs.as_dict().unwrap_or_default();
        self.dictionary(entries, |key| !is_module_property(key));
        self.out.push_str(" : () -> ()");
    }

    pub(super) fn generic_op(&mut self, body: &Body, op: Op, indent: usize) {
        self.indent(indent);
        self.results(body, op);
        self.quoted_name(body.name(op));
        self.out.push('(');
        self.values(body, body.operands(op));
        self.out.push(')');
        let def = body.name(op).def();
        if body.has_extra(op) {
            self.successors(body, op);
            if let Some(props) = body.props(op) {
                self.out.push_str(" <");
                self.attr(props);
                self.out.push('>');
            }
        }
        let attrs = body.attrs(op);
        let entries = if def.is_some() { attrs.as_dict().unwrap_or_default() } else { &[] };
        if def.is_some() {
            self.properties(entries, |key| !discardable(def, key));
        }
        if body.has_extra(op) {
            self.generic_regions(body, op, indent);
        }
        match def {
            Some(_) => self.dictionary(entries, |key| discardable(def, key)),
            None => self.attr_dict(attrs),
        }
        self.signature(body, op);
        self.trailing_loc(body.loc(op));
        self.out.push('\n');
    }

    fn quoted_name(&mut self, name: OpName) {
        if let Some(text) = self.quoted.get(name.id()) {
            return self.out.push_str(text);
        }
        let start = self.out.len();
        self.quoted(name.as_str());
        self.quoted.put(name.id(), &self.out[start..]);
    }
    fn quoted(&mut self, text: &str) {
        if text.bytes().all(|b| matches!(b, 0x20..=0x7e) && b != b'"' && b != b'\\') {
            self.out.push('"');
            self.out.push_str(text);
            self.out.push('"');
        } else {
            let _ = types::write_string(&mut self.out, text);
        }
    }

    /// ` <{…}>` with the entries that `keep` takes, unless none.
    fn properties(&mut self, entries: &[(Name, Attr)], keep: impl Fn(Name) -> bool) {
        if entries.iter().any(|e| keep(e.0)) {
            self.out.push_str(" <");
            self.entries(entries, keep);
            self.out.push('>');
        }
    }
    /// ` {…}` with the entries that `keep` takes, unless none.
    fn dictionary(&mut self, entries: &[(Name, Attr)], keep: impl Fn(Name) -> bool) {
        if entries.iter().any(|e| keep(e.0)) {
            self.out.push(' ');
            self.entries(entries, keep);
        }
    }
    fn entries(&mut self, entries: &[(Name, Attr)], keep: impl Fn(Name) -> bool) {
        self.out.push('{');
        for (i, &(key, value)) in entries.iter().filter(|e| keep(e.0)).enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.key(key);
            if !matches!(value.data(), AttrData::Unit) {
                self.out.push_str(" = ");
                self.attr(value);
            }
        }
        self.out.push('}');
    }

    fn generic_regions(&mut self, body: &Body, op: Op, indent: usize) {
        let regions = body.regions(op);
        for (i, &region) in regions.iter().enumerate() {
            self.out.push_str(if i == 0 { " ({\n" } else { ", {\n" });
            self.generic_region(body, region, indent);
            self.indent(indent);
            self.out.push('}');
        }
        if !regions.is_empty() {
            self.out.push(')');
        }
    }

    /// The blocks of a region, one level deeper; their labels at `indent`.
    pub(super) fn generic_region(&mut self, body: &Body, region: Region, indent: usize) {
        for (i, block) in body.blocks(region).enumerate() {
            let labelled = i > 0
                || body.block_args(block).len() > 0
                || self.names.is_target(block)
                || body.first_op(block).is_none();
            if labelled {
                self.block_label(body, block, indent);
            }
            for op in body.ops(block) {
                self.op(body, op, indent + 1);
            }
        }
    }

    /// ` : (operands) -> results`.
    fn signature(&mut self, body: &Body, op: Op) {
        self.out.push_str(" : (");
        for (i, operand) in body.operands(op).enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.ty(body.ty(operand));
        }
        self.out.push_str(") -> ");
        let mut results = body.results(op).map(|r| body.ty(r));
        match (results.len(), results.clone().next()) {
            (1, Some(one)) if one.as_function().is_none() => self.ty(one),
            _ => {
                self.out.push('(');
                if let Some(first) = results.next() {
                    self.ty(first);
                }
                for ty in results {
                    self.out.push_str(", ");
                    self.ty(ty);
                }
                self.out.push(')');
            }
        }
    }
}

fn is_module_property(key: Name) -> bool {
    key == "sym_name" || key == "sym_visibility"
}
