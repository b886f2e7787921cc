//! What an SSA value is while it runs.

use std::borrow::Cow;
use std::sync::Arc;

use rc_dialects::core::scalar::{IntType, Scalar};
use rc_ir::Type;
use rc_ir::attr::{float_from_bits, float_to_bits};
use rc_ir::types::FloatKind;

use super::Mode;
use super::memory::MemRef;
use super::space::OUTSIDE;
use crate::tensor::{DType, Tensor, f64_to_bf16, f64_to_f16};

/// A scalar, an array (of a tensor, tile or vector; of a scalar in a block of points of a nest), or memory.
/// The element type is that of the SSA value, so values do not repeat it.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// An integer, `index` or `i1`. 64-bit unsigned values are kept as the `i64` of the same bits.
    Int(i64),
    /// A float of any type, which holds exactly (rounded) in an f64.
    Float(f64),
    Array(Array),
    Memory(MemRef),
    TensorMap(Arc<TensorMap>),
    /// Accumulators that a matrix unit is still working on, in the wgmma group of this number; defined after a wait.
    InFlight(Arc<Value>, u32),
}

impl Value {
    /// An array; a scalar is one of rank 0.
    pub fn to_array(&self) -> Array {
        match self {
            Value::Array(array) => array.clone(),
            scalar => Array::splat(Vec::new(), scalar),
        }
    }
}

/// A scalar on its own, as [`Value`] holds it: small, and quick to copy.
#[derive(Clone, Copy)]
pub(crate) enum Element {
    Int(i64),
    Float(f64),
}

impl Element {
    /// The scalar that a value is, if it is one.
    pub fn of(value: &Value) -> Option<Element> {
        match value {
            Value::Float(x) => Some(Element::Float(*x)),
            Value::Int(n) => Some(Element::Int(*n)),
            _ => None,
        }
    }
    pub fn value(self) -> Value {
        match self {
            Element::Float(x) => Value::Float(x),
            Element::Int(n) => Value::Int(n),
        }
    }
    /// As the shared evaluator takes it.
    pub fn scalar(self, format: Format) -> Scalar {
        match self {
            Element::Float(x) => Scalar::Float(x),
            Element::Int(n) => Scalar::Int(format.wide(n)),
        }
    }
}

impl From<Scalar> for Element {
    fn from(scalar: Scalar) -> Element {
        match scalar {
            Scalar::Float(x) => Element::Float(x),
            Scalar::Int(n) => Element::Int(n as i64),
        }
    }
}

/// What a tensor map describes: boxes of a tensor, and how they lie in shared memory.
#[derive(Clone, Debug)]
pub(crate) struct TensorMap {
    pub tensor: MemRef,
    /// Sizes of a box, outermost dimension first.
    pub sizes: Vec<usize>,
    /// Bytes of the swizzle: 0, 32, 64 or 128.
    pub swizzle: usize,
}

/// Elements in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub shape: Vec<usize>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Float(Arc<Vec<f64>>),
    Int(Arc<Vec<i64>>),
    /// An argument or a constant, converted where it is used, so that weights are held once and in their own width.
    Host(Box<Tensor>),
}

impl Array {
    pub fn floats(shape: Vec<usize>, values: Vec<f64>) -> Array {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        Array { shape, data: Data::Float(Arc::new(values)) }
    }
    pub fn ints(shape: Vec<usize>, values: Vec<i64>) -> Array {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        Array { shape, data: Data::Int(Arc::new(values)) }
    }
    pub fn host(tensor: Tensor) -> Array {
        Array { shape: tensor.shape().to_vec(), data: Data::Host(Box::new(tensor)) }
    }
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Whether both are one array, and not equal ones.
    pub fn is(&self, other: &Array) -> bool {
        match (&self.data, &other.data) {
            (Data::Float(a), Data::Float(b)) => Arc::ptr_eq(a, b),
            (Data::Int(a), Data::Int(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
    pub fn is_float(&self) -> bool {
        match &self.data {
            Data::Float(_) => true,
            Data::Int(_) => false,
            Data::Host(tensor) => tensor.dtype().is_float(),
        }
    }
    /// The elements as f64; integers are converted.
    pub fn as_floats(&self) -> Cow<'_, [f64]> {
        match &self.data {
            Data::Float(values) => Cow::Borrowed(values),
            Data::Int(values) => Cow::Owned(values.iter().map(|&n| n as f64).collect()),
            Data::Host(tensor) => Cow::Owned(tensor.to_f64()),
        }
    }
    /// The elements as i64; floats are truncated.
    pub fn as_ints(&self) -> Cow<'_, [i64]> {
        match &self.data {
            Data::Int(values) => Cow::Borrowed(values),
            Data::Float(values) => Cow::Owned(values.iter().map(|&x| x as i64).collect()),
            Data::Host(tensor) => Cow::Owned(tensor.to_i64()),
        }
    }
    /// The same elements in another shape of equal size.
    pub fn with_shape(mut self, shape: Vec<usize>) -> Array {
        debug_assert_eq!(shape.iter().product::<usize>(), self.len());
        self.shape = shape;
        self
    }
    /// The elements at these row-major positions, in a new shape.
    pub fn pick(&self, shape: Vec<usize>, positions: &[usize]) -> Array {
        if positions.contains(&OUTSIDE) {
            return self.pick_inside(shape, positions);
        }
        if let Data::Host(tensor) = &self.data
            && positions.len() < self.len() / 4
        {
            // A few rows of a table: not worth converting all of it.
            return if tensor.dtype().is_float() {
                Array::floats(shape, positions.iter().map(|&i| tensor.get_f64(i)).collect())
            } else {
                Array::ints(shape, positions.iter().map(|&i| tensor.get_i64(i)).collect())
            };
        }
        if self.is_float() {
            let from = self.as_floats();
            Array::floats(shape, positions.iter().map(|&i| from[i]).collect())
        } else {
            let from = self.as_ints();
            Array::ints(shape, positions.iter().map(|&i| from[i]).collect())
        }
    }
    /// As [`Array::pick`], with zeros for what lies outside.
    fn pick_inside(&self, shape: Vec<usize>, positions: &[usize]) -> Array {
        if self.is_float() {
            let from = self.as_floats();
            Array::floats(shape, positions.iter().map(|&i| if i == OUTSIDE { 0.0 } else { from[i] }).collect())
        } else {
            let from = self.as_ints();
            Array::ints(shape, positions.iter().map(|&i| if i == OUTSIDE { 0 } else { from[i] }).collect())
        }
    }
    /// Slice `i` along the first dimension.
    pub fn slice(&self, i: usize) -> Array {
        let shape = self.shape[1..].to_vec();
        let count: usize = shape.iter().product();
        self.pick(shape, &(i * count..(i + 1) * count).collect::<Vec<_>>())
    }
    /// Arrays as the slices of one.
    pub fn stack(shape: Vec<usize>, slices: &[Array], float: bool) -> Array {
        if float {
            Array::floats(shape, slices.iter().flat_map(|a| a.as_floats().into_owned()).collect())
        } else {
            Array::ints(shape, slices.iter().flat_map(|a| a.as_ints().into_owned()).collect())
        }
    }
    /// Whether the first element is not 0.
    pub fn is_true(&self) -> bool {
        self.as_ints().first().is_some_and(|&n| n != 0)
    }
    pub fn element(&self, i: usize) -> Value {
        self.at(i).value()
    }
    pub fn at(&self, i: usize) -> Element {
        match &self.data {
            Data::Float(values) => Element::Float(values[i]),
            Data::Int(values) => Element::Int(values[i]),
            Data::Host(tensor) if tensor.dtype().is_float() => Element::Float(tensor.get_f64(i)),
            Data::Host(tensor) => Element::Int(tensor.get_i64(i)),
        }
    }
    /// `value` everywhere.
    pub fn splat(shape: Vec<usize>, value: &Value) -> Array {
        let count = shape.iter().product();
        match value {
            Value::Float(x) => Array::floats(shape, vec![*x; count]),
            Value::Int(n) => Array::ints(shape, vec![*n; count]),
            Value::Array(a) => a.pick(shape, &vec![0; count]),
            Value::Memory(_) | Value::TensorMap(_) | Value::InFlight(..) => Array::ints(shape, vec![0; count]),
        }
    }
    /// The same array, converted now if it would otherwise be converted on each of `picks` picks.
    pub fn ready(self, picks: usize) -> Array {
        match &self.data {
            Data::Host(tensor) if picks >= self.len() / 4 => {
                if tensor.dtype().is_float() {
                    Array::floats(self.shape, tensor.to_f64())
                } else {
                    Array::ints(self.shape, tensor.to_i64())
                }
            }
            _ => self,
        }
    }
}

impl Value {
    /// A scalar as the shared evaluator takes it.
    pub fn scalar(&self, format: Format) -> Scalar {
        match self {
            Value::Array(a) if a.len() > 0 => a.at(0).scalar(format),
            _ => Element::of(self).map_or(Scalar::Int(0), |element| element.scalar(format)),
        }
    }
    pub fn from_scalar(scalar: Scalar) -> Value {
        Element::from(scalar).value()
    }
}

/// How elements of a type are held and rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub ty: Type,
    pub class: Class,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    /// With the rounding to the type; none in float64 mode.
    Float(fn(f64) -> f64),
    Int(IntType),
}

impl Format {
    /// `None` for a type that is no scalar of at most 64 bits.
    pub fn of(ty: Type, mode: Mode) -> Option<Format> {
        let class = match ty.float_kind() {
            Some(kind) => Class::Float(if mode == Mode::Float64 { |x| x } else { rounding(kind) }),
            None => Class::Int(IntType::of(ty)?),
        };
        Some(Format { ty, class })
    }
    pub fn round(self, x: f64) -> f64 {
        match self.class {
            Class::Float(round) => round(x),
            Class::Int(_) => x,
        }
    }
    /// `n` modulo two to the width.
    pub fn wrap(self, n: i128) -> i64 {
        match self.class {
            Class::Int(int) => int.wrap(n) as i64,
            Class::Float(_) => n as i64,
        }
    }
    /// The integer that the held `n` stands for.
    pub fn wide(self, n: i64) -> i128 {
        match self.class {
            Class::Int(IntType { width: 64, unsigned: true }) => i128::from(n as u64),
            _ => i128::from(n),
        }
    }
    pub fn is_float(self) -> bool {
        matches!(self.class, Class::Float(_))
    }
}

/// Rounding to nearest, ties to even, to a float type.
fn rounding(kind: FloatKind) -> fn(f64) -> f64 {
    match kind {
        FloatKind::F64 => |x| x,
        FloatKind::F32 => |x| f64::from(x as f32),
        FloatKind::BF16 => |x| f64_to_bf16(x).to_f64(),
        FloatKind::F16 => |x| f64_to_f16(x).to_f64(),
        FloatKind::TF32 => |x| float_from_bits(FloatKind::TF32, float_to_bits(FloatKind::TF32, x)),
        FloatKind::F8E4M3FN => |x| float_from_bits(FloatKind::F8E4M3FN, float_to_bits(FloatKind::F8E4M3FN, x)),
        FloatKind::F8E5M2 => |x| float_from_bits(FloatKind::F8E5M2, float_to_bits(FloatKind::F8E5M2, x)),
    }
}

/// The dtype of host tensors for elements of this type; `index` is held as i64.
pub(crate) fn dtype_of(ty: Type) -> Option<DType> {
    if ty.is_index() {
        return Some(DType::I64);
    }
    let name = ty.to_string();
    DType::ALL.into_iter().find(|dtype| dtype.name() == name)
}
