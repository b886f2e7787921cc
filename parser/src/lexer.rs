//! Tokens of the IR's text.

use logos::Logos;

#[derive(Logos, Clone, Copy, PartialEq, Eq, Debug)]
#[logos(skip r"[ \t\r\n]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
pub enum Token {
    /// A word: `core.add`, `tensor`, `dims`.
    #[regex(r"[A-Za-z_][A-Za-z0-9_$.]*")]
    Word,
    /// `%x`, `%0`.
    #[regex(r"%([0-9]+|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*)")]
    Value,
    /// `^bb0`.
    #[regex(r"\^([0-9]+|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*)")]
    Label,
    /// `@f`, `@"f-g"`.
    #[regex(r"@[A-Za-z_][A-Za-z0-9_$.]*")]
    #[regex(r#"@"([^"\\\n]|\\[^\n])*""#)]
    Symbol,
    /// `#alias`, `#rc.shape`, and `#1` of `%r#1`.
    #[regex(r"#([0-9]+|[A-Za-z_$.\-][A-Za-z0-9_$.\-]*)")]
    Hash,
    /// `!alias`, `!rc.tile`.
    #[regex(r"![A-Za-z_$.\-][A-Za-z0-9_$.\-]*")]
    Bang,
    #[regex(r"[0-9]+")]
    Int,
    #[regex(r"0x[0-9A-Fa-f]+")]
    Hex,
    #[regex(r"[0-9]+\.[0-9]*([eE][+\-]?[0-9]+)?")]
    Float,
    #[regex(r#""([^"\\\n]|\\[^\n])*""#)]
    String,
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
    #[token(",")]
    Comma,
    #[token("::")]
    ColonColon,
    #[token(":")]
    Colon,
    #[token("=")]
    Equal,
    #[token("->")]
    Arrow,
    #[token("-")]
    Minus,
    #[token("+")]
    Plus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("|")]
    Bar,
    #[token("?")]
    Question,
    #[token("{-#")]
    MetaOpen,
    #[token("#-}")]
    MetaClose,
    /// Bytes that start no token.
    Error,
    End,
}

impl Token {
    /// How messages name a token that has one spelling, or its kind.
    pub fn describe(self) -> &'static str {
        match self {
            Token::Word => "a word",
            Token::Value => "a value, %name",
            Token::Label => "a block, ^name",
            Token::Symbol => "a symbol, @name",
            Token::Hash => "an attribute, #name",
            Token::Bang => "a type, !name",
            Token::Int | Token::Hex => "an integer",
            Token::Float => "a float",
            Token::String => "a string",
            Token::ParenOpen => "'('",
            Token::ParenClose => "')'",
            Token::BraceOpen => "'{'",
            Token::BraceClose => "'}'",
            Token::BracketOpen => "'['",
            Token::BracketClose => "']'",
            Token::Less => "'<'",
            Token::Greater => "'>'",
            Token::Comma => "','",
            Token::ColonColon => "'::'",
            Token::Colon => "':'",
            Token::Equal => "'='",
            Token::Arrow => "'->'",
            Token::Minus => "'-'",
            Token::Plus => "'+'",
            Token::Star => "'*'",
            Token::Slash => "'/'",
            Token::Bar => "'|'",
            Token::Question => "'?'",
            Token::MetaOpen => "'{-#'",
            Token::MetaClose => "'#-}'",
            Token::Error => "a character that starts nothing",
            Token::End => "the end of the file",
        }
    }
}
