//! Matrix products on the CPU, by blocks that stay in its caches. A program has a block of results. For each block of the
//! sums it copies its parts of the operands into memory of its own, in the order in which they are used, and adds their
//! products to tiles of results, which are in registers meanwhile.

mod ahead;
mod lanes;
mod tiles;
mod words;

use super::contract::Product;
use super::program::Program;
use super::run::{bind, divides};
use super::scope::{Bind, Scope};
use crate::schedule::Operand;
use crate::schedule::access::Iter;
use crate::schedule::contract_cpu::{by_rows, gathered_run, word_panels};
use crate::schedule::nest::Nest;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Name, Result, Type, Value};

/// Rows of k that are copied at once, where vectors run across k.
const ROWS: i64 = 4;
/// Vectors along k that are copied at once.
const RUN: i64 = 4;
/// Elements of a tile that is turned as it is copied, at most: 112 columns of bytes in half a vector's words.
const TURNED: i64 = 4096;

/// Multiply-adds of the steps that are unrolled, at most. The fewer of a core's instructions are the loop's own, the less it loses where another
/// thread shares the core: 13 x 32 tiles take 0.75 times as long on a busy Xeon by two steps at once, 0.72 times by four.
const UNROLLED: i64 = 56;

/// A product whose schedule has blocks.
pub struct Blocked<'a, 'n> {
    product: &'a Product<'n>,
    /// The iterators of the grid.
    scope: &'a Scope,
    m: Part,
    n: Part,
    k: Iter,
    /// Elements of k at a time; `None`: all.
    depth: Option<i64>,
    left: Option<Panel>,
    right: Option<Panel>,
    /// The product with the right operand's columns as panels and lanes of these, where it lies in memory so.
    panelled: Option<Panelled>,
    /// The operand of the nest that is the right one, in panels of words.
    in_words: Option<usize>,
    /// The product with runs of k and lanes of these, where the left operand's rows are windows.
    runs: Option<Runs>,
    /// The same with tiles of rows, where the windows are read in place.
    windows: Option<Windows>,
}

struct Runs {
    nest: Nest,
    number: Iter,
    lane: Iter,
    length: i64,
    /// Whether k is a number of whole runs.
    whole: bool,
}

/// Windows that are read in place: rows of a tile lie at one distance from one another.
struct Windows {
    runs: Runs,
    tile: Iter,
    row: Iter,
}

struct Panelled {
    nest: Nest,
    panel: Iter,
    lane: Iter,
}

/// A program's part of a parallel iterator.
struct Part {
    iter: Iter,
    first: Value,
    /// Elements of it, at most `block`.
    count: Value,
    block: i64,
    tile: i64,
}

/// The program's copy of an operand.
#[derive(Clone, Copy)]
struct Panel {
    memory: Value,
    form: Form,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `[elements, k]`, as it lies in memory.
    AlongK,
    /// `[tiles, k, elements of a tile]`.
    ByTiles,
}

/// What is done with a tile of sums, in its scope.
type Finish<'f> = dyn FnMut(&mut Program, &Scope, Value) -> Result + 'f;

/// An operand of the product.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
}

impl<'a, 'n> Blocked<'a, 'n> {
    /// # Errors
    /// If the grid lacks rows or columns, or operands are to be packed without a block of the sums.
    pub fn new(p: &mut Program, product: &'a Product<'n>, scope: &'a Scope) -> Result<Blocked<'a, 'n>> {
        let (schedule, roles) = (product.schedule, product.roles);
        let [mr, nr, _] = product.tile();
        let k = *product.iter(roles.k);
        let depth = schedule.block_of(roles.k);
        if depth.is_none() && schedule.contract().is_some_and(|own| !own.pack.is_empty()) {
            let op = p.src.op_ref(product.nest.op);
            return Err(op.error(format!("has a schedule that packs operands, without a block of {}", roles.k)));
        }
        let m = Part::of(p, product, scope, roles.m, mr)?;
        let n = Part::of(p, product, scope, roles.n, nr)?;
        let panelled = Panelled::of(product.nest, &n);
        let in_words = word_panels(p.src, product.nest, &roles).filter(|found| found.1 == nr).map(|found| found.0);
        let runs = Runs::of(product.nest, product, k, depth);
        let windows = Windows::of(product, &m, k, depth).filter(|_| !schedule.packs(Operand::Left));
        let mut out =
            Blocked { product, scope, m, n, k, depth, left: None, right: None, panelled, in_words, runs, windows };
        let length = depth.map(|depth| out.words_in(depth));
        let length = length.map(|depth| (depth as u64).next_multiple_of((RUN * out.lanes(p)) as u64) as i64);
        if let Some(length) = length {
            out.left = schedule.packs(Operand::Left).then(|| out.panel(p, Side::Left, length));
            out.right = schedule.packs(Operand::Right).then(|| out.panel(p, Side::Right, length));
        }
        Ok(out)
    }
    fn lanes(&self, p: &Program) -> i64 {
        p.target.lanes(self.product.acc)
    }
    fn part(&self, side: Side) -> &Part {
        if side == Side::Left { &self.m } else { &self.n }
    }
    fn which(&self, side: Side) -> usize {
        if side == Side::Left { self.product.roles.left } else { 1 - self.product.roles.left }
    }
    fn lies_along_k(&self, side: Side) -> bool {
        self.product.roles.lies_along_k(self.product.nest, self.which(side))
    }
    /// Memory for an operand's block. Elements are kept in words that the unit multiplies, or in the type that is accumulated in: narrower ones are converted once.
    fn panel(&self, p: &mut Program, side: Side, length: i64) -> Panel {
        let Part { block, tile, .. } = *self.part(side);
        // Elements of the left operand are repeated one by one, and may lie in any order; but tiles are of rows.
        let rows = self.lies_along_k(side) || self.multiplies_tiles();
        let form = if side == Side::Left && rows { Form::AlongK } else { Form::ByTiles };
        let elem = if self.product.words.is_some() { Type::i32() } else { self.product.acc };
        let memory = match form {
            Form::AlongK if self.multiplies_tiles() => p.alloc(&[block, self.apart(length)], elem),
            Form::AlongK => p.alloc(&[block, length], elem),
            Form::ByTiles => p.alloc(&[block / tile, length, tile], elem),
        };
        Panel { memory, form }
    }

    /// Computes the program's results; `epilogue` gets each tile with the scope in which it is to be stored.
    ///
    /// # Errors
    /// What reading the operands or the epilogue reports.
    pub fn run(&self, p: &mut Program, mut epilogue: impl FnMut(&mut Program, &Scope, Value) -> Result) -> Result {
        let outer: Vec<Iter> = self.product.outer_sums().collect();
        if !outer.is_empty() {
            return self.run_all(p, &outer, &mut epilogue);
        }
        match (self.k.extent, self.depth) {
            (Dim::Static(k), Some(depth)) if k > depth => self.run_blocks(p, k, depth, &mut epilogue),
            (Dim::Static(_), _) | (_, None) => {
                let range = [p.constant_index(0), p.size(self.k.extent)];
                let sums = self.multiplies_tiles().then(|| self.one_tile(p));
                self.block(p, self.scope, range, sums, false, Some(&mut epilogue))
            }
            _ => self.run_all(p, &outer, &mut epilogue),
        }
    }

    /// Goes over a known number of blocks of k, at least two: the first one's sums wait for the others', the last one's are the results.
    fn run_blocks(&self, p: &mut Program, k: i64, depth: i64, finish: &mut Finish) -> Result {
        let sums = Some(self.waiting(p));
        let last = (k - 1) / depth * depth;
        let [zero, step, start] = [0, depth, last].map(|n| p.constant_index(n));
        self.block(p, self.scope, [zero, step], sums, false, None)?;
        if last > depth {
            for_each(p, [step, start, step], |p, first| self.block(p, self.scope, [first, step], sums, true, None))?;
        }
        let rest = p.constant_index(k - last);
        self.block(p, self.scope, [start, rest], sums, true, Some(finish))
    }

    /// Goes over all sums, however many blocks there are; all wait in memory.
    fn run_all(&self, p: &mut Program, outer: &[Iter], finish: &mut Finish) -> Result {
        let sums = self.waiting(p);
        self.for_parts(p, self.scope, |p, _, at, rows| {
            let none = p.zeros([rows, self.n.tile], self.product.acc);
            self.keep(p, none, sums, at);
            Ok(())
        })?;
        self.for_outer(p, self.scope, outer, &mut |p, scope| {
            self.for_depths(p, |p, range| self.block(p, scope, range, Some(sums), true, None))
        })?;
        self.for_parts(p, self.scope, |p, scope, at, rows| {
            let tile = self.kept(p, sums, at, rows);
            finish(p, scope, tile)
        })
    }

    /// Packs a block of k and gives `then` each tile of its products' sums, added to those that wait where it `adds`; without it they wait in `sums`.
    /// Each block's sums start from zero: the shorter a sum, the less it loses to rounding.
    fn block(
        &self,
        p: &mut Program,
        scope: &Scope,
        range: [Value; 2],
        sums: Option<Value>,
        adds: bool,
        mut then: Option<&mut Finish>,
    ) -> Result {
        self.pack(p, scope, range)?;
        self.for_tiles(p, scope, |p, scope, at| {
            if let Some(sums) = sums.filter(|_| self.multiplies_tiles()) {
                self.dot_tiles(p, scope, sums, at, range, adds)?;
                return match &mut then {
                    Some(finish) => self.finish_tile(p, scope, sums, at, finish),
                    None => Ok(()),
                };
            }
            let mut tile = self.sums(p, scope, at, range)?;
            if let Some(sums) = sums.filter(|_| adds) {
                let before = self.kept(p, sums, at, self.rows(scope));
                tile = p.binary(op::core::ADD, before, tile);
            }
            match (&mut then, sums) {
                (Some(finish), _) => finish(p, scope, tile)?,
                (None, Some(sums)) => self.keep(p, tile, sums, at),
                (None, None) => unreachable!("sums wait in memory"),
            }
            Ok(())
        })
    }

    // ---- loops ----

    /// Over the program's tiles: columns, then rows, so that the right operand's panel is in the first-level cache. `body` gets
    /// the scope with both, and the first row and column within the block.
    fn for_tiles(
        &self,
        p: &mut Program,
        scope: &Scope,
        mut body: impl FnMut(&mut Program, &Scope, [Value; 2]) -> Result,
    ) -> Result {
        self.n.for_steps(p, self.n.tile, |p, column| {
            let first = p.add_index(self.n.first, column);
            let scope = scope.with(self.n.iter.name, bind(&self.n.iter, first, Some(1), self.n.tile));
            self.for_tiles_of_rows(p, |p, row, bound| body(p, &scope.with(self.m.iter.name, bound), [row, column]))
        })
    }
    /// Over the rows of the program's tiles: `body` gets the first within the block, and what binds all. Those past the last whole tile, where it is
    /// known how many, are a tile of their own, so that none is masked.
    fn for_tiles_of_rows(&self, p: &mut Program, mut body: impl FnMut(&mut Program, Value, Bind) -> Result) -> Result {
        let (iter, tile) = (&self.m.iter, self.m.tile);
        let mut at = |p: &mut Program, row: Value, exact: bool| {
            let first = p.add_index(self.m.first, row);
            body(p, row, Bind { exact, ..bind(iter, first, Some(0), tile) })
        };
        if divides(tile, iter.extent) {
            return self.m.for_steps(p, tile, |p, row| at(p, row, true));
        }
        let (zero, size) = (p.constant_index(0), p.constant_index(tile));
        let Some((extent, rest)) = self.rest_of_rows() else {
            // A loop also of one tile at most: whole steps of a loop run apart from one that is cut off.
            return for_each(p, [zero, self.m.count, size], |p, row| at(p, row, false));
        };
        let tiles = p.binary(op::core::DIV, self.m.count, size);
        let whole = p.mul_index(tiles, size);
        for_each(p, [zero, whole, size], |p, row| at(p, row, true))?;
        let is_cut = p.compare("lt", whole, self.m.count);
        p.when(is_cut, |p| {
            let first = p.constant_index(extent - rest);
            body(p, whole, Bind { exact: true, ..bind(iter, first, Some(0), rest) })
        })
    }
    /// How many rows there are, and how many are past the last whole tile, if there are some and tiles may have any number of rows.
    fn rest_of_rows(&self) -> Option<(i64, i64)> {
        let extent = self.m.iter.extent.as_static()?;
        let rest = extent % self.m.tile;
        (rest != 0 && !self.multiplies_tiles() && !self.lanes_along_k()).then_some((extent, rest))
    }
    /// The rows of the tile that the scope binds.
    fn rows(&self, scope: &Scope) -> i64 {
        scope.get(self.m.iter.name).expect("bound by the loop over tiles").size
    }
    /// Over the reduce iterators other than k, point by point.
    fn for_outer(
        &self,
        p: &mut Program,
        scope: &Scope,
        outer: &[Iter],
        body: &mut dyn FnMut(&mut Program, &Scope) -> Result,
    ) -> Result {
        let Some((iter, rest)) = outer.split_first() else { return body(p, scope) };
        let bounds = [p.constant_index(0), p.size(iter.extent), p.constant_index(1)];
        for_each(p, bounds, |p, at| self.for_outer(p, &scope.with(iter.name, bind(iter, at, None, 1)), rest, body))
    }
    /// Over blocks of k: `body` gets where one starts, and its length.
    fn for_depths(&self, p: &mut Program, body: impl FnOnce(&mut Program, [Value; 2]) -> Result) -> Result {
        let (zero, size) = (p.constant_index(0), p.size(self.k.extent));
        let Some(depth) = self.depth else { return body(p, [zero, size]) };
        let step = p.constant_index(depth);
        for_each(p, [zero, size, step], |p, first| {
            let length = count(p, &self.k, first, depth);
            body(p, [first, length])
        })
    }

    // ---- operands ----

    fn pack(&self, p: &mut Program, scope: &Scope, range: [Value; 2]) -> Result {
        for (side, panel) in [(Side::Left, self.left), (Side::Right, self.right)] {
            if let Some(panel) = panel {
                self.pack_side(p, scope, side, panel, range)?;
            }
        }
        Ok(())
    }
    /// Copies an operand's block. Memory is read along what is contiguous there.
    fn pack_side(
        &self,
        p: &mut Program,
        scope: &Scope,
        side: Side,
        panel: Panel,
        [first, length]: [Value; 2],
    ) -> Result {
        let (part, along_k) = (self.part(side), self.lies_along_k(side));
        let runs = self.runs.as_ref().filter(|_| side == Side::Left);
        let lanes = self.lanes(p) * self.width();
        let (elements, depth) = match (along_k, panel.form) {
            (true, Form::AlongK) => (1, runs.map_or(RUN * lanes, |runs| runs.length)),
            (true, Form::ByTiles) => (part.tile, if part.tile * lanes > TURNED { lanes / 2 } else { lanes }),
            (false, _) => (part.tile, if self.multiplies_tiles() { lanes } else { ROWS }),
        };
        let length = if runs.is_none() { self.whole_tiles(p, length) } else { length };
        let bounds = [p.constant_index(0), length, p.constant_index(depth)];
        let copy = |p: &mut Program, element: Value, k: Value| {
            let at = if elements == 1 { part.place(p, element) } else { p.add_index(part.first, element) };
            let from = p.add_index(first, k);
            let (own, other) = if along_k { (0, 1) } else { (1, 0) };
            let scope = scope.with(part.iter.name, bind(&part.iter, at, Some(own), elements));
            let tile = match runs {
                Some(runs) => {
                    let scope = runs.scope(p, &scope, from, other);
                    p.region(&runs.nest, &scope, &[self.which(side)])?[0]
                }
                None => {
                    let scope = scope.with(self.k.name, bind(&self.k, from, Some(other), depth));
                    let tile = p.region(self.product.nest, &scope, &[self.which(side)])?[0];
                    if self.product.words.is_some() { self.zero_past(p, side, &scope, tile) } else { tile }
                }
            };
            let shape = if along_k { [elements, depth] } else { [depth, elements] };
            let (tile, k) = self.to_panel(p, side, tile, shape, other, k);
            self.fill(p, panel, part, tile, along_k, [element, k]);
            Ok(())
        };
        match along_k {
            true => part.for_tiled(p, elements, |p, element| for_each(p, bounds, |p, k| copy(p, element, k))),
            false => for_each(p, bounds, |p, k| part.for_steps(p, elements, |p, element| copy(p, element, k))),
        }
    }
    /// Stores a tile, `[elements, k]` where it is `along_k` and `[k, elements]` else, in a panel.
    fn fill(&self, p: &mut Program, panel: Panel, part: &Part, tile: Value, along_k: bool, [element, k]: [Value; 2]) {
        if panel.form == Form::AlongK {
            let tile = if along_k { tile } else { transposed(p, tile) };
            return store(p, tile, panel.memory, &[element, k], [0, 1]);
        }
        let (number, zero) = (part.number(p, element), p.constant_index(0));
        let tile = if along_k { transposed(p, tile) } else { tile };
        store(p, tile, panel.memory, &[number, k, zero], [1, 2]);
    }
    /// An operand's elements of a tile at one place `k` of the block that starts at `first`.
    fn operand(&self, p: &mut Program, side: Side, scope: &Scope, at: Value, [first, k]: [Value; 2]) -> Result<Value> {
        let part = self.part(side);
        let shape = if side == Side::Left { [self.rows(scope), 1] } else { [1, part.tile] };
        let panel = if side == Side::Left { self.left } else { self.right };
        let Some(panel) = panel else {
            if let (Some(words), Some(columns)) = (self.product.words, self.in_words) {
                return self.packed_words(p, columns, words.width, scope, [first, k]);
            }
            let other = if side == Side::Left { self.n.iter.name } else { self.m.iter.name };
            let place = p.add_index(first, k);
            let scope = without(scope, other).with(self.k.name, bind(&self.k, place, None, 1));
            if let Some(panelled) = self.panelled.as_ref().filter(|_| side == Side::Right) {
                let scope = panelled.scope(p, &scope, &self.n);
                let tile = p.region(&panelled.nest, &scope, &[self.which(side)])?[0];
                return Ok(p.broadcast(tile, shape));
            }
            let tile = p.region(self.product.nest, &scope, &[self.which(side)])?[0];
            return Ok(p.broadcast(tile, shape));
        };
        let own = side == Side::Right;
        Ok(match panel.form {
            Form::AlongK => load(p, panel.memory, &[at, k], shape, [0, 1]),
            Form::ByTiles => {
                let (number, zero) = (part.number(p, at), p.constant_index(0));
                load(p, panel.memory, &[number, k, zero], shape, if own { [1, 2] } else { [2, 1] })
            }
        })
    }
    /// The sums of a block's products, for a tile of results.
    fn sums(
        &self,
        p: &mut Program,
        scope: &Scope,
        [row, column]: [Value; 2],
        [first, length]: [Value; 2],
    ) -> Result<Value> {
        if self.lanes_along_k() {
            return self.sums_by_lanes(p, scope, column, [first, length]);
        }
        let start = p.zeros([self.rows(scope), self.n.tile], self.product.acc);
        if let Some(windows) = &self.windows {
            return self.sums_of_windows(p, windows, scope, [row, column], [first, length], start);
        }
        if self.offset().is_some() {
            return self.sums_of_offset(p, scope, [row, column], [first, length], start);
        }
        let bounds = [p.constant_index(0), self.count_words(p, length), p.constant_index(1)];
        let ahead = self.ahead(p, scope, row, first)?;
        let ends = p.unrolled_loop(self.unrolled(p, scope), bounds, &[start], |p, k, acc| {
            ahead.iter().for_each(|ahead| ahead.prefetch(p, k));
            let a = self.operand(p, Side::Left, scope, row, [first, k])?;
            let b = self.operand(p, Side::Right, scope, column, [first, k])?;
            Ok::<_, Box<Diagnostic>>(vec![self.product.dot(p, a, b, acc[0], false, false)])
        })?;
        Ok(ends[0])
    }

    /// Steps of the loop over k that are one: more where a tile has few multiply-adds. Tiles at the block's end are few, and not worth the code.
    fn unrolled(&self, p: &Program, scope: &Scope) -> i64 {
        let rows = self.rows(scope);
        if rows != self.m.tile || self.multiplies_tiles() {
            return 1;
        }
        steps_at_once(rows * self.n.tile / self.lanes(p))
    }

    /// The same, run by run of windows that are read in place: where a run's elements lie in a row follows from the run's number.
    fn sums_of_windows(
        &self,
        p: &mut Program,
        windows: &Windows,
        scope: &Scope,
        [row, column]: [Value; 2],
        [first, length]: [Value; 2],
        start: Value,
    ) -> Result<Value> {
        let [zero, one, run] = [0, 1, windows.runs.length].map(|n| p.constant_index(n));
        let ahead = self.ahead(p, scope, row, first)?;
        let ends = p.for_loop([zero, length, run], &[start], |p, at, acc| {
            let from = p.add_index(first, at);
            let rows = windows.scope(p, scope, &self.m, &self.n, from);
            let left = (!windows.runs.whole).then(|| p.binary(op::core::SUB, length, at));
            let end = left.map_or(run, |left| p.binary(op::core::MIN, left, run));
            p.unrolled_loop(self.unrolled(p, scope), [zero, end, one], acc, |p, lane, acc| {
                let here = rows.with(windows.runs.lane.name, bind(&windows.runs.lane, lane, None, 1));
                let a = p.region(&windows.runs.nest, &here, &[self.which(Side::Left)])?[0];
                let a = p.broadcast(a, [self.m.tile, 1]);
                let k = p.add_index(at, lane);
                ahead.iter().for_each(|ahead| ahead.prefetch(p, k));
                let b = self.operand(p, Side::Right, scope, column, [first, k])?;
                Ok::<_, Box<Diagnostic>>(vec![self.product.dot(p, a, b, acc[0], false, false)])
            })
        })?;
        Ok(ends[0])
    }

    // ---- sums that wait for more ----

    /// Memory for the sums of the program's block.
    fn waiting(&self, p: &mut Program) -> Value {
        p.alloc(&[self.n.block / self.n.tile, self.m.block, self.n.tile], self.product.acc)
    }
    /// Where the sums at a row and column within the block lie in their memory, which is the block's or one tile's.
    fn place_in(&self, p: &mut Program, sums: Value, [row, column]: [Value; 2]) -> [Value; 3] {
        let zero = p.constant_index(0);
        let one = p.ty(sums).static_shape().is_some_and(|shape| shape[..2] == [1, self.m.tile]);
        if one && self.m.block * self.n.block > self.m.tile * self.n.tile {
            return [zero; 3];
        }
        [self.n.number(p, column), row, zero]
    }
    fn keep(&self, p: &mut Program, tile: Value, sums: Value, at: [Value; 2]) {
        let at = self.place_in(p, sums, at);
        store(p, tile, sums, &at, [1, 2]);
    }
    fn kept(&self, p: &mut Program, sums: Value, at: [Value; 2], rows: i64) -> Value {
        let at = self.place_in(p, sums, at);
        load(p, sums, &at, [rows, self.n.tile], [1, 2])
    }
}

impl Panelled {
    /// Of a nest that reads packed panels of a tile's columns.
    fn of(nest: &Nest, n: &Part) -> Option<Panelled> {
        let name = n.iter.name;
        nest.inputs.iter().find(|access| access.panels(name) == Some(n.tile))?;
        let columns = Dim::Static(n.tile);
        let iter = |what: &str, extent| Iter { name: Name::new(&format!("{name}_{what}")), extent, ..n.iter };
        let (panel, lane) = (iter("panel", n.iter.extent.ceildiv(columns)), iter("lane", columns));
        let at = Dim::symbol(panel.name) * columns + Dim::symbol(lane.name);
        let mut iters = nest.iters.clone();
        iters.retain(|i| i.name != name);
        iters.extend([panel, lane]);
        Some(Panelled { nest: nest.substituted(&[(name, at)], iters), panel, lane })
    }
    /// The scope with a panel instead of the tile of columns.
    fn scope(&self, p: &mut Program, scope: &Scope, n: &Part) -> Scope {
        let first = scope.get(n.iter.name).expect("bound by the loop over tiles").base;
        let (columns, zero) = (p.constant_index(n.tile), p.constant_index(0));
        let panel = p.binary(op::core::DIV, first, columns);
        let scope = without(scope, n.iter.name).with(self.panel.name, bind(&self.panel, panel, None, 1));
        scope.with(self.lane.name, bind(&self.lane, zero, Some(1), n.tile))
    }
}

impl Runs {
    /// Of a nest whose left operand's rows are windows.
    fn of(nest: &Nest, product: &Product, k: Iter, depth: Option<i64>) -> Option<Runs> {
        let length = gathered_run(product.nest, product.roles.m, k.name, depth)?;
        let run = Dim::Static(length);
        let iter = |what: &str, extent| Iter { name: Name::new(&format!("{}_{what}", k.name)), extent, ..k };
        let (number, lane) = (iter("run", k.extent.ceildiv(run)), iter("lane", run));
        let at = Dim::symbol(number.name) * run + Dim::symbol(lane.name);
        let mut iters = nest.iters.clone();
        iters.retain(|i| i.name != k.name);
        iters.extend([number, lane]);
        let whole = k.extent.modulo(run) == Dim::Static(0);
        Some(Runs { nest: nest.substituted(&[(k.name, at)], iters), number, lane, length, whole })
    }
    /// The scope with the run that starts at a place of k.
    fn scope(&self, p: &mut Program, scope: &Scope, k: Value, axis: usize) -> Scope {
        let (length, zero) = (p.constant_index(self.length), p.constant_index(0));
        let number = p.binary(op::core::DIV, k, length);
        let scope = scope.with(self.number.name, bind(&self.number, number, None, 1));
        scope.with(self.lane.name, bind(&self.lane, zero, Some(axis), self.length))
    }
}

impl Windows {
    /// Of a nest where the windows of a tile's rows lie at one distance from one another.
    fn of(product: &Product, m: &Part, k: Iter, depth: Option<i64>) -> Option<Windows> {
        depth?;
        let rows = by_rows(product.nest, m.iter.name, k.name, m.tile)?;
        let runs = Runs::of(&rows.nest, product, k, depth)?;
        Some(Windows { runs, tile: rows.tile, row: rows.row })
    }
    /// The scope of a tile's rows in the run that starts at a place of k. Tiles and runs are numbered, and the numbers are known to be in range.
    fn scope(&self, p: &mut Program, scope: &Scope, m: &Part, n: &Part, k: Value) -> Scope {
        let first = scope.get(m.iter.name).expect("bound by the loop over tiles").base;
        let scope = without(&without(scope, m.iter.name), n.iter.name);
        let tile = numbered(p, &self.tile, first, m.tile);
        let run = numbered(p, &self.runs.number, k, self.runs.length);
        let zero = p.constant_index(0);
        let scope = scope.with(self.tile.name, bind(&self.tile, tile, None, 1));
        let scope = scope.with(self.row.name, bind(&self.row, zero, Some(0), m.tile));
        scope.with(self.runs.number.name, bind(&self.runs.number, run, None, 1))
    }
}

/// The number of the part of `size` elements that starts at a place, at most the last one's.
fn numbered(p: &mut Program, parts: &Iter, place: Value, size: i64) -> Value {
    let size = p.constant_index(size);
    let number = p.binary(op::core::DIV, place, size);
    let last = p.size(parts.extent - Dim::Static(1));
    p.binary(op::core::MIN, number, last)
}

impl Part {
    fn of(p: &mut Program, product: &Product, scope: &Scope, name: Name, tile: i64) -> Result<Part> {
        let missing =
            || p.src.op_ref(product.nest.op).error(format!("has a schedule with blocks, without '{name}' in its grid"));
        let (iter, first) = (*product.iter(name), scope.get(name).ok_or_else(missing)?.base);
        let block = product.schedule.block_of(name).unwrap_or(tile);
        Ok(Part { iter, first, count: count(p, &iter, first, block), block, tile })
    }
    /// A loop over the part's elements, from 0.
    fn for_steps(&self, p: &mut Program, step: i64, body: impl FnOnce(&mut Program, Value) -> Result) -> Result {
        let zero = p.constant_index(0);
        if self.block == step {
            return body(p, zero);
        }
        let step = p.constant_index(step);
        for_each(p, [zero, self.count, step], body)
    }
    /// A loop over the elements of the part's tiles, from 0, also those past the extent.
    fn for_tiled(&self, p: &mut Program, step: i64, body: impl FnOnce(&mut Program, Value) -> Result) -> Result {
        if step == self.tile || divides(self.tile, self.iter.extent) {
            return self.for_steps(p, step, body);
        }
        let (tile, rest) = (p.constant_index(self.tile), p.constant_index(self.tile - 1));
        let count = p.add_index(self.count, rest);
        let count = p.binary(op::core::DIV, count, tile);
        let count = p.mul_index(count, tile);
        let bounds = [p.constant_index(0), count, p.constant_index(step)];
        for_each(p, bounds, body)
    }
    /// The place of an element: past the extent, that of the last one.
    fn place(&self, p: &mut Program, element: Value) -> Value {
        let at = p.add_index(self.first, element);
        if divides(self.tile, self.iter.extent) {
            return at;
        }
        let last = p.size(self.iter.extent - Dim::Static(1));
        p.binary(op::core::MIN, at, last)
    }
    /// The number of the tile that starts at an element.
    fn number(&self, p: &mut Program, element: Value) -> Value {
        if self.block == self.tile {
            return p.constant_index(0);
        }
        let tile = p.constant_index(self.tile);
        p.binary(op::core::DIV, element, tile)
    }
}

/// How many elements of an iterator there are from `first` on, up to `block`.
fn count(p: &mut Program, iter: &Iter, first: Value, block: i64) -> Value {
    let whole = p.constant_index(block);
    if divides(block, iter.extent) {
        return whole;
    }
    let size = p.size(iter.extent);
    let left = p.binary(op::core::SUB, size, first);
    p.binary(op::core::MIN, left, whole)
}

fn for_each(p: &mut Program, bounds: [Value; 3], body: impl FnOnce(&mut Program, Value) -> Result) -> Result {
    p.for_loop(bounds, &[], |p, at, _| body(p, at).map(|()| Vec::new())).map(drop)
}

/// Steps of a loop that are one: at most four, a power of two.
pub(super) fn steps_at_once(multiply_adds: i64) -> i64 {
    [4, 2].into_iter().find(|steps| steps * multiply_adds <= UNROLLED).unwrap_or(1)
}
fn without(scope: &Scope, name: Name) -> Scope {
    Scope { binds: scope.binds.iter().filter(|b| b.0 != name).copied().collect(), ..Scope::default() }
}

fn store(p: &mut Program, tile: Value, memory: Value, at: &[Value], dims: [i64; 2]) {
    let mut b = p.build();
    b.op(op::kernel::STORE).operand(tile).operand(memory).operands(at).attr("dims", Attr::i64s(&dims)).build();
}
fn load(p: &mut Program, memory: Value, at: &[Value], shape: [i64; 2], dims: [i64; 2]) -> Value {
    let ty = Type::tile(&shape, p.ty(memory).elem(), None);
    let mut b = p.build();
    b.op(op::kernel::LOAD).operand(memory).operands(at).attr("dims", Attr::i64s(&dims)).result(ty).value()
}
/// A tile turned around.
pub(super) fn transposed(p: &mut Program, tile: Value) -> Value {
    let [rows, columns] = p.shape(tile);
    let ty = Type::tile(&[columns, rows], p.ty(tile).elem(), None);
    p.build().op(op::kernel::TRANSPOSE).operand(tile).attr("perm", Attr::i64s(&[1, 0])).result(ty).value()
}
