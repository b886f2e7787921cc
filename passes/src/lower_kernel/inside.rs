//! Steps of padded windows on a CPU. Most of them read no padding, and do so without masks, in a branch of their own.

use super::memory::tile_dims;
use super::program::Program;
use super::scope::{Scope, Tiled};
use crate::schedule::access::{Access, Iter, coefficient};
use crate::schedule::nest::Nest;
use rc_dialects::op;
use rc_ir::{Attr, Dim, Op, Result, Type, Value};

/// Where the steps of an operand's windows start along a dimension: the first, and how far on the last is.
#[derive(Clone, Debug)]
pub struct Start {
    nest: Op,
    operand: usize,
    dim: usize,
    first: Dim,
    span: i64,
    /// The last place at which a tile is inside of the memory.
    last: i64,
}

impl Program<'_> {
    /// Whether all that is read of padded operands here, in all of the unrolled steps, lies in memory, and where it starts. `None` where none is padded, or
    /// none has masks that spare a gather.
    pub(super) fn reads_no_padding(
        &mut self,
        nest: &Nest,
        unrolled: &[Iter],
        scope: &Scope,
    ) -> Result<Option<(Value, Vec<Start>)>> {
        let mut starts = Vec::new();
        let padded = |i: &usize| nest.zero_outside[*i] && self.target.is_cpu() && !nest.is_pointwise();
        for operand in (0..nest.inputs.len()).filter(padded) {
            let access = &nest.inputs[operand];
            let Some(bounds) = self.bounds_of(access, scope) else { return Ok(None) };
            for (dim, last) in bounds {
                let Some((first, span)) = first_step(access.exprs[dim], unrolled, scope) else { return Ok(None) };
                starts.push(Start { nest: nest.op, operand, dim, first, span, last });
            }
        }
        let mut all = None;
        for Start { first, span, last, .. } in &starts {
            let first = self.index(*first, scope, Tiled::First)?;
            let (zero, last) = (self.constant_index(0), self.constant_index(last - span));
            for inside in [self.compare("ge", first, zero), self.compare("le", first, last)] {
                all = Some(all.map_or(inside, |all| self.binary(op::core::AND, all, inside)));
            }
        }
        Ok(all.map(|all| (all, starts)))
    }

    /// Whether this is a branch in which what an operand reads lies in memory.
    pub(super) fn is_inside(&self, nest: &Nest, operand: usize) -> bool {
        self.no_padding.iter().flatten().any(|start| (start.nest, start.operand) == (nest.op, operand))
    }

    /// A load of which [`Program::reads_no_padding`] holds. Bounds say so again, which spares the masks: those of the first step, from which the others
    /// are so far on.
    pub(super) fn load_inside(&mut self, nest: &Nest, operand: usize, scope: &Scope) -> Result<Value> {
        let (value, access) = (self.src.operand(nest.op, operand), &nest.inputs[operand]);
        let along = access.plain(&scope.tiled()).expect("asked before");
        let memory = self.memory_of(value)?;
        let memory = self.view(memory, &access.shape);
        let (dims, shape) = tile_dims(&along, scope);
        let mut starts = Vec::new();
        for (dim, &e) in access.exprs.iter().enumerate() {
            let known = self.no_padding.iter().flatten().find(|start| (start.operand, start.dim) == (operand, dim));
            starts.push(match known.cloned() {
                Some(start) => self.step_inside(e, &start, scope)?,
                None => self.index(e, scope, Tiled::First)?,
            });
        }
        let ty = Type::tile(&shape, self.ty(memory).elem(), None);
        let mut b = self.build();
        let op = b.op(op::kernel::LOAD).operand(memory).operands(&starts).attr("dims", Attr::i64s(&dims));
        Ok(op.result(ty).value())
    }

    fn step_inside(&mut self, e: Dim, start: &Start, scope: &Scope) -> Result<Value> {
        let by = (e - start.first).as_static().expect("steps are so many elements apart");
        let first = self.index(start.first, scope, Tiled::First)?;
        let (zero, last) = (self.constant_index(0), self.constant_index(start.last - start.span));
        let first = self.binary(op::core::MIN, first, last);
        let first = self.binary(op::core::MAX, first, zero);
        let by = self.constant_index(by);
        Ok(self.add_index(first, by))
    }

    /// The dimensions along which windows slide, each with the last place at which a tile starts. `None` where tiles are no loads, or the sizes unknown.
    fn bounds_of(&self, access: &Access, scope: &Scope) -> Option<Vec<(usize, i64)>> {
        let (dims, shape) = tile_dims(&access.plain(&scope.tiled())?, scope);
        let slides = |d: &usize| access.exprs[*d].as_symbol().is_none() && access.exprs[*d].as_static().is_none();
        let last = |d: usize| {
            let size = dims.iter().position(|&dim| dim == d as i64).map_or(1, |axis| shape[axis]);
            let Dim::Static(extent) = access.shape[d] else { return None };
            (extent >= size).then_some((d, extent - size))
        };
        (0..access.shape.len()).filter(slides).map(last).collect()
    }
}

/// An index at the first of unrolled steps, and how far on it is at the last of them; `None` where it does not grow evenly.
fn first_step(e: Dim, unrolled: &[Iter], scope: &Scope) -> Option<(Dim, i64)> {
    let (mut first, mut span) = (e, 0);
    for iter in unrolled {
        let by = coefficient(e, iter.name).filter(|by| *by >= 0)?;
        span += by * (iter.extent.as_static()? - 1);
        if scope.get(iter.name).is_none() {
            first = first.substitute(&|name| (name == iter.name).then_some(Dim::Static(0)));
        }
    }
    Some((first, span))
}
