//! Matching: from the root up its operands, each operation of a pattern looked at once; once for each order where operands commute.

use super::code::{Code, Scope};
use super::rule::{AttrPattern, Condition, Form, OpPattern, Part, Rule, Slot, Test, TypePattern, Use, is_elementwise};
use super::val::{Val, decode, same_number};
use rc_dialects::core::scalar::splat_of;
use rc_ir::{Attr, Body, Dim, Op, Type, TypeData, Value};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// What a rule's names stand for.
#[derive(Default)]
pub struct Match {
    pub values: SmallVec<[Option<Value>; 12]>,
    pub vars: SmallVec<[Option<Val>; 2]>,
    pub ops: SmallVec<[Option<Op>; 6]>,
    /// The values of holes that take several.
    pub many: SmallVec<[(usize, SmallVec<[Value; 4]>); 1]>,
    /// What the pass chose, where it chooses.
    pub chosen: Option<SmallVec<[Value; 2]>>,
    /// How many of the first variables a form takes: they stay.
    pub takes: usize,
    /// Values in other forms, in the order of the conditions.
    pub formed: Vec<Formed>,
    /// Where a remark belongs, and its text: of a condition that alone does not hold.
    pub missed: Option<(Value, String)>,
}

/// Values in another form.
pub struct Formed {
    pub form: Arc<Form>,
    /// What they are called: of one value each that the form makes.
    pub makes: Vec<usize>,
    pub many: bool,
    /// For each the case, and what its names stand for.
    pub parts: Vec<(usize, Match)>,
}

impl Match {
    /// Forgets what another rule has left, and makes room for the names of this one.
    fn start(&mut self, rule: &Rule) {
        self.values.clear();
        self.values.resize(rule.values.len(), None);
        self.ops.clear();
        self.ops.resize(rule.ops.len(), None);
        self.many.clear();
        self.vars.clear();
        self.takes = 0;
        self.missed = None;
    }
    pub fn scope<'a>(&'a self, body: &'a Body) -> Scope<'a> {
        Scope { body, values: &self.values, vars: &self.vars, chosen: self.chosen.as_deref() }
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
        let open = || self.gates.iter().all(|gate| gate.is_open(body, op));
        match root.any {
            Some(_) => open() && root.is_name_of(body, op),
            None if self.gates.is_empty() => root.is_name_of(body, op),
            None => root.is_name_of(body, op) && body.operand_count(op) == root.operands.groups.len() && open(),
        }
    }

    /// What the names stand for where the pattern's root is `op` and the conditions hold: whether they do.
    pub fn matches(&self, body: &Body, op: Op, found: &mut Match) -> bool {
        found.start(self);
        found.ops[0] = Some(op);
        self.graph_matches(body, 0, found)
    }

    /// Whether a value fits this case of a form.
    fn fits(&self, body: &Body, values: &[Value], takes: &[Val], found: &mut Match) -> bool {
        let maker = body.defining_op(values[0]).filter(|&op| !self.ops.is_empty() && self.may_match(body, op));
        if maker.is_none() && !self.ops.is_empty() {
            return false;
        }
        found.start(self);
        found.values.iter_mut().zip(values).for_each(|(slot, &value)| *slot = Some(value));
        found.vars.extend(takes.iter().cloned().map(Some));
        found.takes = takes.len();
        if maker.is_none() {
            return self.rest_matches(body, found);
        }
        found.ops[0] = maker;
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
        if pattern.operands.slide() {
            return self.sliding_matches(body, at, op, found);
        }
        if !pattern.commutes {
            return operands_match(pattern, body, op, 0, found) && self.graph_matches(body, at + 1, found);
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

    /// What makes the operand between two lists, `%before..., %x, %after...`, where the pattern says it.
    fn slid(&self, at: usize) -> Option<&OpPattern> {
        let [slots] = &self.ops[at].operands.groups[..] else { return None };
        let [before, single, after] = slots[..] else { return None };
        let makes = |op: &&OpPattern| op.results.contains(&single.value);
        (before.many && !single.many && after.many).then(|| self.ops.iter().find(makes))?
    }

    /// Tries each length of the first of two lists of operands.
    fn sliding_matches(&self, body: &Body, at: usize, op: Op, found: &mut Match) -> bool {
        let before = (found.values.clone(), found.many.len());
        let single = self.slid(at);
        (0..body.operand_count(op)).any(|first| {
            if let Some(wanted) = single
                && body.defining_op(body.operand(op, first)).is_none_or(|maker| !wanted.is_name_of(body, maker))
            {
                return false;
            }
            found.values.clone_from(&before.0);
            found.many.truncate(before.1);
            operands_match(&self.ops[at], body, op, first, found) && self.graph_matches(body, at + 1, found)
        })
    }

    /// The operation that number `at` of the pattern is to be.
    fn located(&self, body: &Body, at: usize, found: &mut Match) -> Option<Op> {
        let pattern = &self.ops[at];
        let op = match at {
            0 => found.ops[0]?,
            _ => body.defining_op(found.values[pattern.results[pattern.through]]?)?,
        };
        found.ops[at] = Some(op);
        (pattern.is_name_of(body, op) && body.result_count(op) == pattern.results.len()).then_some(op)
    }

    /// Attributes, types and conditions.
    fn rest_matches(&self, body: &Body, found: &mut Match) -> bool {
        // An order of operands that was tried before has left nothing.
        found.vars.truncate(found.takes);
        found.vars.resize(self.vars.len(), None);
        found.formed.clear();
        for (pattern, at) in self.ops.iter().zip(0..) {
            let op: Op = found.ops[at].expect("located");
            if pattern.any.is_some_and(|var| !found.set(var, Val::Op(body.name(op)))) {
                return false;
            }
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
            Condition::Holds(code, said) => code.holds(found.scope(body)) || self.misses(body, said, found),
            Condition::Let(var, code) => match code.eval(found.scope(body)) {
                Some(val) => found.set(*var, val),
                None => false,
            },
            Condition::Form(asked) => asked.matches(body, found),
        })
    }

    /// Keeps what is to be said of a condition that does not hold.
    fn misses(&self, body: &Body, said: &[Code], found: &mut Match) -> bool {
        let at = self.remark.as_ref().map_or(self.ops.first().map(|root| root.results[0]), |remark| Some(remark.at));
        if let Some(value) = at.and_then(|at| found.values[at]).filter(|_| !said.is_empty()) {
            found.missed = Some((value, text(said, found.scope(body))));
        }
        false
    }
}

/// What a remark's parts say together.
pub fn text(parts: &[Code], scope: Scope) -> String {
    parts.iter().filter_map(|part| part.eval(scope)).map(|val| val.to_string()).collect()
}

impl Use {
    /// Whether the values fit the form; binds what it gives, and those of its values that are there already.
    fn matches(&self, body: &Body, found: &mut Match) -> bool {
        let takes: Option<SmallVec<[Val; 2]>> = self.args.iter().map(|code| code.eval(found.scope(body))).collect();
        let values: SmallVec<[Value; 4]> = match found.values[self.value.value] {
            Some(value) => [value].into_iter().collect(),
            None => found.many_of(self.value.value).unwrap_or_default().into(),
        };
        let Some(takes) = takes.filter(|_| self.value.many || !values.is_empty()) else { return false };
        let others: Option<SmallVec<[Value; 2]>> = self.values.iter().map(|&value| found.values[value]).collect();
        let Some(others) = others else { return false };
        let with =
            |value: Value| std::iter::once(value).chain(others.iter().copied()).collect::<SmallVec<[Value; 2]>>();
        let parts: Option<Vec<(usize, Match)>> =
            values.iter().map(|&value| self.form.case_of(body, &with(value), &takes, found)).collect();
        let Some(parts) = parts else { return false };
        if self.value.many {
            let known = |(case, part): &(usize, Match)| part.values[self.form.cases[*case].results[0]];
            if let Some(values) = parts.iter().map(known).collect() {
                found.many.push((self.makes[0], values));
            }
        } else {
            let (case, part) = &parts[0];
            for (&value, &made) in self.makes.iter().zip(&self.form.cases[*case].results) {
                found.values[value] = part.values[made];
            }
            for (&var, &given) in self.gives.iter().zip(&self.form.cases[*case].gives) {
                if !part.vars[given].clone().is_some_and(|val| found.set(var, val)) {
                    return false;
                }
            }
        }
        found.formed.push(Formed { form: self.form.clone(), makes: self.makes.clone(), many: self.value.many, parts });
        true
    }
}

impl Form {
    /// The first case that a value, with the others that the form takes, fits.
    fn case_of(&self, body: &Body, values: &[Value], takes: &[Val], of: &Match) -> Option<(usize, Match)> {
        let mut found = Match { chosen: of.chosen.clone(), ..Match::default() };
        let at = self.cases.iter().position(|case| case.fits(body, values, takes, &mut found))?;
        Some((at, found))
    }
}

impl OpPattern {
    fn is_name_of(&self, body: &Body, op: Op) -> bool {
        match self.any {
            Some(_) => body.name(op).def().is_some_and(is_elementwise),
            None => body.name(op) == self.name,
        }
    }
}

/// `first`: how long the first of two lists is.
fn operands_match(pattern: &OpPattern, body: &Body, op: Op, first: usize, found: &mut Match) -> bool {
    let count = body.operand_count(op);
    if pattern.operands.segments {
        let sizes = body.op_ref(op).ints("operandSegmentSizes");
        let Some(ranges) = pattern.def.operand_groups(count, sizes.as_deref()) else { return false };
        return pattern
            .operands
            .groups
            .iter()
            .zip(ranges)
            .all(|(slots, range)| group_matches(slots, body, op, range, first, found));
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
        if !group_matches(slots, body, op, start..start + size, first, found) {
            return false;
        }
        start += size;
    }
    true
}

fn group_matches(slots: &[Slot], body: &Body, op: Op, range: Range<usize>, first: usize, found: &mut Match) -> bool {
    let single = slots.iter().filter(|s| !s.many).count();
    let mut lists = match slots.len() - single {
        2 if range.len() < single + first => return false,
        2 => [first, range.len() - single - first].into_iter(),
        _ => [range.len().saturating_sub(single), 0].into_iter(),
    };
    if range.len() < single || (single == slots.len() && range.len() != single) {
        return false;
    }
    let mut at = range.start;
    for slot in slots {
        if slot.many {
            let size = lists.next().unwrap_or(0);
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

/// Of several lists of any length all but one have a length that is known.
fn list_matches(parts: &[(bool, Part)], list: &[Dim], body: &Body, found: &mut Match) -> bool {
    let several = parts.iter().filter(|p| p.0).count() > 1;
    let length = |(many, part): &(bool, Part)| if *many { length_of(part, several, found) } else { Some(1) };
    let known = parts.iter().filter_map(length).sum();
    let Some(mut left) = list.len().checked_sub(known) else { return false };
    let mut rest = list;
    for (many, part) in parts {
        let size = if *many { length_of(part, several, found).unwrap_or_else(|| std::mem::take(&mut left)) } else { 1 };
        let Some((here, behind)) = rest.split_at_checked(size) else { return false };
        rest = behind;
        let fits =
            if *many { part.matches_list(here, body, found) } else { part.matches(Val::Int(here[0]), body, found) };
        if !fits {
            return false;
        }
    }
    rest.is_empty()
}

/// How long a list of any length is to be, where it is one of several and bound already.
fn length_of(part: &Part, several: bool, found: &Match) -> Option<usize> {
    match part {
        Part::Var(var) if several => match &found.vars[*var] {
            Some(Val::Ints(list)) => Some(list.len()),
            _ => None,
        },
        _ => None,
    }
}

impl Part {
    fn matches(&self, val: Val, body: &Body, found: &mut Match) -> bool {
        match self {
            Part::Any => true,
            Part::Var(var) => found.set(*var, val),
            Part::Is(code) => code.eval(found.scope(body)) == Some(val),
        }
    }
    fn matches_list(&self, list: &[Dim], body: &Body, found: &mut Match) -> bool {
        match self {
            Part::Any => true,
            Part::Var(var) => match &found.vars[*var] {
                Some(before) => matches!(before, Val::Ints(before) if before.as_slice() == list),
                None => found.set(*var, Val::Ints(list.into())),
            },
            Part::Is(_) => self.matches(Val::Ints(list.into()), body, found),
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
