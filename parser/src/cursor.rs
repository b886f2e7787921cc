//! The parser's position in the text, and the memory of what it has read: types and dictionaries by
//! their text, names of ops, aliases.

use crate::ParseOptions;
use crate::generic::Signature;
use crate::lexer::Token;
use crate::scope::Scope;
use rc_ir::loc::Source;
use rc_ir::{Attr, Diagnostic, Loc, OpName, Result, Type};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Regions, types, attributes and brackets nest this deep.
const DEPTH_LIMIT: u32 = 1000;

/// What was read last for each of some hashes of how a text starts: most of what occurs again is found here.
pub(crate) struct Recent<'s, T, const SLOTS: usize> {
    slots: Box<[Option<(&'s str, T)>; SLOTS]>,
}

impl<'s, T: Copy, const SLOTS: usize> Recent<'s, T, SLOTS> {
    fn new() -> Self {
        Recent { slots: Box::new([None; SLOTS]) }
    }
    /// The slot for what starts at `at`, by `BYTES` bytes from there.
    #[inline]
    pub fn slot<const BYTES: usize>(text: &str, at: usize) -> Option<usize> {
        let bytes = text.as_bytes().get(at..)?.first_chunk::<BYTES>()?;
        let (words, _) = bytes.as_chunks::<8>();
        let key = words.iter().fold(0u64, |key, &word| {
            (key.rotate_left(29) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        Some((key >> 40) as usize % SLOTS)
    }
    /// What a slot holds, where its text is what stands at `at`, and the end of that.
    #[inline]
    pub fn get(&mut self, slot: usize, text: &'s str, at: usize) -> Option<(usize, T)> {
        let (known, value) = self.slots[slot]?;
        let end = at + known.len();
        let found = text.as_bytes().get(at..end)? == known.as_bytes();
        if found {
            // The next one is compared with what was just read: an older place is in no cache.
            self.slots[slot] = Some((&text[at..end], value));
        }
        found.then_some((end, value))
    }
    pub fn set(&mut self, slot: usize, text: &'s str, value: T) {
        self.slots[slot] = Some((text, value));
    }
}

pub(crate) type RecentTypes<'s> = Recent<'s, Type, 512>;
pub(crate) type RecentDicts<'s> = Recent<'s, Attr, 512>;
pub(crate) type RecentSignatures<'s> = Recent<'s, Signature, 256>;

pub(crate) struct Parser<'s> {
    pub text: &'s str,
    source: &'s Source,
    /// The token that comes next, and its bytes.
    pub token: Token,
    pub start: usize,
    pub end: usize,
    /// The end of the token before it.
    pub behind: usize,
    depth: u32,
    pub options: ParseOptions,
    pub diagnostics: Vec<Diagnostic>,
    pub recent_types: RecentTypes<'s>,
    pub recent_dicts: RecentDicts<'s>,
    pub recent_signatures: RecentSignatures<'s>,
    pub op_names: FxHashMap<&'s str, OpName>,
    /// The registered dialects, once an op of none of them has been met.
    pub dialects: Option<FxHashSet<&'static str>>,
    pub attr_aliases: FxHashMap<&'s str, Attr>,
    pub type_aliases: FxHashMap<&'s str, Type>,
    pub loc_aliases: FxHashMap<&'s str, Loc>,
    /// How aliases of locations are written, once an attribute has been one of them.
    pub loc_texts: Option<FxHashMap<&'s str, &'s str>>,
    /// Locations written as aliases that come later in the file: where they are needed.
    pub late_locs: Vec<LateLoc<'s>>,
    pub scope: Scope<'s>,
    /// Whether all top-level ops go into one body.
    pub grouped: bool,
    /// Whether they have to: some use values of others, or more than one has results.
    pub share_values: bool,
}

/// An op whose location is an alias defined after it.
pub(crate) struct LateLoc<'s> {
    pub alias: &'s str,
    pub at: usize,
    /// The top-level op by number; the module itself where there is none.
    pub body: Option<usize>,
    pub op: Option<rc_ir::Op>,
}

impl<'s> Parser<'s> {
    /// A parser of the bytes `range` of a source.
    pub fn new(source: &'s Source, range: Range<usize>, options: ParseOptions) -> Self {
        let text = &source.text[..range.end];
        let mut parser = Parser {
            text,
            source,
            token: Token::End,
            start: 0,
            end: 0,
            behind: 0,
            depth: 0,
            options,
            diagnostics: Vec::new(),
            recent_types: Recent::new(),
            recent_dicts: Recent::new(),
            recent_signatures: Recent::new(),
            op_names: FxHashMap::default(),
            dialects: None,
            attr_aliases: FxHashMap::default(),
            type_aliases: FxHashMap::default(),
            loc_aliases: FxHashMap::default(),
            loc_texts: None,
            late_locs: Vec::new(),
            scope: Scope::default(),
            grouped: false,
            share_values: false,
        };
        parser.seek(range.start);
        parser
    }

    // ---- moving ----

    #[inline]
    pub fn advance(&mut self) {
        self.behind = self.end;
        (self.token, self.start, self.end) = Token::next(self.text, self.end);
    }
    /// Reads on from the byte `at`.
    #[inline]
    pub fn seek(&mut self, at: usize) {
        self.end = at;
        self.advance();
    }
    /// The text of the next token.
    #[inline]
    pub fn slice(&self) -> &'s str {
        &self.text[self.start..self.end]
    }
    #[inline]
    pub fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }
    #[inline]
    pub fn is(&self, token: Token) -> bool {
        self.token == token
    }
    pub fn is_word(&self, word: &str) -> bool {
        self.token == Token::Word && self.slice() == word
    }
    /// Takes the token if it is next.
    #[inline]
    pub fn take(&mut self, token: Token) -> bool {
        let found = self.token == token;
        if found {
            self.advance();
        }
        found
    }
    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }
    /// Takes the token, which must be next; `context` says what for.
    #[inline]
    pub fn expect(&mut self, token: Token, context: &str) -> Result {
        if self.take(token) {
            return Ok(());
        }
        Err(self.missing(token, context))
    }
    #[cold]
    fn missing(&self, token: Token, context: &str) -> Box<Diagnostic> {
        self.expected(&format!("{} {context}", token.describe()))
    }
    /// As [`Parser::expect`], for the token that closes what began at `open`.
    #[inline]
    pub fn expect_close(&mut self, token: Token, open: usize, context: &str) -> Result {
        if self.take(token) {
            return Ok(());
        }
        let error = self.missing(token, context);
        Err(if self.is(Token::End) { error.note(self.loc(open), "opened here") } else { error })
    }

    /// The items between `open`, which must be next, and `close`, with commas between.
    pub fn list(
        &mut self,
        open: Token,
        close: Token,
        context: &str,
        item: &mut dyn FnMut(&mut Self) -> Result,
    ) -> Result {
        let at = self.start;
        self.expect(open, context)?;
        if self.take(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take(Token::Comma) {
                continue;
            }
            if self.take(close) {
                return Ok(());
            }
            return self.expect_close(close, at, &format!("or ',' {context}"));
        }
    }

    /// Runs `f` one level deeper, with enough stack.
    pub fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEPTH_LIMIT {
            return Err(self
                .error(format!("nested deeper than {DEPTH_LIMIT} levels"))
                .help("split the program into functions"));
        }
        self.depth += 1;
        let result = stacker::maybe_grow(128 << 10, 4 << 20, || f(self));
        self.depth -= 1;
        result
    }
    pub fn reset_depth(&mut self) {
        self.depth = 0;
    }

    // ---- messages ----

    #[inline]
    pub fn loc(&self, at: usize) -> Loc {
        self.source.loc(at)
    }
    /// An error at the next token.
    pub fn error(&self, message: impl Into<String>) -> Box<Diagnostic> {
        self.error_at(self.start..self.end, message)
    }
    pub fn error_at(&self, range: Range<usize>, message: impl Into<String>) -> Box<Diagnostic> {
        Diagnostic::error(self.loc(range.start), message).with_len(range.len())
    }
    /// `expected …, found …`.
    #[cold]
    pub fn expected(&self, what: &str) -> Box<Diagnostic> {
        let found = match self.token {
            Token::End => "the end of the file".to_string(),
            Token::Error if self.byte(self.start) == b'"' => "a string that does not end on its line".into(),
            Token::Error => format!("the character {:?}", self.text[self.start..].chars().next().unwrap_or('\0')),
            _ => format!("'{}'", clipped(self.slice())),
        };
        self.error(format!("expected {what}, found {found}"))
    }
}

/// At most 40 characters of a text.
pub(crate) fn clipped(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_string() } else { text.chars().take(37).chain("...".chars()).collect() }
}
