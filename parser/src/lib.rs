//! Text to IR.
//!
//! One grammar for every dialect, in two forms that may be mixed in a file: MLIR's generic form
//! (`"rc.core.add"(%a, %b) : (f32, f32) -> f32`) and the pretty form (`core.add %a, %b : f32`).
//! Recursive descent over a `logos` lexer. Every error is a [`Diagnostic`] with a position; no text
//! makes the parser panic, and none nests it deeper than 1000 levels.
//!
//! ```
//! let options = rc_parser::ParseOptions { allow_unregistered: true };
//! let (module, diagnostics) = rc_parser::parse_module_with("t.ir", "%x = foo.bar {n = 3 : i64} : f32\n", &options);
//! assert!(diagnostics.is_empty());
//! assert_eq!(module.unwrap().to_string(), "%x = foo.bar {n = 3 : i64} : f32\n");
//! ```

mod aliases;
mod attrs;
mod cursor;
mod dense;
mod dims;
mod function;
mod generic;
mod lexer;
mod locs;
mod module;
mod numbers;
mod operands;
mod ops;
pub mod pipeline;
mod pretty;
pub mod rules;
mod scope;
mod types;

use cursor::Parser;
pub use lexer::Token;
use rc_ir::loc::Source;
use rc_ir::{Attr, Diagnostic, Module, Result, Type};
use std::ops::Range;

#[derive(Clone, Copy, Debug, Default)]
pub struct ParseOptions {
    /// Whether operations of dialects that are not registered are accepted.
    pub allow_unregistered: bool,
}

/// Parses a module whose operations are all registered. `None` if there is an error among the diagnostics.
pub fn parse_module(name: &str, text: impl Into<String>) -> (Option<Module>, Vec<Diagnostic>) {
    parse_module_with(name, text, &ParseOptions::default())
}

/// As [`parse_module`], with options.
pub fn parse_module_with(
    name: &str,
    text: impl Into<String>,
    options: &ParseOptions,
) -> (Option<Module>, Vec<Diagnostic>) {
    let source = Source::register(name, text.into());
    parse_source(&source, 0..source.text.len(), options)
}

/// Parses a file's bytes, which need not be UTF-8: that is a diagnostic too.
pub fn parse_bytes(name: &str, bytes: Vec<u8>, options: &ParseOptions) -> (Option<Module>, Vec<Diagnostic>) {
    match String::from_utf8(bytes) {
        Ok(text) => parse_module_with(name, text, options),
        Err(error) => (None, vec![*not_utf8(name, error)]),
    }
}

/// The diagnostic for a file that is not UTF-8.
pub fn not_utf8(name: &str, error: std::string::FromUtf8Error) -> Box<Diagnostic> {
    let at = error.utf8_error().valid_up_to();
    let source = Source::register(name, String::from_utf8_lossy(error.as_bytes()).into_owned());
    Diagnostic::error(source.loc(at), "the file is not text: these bytes are not UTF-8").with_len(1)
}

/// Parses a piece of a source, as of a file split at `// -----`. Positions are those of the whole source.
///
/// # Panics
/// If `range` is not within the text, on character boundaries.
pub fn parse_source(source: &Source, range: Range<usize>, options: &ParseOptions) -> (Option<Module>, Vec<Diagnostic>) {
    if source.text.len() > u32::MAX as usize {
        let error = Diagnostic::error(source.loc(0), "not supported: a text of more than 4 GiB");
        return (None, vec![*error.help("keep large constants in a safetensors file")]);
    }
    let (module, diagnostics) = read(source, range, options);
    (diagnostics.is_empty().then_some(module), diagnostics)
}

/// What can be read of a text. Where top-level operations share values, they are read again, into one body.
fn read(source: &Source, range: Range<usize>, options: &ParseOptions) -> (Module, Vec<Diagnostic>) {
    let mut parser = Parser::new(source, range.clone(), *options);
    let mut module = parser.readable();
    if parser.share_values {
        parser = Parser::new(source, range, *options);
        parser.grouped = true;
        module = parser.readable();
    }
    (module, parser.diagnostics)
}

/// What can be read of a text that may be half written: the top-level operations without errors, and what is wrong with the others.
pub fn parse_readable(source: &Source, options: &ParseOptions) -> (Module, Vec<Diagnostic>) {
    read(source, 0..source.text.len().min(u32::MAX as usize), options)
}

/// The tokens of a text and where they are, comments and what is no token left out: for editors.
pub fn tokens(text: &str) -> Vec<(Token, Range<usize>)> {
    use logos::Logos;
    Token::lexer(text).spanned().filter_map(|(token, range)| Some((token.ok()?, range))).collect()
}

/// Parses a type: `tensor<s x 4 x f32>`.
pub fn parse_type(text: &str) -> Result<Type> {
    parse_all(text, |p| p.ty())
}

/// Parses an attribute in the generic spelling: `#rc.shape<[s, 4]>`, `3 : i64`.
pub fn parse_attr(text: &str) -> Result<Attr> {
    parse_all(text, |p| p.attr())
}

/// Parses an attribute that stands in a piece of a source. Positions are those of the whole source.
///
/// # Panics
/// As [`parse_source`].
pub fn parse_attr_in(source: &Source, range: Range<usize>) -> Result<Attr> {
    parse_range(source, range, |p| p.attr())
}

fn parse_all<T>(text: &str, parse: impl FnOnce(&mut Parser) -> Result<T>) -> Result<T> {
    let source = Source::register("<string>", text.to_string());
    parse_range(&source, 0..source.text.len(), parse)
}

fn parse_range<T>(source: &Source, range: Range<usize>, parse: impl FnOnce(&mut Parser) -> Result<T>) -> Result<T> {
    let mut parser = Parser::new(source, range, ParseOptions::default());
    let parsed = parse(&mut parser)?;
    if parser.is(Token::End) { Ok(parsed) } else { Err(parser.expected("nothing more")) }
}
