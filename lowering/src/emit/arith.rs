//! Arithmetic, comparisons and selection, on scalars and on vectors alike.

use super::{Builder, FCmp, ICmp, Value, same_shape};
use melior::ir::ValueLike;

/// Methods that append one operation whose result has the first operand's type.
macro_rules! integer_ops {
    ($($(#[$doc:meta])* $method:ident($($operand:ident),+) => $op:literal $([$name:literal = $text:literal])?;)+) => {
        impl<'m> Builder<'m> {
            $(
                $(#[$doc])*
                pub fn $method(&self, $($operand: Value<'m>),+) -> Value<'m> {
                    let operands = [$($operand),+];
                    let attributes = [$(($name, self.parse_attribute($text)))?];
                    self.op1($op, &operands, operands[0].r#type(), &attributes)
                }
            )+
        }
    };
}

macro_rules! float_ops {
    ($($(#[$doc:meta])* $method:ident($($operand:ident),+) => $op:literal;)+) => {
        impl<'m> Builder<'m> {
            $(
                $(#[$doc])*
                pub fn $method(&self, $($operand: Value<'m>),+) -> Value<'m> {
                    self.float_op($op, &[$($operand),+])
                }
            )+
        }
    };
}

integer_ops! {
    add(x, y) => "llvm.add";
    /// Sum of signed numbers that is known not to overflow, as index arithmetic is.
    add_nsw(x, y) => "llvm.add" ["overflowFlags" = "#llvm.overflow<nsw>"];
    sub(x, y) => "llvm.sub";
    sub_nsw(x, y) => "llvm.sub" ["overflowFlags" = "#llvm.overflow<nsw>"];
    mul(x, y) => "llvm.mul";
    mul_nsw(x, y) => "llvm.mul" ["overflowFlags" = "#llvm.overflow<nsw>"];
    udiv(x, y) => "llvm.udiv";
    sdiv(x, y) => "llvm.sdiv";
    urem(x, y) => "llvm.urem";
    srem(x, y) => "llvm.srem";
    and(x, y) => "llvm.and";
    or(x, y) => "llvm.or";
    xor(x, y) => "llvm.xor";
    shl(x, bits) => "llvm.shl";
    lshr(x, bits) => "llvm.lshr";
    ashr(x, bits) => "llvm.ashr";
    umin(x, y) => "llvm.intr.umin";
    umax(x, y) => "llvm.intr.umax";
    smin(x, y) => "llvm.intr.smin";
    smax(x, y) => "llvm.intr.smax";
    /// The value, or one arbitrary value where it is poison.
    freeze(x) => "llvm.freeze";
}

float_ops! {
    fadd(x, y) => "llvm.fadd";
    fsub(x, y) => "llvm.fsub";
    fmul(x, y) => "llvm.fmul";
    fdiv(x, y) => "llvm.fdiv";
    fneg(x) => "llvm.fneg";
    /// `x * y + z`, rounded once.
    fma(x, y, z) => "llvm.intr.fma";
    /// `x * y + z`, rounded once or twice, whichever is faster.
    fmuladd(x, y, z) => "llvm.intr.fmuladd";
    fabs(x) => "llvm.intr.fabs";
    sqrt(x) => "llvm.intr.sqrt";
    floor(x) => "llvm.intr.floor";
    ceil(x) => "llvm.intr.ceil";
    /// Rounds to an integer, halves to even.
    round_even(x) => "llvm.intr.roundeven";
    /// Rounds toward zero.
    round_to_zero(x) => "llvm.intr.trunc";
    copysign(magnitude, sign) => "llvm.intr.copysign";
    /// The smaller number; NaN where either is NaN.
    fminimum(x, y) => "llvm.intr.minimum";
    /// The larger number; NaN where either is NaN.
    fmaximum(x, y) => "llvm.intr.maximum";
    /// The smaller number; the other one where one is NaN.
    fminnum(x, y) => "llvm.intr.minnum";
    /// The larger number; the other one where one is NaN.
    fmaxnum(x, y) => "llvm.intr.maxnum";
}

impl<'m> Builder<'m> {
    /// Compares integers or pointers; an `i1` for each lane.
    pub fn icmp(&self, predicate: ICmp, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let result = same_shape(x.r#type(), self.ty.i1);
        self.op1("llvm.icmp", &[x, y], result, &[("predicate", self.i64_attribute(predicate as i64))])
    }

    /// Compares floats; an `i1` for each lane.
    pub fn fcmp(&self, predicate: FCmp, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let result = same_shape(x.r#type(), self.ty.i1);
        self.op1("llvm.fcmp", &[x, y], result, &[("predicate", self.i64_attribute(predicate as i64))])
    }

    /// `x` where `condition` holds, else `y`; the condition is an `i1`, or one for each lane.
    pub fn select(&self, condition: Value<'m>, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        self.op1("llvm.select", &[condition, x, y], x.r#type(), &[])
    }

    /// The complement of every bit; for an `i1`, the negation.
    pub fn not(&self, x: Value<'m>) -> Value<'m> {
        self.xor(x, self.int(x.r#type(), -1))
    }

    /// The quotient rounded up, of non-negative numbers.
    pub fn ceil_div(&self, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let one = self.int(x.r#type(), 1);
        self.udiv(self.add(x, self.sub(y, one)), y)
    }

    /// The upper half of the product of unsigned 32-bit numbers, as Philox needs it.
    pub fn umul_high(&self, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let (narrow, wide) = (x.r#type(), same_shape(x.r#type(), self.ty.i64));
        let product = self.mul(self.zext(x, wide), self.zext(y, wide));
        self.trunc(self.lshr(product, self.int(wide, 32)), narrow)
    }
}
