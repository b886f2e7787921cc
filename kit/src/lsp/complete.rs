//! What may be written at the cursor.

use super::document::Document;
use super::names::Kind;
use lsp_types::{CompletionItem, CompletionItemKind};
use rc_ir::op_def::{AttrKind, OpDef, registered};
use rc_parser::Token;

/// Values offered at most; an editor filters what it gets.
const MOST: usize = 500;

pub fn complete(document: &mut Document, offset: usize) -> Vec<CompletionItem> {
    let text = document.text.clone();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.$-".contains(c);
    let start = text[..offset].trim_end_matches(is_word).len();
    match text[..start].chars().next_back() {
        Some('%') => values(document, offset),
        Some('@') => names(document, offset, Kind::Symbol, CompletionItemKind::FUNCTION),
        Some('^') => names(document, offset, Kind::Block, CompletionItemKind::REFERENCE),
        Some('#' | '!') => names(document, offset, Kind::Alias, CompletionItemKind::CONSTANT),
        _ => match attributes(document, &text, start) {
            Some(items) => items,
            None => operations(),
        },
    }
}

fn values(document: &mut Document, offset: usize) -> Vec<CompletionItem> {
    let mut items = names(document, offset, Kind::Value, CompletionItemKind::VARIABLE);
    let definitions = document.names().visible(offset, Kind::Value);
    let results: Vec<_> = definitions.iter().map(|&d| document.names().places[d].result_of).collect();
    let types = &document.analysis().types;
    for (item, result) in items.iter_mut().zip(results) {
        item.detail = result.and_then(|(op, number)| Some(types.get(&op)?.get(number)?.to_string()));
    }
    items
}

fn names(document: &mut Document, offset: usize, kind: Kind, icon: CompletionItemKind) -> Vec<CompletionItem> {
    let text = document.text.clone();
    let names = document.names();
    let label = |&at: &usize| text[names.places[at].name.clone()].to_string();
    let item = |label| CompletionItem { label, kind: Some(icon), ..CompletionItem::default() };
    names.visible(offset, kind).iter().take(MOST).map(label).map(item).collect()
}

/// In an operation's dictionary: its attributes, or after `=` the words that one may be. `None` elsewhere.
fn attributes(document: &mut Document, text: &str, start: usize) -> Option<Vec<CompletionItem>> {
    let names = document.names();
    let (op, at) = names.op_before(text, start)?;
    // A dictionary is on the line of its operation; a region is not.
    if names.bracket(start) != Token::BraceOpen || text[at.end..start].contains('\n') {
        return None;
    }
    let before = text[..start].trim_end();
    let item = |label: &str, detail: String, icon| CompletionItem {
        label: label.to_string(),
        detail: Some(detail),
        kind: Some(icon),
        ..CompletionItem::default()
    };
    if let Some(key) = before.strip_suffix('=') {
        let key = key.trim_end();
        let key = &key[key.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len()..];
        let words = |kind| match kind {
            AttrKind::Enum(words) => words.to_vec(),
            AttrKind::Bool => vec!["true", "false"],
            _ => Vec::new(),
        };
        let attr = op.attr_def(key)?;
        return Some(
            words(attr.kind).iter().map(|w| item(w, attr.doc.into(), CompletionItemKind::ENUM_MEMBER)).collect(),
        );
    }
    let of = |op: &'static OpDef| op.attrs.iter().map(|a| item(a.name, a.kind.desc(), CompletionItemKind::PROPERTY));
    Some(of(op).collect())
}

fn operations() -> Vec<CompletionItem> {
    let item = |op: &OpDef| CompletionItem {
        label: op.name.strip_prefix("rc.").unwrap_or(op.name).to_string(),
        detail: Some(op.summary.split_whitespace().collect::<Vec<_>>().join(" ")),
        kind: Some(CompletionItemKind::KEYWORD),
        ..CompletionItem::default()
    };
    registered().into_iter().map(item).collect()
}
