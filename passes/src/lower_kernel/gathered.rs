//! Operands of products that are gathered: where each run of neighbours starts in memory, for a tile of any bounded index map.

use super::contract::Product;
use super::program::{Program, RANK};
use super::scope::{Bind, Scope, Tiled};
use crate::schedule::access::{Access, mentions};
use crate::schedule::nest::Nest;
use rc_dialects::op;
use rc_ir::dim::{Atom, Monomial};
use rc_ir::dim_range::Ranges;
use rc_ir::{Attr, Dim, Name, Result, Type, Value};

impl Product<'_> {
    /// Factor `which` as a tile of the scope that is gathered in runs of neighbours along `along`, zero past the extents and, where the
    /// operand is, outside of its bounds.
    ///
    /// # Errors
    /// If the factor is no operand as it is, or its neighbours along the iterator are none in memory.
    pub fn gathered(&self, p: &mut Program, which: usize, along: Name, scope: &Scope) -> Result<Value> {
        let op = p.src.op_ref(self.nest.op);
        let entry = op.entry(0).expect("verified");
        let factor = p.src.operand(p.src.last_op(entry).expect("verified"), which);
        let operand = p.src.block_args(entry).position(|a| a == factor);
        let wrong = |what: &str| op.error(format!("has a schedule that gathers an operand {what}"));
        let operand = operand.ok_or_else(|| wrong("which is computed"))?;
        let access = &self.nest.inputs[operand];
        let bind = *scope.get(along).expect("bound");
        let axis = bind.axis.ok_or_else(|| wrong("of a tile of one element"))?;
        // What one copy takes.
        let elem = p.src.ty(p.src.operand(self.nest.op, operand)).elem();
        let run = access.run(along).min(bind.size).min(16 / elem.byte_width().unwrap_or(2) as i64);
        let number = Name::new(&format!("{along}_run"));
        let starts = access.by_runs(along, run, Dim::symbol(number)).filter(|_| run > 1);
        let starts = starts.ok_or_else(|| wrong("whose elements lie apart"))?;
        let whole = bind.extent.modulo(Dim::Static(run)) == Dim::Static(0);
        if along == self.roles.k && !whole && self.gathers_along(1 - which) == Some(along) {
            return Err(wrong("in runs that reach past the end of the sums, as the other one's do"));
        }
        let runs = self.runs(p, scope, bind, (along, number), run);
        let mut ranges = self.nest.ranges.clone();
        ranges.set_iterator(number, bind.extent.ceildiv(Dim::Static(run)));
        let starts = Access::new(&access.shape, &starts).simplified(&ranges);
        let place = p.place_of(&starts, &runs, &ranges, self.nest.zero_outside[operand])?;
        // All runs may start at one place, where the operand is repeated.
        let mut shape = p.shape(place);
        shape[axis] = bind.size / run;
        let place = p.broadcast(place, shape);
        let value = p.src.operand(self.nest.op, operand);
        p.gather_runs(value, &access.shape, place, Some((axis, run)))
    }

    /// The scope with the number of a run instead of the iterator that it is along.
    fn runs(&self, p: &mut Program, scope: &Scope, bind: Bind, (along, number): (Name, Name), run: i64) -> Scope {
        let length = p.constant_index(run);
        let base = p.binary(op::core::DIV, bind.base, length);
        let (size, extent) = (bind.size / run, bind.extent.ceildiv(Dim::Static(run)));
        let mut runs = scope.with(number, Bind { base, size, extent, ..bind });
        runs.binds.retain(|b| b.0 != along);
        runs
    }
}

impl Program<'_> {
    /// The elements of a tensor that is zero outside of its bounds, at a map that is no box of it. Tiles run along its last dimensions as in a load, where
    /// the map is plain and stays inside: a place is for all of a row then.
    pub fn gather_bounded(&mut self, nest: &Nest, operand: usize, scope: &Scope) -> Result<Value> {
        let (access, value) = (&nest.inputs[operand], self.src.operand(nest.op, operand));
        let inside = |d: &usize| nest.is_inside(access, *d);
        let rank = access.shape.len();
        let rows = |from: usize| {
            let size = access.shape[..from].iter().fold(Dim::Static(1), |n, &d| n * d);
            let shape = [&[size], &access.shape[from..]].concat();
            let rows = Access::new(&shape, &[&[Dim::Static(0)], &access.exprs[from..]].concat());
            rows.plain(&scope.tiled()).map(|along| (from, rows, along))
        };
        let tails = (1..rank).rev().take_while(inside).map_while(rows);
        let Some((from, rows, along)) = tails.last() else {
            let place = self.place_of(access, scope, &nest.ranges, true)?;
            return self.gather_runs(value, &access.shape, place, None);
        };
        let lead = Access::new(&access.shape[..from], &access.exprs[..from]);
        let place = self.place_of(&lead, scope, &nest.ranges, true)?;
        let memory = self.memory_of(value)?;
        let memory = self.view(memory, &rows.shape);
        let place = self.broadcast(place, self.shape(place));
        self.emit_gather(memory, &rows, &along, 0, place, &Scope { may_miss: true, ..scope.clone() })
    }

    /// The number of an element of dense memory at each point of the scope's tile; -1 past the extents and, where it is `bounded`, outside of
    /// its bounds.
    fn place_of(&mut self, access: &Access, scope: &Scope, ranges: &Ranges, bounded: bool) -> Result<Value> {
        let mut inside = self.inside(scope, &|n| access.mentions(n));
        let mut flat = Dim::Static(0);
        for (&e, &size) in access.exprs.iter().zip(&access.shape) {
            // Memory without elements: what goes along the dimensions before the empty one keeps its shape.
            flat = flat * if size == Dim::Static(0) { Dim::Static(1) } else { size } + e;
            let range = ranges.interval(e);
            let below = bounded && range.is_none_or(|r| r.0 < 0);
            let beyond = bounded && !ranges.always_le(e, size - Dim::Static(1));
            if !below && !beyond {
                continue;
            }
            let at = self.by_axes(e, scope)?;
            let zero = self.constant_index(0);
            let end = self.size(size);
            for (checked, kind, bound) in [(below, "ge", zero), (beyond, "lt", end)] {
                if checked {
                    let here = self.compare(kind, at, bound);
                    inside = Some(inside.map_or(here, |i| self.binary(op::core::AND, i, here)));
                }
            }
        }
        let at = self.by_axes(flat, scope)?;
        Ok(match inside {
            None => at,
            Some(inside) => {
                let none = self.constant_index(-1);
                self.select(inside, at, none)
            }
        })
    }

    /// An expression at all points of the scope's tile. What depends on the rows alone, or on the columns, is summed first: it stays the
    /// same from tile to tile, or from row to row.
    fn by_axes(&mut self, e: Dim, scope: &Scope) -> Result<Value> {
        let Some(p) = e.polynomial() else { return self.index(e, scope, Tiled::All) };
        let mut parts = [Dim::Static(p.constant); 1 << RANK].map(|_| Dim::Static(0));
        parts[0] = Dim::Static(p.constant);
        for (monomial, coefficient) in &p.terms {
            let term = Dim::Static(*coefficient) * product_of(monomial);
            let axes = scope.binds.iter().filter(|b| mentions(term, b.0)).filter_map(|b| b.1.axis);
            let at = axes.fold(0, |bits, axis| bits | 1 << axis);
            parts[at] = parts[at] + term;
        }
        let mut sum = None;
        for part in parts.into_iter().filter(|&part| part != Dim::Static(0)) {
            let value = self.index(part, scope, Tiled::All)?;
            sum = Some(sum.map_or(value, |sum| self.add_index(sum, value)));
        }
        match sum {
            Some(sum) => Ok(sum),
            None => Ok(self.constant_index(0)),
        }
    }

    /// `kernel.gather` of the elements at `places`, or of runs of so many along a tile dimension that start there.
    fn gather_runs(&mut self, value: Value, shape: &[Dim], places: Value, runs: Option<(usize, i64)>) -> Result<Value> {
        let memory = self.memory_of(value)?;
        let size = shape.iter().fold(Dim::Static(1), |n, &d| n * d);
        let memory = self.view(memory, &[size]);
        let mut tile = self.shape(places);
        let places = self.broadcast(places, tile);
        let mut dims = vec![-1; RANK];
        if let Some((axis, run)) = runs {
            tile[axis] *= run;
            dims[axis] = 0;
        }
        let (zero, ty) = (self.constant_index(0), Type::tile(&tile, self.ty(memory).elem(), None));
        let mut b = self.build();
        let op = b.op(op::kernel::GATHER).operand(memory).operands(&[zero]).operand(places);
        let op = op.attr("dims", Attr::i64s(&dims)).attr("axis", Attr::i64(0)).attr("bounded", Attr::bool(true));
        Ok(op.result(ty).value())
    }
}

/// The product of a monomial's atoms.
fn product_of(monomial: &Monomial) -> Dim {
    let atom = |atom: &Atom| match *atom {
        Atom::Symbol(name) => Dim::symbol(name),
        Atom::FloorDiv(a, b) => a.floordiv(b),
        Atom::Mod(a, b) => a.modulo(b),
        Atom::Max(a, b) => a.max(b),
        Atom::Min(a, b) => a.min(b),
    };
    monomial
        .iter()
        .flat_map(|(a, power)| std::iter::repeat_n(a, *power as usize))
        .fold(Dim::Static(1), |n, a| n * atom(a))
}
