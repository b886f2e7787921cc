//! What is computed in blocks together: what makes a large value, what follows it while it is large, and what reads that.

use super::along::{Along, Follow, follow};
use crate::fuse::{Class, classify};
use rc_ir::{Body, Op, Traits, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Operations that are computed block by block along one dimension.
pub struct Region {
    /// In the order of the program.
    pub ops: Vec<(Op, Follow)>,
    /// The dimension's size.
    pub size: i64,
}

/// What is less than this part of the large value need not be computed in blocks.
const SMALL: i64 = 8;

/// The regions around a large value, one for each of its dimensions that leads to one.
pub fn regions(body: &Body, makes: Op) -> Vec<Region> {
    let result = body.result(makes, 0);
    (0..body.ty(result).rank()).filter_map(|d| region(body, makes, d)).collect()
}

/// How an operation's result is computed in blocks along its dimension `d`.
fn toward(body: &Body, op: Op, d: usize) -> Option<Follow> {
    let dims = |number: usize| 0..body.ty(body.operand(op, number)).rank();
    let all = (0..body.operand_count(op)).flat_map(|number| dims(number).map(move |at| (number, at)));
    all.filter_map(|(number, at)| follow(body, op, number, at)).find(|f| f.result == Along::Dim(d))
}

pub fn bytes(body: &Body, value: Value) -> Option<i64> {
    let ty = body.ty(value);
    let elements = ty.static_shape()?.iter().try_fold(1i64, |all, &n| all.checked_mul(n))?;
    elements.checked_mul(ty.elem().byte_width()? as i64)
}

fn region(body: &Body, makes: Op, d: usize) -> Option<Region> {
    let result = body.result(makes, 0);
    let (size, block) = (body.ty(result).static_shape()?[d], body.parent(makes)?);
    let large = |v: Value| bytes(body, v).is_none_or(|n| n > bytes(body, result).unwrap_or(0) / SMALL);
    let upstream = upstream(body, makes, d, &large);
    let mut walk = Walk { body, size, cut: FxHashMap::default(), after: FxHashSet::default() };
    let mut ops = Vec::new();
    for op in body.ops(block) {
        let cut = body.operands(op).any(|v| walk.cut.contains_key(&v));
        let after = body.operands(op).any(|v| walk.after.contains(&v));
        let found = match upstream.get(&op) {
            _ if after => None,
            Some(&d) => walk.check(op, toward(body, op, d)?),
            None if cut => walk.follow(op),
            None => None,
        };
        match found {
            Some(follow) => ops.push((op, follow)),
            None if cut || after => walk.after.extend(body.results(op)),
            None => {}
        }
    }
    // What is small and leads to nothing large is computed as a whole.
    let mut kept: FxHashSet<Op> = FxHashSet::default();
    for &(op, _) in ops.iter().rev() {
        let wide = body.results(op).chain(body.operands(op).filter(|v| walk.cut.contains_key(v))).any(large);
        if wide || body.results(op).any(|v| body.uses(v).any(|(user, _)| kept.contains(&user))) {
            kept.insert(op);
        }
    }
    ops.retain(|(op, _)| kept.contains(op));
    // What others read of the value itself would be put together from its blocks.
    let given = body.uses(result).any(|(user, _)| !kept.contains(&user));
    (ops.len() > 1 && !given).then_some(Region { ops, size })
}

/// What makes a value, as far as it is large: operations, each with the dimension of its result that is cut.
fn upstream(body: &Body, makes: Op, d: usize, large: &dyn Fn(Value) -> bool) -> FxHashMap<Op, usize> {
    let (mut found, mut stack) = (FxHashMap::default(), vec![(makes, d)]);
    while let Some((op, d)) = stack.pop() {
        let known = found.contains_key(&op) || body.parent(op) != body.parent(makes);
        let Some(follow) = toward(body, op, d).filter(|_| !known) else { continue };
        found.insert(op, d);
        for (value, along) in body.operands(op).zip(follow.operands) {
            if let (Some(def), Some(d), true) = (body.defining_op(value), along, large(value)) {
                stack.push((def, d));
            }
        }
    }
    found
}

struct Walk<'a> {
    body: &'a Body,
    size: i64,
    /// Values that are computed in blocks, and along which dimension.
    cut: FxHashMap<Value, usize>,
    /// What depends on the whole of such a value, or on what blocks combine to.
    after: FxHashSet<Value>,
}

impl Walk<'_> {
    /// How an operation is computed in blocks, with its result noted.
    fn follow(&mut self, op: Op) -> Option<Follow> {
        let body = self.body;
        if body.op_ref(op).has(Traits::TERMINATOR) || classify(body.op_ref(op)) == Class::Outside {
            return None;
        }
        let operands: Vec<Value> = body.operands(op).collect();
        let (number, d) = operands.iter().enumerate().find_map(|(i, v)| Some((i, *self.cut.get(v)?)))?;
        self.check(op, follow(body, op, number, d)?)
    }

    /// The same, where it is known how the operation follows: its operands have to be cut so, or be computed as a whole.
    fn check(&mut self, op: Op, found: Follow) -> Option<Follow> {
        let body = self.body;
        for (value, &wanted) in body.operands(op).zip(&found.operands) {
            let is = self.cut.get(&value).copied();
            let size = |d: usize| body.ty(value).static_shape().and_then(|shape| shape.get(d).copied());
            if is.is_some() && is != wanted || wanted.is_some_and(|d| size(d) != Some(self.size)) {
                return None;
            }
        }
        let result = body.result(op, 0);
        match found.result {
            Along::Dim(d) if body.ty(result).static_shape()?.get(d) == Some(&self.size) => {
                _ = self.cut.insert(result, d)
            }
            Along::Dim(_) => return None,
            Along::Combined(..) => _ = self.after.insert(result),
        }
        Some(found)
    }
}
