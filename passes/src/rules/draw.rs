//! Programs that a rule matches, drawn at random: types, attributes and constants are tried until declarations and conditions accept them.

use super::code::Code;
use super::matcher::Match;
use super::random::Random;
use super::rule::{AttrPattern, Condition, OpPattern, Part, Rule, Slot, Test, TypePattern, Use, is_elementwise};
use super::val::{Ints, Kind, Val, encode};
use rc_dialects::core::scalar::{Scalar, splat_attr};
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::op_def::{Arity, AttrDefault, AttrKind, InferArgs, OpDef, registered};
use rc_ir::verify::verify_body;
use rc_ir::{Attr, Block, Body, Builder, Dim, Loc, Name, Op, OpName, Pattern, Result, Rewriter, Traits, Type, Value};
use smallvec::SmallVec;

/// Attributes and types of an operation are drawn so often before another program is begun.
const TRIES: usize = 40;
/// No tensor has more elements.
const ELEMENTS: i64 = 4096;
/// Sizes: none, one, primes, and a size with many divisors.
const SIZES: [i64; 8] = [0, 1, 1, 2, 3, 5, 7, 12];

/// A function `@pattern` that gives the results of what a rule matches.
pub struct Instance {
    pub body: Body,
    pub root: Op,
}

impl Rule {
    /// A program that the rule matches; `None` where this draw has come to none.
    pub fn draw(&self, random: &mut Random) -> Option<Instance> {
        let instance = Draw::new(self, random).program()?;
        let (body, root) = (&instance.body, instance.root);
        (self.may_match(body, root) && self.matches(body, root, &mut Match::default())).then_some(instance)
    }

    /// The program with the replacement in place of what the rule matches.
    ///
    /// # Errors
    /// The replacement does not fit.
    pub fn replaced(&self, instance: &Instance) -> Result<Body> {
        let mut body = instance.body.clone();
        self.rewrite(instance.root, &mut Rewriter::new(&mut body))?;
        for op in body.walk().into_iter().rev() {
            if rc_ir::effects::is_dead(&body, op) {
                body.erase(op);
            }
        }
        Ok(body)
    }
}

/// Values and all else that a form takes.
type Takes = (Vec<Option<Value>>, Vec<Option<Val>>);

struct Draw<'r> {
    rule: &'r Rule,
    random: &'r mut Random,
    found: Match,
    /// Those that values have so far.
    types: Vec<Type>,
    /// The length of the list that was drawn last for the operation at hand.
    list: Option<usize>,
    /// Of the pattern's operations of any name, by number: which they are here.
    names: Vec<(usize, &'static OpDef)>,
    /// How many values holes of several are.
    counts: Vec<(usize, usize)>,
    /// Of a form's case: the type of its value.
    wanted: Option<Type>,
}

/// The forms that a rule asks for.
fn uses(rule: &Rule) -> impl Iterator<Item = &Use> {
    rule.conditions
        .iter()
        .filter_map(|condition| if let Condition::Form(asked) = condition { Some(asked) } else { None })
}

impl<'r> Draw<'r> {
    fn new(rule: &'r Rule, random: &'r mut Random) -> Draw<'r> {
        let mut found = Match::default();
        found.values.resize(rule.values.len(), None);
        found.vars.resize(rule.vars.len(), None);
        found.ops.resize(rule.ops.len(), None);
        Draw { rule, random, found, types: Vec::new(), list: None, names: Vec::new(), counts: Vec::new(), wanted: None }
    }

    fn program(&mut self) -> Option<Instance> {
        let func = new_function(op::func::FUNC, "pattern", &[], &[], Loc::UNKNOWN);
        let (mut body, entry) = (func.body, func.entry);
        let root = self.pattern(&mut body, entry)?;
        finish(&mut body, entry, root);
        verify_body(&body).is_empty().then_some(Instance { body, root })
    }

    /// The holes and operations of the pattern, those first whose values nothing else decides; gives the root.
    fn pattern(&mut self, body: &mut Body, entry: Block) -> Option<Op> {
        let rule = self.rule;
        self.choose_operations()?;
        let formed = |at: usize| uses(rule).any(|asked| asked.value.value == at);
        for at in 0..rule.holes {
            if self.is_known(at) {
                continue;
            }
            let made = rule.ops.iter().any(|op| op.results.contains(&at));
            if !made && !formed(at) {
                self.hole(body, entry, at)?;
            }
        }
        let mut done = vec![false; rule.ops.len()];
        loop {
            let known = |slot: &Slot| self.is_known(slot.value);
            let ready = |at: &usize| !done[*at] && rule.ops[*at].operands.groups.iter().flatten().all(known);
            if let Some(at) = (0..rule.ops.len()).find(ready) {
                done[at] = true;
                let op = self.operation(body, entry, &rule.ops[at])?;
                for (i, &value) in rule.ops[at].results.iter().enumerate() {
                    let result = body.result(op, i);
                    body.set_value_name(result, Name::new(&rule.values[value].name));
                    self.found.values[value] = Some(result);
                    self.types.push(body.ty(result));
                }
                self.found.ops[at] = Some(op);
                continue;
            }
            // What conditions compute of what is known may decide the rest.
            self.compute(body);
            let Some(asked) =
                uses(rule).find(|asked| asked.value.value < rule.holes && !self.is_known(asked.value.value))
            else {
                break;
            };
            self.hole_in_form(body, entry, asked)?;
        }
        rule.ops.first().and(self.found.ops[0])
    }

    fn is_known(&self, value: usize) -> bool {
        self.found.values[value].is_some() || self.found.many_of(value).is_some()
    }

    /// Which operations those of any name are, and how many operands holes of several values stand for.
    fn choose_operations(&mut self) -> Option<()> {
        for (at, pattern) in self.rule.ops.iter().enumerate() {
            if pattern.any.is_none() {
                continue;
            }
            let fits = |def: &&&'static OpDef| {
                is_elementwise(def)
                    && def.name.starts_with("rc.core.")
                    && def.operands.iter().all(|o| o.arity == Arity::One)
            };
            let all: Vec<&'static OpDef> = registered().into_iter().filter(|def| fits(&def)).collect();
            let def = *self.random.choose(&all)?;
            self.names.push((at, def));
            let slots: Vec<Slot> = pattern.operands.groups.concat();
            let mut left = def.operands.len().checked_sub(slots.iter().filter(|s| !s.many).count())?;
            let lists: Vec<usize> = slots.iter().filter(|s| s.many).map(|s| s.value).collect();
            for (i, &value) in lists.iter().enumerate() {
                let count = if i + 1 == lists.len() { left } else { self.random.below(left + 1) };
                left -= count;
                self.counts.push((value, count));
            }
        }
        Some(())
    }

    /// How many values a hole is.
    fn count(&mut self, at: usize) -> usize {
        match self.counts.iter().find(|c| c.0 == at) {
            Some(&(_, count)) => count,
            None if self.rule.values[at].many => self.random.below(4),
            None => 1,
        }
    }

    /// A hole that may be anything: arguments, or constants where conditions ask for numbers.
    fn hole(&mut self, body: &mut Body, entry: Block, at: usize) -> Option<()> {
        let constant = self.rule.conditions.iter().any(|c| asks_number(c, at));
        let mut values = SmallVec::new();
        for _ in 0..self.count(at) {
            let ty = self.hole_type(at)?;
            self.types.push(ty);
            values.push(if constant { self.constant(body, entry, ty)? } else { body.add_block_arg(entry, ty) });
        }
        self.bind(body, at, values);
        Some(())
    }

    /// A hole that a form is asked of: each of its values by one of the form's cases.
    fn hole_in_form(&mut self, body: &mut Body, entry: Block, asked: &Use) -> Option<()> {
        let at = asked.value.value;
        let takes = self.takes(body, asked);
        let mut values = SmallVec::new();
        for _ in 0..self.count(at) {
            // A type that is not known is that which the form comes to.
            let pattern = &self.rule.values[at].ty;
            let ty = if self.is_said(pattern) { Some(self.hole_type(at)?) } else { None };
            values.push(self.formed(body, entry, asked, ty, &takes)?);
            let ty = body.ty(*values.last()?);
            self.types.push(ty);
            pattern.matches(body, ty, &mut self.found).then_some(())?;
        }
        self.bind(body, at, values);
        Some(())
    }

    /// Whether the variables of a type are known.
    fn is_said(&self, ty: &TypePattern) -> bool {
        let known = |part: &Part| !matches!(part, Part::Var(var) if self.found.vars[*var].is_none());
        match ty {
            TypePattern::Any => false,
            TypePattern::Whole(part) => known(part),
            TypePattern::Tensor(sizes, elem) => sizes.iter().all(|size| known(&size.1)) && known(elem),
        }
    }

    /// What a form is given, as far as it is known.
    fn takes(&self, body: &Body, asked: &Use) -> Takes {
        let scope = self.found.scope(body);
        (
            asked.values.iter().map(|&v| self.found.values[v]).collect(),
            asked.args.iter().map(|code| code.eval(scope)).collect(),
        )
    }

    /// A value of a type that fits a form.
    fn formed(&mut self, body: &mut Body, entry: Block, asked: &Use, ty: Option<Type>, takes: &Takes) -> Option<Value> {
        let case = self.random.choose(&asked.form.cases)?;
        let types = self.types.clone();
        let mut draw = Draw { types, wanted: ty, ..Draw::new(case, self.random) };
        draw.found.values[1..=takes.0.len()].clone_from_slice(&takes.0);
        draw.found.vars[..takes.1.len()].clone_from_slice(&takes.1);
        if ty.is_some_and(|ty| !case.values[0].ty.matches(body, ty, &mut draw.found)) {
            return None;
        }
        if !case.ops.is_empty() {
            let root = draw.pattern(body, entry)?;
            let value = body.result(root, case.ops[0].results.iter().position(|&v| v == 0)?);
            return ty.is_none_or(|ty| body.ty(value) == ty).then_some(value);
        }
        draw.compute(body);
        if let Some(asked) = uses(case).find(|asked| asked.value.value == 0) {
            let takes = draw.takes(body, asked);
            return draw.formed(body, entry, asked, ty, &takes);
        }
        let ty = ty.or_else(|| draw.hole_type(0))?;
        let constant = case.conditions.iter().any(|c| asks_number(c, 0));
        if constant { draw.constant(body, entry, ty) } else { Some(body.add_block_arg(entry, ty)) }
    }

    fn bind(&mut self, body: &mut Body, at: usize, values: SmallVec<[Value; 4]>) {
        for &value in &values {
            if body.value_name(value).is_empty() {
                body.set_value_name(value, Name::new(&self.rule.values[at].name));
            }
        }
        match values[..] {
            [value] if !self.rule.values[at].many => self.found.values[at] = Some(value),
            _ => self.found.many.push((at, values)),
        }
    }

    /// Variables that conditions give a value, of what is known.
    fn compute(&mut self, body: &Body) {
        for condition in &self.rule.conditions {
            if let Condition::Let(var, code) = condition
                && self.found.vars[*var].is_none()
            {
                self.found.vars[*var] = code.eval(self.found.scope(body));
            }
        }
    }

    fn hole_type(&mut self, at: usize) -> Option<Type> {
        let rule = self.rule;
        let groups = rule.ops.iter().flat_map(|op| op.operands.groups.iter().zip(op.def.operands));
        let readers: Vec<_> = groups.filter(|(g, _)| g.iter().any(|s| s.value == at)).map(|g| g.1.constraint).collect();
        (0..TRIES).find_map(|_| {
            let before = self.found.vars.clone();
            let ty =
                self.type_of(&rule.values[at].ty).filter(|&ty| readers.iter().all(|c| (c.check)(ty)) && is_small(ty));
            if ty.is_none() {
                self.found.vars = before;
            }
            ty
        })
    }

    /// A type that a pattern describes; its variables are bound.
    fn type_of(&mut self, pattern: &TypePattern) -> Option<Type> {
        match pattern {
            TypePattern::Any => Some(self.any_type()),
            TypePattern::Whole(part) => match self.part(part, Kind::Type, Self::any_type)? {
                Val::Type(ty) => Some(ty),
                _ => None,
            },
            TypePattern::Tensor(dims, elem) => {
                // Those with a name first: others are computed from them.
                for (many, part) in dims {
                    if matches!(part, Part::Var(v) if !self.rule.vars[*v].name.is_empty()) {
                        self.part(part, if *many { Kind::Ints } else { Kind::Int }, Self::any_type)?;
                    }
                }
                let mut shape = Ints::new();
                for (many, part) in dims {
                    match self.part(part, if *many { Kind::Ints } else { Kind::Int }, Self::any_type)? {
                        Val::Int(n) => shape.push(n),
                        Val::Ints(list) => shape.extend(list),
                        _ => return None,
                    }
                }
                match self.part(elem, Kind::Type, Self::any_elem)? {
                    Val::Type(elem) if elem.is_scalar() => Some(Type::tensor(&shape, elem)),
                    _ => None,
                }
            }
        }
    }

    fn part(&mut self, part: &Part, kind: Kind, ty: fn(&mut Self) -> Type) -> Option<Val> {
        let var = match part {
            Part::Any => return self.anything(kind, ty),
            Part::Is(code) => {
                return code.eval(self.found.scope(&Body::new(rc_ir::body::OpState::new("draw", Loc::UNKNOWN))));
            }
            Part::Var(var) => *var,
        };
        if let Some(val) = self.found.vars[var].clone().or_else(|| self.asked(var, 2)) {
            self.found.vars[var] = Some(val.clone());
            return Some(val);
        }
        let val = self.anything(kind, ty)?;
        self.found.vars[var] = Some(val.clone());
        Some(val)
    }

    fn anything(&mut self, kind: Kind, ty: fn(&mut Self) -> Type) -> Option<Val> {
        match kind {
            Kind::Int => Some(Val::Int(Dim::Static(self.size()))),
            Kind::Ints => Some(Val::Ints(self.sizes())),
            Kind::Type => Some(Val::Type(ty(self))),
            _ => None,
        }
    }

    /// What a condition says that a variable is, once what that depends on is known; of an integer that all elements are, so many.
    fn asked(&self, var: usize, length: usize) -> Option<Val> {
        match (self.equal_to(var)?, self.rule.vars[var].kind) {
            (Val::Int(n), Kind::Ints) => Some(Val::Ints(std::iter::repeat_n(n, length).collect())),
            (val, _) => Some(val),
        }
    }
    fn equal_to(&self, var: usize) -> Option<Val> {
        let empty = Body::new(rc_ir::body::OpState::new("draw", Loc::UNKNOWN));
        let scope = super::code::Scope {
            body: &empty,
            values: &vec![None; self.rule.values.len()],
            vars: &self.found.vars,
            chosen: None,
        };
        self.rule.conditions.iter().find_map(|condition| match condition {
            Condition::Holds(Code::Binary(rc_parser::rules::ast::Binary::Eq, a, b), _) => match (&**a, &**b) {
                (Code::Var(v), code) | (code, Code::Var(v)) if *v == var => code.eval(scope),
                _ => None,
            },
            _ => None,
        })
    }

    /// Sizes and numbers that the rule speaks of come up often, and what is next to them.
    fn size(&mut self) -> i64 {
        let numbers: Vec<i64> = (self.rule.numbers.iter())
            .filter_map(|n| n.int().and_then(|n| i64::try_from(n).ok()))
            .flat_map(|n| [n, n.saturating_mul(2), n.saturating_add(1)])
            .filter(|n| (0..=130).contains(n))
            .collect();
        if !numbers.is_empty() && self.random.once_in(3) {
            return numbers[self.random.below(numbers.len())];
        }
        let known: Vec<i64> = self.types.iter().flat_map(|t| t.static_shape().unwrap_or_default()).collect();
        if !known.is_empty() && self.random.once_in(2) {
            return known[self.random.below(known.len())];
        }
        SIZES[self.random.below(SIZES.len())]
    }
    /// Sizes in a row, often those of another name.
    fn sizes(&mut self) -> Ints {
        let known: Vec<Ints> = (self.found.vars.iter())
            .filter_map(|val| if let Some(Val::Ints(list)) = val { Some(list.clone()) } else { None })
            .collect();
        match self.random.choose(&known) {
            Some(list) if !self.random.once_in(3) => list.clone(),
            _ => self.shape(),
        }
    }
    fn shape(&mut self) -> Ints {
        let rank = [0, 1, 1, 2, 2, 2, 3, 3, 4][self.random.below(9)];
        (0..rank).map(|_| Dim::Static(self.size())).collect()
    }
    fn any_elem(&mut self) -> Type {
        let all = [
            Type::f32(),
            Type::f32(),
            Type::f64(),
            Type::bf16(),
            Type::f16(),
            Type::i32(),
            Type::i64(),
            Type::i8(),
            Type::i1(),
            Type::unsigned(8),
        ];
        match self.types.last() {
            Some(ty) if !self.random.once_in(3) => ty.elem(),
            _ => all[self.random.below(all.len())],
        }
    }
    fn any_type(&mut self) -> Type {
        if !self.types.is_empty() && !self.random.once_in(3) {
            let ty = self.types[self.random.below(self.types.len())];
            return match self.random.below(6) {
                0 => ty.elem(),
                1 => ty.with_elem(self.any_elem()),
                _ => ty,
            };
        }
        let elem = self.any_elem();
        if self.random.once_in(8) { elem } else { Type::tensor(&self.shape(), elem) }
    }

    /// A constant of one number everywhere.
    fn constant(&mut self, body: &mut Body, entry: Block, ty: Type) -> Option<Value> {
        let value = self.elements(ty)?;
        Builder::at_end(body, entry).op(op::core::CONSTANT).attr("value", value).result(ty).try_value().ok()
    }
    fn elements(&mut self, ty: Type) -> Option<Attr> {
        let numbers = self.rule.numbers.clone();
        let number = match self.random.choose(&numbers) {
            Some(&number) if !self.random.once_in(4) => number,
            _ => *self.random.choose(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5].map(Scalar::Float))?,
        };
        splat_attr(ty, number.convert(ty.elem())?)
    }

    fn operation(&mut self, body: &mut Body, entry: Block, pattern: &OpPattern) -> Option<Op> {
        let number = self.rule.ops.iter().position(|op| std::ptr::eq(op, pattern));
        let (name, def) = match self.names.iter().find(|n| Some(n.0) == number) {
            Some(&(_, def)) => (OpName::new(def.name), def),
            None => (pattern.name, pattern.def),
        };
        let mut groups: Vec<Vec<Value>> = Vec::new();
        for slots in &pattern.operands.groups {
            let mut group = Vec::new();
            for slot in slots {
                match self.found.values[slot.value] {
                    Some(value) => group.push(value),
                    None => group.extend(self.found.many_of(slot.value).unwrap_or_default()),
                }
            }
            groups.push(group);
        }
        let operands: Vec<Value> = groups.concat();
        if pattern.any.is_some() {
            groups = operands_of(&groups);
        }
        for (group, declared) in groups.iter().zip(def.operands) {
            let few = declared.arity == Arity::One && group.len() != 1;
            if few || group.iter().any(|&v| !(declared.constraint.check)(body.ty(v))) {
                return None;
            }
        }
        let types: Vec<Type> = operands.iter().map(|&v| body.ty(v)).collect();
        let before = self.found.vars.clone();
        (0..TRIES).find_map(|_| {
            self.found.vars.clone_from(&before);
            self.list = None;
            let attrs = self.attributes(pattern, def, &types, body)?;
            let args = InferArgs { operands: &types, attrs, def };
            let results = match def.infer {
                Some(infer) if !def.has(Traits::CONSTANT) => infer(&args).ok()?.to_vec(),
                _ => self.result_types(pattern, &types, attrs)?,
            };
            if results.len() != pattern.results.len() || !results.iter().all(|&ty| is_small(ty)) {
                return None;
            }
            let fits = pattern.types.iter().zip(&results).all(|(p, &ty)| p.matches(body, ty, &mut self.found));
            let declared = def.results.iter().zip(&results).all(|(d, &ty)| (d.constraint.check)(ty));
            (fits && declared).then_some(())?;
            let attrs = self.with_elements(pattern, attrs, results.first().copied())?;
            let mut b = Builder::at_end(body, entry);
            let mut op = b.op(name).attrs(attrs);
            for group in &groups {
                op = op.operands(group);
            }
            let op = op.results(&results).try_build().ok()?;
            match def.verify {
                Some(verify) if verify(body.op_ref(op)).is_err() => {
                    body.erase(op);
                    None
                }
                _ => Some(op),
            }
        })
    }

    /// Attributes that the pattern asks for, and any for the others.
    fn attributes(&mut self, pattern: &OpPattern, def: &'static OpDef, operands: &[Type], body: &Body) -> Option<Attr> {
        let mut attrs = Attr::empty_dict();
        for declared in def.attrs {
            if declared.kind == AttrKind::Elements {
                continue;
            }
            let asked = pattern.attrs.iter().find(|a| a.name.as_str() == declared.name);
            let value = match asked {
                Some(asked) => self.asked_attr(asked, declared.default != AttrDefault::Required, operands, body)?,
                None if declared.default != AttrDefault::Required && !self.random.once_in(4) => None,
                None => Some(self.any_attr(declared.kind, operands)?),
            };
            attrs = attrs.with(Name::new(declared.name), value);
        }
        Some(attrs)
    }

    #[allow(clippy::option_option)]
    fn asked_attr(
        &mut self,
        asked: &AttrPattern,
        optional: bool,
        operands: &[Type],
        body: &Body,
    ) -> Option<Option<Attr>> {
        Some(match &asked.test {
            Test::Is(attr) => Some(*attr),
            Test::Absent | Test::Number(_) => None,
            Test::Bind { var, or_else } => {
                let length = self.list.unwrap_or_else(|| operands.first().map_or(1, |t| t.rank()));
                if let Some(val) = self.found.vars[*var].clone().or_else(|| self.asked(*var, length)) {
                    self.found.vars[*var] = Some(val.clone());
                    return encode(asked.kind, &val, None).map(Some);
                }
                if optional && or_else.is_some() && self.random.once_in(2) {
                    self.found.vars[*var] = or_else.as_ref().and_then(|code| code.eval(self.found.scope(body)));
                    return Some(None);
                }
                let attr = self.any_attr(asked.kind, operands)?;
                self.found.vars[*var] = super::val::decode(asked.kind, attr);
                Some(attr)
            }
            Test::List(parts) => {
                let mut list = Ints::new();
                for (many, part) in parts {
                    let rank = operands.first().map_or(1, |t| t.rank().max(1));
                    if let Part::Var(var) = part
                        && self.found.vars[*var].is_none()
                        && self.asked(*var, 0).is_none()
                    {
                        let place = |random: &mut Random| Dim::Static(random.below(rank) as i64);
                        self.found.vars[*var] = Some(match many {
                            true => Val::Ints((0..self.random.below(rank + 1)).map(|_| place(self.random)).collect()),
                            false => Val::Int(place(self.random)),
                        });
                    }
                    match self.part(part, if *many { Kind::Ints } else { Kind::Int }, Self::any_type)? {
                        Val::Int(n) => list.push(n),
                        Val::Ints(more) => list.extend(more),
                        _ => return None,
                    }
                }
                Some(encode(asked.kind, &Val::Ints(list), None)?)
            }
        })
    }

    fn any_attr(&mut self, kind: AttrKind, operands: &[Type]) -> Option<Attr> {
        let rank = operands.first().map_or(0, |t| t.rank());
        Some(match kind {
            AttrKind::I64 if rank > 0 && !self.random.once_in(3) => Attr::i64(self.random.below(rank) as i64),
            AttrKind::I64 => Attr::i64(self.random.below(4) as i64),
            AttrKind::I32 => Attr::int(self.random.below(4) as i64, Type::i32()),
            AttrKind::I64Array => Attr::i64s(&self.any_list(rank)),
            AttrKind::I32Array => Attr::i32s(&self.any_list(rank)),
            AttrKind::Shape => {
                let own = operands.first().map(|t| t.shape()).unwrap_or_default();
                let dims: Ints = match self.random.below(5) {
                    0 => own.into_iter().collect(),
                    1 => own.iter().map(|_| Dim::Static(0)).collect(),
                    _ => own.iter().map(|_| Dim::Static(self.random.below(4) as i64)).collect(),
                };
                Attr::shape(&dims)
            }
            AttrKind::Bool => Attr::bool(self.random.once_in(2)),
            AttrKind::Unit => Attr::unit(),
            AttrKind::Enum(words) => Attr::str(self.random.choose(words)?),
            AttrKind::Str => Attr::str("word"),
            AttrKind::Type => {
                let own = operands.first().map_or_else(Type::f32, |t| t.elem());
                Attr::ty(if self.random.once_in(2) { own } else { self.any_elem() })
            }
            AttrKind::F32 => Attr::float(*self.random.choose(&[0.0, 1.0, 0.5, -2.0])?, Type::f32()),
            AttrKind::F64 => Attr::float(*self.random.choose(&[0.0, 1.0, 0.5, -2.0])?, Type::f64()),
            _ => return None,
        })
    }

    /// Numbers of dimensions in some order, or as many small numbers as another list has.
    fn any_list(&mut self, rank: usize) -> Vec<i64> {
        let length = self.list.unwrap_or(rank);
        let mut list = match self.random.below(if self.list.is_some() { 8 } else { 5 }) {
            0 | 1 => self.random.permutation(rank),
            2 => (0..rank as i64).filter(|_| self.random.once_in(2)).collect(),
            3 => {
                // Places in something of a higher rank.
                let more = rank + self.random.below(3);
                let mut places: Vec<i64> = self.random.permutation(more).into_iter().take(rank).collect();
                places.sort_unstable();
                places
            }
            4 => Vec::new(),
            _ => (0..length).map(|_| [1, 1, 1, 2, 3, 0][self.random.below(6)]).collect(),
        };
        if self.random.once_in(12) {
            list.pop();
        }
        self.list = Some(list.len());
        list
    }

    /// Of an operation whose declaration does not say it: types near that of its first operand.
    fn result_types(&mut self, pattern: &OpPattern, operands: &[Type], attrs: Attr) -> Option<Vec<Type>> {
        let wanted = pattern.types.first();
        if let Some(ty) = self.wanted.filter(|_| pattern.results.contains(&0)) {
            return Some(vec![ty]);
        }
        let free = matches!(wanted, None | Some(TypePattern::Any))
            || matches!(wanted, Some(TypePattern::Whole(Part::Var(v))) if self.found.vars[*v].is_none() && self.asked(*v, 0).is_none());
        let ty = match (wanted, operands.first()) {
            (Some(pattern), _) if !free => self.type_of(pattern)?,
            (_, Some(&first)) => self.near(first, attrs),
            _ => self.any_type(),
        };
        Some(vec![ty])
    }

    fn near(&mut self, ty: Type, attrs: Attr) -> Type {
        let lists = attrs.as_dict().into_iter().flatten().filter_map(|(_, a)| a.as_ints());
        let places = lists.into_iter().find(|l| l.len() == ty.rank() && l.iter().all(|&d| (0..6).contains(&d)));
        match (self.random.below(6), places) {
            (0, _) => self.any_type(),
            (1, _) => ty.with_elem(self.any_elem()),
            (2, _) => ty,
            (3, Some(places)) | (4, Some(places)) => {
                // Its dimensions at their places in a larger shape.
                let rank = places.iter().max().map_or(0, |d| *d as usize + 1) + self.random.below(2);
                let mut shape: Vec<Dim> = (0..rank).map(|_| Dim::Static(self.size())).collect();
                for (&place, size) in places.iter().zip(ty.shape()) {
                    let repeats = size == Dim::Static(1) && self.random.once_in(2);
                    if !repeats {
                        shape[place as usize] = size;
                    }
                }
                if ty.is_scalar() || ty.is_tensor() { Type::tensor(&shape, ty.elem()) } else { ty }
            }
            _ if ty.is_tensor() => self.regrouped(ty),
            _ => ty,
        }
    }

    /// As many elements in another shape: dimensions joined, split, and of one element.
    fn regrouped(&mut self, ty: Type) -> Type {
        let mut shape = ty.static_shape().unwrap_or_default();
        for _ in 0..1 + self.random.below(3) {
            match self.random.below(4) {
                0 if shape.len() > 1 => {
                    let at = self.random.below(shape.len() - 1);
                    let joined = shape.remove(at + 1);
                    shape[at] *= joined;
                }
                1 if !shape.is_empty() => {
                    let at = self.random.below(shape.len());
                    if let Some(&by) = [2, 3, 5, 7].iter().find(|by| shape[at] > 0 && shape[at] % **by == 0) {
                        shape[at] /= by;
                        shape.insert(at, by);
                    }
                }
                2 if shape.contains(&1) => {
                    let at = shape.iter().position(|&n| n == 1).unwrap_or(0);
                    shape.remove(at);
                }
                _ => {
                    let at = self.random.below(shape.len() + 1);
                    shape.insert(at, 1);
                }
            }
        }
        let dims: Vec<Dim> = shape.into_iter().map(Dim::Static).collect();
        ty.with_shape(&dims)
    }

    /// The attributes with a constant's elements, once its type is known.
    fn with_elements(&mut self, pattern: &OpPattern, mut attrs: Attr, result: Option<Type>) -> Option<Attr> {
        for declared in pattern.def.attrs.iter().filter(|a| a.kind == AttrKind::Elements) {
            let asked = pattern.attrs.iter().find(|a| a.name.as_str() == declared.name).map(|a| &a.test);
            let value = match asked {
                Some(Test::Number(number)) => splat_attr(result?, number.convert(result?.elem())?)?,
                _ => self.elements(result?)?,
            };
            attrs = attrs.with(Name::new(declared.name), Some(value));
        }
        Some(attrs)
    }
}

/// A group for each operand.
fn operands_of(groups: &[Vec<Value>]) -> Vec<Vec<Value>> {
    groups.iter().flatten().map(|&value| vec![value]).collect()
}

/// Returns the root's results.
fn finish(body: &mut Body, entry: Block, root: Op) {
    let results: Vec<Value> = body.results(root).collect();
    Builder::at_end(body, entry).op(OpName::new(op::func::RETURN)).operands(&results).build();
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    let outputs: Vec<Type> = results.iter().map(|&v| body.ty(v)).collect();
    let func = body.root();
    body.set_attr(func, "function_type", Attr::ty(Type::function(&inputs, &outputs)));
}

fn is_small(ty: Type) -> bool {
    let elements = ty.static_shape().map(|s| s.iter().try_fold(1i64, |n, &d| n.checked_mul(d)));
    elements.is_none_or(|n| n.is_some_and(|n| n <= ELEMENTS))
}

/// Whether a condition asks for the number that a hole is, which is a constant then.
fn asks_number(condition: &Condition, hole: usize) -> bool {
    match condition {
        Condition::Holds(code, _) | Condition::Let(_, code) => asks(code, hole),
        Condition::Form(_) => false,
    }
}

fn asks(code: &Code, hole: usize) -> bool {
    match code {
        Code::Call(function, args) => match args.as_slice() {
            [Code::Value(value)] if ["splat", "constant"].contains(&function.name) => *value == hole,
            _ => args.iter().any(|a| asks(a, hole)),
        },
        Code::List(items) | Code::Tensor(items, _) => items.iter().any(|i| asks(&i.1, hole)),
        Code::Index(a, b) | Code::Binary(_, a, b) => asks(a, hole) || asks(b, hole),
        Code::Negate(a) => asks(a, hole),
        // What is not a constant may be asked for, too.
        _ => false,
    }
}
