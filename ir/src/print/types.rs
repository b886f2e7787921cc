//! Text of types and attributes, in MLIR's syntax.

use super::Form;
use crate::attr::{Attr, AttrData, DenseData, float_from_bits, scalar_value};
use crate::dim::Dim;
use crate::intern::Name;
use crate::loc::{Loc, LocData};
use crate::types::{FloatKind, Signedness, Type, TypeData};
use std::fmt::{self, Write};

/// Writes a type. The pretty form spells symbolic sizes out: `tensor<s x 768 x f32>`.
pub fn write_type(f: &mut dyn Write, ty: Type, form: Form) -> fmt::Result {
    match ty.data() {
        TypeData::None => f.write_str("none"),
        TypeData::Index => f.write_str("index"),
        TypeData::Integer { width, signedness } => {
            f.write_str(match signedness {
                Signedness::Signless => "i",
                Signedness::Signed => "si",
                Signedness::Unsigned => "ui",
            })?;
            write_int(f, *width)
        }
        TypeData::Float(kind) => f.write_str(kind.as_str()),
        TypeData::Complex(elem) => {
            f.write_str("complex<")?;
            write_type(f, *elem, form)?;
            f.write_char('>')
        }
        TypeData::Tensor { shape, elem, encoding } => {
            f.write_str("tensor<")?;
            write_shaped(f, shape, *elem, form)?;
            // MLIR's tensors have one encoding: it holds the symbolic sizes and any other encoding.
            let encoding = match encoding {
                _ if form == Form::Pretty || !is_symbolic(shape) => *encoding,
                None => Some(Attr::shape(shape)),
                Some(other) => Some(Attr::dialect("encoding", &[("shape", Attr::shape(shape)), ("with", *other)])),
            };
            write_tail(f, &[encoding], form)
        }
        TypeData::MemRef { shape, elem, layout, space } => {
            f.write_str("memref<")?;
            write_shaped(f, shape, *elem, form)?;
            // MLIR takes no foreign attribute as a memory space, but it takes a dictionary.
            let space = match space {
                _ if form == Form::Pretty || !is_symbolic(shape) => *space,
                _ => {
                    let entries = [(Name::new("rc.shape"), Some(Attr::shape(shape))), (Name::new("rc.space"), *space)];
                    Some(Attr::dict(entries.into_iter().filter_map(|(key, value)| Some((key, value?)))))
                }
            };
            write_tail(f, &[*layout, space], form)
        }
        TypeData::UnrankedTensor(elem) => {
            f.write_str("tensor<*x")?;
            write_type(f, *elem, form)?;
            f.write_char('>')
        }
        TypeData::UnrankedMemRef { elem, space } => {
            f.write_str("memref<*x")?;
            write_type(f, *elem, form)?;
            write_tail(f, &[*space], form)
        }
        TypeData::Vector { shape, elem } => {
            f.write_str("vector<")?;
            write_sizes(f, shape, *elem, form)?;
            f.write_char('>')
        }
        TypeData::Tile { shape, elem, layout } => {
            f.write_str("!rc.tile<")?;
            write_sizes(f, shape, *elem, form)?;
            write_tail(f, &[*layout], form)
        }
        TypeData::Tuple(types) => {
            f.write_str("tuple<")?;
            write_types(f, types, form)?;
            f.write_char('>')
        }
        TypeData::Function { inputs, results } => {
            f.write_char('(')?;
            write_types(f, inputs, form)?;
            f.write_str(") -> ")?;
            write_results(f, results, form)
        }
        TypeData::Dialect { name, params } => {
            write!(f, "!rc.{name}")?;
            if !params.is_empty() {
                f.write_char('<')?;
                let params: Vec<_> = params.iter().map(|&p| (Name::EMPTY, p)).collect();
                super::write_params(f, &params, form)?;
                f.write_char('>')?;
            }
            Ok(())
        }
        TypeData::Opaque(text) => {
            f.write_char('!')?;
            f.write_str(text.as_str())
        }
        TypeData::Foreign(text) => f.write_str(text.as_str()),
    }
}

/// Types with commas between.
pub fn write_types(f: &mut dyn Write, types: &[Type], form: Form) -> fmt::Result {
    for (i, &ty) in types.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write_type(f, ty, form)?;
    }
    Ok(())
}

/// One type bare, any other number (and a lone function type) in parentheses.
pub fn write_results(f: &mut dyn Write, types: &[Type], form: Form) -> fmt::Result {
    match types {
        [one] if one.as_function().is_none() => write_type(f, *one, form),
        _ => {
            f.write_char('(')?;
            write_types(f, types, form)?;
            f.write_char(')')
        }
    }
}

fn is_symbolic(shape: &[Dim]) -> bool {
    shape.iter().any(|d| matches!(d, Dim::Expr(_)))
}

fn write_shaped(f: &mut dyn Write, shape: &[Dim], elem: Type, form: Form) -> fmt::Result {
    let spelled = form == Form::Pretty && is_symbolic(shape);
    for dim in shape {
        match dim {
            Dim::Expr(_) if !spelled => f.write_str("?x")?,
            Dim::Static(n) if !spelled => {
                write_int(f, *n)?;
                f.write_char('x')?;
            }
            _ if !spelled => write!(f, "{dim}x")?,
            Dim::Expr(_) if dim.as_symbol().is_none() => write!(f, "({dim}) x ")?,
            _ => write!(f, "{dim} x ")?,
        }
    }
    write_type(f, elem, form)
}

fn write_sizes(f: &mut dyn Write, shape: &[i64], elem: Type, form: Form) -> fmt::Result {
    for n in shape {
        write_int(f, *n)?;
        f.write_char('x')?;
    }
    write_type(f, elem, form)
}

fn write_tail(f: &mut dyn Write, attrs: &[Option<Attr>], form: Form) -> fmt::Result {
    for attr in attrs.iter().flatten() {
        f.write_str(", ")?;
        match attr.data() {
            // A memory space's type is understood.
            AttrData::Int { value, ty } if *ty == Type::i64() => write_int(f, *value)?,
            _ => write_attr(f, *attr, form)?,
        }
    }
    f.write_char('>')
}

/// Attributes with commas between.
pub fn write_attrs(f: &mut dyn Write, attrs: &[Attr], form: Form) -> fmt::Result {
    for (i, &attr) in attrs.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write_attr(f, attr, form)?;
    }
    Ok(())
}

/// Writes an attribute with its type, as it stands in a dictionary of the generic form.
pub fn write_attr(f: &mut dyn Write, attr: Attr, form: Form) -> fmt::Result {
    match attr.data() {
        AttrData::Unit => f.write_str("unit"),
        AttrData::Bool(b) => write!(f, "{b}"),
        AttrData::Int { value, ty } => {
            if *ty == Type::i1() {
                return write!(f, "{}", *value != 0);
            }
            write_int(f, *value)?;
            f.write_str(" : ")?;
            write_type(f, *ty, form)
        }
        AttrData::Float { bits, ty } => {
            write_float(f, *ty, *bits)?;
            f.write_str(" : ")?;
            write_type(f, *ty, form)
        }
        AttrData::String(text) => write_string(f, text),
        AttrData::Type(ty) => write_type(f, *ty, form),
        AttrData::Array(items) => {
            f.write_char('[')?;
            write_attrs(f, items, form)?;
            f.write_char(']')
        }
        AttrData::Dict(entries) => {
            f.write_char('{')?;
            write_entries(f, entries, form)?;
            f.write_char('}')
        }
        AttrData::DenseArray { elem, values } => {
            f.write_str("array<")?;
            write_type(f, *elem, form)?;
            for (i, &value) in values.iter().enumerate() {
                f.write_str(if i == 0 { ": " } else { ", " })?;
                match elem.data() {
                    TypeData::Float(_) => write_float(f, *elem, value as u64)?,
                    _ if *elem == Type::i1() => write!(f, "{}", value != 0)?,
                    _ => write_int(f, value)?,
                }
            }
            f.write_char('>')
        }
        AttrData::Symbol { root, nested } => {
            write_symbol(f, *root)?;
            for name in nested {
                f.write_str("::")?;
                write_symbol(f, *name)?;
            }
            Ok(())
        }
        // To MLIR a tile is opaque, so its elements are given as a tensor's.
        AttrData::Dense { ty, data } if form == Form::Generic && ty.is_tile() => {
            let tensor = Type::tensor(&ty.shape(), ty.elem());
            f.write_str("#rc.dense<dense<")?;
            write_elements(f, *ty, data)?;
            f.write_str("> : ")?;
            write_type(f, tensor, form)?;
            f.write_str(", ")?;
            write_type(f, *ty, form)?;
            f.write_char('>')
        }
        // MLIR takes only its own types for these, so they go inside an attribute of rc's.
        AttrData::Dense { ty, .. } | AttrData::Resource { ty, .. } if form == Form::Generic && ty.is_tile() => {
            f.write_str("#rc.elements<")?;
            write_attr(f, of_tensor(attr), form)?;
            f.write_str(", ")?;
            write_type(f, *ty, form)?;
            f.write_char('>')
        }
        AttrData::Dense { ty, data } => {
            f.write_str("dense<")?;
            write_elements(f, *ty, data)?;
            f.write_str("> : ")?;
            write_type(f, *ty, form)
        }
        AttrData::Resource { name, ty } => {
            f.write_str("dense_resource<")?;
            write_key(f, *name)?;
            f.write_str("> : ")?;
            write_type(f, *ty, form)
        }
        AttrData::Shape(dims) => {
            f.write_str("#rc.shape<")?;
            write_dims(f, dims)?;
            f.write_char('>')
        }
        AttrData::Dialect { name, params } => {
            write!(f, "#rc.{name}")?;
            if !params.is_empty() {
                f.write_char('<')?;
                super::write_params(f, params, form)?;
                f.write_char('>')?;
            }
            Ok(())
        }
        AttrData::Opaque(text) => f.write_str(text.as_str()),
    }
}

/// A constant of a tile's type as one of a tensor's.
fn of_tensor(attr: Attr) -> Attr {
    let tensor = |ty: &Type| Type::tensor(&ty.shape(), ty.elem());
    match attr.data() {
        AttrData::Dense { ty, data } => Attr::new(AttrData::Dense { ty: tensor(ty), data: data.clone() }),
        AttrData::Resource { name, ty } => Attr::resource(*name, tensor(ty)),
        _ => attr,
    }
}

/// `[s, 768]`.
pub fn write_dims(f: &mut dyn Write, dims: &[Dim]) -> fmt::Result {
    f.write_char('[')?;
    for (i, dim) in dims.iter().enumerate() {
        write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
    }
    f.write_char(']')
}

/// `a = 1 : i64, b`, where `b` is a unit.
pub fn write_entries(f: &mut dyn Write, entries: &[(Name, Attr)], form: Form) -> fmt::Result {
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write_key(f, *key)?;
        if !matches!(value.data(), AttrData::Unit) {
            f.write_str(" = ")?;
            write_attr(f, *value, form)?;
        }
    }
    Ok(())
}

/// Whether `text` is an identifier as attribute names and symbols are: `[A-Za-z_][A-Za-z0-9_$.]*`.
pub fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.'))
}

/// An attribute's name, quoted where it must be.
pub fn write_key(f: &mut dyn Write, name: Name) -> fmt::Result {
    if is_identifier(name.as_str()) { f.write_str(name.as_str()) } else { write_string(f, name.as_str()) }
}

/// `@name`.
pub fn write_symbol(f: &mut dyn Write, name: Name) -> fmt::Result {
    f.write_char('@')?;
    write_key(f, name)
}

/// A string literal with MLIR's escapes: `\\`, `\"` as `\22`, control and non-ASCII bytes as hex pairs.
pub fn write_string(f: &mut dyn Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for byte in text.bytes() {
        match byte {
            b'\\' => f.write_str("\\\\")?,
            b'"' => f.write_str("\\22")?,
            0x20..=0x7e => f.write_char(byte as char)?,
            _ => write!(f, "\\{byte:02X}")?,
        }
    }
    f.write_char('"')
}

/// An integer in decimal digits.
fn write_int(f: &mut dyn Write, value: impl itoa::Integer) -> fmt::Result {
    f.write_str(itoa::Buffer::new().format(value))
}

/// A float literal that reads back to the same bits: six digits where they suffice, more where not,
/// hexadecimal for infinities and NaNs.
pub fn write_float(f: &mut dyn Write, ty: Type, bits: u64) -> fmt::Result {
    let kind = ty.float_kind().unwrap_or(FloatKind::F64);
    let value = float_from_bits(kind, bits);
    let digits = if value.is_finite() { &[6, 9, 17][..] } else { &[] };
    for &digits in digits {
        let text = Scientific::of(value, digits);
        if text.as_str().parse::<f64>().is_ok_and(|v| crate::attr::float_to_bits(kind, v) == bits) {
            return text.write(f);
        }
    }
    match kind {
        // MLIR writes the 19 bits that the format has.
        FloatKind::TF32 => write!(f, "0x{:05X}", bits >> 13),
        _ => write!(f, "0x{bits:0width$X}", width = kind.bits() as usize / 4),
    }
}

/// A number as `-1.25e-1`, in place: large constants have many.
#[derive(Default)]
struct Scientific {
    bytes: [u8; 32],
    len: usize,
}

impl Scientific {
    fn of(value: f64, digits: usize) -> Scientific {
        let mut text = Scientific::default();
        write!(text, "{value:.digits$e}").expect("at most 25 bytes");
        text
    }
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("digits and signs")
    }
    /// As C's `%e` writes it: `-1.250000e-01`.
    fn write(&self, f: &mut dyn Write) -> fmt::Result {
        let (mantissa, exponent) = self.as_str().split_once('e').expect("an exponent");
        f.write_str(mantissa)?;
        let (sign, digits) = exponent.strip_prefix('-').map_or(("e+", exponent), |digits| ("e-", digits));
        f.write_str(sign)?;
        f.write_str(if digits.len() < 2 { "0" } else { "" })?;
        f.write_str(digits)
    }
}

impl Write for Scientific {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

fn write_elements(f: &mut dyn Write, ty: Type, data: &DenseData) -> fmt::Result {
    let elem = ty.elem();
    let width = elem.byte_width().unwrap_or(8).max(1) as usize;
    let element = |f: &mut dyn Write, i: usize| write_element(f, elem, &data.bytes[i * width..(i + 1) * width]);
    let sizes: Vec<usize> = ty.shape().iter().map(|d| d.as_static().unwrap_or(0).max(0) as usize).collect();
    // To MLIR, equal elements are a splat however they are given.
    let first = data.bytes.get(..width);
    if data.splat || first.is_some_and(|first| data.bytes.chunks(width).all(|element| element == first)) {
        return element(f, 0);
    }
    if sizes.contains(&0) {
        return Ok(());
    }
    write_nested(f, &sizes, &mut 0, &element)
}

fn write_nested(
    f: &mut dyn Write,
    sizes: &[usize],
    next: &mut usize,
    element: &dyn Fn(&mut dyn Write, usize) -> fmt::Result,
) -> fmt::Result {
    let Some((&n, inner)) = sizes.split_first() else {
        *next += 1;
        return element(f, *next - 1);
    };
    f.write_char('[')?;
    for i in 0..n {
        if i > 0 {
            f.write_str(", ")?;
        }
        write_nested(f, inner, next, element)?;
    }
    f.write_char(']')
}

fn write_element(f: &mut dyn Write, elem: Type, bytes: &[u8]) -> fmt::Result {
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match elem.data() {
        TypeData::Float(_) => write_float(f, elem, bits),
        TypeData::Integer { width: 1, .. } => write!(f, "{}", bits & 1 != 0),
        TypeData::Integer { width: 64, signedness: Signedness::Unsigned } => write_int(f, bits),
        TypeData::Integer { width: 64, .. } | TypeData::Index => write_int(f, bits as i64),
        _ => write!(f, "{}", scalar_value(elem, bytes)),
    }
}

/// `loc("file":1:2)`, without the word `loc`.
pub fn write_loc(f: &mut dyn Write, loc: Loc) -> fmt::Result {
    match loc.data() {
        None => match loc.source() {
            Some((source, offset)) => {
                let (line, col) = source.line_col(offset);
                write_string(f, &source.name)?;
                write!(f, ":{line}:{col}")
            }
            None => f.write_str("unknown"),
        },
        Some(LocData::File { file, line, col }) => {
            write_string(f, file.as_str())?;
            write!(f, ":{line}:{col}")
        }
        Some(LocData::Named { name, child }) => {
            write_string(f, name.as_str())?;
            if *child != Loc::UNKNOWN {
                f.write_char('(')?;
                write_loc(f, *child)?;
                f.write_char(')')?;
            }
            Ok(())
        }
        Some(LocData::Fused(parts)) => {
            f.write_str("fused[")?;
            for (i, part) in parts.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_loc(f, *part)?;
            }
            f.write_char(']')
        }
        Some(LocData::CallSite { callee, caller }) => {
            f.write_str("callsite(")?;
            write_loc(f, *callee)?;
            f.write_str(" at ")?;
            write_loc(f, *caller)?;
            f.write_char(')')
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, *self, Form::Pretty)
    }
}
impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type(f, *self, Form::Pretty)
    }
}
impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_attr(f, *self, Form::Pretty)
    }
}
impl fmt::Debug for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_attr(f, *self, Form::Pretty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_in_both_forms() {
        let s = Dim::symbol("s");
        let t = Type::tensor(&[s, Dim::Static(768), s + 1.into()], Type::f32());
        assert_eq!(t.to_string(), "tensor<s x 768 x (s + 1) x f32>");
        let mut generic = String::new();
        write_type(&mut generic, t, Form::Generic).unwrap();
        assert_eq!(generic, "tensor<?x768x?xf32, #rc.shape<[s, 768, s + 1]>>");
        assert_eq!(Type::tensor_of(&[0, 4], Type::i1()).to_string(), "tensor<0x4xi1>");
        assert_eq!(Type::memref(&[4.into()], Type::bf16(), 3).to_string(), "memref<4xbf16, 3>");
        assert_eq!(Type::function(&[Type::f32()], &[]).to_string(), "(f32) -> ()");
        assert_eq!(Type::tile(&[8, 16], Type::f32(), None).to_string(), "!rc.tile<8x16xf32>");
    }

    #[test]
    fn attributes() {
        let f32s = Type::tensor_of(&[2, 2], Type::f32());
        let bytes: Vec<u8> = [1.0f32, -0.125, f32::INFINITY, 0.1].iter().flat_map(|x| x.to_le_bytes()).collect();
        let dense = Attr::dense(f32s, bytes).to_string();
        assert_eq!(dense, "dense<[[1.000000e+00, -1.250000e-01], [0x7F800000, 1.000000e-01]]> : tensor<2x2xf32>");
        assert_eq!(Attr::splat(f32s, 0.0).to_string(), "dense<0.000000e+00> : tensor<2x2xf32>");
        assert_eq!(Attr::float(0.1, Type::f64()).to_string(), "1.000000e-01 : f64");
        assert_eq!(
            Attr::float(1.0 / 3.0, Type::f32()).to_string(),
            "0.333333343 : f32".replace("0.333333343", "3.333333433e-01")
        );
        assert_eq!(Attr::str("a\"b\\\n").to_string(), "\"a\\22b\\\\\\0A\"");
        assert_eq!(Attr::i64s(&[1, -2]).to_string(), "array<i64: 1, -2>");
        assert_eq!(
            Attr::dict([(Name::new("b"), Attr::unit()), (Name::new("a"), Attr::i64(3))]).to_string(),
            "{a = 3 : i64, b}"
        );
        assert_eq!(Attr::dialect("sched", &[("grid", Attr::i64s(&[4]))]).to_string(), "#rc.sched<grid = [4]>");
        assert_eq!(Attr::symbol("a-b").to_string(), "@\"a-b\"");
    }
}
