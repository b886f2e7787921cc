//! The header of a `.npy` file: a magic number, a version, and a Python dictionary of three keys.

use std::io::Read;
use std::path::Path;

use crate::tensor::DType;
use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy itself reads no header longer than 10,000 bytes unless told to.
const LONGEST: usize = 1 << 16;

pub(super) struct Header {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
}

/// Reads the header; also gives its length in bytes, magic number included.
pub(super) fn read(reader: &mut impl Read, path: &Path) -> Result<(Header, u64)> {
    let mut start = [0; 8];
    fill(reader, &mut start, path, "the 8 bytes that start a .npy file")?;
    if &start[..6] != MAGIC {
        return Err(Error::format(
            path,
            "a .npy file, which starts with \\x93NUMPY",
            format!("{:?}", start[..6].escape_ascii().to_string()),
        ));
    }
    let length_bytes = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => {
            return Err(Error::format(path, ".npy version 1, 2 or 3", format!("version {version}")));
        }
    };
    let mut length = [0; 4];
    fill(reader, &mut length[..length_bytes], path, "the header's length")?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(Error::format(path, format!("a header of at most {LONGEST} bytes"), format!("one of {length}")));
    }
    let mut text = vec![0; length];
    fill(reader, &mut text, path, &format!("a header of {length} bytes"))?;
    let text = str::from_utf8(&text).map_err(|_| Error::format(path, "a header in UTF-8", "other bytes"))?;
    Ok((parse(text, path)?, (8 + length_bytes + length) as u64))
}

fn fill(reader: &mut impl Read, bytes: &mut [u8], path: &Path, what: &str) -> Result<()> {
    super::read_exactly(reader, bytes).map_err(|e| match e {
        super::Short::Ended(found) => {
            Error::format(path, what, format!("the file's end after {found} of {} bytes", bytes.len()))
        }
        super::Short::Failed(e) => Error::io(path, e),
    })
}

fn parse(text: &str, path: &Path) -> Result<Header> {
    let inner = text
        .trim()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .ok_or_else(|| Error::format(path, "a dictionary as header", excerpt(text)))?;
    let value = |key: &str| {
        value_of(inner, key).ok_or_else(|| Error::format(path, format!("{key} in the header"), excerpt(text)))
    };
    let dtype = parse_descriptor(value("'descr'")?, path)?;
    match value("'fortran_order'")? {
        "False" => {}
        "True" => {
            let expected = "row-major (C) order; save `numpy.ascontiguousarray(x)`";
            return Err(Error::format(path, expected, "Fortran order"));
        }
        other => {
            return Err(Error::format(path, "'fortran_order': True or False", excerpt(other)));
        }
    }
    let shape_text = value("'shape'")?;
    let shape =
        parse_shape(shape_text).ok_or_else(|| Error::format(path, "a shape such as (2, 3)", excerpt(shape_text)))?;
    Ok(Header { dtype, shape })
}

/// The text of the value after `key` and a colon, up to the comma that ends it.
fn value_of<'a>(inner: &'a str, key: &str) -> Option<&'a str> {
    let after = inner[inner.find(key)? + key.len()..].trim_start().strip_prefix(':')?.trim_start();
    let (mut depth, mut quoted) = (0i32, false);
    for (i, c) in after.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => return Some(after[..i].trim_end()),
            _ => {}
        }
    }
    Some(after.trim_end())
}

fn parse_descriptor(text: &str, path: &Path) -> Result<DType> {
    let expected =
        || "a dtype among <f8 <f4 <f2 <i8 <i4 <i2 |i1 <u8 <u4 <u2 |u1 |b1, <V2 (bf16), <V1 (f8E4M3FN) and <f1 (f8E5M2)";
    let name = text
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
        .ok_or_else(|| Error::format(path, expected(), excerpt(text)))?;
    match name {
        "<f8" => Ok(DType::F64),
        "<f4" => Ok(DType::F32),
        "<f2" => Ok(DType::F16),
        "<V2" | "|V2" | "bfloat16" => Ok(DType::Bf16),
        "<V1" | "|V1" | "float8_e4m3fn" => Ok(DType::F8E4M3FN),
        "<f1" | "|f1" | "float8_e5m2" => Ok(DType::F8E5M2),
        "<i8" => Ok(DType::I64),
        "<i4" => Ok(DType::I32),
        "<i2" => Ok(DType::I16),
        "|i1" | "<i1" => Ok(DType::I8),
        "<u8" => Ok(DType::U64),
        "<u4" => Ok(DType::U32),
        "<u2" => Ok(DType::U16),
        "|u1" | "<u1" => Ok(DType::U8),
        "|b1" | "<b1" | "?" => Ok(DType::Bool),
        _ => Err(Error::format(path, expected(), format!("`{name}`"))),
    }
}

/// NumPy's word for an element type; for those that it has not, bf16 and the 8-bit floats, what `ml_dtypes` writes.
pub fn descriptor(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::Bf16 => "<V2",
        DType::F8E4M3FN => "<V1",
        DType::F8E5M2 => "<f1",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U64 => "<u8",
        DType::U32 => "<u4",
        DType::U16 => "<u2",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
    }
}

fn parse_shape(text: &str) -> Option<Vec<usize>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|extent| extent.trim().parse().ok()).collect()
}

/// Magic number, version 1 and dictionary, padded so that the data start at a multiple of 64, as NumPy does.
pub(super) fn encode(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    // Python writes the tuple of one element with a comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let dictionary = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        descriptor(dtype),
        extents.join(", ")
    );
    // Version 1 counts the header in 16 bits, enough for thousands of dimensions; version 2 takes over beyond.
    let prefix = if dictionary.len() + 64 < usize::from(u16::MAX) { 10 } else { 12 };
    let total = (prefix + dictionary.len() + 1).next_multiple_of(64);
    let length = total - prefix;
    let mut bytes = MAGIC.to_vec();
    if prefix == 10 {
        bytes.extend([1, 0]);
        bytes.extend((length as u16).to_le_bytes());
    } else {
        bytes.extend([2, 0]);
        bytes.extend((length as u32).to_le_bytes());
    }
    bytes.extend(dictionary.bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// The start of a text from a file, fit for one line of a message.
fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    format!("`{}`", short.replace(char::is_control, " "))
}
