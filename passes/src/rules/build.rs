//! Replacements: the operations that a rule makes of what it has matched.

use super::canonicalizations;
use super::matcher::{Match, text};
use super::rule::{NewOp, Rule, Slot, Test, is_elementwise};
use super::val::{Val, encode};
use rc_dialects::core::scalar::{Scalar, splat_attr};
use rc_dialects::op;
use rc_ir::op_def::{Arity, AttrKind};
use rc_ir::rewrite::Anchor;
use rc_ir::{Attr, Body, Builder, Diagnostic, Loc, Name, Op, OpName, Pattern, Result, Rewriter, Traits, Type, Value};
use smallvec::SmallVec;

impl Pattern for Rule {
    fn name(&self) -> &str {
        self.name
    }
    fn anchor(&self) -> Anchor {
        match self.ops[0].any {
            Some(_) => Anchor::Def(is_elementwise),
            None => Anchor::Op(self.ops[0].name),
        }
    }
    fn rewrite(&self, op: Op, rw: &mut Rewriter) -> Result<bool> {
        Ok(self.apply(op, &mut Match::default(), rw)?.is_some())
    }
}

/// What a rule did to an operation.
pub struct Applied {
    /// The rule's number in its set.
    pub rule: usize,
    /// What the operation's results are now.
    pub values: SmallVec<[Value; 2]>,
    /// The other operations that were matched, each before those that make its operands.
    pub read: SmallVec<[Op; 4]>,
}

impl Rule {
    /// Rewrites `op` where the rule matches. `found` says what the pass chose, where it chooses; else it is room to match in.
    pub fn apply(&self, op: Op, found: &mut Match, rw: &mut Rewriter) -> Result<Option<Applied>> {
        let nothing = found.chosen.as_ref().is_some_and(|chosen| chosen.is_empty());
        if self.chooses && nothing || !self.may_match(rw.body, op) {
            return Ok(None);
        }
        if !self.matches(rw.body, op, found) {
            rw.remarks.extend(found.missed.take().map(|(value, text)| (origin(rw.body, value), text)));
            return Ok(None);
        }
        if let Some(remark) = &self.remark {
            let at = found.values[remark.at].expect("of the pattern");
            rw.remarks.push((origin(rw.body, at), text(&remark.text, found.scope(rw.body))));
        }
        self.make_all(op, found, rw)?;
        let values: SmallVec<[Value; 2]> = self.results.iter().map(|&v| found.values[v].expect("bound")).collect();
        for (old, &new) in rw.body.results(op).zip(&values) {
            let (is, becomes) = (rw.body.ty(old), rw.body.ty(new));
            if is != becomes {
                let error = self.wrong(rw.body.loc(op), format!("replaces a value of type {is} by one of {becomes}"));
                return Err(error.note(self.loc, "the rule"));
            }
        }
        rw.replace(op, &values);
        let read = found.ops.iter().skip(1).flatten().copied().collect();
        Ok(Some(Applied { rule: 0, values, read }))
    }

    fn wrong(&self, loc: Loc, what: impl std::fmt::Display) -> Box<Diagnostic> {
        Diagnostic::error(loc, format!("the rule '{}' {what}", self.name))
    }

    /// Makes the values in other forms, and then the replacement's operations.
    fn make_all(&self, op: Op, found: &mut Match, rw: &mut Rewriter) -> Result {
        for mut formed in std::mem::take(&mut found.formed) {
            let mut values = SmallVec::<[Value; 4]>::new();
            for (case, part) in &mut formed.parts {
                let case = &formed.form.cases[*case];
                case.make_all(op, part, rw)?;
                values.extend(case.results.iter().map(|&result| part.values[result].expect("made")));
            }
            if formed.many {
                found.many.retain(|m| m.0 != formed.makes[0]);
                found.many.push((formed.makes[0], values));
            } else {
                formed.makes.iter().zip(values).for_each(|(&at, value)| found.values[at] = Some(value));
            }
        }
        for new in &self.makes {
            self.make(new, op, found, rw)?;
        }
        Ok(())
    }

    fn make(&self, new: &NewOp, op: Op, found: &mut Match, rw: &mut Rewriter) -> Result {
        let loc = rw.body.loc(op);
        let name = match new.any.and_then(|var| found.vars[var].as_ref()) {
            Some(Val::Op(name)) => *name,
            _ => new.name,
        };
        let no_value = |what: &str| {
            let error = self.wrong(loc, format!("applies, but {what} of its '{}' has no value here", name.pretty()));
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
        let absent = |name: Name, val: &Val| match new.base.zip(base) {
            // What was absent, and is what that stands for, stays absent.
            Some((at, base)) if rw.body.attr(base, name.as_str()).is_none() => {
                let asked = self.ops[at].attrs.iter().find(|a| a.name == name).map(|a| &a.test);
                matches!(asked, Some(Test::Bind { or_else: Some(code), .. }) if code.eval(scope).as_ref() == Some(val))
            }
            _ => false,
        };
        for (name, kind, code) in &new.attrs {
            let val = code.eval(scope).ok_or_else(|| no_value(&format!("the attribute '{name}'")))?;
            if val == Val::Absent || absent(*name, &val) {
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
        let mut builder = b.op(name).attrs(attrs);
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
                    name.pretty(),
                    rw.body.result_count(made)
                ),
            );
            return Err(error.note(new.loc, "the operation"));
        }
        if let &[at] = &new.results[..]
            && let Some(value) = canonicalizations().given_operand(rw.body, made)
        {
            rw.body.erase(made);
            found.values[at] = Some(value);
            return Ok(());
        }
        for (i, &at) in new.results.iter().enumerate() {
            found.values[at] = Some(rw.body.result(made, i));
        }
        Ok(())
    }
}

/// Where a value comes from.
fn origin(body: &Body, value: Value) -> Loc {
    body.defining_op(value).map_or(Loc::UNKNOWN, |op| body.loc(op))
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
