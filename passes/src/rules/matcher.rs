//! Matching: from the root up its operands, each operation of a pattern looked at once; once for each order where operands commute.

use super::code::Scope;
use super::rule::{AttrPattern, Condition, OpPattern, Part, Rule, Slot, Test, TypePattern};
use super::val::{Ints, Val, decode, same_number};
use rc_dialects::core::scalar::splat_of;
use rc_ir::{Attr, Body, Op, Type, TypeData, Value};
use smallvec::SmallVec;

/// What a rule's names stand for.
#[derive(Default)]
pub struct Match {
    pub values: SmallVec<[Option<Value>; 12]>,
    pub vars: SmallVec<[Option<Val>; 2]>,
    pub ops: SmallVec<[Option<Op>; 6]>,
    /// The values of holes that take several.
    pub many: SmallVec<[(usize, SmallVec<[Value; 4]>); 1]>,
}

impl Match {
    pub fn scope<'a>(&'a self, body: &'a Body) -> Scope<'a> {
        Scope { body, values: &self.values, vars: &self.vars }
    }
    pub fn many_of(&self, value: usize) -> Option<&[Value]> {
        self.many.iter().find(|m| m.0 == value).map(|m| m.1.as_slice())
    }
    /// Lets a name stand for a value, which it may do already.
    fn bind(&mut self, at: usize, value: Value) -> bool {
        *self.values[at].get_or_insert(value) == value
    }
    fn set(&mut self, var: usize, val: Val) -> bool {
        match &self.vars[var] {
            Some(before) => *before == val,
            None => {
                self.vars[var] = Some(val);
                true
            }
        }
    }
}

impl Rule {
    /// Whether the root may be `op`, as far as can be said before anything is bound.
    pub fn may_match(&self, body: &Body, op: Op) -> bool {
        let root = &self.ops[0];
        let counted = || body.operand_count(op) == root.operands.groups.len();
        body.name(op) == root.name
            && (self.gates.is_empty() || counted() && self.gates.iter().all(|gate| gate.is_open(body, op)))
    }

    /// What the names stand for where the pattern's root is `op` and the conditions hold: whether they do.
    pub fn matches(&self, body: &Body, op: Op, found: &mut Match) -> bool {
        found.values = SmallVec::from_elem(None, self.values.len());
        found.ops = SmallVec::from_elem(None, self.ops.len());
        found.ops[0] = Some(op);
        self.graph_matches(body, 0, found)
    }

    /// Matches the operations from number `at` on, and then all else.
    fn graph_matches(&self, body: &Body, at: usize, found: &mut Match) -> bool {
        let Some(pattern) = self.ops.get(at) else { return self.rest_matches(body, found) };
        let Some(op) = self.located(body, at, found) else { return false };
        if !pattern.results.iter().enumerate().all(|(i, &v)| found.bind(v, body.result(op, i))) {
            return false;
        }
        if pattern.attrs.iter().any(|a| a.is_refused(body, op)) {
            return false;
        }
        if !pattern.commutes {
            return operands_match(pattern, body, op, found) && self.graph_matches(body, at + 1, found);
        }
        let [first, second] = [pattern.operands.groups[0][0].value, pattern.operands.groups[1][0].value];
        let [a, b] = [body.operand(op, 0), body.operand(op, 1)];
        let before = (found.values.clone(), found.many.len());
        if found.bind(first, a) && found.bind(second, b) && self.graph_matches(body, at + 1, found) {
            return true;
        }
        found.values = before.0;
        found.many.truncate(before.1);
        a != b && found.bind(first, b) && found.bind(second, a) && self.graph_matches(body, at + 1, found)
    }

    /// The operation that number `at` of the pattern is to be.
    fn located(&self, body: &Body, at: usize, found: &mut Match) -> Option<Op> {
        let pattern = &self.ops[at];
        let op = match at {
            0 => found.ops[0]?,
            _ => body.defining_op(found.values[pattern.results[pattern.through]]?)?,
        };
        found.ops[at] = Some(op);
        (body.name(op) == pattern.name && body.result_count(op) == pattern.results.len()).then_some(op)
    }

    /// Attributes, types and conditions.
    fn rest_matches(&self, body: &Body, found: &mut Match) -> bool {
        // An order of operands that was tried before has left nothing.
        found.vars.clear();
        found.vars.resize(self.vars.len(), None);
        for (pattern, at) in self.ops.iter().zip(0..) {
            let op: Op = found.ops[at].expect("located");
            let results = pattern.types.iter().zip(body.results(op));
            if !results.into_iter().all(|(ty, value)| ty.matches(body, body.ty(value), found))
                || !pattern.attrs.iter().all(|a| a.matches(body, op, found))
            {
                return false;
            }
        }
        for (at, hole) in self.values[..self.holes].iter().enumerate() {
            let typed = |found: &mut Match, value: Value| hole.ty.matches(body, body.ty(value), found);
            let fits = match found.values[at] {
                Some(value) => typed(found, value),
                None => found
                    .many_of(at)
                    .map(SmallVec::<[Value; 4]>::from)
                    .is_some_and(|all| all.iter().all(|&v| typed(found, v))),
            };
            if !fits {
                return false;
            }
        }
        self.conditions.iter().all(|condition| match condition {
            Condition::Holds(code) => code.holds(found.scope(body)),
            Condition::Let(var, code) => match code.eval(found.scope(body)) {
                Some(val) => found.set(*var, val),
                None => false,
            },
        })
    }
}

fn operands_match(pattern: &OpPattern, body: &Body, op: Op, found: &mut Match) -> bool {
    let count = body.operand_count(op);
    if pattern.operands.segments {
        let sizes = body.op_ref(op).ints("operandSegmentSizes");
        let Some(ranges) = pattern.def.operand_groups(count, sizes.as_deref()) else { return false };
        return pattern
            .operands
            .groups
            .iter()
            .zip(ranges)
            .all(|(slots, range)| group_matches(slots, body, op, range, found));
    }
    // Sizes follow from the number of operands: at most one group takes what the others leave.
    let fixed: usize = pattern.operands.groups.iter().flatten().filter(|s| !s.many).count();
    let open = pattern.operands.groups.iter().flatten().any(|s| s.many);
    if count < fixed || (!open && count != fixed) {
        return false;
    }
    let mut start = 0;
    for slots in &pattern.operands.groups {
        let many = if slots.iter().any(|s| s.many) { count - fixed } else { 0 };
        let size = slots.iter().filter(|s| !s.many).count() + many;
        if !group_matches(slots, body, op, start..start + size, found) {
            return false;
        }
        start += size;
    }
    true
}

fn group_matches(slots: &[Slot], body: &Body, op: Op, range: std::ops::Range<usize>, found: &mut Match) -> bool {
    let single = slots.iter().filter(|s| !s.many).count();
    if range.len() < single || (single == slots.len() && range.len() != single) {
        return false;
    }
    let mut at = range.start;
    for slot in slots {
        if slot.many {
            let size = range.len() - single;
            let values: SmallVec<[Value; 4]> = (at..at + size).map(|i| body.operand(op, i)).collect();
            at += size;
            match found.many_of(slot.value) {
                Some(before) if before != values.as_slice() => return false,
                Some(_) => {}
                None => found.many.push((slot.value, values)),
            }
        } else {
            if !found.bind(slot.value, body.operand(op, at)) {
                return false;
            }
            at += 1;
        }
    }
    true
}

impl AttrPattern {
    fn find(&self, body: &Body, op: Op) -> Option<Attr> {
        body.attrs(op).as_dict()?.iter().find(|entry| entry.0 == self.name).map(|entry| entry.1)
    }

    /// Whether an attribute is not the fixed one that is asked for: what can be said before anything is bound.
    fn is_refused(&self, body: &Body, op: Op) -> bool {
        match &self.test {
            Test::Is(wanted) => self.find(body, op).or(self.default) != Some(*wanted),
            Test::Absent => self.find(body, op).is_some(),
            _ => false,
        }
    }

    fn matches(&self, body: &Body, op: Op, found: &mut Match) -> bool {
        let attr = self.find(body, op).or(self.default);
        match &self.test {
            Test::Is(_) | Test::Absent => true,
            Test::Number(wanted) => attr.and_then(splat_of).is_some_and(|number| same_number(number, *wanted)),
            Test::Bind { var, or_else } => {
                let val = match (attr, or_else) {
                    (Some(attr), _) => decode(self.kind, attr),
                    (None, Some(code)) => code.eval(found.scope(body)),
                    (None, None) => None,
                };
                val.is_some_and(|val| found.set(*var, val))
            }
            Test::List(parts) => match attr.and_then(|attr| decode(self.kind, attr)) {
                Some(Val::Ints(list)) => list_matches(parts, &list, body, found),
                _ => false,
            },
        }
    }
}

fn list_matches(parts: &[(bool, Part)], list: &[rc_ir::Dim], body: &Body, found: &mut Match) -> bool {
    let single = parts.iter().filter(|p| !p.0).count();
    if list.len() < single || (single == parts.len() && list.len() != single) {
        return false;
    }
    let mut at = 0;
    parts.iter().all(|(many, part)| {
        let size = if *many { list.len() - single } else { 1 };
        let here: Ints = list[at..at + size].iter().copied().collect();
        at += size;
        part.matches(if *many { Val::Ints(here) } else { Val::Int(here[0]) }, body, found)
    })
}

impl Part {
    fn matches(&self, val: Val, body: &Body, found: &mut Match) -> bool {
        match self {
            Part::Var(var) => found.set(*var, val),
            Part::Is(code) => code.eval(found.scope(body)) == Some(val),
        }
    }
}

impl TypePattern {
    pub fn matches(&self, body: &Body, ty: Type, found: &mut Match) -> bool {
        match self {
            TypePattern::Any => true,
            TypePattern::Whole(part) => part.matches(Val::Type(ty), body, found),
            TypePattern::Tensor(dims, elem) => {
                let TypeData::Tensor { shape, elem: of, encoding: None } = ty.data() else { return false };
                list_matches(dims, shape, body, found) && elem.matches(Val::Type(*of), body, found)
            }
        }
    }
}
