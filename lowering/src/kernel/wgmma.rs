//! A warpgroup's matrix products on `sm_90a`.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::emit::{
    Value,
    ptx::{Major, Swizzle, Wgmma, WgmmaA, WgmmaElement},
};
use rc_dialects::op;
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn wgmma(&mut self, op: OpRef) -> Result {
        self.needs_wgmma(op)?;
        let [a, b, acc] = ["a", "b", "acc"].map(|group| op.group(group)[0]);
        let n = op.int("n").unwrap_or(0);
        if n % 8 != 0 || !(8..=256).contains(&n) {
            return Err(op.error(format!("has 'n' = {n}: a multiple of 8, at most 256")));
        }
        let elem = self.body.ty(b).elem();
        let element = match elem {
            _ if self.body.ty(a).elem() != elem => None,
            _ if elem == ir::Type::bf16() => Some(WgmmaElement::Bf16),
            _ if elem == ir::Type::f16() => Some(WgmmaElement::F16),
            _ if elem == ir::Type::tf32() && !op.bool("a_t") && !op.bool("b_t") => Some(WgmmaElement::Tf32),
            _ => None,
        };
        let Some(element) = element else {
            return Err(op.unsupported(format!("of {} and {elem}", self.body.ty(a).elem())));
        };
        let acc_ty = self.body.ty(acc);
        if acc_ty.elem() != ir::Type::f32() || lanes_of(acc_ty) as i64 != n / 2 {
            return Err(op.error(format!("needs {} accumulators of f32, and has {acc_ty}", n / 2)));
        }
        let major = |transposed: &str| if op.bool(transposed) { Major::Mn } else { Major::K };
        let shape = Wgmma { n: n as u32, element, a_major: major("a_t"), b_major: major("b_t") };
        let left = if self.body.ty(a).is_vector() {
            // Four words.
            let lanes = 16 / elem.byte_width().unwrap_or(1) as usize;
            if lanes_of(self.body.ty(a)) != lanes || op.bool("a_t") {
                return Err(op.error(format!("takes a in registers as a vector of {lanes}, not {}", self.body.ty(a))));
            }
            let words = self.pack(&self.values.parts(a));
            WgmmaA::Registers([words[0], words[1], words[2], words[3]])
        } else {
            WgmmaA::Shared(self.descriptor(op, a, op.bool("a_t"))?)
        };
        let right = self.descriptor(op, b, op.bool("b_t"))?;
        let mut sums = self.values.parts(acc).into_vec();
        let zero = op.bool("zero");
        if zero {
            // What the registers hold does not matter, so nothing is moved into them.
            let any = self.b.poison(self.b.ty.f32);
            sums.iter_mut().for_each(|sum| *sum = any);
        }
        let sums = self.b.ptx().wgmma(shape, &sums, left, right, self.b.i1(!zero));
        self.values.set_parts(op.result(0), Parts::from_vec(sums));
        Ok(())
    }

    /// The descriptor of the operand `tile` at the operation's depth. Its innermost dimension is one swizzle wide.
    fn descriptor(&self, op: OpRef, tile: ir::Value, transposed: bool) -> Result<Value<'m>> {
        let ty = self.body.ty(tile);
        let bytes = op.int("swizzle").unwrap_or(128);
        let swizzle = match bytes {
            32 => Swizzle::Bytes32,
            64 => Swizzle::Bytes64,
            128 => Swizzle::Bytes128,
            _ => return Err(op.error(format!("has 'swizzle' = {bytes}: 32, 64 or 128"))),
        };
        let element = ty.elem().byte_width().unwrap_or(1) as i64;
        let width = bytes / element;
        let shape = ty.static_shape().unwrap_or_default();
        let rows = match shape.as_slice() {
            &[rows, w] | &[_, rows, w] if w == width && ty.is_memref() => rows,
            _ => {
                let error =
                    op.error(format!("has a tile {ty} whose rows are not {width} elements, the swizzle's width"));
                return Err(error.help("a tile is [rows, width], or [blocks, rows, width] where it is wider"));
            }
        };
        // Rows of one block, then the next block: along the depth, or where transposed along the other dimension.
        let block = rows * bytes;
        let k = op.int("k_offset").unwrap_or(0);
        let offset = match transposed {
            false => k / width * block + k % width * element,
            true => k * bytes,
        };
        if offset % 16 != 0 || offset < 0 || shape.iter().product::<i64>() * element <= offset {
            return Err(op.error(format!("has 'k_offset' = {k}, which is not within {ty} or not a multiple of 8")));
        }
        let leading = if transposed { block as u32 } else { 16 };
        let (b, p) = (self.b, self.b.ptx());
        let start = p.shared_descriptor(self.values.one(tile), leading, 8 * bytes as u32, swizzle);
        let descriptor = p.advance_descriptor(start, offset as u32);
        Ok(match op.group("k").first() {
            None => descriptor,
            Some(&k) => {
                let step = if transposed { bytes } else { element };
                let moved = b.lshr(b.mul(self.index32(k), b.i32(step as i32)), b.i32(4));
                b.add(descriptor, b.zext(moved, b.ty.i64))
            }
        })
    }

    pub fn wgmma_wait(&mut self, op: OpRef) -> Result {
        self.needs_wgmma(op)?;
        let accs: Vec<Parts<'m>> = op.operands().map(|acc| self.values.parts(acc)).collect();
        let all: Vec<Value<'m>> = accs.iter().flatten().copied().collect();
        let pending = op.int("pending").unwrap_or(0).clamp(0, 7) as u32;
        let mut waited = self.b.ptx().wgmma_wait(pending, &all).into_iter();
        for (result, acc) in op.results().zip(&accs) {
            let parts = waited.by_ref().take(acc.len()).collect();
            self.values.set_parts(result, parts);
        }
        Ok(())
    }

    pub fn wgmma_order(&mut self, op: OpRef) -> Result {
        self.needs_wgmma(op)?;
        match op.name().as_str() {
            op::kernel::WGMMA_FENCE => self.b.ptx().wgmma_fence(),
            _ => self.b.ptx().wgmma_commit(),
        }
        Ok(())
    }
}
