//! Gradients of attention on the CPU: tiles as large as the vector registers. A program goes over blocks of the other side (of keys, for
//! q's gradient); for each it turns both of its operands around in memory of its own, then takes its own rows a few at a time. The sums
//! of the gradients lie in its own memory, too.

use super::attention::{D, E, M};
use super::attention_backward::{AttentionBackward, GRAD, K, Q, V, column_of};
use super::contract::dot;
use super::contract_cpu::{steps_at_once, transposed};
use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Result, Type, Value};

/// Memory of the program's own.
struct Scratch {
    /// The others' operands of the scores and of the probabilities' gradients: `[d, step]` and `[e, step]`, padded to whole squares.
    panels: [Value; 2],
    /// Left operands of the gradients' products, `[rows, step]`.
    factors: Vec<Value>,
    /// The gradients' sums, `[block, width]`, padded.
    totals: Vec<Value>,
}

/// A few rows of the program, at a block of the others.
struct Step<'a> {
    scope: &'a Scope,
    /// The first of the rows, of the block.
    row: Value,
    /// The first of the others.
    at: Value,
}

impl AttentionBackward<'_> {
    /// Computes and stores the gradients of the `block` rows from the scope's first on.
    pub fn run_on_cpu(&self, p: &mut Program, scope: &Scope, block: i64) -> Result {
        let ([own, other], [rows, step]) = (self.axes(), self.tile());
        let elem = self.factor_type(p);
        let sizes = [self.width(p, D)?, self.width(p, E)?];
        let (padded, lanes) = (|size: i64| (size + step - 1) / step * step, p.target.lanes(self.acc));
        let widths: Vec<i64> = self.of.iter().map(|name| padded(sizes[column_of(name) - D])).collect();
        let scratch = Scratch {
            panels: sizes.map(|size| p.alloc(&[(size + lanes - 1) / lanes * lanes, step], elem)),
            factors: self.of.iter().map(|_| p.alloc(&[rows, step], elem)).collect(),
            totals: widths.iter().map(|&width| p.alloc(&[block, width], self.acc)).collect(),
        };
        let first = scope.get(self.name(own)).expect("the grid has the rows").base;
        let (zero, size, whole) = (p.constant_index(0), p.size(self.iters[own].extent), p.constant_index(block));
        let left = p.binary(op::core::SUB, size, first);
        let end = p.binary(op::core::MIN, left, whole);
        let each_row = [zero, end, p.constant_index(rows)];
        p.for_loop(each_row, &[], |p, row, _| {
            for (&total, &width) in scratch.totals.iter().zip(&widths) {
                self.for_parts(p, width, |p, part| {
                    let none = p.zeros([rows, step], self.acc);
                    keep(p, none, total, [row, part]);
                    Ok(())
                })?;
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        let [from, to] = self.bounds(p, scope, block);
        let bounds = [from, to, p.constant_index(step)];
        p.for_loop(bounds, &[], |p, at, _| {
            let others = if own == M { [K, V] } else { [Q, GRAD] };
            for ((which, column), panel) in others.into_iter().zip([D, E]).zip(scratch.panels) {
                self.turn(p, scope, which, column, at, bounds[2], panel)?;
            }
            p.for_loop(each_row, &[], |p, row, _| {
                self.rows_of_block(p, &Step { scope, row, at }, &scratch, &widths, other).map(|()| Vec::new())
            })
        })?;
        p.for_loop(each_row, &[], |p, row, _| {
            for (i, name) in self.of.iter().enumerate() {
                let scope = self.at_row(p, scope, row);
                self.for_parts(p, widths[i], |p, part| {
                    let total = tile(p, scratch.totals[i], [row, part], [rows, step]);
                    let scope = self.with(&scope, column_of(name), part, 1, step);
                    self.store(p, i, total, &scope)
                })?;
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })
        .map(|_| ())
    }

    /// The scope with the rows from `row` of the block on.
    fn at_row(&self, p: &mut Program, scope: &Scope, row: Value) -> Scope {
        let own = self.axes()[0];
        let first = scope.get(self.name(own)).expect("bound by the grid").base;
        let at = p.add_index(first, row);
        self.with(scope, own, at, 0, self.tile()[0])
    }
    /// A loop over the columns of a gradient, a tile's width at a time.
    fn for_parts(
        &self,
        p: &mut Program,
        width: i64,
        body: impl FnOnce(&mut Program, Value) -> Result,
    ) -> Result<Vec<Value>> {
        let bounds = [p.constant_index(0), p.constant_index(width), p.constant_index(self.tile()[1])];
        p.for_loop(bounds, &[], |p, part, _| body(p, part).map(|()| Vec::new()))
    }
    /// One element of `column` for each of what `i` runs over, along dimension `axis`.
    fn line(
        &self,
        p: &mut Program,
        which: usize,
        scope: &Scope,
        column: usize,
        at: Value,
        axis: usize,
    ) -> Result<Value> {
        let scope = scope.with(self.name(column), bind(&self.iters[column], at, None, 1));
        let value = self.load(p, which, &scope)?;
        let value = self.zero_past(p, value, which, &scope, &self.axes());
        let mut shape = [1; 2];
        shape[axis] = self.tile()[axis];
        Ok(p.broadcast(value, shape))
    }

    /// Copies `count` rows of an operand of the others, from `at` on, into its panel, square by square.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn turn(
        &self,
        p: &mut Program,
        scope: &Scope,
        which: usize,
        column: usize,
        at: Value,
        count: Value,
        panel: Value,
    ) -> Result {
        let ([own, other], lanes) = (self.axes(), p.target.lanes(self.acc));
        let [zero, step] = [0, lanes].map(|n| p.constant_index(n));
        let width = p.constant_index(self.width(p, column)?);
        let each = |p: &mut Program, first: Value| {
            let place = p.add_index(at, first);
            let scope = self.with(&self.without(scope, own), other, place, 0, lanes);
            p.for_loop([zero, width, step], &[], |p, c, _| {
                let scope = self.with(&scope, column, c, 1, lanes);
                let square = self.load(p, which, &scope)?;
                let square = self.zero_past(p, square, which, &scope, &self.axes());
                let square = p.broadcast(square, [lanes, lanes]);
                let turned = transposed(p, square);
                keep(p, turned, panel, [c, first]);
                Ok::<_, Box<Diagnostic>>(Vec::new())
            })
        };
        p.for_loop([zero, count, step], &[], |p, first, _| each(p, first)).map(drop)
    }
    /// Rows of the program by columns of the others: a product with a panel, from `at` on.
    pub(super) fn product(
        &self,
        p: &mut Program,
        which: usize,
        scope: &Scope,
        column: usize,
        panel: Value,
        at: Value,
    ) -> Result<Value> {
        let [rows, step] = self.tile();
        let (start, zero) = (p.zeros([rows, step], self.acc), p.constant_index(0));
        let bounds = [zero, p.constant_index(self.width(p, column)?), p.constant_index(1)];
        let steps = steps_at_once(rows * step / p.target.lanes(self.acc));
        let sums = p.unrolled_loop(steps, bounds, &[start], |p, c, acc| {
            let left = self.line(p, which, scope, column, c, 0)?;
            let right = tile(p, panel, [c, at], [1, step]);
            Ok::<_, Box<Diagnostic>>(vec![dot(p, [left, right, acc[0]], false, false, Some(rc_machine::Unit::Fma))])
        })?;
        Ok(sums[0])
    }

    fn rows_of_block(&self, p: &mut Program, at: &Step, scratch: &Scratch, widths: &[i64], other: usize) -> Result {
        let ([rows, step], zero) = (self.tile(), p.constant_index(0));
        let scope = self.at_row(p, at.scope, at.row);
        let both = self.with(&scope, other, at.at, 1, step);
        let own = self.axes()[0];
        let [first, second] = if own == M { [Q, GRAD] } else { [K, V] };
        let scores = self.product(p, first, &scope, D, scratch.panels[0], zero)?;
        let queries = if own == M { scope.clone() } else { self.with(&self.without(at.scope, own), M, at.at, 1, step) };
        let [exponents, delta] = self.rows(p, &queries)?;
        let weights = self.probabilities(p, scores, exponents, &both, None)?;
        for (i, name) in self.of.iter().enumerate() {
            let factor = match *name {
                "v" => weights,
                _ => {
                    let gradient = self.product(p, second, &scope, E, scratch.panels[1], zero)?;
                    let apart = p.binary(op::core::SUB, gradient, delta);
                    p.binary(op::core::MUL, weights, apart)
                }
            };
            let factor = p.convert(factor, self.factor_type(p));
            keep(p, factor, scratch.factors[i], [zero, zero]);
        }
        let size = p.size(self.iters[other].extent);
        let (left, all) = (p.binary(op::core::SUB, size, at.at), p.constant_index(step));
        let count = p.binary(op::core::MIN, left, all);
        for (i, name) in self.of.iter().enumerate() {
            let which = match *name {
                "q" => K,
                "k" => Q,
                _ => GRAD,
            };
            self.for_parts(p, widths[i], |p, part| {
                let before = tile(p, scratch.totals[i], [at.row, part], [rows, step]);
                let bounds = [zero, count, p.constant_index(1)];
                let total = p.for_loop(bounds, &[before], |p, n, acc| {
                    let factor = tile(p, scratch.factors[i], [zero, n], [rows, 1]);
                    let place = p.add_index(at.at, n);
                    let scope = self.without(at.scope, own);
                    let scope = scope.with(self.name(other), bind(&self.iters[other], place, None, 1));
                    let scope = self.with(&scope, column_of(name), part, 1, step);
                    let value = self.load(p, which, &scope)?;
                    let value = p.broadcast(value, [1, step]);
                    Ok::<_, Box<Diagnostic>>(vec![dot(
                        p,
                        [factor, value, acc[0]],
                        false,
                        false,
                        Some(rc_machine::Unit::Fma),
                    )])
                })?[0];
                keep(p, total, scratch.totals[i], [at.row, part]);
                Ok(())
            })?;
        }
        Ok(())
    }
}

pub(super) fn tile(p: &mut Program, memory: Value, at: [Value; 2], shape: [i64; 2]) -> Value {
    tile_along(p, memory, at, [0, 1], shape)
}
/// A tile whose dimensions run along these of the memory.
pub(super) fn tile_along(p: &mut Program, memory: Value, at: [Value; 2], dims: [i64; 2], shape: [i64; 2]) -> Value {
    let ty = Type::tile(&shape, p.ty(memory).elem(), None);
    let mut b = p.build();
    b.op(op::kernel::LOAD).operand(memory).operands(&at).attr("dims", Attr::i64s(&dims)).result(ty).value()
}
pub(super) fn keep(p: &mut Program, tile: Value, memory: Value, at: [Value; 2]) {
    let mut b = p.build();
    let op = b.op(op::kernel::STORE).operand(tile).operand(memory).operands(&at);
    op.attr("dims", Attr::i64s(&[0, 1])).build();
}
