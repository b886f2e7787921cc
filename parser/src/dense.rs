//! Dense constants: `dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>`. The type comes last, so the elements
//! are passed over, and read again straight into bytes once it is known.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::numbers::Scalar;
use rc_ir::attr::DenseData;
use rc_ir::{Attr, AttrData, Name, Result, Type, TypeData};

impl Parser<'_> {
    pub fn dense(&mut self) -> Result<Attr> {
        let at = self.start;
        self.advance();
        let open = self.start;
        self.expect(Token::Less, "after 'dense'")?;
        let elements = self.start;
        self.skip_elements(open)?;
        let close = self.start;
        self.expect(Token::Greater, "at the end of the elements")?;
        self.expect(Token::Colon, "and the type of the constant")?;
        let type_at = self.start;
        let ty = self.ty()?;
        let after = self.start;
        if is_foreign(ty) {
            return self.opaque(at, after);
        }
        let layout = self.layout(ty, type_at..after)?;
        self.seek(elements);
        let data = self.elements(&layout)?;
        if self.start != close {
            return Err(self.expected("'>' at the end of the elements"));
        }
        if layout.bytes(data.bytes.len()).is_none_or(|n| n != layout.count) && !data.splat {
            let found = data.bytes.len() / layout.width;
            return Err(self.error_at(at..close, format!("{ty} has {} elements, found {found}", layout.count)));
        }
        self.seek(after);
        Ok(if data.splat { Attr::new(AttrData::Dense { ty, data }) } else { Attr::dense(ty, data.bytes) })
    }

    pub fn dense_resource(&mut self) -> Result<Attr> {
        self.advance();
        let open = self.start;
        self.expect(Token::Less, "after 'dense_resource'")?;
        let name = self.resource_name()?;
        self.expect_close(Token::Greater, open, "after the name of a resource")?;
        self.expect(Token::Colon, "and the type of the constant")?;
        let ty = self.ty()?;
        Ok(Attr::new(AttrData::Resource { name, ty }))
    }
    pub fn resource_name(&mut self) -> Result<Name> {
        match self.token {
            Token::Word => {
                let name = Name::new(self.slice());
                self.advance();
                Ok(name)
            }
            Token::String => Ok(Name::new(&self.string()?)),
            _ => Err(self.expected("the name of a resource")),
        }
    }

    /// Passes over tokens to the `>` that ends the elements opened at `open`.
    fn skip_elements(&mut self, open: usize) -> Result {
        let mut depth = 0usize;
        loop {
            match self.token {
                Token::Greater if depth == 0 => return Ok(()),
                Token::BracketOpen | Token::ParenOpen => depth += 1,
                Token::BracketClose | Token::ParenClose if depth > 0 => depth -= 1,
                Token::Comma | Token::Int | Token::Hex | Token::Float | Token::Minus | Token::String | Token::Word => {}
                Token::End => return Err(self.error_at(open..open + 1, "this constant does not end")),
                _ => return Err(self.expected("an element of the constant, or '>'")),
            }
            self.advance();
        }
    }

    fn layout(&self, ty: Type, range: std::ops::Range<usize>) -> Result<Layout> {
        let shaped = ty.is_tensor() || ty.is_vector() || ty.is_memref() || ty.is_tile();
        if !shaped {
            return Err(self.error_at(range, format!("a dense constant has a tensor or vector type, not {ty}")));
        }
        let Some(sizes) = ty.static_shape() else {
            return Err(self.error_at(range, "a dense constant has fixed sizes"));
        };
        let elem = ty.elem();
        let width = elem.bit_width().filter(|&w| w <= 64).and_then(|_| elem.byte_width());
        let Some(width) = width else {
            return Err(self
                .error_at(range, format!("not supported: a dense constant of {elem}"))
                .help("use integers of up to 64 bits or floats"));
        };
        let count = sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?));
        Ok(Layout { elem, sizes, width: width as usize, count: count.unwrap_or(u64::MAX) })
    }

    fn elements(&mut self, layout: &Layout) -> Result<DenseData> {
        match self.token {
            Token::Greater if layout.count == 0 => Ok(DenseData { splat: false, bytes: Box::new([]) }),
            Token::Greater => Err(self.error(format!("expected {} elements, found none", layout.count))),
            Token::String => self.hex_elements(layout),
            Token::BracketOpen => {
                let mut bytes = Vec::new();
                self.nested_elements(layout, 0, &mut bytes)?;
                Ok(DenseData { splat: false, bytes: bytes.into() })
            }
            _ => {
                let mut bytes = Vec::new();
                self.element(layout, &mut bytes)?;
                Ok(DenseData { splat: true, bytes: bytes.into() })
            }
        }
    }

    fn nested_elements(&mut self, layout: &Layout, rank: usize, bytes: &mut Vec<u8>) -> Result {
        let Some(&size) = layout.sizes.get(rank) else {
            return self.element(layout, bytes);
        };
        let at = self.start;
        if !self.is(Token::BracketOpen) {
            return Err(self.expected(&format!("'[' and {size} elements")));
        }
        let mut found = 0i64;
        self.nested(|p| {
            p.list(Token::BracketOpen, Token::BracketClose, "in a list of elements", &mut |p| {
                found += 1;
                p.nested_elements(layout, rank + 1, bytes)
            })
        })?;
        if found != size {
            return Err(self.error_at(
                at..self.start,
                format!("dimension {rank} of the type is {size}, but {found} elements are given"),
            ));
        }
        Ok(())
    }

    fn element(&mut self, layout: &Layout, bytes: &mut Vec<u8>) -> Result {
        let at = self.start;
        let value = if self.is_word("true") || self.is_word("false") {
            if layout.elem.bit_width() != Some(1) {
                return Err(self.error(format!(
                    "expected an element of type {}, found '{}'",
                    layout.elem,
                    self.slice()
                )));
            }
            u64::from(self.is_word("true"))
        } else {
            let negative = self.take(Token::Minus);
            match self.token {
                Token::Int | Token::Hex | Token::Float => {}
                Token::String => return Err(self.error("not supported: a dense constant of strings")),
                Token::ParenOpen => return Err(self.error("not supported: a dense constant of complex numbers")),
                _ => return Err(self.expected(&format!("an element of type {}", layout.elem))),
            }
            let value = self.scalar(negative, self.token, self.slice(), layout.elem);
            match value.map_err(|why| self.error_at(at..self.end, why))? {
                Scalar::Bits(bits) => bits,
                Scalar::Int(value) if layout.elem.bit_width() == Some(1) => u64::from(value != 0),
                Scalar::Int(value) => value as u64,
            }
        };
        self.advance();
        bytes.extend_from_slice(&value.to_le_bytes()[..layout.width]);
        Ok(())
    }

    /// `"0x…"`: little-endian bytes, of all elements or of one that all are.
    fn hex_elements(&mut self, layout: &Layout) -> Result<DenseData> {
        let here = self.start..self.end;
        let bytes = self.hex_bytes("a constant")?;
        let given = bytes.len() as u64;
        let whole = layout.count.checked_mul(layout.width as u64);
        // LLVM 22 writes eight booleans to a byte.
        if layout.elem.bit_width() == Some(1) && layout.count > 1 && given == layout.count.div_ceil(8) {
            let unpacked = (0..layout.count as usize).map(|i| bytes[i / 8] >> (i % 8) & 1).collect();
            return Ok(DenseData { splat: false, bytes: unpacked });
        }
        let splat = given == layout.width as u64 && layout.count != 0;
        if !splat && whole != Some(given) {
            let message = match whole {
                Some(whole) => format!("the constant has {given} bytes, its type takes {whole}"),
                None => format!("the constant has {given} bytes, its type takes more than there are"),
            };
            return Err(self.error_at(here, message));
        }
        let bytes =
            if layout.elem.bit_width() == Some(1) { bytes.iter().map(|&b| u8::from(b != 0)).collect() } else { bytes };
        Ok(DenseData { splat, bytes: bytes.into() })
    }

    /// The bytes of the string `"0x…"` that is next.
    pub fn hex_bytes(&mut self, what: &str) -> Result<Vec<u8>> {
        let text = self.slice();
        let digits = text.trim_matches('"').strip_prefix("0x").map(str::as_bytes);
        let Some(digits) = digits.filter(|d| self.is(Token::String) && d.len() % 2 == 0) else {
            return Err(self.expected(&format!("the bytes of {what}, \"0x…\" with an even number of hex digits")));
        };
        let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        let bytes: Option<Vec<u8>> =
            digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
        let bytes = bytes.ok_or_else(|| self.error(format!("the bytes of {what} are written in hex digits")))?;
        self.advance();
        Ok(bytes)
    }
}

/// Whether rc keeps a constant of a type as its text: complex numbers, wide integers, strings, floats that it does not know.
fn is_foreign(ty: Type) -> bool {
    let has_sizes = (ty.is_tensor() || ty.is_vector()) && ty.static_shape().is_some();
    let known = |elem: Type| elem.is_scalar() && elem.bit_width().is_none_or(|width| width <= 64);
    has_sizes && !known(ty.elem()) || matches!(ty.data(), TypeData::Foreign(_))
}

/// What a dense constant's type says about its bytes.
struct Layout {
    elem: Type,
    sizes: Vec<i64>,
    /// Bytes of an element.
    width: usize,
    count: u64,
}

impl Layout {
    /// The number of elements in this many bytes.
    fn bytes(&self, len: usize) -> Option<u64> {
        (len.is_multiple_of(self.width)).then_some((len / self.width) as u64)
    }
}
