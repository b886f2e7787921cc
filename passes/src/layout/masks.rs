//! Masks of attention that follow from positions: what is true everywhere goes, a comparison that lets a query see the keys up to its own becomes
//! `causal`, and what does not depend on the queries, heads or batch is a mask without them.

use super::places::Places;
use crate::fuse::reads::Space;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::attention::ATTENTION;
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Builder, Dim, Op, Result, Type, Value};
use rc_machine::Fusion;

/// Dimensions of scores.
const RANK: usize = 4;
/// At most so many operations are looked at.
const DEPTH: usize = 64;

/// One of the conditions that must all hold, at a place in the scores.
struct Condition {
    value: Value,
    map: Vec<Dim>,
    /// Whether it must be false.
    not: bool,
}

enum Seen {
    /// Always.
    All,
    /// Keys up to the query's own place.
    Causal,
    Unknown,
}

/// Takes what follows from positions out of an attention's mask; whether it did.
pub fn simplify_mask(body: &mut Body, op: Op, symbols: &Ranges) -> Result<bool> {
    let Some(&mask) = body.op_ref(op).group("mask").first() else { return Ok(false) };
    let shapes = [body.ty(body.operand(op, 0)).shape(), body.ty(body.operand(op, 1)).shape()];
    if shapes[0].len() != RANK {
        return Ok(false);
    }
    let scores = [shapes[0][0], shapes[0][1], shapes[0][2], shapes[1][2]];
    let space = Space::new(&scores, symbols);
    let masked = body.ty(mask).shape();
    let map: Vec<Dim> = masked
        .iter()
        .zip(space.identity())
        .map(|(&m, i)| if m == Dim::Static(1) { Dim::Static(0) } else { i })
        .collect();
    let reader = Reader { body, space: &space, places: Places::new(body, &space) };
    let Some((conditions, exact)) = reader.conditions(mask, map) else { return Ok(false) };
    let (mut causal, mut rest) = (false, Vec::new());
    for condition in conditions {
        match reader.seen(&condition) {
            Seen::All => {}
            Seen::Causal => causal = true,
            Seen::Unknown => rest.push(condition),
        }
    }
    let own = body.op_ref(op).bool("causal");
    let kept = match rest.as_slice() {
        // A bias that is no more than very low hides everything from no query of causal attention.
        [] => None,
        [one] if exact && !one.not => {
            let Some(shape) = reader.dimensions(one) else { return Ok(false) };
            let smaller = shape.iter().zip(&masked).any(|(a, b)| a != b) || body.ty(mask).elem() != Type::i1();
            if !causal && !smaller {
                return Ok(false);
            }
            Some((one.value, shape))
        }
        _ => return Ok(false),
    };
    let (types, attrs) = (body.op_ref(op).result_types(), body.attrs(op));
    let mut operands: Vec<Value> = body.operands(op).take(3).collect();
    let mut b = Builder::before(body, op);
    if let Some((value, shape)) = kept {
        let ty = b.ty(value).with_shape(&shape);
        operands.push(match b.ty(value) == ty {
            true => value,
            false => b.op(op::core::RESHAPE).operand(value).result(ty).try_value()?,
        });
    }
    let made = b.op(&ATTENTION).operands(&operands).attrs(attrs).results(&types).try_build()?;
    body.set_attr(made, "causal", Attr::bool(own || causal));
    let results: Vec<Value> = body.results(made).collect();
    body.replace_op(op, &results);
    Ok(true)
}

/// Counts the keys up to the last that a mask of booleans shows, for each element of the first dimension; whether it did.
pub fn count_keys(body: &mut Body, op: Op, pays: &Fusion) -> Result<bool> {
    let at = body.op_ref(op);
    let [mask] = at.group("mask")[..] else { return Ok(false) };
    let shape = body.ty(mask).shape();
    if shape.len() != RANK || body.ty(mask).elem() != Type::i1() || constant_of(body, mask).is_some() {
        return Ok(false);
    }
    let queries = body.ty(at.operand(0)).shape()[2].as_static();
    if queries.is_none_or(|n| n > pays.counted_queries) || shape[3].as_static().is_none_or(|n| n < pays.counted_keys) {
        return Ok(false);
    }
    let mut b = Builder::before(body, op);
    let ty = Type::tensor(&shape, Type::i32());
    let place = b.op(op::core::IOTA).attr("dim", Attr::i64(3)).result(ty).try_value()?;
    let (one, zero) = (b.splat(1.0, ty), b.splat(0.0, ty));
    let number = b.binary("add", place, one);
    let shown = b.select(mask, number, zero);
    let counts = b.reduce("max", shown, &[1, 2, 3]);
    let operands: Vec<Value> = body.operands(op).chain([counts]).collect();
    body.set_operands(op, &operands);
    Ok(true)
}

struct Reader<'a> {
    body: &'a Body,
    space: &'a Space,
    places: Places<'a>,
}

impl Reader<'_> {
    /// The conditions under which a mask shows a key, and whether it hides one altogether where they do not hold. `None` for a bias.
    fn conditions(&self, mask: Value, map: Vec<Dim>) -> Option<(Vec<Condition>, bool)> {
        let mut out = Vec::new();
        if self.body.ty(mask).elem() == Type::i1() {
            self.collect(mask, map, false, &mut out, DEPTH);
            return Some((out, true));
        }
        let (mut value, mut map) = (mask, map);
        loop {
            let op = self.body.op_ref(self.body.defining_op(value)?);
            if op.is(op::core::SELECT) {
                let splat = |i: usize| self.places.constant(op.operand(i));
                let hidden = splat(2).filter(|&x| splat(1) == Some(0.0) && x < -1e4)?;
                self.collect(op.operand(0), map, false, &mut out, DEPTH);
                return Some((out, hidden == f64::NEG_INFINITY));
            }
            (value, map) = self
                .places
                .moved(value, &map)
                .or_else(|| op.is(op::core::CONVERT).then(|| (op.operand(0), map.clone())))?;
        }
    }

    fn collect(&self, value: Value, map: Vec<Dim>, not: bool, out: &mut Vec<Condition>, depth: usize) {
        let op = self.body.defining_op(value).map(|op| self.body.op_ref(op)).filter(|_| depth > 0);
        match op {
            Some(op) if op.is(op::core::AND) && !not => {
                op.operands().for_each(|v| self.collect(v, map.clone(), false, out, depth - 1));
            }
            Some(op) if op.is(op::core::NOT) => self.collect(op.operand(0), map, !not, out, depth - 1),
            Some(_) => match self.places.moved(value, &map) {
                Some((from, at)) if self.follows(from) => self.collect(from, at, not, out, depth - 1),
                _ => out.push(Condition { value, map, not }),
            },
            None => out.push(Condition { value, map, not }),
        }
    }
    /// Whether it makes sense to look behind a view: reshapes of a given mask are read as they are.
    fn follows(&self, value: Value) -> bool {
        self.body.ty(value).elem() == Type::i1()
    }

    fn seen(&self, condition: &Condition) -> Seen {
        if self.places.truth(condition.value, &condition.map).is_some_and(|truth| truth != condition.not) {
            return Seen::All;
        }
        let Some(op) = self.body.defining_op(condition.value).map(|op| self.body.op_ref(op)) else {
            return Seen::Unknown;
        };
        if !op.is(op::core::COMPARE) {
            return Seen::Unknown;
        }
        let place = |i: usize| self.places.integer(op.operand(i), &condition.map);
        let (Some(a), Some(b), Some(kind)) = (place(0), place(1), op.str("kind")) else { return Seen::Unknown };
        // What is at most 0 where the key is seen.
        let one = Dim::Static(1);
        let excess = match (kind, condition.not) {
            ("le", false) | ("gt", true) => a - b,
            ("lt", false) | ("ge", true) => a - b + one,
            ("ge", false) | ("lt", true) => b - a,
            ("gt", false) | ("le", true) => b - a + one,
            _ => return Seen::Unknown,
        };
        let causal = self.space.index(3) - self.space.index(2);
        if excess == causal { Seen::Causal } else { Seen::Unknown }
    }

    /// The dimensions of a condition as a mask: where its own are some of the scores', in order.
    fn dimensions(&self, condition: &Condition) -> Option<Vec<Dim>> {
        let (ty, mut shape) = (self.body.ty(condition.value), vec![Dim::Static(1); RANK]);
        let mut next = 0;
        for (&size, &index) in ty.shape().iter().zip(&condition.map) {
            if index == Dim::Static(0) && size == Dim::Static(1) {
                continue;
            }
            let d = (next..RANK).find(|&d| self.space.index(d) == index && self.space.extents[d] == size)?;
            shape[d] = size;
            next = d + 1;
        }
        Some(shape)
    }
}
