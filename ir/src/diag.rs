//! Diagnostics: errors, warnings and remarks with a position, notes and a hint, rendered with carets.

use crate::loc::Loc;
use codespan_reporting::diagnostic::{Diagnostic as Report, Label, Severity as Level};
use codespan_reporting::files::SimpleFiles;
use codespan_reporting::term;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Error,
    Warning,
    /// A decision that a pass took, and why.
    Remark,
}

/// A message about a place in a program.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub severity: Severity,
    pub loc: Loc,
    /// Bytes that the caret underlines; 0 for just the position.
    pub len: u32,
    pub message: String,
    pub notes: Vec<(Loc, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

/// The result of work that can fail with one diagnostic.
pub type Result<T = ()> = std::result::Result<T, Box<Diagnostic>>;

impl Diagnostic {
    pub fn new(severity: Severity, loc: Loc, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic { severity, loc, len: 0, message: message.into(), notes: Vec::new(), help: None })
    }
    pub fn error(loc: Loc, message: impl Into<String>) -> Box<Diagnostic> {
        Self::new(Severity::Error, loc, message)
    }
    pub fn warning(loc: Loc, message: impl Into<String>) -> Box<Diagnostic> {
        Self::new(Severity::Warning, loc, message)
    }
    pub fn remark(loc: Loc, message: impl Into<String>) -> Box<Diagnostic> {
        Self::new(Severity::Remark, loc, message)
    }
    /// `not supported: …`, for what rc does not do (yet): name the op and say what to do in the help.
    pub fn unsupported(loc: Loc, what: impl std::fmt::Display) -> Box<Diagnostic> {
        Self::error(loc, format!("not supported: {what}"))
    }
    pub fn with_len(mut self: Box<Self>, len: usize) -> Box<Self> {
        self.len = len as u32;
        self
    }
    pub fn note(mut self: Box<Self>, loc: Loc, message: impl Into<String>) -> Box<Self> {
        self.notes.push((loc, message.into()));
        self
    }
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Self> {
        self.help = Some(help.into());
        self
    }

    /// The text shown to a person: message, source line with caret, notes and help. No colours.
    pub fn render(&self) -> String {
        let mut files = SimpleFiles::new();
        let mut labels = Vec::new();
        let mut notes = Vec::new();
        let severity = match self.severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
            Severity::Remark => Level::Note,
        };
        let mut place = |loc: Loc, len: u32, message: Option<&str>, notes: &mut Vec<String>| match loc.source() {
            Some((source, offset)) => {
                let (line, _) = source.line_col(offset);
                // Only the lines around the position are copied, so that a caret in a huge file is cheap.
                let text = source.text.as_str();
                let start = text[..offset.min(text.len())].rfind('\n').map_or(0, |i| i + 1);
                let end = text[offset.min(text.len())..].find('\n').map_or(text.len(), |i| offset + i);
                let (window, shift) = clip(&text[start..end], offset - start);
                let id = files.add(source.name.clone(), window.to_string());
                let at = offset - start - shift;
                let range = at..(at + len.max(1) as usize).min(window.len().max(at));
                let label = if message.is_none() { Label::primary(id, range) } else { Label::secondary(id, range) };
                labels.push((label.with_message(message.unwrap_or("")), line));
            }
            None => {
                let where_ = if loc == Loc::UNKNOWN { String::new() } else { format!("{loc}: ") };
                match message {
                    Some(message) => notes.push(format!("{where_}{message}")),
                    None if loc != Loc::UNKNOWN => notes.push(format!("at {loc}")),
                    None => {}
                }
            }
        };
        place(self.loc, self.len, None, &mut notes);
        for (loc, message) in &self.notes {
            place(*loc, 0, Some(message), &mut notes);
        }
        notes.extend(self.help.iter().map(|h| format!("help: {h}")));
        let shifted = ShiftedFiles { files: &files, lines: labels.iter().map(|l| l.1).collect() };
        let report = Report::new(severity)
            .with_message(&self.message)
            .with_labels(labels.into_iter().map(|l| l.0).collect())
            .with_notes(notes);
        let config = term::Config::default();
        term::emit_into_string(&config, &shifted, &report).unwrap_or_else(|_| format!("error: {}\n", self.message))
    }
}

/// At most a few hundred bytes of a long line around `at`, and the bytes cut off in front.
fn clip(line: &str, at: usize) -> (&str, usize) {
    const SIDE: usize = 120;
    let mut start = at.saturating_sub(SIDE);
    let mut end = (at + SIDE).min(line.len());
    while !line.is_char_boundary(start) {
        start -= 1;
    }
    while !line.is_char_boundary(end) {
        end += 1;
    }
    (&line[start..end], start)
}

/// One-line excerpts that report the line numbers of the texts they come from.
struct ShiftedFiles<'a> {
    files: &'a SimpleFiles<String, String>,
    lines: Vec<u32>,
}

impl<'a> codespan_reporting::files::Files<'a> for ShiftedFiles<'a> {
    type FileId = usize;
    type Name = String;
    type Source = &'a str;
    fn name(&'a self, id: usize) -> std::result::Result<String, codespan_reporting::files::Error> {
        self.files.name(id)
    }
    fn source(&'a self, id: usize) -> std::result::Result<&'a str, codespan_reporting::files::Error> {
        self.files.source(id)
    }
    fn line_index(&'a self, id: usize, byte: usize) -> std::result::Result<usize, codespan_reporting::files::Error> {
        self.files.line_index(id, byte)
    }
    fn line_number(&'a self, id: usize, index: usize) -> std::result::Result<usize, codespan_reporting::files::Error> {
        Ok(self.lines[id] as usize + index)
    }
    fn line_range(
        &'a self,
        id: usize,
        index: usize,
    ) -> std::result::Result<std::ops::Range<usize>, codespan_reporting::files::Error> {
        self.files.line_range(id, index)
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.loc, self.message)
    }
}
impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loc::Source;

    #[test]
    fn renders_position_notes_and_help() {
        let source = Source::register("t.ir", "first\nsecond line\n".into());
        let d = Diagnostic::error(source.loc(6), "bad word")
            .with_len(6)
            .note(source.loc(0), "first seen here")
            .help("say it otherwise");
        let text = d.render();
        for part in [
            "error: bad word",
            "t.ir:2:1",
            "2 │ second line",
            "^^^^^^",
            "1 │ first",
            "first seen here",
            "help: say it otherwise",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn renders_without_a_source() {
        let text = Diagnostic::error(Loc::file("m.py", 3, 1), "no").render();
        assert!(text.contains("error: no") && text.contains("m.py:3:1"), "{text}");
        assert_eq!(Diagnostic::error(Loc::UNKNOWN, "no").render().trim(), "error: no");
    }
}
