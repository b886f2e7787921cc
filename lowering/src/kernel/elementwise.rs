//! `core`'s elementwise operations on scalars and vectors.

use super::{Lowering, value::Parts};
use crate::backend::Processor;
use crate::emit::{FCmp, FastMath, Format, ICmp, Type, Value, same_shape};
use melior::ir::ValueLike;
use rc_dialects::op;
use rc_ir::{self as ir, OpRef, Result, types::FloatKind};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn elementwise(&mut self, op: OpRef) -> Result {
        let name = op.name().as_str();
        let result = op.result(0);
        let elem = self.body.ty(op.operand(op.operands().len() - 1)).elem();
        let operands: Vec<Parts<'m>> = self.operands_in_one_width(op, elem);
        let count = operands.iter().map(|parts| parts.len()).max().unwrap_or(0);
        let args = |i: usize| operands.iter().map(|parts| parts[i.min(parts.len() - 1)]).collect::<Vec<Value<'m>>>();
        if self.rounds(op, name, elem) {
            self.scalar_type(op, elem)?;
            let wide: Result<Parts<'m>> = (0..count).map(|i| self.float_op_in_f32(op, name, elem, &args(i))).collect();
            self.values.set_parts(result, self.narrow_parts(&wide?, elem));
            return Ok(());
        }
        let mut parts = Parts::new();
        for i in 0..count {
            let args = args(i);
            let value = match name {
                op::core::COMPARE => self.compare(op, elem, args[0], args[1]),
                op::core::SELECT => Ok(self.b.select(args[0], args[1], args[2])),
                _ => self.apply(op, name, elem, &args),
            };
            parts.push(value?);
        }
        if self.body.ty(result).elem().is_index() {
            let (to, non_negative) = (self.index_type(result), self.ranges.non_negative(result));
            parts = parts.into_iter().map(|part| self.index_cast(part, to, non_negative)).collect();
        }
        self.values.set_parts(result, parts);
        Ok(())
    }

    /// Indices are computed in 32 bits where operands and result fit.
    fn operands_in_one_width(&self, op: OpRef, elem: ir::Type) -> Vec<Parts<'m>> {
        if !elem.is_index() {
            return op.operands().map(|v| self.values.parts(v)).collect();
        }
        let is_index = |v: &ir::Value| self.body.ty(*v).elem().is_index();
        let narrow = op.operands().chain(op.results()).filter(is_index).all(|v| self.ranges.is_narrow(v));
        let to = self.index_width(narrow);
        let cast = |v: ir::Value| {
            let non_negative = self.ranges.non_negative(v);
            self.values.parts(v).into_iter().map(|part| self.index_cast(part, to, non_negative)).collect()
        };
        op.operands().map(|v| if is_index(&v) { cast(v) } else { self.values.parts(v) }).collect()
    }

    /// `core.add`, `core.max`, … of two scalars or vectors.
    pub fn combine(&self, op: OpRef, name: &str, elem: ir::Type, x: Value<'m>, y: Value<'m>) -> Result<Value<'m>> {
        self.apply(op, name, elem, &[x, y])
    }

    fn apply(&self, op: OpRef, name: &str, elem: ir::Type, args: &[Value<'m>]) -> Result<Value<'m>> {
        self.scalar_type(op, elem)?;
        if elem.is_float() { self.float_op(op, name, elem, args) } else { self.int_op(op, name, elem, args) }
    }

    // ---- Floats

    fn float_op(&self, op: OpRef, name: &str, elem: ir::Type, args: &[Value<'m>]) -> Result<Value<'m>> {
        let b = self.b;
        let shape = args[0].r#type();
        match (name, self.is_narrow_float(elem)) {
            // Signs are bits, whatever the width.
            (op::core::NEG | op::core::ABS, true) => {
                return Ok(match name {
                    op::core::NEG => b.xor(args[0], b.int(shape, -sign_bit(elem))),
                    _ => b.and(args[0], b.int(shape, sign_bit(elem) - 1)),
                });
            }
            (op::core::FMA, true) => {
                let error = op.unsupported(format!("on {elem}"));
                return Err(error.help("run expand-math: it computes narrower floats in f32"));
            }
            (op::core::IS_NAN | op::core::IS_FINITE, true) => return self.float_op_in_f32(op, name, elem, args),
            (_, true) => return Ok(self.narrow(self.float_op_in_f32(op, name, elem, args)?, elem)),
            _ => {}
        }
        let number = |x: f64| b.float(shape, x);
        Ok(match (name, args) {
            (op::core::ADD, &[x, y]) => b.fadd(x, y),
            (op::core::SUB, &[x, y]) => b.fsub(x, y),
            (op::core::MUL, &[x, y]) => b.fmul(x, y),
            (op::core::DIV, &[x, y]) => b.fdiv(x, y),
            (op::core::FMA, &[x, y, z]) => self.fma(elem, x, y, z),
            (op::core::MAX, &[x, y]) => self.extreme(op, || b.fmaximum(x, y)),
            (op::core::MIN, &[x, y]) => self.extreme(op, || b.fminimum(x, y)),
            (op::core::CLAMP, &[x, low, high]) => b.fminimum(b.fmaximum(x, low), high),
            (op::core::NEG, &[x]) => b.fneg(x),
            (op::core::ABS, &[x]) => b.fabs(x),
            (op::core::SQRT, &[x]) => b.sqrt(x),
            (op::core::FLOOR, &[x]) => b.floor(x),
            (op::core::CEIL, &[x]) => b.ceil(x),
            (op::core::ROUND, &[x]) => b.round_even(x),
            (op::core::TRUNC, &[x]) => b.round_to_zero(x),
            (op::core::IS_NAN, &[x]) => b.fcmp(FCmp::Uno, x, x),
            (op::core::IS_FINITE, &[x]) => b.fcmp(FCmp::Olt, b.fabs(x), number(f64::INFINITY)),
            (op::core::SIGN, &[x]) => {
                let zero = number(0.0);
                let negative = b.select(b.fcmp(FCmp::Olt, x, zero), number(-1.0), x);
                b.select(b.fcmp(FCmp::Ogt, x, zero), number(1.0), negative)
            }
            _ => {
                let error = op.unsupported(format!("on {elem} as a machine instruction"));
                return Err(error.help("run expand-math, which expands functions to arithmetic"));
            }
        })
    }

    /// Of floats of 16 or 8 bits. f32 has more than twice the digits, so rounding its result to them is rounding once.
    fn float_op_in_f32(&self, op: OpRef, name: &str, elem: ir::Type, args: &[Value<'m>]) -> Result<Value<'m>> {
        let wide: Vec<Value<'m>> = args.iter().map(|&x| self.widen(x, elem)).collect();
        self.float_op(op, name, ir::Type::f32(), &wide)
    }

    /// Whether an operation's results are computed in f32 and rounded.
    fn rounds(&self, op: OpRef, name: &str, elem: ir::Type) -> bool {
        let bits = [op::core::NEG, op::core::ABS, op::core::FMA, op::core::SELECT];
        self.is_narrow_float(elem) && self.body.ty(op.result(0)).elem() == elem && !bits.contains(&name)
    }

    /// A float of 16 or 8 bits, given as its bits, as f32.
    pub fn widen(&self, x: Value<'m>, elem: ir::Type) -> Value<'m> {
        let b = self.b;
        let to = |scalar: Type<'m>| same_shape(x.r#type(), scalar);
        let from_half = |half| b.fpext(b.bitcast(half, to(b.ty.f16)), to(b.ty.f32));
        match elem.float_kind() {
            Some(FloatKind::BF16) => b.bf16_to_f32(x),
            Some(FloatKind::F16) if self.converts_f16() => from_half(x),
            Some(FloatKind::F16) => b.narrow_to_f32(x, &Format::F16),
            // The upper half of an f16.
            Some(FloatKind::F8E5M2) if self.converts_f16() => {
                from_half(b.shl(b.zext(x, to(b.ty.i16)), b.int(to(b.ty.i16), 8)))
            }
            Some(FloatKind::F8E5M2) => b.narrow_to_f32(x, &Format::F8E5M2),
            _ if self.converts_float8() => {
                let pair = b.ptx().e4m3x2_to_f16x2(b.zext(x, b.ty.i16));
                from_half(b.trunc(pair, b.ty.i16))
            }
            _ => b.narrow_to_f32(x, &Format::F8E4M3FN),
        }
    }

    /// Whether the processor has instructions for it.
    fn converts_f16(&self) -> bool {
        !matches!(self.target, Processor::Cpu(cpu) if !cpu.has_f16())
    }

    /// Whether the processor has instructions for f8E4M3FN.
    pub fn converts_float8(&self) -> bool {
        matches!(self.target, Processor::Cuda(cuda) if cuda.has_float8())
    }

    /// The bits of an f32 rounded to a float of 16 or 8 bits.
    pub fn narrow(&self, x: Value<'m>, elem: ir::Type) -> Value<'m> {
        let b = self.b;
        let to = |scalar: Type<'m>| same_shape(x.r#type(), scalar);
        let bits = |half| b.bitcast(half, to(b.ty.i16));
        match elem.float_kind() {
            Some(FloatKind::BF16) if self.gpu => bits(b.fptrunc(x, to(b.ty.bf16))),
            Some(FloatKind::BF16) => bits(b.f32_to_bf16(x)),
            Some(FloatKind::F16) if self.converts_f16() => bits(b.fptrunc(x, to(b.ty.f16))),
            Some(FloatKind::F16) => b.f32_to_narrow(x, &Format::F16),
            Some(FloatKind::F8E5M2) => b.f32_to_narrow(x, &Format::F8E5M2),
            _ if self.converts_float8() => b.trunc(b.ptx().pack_e4m3x2(x, b.float(b.ty.f32, 0.0)), b.ty.i8),
            _ => b.f32_to_narrow(x, &Format::F8E4M3FN),
        }
    }

    /// A maximum or minimum. Which zero a reduction gives is not said, and x86 needs twice as many instructions to say it.
    fn extreme(&self, op: OpRef, build: impl FnOnce() -> Value<'m>) -> Value<'m> {
        let any_zero = FastMath { nsz: true, ..FastMath::default() };
        if is_reduction(op) { self.b.with_fast_math(any_zero, build) } else { build() }
    }

    // ---- Integers

    fn int_op(&self, op: OpRef, name: &str, elem: ir::Type, args: &[Value<'m>]) -> Result<Value<'m>> {
        let b = self.b;
        let shape = args[0].r#type();
        let unsigned = elem.is_unsigned() || elem == ir::Type::i1();
        let number = |x: i64| b.int(shape, x);
        let minimum = |x, y| if unsigned { b.umin(x, y) } else { b.smin(x, y) };
        let maximum = |x, y| if unsigned { b.umax(x, y) } else { b.smax(x, y) };
        // Sums and products of indices do not overflow where their bounds are known.
        let exact = elem.is_index() && op.results().len() == 1 && self.ranges.of(op.result(0)).is_some();
        Ok(match (name, args) {
            (op::core::ADD, &[x, y]) => {
                if exact {
                    b.add_nsw(x, y)
                } else {
                    b.add(x, y)
                }
            }
            (op::core::SUB, &[x, y]) => {
                if exact {
                    b.sub_nsw(x, y)
                } else {
                    b.sub(x, y)
                }
            }
            (op::core::MUL, &[x, y]) => {
                if exact {
                    b.mul_nsw(x, y)
                } else {
                    b.mul(x, y)
                }
            }
            (op::core::DIV | op::core::REM, &[x, y]) => self.divide(op, name == op::core::REM, elem, x, y),
            (op::core::MAX, &[x, y]) => maximum(x, y),
            (op::core::MIN, &[x, y]) => minimum(x, y),
            (op::core::CLAMP, &[x, low, high]) => minimum(maximum(x, low), high),
            (op::core::NEG, &[x]) => b.sub(number(0), x),
            (op::core::ABS, &[x]) if unsigned => x,
            (op::core::ABS, &[x]) => b.smax(x, b.sub(number(0), x)),
            (op::core::SIGN, &[x]) if unsigned => b.umin(x, number(1)),
            (op::core::SIGN, &[x]) => b.smax(b.smin(x, number(1)), number(-1)),
            (op::core::NOT, &[x]) => b.not(x),
            (op::core::AND, &[x, y]) => b.and(x, y),
            (op::core::OR, &[x, y]) => b.or(x, y),
            (op::core::XOR, &[x, y]) => b.xor(x, y),
            (op::core::SHL | op::core::SHR, &[x, y]) => self.shift(name == op::core::SHL, unsigned, elem, x, y),
            _ => return Err(op.unsupported(format!("on {elem} in a thread"))),
        })
    }

    /// Quotient or remainder, toward zero. The least integer over -1 wraps; a division by zero, whose result is not
    /// defined, at least does not trap: a lane that is masked out may divide by anything.
    fn divide(&self, op: OpRef, remainder: bool, elem: ir::Type, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let b = self.b;
        let shape = x.r#type();
        let operand_range = |i: usize| (op.operands().len() == 2).then(|| self.ranges.of(op.operand(i))).flatten();
        let non_negative = elem.is_index() && operand_range(0).is_some_and(|r| r.0 >= 0);
        let positive = elem.is_index() && operand_range(1).is_some_and(|r| r.0 > 0);
        if positive {
            return match (non_negative, remainder) {
                (true, false) => b.udiv(x, y),
                (true, true) => b.urem(x, y),
                (false, false) => b.sdiv(x, y),
                (false, true) => b.srem(x, y),
            };
        }
        let zero = b.icmp(ICmp::Eq, y, b.int(shape, 0));
        if elem.is_unsigned() || elem == ir::Type::i1() {
            let y = b.select(zero, b.int(shape, 1), y);
            return if remainder { b.urem(x, y) } else { b.udiv(x, y) };
        }
        let minus_one = b.icmp(ICmp::Eq, y, b.int(shape, -1));
        let divisor = b.select(b.or(zero, minus_one), b.int(shape, 1), y);
        match remainder {
            true => b.srem(x, divisor), // of 1, as of -1: 0
            false => b.select(minus_one, b.sub(b.int(shape, 0), x), b.sdiv(x, divisor)),
        }
    }

    /// Amounts outside of the width give 0, or the sign.
    fn shift(&self, left: bool, unsigned: bool, elem: ir::Type, x: Value<'m>, amount: Value<'m>) -> Value<'m> {
        let b = self.b;
        let shape = x.r#type();
        let width = match elem.is_index() {
            true => 8 * self.element_bytes(crate::emit::element(shape)) as i64,
            false => elem.bit_width().unwrap_or(64).into(),
        };
        let inside = b.icmp(ICmp::Ult, amount, b.int(shape, width));
        if !left && !unsigned {
            return b.ashr(x, b.select(inside, amount, b.int(shape, width - 1)));
        }
        let shifted = if left { b.shl(x, amount) } else { b.lshr(x, amount) };
        b.select(inside, shifted, b.int(shape, 0))
    }

    // ---- Comparisons

    fn compare(&self, op: OpRef, elem: ir::Type, x: Value<'m>, y: Value<'m>) -> Result<Value<'m>> {
        let b = self.b;
        let kind = op.str("kind").unwrap_or("eq");
        if elem.is_float() {
            self.scalar_type(op, elem)?;
            let (x, y) = if self.is_narrow_float(elem) { (self.widen(x, elem), self.widen(y, elem)) } else { (x, y) };
            let predicate = match kind {
                "eq" => FCmp::Oeq,
                "ne" => FCmp::Une,
                "lt" => FCmp::Olt,
                "le" => FCmp::Ole,
                "gt" => FCmp::Ogt,
                _ => FCmp::Oge,
            };
            return Ok(b.fcmp(predicate, x, y));
        }
        let unsigned = elem.is_unsigned() || elem == ir::Type::i1();
        let predicate = match (kind, unsigned) {
            ("eq", _) => ICmp::Eq,
            ("ne", _) => ICmp::Ne,
            ("lt", false) => ICmp::Slt,
            ("le", false) => ICmp::Sle,
            ("gt", false) => ICmp::Sgt,
            (_, false) => ICmp::Sge,
            ("lt", true) => ICmp::Ult,
            ("le", true) => ICmp::Ule,
            ("gt", true) => ICmp::Ugt,
            (_, true) => ICmp::Uge,
        };
        Ok(b.icmp(predicate, x, y))
    }
}

/// The bit of a float's sign, as a number.
fn sign_bit(elem: ir::Type) -> i64 {
    1 << (elem.bit_width().unwrap_or(64) - 1)
}

/// Whether an operation is a step of a reduction: one of its operands is what a loop carries, or the lanes of its result, or of what follows from it
/// by the same operation, are reduced.
fn is_reduction(op: OpRef) -> bool {
    let is_carried = |value: ir::Value| op.body.defining_op(value).is_none();
    let reduces = |user: ir::Op| {
        let user = op.body.op_ref(user);
        user.is(op::kernel::VECTOR_REDUCE) || user.name() == op.name() && is_reduction(user)
    };
    op.is(op::kernel::VECTOR_REDUCE)
        || op.operands().any(is_carried)
        || op.results().any(|result| op.body.uses(result).any(|(user, _)| reduces(user)))
}
