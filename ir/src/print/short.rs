//! Short spellings: of attributes whose declared kind says what they are, and of what is inside
//! `#rc.name<…>`, where a bare integer is an `i64`, `[1, 2]` is `array<i64: 1, 2>` and a bare word is a string.

use super::Form;
use super::types::{is_identifier, write_attr, write_dims, write_float, write_key, write_string};
use crate::attr::{Attr, AttrData};
use crate::intern::Name;
use crate::op_def::AttrKind;
use crate::types::{FloatKind, Type};
use std::fmt::{self, Write};

/// Words that start an attribute or a type, and so are no bare strings.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "unit",
    "dense",
    "dense_resource",
    "sparse",
    "array",
    "affine_map",
    "affine_set",
    "strided",
    "loc",
    "distinct",
    "none",
    "index",
    "tensor",
    "memref",
    "vector",
    "tuple",
    "complex",
    "opaque",
];

/// Whether the string `text` can be written without quotes where any attribute may stand.
pub fn is_bare_word(text: &str) -> bool {
    is_identifier(text) && !RESERVED.contains(&text) && !is_scalar_type(text)
}

fn is_scalar_type(text: &str) -> bool {
    let width = text.strip_prefix("si").or_else(|| text.strip_prefix("ui")).or_else(|| text.strip_prefix('i'));
    let integer = width.is_some_and(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit()));
    integer
        || text == "f80"
        || text == "f128"
        || FloatKind::ALL.iter().any(|k| k.as_str() == text)
        || text.starts_with("f8E")
}

/// Writes an attribute as it stands inside `#rc.name<…>` in the pretty form.
pub fn write_short(f: &mut dyn Write, attr: Attr) -> fmt::Result {
    match attr.data() {
        AttrData::Int { value, ty } if *ty == Type::i64() => write!(f, "{value}"),
        AttrData::Float { bits, ty } if *ty == Type::f64() && f64::from_bits(*bits).is_finite() => {
            write_float(f, *ty, *bits)
        }
        AttrData::String(text) if is_bare_word(text) => f.write_str(text),
        AttrData::DenseArray { elem, values } if *elem == Type::i64() && !values.is_empty() => write_ints(f, values),
        // An array of plain integers would read as a dense array.
        AttrData::Array(items) if !items.iter().all(|&a| is_plain_int(a)) => {
            f.write_char('[')?;
            for (i, &item) in items.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_short(f, item)?;
            }
            f.write_char(']')
        }
        AttrData::Dict(entries) => {
            f.write_char('{')?;
            for (i, (key, value)) in entries.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_key(f, *key)?;
                if !matches!(value.data(), AttrData::Unit) {
                    f.write_str(" = ")?;
                    write_short(f, *value)?;
                }
            }
            f.write_char('}')
        }
        _ => write_attr(f, attr, Form::Pretty),
    }
}

fn is_plain_int(attr: Attr) -> bool {
    matches!(attr.data(), AttrData::Int { ty, .. } if *ty == Type::i64())
}

/// `key = value, flag, value`: the inside of `#rc.name<…>`. A bare word is a flag, so strings without a key are quoted.
pub fn write_params(f: &mut dyn Write, params: &[(Name, Attr)], form: Form) -> fmt::Result {
    let write = |f: &mut dyn Write, value: Attr| match form {
        Form::Generic => write_attr(f, value, form),
        Form::Pretty => write_short(f, value),
    };
    for (i, (key, value)) in params.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        match (key.is_empty(), value.data()) {
            (true, AttrData::String(text)) => write_string(f, text)?,
            (true, _) => write(f, *value)?,
            (false, AttrData::Unit) if is_bare_word(key.as_str()) => f.write_str(key.as_str())?,
            (false, _) => {
                write_key(f, *key)?;
                f.write_str(" = ")?;
                write(f, *value)?;
            }
        }
    }
    Ok(())
}

fn write_ints(f: &mut dyn Write, values: &[i64]) -> fmt::Result {
    f.write_char('[')?;
    for (i, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
    }
    f.write_char(']')
}

/// Writes an attribute of the declared kind `kind`, which must accept it, in the kind's own spelling.
pub fn write_kind(f: &mut dyn Write, kind: AttrKind, attr: Attr) -> fmt::Result {
    match (kind, attr.data()) {
        (AttrKind::I64, AttrData::Int { value, ty }) if *ty == Type::i64() => write!(f, "{value}"),
        (AttrKind::I32, AttrData::Int { value, .. }) => write!(f, "{value}"),
        (AttrKind::F32 | AttrKind::F64, AttrData::Float { bits, ty }) => write_float(f, *ty, *bits),
        (AttrKind::Enum(_), AttrData::String(text)) if is_identifier(text) => f.write_str(text),
        (AttrKind::I64Array | AttrKind::I32Array, AttrData::DenseArray { values, .. }) => write_ints(f, values),
        (AttrKind::Shape, AttrData::Shape(dims)) => write_dims(f, dims),
        (AttrKind::StrArray | AttrKind::ShapeArray, AttrData::Array(items)) => {
            f.write_char('[')?;
            for (i, item) in items.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                match item.data() {
                    AttrData::String(text) if is_identifier(text) => f.write_str(text)?,
                    AttrData::Shape(dims) => write_dims(f, dims)?,
                    _ => write_attr(f, *item, Form::Pretty)?,
                }
            }
            f.write_char(']')
        }
        (AttrKind::Dialect(_), AttrData::Dialect { params, .. }) => {
            f.write_char('<')?;
            write_params(f, params, Form::Pretty)?;
            f.write_char('>')
        }
        _ => write_attr(f, attr, Form::Pretty),
    }
}
