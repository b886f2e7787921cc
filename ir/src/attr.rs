//! Attributes: compile-time data on operations and in types. `Attr` is a 4-byte interned handle.
//! Large constants are not interned: they are [`AttrData::Resource`]s, kept in the module by name.

use crate::dim::Dim;
use crate::half_float::{f64_to_bf16, f64_to_f16, f64_to_f32_round_odd};
use crate::intern::{Name, interned};
use crate::types::{FloatKind, Type, TypeData};

interned!(
    /// An interned attribute.
    Attr, AttrData, ATTRS
);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttrData {
    Unit,
    Bool(bool),
    /// `3 : i64`, `3 : index`.
    Int {
        value: i128,
        ty: Type,
    },
    /// `bits` are those of the type's own format.
    Float {
        bits: u64,
        ty: Type,
    },
    String(Box<str>),
    Type(Type),
    Array(Box<[Attr]>),
    /// Sorted by key.
    Dict(Box<[(Name, Attr)]>),
    /// `array<i64: 1, 2>`; floats as their format's bits.
    DenseArray {
        elem: Type,
        values: Box<[i64]>,
    },
    /// `@root::@nested`.
    Symbol {
        root: Name,
        nested: Box<[Name]>,
    },
    /// `dense<…> : type`.
    Dense {
        ty: Type,
        data: DenseData,
    },
    /// `dense_resource<name> : type`; the bytes are the module's, see [`crate::module::Module::resources`].
    Resource {
        name: Name,
        ty: Type,
    },
    /// `#rc.shape<[s, 768]>`: dimensions, or the results of an index map over named iterators.
    Shape(Box<[Dim]>),
    /// `#rc.name<key = value, …>` or `#rc.name<value, …>` (with empty keys): rc's own attributes, one grammar for all.
    Dialect {
        name: Name,
        params: Box<[(Name, Attr)]>,
    },
    /// An attribute of a dialect that is not registered or a builtin that rc does not interpret
    /// (`#foo.bar<…>`, `affine_map<…>`), kept as its whole text.
    Opaque(Name),
}

/// Elements in row-major order, little-endian, `i1` as one byte each; of a splat, one element.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DenseData {
    pub splat: bool,
    pub bytes: Box<[u8]>,
}

impl std::fmt::Debug for DenseData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DenseData {{ splat: {}, {} bytes }}", self.splat, self.bytes.len())
    }
}

/// The bits of `value` rounded (to nearest, ties to even) to the format `kind`.
pub fn float_to_bits(kind: FloatKind, value: f64) -> u64 {
    match kind {
        FloatKind::F64 => value.to_bits(),
        FloatKind::F32 => u64::from((value as f32).to_bits()),
        FloatKind::TF32 => {
            if !value.is_finite() {
                return u64::from((value as f32).to_bits());
            }
            let bits = f64_to_f32_round_odd(value).to_bits();
            u64::from(bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff)
        }
        FloatKind::F16 => u64::from(f64_to_f16(value).to_bits()),
        FloatKind::BF16 => u64::from(f64_to_bf16(value).to_bits()),
        FloatKind::F8E4M3FN | FloatKind::F8E5M2 => crate::float8::encode(kind, value),
    }
}

/// The value of `bits` in the format `kind`, exactly.
pub fn float_from_bits(kind: FloatKind, bits: u64) -> f64 {
    match kind {
        FloatKind::F64 => f64::from_bits(bits),
        FloatKind::F32 | FloatKind::TF32 => f64::from(f32::from_bits(bits as u32)),
        FloatKind::F16 => half::f16::from_bits(bits as u16).to_f64(),
        FloatKind::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        FloatKind::F8E4M3FN | FloatKind::F8E5M2 => crate::float8::decode(kind, bits as u8),
    }
}

impl Attr {
    pub fn unit() -> Attr {
        Attr::new(AttrData::Unit)
    }
    pub fn bool(value: bool) -> Attr {
        Attr::new(AttrData::Bool(value))
    }
    pub fn int(value: i64, ty: Type) -> Attr {
        Attr::new(AttrData::Int { value: i128::from(value), ty })
    }
    pub fn i64(value: i64) -> Attr {
        Attr::int(value, Type::i64())
    }
    pub fn index(value: i64) -> Attr {
        Attr::int(value, Type::index())
    }
    /// `value` rounded to the float type `ty`.
    pub fn float(value: f64, ty: Type) -> Attr {
        let kind = ty.float_kind().expect("a float attribute has a float type");
        Attr::new(AttrData::Float { bits: float_to_bits(kind, value), ty })
    }
    pub fn str(text: &str) -> Attr {
        Attr::new(AttrData::String(text.into()))
    }
    pub fn ty(ty: Type) -> Attr {
        Attr::new(AttrData::Type(ty))
    }
    pub fn array(items: &[Attr]) -> Attr {
        Attr::new(AttrData::Array(items.into()))
    }
    /// A dictionary; keys may come in any order, the last of equal keys wins.
    pub fn dict(entries: impl IntoIterator<Item = (Name, Attr)>) -> Attr {
        let sorted: std::collections::BTreeMap<Name, Attr> = entries.into_iter().collect();
        Attr::new(AttrData::Dict(sorted.into_iter().collect()))
    }
    pub fn empty_dict() -> Attr {
        static EMPTY: std::sync::LazyLock<Attr> = std::sync::LazyLock::new(|| Attr::new(AttrData::Dict(Box::new([]))));
        *EMPTY
    }
    /// `array<i64: …>`.
    pub fn i64s(values: &[i64]) -> Attr {
        Attr::new(AttrData::DenseArray { elem: Type::i64(), values: values.into() })
    }
    /// `array<i32: …>`.
    pub fn i32s(values: &[i64]) -> Attr {
        Attr::new(AttrData::DenseArray { elem: Type::i32(), values: values.into() })
    }
    pub fn symbol(name: impl Into<Name>) -> Attr {
        Attr::new(AttrData::Symbol { root: name.into(), nested: Box::new([]) })
    }
    pub fn shape(dims: &[Dim]) -> Attr {
        Attr::new(AttrData::Shape(dims.into()))
    }
    /// `#rc.name<key = value, …>`.
    pub fn dialect(name: &str, params: &[(&str, Attr)]) -> Attr {
        let params = params.iter().map(|&(k, v)| (Name::new(k), v)).collect();
        Attr::new(AttrData::Dialect { name: Name::new(name), params })
    }
    /// `dense<value> : ty`, every element the same scalar; `value` is rounded to the element type.
    pub fn splat(ty: Type, value: f64) -> Attr {
        let bytes = scalar_bytes(ty.elem(), value);
        Attr::new(AttrData::Dense { ty, data: DenseData { splat: true, bytes } })
    }
    /// `dense<[…]> : ty` from row-major little-endian element bytes; a splat where all are equal, as MLIR has it.
    pub fn dense(ty: Type, bytes: impl Into<Box<[u8]>>) -> Attr {
        let bytes: Box<[u8]> = bytes.into();
        let width = ty.elem().byte_width().unwrap_or(1).max(1) as usize;
        let data = match bytes.get(..width) {
            Some(first) if bytes.chunks(width).all(|element| element == first) => {
                DenseData { splat: true, bytes: first.into() }
            }
            _ => DenseData { splat: false, bytes },
        };
        Attr::new(AttrData::Dense { ty, data })
    }
    pub fn resource(name: impl Into<Name>, ty: Type) -> Attr {
        Attr::new(AttrData::Resource { name: name.into(), ty })
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.data() {
            AttrData::Bool(b) => Some(*b),
            AttrData::Int { value, ty } if *ty == Type::i1() => Some(*value != 0),
            _ => None,
        }
    }
    pub fn as_int(self) -> Option<i64> {
        match self.data() {
            AttrData::Int { value, .. } => i64::try_from(*value).ok(),
            AttrData::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }
    pub fn as_float(self) -> Option<f64> {
        match self.data() {
            AttrData::Float { bits, ty } => Some(float_from_bits(ty.float_kind()?, *bits)),
            _ => None,
        }
    }
    pub fn as_str(self) -> Option<&'static str> {
        if let AttrData::String(s) = self.data() { Some(s) } else { None }
    }
    pub fn as_type(self) -> Option<Type> {
        if let AttrData::Type(t) = self.data() { Some(*t) } else { None }
    }
    pub fn as_array(self) -> Option<&'static [Attr]> {
        if let AttrData::Array(a) = self.data() { Some(a) } else { None }
    }
    pub fn as_dict(self) -> Option<&'static [(Name, Attr)]> {
        if let AttrData::Dict(d) = self.data() { Some(d) } else { None }
    }
    /// The values of a `array<iN: …>`, or of an array of integers.
    pub fn as_ints(self) -> Option<Vec<i64>> {
        match self.data() {
            AttrData::DenseArray { values, .. } => Some(values.to_vec()),
            AttrData::Array(items) => items.iter().map(|a| a.as_int()).collect(),
            _ => None,
        }
    }
    /// The root of a symbol reference.
    pub fn as_symbol(self) -> Option<Name> {
        if let AttrData::Symbol { root, .. } = self.data() { Some(*root) } else { None }
    }
    pub fn as_shape(self) -> Option<&'static [Dim]> {
        if let AttrData::Shape(s) = self.data() { Some(s) } else { None }
    }
    /// The parameters of `#rc.name<…>`.
    pub fn as_dialect(self, name: &str) -> Option<&'static [(Name, Attr)]> {
        match self.data() {
            AttrData::Dialect { name: n, params } if *n == name => Some(params),
            _ => None,
        }
    }
    /// An entry of a dictionary or a named parameter of an `#rc.…` attribute.
    pub fn get(self, key: &str) -> Option<Attr> {
        match self.data() {
            AttrData::Dict(entries) | AttrData::Dialect { params: entries, .. } => {
                entries.iter().find(|e| e.0 == key).map(|e| e.1)
            }
            _ => None,
        }
    }
    /// The dictionary with `key` set, or removed where `value` is `None`.
    pub fn with(self, key: Name, value: Option<Attr>) -> Attr {
        let entries = self.as_dict().expect("a dictionary attribute");
        let kept = entries.iter().copied().filter(|e| e.0 != key);
        Attr::dict(kept.chain(value.map(|v| (key, v))))
    }
    /// The value of a constant attribute that is one number everywhere (an int, a float, a splat).
    pub fn as_splat(self) -> Option<f64> {
        match self.data() {
            AttrData::Dense { ty, data } if data.splat => Some(scalar_value(ty.elem(), &data.bytes)),
            _ => self.as_float().or_else(|| self.as_int().map(|i| i as f64)),
        }
    }
    /// The type that the attribute states: of numbers and dense constants.
    pub fn type_of(self) -> Option<Type> {
        match self.data() {
            AttrData::Int { ty, .. }
            | AttrData::Float { ty, .. }
            | AttrData::Dense { ty, .. }
            | AttrData::Resource { ty, .. } => Some(*ty),
            AttrData::Bool(_) => Some(Type::i1()),
            _ => None,
        }
    }
}

/// The little-endian bytes of a scalar of type `elem`: floats rounded, integers truncated.
pub fn scalar_bytes(elem: Type, value: f64) -> Box<[u8]> {
    let width = elem.byte_width().expect("a scalar element type") as usize;
    let bits = match elem.data() {
        TypeData::Float(kind) => float_to_bits(*kind, value),
        TypeData::Integer { width: 1, .. } => u64::from(value != 0.0),
        _ if value > i64::MAX as f64 => value as u64,
        _ => value as i64 as u64,
    };
    bits.to_le_bytes()[..width].into()
}

/// The value of a scalar of type `elem` from its little-endian bytes. 64-bit integers round to `f64`.
pub fn scalar_value(elem: Type, bytes: &[u8]) -> f64 {
    let mut word = [0u8; 8];
    let width = bytes.len().min(8);
    word[..width].copy_from_slice(&bytes[..width]);
    let bits = u64::from_le_bytes(word);
    match elem.data() {
        TypeData::Float(kind) => float_from_bits(*kind, bits),
        TypeData::Integer { width: 1, .. } => (bits & 1) as f64,
        _ if elem.is_unsigned() => bits as f64,
        _ => {
            let shift = 64 - 8 * width as u32;
            (((bits << shift) as i64) >> shift) as f64
        }
    }
}
