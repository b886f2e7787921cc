//! Types. Most occur many times, so a type is looked up by its text before it is parsed.

use crate::cursor::{Parser, RecentTypes};
use crate::lexer::Token;
use crate::ops::TypeVec;
use rc_ir::suggest::did_you_mean;
use rc_ir::types::{FloatKind, Signedness};
use rc_ir::{Attr, AttrData, Dim, Name, Result, Type, TypeData};
use smallvec::SmallVec;

/// Words that start a type with parameters.
const CONSTRUCTORS: [&str; 5] = ["tensor", "memref", "vector", "tuple", "complex"];

impl<'s> Parser<'s> {
    pub fn ty(&mut self) -> Result<Type> {
        match self.token {
            Token::Word | Token::Bang => {}
            Token::ParenOpen => return self.nested(|p| p.function_type()),
            _ => return Err(self.expected("a type")),
        }
        let (at, bracket) = (self.start, self.byte(self.end) == b'<');
        let slot = RecentTypes::slot::<16>(self.text, if bracket { self.end } else { at });
        if let Some((end, ty)) = slot.and_then(|slot| self.recent_types.get(slot, self.text, at))
            && if bracket { self.byte(end - 1) == b'>' } else { end == self.end }
        {
            self.seek(end);
            return Ok(ty);
        }
        let ty = self.nested(|p| if p.is(Token::Bang) { p.named_type() } else { p.builtin_type() })?;
        if let Some(slot) = slot {
            self.recent_types.set(slot, &self.text[at..self.behind], ty);
        }
        Ok(ty)
    }

    /// Types with commas between, in parentheses.
    pub fn type_list(&mut self, into: &mut TypeVec) -> Result {
        self.list(Token::ParenOpen, Token::ParenClose, "in a list of types", &mut |p| {
            into.push(p.ty()?);
            Ok(())
        })
    }

    fn function_type(&mut self) -> Result<Type> {
        let (mut inputs, mut results) = (TypeVec::new(), TypeVec::new());
        self.type_list(&mut inputs)?;
        self.expect(Token::Arrow, "in a function type")?;
        self.result_types(&mut results)?;
        Ok(Type::function(&inputs, &results))
    }
    /// What follows `->`: one type, or any number in parentheses.
    pub fn result_types(&mut self, into: &mut TypeVec) -> Result {
        if self.is(Token::ParenOpen) {
            return self.type_list(into);
        }
        into.push(self.ty()?);
        Ok(())
    }

    /// Whether a word starts a type.
    pub fn is_type_word(word: &str) -> bool {
        CONSTRUCTORS.contains(&word) || scalar_type(word).is_some() || is_foreign(word)
    }

    fn builtin_type(&mut self) -> Result<Type> {
        let word = self.slice();
        let at = self.start;
        if let Some(ty) = scalar_type(word) {
            self.advance();
            return Ok(ty);
        }
        match word {
            "tensor" => self.parameters(|p| p.tensor()),
            "memref" => self.parameters(|p| p.memref()),
            "vector" if self.is_scalable() => {
                let end = self.balanced_end(self.end, false)?;
                let text = &self.text[at..end];
                self.seek(end);
                Ok(Type::new(TypeData::Foreign(Name::new(text))))
            }
            "vector" => self.parameters(|p| {
                let shape = p.sizes("a vector")?;
                let elem = p.ty()?;
                Ok(Type::vector(&shape, elem))
            }),
            "tuple" => self.parameters(|p| {
                let mut types = Vec::new();
                while !p.is(Token::Greater) {
                    types.push(p.ty()?);
                    if !p.take(Token::Comma) {
                        break;
                    }
                }
                Ok(Type::new(TypeData::Tuple(types.into())))
            }),
            "complex" => self.parameters(|p| Ok(Type::new(TypeData::Complex(p.ty()?)))),
            _ if is_foreign(word) => {
                self.advance();
                Ok(Type::new(TypeData::Foreign(Name::new(word))))
            }
            _ => {
                let known = CONSTRUCTORS
                    .iter()
                    .copied()
                    .chain(FloatKind::ALL.iter().map(|k| k.as_str()))
                    .chain(["index", "none"]);
                let hint = did_you_mean(word, known);
                Err(self.error_at(at..self.end, format!("unknown type '{}'{hint}", crate::cursor::clipped(word))))
            }
        }
    }

    /// What stands in `<…>` after the word that is next. The first token inside may not have been cut right.
    fn parameters<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.advance();
        let open = self.start;
        if !self.is(Token::Less) {
            return Err(self.expected("'<' and the type's parameters"));
        }
        self.advance();
        let inner = inside(self)?;
        self.expect_close(Token::Greater, open, "at the end of the type")?;
        Ok(inner)
    }

    fn tensor(&mut self) -> Result<Type> {
        if let Some(elem) = self.unranked()? {
            return Ok(Type::new(TypeData::UnrankedTensor(elem)));
        }
        let (mut shape, elem) = self.shape()?;
        let mut encoding = None;
        let at = self.start;
        if self.take(Token::Comma) {
            encoding = Some(self.attr()?);
        }
        if let Some(attr) = encoding {
            let (symbols, with) = match attr.as_dialect("encoding") {
                Some(_) => (attr.get("shape").and_then(|s| s.as_shape()), attr.get("with")),
                None => (attr.as_shape(), None),
            };
            if let Some(symbols) = symbols {
                self.name_sizes(&mut shape, symbols, at)?;
                encoding = with;
            }
        }
        Ok(Type::new(TypeData::Tensor { shape: shape.as_slice().into(), elem, encoding }))
    }

    fn memref(&mut self) -> Result<Type> {
        if let Some(elem) = self.unranked()? {
            let space = if self.take(Token::Comma) { Some(self.attr()?) } else { None };
            return Ok(Type::new(TypeData::UnrankedMemRef { elem, space }));
        }
        let (mut shape, elem) = self.shape()?;
        let (mut layout, mut space) = (None, None);
        let at = self.start;
        while self.take(Token::Comma) {
            let attr = self.attr()?;
            let is_layout = matches!(attr.data(), AttrData::Opaque(t) if !t.as_str().starts_with('#'));
            match (is_layout, layout, space) {
                (true, None, None) => layout = Some(attr),
                (false, _, None) => space = Some(attr),
                _ => {
                    return Err(
                        self.error_at(at..self.start, "a memref has one layout and one memory space, in this order")
                    );
                }
            }
        }
        // Symbolic sizes in the generic form: `memref<?xf32, {rc.shape = …, rc.space = …}>`.
        if let Some(symbols) = space.and_then(|s| s.get("rc.shape")).and_then(|s| s.as_shape()) {
            self.name_sizes(&mut shape, symbols, at)?;
            space = space.and_then(|s| s.get("rc.space"));
        }
        // 0 is the default one.
        space = space.filter(|s| s.as_int() != Some(0));
        Ok(Type::new(TypeData::MemRef { shape: shape.as_slice().into(), elem, layout, space }))
    }

    /// Puts the symbolic sizes in place of `?`.
    fn name_sizes(&self, shape: &mut [Dim], symbols: &[Dim], at: usize) -> Result {
        let fits = |(size, symbol): (&Dim, &Dim)| size == symbol || (*size == Dim::Dynamic && !symbol.is_static());
        if shape.len() != symbols.len() || !shape.iter().zip(symbols).all(fits) {
            let message = "the dimensions in #rc.shape are not those of the type";
            return Err(self
                .error_at(at..self.start, message)
                .help("give each dimension: the same integer, or an expression where the type has '?'"));
        }
        shape.copy_from_slice(symbols);
        Ok(())
    }

    /// The element type of `*xf32`, if that is next.
    fn unranked(&mut self) -> Result<Option<Type>> {
        if !self.is(Token::Star) {
            return Ok(None);
        }
        let x = self.skip_space(self.end);
        if self.byte(x) != b'x' {
            self.advance();
            return Err(self.expected("'x' and an element type after '*'"));
        }
        self.seek(x + 1);
        self.ty().map(Some)
    }

    fn skip_space(&self, mut at: usize) -> usize {
        while self.byte(at).is_ascii_whitespace() {
            at += 1;
        }
        at
    }

    /// `4x?xf32` and `s x 768 x f32`. Tokens do not fit here (`0x4xf32`), so this reads bytes.
    fn shape(&mut self) -> Result<(SmallVec<[Dim; 6]>, Type)> {
        let mut shape = SmallVec::new();
        let mut at = self.start;
        loop {
            at = self.skip_space(at);
            let size = match self.byte(at) {
                b'0'..=b'9' => {
                    let end = at + self.text[at..].bytes().take_while(u8::is_ascii_digit).count();
                    let size = self.text[at..end].parse();
                    let size = size.map_err(|_| self.error_at(at..end, "this size does not fit 64 bits"))?;
                    at = end;
                    Dim::Static(size)
                }
                b'?' => {
                    at += 1;
                    Dim::Dynamic
                }
                b'(' => {
                    self.seek(at + 1);
                    let size = self.dim()?;
                    if !self.is(Token::ParenClose) {
                        return Err(self.expected("')' after a dimension"));
                    }
                    at = self.end;
                    size
                }
                _ => {
                    let end = at
                        + self.text[at..]
                            .bytes()
                            .take_while(|b| b.is_ascii_alphanumeric() || b"_$.".contains(b))
                            .count();
                    let x = self.skip_space(end);
                    let is_name = self.byte(at).is_ascii_alphabetic() || self.byte(at) == b'_';
                    if !is_name || x == end || self.byte(x) != b'x' {
                        break;
                    }
                    let name = &self.text[at..end];
                    at = end;
                    Dim::symbol(name)
                }
            };
            at = self.skip_space(at);
            if self.byte(at) != b'x' {
                self.seek(at);
                return Err(self.expected("'x' after a dimension"));
            }
            at += 1;
            shape.push(size);
        }
        self.seek(at);
        let elem = self.ty()?;
        Ok((shape, elem))
    }

    /// Whether the word that is next has sizes such as `[4]`, which are multiples of a processor's vectors.
    fn is_scalable(&self) -> bool {
        let sizes = self.text[self.end..].bytes().skip(1).take_while(|b| b.is_ascii_digit() || b"x[] ".contains(b));
        self.byte(self.end) == b'<' && sizes.into_iter().any(|b| b == b'[')
    }

    /// Fixed sizes and `x` after each.
    fn sizes(&mut self, what: &str) -> Result<Vec<i64>> {
        let mut sizes = Vec::new();
        let mut at = self.start;
        loop {
            at = self.skip_space(at);
            match self.byte(at) {
                b'0'..=b'9' => {}
                b'?' => {
                    self.seek(at);
                    return Err(self.error(format!("{what} has fixed sizes")));
                }
                _ => break,
            }
            let end = at + self.text[at..].bytes().take_while(u8::is_ascii_digit).count();
            let size = self.text[at..end].parse();
            sizes.push(size.map_err(|_| self.error_at(at..end, "this size does not fit 64 bits"))?);
            at = self.skip_space(end);
            if self.byte(at) != b'x' {
                self.seek(at);
                return Err(self.expected("'x' after a size"));
            }
            at += 1;
        }
        self.seek(at);
        Ok(sizes)
    }

    /// `!alias`, `!rc.name<…>`, or a type of another dialect, kept as text.
    fn named_type(&mut self) -> Result<Type> {
        let (at, word) = (self.start, &self.slice()[1..]);
        if !word.contains('.') && self.byte(self.end) != b'<' {
            let Some(&ty) = self.type_aliases.get(word) else {
                let hint = did_you_mean(word, self.type_aliases.keys().copied());
                return Err(self.error(format!("undefined type alias '!{word}'{hint}")));
            };
            self.advance();
            return Ok(ty);
        }
        if let Some(name) = word.strip_prefix("rc.") {
            return self.rc_type(name);
        }
        if self.byte(self.end) != b'<' {
            self.advance();
            return Ok(Type::new(TypeData::Opaque(Name::new(word))));
        }
        let end = self.balanced_end(self.end, false)?;
        let text = self.without_aliases(&self.text[at + 1..end])?;
        self.seek(end);
        Ok(Type::new(TypeData::Opaque(Name::new(&text))))
    }

    fn rc_type(&mut self, name: &'s str) -> Result<Type> {
        if name == "tile" {
            return self.parameters(|p| {
                let shape = p.sizes("a tile")?;
                let elem = p.ty()?;
                let layout = if p.take(Token::Comma) { Some(p.short_attr()?) } else { None };
                Ok(Type::tile(&shape, elem, layout))
            });
        }
        let mut params: Vec<Attr> = Vec::new();
        if self.byte(self.end) == b'<' {
            self.parameters(|p| {
                while !p.is(Token::Greater) {
                    params.push(p.short_attr()?);
                    if !p.take(Token::Comma) {
                        break;
                    }
                }
                Ok(())
            })?;
        } else {
            self.advance();
        }
        Ok(Type::dialect(name, &params))
    }

    /// The end of the brackets opened at `from`; with `operators`, `>=` is no bracket.
    pub fn balanced_end(&self, from: usize, operators: bool) -> Result<usize> {
        let bytes = self.text.as_bytes();
        let mut open: Vec<u8> = Vec::new();
        let mut at = from;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'<' | b'(' | b'[' | b'{' => {
                    open.push(byte);
                    if open.len() > 1000 {
                        return Err(self.error_at(at - 1..at, "nested deeper than 1000 levels"));
                    }
                }
                b'>' if bytes[at - 2] == b'-' || (operators && bytes.get(at) == Some(&b'=')) => {}
                b'>' | b')' | b']' | b'}' => {
                    let matching = match byte {
                        b'>' => b'<',
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    if open.pop() != Some(matching) {
                        let message = format!("'{}' closes nothing", byte as char);
                        return Err(self.error_at(at - 1..at, message).note(self.loc(from), "in what is opened here"));
                    }
                    if open.is_empty() {
                        return Ok(at);
                    }
                }
                b'"' => {
                    while !matches!(bytes.get(at), None | Some(b'"' | b'\n')) {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                _ => {}
            }
        }
        Err(self.error_at(from..from + 1, "this bracket is not closed"))
    }
}

/// Words for numbers that rc does not compute with.
fn is_foreign(word: &str) -> bool {
    matches!(word, "f80" | "f128" | "i0" | "si0" | "ui0")
        || word.starts_with("f8E")
        || word.starts_with("f6E")
        || word.starts_with("f4E")
}

fn scalar_type(word: &str) -> Option<Type> {
    let simple = match word {
        "index" => Some(Type::index()),
        "none" => Some(Type::none()),
        _ => FloatKind::ALL.into_iter().find(|k| k.as_str() == word).map(Type::float),
    };
    simple.or_else(|| {
        let (signedness, digits) = match word.as_bytes() {
            [b's', b'i', ..] => (Signedness::Signed, &word[2..]),
            [b'u', b'i', ..] => (Signedness::Unsigned, &word[2..]),
            [b'i', ..] => (Signedness::Signless, &word[1..]),
            _ => return None,
        };
        let well_formed = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        let width: u32 = digits.parse().ok().filter(|&w| well_formed && w < 1 << 24)?;
        Some(Type::new(TypeData::Integer { width, signedness }))
    })
}
