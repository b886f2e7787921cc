//! Formatting: indentation and spaces at the ends of lines. Comments and line breaks stay as they are, and so does text that does not parse.

use super::document::Document;
use lsp_types::TextEdit;
use rc_parser::{Token, tokens};

/// The edits that indent each line by two spaces for each line before it that opened a brace.
pub fn format(document: &Document) -> Vec<TextEdit> {
    let wanted = indentations(document);
    let mut edits = Vec::new();
    for (number, indent) in wanted.into_iter().enumerate() {
        let line = document.line(number);
        let old = &document.text[line.clone()];
        let trimmed = old.trim_end();
        let body = trimmed.trim_start();
        let new = match indent {
            _ if body.is_empty() => String::new(),
            Some(depth) => "  ".repeat(depth) + body,
            None => trimmed.to_string(),
        };
        if new != old {
            edits.push(TextEdit { range: document.range(line), new_text: new });
        }
    }
    edits
}

/// For each line how deep it is; `None` where it goes on inside of parentheses or brackets, whose alignment is the author's.
fn indentations(document: &Document) -> Vec<Option<usize>> {
    let mut all = Vec::new();
    // Open brackets with the line that they are in.
    let mut open: Vec<(Token, usize)> = Vec::new();
    let tokens = tokens(&document.text);
    let mut next = tokens.iter().peekable();
    for number in 0..document.line_count() {
        let line = document.line(number);
        let mut inside = open.clone();
        let mut first = true;
        while let Some((token, _)) = next.next_if(|(_, range)| range.start < line.end.max(line.start + 1)) {
            match token {
                Token::BraceOpen | Token::ParenOpen | Token::BracketOpen => open.push((*token, number)),
                Token::BraceClose | Token::ParenClose | Token::BracketClose => {
                    close(&mut open, *token);
                    if first {
                        inside = open.clone();
                    }
                }
                _ => {}
            }
            first &= matches!(token, Token::BraceClose | Token::ParenClose | Token::BracketClose);
        }
        let continues = inside.last().is_some_and(|last| last.0 != Token::BraceOpen);
        let mut lines: Vec<usize> = inside.iter().filter(|o| o.0 == Token::BraceOpen).map(|o| o.1).collect();
        lines.dedup();
        all.push((!continues).then_some(lines.len()));
    }
    all
}

fn close(open: &mut Vec<(Token, usize)>, token: Token) {
    let opened = match token {
        Token::BraceClose => Token::BraceOpen,
        Token::ParenClose => Token::ParenOpen,
        _ => Token::BracketOpen,
    };
    if let Some(at) = open.iter().rposition(|o| o.0 == opened) {
        open.truncate(at);
    }
}
