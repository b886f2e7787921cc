//! An operation against its declaration: counts, types, attributes, inferred result types.

use super::{Verifier, redefined};
use crate::attr::Attr;
use crate::body::{Body, Op};
use crate::intern::Name;
use crate::op_def::{Arity, AttrDefault, AttrKind, InferArgs, OpDef, OpName, Regions, Traits};
use crate::suggest::did_you_mean;
use crate::types::Type;
use smallvec::SmallVec;

/// All that the checks of one op look at, apart from its regions and successors.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Signature {
    name: OpName,
    attrs: Attr,
    operands: u8,
    results: u8,
    types: [Option<Type>; 6],
}

impl Signature {
    /// `None` for an op with more types than fit.
    fn of(body: &Body, op: Op) -> Option<Signature> {
        let (operands, results) = (body.operand_count(op), body.result_count(op));
        let mut types = [None; 6];
        if operands + results > types.len() {
            return None;
        }
        for (slot, value) in types.iter_mut().zip(body.operands(op).chain(body.results(op))) {
            *slot = Some(body.ty(value));
        }
        let (operands, results) = (operands as u8, results as u8);
        Some(Signature { name: body.name(op), attrs: body.attrs(op), operands, results, types })
    }
    fn slot(&self) -> usize {
        let mut mix = self.attrs.id().wrapping_mul(0x9e37_79b9) ^ self.name.id();
        for ty in self.types.iter().flatten() {
            mix = mix.rotate_left(5) ^ ty.id().wrapping_mul(0x85eb_ca6b);
        }
        (mix ^ (mix >> 15)) as usize % SLOTS
    }
}

const SLOTS: usize = 512;

/// Signatures found right, so that the thousandth `core.add` of the same types costs a comparison.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<Option<Signature>>,
}

impl Memo {
    fn knows(&self, signature: &Signature) -> bool {
        self.slots.get(signature.slot()).is_some_and(|s| s.as_ref() == Some(signature))
    }
    fn learn(&mut self, signature: Signature) {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        self.slots[signature.slot()] = Some(signature);
    }
}

impl Verifier<'_, '_> {
    /// Checks `op` against `def`; whether all is right.
    pub(super) fn declared(&mut self, op: Op, def: &'static OpDef) -> bool {
        let before = self.errors.len();
        self.regions_and_successors(op, def);
        if def.has(Traits::SYMBOL) {
            self.nested_symbol(op);
        }
        let signature = Signature::of(self.body, op);
        if !signature.is_some_and(|s| self.memo.knows(&s)) {
            let start = self.errors.len();
            let counts = self.operands(op, def) & self.results(op, def);
            let attrs = self.attributes(op, def);
            if counts && attrs {
                self.inferred(op, def);
            }
            if let (Some(signature), true) = (signature, self.errors.len() == start) {
                self.memo.learn(signature);
            }
        }
        self.errors.len() == before
    }

    fn regions_and_successors(&mut self, op: Op, def: &OpDef) {
        let (regions, successors) = (self.body.regions(op).len(), self.body.successors(op).len());
        if let Regions::Exactly(n) = def.regions
            && n as usize != regions
        {
            self.error(op, format_args!("expects {}, got {regions}", count(n as usize, "region")));
        }
        if def.successors as usize != successors {
            self.error(op, format_args!("expects {}, got {successors}", count(def.successors as usize, "successor")));
        }
    }

    /// A symbol inside a body is unique in its region.
    fn nested_symbol(&mut self, op: Op) {
        let body = self.body;
        let Some(region) = body.parent(op).and_then(|b| body.block_region(b)) else { return };
        let Some(name) = body.attr(op, "sym_name").and_then(|a| a.as_str()).map(Name::new) else { return };
        if let Some(first) = self.symbols.insert((region, name), body.loc(op)) {
            self.errors.push(redefined(name, body.loc(op), first));
        }
    }

    fn operands(&mut self, op: Op, def: &OpDef) -> bool {
        let n = self.body.operand_count(op);
        let segments = if def.has_segments() {
            let Some(sizes) = self.body.attr(op, "operandSegmentSizes").filter(|&a| AttrKind::I32Array.accepts(a))
            else {
                self.error(
                    op,
                    "expects the attribute 'operandSegmentSizes', array<i32: …>: the sizes of its operand groups",
                );
                return false;
            };
            sizes.as_ints()
        } else {
            None
        };
        let Some(groups) = def.operand_groups(n, segments.as_deref()) else {
            match segments {
                Some(sizes) => {
                    let expected = def.operands.len();
                    self.error(op, format_args!("has {} in 'operandSegmentSizes' = {sizes:?}, which fits neither {} nor its {expected} operand groups", count(sizes.len(), "size"), count(n, "operand")));
                }
                None => self.error(
                    op,
                    format_args!("expects {}, got {n}", expected(def.operands.iter().map(|o| o.arity), "operand")),
                ),
            }
            return false;
        };
        let types: SmallVec<[Type; 4]> = self.body.operands(op).map(|v| self.body.ty(v)).collect();
        let mut fits = true;
        for (group, declared) in groups.into_iter().zip(def.operands) {
            let len = group.len();
            let right = match declared.arity {
                Arity::One => len == 1,
                Arity::Optional => len <= 1,
                Arity::Variadic => true,
            };
            if !right {
                self.error(op, format_args!("expects at most one '{}' operand, got {len}", declared.name));
                fits = false;
            }
            for i in group {
                if !(declared.constraint.check)(types[i]) {
                    self.error(
                        op,
                        format_args!(
                            "expects operand {i} ('{}') to be {}, got {}",
                            declared.name, declared.constraint.desc, types[i]
                        ),
                    );
                    fits = false;
                }
            }
        }
        fits
    }

    fn results(&mut self, op: Op, def: &OpDef) -> bool {
        let n = self.body.result_count(op);
        let fixed = def.results.iter().filter(|r| r.arity == Arity::One).count();
        let open = def.results.iter().find(|r| r.arity != Arity::One).map(|r| r.arity);
        let right = match open {
            None => n == fixed,
            Some(Arity::Optional) => n == fixed || n == fixed + 1,
            Some(_) => n >= fixed,
        };
        if !right {
            self.error(
                op,
                format_args!("expects {}, got {n}", expected(def.results.iter().map(|r| r.arity), "result")),
            );
            return false;
        }
        let types: SmallVec<[Type; 2]> = self.body.results(op).map(|v| self.body.ty(v)).collect();
        let mut fits = true;
        let mut start = 0;
        for declared in def.results {
            let len = if declared.arity == Arity::One { 1 } else { n - fixed };
            for (i, &ty) in types.iter().enumerate().skip(start).take(len) {
                if !(declared.constraint.check)(ty) {
                    self.error(
                        op,
                        format_args!(
                            "expects result {i} ('{}') to be {}, got {ty}",
                            declared.name, declared.constraint.desc
                        ),
                    );
                    fits = false;
                }
            }
            start += len;
        }
        fits
    }

    fn attributes(&mut self, op: Op, def: &'static OpDef) -> bool {
        let before = self.errors.len();
        let attrs = self.body.attrs(op);
        let entries = attrs.as_dict().unwrap_or_default();
        for &(name, value) in entries {
            let expected = match def.attr_def(name.as_str()) {
                Some(declared) if declared.kind.accepts(value) => continue,
                Some(declared) => declared.kind.desc(),
                None => match implied(def, name.as_str()) {
                    Some(kind) if kind.accepts(value) => continue,
                    Some(kind) => kind.desc(),
                    None => {
                        self.unknown_attribute(op, def, name.as_str());
                        continue;
                    }
                },
            };
            self.error(op, format_args!("expects the attribute '{name}' to be {expected}, got {value}"));
        }
        let required = def.attrs.iter().filter(|a| a.default == AttrDefault::Required).map(|a| (a.name, a.kind));
        for (name, kind) in required.chain(required_by_traits(def)) {
            if attrs.get(name).is_none() {
                self.error(op, format_args!("expects the attribute '{name}', {}", kind.desc()));
            }
        }
        if let Some(ty) = attrs.get("function_type").and_then(|a| a.as_type())
            && def.has(Traits::FUNCTION)
            && ty.as_function().is_none()
        {
            self.error(op, format_args!("expects 'function_type' to be a function type, got {ty}"));
        }
        self.errors.len() == before
    }

    fn unknown_attribute(&mut self, op: Op, def: &OpDef, name: &str) {
        // MLIR's own operations take any.
        if name.contains('.') || ["func", "builtin"].contains(&self.body.name(op).dialect()) {
            return;
        }
        let hint = did_you_mean(name, def.attrs.iter().map(|a| a.name));
        let help = match def.attrs {
            [] => format!("'{}' declares no attributes", self.body.name(op).pretty()),
            attrs => format!("it declares {}", attrs.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")),
        };
        let error = self.body.op_ref(op).error(format_args!("has no attribute '{name}'{hint}"));
        self.errors.push(*error.help(format!("{help}; any other needs a dialect's prefix, as in 'mydialect.{name}'")));
    }

    /// The written result types are the inferred ones.
    fn inferred(&mut self, op: Op, def: &'static OpDef) {
        let Some(infer) = def.infer else { return };
        let operands: SmallVec<[Type; 4]> = self.body.operands(op).map(|v| self.body.ty(v)).collect();
        match infer(&InferArgs { operands: &operands, attrs: self.body.attrs(op), def }) {
            Err(why) => self.error(op, why),
            Ok(types) => {
                let written = self.body.op_ref(op).result_types();
                if written[..] != types[..] {
                    self.error(
                        op,
                        format_args!(
                            "is written with result type {}, but its operands and attributes give {}",
                            list(&written),
                            list(&types)
                        ),
                    );
                }
            }
        }
    }
}

/// Attributes that traits bring along, undeclared.
fn implied(def: &OpDef, name: &str) -> Option<AttrKind> {
    match name {
        "operandSegmentSizes" if def.has_segments() => Some(AttrKind::I32Array),
        "sym_name" | "sym_visibility" if def.has(Traits::SYMBOL) || def.has(Traits::FUNCTION) => Some(AttrKind::Str),
        "function_type" if def.has(Traits::FUNCTION) => Some(AttrKind::Type),
        "arg_attrs" | "res_attrs" if def.has(Traits::FUNCTION) => Some(AttrKind::Array),
        "maps" if def.has(Traits::INDEXED) => Some(AttrKind::ShapeArray),
        "value" if def.has(Traits::CONSTANT) => Some(AttrKind::Any),
        _ => None,
    }
}

fn required_by_traits(def: &OpDef) -> impl Iterator<Item = (&'static str, AttrKind)> {
    let symbol = def.has(Traits::SYMBOL) || def.has(Traits::FUNCTION);
    let required = [
        (symbol, "sym_name", AttrKind::Str),
        (def.has(Traits::FUNCTION), "function_type", AttrKind::Type),
        (def.has(Traits::INDEXED), "maps", AttrKind::ShapeArray),
        (def.has(Traits::CONSTANT), "value", AttrKind::Any),
    ];
    let declared = |name: &str| def.attr_def(name).is_some();
    required.into_iter().filter(move |r| r.0 && !declared(r.1)).map(|r| (r.1, r.2))
}

/// `2 operands`, `1 region`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `2 operands`, `at least 1 operand`, `1 or 2 operands`.
fn expected(arities: impl Iterator<Item = Arity> + Clone, what: &str) -> String {
    let fixed = arities.clone().filter(|&a| a == Arity::One).count();
    match arities.clone().find(|&a| a != Arity::One) {
        None => count(fixed, what),
        Some(Arity::Optional) if fixed == 0 => format!("at most 1 {what}"),
        Some(Arity::Optional) => format!("{fixed} or {}", count(fixed + 1, what)),
        Some(_) => format!("at least {}", count(fixed, what)),
    }
}

fn list(types: &[Type]) -> String {
    match types {
        [one] => one.to_string(),
        _ => format!("({})", types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")),
    }
}
