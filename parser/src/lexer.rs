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

/// What a byte is to names.
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const DOLLAR_OR_DOT: u8 = 4;
const MINUS: u8 = 8;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'$' | b'.' => DOLLAR_OR_DOT,
            b'-' => MINUS,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

impl Token {
    /// The token that starts at byte `from` of a text or after blanks and comments there, and its bytes.
    ///
    /// Most of a large text are a few kinds of tokens, which a look at a byte or two tells apart; `logos` reads the others.
    #[inline]
    pub fn next(text: &str, from: usize) -> (Token, usize, usize) {
        let bytes = text.as_bytes();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let is = |at: usize, classes: u8| CLASSES[usize::from(byte(at))] & classes != 0;
        let run = |mut at: usize, classes: u8| {
            while is(at, classes) {
                at += 1;
            }
            at
        };
        let mut at = from;
        while matches!(byte(at), b' ' | b'\n') {
            at += 1;
        }
        let one = |token: Token| (token, at, at + 1);
        match byte(at) {
            b'(' => one(Token::ParenOpen),
            b')' => one(Token::ParenClose),
            b',' => one(Token::Comma),
            b'=' => one(Token::Equal),
            b'<' => one(Token::Less),
            b'>' => one(Token::Greater),
            b'[' => one(Token::BracketOpen),
            b']' => one(Token::BracketClose),
            b'}' => one(Token::BraceClose),
            b'{' if byte(at + 1) != b'-' => one(Token::BraceOpen),
            b':' if byte(at + 1) != b':' => one(Token::Colon),
            b'-' if byte(at + 1) == b'>' => (Token::Arrow, at, at + 2),
            b'%' if is(at + 1, DIGIT) => (Token::Value, at, run(at + 2, DIGIT)),
            b'%' if is(at + 1, LETTER) => (Token::Value, at, run(at + 2, LETTER | DIGIT | DOLLAR_OR_DOT | MINUS)),
            b'"' => match bytes[at + 1..].iter().position(|b| matches!(b, b'"' | b'\\' | b'\n')) {
                Some(n) if bytes[at + 1 + n] == b'"' => (Token::String, at, at + n + 2),
                _ => Token::next_of_any(text, at),
            },
            _ if is(at, LETTER) => (Token::Word, at, run(at + 1, LETTER | DIGIT | DOLLAR_OR_DOT)),
            _ => Token::next_of_any(text, at),
        }
    }

    /// As [`Token::next`], for any token.
    #[inline(never)]
    fn next_of_any(text: &str, from: usize) -> (Token, usize, usize) {
        let mut lexer = Token::lexer(text);
        lexer.bump(from);
        let token = match lexer.next() {
            Some(Ok(token)) => token,
            Some(Err(())) => Token::Error,
            None => Token::End,
        };
        let span = lexer.span();
        (token, span.start, span.end)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is told apart by a byte or two is what the grammar says.
        #[test]
        fn short_cuts_follow_the_grammar(text in "([ \n\t(),=<>\\[\\]{}:\\-%\"\\\\#^@!/a-c_$.0-2xeé]|->|::|\\{-#|#-\\}|%[0-9a]|//){0,24}") {
            let mut at = 0;
            loop {
                let (token, start, end) = Token::next(&text, at);
                prop_assert_eq!((token, start, end), Token::next_of_any(&text, at));
                if token == Token::End {
                    break;
                }
                at = end;
            }
        }
    }
}
