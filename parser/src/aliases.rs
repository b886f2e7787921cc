//! Aliases in what is kept as text, and aliases of locations where an attribute stands: what they stand for is written in their place.

use crate::cursor::Parser;
use rc_ir::{Attr, AttrData, Name, Result};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A text that grows past this where its aliases are written out is refused.
const LIMIT: usize = 1 << 16;

impl<'s> Parser<'s> {
    /// The location that `#name` stands for as an attribute, `loc(…)`. Aliases of locations may be defined after their use.
    pub fn loc_attr(&mut self, name: &str) -> Result<Option<Attr>> {
        if self.loc_texts.is_none() {
            self.loc_texts = Some(self.find_locs());
        }
        if self.loc_texts.as_ref().is_none_or(|texts| !texts.contains_key(name)) {
            return Ok(None);
        }
        let mut text = String::new();
        self.write_loc(name, &mut text, &mut Vec::new())?;
        let text = self.without_aliases(&text)?;
        Ok(Some(Attr::new(AttrData::Opaque(Name::new(&format!("loc({text})"))))))
    }

    /// What stands between the parentheses of all `#name = loc(…)`.
    fn find_locs(&self) -> FxHashMap<&'s str, &'s str> {
        let mut found = FxHashMap::default();
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            let Some((name, _)) = line.strip_prefix('#').and_then(|rest| rest.split_once(" = loc(")) else { continue };
            let open = start + 1 + name.len() + " = loc".len();
            if let Ok(end) = self.balanced_end(open, false) {
                found.insert(name, &self.text[open + 1..end - 1]);
            }
        }
        found
    }

    /// Writes a location without aliases. `inside`: the aliases that are being written.
    fn write_loc(&self, name: &str, to: &mut String, inside: &mut Vec<String>) -> Result {
        let Some(&text) = self.loc_texts.as_ref().and_then(|texts| texts.get(name)) else { return Ok(()) };
        if inside.iter().any(|around| around == name) {
            return Err(self.error(format!("the location alias '#{name}' stands for itself")));
        }
        inside.push(name.to_string());
        let mut behind = 0;
        for (start, word) in aliases(text) {
            if self.loc_texts.as_ref().is_some_and(|texts| texts.contains_key(&word[1..])) {
                to.push_str(&text[behind..start]);
                // Metadata of a fusion is an attribute, not a location.
                let metadata = text[..start].ends_with('<');
                to.push_str(if metadata { "loc(" } else { "" });
                self.write_loc(&word[1..], to, inside)?;
                to.push_str(if metadata { ")" } else { "" });
                behind = start + word.len();
            }
            self.check_length(to)?;
        }
        to.push_str(&text[behind..]);
        inside.pop();
        Ok(())
    }

    /// A text with what its aliases stand for, as far as they are defined before.
    pub fn without_aliases<'t>(&self, text: &'t str) -> Result<Cow<'t, str>> {
        if self.attr_aliases.is_empty() && self.type_aliases.is_empty() {
            return Ok(text.into());
        }
        let (mut out, mut behind) = (String::new(), 0);
        for (start, word) in aliases(text) {
            let name = &word[1..];
            let written = match word.as_bytes()[0] {
                b'#' => self.attr_aliases.get(name).map(Attr::to_string),
                _ => self.type_aliases.get(name).map(|ty| ty.to_string()),
            };
            if let Some(written) = written {
                out.push_str(&text[behind..start]);
                out.push_str(&written);
                behind = start + word.len();
            }
            self.check_length(&out)?;
        }
        Ok(if behind == 0 { text.into() } else { (out + &text[behind..]).into() })
    }

    fn check_length(&self, text: &str) -> Result {
        if text.len() <= LIMIT {
            return Ok(());
        }
        Err(self.error(format!("not supported: more than {LIMIT} characters where aliases are written out")))
    }
}

/// What may be aliases in a text, and where: `#name` and `!name`, without a dot or parameters, outside of strings.
fn aliases(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b'"' => {
                    while !matches!(bytes.get(at), None | Some(b'"')) {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                b'#' | b'!' => {
                    let word = |b: &&u8| b.is_ascii_alphanumeric() || b"_$.-".contains(b);
                    at += bytes[at..].iter().take_while(word).count();
                    let name = &text[start + 1..at];
                    if !name.is_empty() && !name.contains('.') && bytes.get(at) != Some(&b'<') {
                        return Some((start, &text[start..at]));
                    }
                }
                _ => {}
            }
        }
        None
    })
}
