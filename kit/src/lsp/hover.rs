//! What is said of the word under the cursor.

use super::document::Document;
use super::names::{Kind, op_named};
use rc_ir::OpDef;
use rc_parser::Token;
use std::ops::Range;

/// Markdown, and the bytes that it is about.
pub fn hover(document: &mut Document, offset: usize) -> Option<(String, Range<usize>)> {
    if let Some(place) = document.names().at(offset) {
        return name(document, place);
    }
    let text = document.text.clone();
    let names = document.names();
    let (token, range) = names.token_at(offset)?;
    if let Some(op) = op_named(&text, token, &range) {
        return Some((rc_ir::docs::op_section(op), range));
    }
    let (op, _) = names.op_before(&text, range.start)?;
    let page = attribute(op, &text[range.clone()]).filter(|_| token == Token::Word)?;
    Some((page, range))
}

fn name(document: &mut Document, place: usize) -> Option<(String, Range<usize>)> {
    let text = document.text.clone();
    let names = document.names();
    let here = names.places[place].name.clone();
    let definition = names.places[names.places[place].definition?].clone();
    let written = &text[definition.name.clone()];
    let said = match definition.kind {
        Kind::Value => {
            let ty = match definition.result_of {
                Some((op, number)) => document.analysis().types.get(&op)?.get(number)?.to_string(),
                None => type_after(&text, definition.name.end)?.to_string(),
            };
            format!("%{written}: {ty}")
        }
        Kind::Symbol => head_of(&text, definition.name.start).to_string(),
        Kind::Block => return None,
        Kind::Alias => line_of(&text, definition.name.start).trim().to_string(),
    };
    Some((format!("```mlir\n{said}\n```"), here))
}

/// The type behind an argument's name: up to the comma, dictionary or parenthesis that ends it.
fn type_after(text: &str, from: usize) -> Option<&str> {
    let rest = text[from..].trim_start().strip_prefix(':')?;
    let mut depth = 0;
    let end = rest.find(|c| {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        depth < 0 || depth == 0 && matches!(c, ',' | '{' | '=' | '\n')
    });
    Some(rest[..end.unwrap_or(rest.len())].trim())
}

/// The signature of the operation around an offset: from the start of its line to its body.
fn head_of(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    let end = text[at..].find(" {\n").or_else(|| text[at..].find('\n')).map_or(text.len(), |i| at + i);
    text[start..end].trim()
}

fn line_of(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    &text[start..text[at..].find('\n').map_or(text.len(), |i| at + i)]
}

fn attribute(op: &OpDef, word: &str) -> Option<String> {
    let attr = op.attr_def(word)?;
    Some(format!("`{word}` of `{}`: {}\n\n{}", op.name.trim_start_matches("rc."), attr.kind.desc(), attr.doc))
}
