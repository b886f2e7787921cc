//! Accumulators of a nest's results.

use super::program::{Program, RANK};
use super::scope::{Scope, Tiled};
use crate::schedule::nest::Nest;
use rc_dialects::constraints::default_acc;
use rc_dialects::interfaces::Combiner;
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Result, Type, Value};

/// How one result of a nest is combined.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum How {
    /// Each point has its own.
    Store,
    Combine(Combiner),
    /// The greatest (or least) element and its index.
    Arg(Combiner),
    /// Sums of products of two yielded factors.
    Contract,
    /// Every prefix.
    Scan(Combiner),
}

/// A result of a nest in the making.
#[derive(Clone, Debug)]
pub struct Accumulator {
    pub how: How,
    /// The first of its yielded values.
    pub first: usize,
    /// The type that is accumulated in.
    pub elem: Type,
    /// The type of indices of extremes.
    index: Type,
}

impl Accumulator {
    /// The accumulators of a nest's results.
    ///
    /// # Errors
    /// If the nest has scan and reduce iterators, or a combiner that does not go with its elements.
    pub fn of(program: &Program, nest: &Nest) -> Result<Vec<Accumulator>> {
        let src = program.src;
        let op = src.op_ref(nest.op);
        let yielded = src.last_op(op.entry(0).expect("a verified nest has a body")).expect("a verified nest yields");
        let scans = nest.has(IterKind::Scan);
        let length = nest.of_kind(IterKind::Reduce).next().and_then(|i| nest.ranges.interval(i.extent));
        let index = if length.is_some_and(|l| l.1 <= i32::MAX.into()) { Type::i32() } else { Type::i64() };
        if scans && nest.has(IterKind::Reduce) {
            return Err(Diagnostic::unsupported(op.loc(), "a nest with both scan and reduce iterators"));
        }
        let mut next = 0;
        nest.combiners
            .iter()
            .map(|&word| {
                let first = next;
                next += if word == "contract" { 2 } else { 1 };
                let ty = src.ty(src.operand(yielded, first));
                let sum = nest.acc.unwrap_or_else(|| default_acc(ty));
                let how = match (word, Combiner::from_kind(word)) {
                    ("none", _) => How::Store,
                    ("contract", _) => How::Contract,
                    (_, Some(c)) if scans && c.core_op().is_some() => How::Scan(c),
                    _ if scans => {
                        return Err(Diagnostic::unsupported(op.loc(), format!("a scan with the combiner '{word}'")));
                    }
                    (_, Some(Combiner::ArgMax)) => How::Arg(Combiner::Max),
                    (_, Some(Combiner::ArgMin)) => How::Arg(Combiner::Min),
                    (_, Some(c)) => How::Combine(c),
                    _ => return Err(op.error(format!("has the unknown combiner '{word}'"))),
                };
                let elem = match how {
                    How::Store => ty,
                    How::Combine(Combiner::Add | Combiner::Mul)
                    | How::Scan(Combiner::Add | Combiner::Mul)
                    | How::Contract => sum,
                    How::Combine(_) | How::Arg(_) | How::Scan(_) => default_acc(ty),
                };
                Ok(Accumulator { how, first, elem, index })
            })
            .collect()
    }

    /// Whether it is a sum that is rounded at each step.
    pub fn is_float_sum(&self) -> bool {
        matches!(self.how, How::Combine(Combiner::Add) | How::Contract) && self.elem.is_float()
    }
    /// How many tiles it carries through loops.
    pub fn tiles(&self) -> usize {
        match self.how {
            How::Store => 0,
            How::Arg(_) => 2,
            _ => 1,
        }
    }
    /// The types of what it is made of, as [`Accumulator::part`] gives it.
    pub fn types(&self) -> Vec<Type> {
        match self.how {
            How::Store => Vec::new(),
            How::Arg(_) => vec![self.elem, self.index],
            _ => vec![self.elem],
        }
    }
    /// The values to start with.
    pub fn start(&self, p: &mut Program, shape: [i64; RANK]) -> Result<Vec<Value>> {
        let identity = |c: Combiner, ty: Type| {
            c.identity(ty).ok_or_else(|| Diagnostic::unsupported(p.loc, format!("the combiner '{}' of {ty}", c.kind())))
        };
        Ok(match self.how {
            How::Store => Vec::new(),
            How::Contract => vec![p.zeros(shape, self.elem)],
            How::Combine(c) | How::Scan(c) => {
                let attr = identity(c, self.elem)?;
                vec![p.splat(shape, attr)]
            }
            How::Arg(c) => {
                let attr = identity(c, self.elem)?;
                // Where nothing is better than the identity, all elements are as good, and the first is meant.
                vec![p.splat(shape, attr), p.splat(shape, Attr::int(0, self.index))]
            }
        })
    }
    /// The values with those of one more step: the nest's region at the scope.
    pub fn step(&self, p: &mut Program, nest: &Nest, scope: &Scope, before: &[Value]) -> Result<Vec<Value>> {
        let reduces = |n| nest.iter(n).is_some_and(|i| i.kind == IterKind::Reduce);
        match self.how {
            How::Store => Ok(Vec::new()),
            How::Contract => {
                let factors = p.region(nest, scope, &[self.first, self.first + 1])?;
                let (a, b) = (p.convert(factors[0], self.elem), p.convert(factors[1], self.elem));
                let product = p.binary(op::core::MUL, a, b);
                let product = self.masked(p, scope, product, &reduces, Combiner::Add);
                Ok(vec![p.add_to(before[0], product)])
            }
            How::Scan(_) => unreachable!("see Accumulator::scan"),
            How::Combine(c) => {
                let value = p.region(nest, scope, &[self.first])?[0];
                let value = p.convert(value, self.elem);
                if c == Combiner::Add {
                    let zeros = p.is_zero_past(nest, self.first, scope);
                    let value = if zeros { value } else { self.masked(p, scope, value, &reduces, c) };
                    return Ok(vec![p.add_to(before[0], value)]);
                }
                let value = self.masked(p, scope, value, &reduces, c);
                Ok(vec![p.binary(c.core_op().expect("argmax is How::Arg"), before[0], value)])
            }
            How::Arg(c) => {
                let value = p.region(nest, scope, &[self.first])?[0];
                let value = p.convert(value, self.elem);
                let value = self.masked(p, scope, value, &reduces, c);
                let along = nest.of_kind(IterKind::Reduce).next().expect("argmax has a reduce iterator").name;
                // Of an unrolled step, so much further along.
                let step = nest.subst.iter().find(|s| s.0 == along).map_or(Dim::symbol(along), |s| s.1);
                let at = p.index(step, scope, Tiled::All)?;
                let at = p.broadcast(at, p.shape(at));
                let at = p.convert(at, self.index);
                Ok(better(p, c, (before[0], before[1]), (value, at)))
            }
        }
    }
    /// The prefixes that end here, and all of what was met: of one point, or of the tile along the scan's iterator.
    pub fn scan(
        &self,
        p: &mut Program,
        nest: &Nest,
        scope: &Scope,
        c: Combiner,
        before: Value,
    ) -> Result<(Value, Value)> {
        let combine = c.core_op().expect("scans have a combiner");
        let value = p.region(nest, scope, &[self.first])?[0];
        let value = p.convert(value, self.elem);
        let scans = |n| nest.iter(n).is_some_and(|i| i.kind == IterKind::Scan);
        let tiled = scope.binds.iter().find(|(name, _)| scans(*name)).and_then(|(_, bind)| bind.axis);
        let Some(axis) = tiled else {
            let here = p.binary(combine, before, value);
            return Ok((here, here));
        };
        let value = self.masked(p, scope, value, &scans, c);
        let mut shape = p.shape(value);
        shape[axis] = scope.shape()[axis];
        let value = p.broadcast(value, shape);
        let (here, total) = p.scan(value, axis, c.kind(), nest.reverse);
        Ok((p.binary(combine, before, here), p.binary(combine, before, total)))
    }
    /// The value with the combiner's identity past the extents of the reduce iterators.
    fn masked(
        &self,
        p: &mut Program,
        scope: &Scope,
        value: Value,
        reduces: &dyn Fn(rc_ir::Name) -> bool,
        c: Combiner,
    ) -> Value {
        let Some(mask) = p.inside(scope, reduces) else { return value };
        let identity = c.identity(self.elem).expect("start has asked for it");
        let identity = p.splat([1; RANK], identity);
        p.select(mask, value, identity)
    }
    /// What other programs' parts are combined with, with size 1 along the tile dimensions `dims` over which elements are still to be combined.
    pub fn part(&self, p: &mut Program, values: &[Value], dims: &[usize]) -> Vec<Value> {
        let result = self.finish(p, values, dims);
        match self.how {
            How::Arg(c) => vec![p.reduce(values[0], dims, c.kind()), result],
            _ => vec![result],
        }
    }
    /// The result, with size 1 along the tile dimensions `dims` over which elements are still to be combined.
    pub fn finish(&self, p: &mut Program, values: &[Value], dims: &[usize]) -> Value {
        match self.how {
            How::Store => unreachable!("nothing is accumulated"),
            How::Combine(c) | How::Scan(c) => p.reduce(values[0], dims, c.kind()),
            How::Contract => p.reduce(values[0], dims, "add"),
            How::Arg(c) => {
                let best = p.reduce(values[0], dims, c.kind());
                if best == values[0] {
                    return values[1];
                }
                let equal = p.compare("eq", values[0], best);
                let is = if self.elem.is_float() {
                    // The best is a NaN where there is one; then the first NaN counts.
                    let nan = p.compare("ne", values[0], values[0]);
                    p.binary(op::core::OR, equal, nan)
                } else {
                    equal
                };
                let most = if self.index == Type::i32() { i32::MAX.into() } else { i64::MAX };
                let none = p.splat([1; RANK], Attr::int(most, self.index));
                let at = p.select(is, values[1], none);
                p.reduce(at, dims, "min")
            }
        }
    }
}

/// The better of two pairs of element and index, of which the second comes later: the greater (or lesser) element, a NaN above all.
fn better(p: &mut Program, c: Combiner, (best, at): (Value, Value), (value, here): (Value, Value)) -> Vec<Value> {
    let mut take = p.compare(if c == Combiner::Max { "gt" } else { "lt" }, value, best);
    if p.ty(value).elem().is_float() {
        let (nan, known) = (p.compare("ne", value, value), p.compare("eq", best, best));
        let news = p.binary(op::core::AND, nan, known);
        take = p.binary(op::core::OR, take, news);
    }
    vec![p.select(take, value, best), p.select(take, here, at)]
}
