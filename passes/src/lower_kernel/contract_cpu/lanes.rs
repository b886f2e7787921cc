//! Products of rows with rows, without packing: vectors run along k, and each result has one of sums.

use super::{Blocked, Side, load, store, without};
use crate::lower_kernel::program::Program;
use crate::lower_kernel::run::bind;
use crate::lower_kernel::scope::Scope;
use rc_ir::{Result, Value};

impl Blocked<'_, '_> {
    /// Whether vectors run along k: each lane has sums of its own, which are added at the end.
    pub(super) fn lanes_along_k(&self) -> bool {
        self.product.words.is_none() && self.product.tile()[2] > 1
    }

    /// The sums of a tile of which each column has vectors along k.
    pub(super) fn sums_by_lanes(
        &self,
        p: &mut Program,
        scope: &Scope,
        column: Value,
        [first, length]: [Value; 2],
    ) -> Result<Value> {
        let [rows, columns, lanes] = self.product.tile();
        let start = p.zeros([rows, lanes], self.product.acc);
        let places: Vec<Value> = (0..columns)
            .map(|lane| {
                let lane = p.constant_index(lane);
                let element = p.add_index(column, lane);
                self.n.place(p, element)
            })
            .collect();
        let bounds = [p.constant_index(0), length, p.constant_index(lanes)];
        let ends = p.for_loop(bounds, &vec![start; columns as usize], |p, at, sums| {
            let at = p.add_index(first, at);
            let along = without(scope, self.n.iter.name).with(self.k.name, bind(&self.k, at, Some(1), lanes));
            let a = self.lanes_of(p, Side::Left, &along)?;
            let of_column = |p: &mut Program, (&place, &sum): (&Value, &Value)| {
                let scope =
                    without(&along, self.m.iter.name).with(self.n.iter.name, bind(&self.n.iter, place, None, 1));
                let b = self.lanes_of(p, Side::Right, &scope)?;
                Ok(p.fma(a, b, sum))
            };
            places.iter().zip(sums).map(|pair| of_column(p, pair)).collect::<Result<Vec<_>>>()
        })?;
        let memory = p.alloc(&[rows, columns], self.product.acc);
        let zero = p.constant_index(0);
        for (lane, &sums) in ends.iter().enumerate() {
            let (sum, lane) = (p.reduce(sums, &[1], "add"), p.constant_index(lane as i64));
            store(p, sum, memory, &[zero, lane], [0, 1]);
        }
        Ok(load(p, memory, &[zero, zero], [rows, columns], [0, 1]))
    }
    /// Rows of an operand along k, zero past its end.
    pub(super) fn lanes_of(&self, p: &mut Program, side: Side, scope: &Scope) -> Result<Value> {
        let tile = p.region(self.product.nest, scope, &[self.which(side)])?[0];
        let tile = self.zero_past(p, side, scope, tile);
        Ok(p.convert(tile, self.product.acc))
    }

    /// A tile whose elements past the end of k, which meet others of a word or a lane, are zero.
    pub(super) fn zero_past(&self, p: &mut Program, side: Side, scope: &Scope, tile: Value) -> Value {
        if self.product.is_zero_past(p, self.which(side), &self.k) {
            return tile;
        }
        let Some(mask) = p.inside(scope, &|name| name == self.k.name) else { return tile };
        let zero = p.zeros([1; 2], p.ty(tile).elem());
        p.select(mask, tile, zero)
    }
}
