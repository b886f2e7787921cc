//! Replacements: the operations that a rule makes of what it has matched.

use super::matcher::Match;
use super::rule::{NewOp, Rule, Slot};
use super::val::{Val, encode};
use rc_dialects::core::scalar::{Scalar, splat_attr};
use rc_dialects::op;
use rc_ir::op_def::{Arity, AttrKind};
use rc_ir::rewrite::Anchor;
use rc_ir::{Attr, Builder, Diagnostic, Name, Op, OpName, Pattern, Result, Rewriter, Traits, Type, Value};
use smallvec::SmallVec;

impl Pattern for Rule {
    fn name(&self) -> &str {
        self.name
    }
    fn anchor(&self) -> Anchor {
        Anchor::Op(self.ops[0].name)
    }
    fn rewrite(&self, op: Op, rw: &mut Rewriter) -> Result<bool> {
        if !self.may_match(rw.body, op) {
            return Ok(false);
        }
        let mut found = Match::default();
        if !self.matches(rw.body, op, &mut found) {
            return Ok(false);
        }
        // The replacement's names may be those of the root's results.
        for new in &self.makes {
            self.make(new, op, &mut found, rw)?;
        }
        let values: SmallVec<[Value; 2]> = self.results.iter().map(|&v| found.values[v].expect("bound")).collect();
        for (old, &new) in rw.body.results(op).zip(&values) {
            let (is, becomes) = (rw.body.ty(old), rw.body.ty(new));
            if is != becomes {
                let error = self.wrong(rw.body.loc(op), format!("replaces a value of type {is} by one of {becomes}"));
                return Err(error.note(self.loc, "the rule"));
            }
        }
        rw.replace(op, &values);
        Ok(true)
    }
}

impl Rule {
    fn wrong(&self, loc: rc_ir::Loc, what: impl std::fmt::Display) -> Box<Diagnostic> {
        Diagnostic::error(loc, format!("the rule '{}' {what}", self.name))
    }

    fn make(&self, new: &NewOp, op: Op, found: &mut Match, rw: &mut Rewriter) -> Result {
        let loc = rw.body.loc(op);
        let no_value = |what: &str| {
            let error =
                self.wrong(loc, format!("applies, but {what} of its '{}' has no value here", new.name.pretty()));
            error.note(new.loc, "the operation").help("ask for what it needs in a condition")
        };
        let scope = found.scope(rw.body);
        let mut types = SmallVec::<[Type; 2]>::new();
        for code in &new.types {
            match code.eval(scope) {
                Some(Val::Type(ty)) => types.push(ty),
                _ => return Err(no_value("the type")),
            }
        }
        let base = new.base.and_then(|at| found.ops[at]);
        let mut attrs = base.map_or(Attr::empty_dict(), |base| rw.body.attrs(base).with(segments(), None));
        for (name, kind, code) in &new.attrs {
            let val = code.eval(scope).ok_or_else(|| no_value(&format!("the attribute '{name}'")))?;
            if val == Val::Absent {
                attrs = attrs.with(*name, None);
                continue;
            }
            if let (AttrKind::Elements, Val::Number(number), Some(&ty)) = (kind, &val, types.first())
                && new.def.has(Traits::CONSTANT)
                && ty.static_shape().is_none()
            {
                let value = repeated(rw, op, new.name, *number, ty).ok_or_else(|| no_value("the value"))??;
                found.values[new.results[0]] = Some(value);
                return Ok(());
            }
            let attr = encode(*kind, &val, types.first().copied());
            attrs = attrs.with(*name, Some(attr.ok_or_else(|| no_value(&format!("the attribute '{name}'")))?));
        }
        let mut b = Builder::before(rw.body, op);
        let mut builder = b.op(new.name).attrs(attrs);
        for group in &new.operands {
            builder = builder.operands(&group_of(group, found));
        }
        if !types.is_empty() {
            builder = builder.results(&types);
        }
        let made = builder.try_build().map_err(|refused| {
            let error = self.wrong(loc, format!("makes an operation that is refused: {}", refused.message));
            error.note(new.loc, "the operation").help("ask for what it needs in a condition")
        })?;
        if rw.body.result_count(made) != new.results.len() {
            let error = self.wrong(
                loc,
                format!(
                    "names {} results of a '{}' that has {}",
                    new.results.len(),
                    new.name.pretty(),
                    rw.body.result_count(made)
                ),
            );
            return Err(error.note(new.loc, "the operation"));
        }
        for (i, &at) in new.results.iter().enumerate() {
            found.values[at] = Some(rw.body.result(made, i));
        }
        Ok(())
    }
}

fn group_of(slots: &[Slot], found: &Match) -> SmallVec<[Value; 4]> {
    let mut out = SmallVec::new();
    for slot in slots {
        match found.values[slot.value] {
            Some(value) => out.push(value),
            None => out.extend(found.many_of(slot.value).unwrap_or_default().iter().copied()),
        }
    }
    out
}

/// A constant of a symbolic size: a scalar, repeated.
fn repeated(rw: &mut Rewriter, op: Op, constant: OpName, number: Scalar, ty: Type) -> Option<Result<Value>> {
    let value = splat_attr(ty.elem(), number.convert(ty.elem())?)?;
    let mut b = Builder::before(rw.body, op);
    let scalar = b.op(constant).attr("value", value).try_value();
    Some(scalar.and_then(|scalar| {
        b.op(op::core::BROADCAST).operand(scalar).attr("dims", Attr::i64s(&[])).result(ty).try_value()
    }))
}

fn segments() -> Name {
    Name::new("operandSegmentSizes")
}

impl NewOp {
    /// Whether the results' types follow from the declaration.
    pub fn is_inferred(&self) -> bool {
        self.def.infer.is_some() || !self.def.results.iter().any(|r| r.arity == Arity::One)
    }
}
