//! Tokens of rewrite rules: those of the IR that rules have, and a few of their own.

use logos::Logos;
use std::ops::Range;

/// The tokens of a text. Nothing stands between statements, so a value that starts one is told from an operand here: it follows a block's start, or
/// what ends a statement, be that a word or a variable at the end of a line.
pub fn tokens(text: &str) -> impl Iterator<Item = (Result<Token<'_>, ()>, Range<usize>)> {
    let mut last: Option<(Token, usize)> = None;
    Token::lexer(text).spanned().map(move |(token, span)| {
        let token = token.map(|token| match (token, last) {
            (Token::Value(name), Some((before, end))) if starts(before, &text[end..span.start]) => Token::Result(name),
            _ => token,
        });
        last = token.ok().map(|token| (token, span.end));
        (token, span)
    })
}

fn starts(before: Token, between: &str) -> bool {
    use Token::{BraceClose, BraceOpen, Ellipsis, Greater, ParenClose, Value, Var, Word};
    match before {
        BraceOpen | BraceClose | Greater | Value(_) | Ellipsis | ParenClose => true,
        Word(_) | Var(_) => between.contains('\n'),
        _ => false,
    }
}

#[derive(Logos, Clone, Copy, PartialEq, Debug)]
#[logos(skip r"[ \t\r\n]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
pub enum Token<'s> {
    #[token("rule")]
    Rule,
    #[token("form")]
    Form,
    #[token("remark")]
    Remark,
    #[token("in")]
    In,
    #[token("where")]
    Where,
    #[token("assuming")]
    Assuming,
    #[token("let")]
    Let,
    #[token("and")]
    And,
    #[token("or")]
    Or,
    #[token("not")]
    Not,
    #[token("mod")]
    Mod,
    #[token("floordiv")]
    FloorDiv,
    #[token("ceildiv")]
    CeilDiv,
    #[token("none")]
    None,
    #[token("else")]
    Else,
    #[token("tensor")]
    Tensor,
    /// Between dimensions.
    #[token("x", priority = 3)]
    X,
    /// `core.add`, `f32`, `reshape-of-reshape`.
    #[regex(r"[A-Za-z_][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*")]
    Word(&'s str),
    /// `%x`
    #[regex(r"%([0-9]+|[A-Za-z_][A-Za-z0-9_]*)", |lex| &lex.slice()[1..])]
    Value(&'s str),
    /// `%x` at the start of a statement, see [`tokens`].
    Result(&'s str),
    /// `$n`
    #[regex(r"\$[A-Za-z_][A-Za-z0-9_]*", |lex| &lex.slice()[1..])]
    Var(&'s str),
    #[regex(r"[0-9]+", |lex| lex.slice().parse().ok())]
    Int(i64),
    /// `4x5x`: fixed sizes at the start of a type or in it.
    #[regex(r"([0-9]+x)+", |lex| lex.slice())]
    Sizes(&'s str),
    #[regex(r"[0-9]+\.[0-9]*([eE][+\-]?[0-9]+)?", |lex| lex.slice().parse().ok())]
    Float(f64),
    #[regex(r#""[^"\\\n]*""#, |lex| lex.slice().trim_matches('"'))]
    Str(&'s str),
    #[token("(")]
    ParenOpen,
    #[token(")")]
    ParenClose,
    #[token("{")]
    BraceOpen,
    #[token("}")]
    BraceClose,
    #[token("[")]
    BracketOpen,
    #[token("]")]
    BracketClose,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("<=")]
    LessEqual,
    #[token(">=")]
    GreaterEqual,
    #[token("==")]
    EqualEqual,
    #[token("!=")]
    NotEqual,
    #[token("=>")]
    Becomes,
    #[token("->")]
    Arrow,
    #[token("=")]
    Equal,
    #[token(",")]
    Comma,
    #[token(":")]
    Colon,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("...")]
    Ellipsis,
    #[token("..")]
    DotDot,
}
