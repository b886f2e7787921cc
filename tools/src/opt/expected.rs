//! `--verify-diagnostics`: each diagnostic is announced by a comment, as in MLIR's tests:
//! `// expected-error@+1 {{text}}`, with `@-2`, `@above`, `@below`, `@unknown` or nothing for the same line. In
//! `// expected-error-re {{at least {{[0-9]+}} bytes}}` the inner braces hold regular expressions.

use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Loc, Severity};
use regex::Regex;
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Error,
    Warning,
    Remark,
    Note,
}

impl Kind {
    const ALL: [(Kind, &'static str); 4] =
        [(Kind::Error, "error"), (Kind::Warning, "warning"), (Kind::Remark, "remark"), (Kind::Note, "note")];

    fn word(self) -> &'static str {
        Kind::ALL.iter().find(|k| k.0 == self).map_or("", |k| k.1)
    }
}

struct Expected {
    kind: Kind,
    /// From 1; `None` for a diagnostic without a position.
    line: Option<u32>,
    text: String,
    /// Finds the text in a message.
    pattern: Regex,
    /// Where the comment is.
    at: Loc,
}

pub struct Expectations<'s> {
    source: &'s Source,
    expected: Vec<Expected>,
}

impl<'s> Expectations<'s> {
    /// The comments in a piece of a source.
    pub fn read(source: &'s Source, piece: Range<usize>) -> rc_ir::Result<Expectations<'s>> {
        let mut expected = Vec::new();
        let lines: Vec<&str> = source.text[piece.clone()].split('\n').collect();
        let first = source.line_col(piece.start).0;
        let mut start = piece.start;
        for (i, line) in lines.iter().enumerate() {
            for (at, _) in line.match_indices("expected-") {
                let loc = source.loc(start + at);
                let (kind, rest) = match kind_of(&line[at + "expected-".len()..]) {
                    Some(found) => found,
                    None => continue,
                };
                let bad = |why: &str| Err(Diagnostic::error(loc, format!("malformed expectation: {why}")).with_len(9));
                let (rest, is_re) = rest.strip_prefix("-re").map_or((rest, false), |rest| (rest, true));
                let Some((place, text)) = rest.split_once("{{") else { return bad("'{{' is missing") };
                let Some(text) = up_to_end(text, is_re) else { return bad("'}}' is missing") };
                let pattern = match pattern(text.trim(), is_re) {
                    Ok(pattern) => pattern,
                    Err(why) => return bad(&why),
                };
                let Some(line) = line_of(place.trim(), i, &lines) else {
                    return bad("expected @+N, @-N, @above, @below, @unknown or nothing before '{{'");
                };
                let line = line.map(|n| first + n as u32);
                expected.push(Expected { kind, line, text: text.trim().to_string(), pattern, at: loc });
            }
            start += line.len() + 1;
        }
        Ok(Expectations { source, expected })
    }

    /// What is wrong: diagnostics that no comment announces, and comments without a diagnostic.
    pub fn check(mut self, diagnostics: &[Diagnostic]) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        for diagnostic in diagnostics {
            let kind = match diagnostic.severity {
                Severity::Error => Kind::Error,
                Severity::Warning => Kind::Warning,
                Severity::Remark => Kind::Remark,
            };
            if !self.take(kind, diagnostic.loc, &diagnostic.message) {
                let mut unexpected = diagnostic.clone();
                unexpected.message = format!("unexpected {}: {}", kind.word(), diagnostic.message);
                unexpected.severity = Severity::Error;
                wrong.push(unexpected);
            }
            // Notes may be announced, and need not be.
            for (loc, message) in &diagnostic.notes {
                self.take(Kind::Note, *loc, message);
            }
        }
        for left in &self.expected {
            let message = format!("expected {} was not produced: {}", left.kind.word(), left.text);
            wrong.push(*Diagnostic::error(left.at, message));
        }
        wrong
    }

    /// Strikes out the expectation that a message meets.
    fn take(&mut self, kind: Kind, loc: Loc, message: &str) -> bool {
        let line = loc.source().filter(|(s, _)| std::ptr::eq(&**s, self.source)).map(|(s, at)| s.line_col(at).0);
        let met = self.expected.iter().position(|e| e.kind == kind && e.line == line && e.pattern.is_match(message));
        met.map(|i| self.expected.remove(i)).is_some()
    }
}

fn kind_of(text: &str) -> Option<(Kind, &str)> {
    Kind::ALL.iter().find_map(|&(kind, word)| Some((kind, text.strip_prefix(word)?)))
}

/// The text before the `}}` that ends it; with regular expressions, not before one that ends one of those.
fn up_to_end(text: &str, is_re: bool) -> Option<&str> {
    let mut from = 0;
    loop {
        let end = from + text[from..].find("}}")?;
        match text[from..end].find("{{").filter(|_| is_re) {
            Some(_) => from = end + 2,
            None => return Some(&text[..end]),
        }
    }
}

/// The pattern of a text, in which regular expressions stand in double braces where it `is_re`.
fn pattern(text: &str, is_re: bool) -> Result<Regex, String> {
    if !is_re {
        return Ok(Regex::new(&regex::escape(text)).expect("escaped text"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inner, after) = after.split_once("}}").ok_or("'}}' is missing")?;
        out += &format!("{}(?:{inner})", regex::escape(before));
        rest = after;
    }
    out += &regex::escape(rest);
    Regex::new(&out)
        .map_err(|e| format!("the regular expression is wrong: {}", e.to_string().lines().last().unwrap_or_default()))
}

/// The line meant, counted within the piece; `Some(None)` for none.
fn line_of(place: &str, here: usize, lines: &[&str]) -> Option<Option<usize>> {
    let is_plain = |i: usize| lines.get(i).is_some_and(|l| !l.contains("expected-"));
    match place.strip_prefix('@') {
        None => place.is_empty().then_some(Some(here)),
        Some("unknown") => Some(None),
        Some("above") => Some(Some((0..here).rev().find(|&i| is_plain(i))?)),
        Some("below") => Some(Some((here + 1..lines.len()).find(|&i| is_plain(i))?)),
        Some(offset) => {
            let offset: i64 = offset.parse().ok().filter(|_| offset.starts_with(['+', '-']))?;
            usize::try_from(here as i64 + offset).ok().map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, diagnostics: impl Fn(&Source) -> Vec<Diagnostic>) -> Vec<String> {
        let source = Source::register("e.ir", text.to_string());
        let found = diagnostics(&source);
        match Expectations::read(&source, 0..source.text.len()) {
            Ok(e) => e.check(&found).into_iter().map(|d| d.message).collect(),
            Err(error) => vec![error.message.clone()],
        }
    }

    #[test]
    fn meets_by_line_and_text() {
        let at = |line: usize| {
            move |s: &Source| {
                let offset = s.text.match_indices('\n').nth(line - 2).map_or(0, |m| m.0 + 1);
                vec![*Diagnostic::error(s.loc(offset), "bad thing here")]
            }
        };
        assert!(check("// expected-error@+1 {{bad thing}}\nx\n", at(2)).is_empty());
        assert!(check("// expected-error@below {{bad thing}}\nx\n", at(2)).is_empty());
        assert!(check("\nx // expected-error {{thing here}}\n", at(2)).is_empty());
        assert!(check("\nx\n// expected-error@above {{bad}}\n", at(2)).is_empty());
        assert_eq!(check("// expected-error@+1 {{good thing}}\nx\n", at(2)).len(), 2);
        assert_eq!(check("// expected-error@+2 {{bad thing}}\nx\n", at(2)).len(), 2);
        assert_eq!(check("// expected-remark@+1 {{bad thing}}\nx\n", at(2)).len(), 2);
        assert_eq!(check("x\ny", at(2)), ["unexpected error: bad thing here"]);
        assert!(check("// expected-error@+x {{bad}}\n", at(2))[0].starts_with("malformed"));
        assert!(check("// expected-error-re@+1 {{bad {{t[a-z]+g}} here}}\nx\n", at(2)).is_empty());
        assert!(check("// expected-error-re@+1 {{{{b.d}} thing {{(here|there)}}}}\nx\n", at(2)).is_empty());
        assert_eq!(check("// expected-error-re@+1 {{bad {{[0-9]+}} here}}\nx\n", at(2)).len(), 2);
        assert_eq!(check("// expected-error@+1 {{b.d thing}}\nx\n", at(2)).len(), 2);
        assert!(check("// expected-error-re {{a {{(}} b}}\n", at(2))[0].contains("the regular expression is wrong"));
        assert!(check("// expected-error-re {{a {{x}\n", at(2))[0].contains("'}}' is missing"));
        assert!(check("// expected-error@unknown {{no}}", |_| vec![*Diagnostic::error(Loc::UNKNOWN, "no")]).is_empty());
    }
}
