//! Products whose rows belong to groups, each with a matrix of its own: the experts of a mixture.

use super::spatial;
use crate::builder::CoreBuilder;
use crate::constraints::{INT_TENSOR, Inferred, NUMERIC_TENSOR, default_acc, one};
use crate::derivative::{Derivative, Vjp};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{InferArgs, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, Result, Type, Value};

pub static RAGGED_DOT: OpDef = OpDef {
    summary: "Each row of x times the matrix of its group.",
    doc: "x is [m, k], w [g, k, n], `ends` [g] the first row after each group, which does not decrease; the result is [m, n]. Group i has the rows \
          from `ends[i - 1]` (0 for the first) to before `ends[i]`; what rows after the last group give is undefined. Accumulated in f32 \
          (f64 for f64), rounded once. The definition gives each group whole tiles of rows, of which there are at most \
          (m + g (tile - 1)) / tile, and multiplies each tile by its group's matrix, which a product reads where it lies.",
    example: "func.func @ragged(%x: tensor<5x3xf32>, %w: tensor<2x3x4xf32>) -> tensor<5x4xf32> {
  %ends = core.constant {value = dense<[2, 5]> : tensor<2xi64>} : tensor<2xi64>
  %y = tensor.ragged_dot %x, %w, %ends : tensor<5x4xf32>
  func.return %y
}
",
    operands: &[operand("x", NUMERIC_TENSOR), operand("w", NUMERIC_TENSOR), operand("ends", INT_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer),
    interfaces: &[&Decompose(define), &Derivative::Vjp(dot_vjp)],
    ..OpDef::new("rc.tensor.ragged_dot")
};

pub static RAGGED_OUTER: OpDef = OpDef {
    summary: "For each group of rows, those of x, transposed, times those of y.",
    doc: "x is [s, m], y [s, n], `ends` [g] the first row after each group, as in `tensor.ragged_dot`, of which this is the gradient for the matrices; the result \
          is [g, m, n], zeros for a group without rows. Rows after the last group count for none. Accumulated in f32 (f64 for f64), rounded once. \
          The definition multiplies whole tiles of rows, of which there are at most (s + g (tile - 1)) / tile, and adds those of a group.",
    example: "func.func @outer(%x: tensor<5x3xf32>, %y: tensor<5x4xf32>) -> tensor<2x3x4xf32> {
  %ends = core.constant {value = dense<[2, 5]> : tensor<2xi64>} : tensor<2xi64>
  %w = tensor.ragged_outer %x, %y, %ends : tensor<2x3x4xf32>
  func.return %w
}
",
    operands: &[operand("x", NUMERIC_TENSOR), operand("y", NUMERIC_TENSOR), operand("ends", INT_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_outer),
    interfaces: &[&Decompose(define_outer), &Derivative::Vjp(outer_vjp)],
    ..OpDef::new("rc.tensor.ragged_outer")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&RAGGED_DOT, &RAGGED_OUTER];

fn infer(args: &InferArgs) -> Inferred {
    let (x, w, ends) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let (&[m, k], &[g, l, n], &[e]) = (x.shape().as_slice(), w.shape().as_slice(), ends.shape().as_slice()) else {
        return Err(format!("needs x [m, k], w [g, k, n] and ends [g], and has {x}, {w} and {ends}"));
    };
    if k != l || e != g || x.elem() != w.elem() {
        return Err(format!("cannot multiply rows of {x} by matrices of {w} in groups that end as {ends} says"));
    }
    one(x.with_shape(&[m, n]))
}

fn infer_outer(args: &InferArgs) -> Inferred {
    let (x, y, ends) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let (&[s, m], &[t, n], &[g]) = (x.shape().as_slice(), y.shape().as_slice(), ends.shape().as_slice()) else {
        return Err(format!("needs x [s, m], y [s, n] and ends [g], and has {x}, {y} and {ends}"));
    };
    if s != t || x.elem() != y.elem() {
        return Err(format!("cannot multiply rows of {x} by those of {y}"));
    }
    one(x.with_shape(&[g, m, n]))
}

fn dot_vjp(v: &mut Vjp) -> Result {
    let [x, w, ends] = [0, 1, 2].map(|i| v.operand(i));
    let g = v.g();
    v.give_with(0, |v| {
        let turned = v.permute(w, &[0, 2, 1]);
        v.op(&RAGGED_DOT).operand(g).operand(turned).operand(ends).value()
    });
    v.give_with(1, |v| v.op(&RAGGED_OUTER).operand(x).operand(g).operand(ends).value());
    Ok(())
}

fn outer_vjp(v: &mut Vjp) -> Result {
    let [x, y, ends] = [0, 1, 2].map(|i| v.operand(i));
    let g = v.g();
    v.give_with(0, |v| {
        let turned = v.permute(g, &[0, 2, 1]);
        grouped_dot(v, y, turned, ends)
    });
    v.give_with(1, |v| grouped_dot(v, x, g, ends));
    Ok(())
}

/// `tensor.ragged_dot` with zeros for the rows after the last group.
fn grouped_dot(b: &mut Builder, x: Value, w: Value, ends: Value) -> Value {
    let y = b.op(&RAGGED_DOT).operand(x).operand(w).operand(ends).value();
    let (shape, groups) = (b.ty(y).shape(), b.ty(ends).shape()[0]);
    if groups == Dim::Static(0) {
        return b.splat(0.0, b.ty(y));
    }
    let end = b.slice(ends, &[groups - Dim::Static(1)], &[Dim::Static(1)]);
    let (end, row) = (b.convert(end, Type::i64()), iota(b, shape[0]));
    let end = b.reshape(end, &[]);
    let end = b.broadcast(end, &shape[..1], &[]);
    let own = b.compare("lt", row, end);
    let (own, zero) = (b.broadcast(own, &shape, &[0]), b.splat(0.0, b.ty(y)));
    b.select(own, y, zero)
}

/// Rows of a tile: about what a group has if all have as many, so that each matrix is read about once.
fn tile_of(rows: Dim, groups: Dim, most: i64) -> i64 {
    let (Some(rows), Some(groups)) = (rows.as_static(), groups.as_static()) else { return 32 };
    let each = (rows / groups.max(1)).max(1) as u64;
    (each.next_power_of_two() as i64).clamp(16, most)
}

fn define(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let [x, w, ends]: [Value; 3] = std::array::from_fn(|i| b.body.operand(op, i));
    let ty = b.ty(b.body.result(op, 0));
    let (rows, groups, k, n) = (ty.shape()[0], b.ty(w).shape()[0], b.ty(x).shape()[1], ty.shape()[1]);
    if rows == Dim::Static(0) || groups == Dim::Static(0) {
        return Ok(vec![b.splat(0.0, ty)]);
    }
    let g = Groups::of(b, ends, [rows, groups], 128);
    let Tiles { of, row, .. } = g.tiles(b);
    let (tile, tiles) = (g.tile, g.count);
    let tiled = b.gather(x, row, 0);
    let matrices = b.gather(w, of, 0);
    debug_assert_eq!(b.ty(tiled).shape().as_slice(), [tiles, Dim::Static(tile), k]);
    let product = b.dot(tiled, matrices, 1, 2, 1);

    // Row r is in the tiles of its group.
    let row = iota(b, rows);
    let of = group_of(b, row, g.ends);
    let (start, tile_start) = (b.gather(g.starts, of, 0), b.gather(g.tile_starts, of, 0));
    let within = b.binary("sub", row, start);
    let tile_start = b.binary_scalar("mul", tile_start, tile as f64);
    let place = b.binary("add", tile_start, within);
    let padded = tiles * Dim::Static(tile);
    let place = at_most(b, place, padded - Dim::Static(1));
    let product = b.reshape(product, &[padded, n]);
    Ok(vec![b.gather(product, place, 0)])
}

/// Each tile has rows of one group alone: what is not its own is zero in both factors, so that no other row's NaN counts.
fn define_outer(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let [x, y, ends]: [Value; 3] = std::array::from_fn(|i| b.body.operand(op, i));
    let ty = b.ty(b.body.result(op, 0));
    let (rows, groups) = (b.ty(x).shape()[0], ty.shape()[0]);
    if rows == Dim::Static(0) || groups == Dim::Static(0) {
        return Ok(vec![b.splat(0.0, ty)]);
    }
    let g = Groups::of(b, ends, [rows, groups], 4096);
    let Tiles { of, row, own } = g.tiles(b);
    let [x, y] = [x, y].map(|rows| {
        let tiled = b.gather(rows, row, 0);
        let (shape, zero) = (b.ty(tiled).shape(), b.splat(0.0, b.ty(tiled)));
        let own = b.broadcast(own, &shape, &[0, 1]);
        b.select(own, tiled, zero)
    });
    let acc = default_acc(ty.elem());
    let products = b.contract(x, y, [&[0], &[0]], [&[1], &[1]], acc);
    let zero = b.splat(0.0, Type::tensor(&ty.shape(), acc));
    // A group's tiles follow one another.
    let order = iota(b, g.count);
    let starts = b.pad_or_crop(g.tile_ends, 0.0, &[Dim::Static(1)], &[Dim::Static(0)]);
    let [order, starts] = [order, starts].map(|v| {
        let v = b.convert(v, Type::int(32));
        let shape = b.ty(v).shape();
        b.reshape(v, &[&[Dim::Static(1)], shape.as_slice()].concat())
    });
    let scatter = b.op(op::core::SCATTER).operand(zero).operand(of).operand(products);
    let sums = scatter.operand(order).operand(starts).attr("axis", Attr::i64(0)).attr("kind", Attr::str("add")).value();
    Ok(vec![b.convert(sums, ty.elem())])
}

/// Which group each tile has, the rows of each, and which of them are the group's own.
struct Tiles {
    of: Value,
    row: Value,
    own: Value,
}

/// Where groups begin and end, in rows and in tiles: each [g], of i64.
struct Groups {
    rows: Dim,
    /// Rows of a tile.
    tile: i64,
    /// Tiles, at most.
    count: Dim,
    starts: Value,
    ends: Value,
    tile_starts: Value,
    tile_ends: Value,
}

impl Groups {
    fn of(b: &mut Builder, ends: Value, [rows, groups]: [Dim; 2], most: i64) -> Groups {
        let tile = tile_of(rows, groups, most);
        let count = (rows + groups * Dim::Static(tile - 1)).floordiv(Dim::Static(tile));
        let ends = b.convert(ends, Type::i64());
        let starts = b.pad_or_crop(ends, 0.0, &[Dim::Static(1)], &[Dim::Static(-1)]);
        let counts = b.binary("sub", ends, starts);
        let counts = b.binary_scalar("add", counts, (tile - 1) as f64);
        let counts = b.binary_scalar("div", counts, tile as f64);
        // There are few groups: the sum of all before each.
        let square = [groups, groups];
        let (own, other) = (iota(b, groups), iota(b, groups));
        let (own, other) = (b.broadcast(own, &square, &[0]), b.broadcast(other, &square, &[1]));
        let before = b.compare("le", other, own);
        let counted = b.broadcast(counts, &square, &[1]);
        let none = b.splat(0.0, b.ty(counted));
        let counted = b.select(before, counted, none);
        let tile_ends = b.reduce("add", counted, &[1]);
        let tile_starts = b.binary("sub", tile_ends, counts);
        Groups { rows, tile, count, starts, ends, tile_starts, tile_ends }
    }

    fn tiles(&self, b: &mut Builder) -> Tiles {
        let number = iota(b, self.count);
        let of = group_of(b, number, self.tile_ends);
        let (start, tile_start) = (b.gather(self.starts, of, 0), b.gather(self.tile_starts, of, 0));
        let within = b.binary("sub", number, tile_start);
        let within = b.binary_scalar("mul", within, self.tile as f64);
        let first = b.binary("add", start, within);
        let shape = [self.count, Dim::Static(self.tile)];
        let first = b.broadcast(first, &shape, &[0]);
        let in_tile = iota(b, Dim::Static(self.tile));
        let in_tile = b.broadcast(in_tile, &shape, &[1]);
        let row = b.binary("add", first, in_tile);
        let end = b.gather(self.ends, of, 0);
        let end = b.broadcast(end, &shape, &[0]);
        let own = b.compare("lt", row, end);
        Tiles { of, row: at_most(b, row, self.rows - Dim::Static(1)), own }
    }
}

/// The group of each place: how many end before it or there; the last one for places after all.
fn group_of(b: &mut Builder, place: Value, ends: Value) -> Value {
    let (places, groups) = (b.ty(place).shape()[0], b.ty(ends).shape()[0]);
    let shape = [places, groups];
    let (place, ends) = (b.broadcast(place, &shape, &[0]), b.broadcast(ends, &shape, &[1]));
    let ended = b.compare("ge", place, ends);
    let ended = b.convert(ended, Type::i64());
    let group = b.reduce("add", ended, &[1]);
    at_most(b, group, groups - Dim::Static(1))
}

fn iota(b: &mut Builder, size: Dim) -> Value {
    spatial::iota(b, &[size], 0)
}

fn at_most(b: &mut Builder, x: Value, last: Dim) -> Value {
    let last = b.size(last, Type::i64(), &b.ty(x).shape());
    b.binary("min", x, last)
}
