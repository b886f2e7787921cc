//! Single instructions of a GPU on registers: approximations and shuffles.

use super::{Lowering, value::Parts};
use crate::emit::Value;
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn approx(&mut self, op: OpRef) -> Result {
        let elem = self.body.ty(op.operand(0)).elem();
        if elem != ir::Type::f32() {
            return Err(op.unsupported(format!("on {elem}")).help("hardware approximations are of f32: convert first"));
        }
        let p = self.b.ptx();
        let apply = |x: Value<'m>| match op.str("fn") {
            Some("ex2") => Ok(p.ex2_approx_ftz(x)),
            Some("tanh") => Ok(p.tanh_approx(x)),
            Some("rcp") => Ok(p.rcp_approx_ftz(x)),
            Some("rsqrt") => Ok(p.rsqrt_approx(x)),
            Some("lg2") => Ok(p.lg2_approx(x)),
            Some("sin") => Ok(p.sin_approx(x)),
            Some("cos") => Ok(p.cos_approx(x)),
            other => Err(op.error(format!("has 'fn' = {}", other.unwrap_or("nothing")))),
        };
        let parts: Result<Parts<'m>> = self.values.parts(op.operand(0)).into_iter().map(apply).collect();
        self.values.set_parts(op.result(0), parts?);
        Ok(())
    }

    pub fn shuffle(&mut self, op: OpRef) -> Result {
        let (b, value, result) = (self.b, op.operand(0), op.result(0));
        let elem = self.body.ty(value).elem();
        let by = b.i32(op.int("by").unwrap_or(0) as i32);
        let keep = op.int("keep").unwrap_or(0) as i32;
        let lane = op.group("lane").first().map(|&lane| self.index32(lane));
        let mode = op.str("mode").unwrap_or("xor");
        if mode == "index" && lane.is_none() {
            return Err(op.error("of mode index needs the operand 'lane'"));
        }
        let p = b.ptx();
        let word = |x: Value<'m>| match mode {
            "up" => p.shuffle_up(x, by),
            "down" => p.shuffle_down(x, by),
            "index" => p.shuffle_index(x, lane.unwrap_or(by)),
            "within" => p.shuffle_within(x, by, keep),
            _ => p.shuffle_xor(x, by),
        };
        let parts = self.values.parts(value);
        let narrow = self.ranges.is_narrow(value);
        let shuffled: Parts<'m> = match elem.bit_width() {
            Some(32) => parts.into_iter().map(word).collect(),
            Some(64) if elem.is_index() && narrow => parts.into_iter().map(word).collect(),
            Some(64) => parts.into_iter().map(|part| self.shuffle_wide(part, &word)).collect(),
            Some(1) => parts.into_iter().map(|part| b.trunc(word(b.zext(part, b.ty.i32)), b.ty.i1)).collect(),
            Some(8 | 16) => {
                let scalar = self.scalar_type(op, elem)?;
                let full = parts.len() * self.element_bytes(scalar);
                if full.is_multiple_of(4) {
                    let words: Vec<Value<'m>> = self.pack(&parts).into_iter().map(word).collect();
                    self.unpack(&words, elem, scalar)
                } else {
                    parts.into_iter().map(|part| b.trunc(word(b.zext(part, b.ty.i32)), scalar)).collect()
                }
            }
            _ => return Err(op.unsupported(format!("on {elem}"))),
        };
        let shuffled = match elem.is_index() {
            true => shuffled.into_iter().map(|part| self.index_cast(part, self.index_type(result), false)).collect(),
            false => shuffled,
        };
        self.values.set_parts(result, shuffled);
        Ok(())
    }

    /// 64 bits in two halves.
    fn shuffle_wide(&self, part: Value<'m>, word: &dyn Fn(Value<'m>) -> Value<'m>) -> Value<'m> {
        let b = self.b;
        let ty = melior::ir::ValueLike::r#type(&part);
        let halves = b.bitcast(part, b.ty.vector(2, b.ty.i32));
        let shuffled = b.vector(&[word(b.extract(halves, 0)), word(b.extract(halves, 1))]);
        b.bitcast(shuffled, ty)
    }
}
