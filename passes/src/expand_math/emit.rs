//! Arithmetic on one container type (a scalar, vector or tile of floats), written in front of the operation that it replaces.

use rc_dialects::op;
use rc_ir::attr::{AttrData, DenseData};
use rc_ir::{Attr, Body, Builder, InsertPoint, Loc, Op, Type, Value};
use rustc_hash::FxHashMap;

/// Constants of a body, made once, at its entry.
#[derive(Default)]
pub struct Constants {
    known: FxHashMap<Attr, Value>,
    last: Option<Op>,
}

impl Constants {
    fn get(&mut self, body: &mut Body, attr: Attr, ty: Type) -> Value {
        if let Some(&value) = self.known.get(&attr) {
            return value;
        }
        let entry = body.entry().expect("a body with operations has an entry");
        let at = match (self.last, body.first_op(entry)) {
            (Some(last), _) => InsertPoint::After(last),
            (None, Some(first)) => InsertPoint::Before(first),
            (None, None) => InsertPoint::End(entry),
        };
        let mut b = Builder { body, at, loc: Loc::UNKNOWN };
        let op = b.op(op::core::CONSTANT).attr("value", attr).result(ty).build();
        self.last = Some(op);
        let value = body.result(op, 0);
        self.known.insert(attr, value);
        value
    }
}

/// Writes operations before `before`. All methods are elementwise over containers of the shape of `ty`.
pub struct Math<'a> {
    pub body: &'a mut Body,
    pub constants: &'a mut Constants,
    pub before: Op,
    /// The float container that is computed in.
    pub ty: Type,
    /// Whether hardware approximations may be used: on a GPU, in f32.
    pub approx: bool,
    /// Whether the result is rounded to 16 bits soon, so that the bounds of [`super::narrow`] do.
    pub rounded: bool,
}

/// A word of n bits and its parts, for the formats that are computed in.
#[derive(Clone, Copy)]
pub struct Format {
    /// Bits of the mantissa, without the hidden one.
    pub mantissa: i64,
    pub bias: i64,
    pub width: u32,
}

impl Math<'_> {
    pub fn format(&self) -> Format {
        match self.ty.elem() == Type::f64() {
            true => Format { mantissa: 52, bias: 1023, width: 64 },
            false => Format { mantissa: 23, bias: 127, width: 32 },
        }
    }
    pub fn is_f64(&self) -> bool {
        self.ty.elem() == Type::f64()
    }
    /// The integers of the same width.
    pub fn int_ty(&self) -> Type {
        self.ty.with_elem(Type::int(self.format().width))
    }
    fn op_as(&mut self, name: &str, operands: &[Value], attrs: &[(&str, Attr)], ty: Option<Type>) -> Value {
        let mut b = Builder::before(self.body, self.before);
        let mut op = b.op(name).operands(operands);
        for (key, value) in attrs {
            op = op.attr(key, *value);
        }
        if let Some(ty) = ty {
            op = op.result(ty);
        }
        op.value()
    }
    /// Any operation whose result type is inferred.
    pub fn op(&mut self, name: &str, operands: &[Value]) -> Value {
        self.op_as(name, operands, &[], None)
    }

    /// The number, rounded, everywhere.
    pub fn c(&mut self, x: f64) -> Value {
        let ty = self.ty;
        let attr = if ty.is_scalar() { Attr::float(x, ty) } else { Attr::splat(ty, x) };
        self.constants.get(self.body, attr, ty)
    }
    /// The integer of the format's width, everywhere.
    pub fn i(&mut self, n: i64) -> Value {
        let ty = self.int_ty();
        let attr = match ty.is_scalar() {
            true => Attr::int(n, ty),
            false => {
                let bytes = &n.to_le_bytes()[..self.format().width as usize / 8];
                Attr::new(AttrData::Dense { ty, data: DenseData { splat: true, bytes: bytes.into() } })
            }
        };
        self.constants.get(self.body, attr, ty)
    }
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(op::core::ADD, &[a, b])
    }
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.op(op::core::SUB, &[a, b])
    }
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.op(op::core::MUL, &[a, b])
    }
    pub fn div(&mut self, a: Value, b: Value) -> Value {
        self.op(op::core::DIV, &[a, b])
    }
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.op(op::core::FMA, &[a, b, c])
    }
    pub fn abs(&mut self, a: Value) -> Value {
        self.op(op::core::ABS, &[a])
    }
    pub fn neg(&mut self, a: Value) -> Value {
        self.op(op::core::NEG, &[a])
    }
    pub fn shl(&mut self, a: Value, bits: i64) -> Value {
        let bits = self.i(bits);
        self.op(op::core::SHL, &[a, bits])
    }
    /// Copies of the sign move in.
    pub fn shr(&mut self, a: Value, bits: i64) -> Value {
        let bits = self.i(bits);
        self.op(op::core::SHR, &[a, bits])
    }
    pub fn compare(&mut self, kind: &str, a: Value, b: Value) -> Value {
        self.op_as(op::core::COMPARE, &[a, b], &[("kind", Attr::str(kind))], None)
    }
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.op(op::core::SELECT, &[condition, a, b])
    }
    /// The float's bits as integers.
    pub fn bits(&mut self, x: Value) -> Value {
        let ty = self.int_ty();
        self.op_as(op::core::BITCAST, &[x], &[], Some(ty))
    }
    /// The float that the bits are.
    pub fn float(&mut self, bits: Value) -> Value {
        let ty = self.ty;
        self.op_as(op::core::BITCAST, &[bits], &[], Some(ty))
    }
    pub fn convert(&mut self, x: Value, elem: Type) -> Value {
        let ty = self.body.ty(x).with_elem(elem);
        self.op_as(op::core::CONVERT, &[x], &[], Some(ty))
    }
    /// A number in all lanes.
    pub fn splat(&mut self, x: Value) -> Value {
        let ty = self.ty;
        self.op_as(op::kernel::SPLAT, &[x], &[], Some(ty))
    }
    /// A hardware approximation, see `kernel.approx`.
    pub fn hardware(&mut self, function: &str, x: Value) -> Value {
        self.op_as(op::kernel::APPROX, &[x], &[("fn", Attr::str(function))], None)
    }

    /// `c[0] + c[1] x + c[2] x^2 + …`
    pub fn polynomial(&mut self, x: Value, c: &[f64]) -> Value {
        let (last, rest) = c.split_last().expect("a polynomial has coefficients");
        let mut sum = self.c(*last);
        for &c in rest.iter().rev() {
            let c = self.c(c);
            sum = self.fma(sum, x, c);
        }
        sum
    }
    /// The ratio of two polynomials, `p` and `q`, whose values are normal numbers below 2^126.
    pub fn ratio(&mut self, x: Value, [p, q]: [&[f64]; 2]) -> Value {
        let (above, below) = (self.polynomial(x, p), self.polynomial(x, q));
        if !self.approx {
            return self.div(above, below);
        }
        let inverse = self.hardware("rcp", below);
        self.mul(above, inverse)
    }
    /// `x > limit ? limit : x`: a NaN stays.
    pub fn at_most(&mut self, x: Value, limit: f64) -> Value {
        let limit = self.c(limit);
        if self.approx {
            return self.op(op::core::MIN, &[x, limit]);
        }
        let above = self.compare("gt", x, limit);
        self.select(above, limit, x)
    }
    /// `x < limit ? limit : x`: a NaN stays.
    pub fn at_least(&mut self, x: Value, limit: f64) -> Value {
        let limit = self.c(limit);
        let below = self.compare("lt", x, limit);
        self.select(below, limit, x)
    }
    /// `magnitude`, which is not negative, with the sign of `x`.
    pub fn with_sign_of(&mut self, magnitude: Value, x: Value) -> Value {
        let sign = self.sign_bit(x);
        self.or_bits(magnitude, sign)
    }
    /// The sign bit alone.
    pub fn sign_bit(&mut self, x: Value) -> Value {
        let (bits, mask) = (self.bits(x), if self.is_f64() { self.i(i64::MIN) } else { self.i(i64::from(i32::MIN)) });
        self.op(op::core::AND, &[bits, mask])
    }
    pub fn or_bits(&mut self, x: Value, bits: Value) -> Value {
        let x = self.bits(x);
        let both = self.op(op::core::OR, &[x, bits]);
        self.float(both)
    }
    /// Values of these types, computed the short way where `usual` holds for all elements, else the long way: a branch.
    pub fn usually<const N: usize>(
        &mut self,
        types: [Type; N],
        usual: impl FnOnce(&mut Math) -> Value,
        short: impl FnOnce(&mut Math) -> [Value; N],
        long: impl FnOnce(&mut Math) -> [Value; N],
    ) -> [Value; N] {
        let usual = usual(self);
        let all = match self.ty.is_scalar() {
            true => usual,
            false => self.op_as(op::kernel::VECTOR_REDUCE, &[usual], &[("kind", Attr::str("and"))], Some(Type::i1())),
        };
        let mut b = Builder::before(self.body, self.before);
        let branch = b.op(op::kernel::IF).operand(all).results(&types).regions(2).build();
        self.way(branch, 0, short);
        self.way(branch, 1, long);
        std::array::from_fn(|i| self.body.result(branch, i))
    }
    /// A function of `x` whose long way is for the numbers alone that are not usual: of a vector that has both, each element takes its own. A GPU's threads
    /// branch for each element, so that few of a warp's do: the short way is computed of all before.
    pub fn either(
        &mut self,
        x: Value,
        usual: impl FnOnce(&mut Math) -> Value,
        short: impl Fn(&mut Math) -> Value,
        long: impl Fn(&mut Math, Value) -> Value,
    ) -> Value {
        let usual = usual(self);
        let lanes = self.ty.static_shape().filter(|_| self.ty.is_vector() && self.approx).map(|shape| shape[0]);
        let [value] = match lanes {
            Some(lanes) => {
                let near = short(self);
                self.usually([self.ty], |_| usual, |_| [near], |m| [m.lane_by_lane(lanes, [x, usual, near], &long)])
            }
            None => self.usually(
                [self.ty],
                |_| usual,
                |m| [short(m)],
                |m| {
                    let far = long(m, x);
                    let near = (!m.ty.is_scalar()).then(|| short(m));
                    [near.map_or(far, |near| m.select(usual, near, far))]
                },
            ),
        };
        value
    }
    /// Each lane of `near` where it is usual, else what `long` makes of `x`'s.
    fn lane_by_lane(
        &mut self,
        lanes: i64,
        [x, usual, near]: [Value; 3],
        long: &impl Fn(&mut Math, Value) -> Value,
    ) -> Value {
        let elem = self.ty.elem();
        let values: Vec<Value> = (0..lanes)
            .map(|lane| {
                let [x, usual, near] =
                    [x, usual, near].map(|v| self.op_as(op::kernel::EXTRACT, &[v], &[("lane", Attr::i64(lane))], None));
                let Math { before, approx, rounded, .. } = *self;
                let mut m = Math { body: self.body, constants: self.constants, before, ty: elem, approx, rounded };
                m.usually([elem], |_| usual, |_| [near], |m| [long(m, x)])[0]
            })
            .collect();
        self.op(op::kernel::CONCAT, &values)
    }
    /// Writes a region of a branch.
    fn way<const N: usize>(&mut self, branch: Op, region: usize, write: impl FnOnce(&mut Math) -> [Value; N]) {
        let region = self.body.regions(branch)[region];
        let block = self.body.add_block(region, &[]);
        let at_end = |body: &mut Body, values: &[Value]| {
            let mut b = Builder { body, at: InsertPoint::End(block), loc: Loc::UNKNOWN };
            b.op(op::kernel::YIELD).operands(values).build()
        };
        let end = at_end(self.body, &[]);
        let Math { ty, approx, rounded, .. } = *self;
        let mut inside = Math { body: self.body, constants: self.constants, before: end, ty, approx, rounded };
        let values = write(&mut inside);
        self.body.erase(end);
        at_end(self.body, &values);
    }
    /// The same arithmetic in f64.
    pub fn in_f64(&mut self) -> Math<'_> {
        let ty = self.ty.with_elem(Type::f64());
        Math { body: self.body, constants: self.constants, before: self.before, ty, approx: false, rounded: false }
    }
}
