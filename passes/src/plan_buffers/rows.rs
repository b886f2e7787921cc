//! Kernels of whose argument a dimension, rows, is divided in memory: into the places of several dimensions that do not lie one after the other. Each access
//! finds its place in them. A tile of rows must lie in one row of places.

use super::pad::constant;
use rc_dialects::op;
use rc_dialects::op::kernel::{FOR, LOAD, STORE};
use rc_ir::{Attr, Body, Builder, Dim, Op, Type, Value};

/// Of each dimension of an argument the sizes of the tiles that a kernel reads or writes; `None` where they may start at no multiple of their size.
pub fn tiles(body: &Body, memory: Value) -> Option<Vec<Option<Vec<i64>>>> {
    let uses: Option<Vec<(Op, usize)>> = body
        .uses(memory)
        .map(|(op, operand)| Some((op, access(body, op).filter(|&(_, first)| first == operand + 1)?.1)))
        .collect();
    let uses = uses?;
    let of = |dim: usize| uses.iter().map(|&(op, first)| tile(body, op, first, dim)).collect();
    Some((0..body.ty(memory).rank()).map(of).collect())
}

/// The elements of a load's or store's tile along a dimension of the memory, whose first index has a number.
fn tile(body: &Body, op: Op, first: usize, dim: usize) -> Option<i64> {
    let (tile, _) = access(body, op)?;
    let along = body.op_ref(op).ints("dims")?.iter().position(|&d| d == dim as i64);
    let size = along.map_or(Some(1), |d| body.ty(tile).static_shape()?.get(d).copied())?;
    is_multiple(body, body.operand(op, first + dim), size).then_some(size)
}

/// The tile of a load or store, and the number of its first index.
fn access(body: &Body, op: Op) -> Option<(Value, usize)> {
    match body.name(op).as_str() {
        LOAD => Some((body.result(op, 0), 1)),
        STORE => Some((body.operand(op, 0), 2)),
        _ => None,
    }
}

/// The fewest dimensions of which neighbours make those of one shape, and others those of another: `[2, 4, 4, 2, 16]` of `[2, 16, 2, 16]` and `[2, 4, 4, 32]`.
pub fn common(one: &[Dim], other: &[Dim]) -> Option<Vec<Dim>> {
    let sizes = |shape: &[Dim]| shape.iter().map(|d| d.as_static()).collect::<Option<Vec<i64>>>();
    let (mut one, mut other) = (sizes(one)?.into_iter(), sizes(other)?.into_iter());
    let (mut a, mut b) = (one.next(), other.next());
    let mut out = Vec::new();
    while let (Some(x), Some(y)) = (a, b) {
        let size = x.min(y);
        if size == 0 || x % size != 0 || y % size != 0 {
            return None;
        }
        out.push(Dim::Static(size));
        a = if x == size { one.next() } else { Some(x / size) };
        b = if y == size { other.next() } else { Some(y / size) };
    }
    (a.is_none() && b.is_none()).then_some(out)
}

/// A dimension and the sizes that it is divided into.
pub struct Divided {
    pub dim: usize,
    pub sizes: Vec<i64>,
}

impl Divided {
    /// How an argument's memory is to be of type `to`, if that divides one dimension of it.
    pub fn of(from: Type, to: Type) -> Option<Divided> {
        let more = to.rank().checked_sub(from.rank()).filter(|&more| more > 0)?;
        let (whole, parts) = (from.static_shape()?, to.static_shape()?);
        let dim = whole.iter().zip(&parts).position(|(whole, part)| whole != part)?;
        let (sizes, rest) = parts[dim..].split_at(more + 1);
        let fits = sizes.iter().product::<i64>() == whole[dim] && rest == &whole[dim + 1..];
        fits.then(|| Divided { dim, sizes: sizes.to_vec() })
    }

    /// Whether tiles of these sizes along each dimension lie in one row of places.
    pub fn holds(&self, tiles: &[Option<Vec<i64>>]) -> bool {
        let last = self.sizes[self.sizes.len() - 1];
        tiles[self.dim].as_ref().is_some_and(|tiles| tiles.iter().all(|tile| last % tile == 0))
    }

    /// Gives an argument of a kernel memory of type `to`.
    pub fn divide(&self, body: &mut Body, memory: Value, to: Type) {
        let uses: Vec<(Op, usize)> = body.uses(memory).collect();
        for (op, operand) in uses {
            let at = operand + 1 + self.dim;
            let (row, tile) =
                (body.operand(op, at), tile(body, op, operand + 1, self.dim).expect("checked when it was placed"));
            let places = places(&mut Builder::before(body, op), row, tile, &self.sizes);
            let mut operands: Vec<Value> = body.operands(op).collect();
            operands.splice(at..=at, places);
            let (dim, more) = (self.dim as i64, self.sizes.len() as i64 - 1);
            let dims: Vec<i64> = body.op_ref(op).ints("dims").unwrap_or_default();
            let dims: Vec<i64> = dims.iter().map(|&d| if d < dim { d } else { d + more }).collect();
            body.set_operands(op, &operands);
            body.set_attr(op, "dims", Attr::i64s(&dims));
        }
        body.set_ty(memory, to);
    }
}

/// The place in dimensions of these sizes of a row that starts a tile of so many. That the tile lies in the last of them shows.
fn places(b: &mut Builder, row: Value, tile: i64, sizes: &[i64]) -> Vec<Value> {
    let mut binary = |name: &'static str, left: Value, right: i64| {
        let right = constant(b, right);
        b.op(name).operands(&[left, right]).result(Type::index()).value()
    };
    let mut out = Vec::new();
    let mut left = binary(op::core::DIV, row, tile);
    let mut unit = tile;
    for &size in sizes[1..].iter().rev() {
        let place = binary(op::core::REM, left, size / unit);
        out.push(binary(op::core::MUL, place, unit));
        left = binary(op::core::DIV, left, size / unit);
        unit = 1;
    }
    out.push(left);
    out.reverse();
    out
}

/// Whether an index is a multiple of `n`, whatever program and step it is computed in.
fn is_multiple(body: &Body, value: Value, n: i64) -> bool {
    if n == 1 {
        return true;
    }
    let Some(op) = body.defining_op(value) else { return counts_by(body, value, n) };
    let all = || body.operands(op).all(|v| is_multiple(body, v, n));
    let own = body.op_ref(op);
    match body.name(op).as_str() {
        op::core::CONSTANT => own.int("value").is_some_and(|c| c % n == 0),
        op::core::MUL => body.operands(op).any(|v| is_multiple(body, v, n)),
        op::core::ADD | op::core::SUB | op::core::MIN | op::core::MAX => all(),
        _ => false,
    }
}

/// Whether it is the counter of a loop over multiples of `n`.
fn counts_by(body: &Body, value: Value, n: i64) -> bool {
    let parent = body.defining_block(value).and_then(|block| body.block_owner(block));
    let Some(parent) = parent.filter(|&op| body.name(op) == FOR) else { return false };
    let is_counter = body.op_ref(parent).entry(0).and_then(|block| body.block_args(block).next()) == Some(value);
    is_counter && [0, 2].iter().all(|&i| is_multiple(body, body.operand(parent, i), n))
}
