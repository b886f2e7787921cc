//! Numbers: as attributes, and as elements of constants and of `array<…>`.

use crate::cursor::Parser;
use crate::lexer::Token;
use rc_ir::attr::float_to_bits;
use rc_ir::types::{FloatKind, Signedness};
use rc_ir::{Attr, AttrData, Result, Type, TypeData};

impl Parser<'_> {
    /// `3`, `3 : i32`, `1.0 : f32`, `0x7F800000 : f32`; of type `ty` where no type is written.
    pub fn number(&mut self, ty: Option<Type>) -> Result<Attr> {
        let at = self.start;
        let negative = self.take(Token::Minus);
        let (token, text, range) = (self.token, self.slice(), at..self.end);
        if !matches!(token, Token::Int | Token::Hex | Token::Float) {
            return Err(self.expected("a number"));
        }
        self.advance();
        let written = if self.take(Token::Colon) { Some(self.ty()?) } else { None };
        if written.is_some_and(|ty| is_foreign(token, text, ty)) {
            return self.opaque(at, self.behind);
        }
        let ty = written.or(ty);
        let ty = ty.unwrap_or_else(|| if token == Token::Float { Type::f64() } else { Type::i64() });
        let value = self.scalar(negative, token, text, ty).map_err(|why| self.error_at(range, why))?;
        Ok(match value {
            Scalar::Bits(bits) => Attr::new(AttrData::Float { bits, ty }),
            Scalar::Int(value) if ty == Type::i1() => Attr::bool(value != 0),
            Scalar::Int(value) => Attr::new(AttrData::Int { value, ty }),
        })
    }

    /// The value of a number's text as an element of type `ty`.
    pub fn scalar(&self, negative: bool, token: Token, text: &str, ty: Type) -> std::result::Result<Scalar, String> {
        let integer = || match token {
            Token::Hex => i128::from_str_radix(&text[2..], 16),
            _ => text.parse::<i128>(),
        };
        match ty.data() {
            TypeData::Float(kind) if token == Token::Float => {
                let value: f64 = text.parse().map_err(|_| "not a float".to_string())?;
                Ok(Scalar::Bits(float_to_bits(*kind, if negative { -value } else { value })))
            }
            TypeData::Float(kind) if token == Token::Hex && !negative => {
                // Of TF32, the 19 bits that the format has are written.
                let (width, shift) = if *kind == FloatKind::TF32 { (19, 13) } else { (kind.bits(), 0) };
                let bits = integer().ok().filter(|&b| b >> width == 0);
                let bits = bits.ok_or_else(|| format!("these bits do not fit {ty}, which has {width}"))?;
                Ok(Scalar::Bits((bits as u64) << shift))
            }
            TypeData::Float(_) => {
                Err(format!("a number of type {ty} is written with a dot: {}{text}.0", if negative { "-" } else { "" }))
            }
            TypeData::Integer { .. } | TypeData::Index if token == Token::Float => {
                Err(format!("a float cannot be of type {ty}"))
            }
            TypeData::Integer { .. } | TypeData::Index => {
                let value = integer().map(|v| if negative { -v } else { v });
                let value = value.map_err(|_| "not supported: an integer of more than 127 bits".to_string())?;
                in_range(value, ty).map(Scalar::Int).ok_or_else(|| format!("{value} is out of the range of {ty}"))
            }
            _ => Err(format!("a number cannot be of type {ty}")),
        }
    }

    /// `array<i64: 1, 2>`.
    pub fn dense_array(&mut self) -> Result<Attr> {
        let at = self.start;
        self.advance();
        let open = self.start;
        self.expect(Token::Less, "after 'array'")?;
        let elem = self.ty()?;
        if matches!(elem.data(), TypeData::Foreign(_)) {
            let end = self.balanced_end(open, false)?;
            self.seek(end);
            return self.opaque(at, end);
        }
        let fits = elem.is_float() || (elem.is_int() && elem.bit_width().is_some_and(|w| w <= 64));
        if !fits {
            return Err(self
                .error_at(open..self.start, format!("an array of {elem} is not possible"))
                .help("integers of up to 64 bits, or floats"));
        }
        let mut values = Vec::new();
        if self.take(Token::Colon) {
            loop {
                values.push(self.array_element(elem)?);
                if !self.take(Token::Comma) {
                    break;
                }
            }
        }
        self.expect_close(Token::Greater, open, "or ',' in an array")?;
        Ok(Attr::new(AttrData::DenseArray { elem, values: values.into() }))
    }
    fn array_element(&mut self, elem: Type) -> Result<i64> {
        let at = self.start;
        if elem == Type::i1() && (self.is_word("true") || self.is_word("false")) {
            let value = self.is_word("true");
            self.advance();
            return Ok(i64::from(value));
        }
        let negative = self.take(Token::Minus);
        if !matches!(self.token, Token::Int | Token::Hex | Token::Float) {
            return Err(self.expected(&format!("an element of type {elem}")));
        }
        let value = self.scalar(negative, self.token, self.slice(), elem);
        let value = value.map_err(|why| self.error_at(at..self.end, why))?;
        self.advance();
        Ok(match value {
            Scalar::Bits(bits) => bits as i64,
            Scalar::Int(value) => value as i64,
        })
    }
    /// `[1, 2]` as `array<elem: 1, 2>`.
    pub fn int_array(&mut self, elem: Type) -> Result<Attr> {
        let mut values = Vec::new();
        self.list(Token::BracketOpen, Token::BracketClose, "in a list of integers", &mut |p| {
            values.push(p.array_element(elem)?);
            Ok(())
        })?;
        Ok(Attr::new(AttrData::DenseArray { elem, values: values.into() }))
    }
}

/// Whether rc has no such numbers, and keeps their text.
fn is_foreign(token: Token, text: &str, ty: Type) -> bool {
    match ty.data() {
        TypeData::Foreign(_) => true,
        TypeData::Integer { width, .. } => *width > 127 && token == Token::Int && text.parse::<i128>().is_err(),
        _ => false,
    }
}

/// A number as an element of its type: a float's bits or an integer.
pub(crate) enum Scalar {
    Bits(u64),
    Int(i128),
}

/// The value as the type holds it (signless integers as signed ones), if it fits.
fn in_range(value: i128, ty: Type) -> Option<i128> {
    let (width, signedness) = match ty.data() {
        TypeData::Integer { width, signedness } => (*width, *signedness),
        _ => (64, Signedness::Signless),
    };
    if width >= 127 {
        return Some(value);
    }
    let (low, high) = match signedness {
        Signedness::Signless => (-(1i128 << width) / 2, (1i128 << width) - 1),
        Signedness::Signed => (-(1i128 << width) / 2, (1i128 << width) / 2 - 1),
        Signedness::Unsigned => (0, (1i128 << width) - 1),
    };
    let wraps = signedness == Signedness::Signless && value > (1i128 << width) / 2 - 1 && width > 1;
    (low..=high).contains(&value).then(|| if wraps { value - (1i128 << width) } else { value })
}
