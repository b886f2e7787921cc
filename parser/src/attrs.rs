//! Attributes. In the generic spelling a word that is no keyword is an error; inside `#rc.name<…>`
//! ("short") it is a string, and `[1, 2]` is `array<i64: 1, 2>`.

use crate::cursor::{Parser, RecentDicts, clipped};
use crate::lexer::Token;
use rc_ir::op_def::AttrKind;
use rc_ir::suggest::did_you_mean;
use rc_ir::{Attr, AttrData, Name, Result, Type};

pub(crate) type Entry = (Name, Attr);

impl<'s> Parser<'s> {
    /// An attribute in the generic spelling.
    pub fn attr(&mut self) -> Result<Attr> {
        self.nested(|p| p.any_attr(false))
    }
    /// An attribute inside `#rc.name<…>`.
    pub fn short_attr(&mut self) -> Result<Attr> {
        self.nested(|p| p.any_attr(true))
    }

    fn any_attr(&mut self, short: bool) -> Result<Attr> {
        match self.token {
            Token::Int | Token::Hex | Token::Float | Token::Minus => self.number(None),
            Token::String => self.string_attr(),
            Token::Symbol => self.symbol_ref(),
            Token::BraceOpen if short => self.short_dict(),
            Token::BraceOpen => self.dict(),
            Token::BracketOpen => self.array(short),
            Token::Hash => self.named_attr(),
            Token::Bang | Token::ParenOpen => self.ty().map(Attr::ty),
            Token::Word => self.word_attr(short),
            _ => Err(self.expected("an attribute")),
        }
    }

    fn word_attr(&mut self, short: bool) -> Result<Attr> {
        let word = self.slice();
        let simple = match word {
            "true" => Some(Attr::bool(true)),
            "false" => Some(Attr::bool(false)),
            "unit" => Some(Attr::unit()),
            _ => None,
        };
        if let Some(attr) = simple {
            self.advance();
            return Ok(attr);
        }
        let bracket = self.byte(self.end) == b'<';
        match word {
            "dense" if bracket => self.dense(),
            "dense_resource" if bracket => self.dense_resource(),
            "array" if bracket => self.dense_array(),
            "affine_map" | "affine_set" | "strided" | "opaque" if bracket => self.kept_as_text(self.end),
            "sparse" if bracket => self.sparse(),
            "distinct" if self.byte(self.end) == b'[' => {
                let id = self.balanced_end(self.end, false)?;
                if self.byte(id) != b'<' {
                    return Err(self.error("expected 'distinct[id]<attribute>'"));
                }
                self.kept_as_text(id)
            }
            "loc" if self.byte(self.end) == b'(' => self.kept_as_text(self.end),
            _ if Self::is_type_word(word) => self.ty().map(Attr::ty),
            _ if short => {
                self.advance();
                Ok(Attr::str(word))
            }
            _ => {
                let known = ["true", "false", "unit", "dense", "dense_resource", "array", "affine_map", "index"];
                let hint = did_you_mean(word, known);
                let error = self.error(format!("expected an attribute, found the word '{}'{hint}", clipped(word)));
                Err(error.help(format!("a string needs quotes: \"{}\"", clipped(word))))
            }
        }
    }

    /// A builtin that rc does not interpret, from the next token to the end of the bracket at `bracket`.
    fn kept_as_text(&mut self, bracket: usize) -> Result<Attr> {
        let start = self.start;
        let end = self.balanced_end(bracket, self.slice() == "affine_set")?;
        self.seek(end);
        self.opaque(start, end)
    }
    /// `sparse<[[0, 1]], [2]> : tensor<3x4xi32>`, as text.
    fn sparse(&mut self) -> Result<Attr> {
        let start = self.start;
        let end = self.balanced_end(self.end, false)?;
        self.seek(end);
        self.expect(Token::Colon, "and the type of the constant")?;
        self.ty()?;
        self.opaque(start, self.behind)
    }
    /// An attribute that rc does not interpret: its text, which ends before the next token.
    pub fn opaque(&self, start: usize, end: usize) -> Result<Attr> {
        let text = self.without_aliases(self.text[start..end].trim_end())?;
        Ok(Attr::new(AttrData::Opaque(Name::new(&text))))
    }

    // ---- strings and symbols ----

    /// A string; one that is not UTF-8 is kept as it is written.
    fn string_attr(&mut self) -> Result<Attr> {
        let (at, text) = (self.start, self.slice());
        if text.contains('\\')
            && self.bytes_of(&text[1..text.len() - 1], at + 1).is_ok_and(|b| String::from_utf8(b).is_err())
        {
            self.advance();
            return self.opaque(at, at + text.len());
        }
        self.string().map(|s| Attr::str(&s))
    }
    /// The text of the string that is next, escapes resolved.
    pub fn string(&mut self) -> Result<String> {
        let (at, text) = (self.start, self.slice());
        self.expect(Token::String, "here")?;
        self.unescaped(&text[1..text.len() - 1], at + 1)
    }
    fn unescaped(&self, text: &str, at: usize) -> Result<String> {
        if !text.contains('\\') {
            return Ok(text.to_string());
        }
        String::from_utf8(self.bytes_of(text, at)?)
            .map_err(|_| self.error_at(at..at + text.len(), "not supported: a name that is not UTF-8"))
    }
    fn bytes_of(&self, text: &str, at: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            let (byte, used) = match (byte, tail) {
                (b'\\', [b'n', ..]) => (b'\n', 1),
                (b'\\', [b't', ..]) => (b'\t', 1),
                (b'\\', [c @ (b'\\' | b'"'), ..]) => (*c, 1),
                (b'\\', [a, b, ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                    let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
                    (digit(*a) << 4 | digit(*b), 2)
                }
                (b'\\', _) => {
                    let here = at + text.len() - rest.len();
                    return Err(self
                        .error_at(here..here + 1, "unknown escape")
                        .help("use \\\\, \\\", \\n, \\t or two hex digits"));
                }
                _ => (byte, 0),
            };
            bytes.push(byte);
            rest = &tail[used..];
        }
        Ok(bytes)
    }

    /// The name after `@`, which must be next.
    pub fn symbol_name(&mut self) -> Result<Name> {
        let (at, text) = (self.start, self.slice());
        if !self.take(Token::Symbol) {
            return Err(self.expected("a symbol name, @name"));
        }
        match text.strip_prefix("@\"").and_then(|t| t.strip_suffix('"')) {
            Some(quoted) => Ok(Name::new(&self.unescaped(quoted, at + 2)?)),
            None => Ok(Name::new(&text[1..])),
        }
    }
    fn symbol_ref(&mut self) -> Result<Attr> {
        let root = self.symbol_name()?;
        let mut nested = Vec::new();
        while self.take(Token::ColonColon) {
            nested.push(self.symbol_name()?);
        }
        Ok(Attr::new(AttrData::Symbol { root, nested: nested.into() }))
    }

    // ---- arrays and dictionaries ----

    fn array(&mut self, short: bool) -> Result<Attr> {
        let mut items = Vec::new();
        let mut plain = short;
        self.list(Token::BracketOpen, Token::BracketClose, "in an array", &mut |p| {
            let at = p.start;
            let item = if short { p.short_attr()? } else { p.attr()? };
            let text = &p.text[at..p.start];
            plain &= matches!(item.data(), AttrData::Int { .. }) && !text.contains(':');
            items.push(item);
            Ok(())
        })?;
        if plain && !items.is_empty() {
            let ints: Vec<i64> = items.iter().filter_map(|i| i.as_int()).collect();
            return Ok(Attr::i64s(&ints));
        }
        Ok(Attr::array(&items))
    }

    /// `{a = 1 : i64, b}` in the generic spelling.
    pub fn dict(&mut self) -> Result<Attr> {
        let start = self.start;
        let slot = RecentDicts::slot::<32>(self.text, start);
        if let Some((end, dict)) = slot.and_then(|slot| self.recent_dicts.get(slot, self.text, start)) {
            self.seek(end);
            return Ok(dict);
        }
        let dict = self.dict_of(&mut |p, _| p.attr())?;
        if let Some(slot) = slot {
            self.recent_dicts.set(slot, &self.text[start..self.behind], dict);
        }
        Ok(dict)
    }
    fn short_dict(&mut self) -> Result<Attr> {
        self.dict_of(&mut |p, _| p.short_attr())
    }
    /// A dictionary whose values `value` reads, given the key.
    pub fn dict_of(&mut self, value: &mut dyn FnMut(&mut Self, &str) -> Result<Attr>) -> Result<Attr> {
        let mut entries: Vec<Entry> = Vec::new();
        let at = self.start;
        self.list(Token::BraceOpen, Token::BraceClose, "in a dictionary of attributes", &mut |p| {
            let key = match p.token {
                Token::Word => {
                    let key = Name::new(p.slice());
                    p.advance();
                    key
                }
                Token::String => Name::new(&p.string()?),
                _ => return Err(p.expected("the name of an attribute")),
            };
            let attr = if p.take(Token::Equal) { value(p, key.as_str())? } else { Attr::unit() };
            entries.push((key, attr));
            Ok(())
        })?;
        self.dictionary(entries, at)
    }
    pub fn dictionary(&self, mut entries: Vec<Entry>, at: usize) -> Result<Attr> {
        if entries.is_empty() {
            return Ok(Attr::empty_dict());
        }
        entries.sort_by_key(|e| e.0);
        if let Some(twice) = entries.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(self.error_at(at..at + 1, format!("the attribute '{}' is given twice", twice[0].0)));
        }
        Ok(Attr::new(AttrData::Dict(entries.into())))
    }

    // ---- named attributes ----

    /// `#alias`, `#rc.name<…>`, or an attribute of another dialect, kept as text.
    fn named_attr(&mut self) -> Result<Attr> {
        let (at, word) = (self.start, &self.slice()[1..]);
        let bracket = self.byte(self.end) == b'<';
        if !word.contains('.') && !bracket {
            let known = self.attr_aliases.get(word).copied();
            let Some(attr) = known.map_or_else(|| self.loc_attr(word), |attr| Ok(Some(attr)))? else {
                let hint = did_you_mean(word, self.attr_aliases.keys().copied());
                return Err(self
                    .error(format!("undefined attribute alias '#{word}'{hint}"))
                    .help("an alias is defined before its use: #name = attribute"));
            };
            self.advance();
            return Ok(attr);
        }
        match word.strip_prefix("rc.") {
            Some("shape") => {
                self.advance();
                self.expect(Token::Less, "after '#rc.shape'")?;
                let dims = self.dims()?;
                self.expect_close(Token::Greater, at, "at the end of the dimensions")?;
                Ok(Attr::shape(&dims))
            }
            Some("dense") => {
                self.advance();
                self.rc_dense(at)
            }
            Some(name) => {
                self.advance();
                let attr = self.rc_attr(name)?;
                Ok(elements_of_tile(attr).unwrap_or(attr))
            }
            None => {
                let end = if bracket { self.balanced_end(self.end, false)? } else { self.end };
                self.seek(end);
                // Some have a type.
                if self.take(Token::Colon) {
                    self.ty()?;
                    return self.opaque(at, self.start);
                }
                self.opaque(at, end)
            }
        }
    }

    /// The rest of `#rc.dense<dense<…> : tensor<…>, !rc.tile<…>>`: a tile's elements, as the generic form spells them.
    fn rc_dense(&mut self, at: usize) -> Result<Attr> {
        let attr = self.rc_attr("dense")?;
        let params = attr.as_dialect("dense").unwrap_or(&[]);
        let [(_, elements), (_, tile)] = params else {
            return Err(self.error_at(at..self.start, "expected #rc.dense<dense<…> : tensor<…>, !rc.tile<…>>"));
        };
        match (elements.data(), tile.as_type()) {
            (AttrData::Dense { ty, data }, Some(tile))
                if tile.is_tile() && tile.elem() == ty.elem() && tile.shape() == ty.shape() =>
            {
                Ok(Attr::new(AttrData::Dense { ty: tile, data: data.clone() }))
            }
            _ => Err(self.error_at(
                at..self.start,
                "expected the elements of a tensor and a tile of the same shape in #rc.dense",
            )),
        }
    }

    /// The parameters of `#rc.name`, if any: `<key = value, flag, value>`.
    pub fn rc_attr(&mut self, name: &str) -> Result<Attr> {
        let mut params: Vec<Entry> = Vec::new();
        if self.is(Token::Less) {
            self.list(Token::Less, Token::Greater, &format!("in the parameters of #rc.{name}"), &mut |p| {
                params.push(p.rc_param()?);
                Ok(())
            })?;
        }
        Ok(Attr::new(AttrData::Dialect { name: Name::new(name), params: params.into() }))
    }
    fn rc_param(&mut self) -> Result<Entry> {
        let keyed = self.is(Token::Word) || self.is(Token::String);
        if keyed {
            // A key is followed by '='; a bare word that is no keyword is a flag.
            let (at, word) = (self.start, self.slice());
            let is_word = self.is(Token::Word);
            let key = if is_word { Name::new(word) } else { Name::new(&self.string()?) };
            if is_word {
                self.advance();
            }
            if self.take(Token::Equal) {
                return Ok((key, self.short_attr()?));
            }
            let ends = self.is(Token::Comma) || self.is(Token::Greater);
            if is_word && ends && rc_ir::print::is_bare_word(word) {
                return Ok((key, Attr::unit()));
            }
            if !is_word {
                return Ok((Name::EMPTY, Attr::str(key.as_str())));
            }
            self.seek(at);
        }
        Ok((Name::EMPTY, self.short_attr()?))
    }

    // ---- declared kinds ----

    /// An attribute of a declared kind, in the kind's own spelling or the generic one.
    pub fn kind_attr(&mut self, kind: AttrKind) -> Result<Attr> {
        match (kind, self.token) {
            (AttrKind::I32, Token::Int | Token::Hex | Token::Minus) => self.number(Some(Type::i32())),
            (AttrKind::F32, Token::Int | Token::Hex | Token::Float | Token::Minus) => self.number(Some(Type::f32())),
            (AttrKind::F64, Token::Int | Token::Hex | Token::Float | Token::Minus) => self.number(Some(Type::f64())),
            (AttrKind::Enum(words), Token::Word) => {
                let word = self.slice();
                if !words.contains(&word) {
                    let hint = did_you_mean(word, words.iter().copied());
                    return Err(self.error(format!("expected {}, found '{word}'{hint}", kind.desc())));
                }
                self.advance();
                Ok(Attr::str(word))
            }
            (AttrKind::I64Array, Token::BracketOpen) => self.int_array(Type::i64()),
            (AttrKind::I32Array, Token::BracketOpen) => self.int_array(Type::i32()),
            (AttrKind::Shape, Token::BracketOpen) => Ok(Attr::shape(&self.dims()?)),
            (AttrKind::StrArray, Token::BracketOpen) => {
                let mut items = Vec::new();
                self.list(Token::BracketOpen, Token::BracketClose, "in a list of words", &mut |p| {
                    if p.is(Token::String) {
                        items.push(Attr::str(&p.string()?));
                        return Ok(());
                    }
                    items.push(Attr::str(p.slice()));
                    p.expect(Token::Word, "or a string in a list of words")
                })?;
                Ok(Attr::array(&items))
            }
            (AttrKind::ShapeArray, Token::BracketOpen) => {
                let mut items = Vec::new();
                self.list(Token::BracketOpen, Token::BracketClose, "in a list of shapes", &mut |p| {
                    items.push(if p.is(Token::BracketOpen) { Attr::shape(&p.dims()?) } else { p.attr()? });
                    Ok(())
                })?;
                Ok(Attr::array(&items))
            }
            (AttrKind::Dialect(name), Token::Less) => self.nested(|p| p.rc_attr(name)),
            _ => self.attr(),
        }
    }
}

/// The generic form of a tile's constant, `#rc.elements<dense<…> : tensor<…>, !rc.tile<…>>`, as that constant.
fn elements_of_tile(attr: Attr) -> Option<Attr> {
    let [(_, elements), (_, ty)] = attr.as_dialect("elements")? else { return None };
    let ty = ty.as_type().filter(|t| t.is_tile())?;
    match elements.data() {
        AttrData::Dense { ty: of, data } if of.shape() == ty.shape() && of.elem() == ty.elem() => {
            Some(Attr::new(AttrData::Dense { ty, data: data.clone() }))
        }
        AttrData::Resource { name, .. } => Some(Attr::resource(*name, ty)),
        _ => None,
    }
}
