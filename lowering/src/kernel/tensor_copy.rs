//! Copies through tensor maps.

use super::Lowering;
use crate::emit::{Value, ptx::CacheHint};
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn tensor_load(&mut self, op: OpRef) -> Result {
        self.needs_hopper(op)?;
        let (target, map) = (self.values.one(op.group("target")[0]), self.values.one(op.group("map")[0]));
        let coords = self.coords(op)?;
        let barrier = self.barrier_address(op)?;
        let b = self.b;
        let blocks = op.group("multicast").first().map(|&mask| b.trunc(self.index32(mask), b.ty.i16));
        let hint = match op.str("cache") {
            Some("evict_first") => Some(CacheHint::EvictFirst),
            Some("evict_last") => Some(CacheHint::EvictLast),
            _ => None,
        };
        b.ptx().tensor_load(target, map, &coords, barrier, blocks, hint);
        Ok(())
    }

    pub fn box_prefetch(&mut self, op: OpRef) -> Result {
        self.needs_hopper(op)?;
        let map = self.values.one(op.operand(0));
        let coords = self.coords(op)?;
        self.b.ptx().prefetch_box(map, &coords);
        Ok(())
    }

    pub fn tensor_store(&mut self, op: OpRef) -> Result {
        self.needs_hopper(op)?;
        let (source, map) = (self.values.one(op.group("source")[0]), self.values.one(op.group("map")[0]));
        let coords = self.coords(op)?;
        self.b.ptx().tensor_store(map, &coords, source);
        Ok(())
    }

    fn coords(&self, op: OpRef) -> Result<Vec<Value<'m>>> {
        let coords: Vec<ir::Value> = op.group("coords").to_vec();
        if !(1..=5).contains(&coords.len()) {
            return Err(op.error(format!("has {} coordinates: 1 to 5", coords.len())));
        }
        Ok(coords.into_iter().map(|coord| self.index32(coord)).collect())
    }
}
