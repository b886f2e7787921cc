//! Types. `Type` is a 4-byte interned handle; [`TypeData`] says what it stands for.

use crate::attr::Attr;
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
