//! The parser's position in the text, and the memory of what it has read: types and dictionaries by
//! their text, names of ops, aliases.

use crate::ParseOptions;
use crate::lexer::Token;
use crate::scope::Scope;
use logos::Logos;
use rc_ir::loc::Source;
use rc_ir::{Attr, Diagnostic, Loc, OpName, Result, Type};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Regions, types, attributes and brackets nest this deep.
const DEPTH_LIMIT: u32 = 1000;

/// Types that are found without a look at their whole text.
pub(crate) const RECENT: usize = 256;

pub(crate) struct Parser<'s> {
    pub text: &'s str,
    source: &'s Source,
    lexer: logos::Lexer<'s, Token>,
    /// The token that comes next, and its bytes.
    pub token: Token,
    pub start: usize,
    pub end: usize,
    depth: u32,
    pub options: ParseOptions,
    pub diagnostics: Vec<Diagnostic>,
    pub types: FxHashMap<&'s str, Type>,
    /// Of these the last for each of some hashes of how they start: most types are found here.
    pub recent_types: Box<[Option<(&'s str, Type)>; RECENT]>,
    pub dicts: FxHashMap<&'s str, Attr>,
    pub op_names: FxHashMap<&'s str, OpName>,
    /// The registered dialects, once an op of none of them has been met.
    pub dialects: Option<FxHashSet<&'static str>>,
    pub attr_aliases: FxHashMap<&'s str, Attr>,
    pub type_aliases: FxHashMap<&'s str, Type>,
    pub loc_aliases: FxHashMap<&'s str, Loc>,
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
            lexer: Token::lexer(text),
            token: Token::End,
            start: 0,
            end: 0,
            depth: 0,
            options,
            diagnostics: Vec::new(),
            types: FxHashMap::default(),
            recent_types: Box::new([None; RECENT]),
            dicts: FxHashMap::default(),
            op_names: FxHashMap::default(),
            dialects: None,
            attr_aliases: FxHashMap::default(),
            type_aliases: FxHashMap::default(),
            loc_aliases: FxHashMap::default(),
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
        self.token = match self.lexer.next() {
            Some(Ok(token)) => token,
            Some(Err(())) => Token::Error,
            None => Token::End,
        };
        let span = self.lexer.span();
        (self.start, self.end) = (span.start, span.end);
    }
    /// Reads on from the byte `at`.
    pub fn seek(&mut self, at: usize) {
        if at < self.lexer.span().end {
            self.lexer = Token::lexer(self.text);
        }
        self.lexer.bump(at - self.lexer.span().end);
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
        Err(self.expected(&format!("{} {context}", token.describe())))
    }
    /// As [`Parser::expect`], for the token that closes what began at `open`.
    pub fn expect_close(&mut self, token: Token, open: usize, context: &str) -> Result {
        if self.take(token) {
            return Ok(());
        }
        let error = self.expected(&format!("{} {context}", token.describe()));
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
