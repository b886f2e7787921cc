//! Attention on the CPU: tiles as large as the vector registers. A program goes over blocks of keys; for each it turns the
//! keys around in memory of its own, then takes its queries a few at a time. Running maxima, sums and results of all its
//! queries lie in its own memory, too.
//!
//! Fewer queries than a head has vectors are multiplied with the keys as these lie: sums of vectors along the head, whose lanes are added at the end.

use super::attention::{Attention, D, E, M, N};
use super::contract::dot;
use super::contract_cpu::{steps_at_once, transposed};
use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::reads_keys_in_place;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Result, Type, Value};

/// Memory of the program's own.
struct Scratch {
    /// Keys, `[d, keys]`, padded to whole squares; of a few queries, their scores, `[rows, keys]`.
    panel: Value,
    /// `[rows, keys]`.
    weights: Value,
    /// `[block, 1]`.
    best: Value,
    sum: Value,
    /// `[block, e]`, padded.
    total: Value,
}

impl Attention<'_> {
    /// Computes and stores the results of the `block` queries from the scope's first on.
    pub fn run_on_cpu(&self, p: &mut Program, scope: &Scope, block: i64, output: Value) -> Result {
        let (rows, keys) = (self.rows(), self.keys());
        let first = scope.get(self.name(M)).expect("the grid has the queries").base;
        let lanes = p.target.lanes(self.acc);
        let (depth, width) = (self.head_size(p, D)?, next_multiple(self.head_size(p, E)?, lanes));
        let few = reads_keys_in_place(rows, depth, lanes);
        let panel = match few {
            true => ([rows, keys], self.acc),
            false => ([next_multiple(depth, lanes), keys], p.src.ty(p.src.operand(self.op, 1)).elem()),
        };
        let scratch = Scratch {
            panel: p.alloc(&panel.0, panel.1),
            weights: p.alloc(&[rows, keys], self.value_type(p)),
            best: p.alloc(&[block, 1], self.acc),
            sum: p.alloc(&[block, 1], self.acc),
            total: p.alloc(&[block, width], self.acc),
        };
        let (zero, step) = (p.constant_index(0), p.constant_index(rows));
        let size = p.size(self.iters[M].extent);
        let left = p.binary(op::core::SUB, size, first);
        let whole = p.constant_index(block);
        let end = p.binary(op::core::MIN, left, whole);
        p.for_loop([zero, end, step], &[], |p, row, _| self.clear(p, &scratch, row, width))?;
        let bounds = [zero, self.last_key(p, scope, first, block)?, p.constant_index(keys)];
        p.for_loop(bounds, &[], |p, at, _| {
            if !few {
                self.turn_keys(p, scope, at, &scratch, depth)?;
            }
            let start = self.first_row(p, first, at);
            p.for_loop([start, end, step], &[], |p, row, _| {
                let scope = self.at_row(p, scope, row);
                let scores = match few {
                    true => self.scores_of_few(p, &scope, at, &scratch, depth)?,
                    false => self.scores_of_rows(p, &scope, &scratch, depth)?,
                };
                self.rows_of_block(p, &scope, row, at, &scratch, scores, width)
            })?;
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        p.for_loop([zero, end, step], &[], |p, row, _| self.finish(p, scope, row, &scratch, width, output)).map(|_| ())
    }

    /// The scope with the queries from `row` of the block on.
    fn at_row(&self, p: &mut Program, scope: &Scope, row: Value) -> Scope {
        let first = scope.get(self.name(M)).expect("bound by the grid").base;
        let query = p.add_index(first, row);
        scope.with(self.name(M), bind(&self.iters[M], query, Some(0), self.rows()))
    }
    fn tile(&self, p: &mut Program, memory: Value, at: [Value; 2], shape: [i64; 2]) -> Value {
        let ty = Type::tile(&shape, p.ty(memory).elem(), None);
        let mut b = p.build();
        b.op(op::kernel::LOAD).operand(memory).operands(&at).attr("dims", Attr::i64s(&[0, 1])).result(ty).value()
    }
    fn keep(&self, p: &mut Program, tile: Value, memory: Value, at: [Value; 2]) {
        p.build()
            .op(op::kernel::STORE)
            .operand(tile)
            .operand(memory)
            .operands(&at)
            .attr("dims", Attr::i64s(&[0, 1]))
            .build();
    }

    fn clear(&self, p: &mut Program, scratch: &Scratch, row: Value, width: i64) -> Result<Vec<Value>> {
        let zero = p.constant_index(0);
        let low = p.splat([self.rows(), 1], Attr::float(f64::NEG_INFINITY, self.acc));
        self.keep(p, low, scratch.best, [row, zero]);
        let none = p.zeros([self.rows(), 1], self.acc);
        self.keep(p, none, scratch.sum, [row, zero]);
        self.for_parts(p, width, |p, part, size| {
            let none = p.zeros([self.rows(), size], self.acc);
            self.keep(p, none, scratch.total, [row, part]);
            Ok(())
        })
    }
    /// The results of a query in parts, each with its start and size: as many as a block has keys, as long as there are so many, then the rest.
    fn for_parts(
        &self,
        p: &mut Program,
        width: i64,
        body: impl Fn(&mut Program, Value, i64) -> Result,
    ) -> Result<Vec<Value>> {
        let rest = width % self.keys();
        let [zero, whole, keys] = [0, width - rest, self.keys()].map(|n| p.constant_index(n));
        if rest < width {
            p.for_loop([zero, whole, keys], &[], |p, part, _| body(p, part, self.keys()).map(|()| Vec::new()))?;
        }
        if rest > 0 {
            body(p, whole, rest)?;
        }
        Ok(Vec::new())
    }

    /// Copies keys from `at` on into the panel, square by square.
    fn turn_keys(
        &self,
        p: &mut Program,
        scope: &Scope,
        at: Value,
        scratch: &Scratch,
        depth: i64,
    ) -> Result<Vec<Value>> {
        let lanes = p.target.lanes(self.acc);
        let [zero, step, depth, keys] = [0, lanes, depth, self.keys()].map(|n| p.constant_index(n));
        p.for_loop([zero, keys, step], &[], |p, n, _| {
            let key = p.add_index(at, n);
            let scope = self.with(&self.without_rows(scope), N, key, Some(0), lanes);
            p.for_loop([zero, depth, step], &[], |p, d, _| {
                let scope = self.with(&scope, D, d, Some(1), lanes);
                let square = self.load(p, 1, &scope, [lanes, lanes], N)?;
                let turned = transposed(p, square);
                self.keep(p, turned, scratch.panel, [d, n]);
                Ok(Vec::new())
            })
        })
    }
    /// The first rows of the block that see the keys from `at` on.
    fn first_row(&self, p: &mut Program, first: Value, at: Value) -> Value {
        let zero = p.constant_index(0);
        if !self.causal {
            return zero;
        }
        let rows = p.constant_index(self.rows());
        let past = p.binary(op::core::SUB, at, first);
        let past = p.binary(op::core::MAX, past, zero);
        let tiles = p.binary(op::core::DIV, past, rows);
        p.mul_index(tiles, rows)
    }

    /// The scores of a tile of queries: a product with the panel.
    fn scores_of_rows(&self, p: &mut Program, scope: &Scope, scratch: &Scratch, depth: i64) -> Result<Value> {
        let (rows, keys, zero) = (self.rows(), self.keys(), p.constant_index(0));
        let start = p.zeros([rows, keys], self.acc);
        let bounds = [zero, p.constant_index(depth), p.constant_index(1)];
        let steps = steps_at_once(rows * keys / p.target.lanes(self.acc));
        let sums = p.unrolled_loop(steps, bounds, &[start], |p, d, acc| {
            let q = self.load(p, 0, &self.with(scope, D, d, None, 1), [rows, 1], M)?;
            let k = self.tile(p, scratch.panel, [d, zero], [1, keys]);
            Ok::<_, Box<Diagnostic>>(vec![dot(p, [q, k, acc[0]], false, false, Some(rc_machine::Unit::Fma))])
        })?;
        Ok(sums[0])
    }
    /// The scores of a few queries with the keys from `at` on, as many keys at a time as a vector has lanes.
    fn scores_of_few(&self, p: &mut Program, scope: &Scope, at: Value, scratch: &Scratch, depth: i64) -> Result<Value> {
        let (rows, keys, lanes) = (self.rows(), self.keys(), p.target.lanes(self.acc));
        let first = scope.get(self.name(M)).expect("bound by the caller").base;
        let [zero, depth, all, step] = [0, depth, keys, lanes].map(|n| p.constant_index(n));
        let size = p.size(self.iters[N].extent);
        let left = p.binary(op::core::SUB, size, at);
        let end = p.binary(op::core::MIN, left, all);
        let end = p.rounded_up(end, lanes);
        p.for_loop([end, all, step], &[], |p, n, _| {
            let none = p.zeros([rows, lanes], self.acc);
            self.keep(p, none, scratch.panel, [zero, n]);
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        p.for_loop([zero, end, step], &[], |p, n, _| {
            let key = p.add_index(at, n);
            let there = self.with(&self.without_rows(scope), N, key, Some(0), lanes);
            for row in 0..rows {
                let row = p.constant_index(row);
                let query = p.add_index(first, row);
                let own = self.with(scope, M, query, None, 1);
                let start = p.zeros([lanes, lanes], self.acc);
                let sums = p.for_loop([zero, depth, step], &[start], |p, d, sums| {
                    let q = self.load(p, 0, &self.with(&own, D, d, Some(1), lanes), [1, lanes], D)?;
                    let k = self.load(p, 1, &self.with(&there, D, d, Some(1), lanes), [lanes, lanes], D)?;
                    let [q, k] = [q, k].map(|factor| p.convert(factor, self.acc));
                    Ok::<_, Box<Diagnostic>>(vec![p.fma(k, q, sums[0])])
                })?[0];
                let turned = transposed(p, sums);
                let scores = p.reduce(turned, &[0], "add");
                self.keep(p, scores, scratch.panel, [row, n]);
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        Ok(self.tile(p, scratch.panel, [zero, zero], [rows, keys]))
    }

    #[allow(clippy::too_many_arguments)]
    fn rows_of_block(
        &self,
        p: &mut Program,
        scope: &Scope,
        row: Value,
        at: Value,
        scratch: &Scratch,
        scores: Value,
        width: i64,
    ) -> Result<Vec<Value>> {
        let (rows, keys, zero) = (self.rows(), self.keys(), p.constant_index(0));
        let scores = self.mask(p, scores, scope, at)?;
        let best = self.tile(p, scratch.best, [row, zero], [rows, 1]);
        let sum = self.tile(p, scratch.sum, [row, zero], [rows, 1]);
        let (best, sum, decay, weights) = self.weights(p, scores, best, sum);
        self.keep(p, best, scratch.best, [row, zero]);
        self.keep(p, sum, scratch.sum, [row, zero]);
        self.keep(p, weights, scratch.weights, [zero, zero]);
        let end = p.size(self.iters[N].extent);
        let left = p.binary(op::core::SUB, end, at);
        let all = p.constant_index(keys);
        let count = p.binary(op::core::MIN, left, all);
        self.for_parts(p, width, |p, part, size| {
            let before = self.tile(p, scratch.total, [row, part], [rows, size]);
            let start = p.binary(op::core::MUL, before, decay);
            let bounds = [zero, count, p.constant_index(1)];
            let total = p.for_loop(bounds, &[start], |p, i, acc| {
                let w = self.tile(p, scratch.weights, [zero, i], [rows, 1]);
                let key = p.add_index(at, i);
                let scope = self.with(&self.without_rows(scope), N, key, None, 1);
                let scope = self.with(&scope, E, part, Some(1), size);
                let value = self.load(p, 2, &scope, [1, size], N)?;
                Ok::<_, Box<Diagnostic>>(vec![dot(p, [w, value, acc[0]], false, false, Some(rc_machine::Unit::Fma))])
            })?[0];
            self.keep(p, total, scratch.total, [row, part]);
            Ok(())
        })
    }

    fn finish(
        &self,
        p: &mut Program,
        scope: &Scope,
        row: Value,
        scratch: &Scratch,
        width: i64,
        output: Value,
    ) -> Result<Vec<Value>> {
        let (rows, zero) = (self.rows(), p.constant_index(0));
        let scope = self.at_row(p, scope, row);
        let sum = self.tile(p, scratch.sum, [row, zero], [rows, 1]);
        let best = self.tile(p, scratch.best, [row, zero], [rows, 1]);
        if let Some((target, access)) = self.sums() {
            let logs = self.logs(p, best, sum);
            p.store(logs, target, access, &scope)?;
        }
        self.for_parts(p, width, |p, part, size| {
            let total = self.tile(p, scratch.total, [row, part], [rows, size]);
            let out = self.quotient(p, total, sum);
            p.store(out, output, &self.output, &self.with(&scope, E, part, Some(1), size))
        })
    }
}

fn next_multiple(n: i64, of: i64) -> i64 {
    (n + of - 1) / of * of
}
