//! Steps of padded windows on a CPU. Most of them read no padding, and do so without masks, in a branch of their own.

use super::memory::tile_dims;
use super::program::Program;
use super::scope::{Scope, Tiled};
use crate::schedule::access::Access;
use crate::schedule::nest::Nest;
use rc_dialects::op;
use rc_ir::{Attr, Dim, Result, Type, Value};

impl Program<'_> {
    /// Whether all that is read of padded operands here lies in memory. `None` where none is padded, or none has masks that spare a gather.
    pub(super) fn reads_no_padding(&mut self, nest: &Nest, scope: &Scope) -> Result<Option<Value>> {
        let mut all = None;
        let padded = |i: &usize| nest.zero_outside[*i] && self.target.is_cpu() && !nest.is_pointwise();
        for i in (0..nest.inputs.len()).filter(padded).collect::<Vec<_>>() {
            let access = &nest.inputs[i];
            let Some(bounds) = self.bounds_of(access, scope) else { return Ok(None) };
            for (d, last) in bounds {
                let first = self.index(access.exprs[d], scope, Tiled::First)?;
                let (zero, last) = (self.constant_index(0), self.constant_index(last));
                for inside in [self.compare("ge", first, zero), self.compare("le", first, last)] {
                    all = Some(all.map_or(inside, |all| self.binary(op::core::AND, all, inside)));
                }
            }
        }
        Ok(all)
    }

    /// A load of which [`Program::reads_no_padding`] holds. Bounds say so again, which spares the masks.
    pub(super) fn load_inside(&mut self, value: Value, access: &Access, scope: &Scope) -> Result<Value> {
        let along = access.plain(&scope.tiled()).expect("asked before");
        let bounds = self.bounds_of(access, scope).expect("asked before");
        let memory = self.memory_of(value)?;
        let memory = self.view(memory, &access.shape);
        let (dims, shape) = tile_dims(&along, scope);
        let mut starts = Vec::new();
        for (d, &e) in access.exprs.iter().enumerate() {
            let mut start = self.index(e, scope, Tiled::First)?;
            if let Some(&(_, last)) = bounds.iter().find(|bound| bound.0 == d) {
                let (zero, last) = (self.constant_index(0), self.constant_index(last));
                start = self.binary(op::core::MIN, start, last);
                start = self.binary(op::core::MAX, start, zero);
            }
            starts.push(start);
        }
        let ty = Type::tile(&shape, self.ty(memory).elem(), None);
        let mut b = self.build();
        let op = b.op(op::kernel::LOAD).operand(memory).operands(&starts).attr("dims", Attr::i64s(&dims));
        Ok(op.result(ty).value())
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
