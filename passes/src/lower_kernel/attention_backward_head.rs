//! All gradients of a head of attention on the CPU, by one program: scores and the probabilities' gradients are formed once for the
//! three of them. The program goes over blocks of keys, which it turns around in memory of its own; for each over blocks of queries:
//!
//! 1. probabilities and the scores' gradients of the block, into memory of its own;
//! 2. the keys' share of the queries' gradients;
//! 3. the queries' share of the keys' and values' gradients.
//!
//! A block is a whole number of tiles along both sides, so that the depth of each product is that of a block.

use super::attention::{D, E, M, N};
use super::attention_backward::{AttentionBackward, GRAD, K, Q, V, column_of};
use super::attention_backward_cpu::{keep, tile, tile_along};
use super::contract::dot;
use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use rc_dialects::op;
use rc_ir::{Diagnostic, Result, Value};
use rc_machine::Unit;

/// Memory of the program's own.
struct Scratch {
    /// A block of keys and of values: `[d, keys]` and `[e, keys]`, padded to whole squares.
    panels: [Value; 2],
    /// Probabilities, and the scores' gradients: `[queries, keys]`.
    factors: [Value; 2],
    /// Sums of the gradients of all queries, of a block of keys, and of its values, with columns padded to whole vectors.
    totals: [Value; 3],
}

/// A block of keys, or one of queries: where it starts and how many of it there are.
#[derive(Clone, Copy)]
struct Range {
    first: Value,
    count: Value,
}

/// A product that adds to sums: of factors `[rows, depth]`, and the operand `which` along `depth` of the iterator `along`.
struct Share {
    factors: Value,
    /// Whether the factors' rows are the columns of their memory.
    across: bool,
    which: usize,
    along: usize,
    column: usize,
    total: Value,
}

impl AttentionBackward<'_> {
    /// Computes and stores the gradients of the scope's head.
    pub fn run_on_head(&self, p: &mut Program, scope: &Scope) -> Result {
        let ([rows, step], lanes) = (self.tile(), p.target.lanes(self.acc));
        let [queries, keys] = [M, N].map(|i| self.schedule_block(i));
        let unknown = || Diagnostic::unsupported(p.loc, "gradients of a whole head with a symbolic number of queries");
        let all = self.iters[M].extent.as_static().ok_or_else(unknown)?;
        let widths = [self.width(p, D)?, self.width(p, E)?];
        let [depth, width] = widths.map(|size| next_multiple(size, lanes));
        let elem = self.factor_type(p);
        let scratch = Scratch {
            panels: [depth, width].map(|size| p.alloc(&[size, keys], elem)),
            factors: [0; 2].map(|_| p.alloc(&[queries, keys], elem)),
            totals: [[next_multiple(all, rows), depth], [keys, depth], [keys, width]].map(|s| p.alloc(&s, self.acc)),
        };
        let (zero, size, block) = (p.constant_index(0), p.size(self.iters[N].extent), p.constant_index(keys));
        let every_query = Range { first: zero, count: p.size(self.iters[M].extent) };
        self.clear(p, scratch.totals[0], D, every_query.count)?;
        p.for_loop([zero, size, block], &[], |p, first, _| {
            let keys = self.range(p, N, first, keys);
            let turned = p.rounded_up(keys.count, step);
            for ((which, column), panel) in [(K, D), (V, E)].into_iter().zip(scratch.panels) {
                self.turn(p, scope, which, column, keys.first, turned, panel)?;
            }
            self.clear(p, scratch.totals[1], D, keys.count)?;
            self.clear(p, scratch.totals[2], E, keys.count)?;
            let bounds = [self.first_query(p, keys.first), every_query.count, p.constant_index(queries)];
            p.for_loop(bounds, &[], |p, first, _| {
                let queries = self.range(p, M, first, queries);
                self.block(p, scope, queries, keys, &scratch).map(|()| Vec::new())
            })?;
            self.finish(p, scope, 1, keys, scratch.totals[1])?;
            self.finish(p, scope, 2, keys, scratch.totals[2])?;
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        self.finish(p, scope, 0, every_query, scratch.totals[0])
    }

    fn schedule_block(&self, i: usize) -> i64 {
        let tile = self.schedule.tile_of(self.name(i));
        self.schedule.block_of(self.name(i)).unwrap_or(tile)
    }
    /// The block of at most `size` from `first` on.
    fn range(&self, p: &mut Program, i: usize, first: Value, size: i64) -> Range {
        let (end, size) = (p.size(self.iters[i].extent), p.constant_index(size));
        let left = p.binary(op::core::SUB, end, first);
        Range { first, count: p.binary(op::core::MIN, left, size) }
    }
    /// The first query of a tile that sees the keys from `key` on.
    fn first_query(&self, p: &mut Program, key: Value) -> Value {
        if !self.causal {
            return p.constant_index(0);
        }
        let rows = p.constant_index(self.tile()[0]);
        let past = p.binary(op::core::REM, key, rows);
        p.binary(op::core::SUB, key, past)
    }

    /// What a block of queries and one of keys give one another.
    fn block(&self, p: &mut Program, scope: &Scope, queries: Range, keys: Range, scratch: &Scratch) -> Result {
        let (zero, rows) = (p.constant_index(0), p.constant_index(self.tile()[0]));
        let of_q = Share {
            factors: scratch.factors[1],
            across: false,
            which: K,
            along: N,
            column: D,
            total: scratch.totals[0],
        };
        p.for_loop([zero, queries.count, rows], &[], |p, row, _| {
            let query = p.add_index(queries.first, row);
            self.factors(p, scope, [query, row], keys, scratch)?;
            let seen = self.seen(p, query, keys, 1);
            self.add(p, scope, &of_q, [query, row], keys.first, [zero, seen])?;
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        let of_k = Share {
            factors: scratch.factors[1],
            across: true,
            which: Q,
            along: M,
            column: D,
            total: scratch.totals[1],
        };
        let of_v = Share { factors: scratch.factors[0], which: GRAD, column: E, total: scratch.totals[2], ..of_k };
        p.for_loop([zero, keys.count, rows], &[], |p, row, _| {
            let key = p.add_index(keys.first, row);
            let start = match self.causal {
                true => {
                    let past = p.binary(op::core::SUB, key, queries.first);
                    p.binary(op::core::MAX, past, zero)
                }
                false => zero,
            };
            for share in [&of_k, &of_v] {
                self.add(p, scope, share, [row, row], queries.first, [start, queries.count])?;
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })
        .map(drop)
    }
    /// How many of the keys the queries of so many tiles from `query` on see.
    fn seen(&self, p: &mut Program, query: Value, keys: Range, tiles: i64) -> Value {
        if !self.causal {
            return keys.count;
        }
        let rows = p.constant_index(tiles * self.tile()[0]);
        let last = p.add_index(query, rows);
        let seen = p.binary(op::core::SUB, last, keys.first);
        p.binary(op::core::MIN, seen, keys.count)
    }

    /// Probabilities and the scores' gradients of a tile of queries, the one from `query` on, to the rows from `row` on. Past what causal
    /// queries see there are zeros, as far as a tile of keys reaches.
    fn factors(&self, p: &mut Program, scope: &Scope, at: [Value; 2], keys: Range, scratch: &Scratch) -> Result {
        let ([query, row], [rows, step]) = (at, self.tile());
        let scope = self.with(scope, M, query, 0, rows);
        let [exponents, delta] = self.rows(p, &scope)?;
        let bounds = [p.constant_index(0), self.seen(p, query, keys, 2), p.constant_index(step)];
        p.for_loop(bounds, &[], |p, key, _| {
            let first = p.add_index(keys.first, key);
            let both = self.with(&scope, N, first, 1, step);
            let scores = self.product(p, Q, &scope, D, scratch.panels[0], key)?;
            let weights = self.probabilities(p, scores, exponents, &both, None)?;
            let gradient = self.product(p, GRAD, &scope, E, scratch.panels[1], key)?;
            let apart = p.binary(op::core::SUB, gradient, delta);
            let gradient = p.binary(op::core::MUL, weights, apart);
            for (factor, memory) in [weights, gradient].into_iter().zip(scratch.factors) {
                let factor = p.convert(factor, self.factor_type(p));
                keep(p, factor, memory, [row, key]);
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })
        .map(drop)
    }

    /// Adds a product to the sums of a tile of rows: those from `at[0]` on of the total, from `at[1]` on of the factors. The operand's rows
    /// start at `first`.
    fn add(
        &self,
        p: &mut Program,
        scope: &Scope,
        share: &Share,
        at: [Value; 2],
        first: Value,
        depth: [Value; 2],
    ) -> Result {
        let rows = self.tile()[0];
        self.each_part(p, share.column, &|p, part, width| {
            let before = tile(p, share.total, [at[0], part], [rows, width]);
            let bounds = [depth[0], depth[1], p.constant_index(1)];
            let total = p.for_loop(bounds, &[before], |p, n, sums| {
                let factor = match share.across {
                    true => tile_along(p, share.factors, [n, at[1]], [1, -1], [rows, 1]),
                    false => tile(p, share.factors, [at[1], n], [rows, 1]),
                };
                let place = p.add_index(first, n);
                let scope = scope.with(self.name(share.along), bind(&self.iters[share.along], place, None, 1));
                let scope = self.with(&scope, share.column, part, 1, width);
                let value = self.load(p, share.which, &scope)?;
                let value = p.broadcast(value, [1, width]);
                Ok::<_, Box<Diagnostic>>(vec![dot(p, [factor, value, sums[0]], false, false, Some(Unit::Fma))])
            })?[0];
            keep(p, total, share.total, [at[0], part]);
            Ok(())
        })
    }

    fn clear(&self, p: &mut Program, total: Value, column: usize, count: Value) -> Result {
        let rows = self.tile()[0];
        let bounds = [p.constant_index(0), count, p.constant_index(rows)];
        p.for_loop(bounds, &[], |p, row, _| {
            self.each_part(p, column, &|p, part, width| {
                let none = p.zeros([rows, width], self.acc);
                keep(p, none, total, [row, part]);
                Ok(())
            })
            .map(|()| Vec::new())
        })
        .map(drop)
    }
    /// Stores the sums of the gradient `of[i]`.
    fn finish(&self, p: &mut Program, scope: &Scope, i: usize, range: Range, total: Value) -> Result {
        let (rows, column) = (self.tile()[0], column_of(self.of[i]));
        let own = if i == 0 { M } else { N };
        let bounds = [p.constant_index(0), range.count, p.constant_index(rows)];
        p.for_loop(bounds, &[], |p, row, _| {
            let first = p.add_index(range.first, row);
            let scope = self.with(scope, own, first, 0, rows);
            self.each_part(p, column, &|p, part, width| {
                let sums = tile(p, total, [row, part], [rows, width]);
                let scope = self.with(&scope, column, part, 1, width);
                self.store(p, i, sums, &scope)
            })
            .map(|()| Vec::new())
        })
        .map(drop)
    }
    /// The columns of a gradient, a tile's width at a time, the last of them in whole vectors.
    fn each_part(&self, p: &mut Program, column: usize, body: &dyn Fn(&mut Program, Value, i64) -> Result) -> Result {
        let (size, step) = (self.width(p, column)?, self.tile()[1]);
        let whole = size / step * step;
        let [start, end, by] = [0, whole, step].map(|n| p.constant_index(n));
        if whole > 0 {
            p.for_loop([start, end, by], &[], |p, part, _| body(p, part, step).map(|()| Vec::new()))?;
        }
        match whole < size {
            true => body(p, end, next_multiple(size - whole, p.target.lanes(self.acc))),
            false => Ok(()),
        }
    }
}

fn next_multiple(n: i64, of: i64) -> i64 {
    (n + of - 1) / of * of
}
