//! Types. `Type` is a 4-byte interned handle; [`TypeData`] says what it stands for.

use crate::attr::{Attr, AttrData};
use crate::dim::Dim;
use crate::intern::{Name, interned};

interned!(
    /// An interned type.
    Type, TypeData, TYPES
);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signedness {
    Signless,
    Signed,
    Unsigned,
}

/// Floating-point formats, under MLIR's names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FloatKind {
    F16,
    BF16,
    TF32,
    F32,
    F64,
    F8E4M3FN,
    F8E5M2,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TypeData {
    None,
    Index,
    Integer {
        width: u32,
        signedness: Signedness,
    },
    Float(FloatKind),
    Complex(Type),
    /// `tensor<4x?xf32, encoding>`. Symbolic sizes live in `shape`; in the generic form they
    /// print as `?` with the encoding `#rc.shape<[…]>`, so a tensor never has that encoding here.
    Tensor {
        shape: Box<[Dim]>,
        elem: Type,
        encoding: Option<Attr>,
    },
    /// `memref<4x?xf32, layout, space>`.
    MemRef {
        shape: Box<[Dim]>,
        elem: Type,
        layout: Option<Attr>,
        space: Option<Attr>,
    },
    /// `tensor<*xf32>`, `memref<*xf32>`: read and printed, understood by no rc dialect.
    UnrankedTensor(Type),
    UnrankedMemRef {
        elem: Type,
        space: Option<Attr>,
    },
    /// `vector<8xf32>`: fixed sizes only.
    Vector {
        shape: Box<[i64]>,
        elem: Type,
    },
    Tuple(Box<[Type]>),
    Function {
        inputs: Box<[Type]>,
        results: Box<[Type]>,
    },
    /// `!rc.tile<64x32xf32, layout>`: a tile value of the `kernel` dialect.
    Tile {
        shape: Box<[i64]>,
        elem: Type,
        layout: Option<Attr>,
    },
    /// `!rc.name<params>`: any other type of rc's own, with attributes as parameters.
    Dialect {
        name: Name,
        params: Box<[Attr]>,
    },
    /// A type of a dialect that is not registered, kept as its text after `!`.
    Opaque(Name),
    /// A builtin type of MLIR's that rc does not compute with, kept as its text: `f80`, `vector<[4]xi32>`.
    Foreign(Name),
}

impl FloatKind {
    pub const ALL: [FloatKind; 7] =
        [Self::F16, Self::BF16, Self::TF32, Self::F32, Self::F64, Self::F8E4M3FN, Self::F8E5M2];

    pub fn as_str(self) -> &'static str {
        match self {
            FloatKind::F16 => "f16",
            FloatKind::BF16 => "bf16",
            FloatKind::TF32 => "tf32",
            FloatKind::F32 => "f32",
            FloatKind::F64 => "f64",
            FloatKind::F8E4M3FN => "f8E4M3FN",
            FloatKind::F8E5M2 => "f8E5M2",
        }
    }
    /// Storage size in bits.
    pub fn bits(self) -> u32 {
        match self {
            FloatKind::F8E4M3FN | FloatKind::F8E5M2 => 8,
            FloatKind::F16 | FloatKind::BF16 => 16,
            FloatKind::TF32 | FloatKind::F32 => 32,
            FloatKind::F64 => 64,
        }
    }
}

impl Type {
    pub fn none() -> Type {
        Type::new(TypeData::None)
    }
    pub fn index() -> Type {
        Type::new(TypeData::Index)
    }
    /// A signless integer.
    pub fn int(width: u32) -> Type {
        Type::new(TypeData::Integer { width, signedness: Signedness::Signless })
    }
    pub fn unsigned(width: u32) -> Type {
        Type::new(TypeData::Integer { width, signedness: Signedness::Unsigned })
    }
    pub fn i1() -> Type {
        Type::int(1)
    }
    pub fn i8() -> Type {
        Type::int(8)
    }
    pub fn i32() -> Type {
        Type::int(32)
    }
    pub fn i64() -> Type {
        Type::int(64)
    }
    pub fn float(kind: FloatKind) -> Type {
        Type::new(TypeData::Float(kind))
    }
    pub fn f16() -> Type {
        Type::float(FloatKind::F16)
    }
    pub fn bf16() -> Type {
        Type::float(FloatKind::BF16)
    }
    pub fn tf32() -> Type {
        Type::float(FloatKind::TF32)
    }
    pub fn f32() -> Type {
        Type::float(FloatKind::F32)
    }
    pub fn f64() -> Type {
        Type::float(FloatKind::F64)
    }
    pub fn tensor(shape: &[Dim], elem: Type) -> Type {
        Type::new(TypeData::Tensor { shape: shape.into(), elem, encoding: None })
    }
    pub fn tensor_of(shape: &[i64], elem: Type) -> Type {
        Type::new(TypeData::Tensor { shape: shape.iter().map(|&n| Dim::Static(n)).collect(), elem, encoding: None })
    }
    /// A memref with the identity layout in the memory space numbered `space` (0: the default one).
    pub fn memref(shape: &[Dim], elem: Type, space: i64) -> Type {
        let space = (space != 0).then(|| Attr::int(space, Type::i64()));
        Type::new(TypeData::MemRef { shape: shape.into(), elem, layout: None, space })
    }
    /// The same memref with elements `strides` apart along each dimension, MLIR's `strided<[…]>`; row-major ones are no layout.
    pub fn with_strides(self, strides: &[Dim]) -> Type {
        let mut data = self.data().clone();
        let TypeData::MemRef { shape, layout, .. } = &mut data else { return self };
        let words: Vec<String> = strides.iter().map(|stride| stride.to_string()).collect();
        let dense = row_major(shape) == strides;
        *layout = (!dense).then(|| Attr::new(AttrData::Opaque(Name::new(&format!("strided<[{}]>", words.join(", "))))));
        Type::new(data)
    }
    pub fn vector(shape: &[i64], elem: Type) -> Type {
        Type::new(TypeData::Vector { shape: shape.into(), elem })
    }
    pub fn tile(shape: &[i64], elem: Type, layout: Option<Attr>) -> Type {
        Type::new(TypeData::Tile { shape: shape.into(), elem, layout })
    }
    pub fn function(inputs: &[Type], results: &[Type]) -> Type {
        Type::new(TypeData::Function { inputs: inputs.into(), results: results.into() })
    }
    /// `!rc.name<params>`.
    pub fn dialect(name: &str, params: &[Attr]) -> Type {
        Type::new(TypeData::Dialect { name: Name::new(name), params: params.into() })
    }

    /// The element type of a shaped type, the type itself otherwise.
    pub fn elem(self) -> Type {
        match self.data() {
            TypeData::Tensor { elem, .. }
            | TypeData::MemRef { elem, .. }
            | TypeData::Vector { elem, .. }
            | TypeData::Tile { elem, .. }
            | TypeData::UnrankedTensor(elem)
            | TypeData::UnrankedMemRef { elem, .. } => *elem,
            _ => self,
        }
    }
    /// The dimensions of a ranked tensor or memref, vector or tile; of a scalar, none.
    pub fn shape(self) -> smallvec::SmallVec<[Dim; 4]> {
        match self.data() {
            TypeData::Tensor { shape, .. } | TypeData::MemRef { shape, .. } => shape.iter().copied().collect(),
            TypeData::Vector { shape, .. } | TypeData::Tile { shape, .. } => {
                shape.iter().map(|&n| Dim::Static(n)).collect()
            }
            _ => Default::default(),
        }
    }
    /// Whether a tensor's or memref's elements follow one another in row-major order.
    pub fn is_row_major(self) -> bool {
        !matches!(self.data(), TypeData::MemRef { layout: Some(_), .. })
    }
    /// How many elements apart neighbours along each dimension of a memref lie; `None` where its layout is no list of integers.
    pub fn strides(self) -> Option<smallvec::SmallVec<[Dim; 4]>> {
        let TypeData::MemRef { shape, layout: Some(layout), .. } = self.data() else {
            return Some(row_major(&self.shape()).into());
        };
        let AttrData::Opaque(text) = layout.data() else { return None };
        let list = text.as_str().strip_prefix("strided<[")?.strip_suffix("]>")?;
        let strides = list.split(',').map(|word| Some(Dim::Static(word.trim().parse().ok()?)));
        strides.collect::<Option<_>>().filter(|strides: &smallvec::SmallVec<[Dim; 4]>| strides.len() == shape.len())
    }
    /// A memref's elements, in the same order, in another shape; `None` where no strides give that.
    pub fn seen_as(self, new: &[Dim]) -> Option<Type> {
        let plain = Type::new(match self.data() {
            TypeData::MemRef { elem, space, .. } => {
                TypeData::MemRef { shape: new.into(), elem: *elem, layout: None, space: *space }
            }
            _ => return None,
        });
        if self.is_row_major() {
            return (self.num_elements() == plain.num_elements()).then_some(plain);
        }
        Some(plain.with_strides(&restrided(&self.shape(), &self.strides()?, new)?))
    }
    pub fn rank(self) -> usize {
        match self.data() {
            TypeData::Tensor { shape, .. } | TypeData::MemRef { shape, .. } => shape.len(),
            TypeData::Vector { shape, .. } | TypeData::Tile { shape, .. } => shape.len(),
            _ => 0,
        }
    }
    /// The sizes where all are integers.
    pub fn static_shape(self) -> Option<Vec<i64>> {
        self.shape().iter().map(|d| d.as_static()).collect()
    }
    /// The product of the dimensions; 1 for a scalar.
    pub fn num_elements(self) -> Dim {
        self.shape().iter().fold(Dim::Static(1), |n, &d| n * d)
    }
    /// The same shaped type with another element type; another scalar, for a scalar.
    pub fn with_elem(self, new: Type) -> Type {
        let mut data = self.data().clone();
        match &mut data {
            TypeData::Tensor { elem, .. }
            | TypeData::MemRef { elem, .. }
            | TypeData::Vector { elem, .. }
            | TypeData::Tile { elem, .. } => *elem = new,
            _ => return new,
        }
        Type::new(data)
    }
    /// The same tensor or memref with another shape.
    pub fn with_shape(self, new: &[Dim]) -> Type {
        let mut data = self.data().clone();
        match &mut data {
            TypeData::Tensor { shape, .. } | TypeData::MemRef { shape, .. } => *shape = new.into(),
            TypeData::Vector { shape, .. } | TypeData::Tile { shape, .. } => {
                *shape = new.iter().map(|d| d.as_static().expect("vectors and tiles have fixed sizes")).collect()
            }
            _ => return Type::tensor(new, self),
        }
        Type::new(data)
    }
    pub fn is_tensor(self) -> bool {
        matches!(self.data(), TypeData::Tensor { .. })
    }
    pub fn is_memref(self) -> bool {
        matches!(self.data(), TypeData::MemRef { .. })
    }
    pub fn is_vector(self) -> bool {
        matches!(self.data(), TypeData::Vector { .. })
    }
    pub fn is_tile(self) -> bool {
        matches!(self.data(), TypeData::Tile { .. })
    }
    pub fn is_index(self) -> bool {
        matches!(self.data(), TypeData::Index)
    }
    /// A float scalar.
    pub fn is_float(self) -> bool {
        matches!(self.data(), TypeData::Float(_))
    }
    /// An integer scalar, `i1` included, `index` not.
    pub fn is_int(self) -> bool {
        matches!(self.data(), TypeData::Integer { .. })
    }
    pub fn is_unsigned(self) -> bool {
        matches!(self.data(), TypeData::Integer { signedness: Signedness::Unsigned, .. })
    }
    /// A float, integer or index.
    pub fn is_scalar(self) -> bool {
        self.is_float() || self.is_int() || self.is_index()
    }
    pub fn float_kind(self) -> Option<FloatKind> {
        if let TypeData::Float(k) = self.data() { Some(*k) } else { None }
    }
    /// Bits of a scalar: floats and integers by width, `index` 64.
    pub fn bit_width(self) -> Option<u32> {
        match self.data() {
            TypeData::Integer { width, .. } => Some(*width),
            TypeData::Float(k) => Some(k.bits()),
            TypeData::Index => Some(64),
            _ => None,
        }
    }
    /// Bytes that an element takes in memory: `i1` takes one.
    pub fn byte_width(self) -> Option<u64> {
        self.bit_width().map(|bits| u64::from(bits.div_ceil(8)))
    }
    /// The inputs and results of a function type.
    pub fn as_function(self) -> Option<(&'static [Type], &'static [Type])> {
        if let TypeData::Function { inputs, results } = self.data() { Some((inputs, results)) } else { None }
    }
    /// Applies `f` to every dimension, inside functions, tuples and complex types too.
    pub fn map_dims(self, f: &dyn Fn(Dim) -> Dim) -> Type {
        let mut data = self.data().clone();
        match &mut data {
            TypeData::Tensor { shape, .. } | TypeData::MemRef { shape, .. } => {
                shape.iter_mut().for_each(|d| *d = f(*d))
            }
            TypeData::Function { inputs, results } => {
                inputs.iter_mut().chain(results.iter_mut()).for_each(|t| *t = t.map_dims(f))
            }
            TypeData::Tuple(types) => types.iter_mut().for_each(|t| *t = t.map_dims(f)),
            _ => return self,
        }
        Type::new(data)
    }
}

/// Row-major strides in elements.
fn row_major(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::Static(1); shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The strides of the same elements in another shape. Neighbouring dimensions of which the outer one steps over the whole inner one are a run; the new
/// dimensions must be those of each run in turn.
fn restrided(shape: &[Dim], strides: &[Dim], new: &[Dim]) -> Option<Vec<Dim>> {
    let one = Dim::Static(1);
    let mut runs: Vec<(Dim, Dim)> = Vec::new();
    for (&size, &stride) in shape.iter().zip(strides).filter(|(size, _)| **size != one) {
        match runs.last_mut() {
            Some(run) if run.1 == stride * size => *run = (run.0 * size, stride),
            _ => runs.push((size, stride)),
        }
    }
    let mut out = Vec::new();
    for (size, stride) in runs {
        let first = out.len();
        let mut elements = one;
        while elements != size {
            elements = elements * *new.get(out.len())?;
            out.push(one);
        }
        out.splice(first.., row_major(&new[first..out.len()]).into_iter().map(|apart| apart * stride));
    }
    let rest = new[out.len()..].iter().all(|&size| size == one);
    out.resize(new.len(), one);
    rest.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(list: &[i64]) -> Vec<Dim> {
        list.iter().map(|&n| Dim::Static(n)).collect()
    }

    #[test]
    fn strided_memrefs_are_seen_in_other_shapes() {
        let rows = Type::memref(&sizes(&[4, 6, 8]), Type::f32(), 0).with_strides(&sizes(&[240, 40, 1]));
        assert_eq!(rows.to_string(), "memref<4x6x8xf32, strided<[240, 40, 1]>>");
        let strides = |shape: &[i64]| rows.seen_as(&sizes(shape)).map(|ty| ty.strides().unwrap().to_vec());
        assert_eq!(strides(&[24, 8]), Some(sizes(&[40, 1])));
        assert_eq!(strides(&[2, 1, 12, 2, 4]), Some(sizes(&[480, 480, 40, 4, 1])));
        assert_eq!(strides(&[24, 1, 8]).map(|s| (s[0], s[2])), Some((Dim::Static(40), Dim::Static(1))));
        assert_eq!(strides(&[192]), None);
        assert_eq!(strides(&[16, 12]), None);
        assert_eq!(strides(&[24, 9]), None);
        let dense = Type::memref(&sizes(&[4, 6]), Type::f32(), 0);
        assert_eq!(dense.with_strides(&sizes(&[6, 1])), dense);
        assert_eq!(dense.seen_as(&sizes(&[24])), Some(Type::memref(&sizes(&[24]), Type::f32(), 0)));
    }
}
