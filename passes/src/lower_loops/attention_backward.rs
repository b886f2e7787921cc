//! The nests of `core.attention_backward`: q's gradient in one, k's and v's in another; on a CPU all three in one where heads keep its cores busy.

use super::kernel::Lowering;
use crate::fuse::reads::Space;
use crate::schedule::takes_heads;
use rc_dialects::loop_::ATTENTION_BACKWARD;
use rc_ir::{Attr, Block, Body, Builder, Dim, OpRef, Result, Type, Value};

/// The most elements of a row of k and one of v whose gradients' sums stay in registers together.
const TOGETHER: i64 = 256;

/// The iterators, of b, h, m, n, d, e, that run over the rows and columns of each operand; `None`: no columns.
const OPERANDS: [(usize, Option<usize>); 7] =
    [(2, Some(4)), (3, Some(4)), (3, Some(5)), (2, Some(5)), (2, None), (2, None), (2, Some(3))];

impl Lowering<'_> {
    /// Lowers the gradients that are used; each is stored through the transposes and reshapes that follow.
    pub(super) fn attention_backward(
        &mut self,
        kernel: &mut Body,
        block: Block,
        op: OpRef,
        yielded: &[Value],
    ) -> Result {
        let rank = self.source.ty(op.operand(0)).rank();
        if rank != 3 && rank != 4 {
            let error = op.unsupported(format!("on tensors of rank {rank}"));
            return Err(error.help("canonicalize before, or reshape to [batch, heads, length, size]"));
        }
        let (q, v) = (self.shape(op, 0), self.shape(op, 2));
        let h = if rank == 4 { q[1] } else { Dim::Static(1) };
        let extents = [q[0], h, q[rank - 2], v[rank - 2], q[rank - 1], v[rank - 1]];
        let names = self.attention_names();
        let mut ranges = self.ranges.clone();
        names.iter().zip(extents).for_each(|(&n, e)| ranges.set_iterator(n, e));
        let space = Space { iters: names, extents: extents.to_vec(), ranges };
        let place = |rows: usize, columns: Option<usize>| -> Vec<Dim> {
            let leading = if rank == 4 { &[0, 1][..] } else { &[0] };
            leading.iter().copied().chain([rows]).chain(columns).map(|i| space.index(i)).collect()
        };
        let (mut inputs, mut maps) = (Vec::new(), Vec::new());
        for (i, &(rows, columns)) in OPERANDS.iter().enumerate().take(op.operands().len()) {
            let mut map = place(rows, columns);
            for (index, size) in map.iter_mut().zip(self.shape(op, i)) {
                if size == Dim::Static(1) {
                    *index = Dim::Static(0);
                }
            }
            let (tensor, map) = self.follow(kernel, block, op.operand(i), map, &space.ranges)?;
            inputs.push(tensor);
            maps.push(Attr::shape(&map));
        }
        let scale = op.attr("scale").and_then(|a| a.as_float());
        let scale = scale.or_else(|| q[rank - 1].as_static().map(|d| 1.0 / (d as f64).sqrt()));
        let scale = scale.ok_or_else(|| op.unsupported("with a symbolic head size").help("give 'scale'"))?;
        let iters: Vec<Attr> = space.iters.iter().map(|n| Attr::str(n.as_str())).collect();
        let together = extents[4].as_static().zip(extents[5].as_static()).is_some_and(|(d, e)| d + e <= TOGETHER);
        let groups: &[&[usize]] = match together {
            _ if self.takes_heads(op, &extents) => &[&[0, 1, 2]],
            true => &[&[0], &[1, 2]],
            false => &[&[0], &[1], &[2]],
        };
        for group in groups {
            let used: Vec<usize> = group.iter().copied().filter(|&i| self.source.has_uses(op.result(i))).collect();
            if used.is_empty() {
                continue;
            }
            let ends: Vec<Value> = used.iter().map(|&i| self.end_of_moves(op.result(i), yielded)).collect();
            let mut outs = Vec::new();
            for (&i, &end) in used.iter().zip(&ends) {
                let (rows, columns) = OPERANDS[i];
                let map = self.out_map(op.result(i), end, &place(rows, columns), &space.ranges);
                outs.push(Attr::shape(&map.ok_or_else(|| op.error("cannot write its results' index maps"))?));
            }
            let words: Vec<Attr> = used.iter().map(|&i| Attr::str(["q", "k", "v"][i])).collect();
            let types: Vec<Type> = ends.iter().map(|&end| self.source.ty(end)).collect();
            let mut b = Builder::at_end(kernel, block);
            b.loc = op.loc();
            let made = b
                .op(&ATTENTION_BACKWARD)
                .operands(&inputs)
                .attr("of", Attr::array(&words))
                .attr("iters", Attr::array(&iters))
                .attr("extents", Attr::shape(&extents))
                .attr("maps", Attr::array(&maps))
                .attr("out_maps", Attr::array(&outs))
                .attr("scale", Attr::float(scale, Type::f64()))
                .attr("causal", Attr::bool(op.bool("causal")))
                .results(&types)
                .build();
            for (n, &end) in ends.iter().enumerate() {
                let tensor = kernel.result(made, n);
                kernel.set_value_name(tensor, self.source.value_name(end));
                self.tensors.insert(end, tensor);
            }
        }
        Ok(())
    }

    /// Whether one nest has all gradients, of known sizes.
    fn takes_heads(&self, op: OpRef, extents: &[Dim; 6]) -> bool {
        let sizes: Option<Vec<i64>> = extents.iter().map(|e| e.as_static()).collect();
        let (Some(target), Some(n)) = (self.target, sizes) else { return false };
        let all = (0..3).all(|i| self.source.has_uses(op.result(i)));
        all && takes_heads(target, n[0] * n[1], [n[2], n[3]], n[4])
    }
}
