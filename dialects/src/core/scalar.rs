//! The meaning of elementwise ops on one element: used by constant folding and by the interpreter.

use crate::interfaces::{Elementwise, FloatFn, IntFn};
use crate::op;
use rc_ir::attr::{AttrData, DenseData, float_from_bits, float_to_bits};
use rc_ir::types::{Signedness, TypeData};
use rc_ir::{Attr, OpDef, Type};

/// One element: a float, or an integer (`index` and `i1` too) within the range of its type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    Float(f64),
    Int(i128),
}

/// Width and signedness of an integer type. Signless integers are signed, `i1` is unsigned (0 or 1), `index` is 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntType {
    pub width: u32,
    pub unsigned: bool,
}

impl IntType {
    /// The integer type of a scalar type; `None` for floats and widths above 64.
    pub fn of(ty: Type) -> Option<IntType> {
        match ty.data() {
            TypeData::Index => Some(IntType { width: 64, unsigned: false }),
            TypeData::Integer { width, signedness } if (1..=64).contains(width) => {
                Some(IntType { width: *width, unsigned: *signedness == Signedness::Unsigned || *width == 1 })
            }
            _ => None,
        }
    }
    pub fn min(self) -> i128 {
        if self.unsigned { 0 } else { -(1 << (self.width - 1)) }
    }
    pub fn max(self) -> i128 {
        if self.unsigned { (1 << self.width) - 1 } else { (1 << (self.width - 1)) - 1 }
    }
    /// `value` modulo two to the width.
    pub fn wrap(self, value: i128) -> i128 {
        let low = value & ((1 << self.width) - 1);
        if !self.unsigned && low >> (self.width - 1) != 0 { low - (1 << self.width) } else { low }
    }
}

impl Scalar {
    pub fn float(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(n) => n as f64,
        }
    }
    /// The integer; `None` for a float.
    pub fn int(self) -> Option<i128> {
        if let Scalar::Int(n) = self { Some(n) } else { None }
    }
    /// Whether the element is not zero; a NaN is not.
    pub fn is_true(self) -> bool {
        match self {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(n) => n != 0,
        }
    }
    /// As an element of `ty`, of the same class: a float rounded, an integer wrapped.
    fn fit(self, ty: Type) -> Option<Scalar> {
        match self {
            Scalar::Float(x) => {
                let kind = ty.float_kind()?;
                Some(Scalar::Float(float_from_bits(kind, float_to_bits(kind, x))))
            }
            Scalar::Int(n) => Some(Scalar::Int(IntType::of(ty)?.wrap(n))),
        }
    }
    /// `core.convert` to the type `ty`.
    pub fn convert(self, ty: Type) -> Option<Scalar> {
        if ty == Type::i1() {
            return Some(Scalar::Int(i128::from(self.is_true())));
        }
        match (self, IntType::of(ty)) {
            (Scalar::Float(x), Some(_)) if x.is_nan() => Some(Scalar::Int(0)),
            // `as` truncates toward zero and saturates; i128 holds every 64-bit range.
            (Scalar::Float(x), Some(int)) => Some(Scalar::Int((x as i128).clamp(int.min(), int.max()))),
            (Scalar::Int(n), Some(_)) => Scalar::Int(n).fit(ty),
            (Scalar::Float(_), None) => self.fit(ty),
            (Scalar::Int(n), None) => Scalar::Float(int_to_float(n, ty)).fit(ty),
        }
    }
    /// The element's bits, as its type `ty` stores them.
    pub fn to_bits(self, ty: Type) -> Option<u64> {
        match self {
            Scalar::Float(x) => Some(float_to_bits(ty.float_kind()?, x)),
            Scalar::Int(n) => Some(n as u64 & width_mask(IntType::of(ty)?.width)),
        }
    }
    /// The element that `bits` are in the type `ty`.
    pub fn from_bits(bits: u64, ty: Type) -> Option<Scalar> {
        match ty.float_kind() {
            Some(kind) => Some(Scalar::Float(float_from_bits(kind, bits))),
            None => Some(Scalar::Int(IntType::of(ty)?.wrap(i128::from(bits)))),
        }
    }
}

fn width_mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// `n` as an `f64` that rounds to the float type `ty` as `n` itself does.
fn int_to_float(n: i128, ty: Type) -> f64 {
    match ty.bit_width() {
        Some(64) => n as f64,
        Some(32) => f64::from(n as f32),
        // Narrow formats: what is beyond 53 bits only matters as "not a tie", which the last bit can say.
        _ => {
            let x = n as f64;
            if x as i128 == n { x } else { f64::from_bits(x.to_bits() | 1) }
        }
    }
}

/// Evaluates an elementwise op of `core` on one element. `operand` is the element type of the last operand (that
/// of `x` in `convert`, of the alternatives in `select`), `result` the result's. `None`: not such an op, or
/// an error of the program (integer division by zero).
pub fn eval(def: &OpDef, attrs: Attr, operand: Type, result: Type, args: &[Scalar]) -> Option<Scalar> {
    match (def.name, args) {
        (op::core::COMPARE, &[a, b]) => {
            let kind = attrs.get("kind")?.as_str()?;
            Some(Scalar::Int(i128::from(compare(kind, a, b)?)))
        }
        (op::core::SELECT, &[c, a, b]) => Some(if c.is_true() { a } else { b }),
        (op::core::CONVERT, &[x]) => x.convert(result),
        (op::core::BITCAST, &[x]) => Scalar::from_bits(x.to_bits(operand)?, result),
        (op::core::FMA, &[Scalar::Float(a), Scalar::Float(b), Scalar::Float(c)]) if result == Type::f32() => {
            Some(Scalar::Float(f64::from((a as f32).mul_add(b as f32, c as f32))))
        }
        _ => eval_regular(def.interface::<Elementwise>()?, operand, args)?.fit(result),
    }
}

fn eval_regular(op: &Elementwise, operand: Type, args: &[Scalar]) -> Option<Scalar> {
    if operand.is_float() {
        let value = match (op.float?, args) {
            (FloatFn::Unary(f), &[a]) => f(a.float()),
            (FloatFn::Binary(f), &[a, b]) => f(a.float(), b.float()),
            (FloatFn::Ternary(f), &[a, b, c]) => f(a.float(), b.float(), c.float()),
            (FloatFn::Test(f), &[a]) => return Some(Scalar::Int(i128::from(f(a.float())))),
            _ => return None,
        };
        return Some(Scalar::Float(value));
    }
    let int = IntType::of(operand)?;
    let value = match (op.int?, args) {
        (IntFn::Unary(f), &[a]) => f(a.int()?),
        (IntFn::Binary(f), &[a, b]) => f(a.int()?, b.int()?, int)?,
        (IntFn::Ternary(f), &[a, b, c]) => f(a.int()?, b.int()?, c.int()?),
        _ => return None,
    };
    Some(Scalar::Int(value))
}

/// `core.compare` of two elements of one class.
pub fn compare(kind: &str, a: Scalar, b: Scalar) -> Option<bool> {
    let order = match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => Some(a.cmp(&b)),
        _ => a.float().partial_cmp(&b.float()),
    };
    Some(match kind {
        "eq" => order.is_some_and(|o| o.is_eq()),
        "ne" => !order.is_some_and(|o| o.is_eq()),
        "lt" => order.is_some_and(|o| o.is_lt()),
        "le" => order.is_some_and(|o| o.is_le()),
        "gt" => order.is_some_and(|o| o.is_gt()),
        "ge" => order.is_some_and(|o| o.is_ge()),
        _ => return None,
    })
}

/// The element that a constant attribute is everywhere; `None` where elements differ or are not in the IR.
pub fn splat_of(attr: Attr) -> Option<Scalar> {
    match attr.data() {
        AttrData::Bool(b) => Some(Scalar::Int(i128::from(*b))),
        AttrData::Int { value, ty } => Some(Scalar::Int(IntType::of(*ty)?.wrap(*value))),
        AttrData::Float { bits, ty } => Some(Scalar::Float(float_from_bits(ty.float_kind()?, *bits))),
        AttrData::Dense { ty, data } => {
            let elem = ty.elem();
            let width = elem.byte_width()? as usize;
            let first = data.bytes.get(..width)?;
            let uniform = data.splat || data.bytes.chunks(width).all(|c| c == first);
            let mut word = [0; 8];
            word.get_mut(..width)?.copy_from_slice(first);
            uniform.then(|| Scalar::from_bits(u64::from_le_bytes(word), elem))?
        }
        _ => None,
    }
}

/// A constant of the scalar type `ty`.
pub fn scalar_attr(ty: Type, value: Scalar) -> Option<Attr> {
    match value.convert(ty)? {
        Scalar::Float(x) => Some(Attr::float(x, ty)),
        Scalar::Int(n) if ty == Type::i1() => Some(Attr::bool(n != 0)),
        Scalar::Int(value) => Some(Attr::new(AttrData::Int { value, ty })),
    }
}

/// A constant of type `ty`, scalar or shaped, with `value` everywhere; `None` where a size is not an integer.
pub fn splat_attr(ty: Type, value: Scalar) -> Option<Attr> {
    if ty.is_scalar() {
        return scalar_attr(ty, value);
    }
    ty.static_shape()?;
    let elem = ty.elem();
    let width = elem.byte_width()? as usize;
    let bits = value.convert(elem)?.to_bits(elem)?;
    let bytes = bits.to_le_bytes().get(..width)?.into();
    Some(Attr::new(AttrData::Dense { ty, data: DenseData { splat: true, bytes } }))
}
