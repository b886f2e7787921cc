//! A file's text, and positions in it. Editors count UTF-16 units in a line; wrong positions are moved to the nearest right one.

use super::{Analysis, Names};
use lsp_types::{Position, Range, TextDocumentContentChangeEvent, Uri};
use std::ops;

pub struct Document {
    pub uri: Uri,
    pub version: i32,
    pub text: String,
    /// Where lines start.
    lines: Vec<usize>,
    names: Option<Names>,
    analysis: Option<Analysis>,
}

impl Document {
    pub fn new(uri: Uri, version: i32, text: String) -> Document {
        let lines = line_starts(&text);
        Document { uri, version, text, lines, names: None, analysis: None }
    }

    /// Applies an editor's change.
    pub fn change(&mut self, change: TextDocumentContentChangeEvent) {
        match change.range {
            None => self.text = change.text,
            Some(range) => {
                let range = self.bytes(range);
                self.text.replace_range(range, &change.text);
            }
        }
        self.lines = line_starts(&self.text);
        (self.names, self.analysis) = (None, None);
    }

    pub fn names(&mut self) -> &Names {
        self.names.get_or_insert_with(|| Names::of(&self.text))
    }

    pub fn analysis(&mut self) -> &Analysis {
        self.analysis.get_or_insert_with(|| Analysis::of(self.uri.as_str(), &self.text))
    }

    /// The byte offset of a position.
    pub fn offset(&self, position: Position) -> usize {
        let line = position.line as usize;
        let Some(&start) = self.lines.get(line) else { return self.text.len() };
        let end = self.lines.get(line + 1).map_or(self.text.len(), |&next| next - 1);
        let mut units = position.character;
        for (at, c) in self.text[start..end].char_indices() {
            if units == 0 {
                return start + at;
            }
            units = units.saturating_sub(c.len_utf16() as u32);
        }
        end
    }

    /// The position of a byte offset.
    pub fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.lines.partition_point(|&start| start <= offset) - 1;
        let units = self.text[self.lines[line]..offset].encode_utf16().count();
        Position::new(line as u32, units as u32)
    }

    /// The bytes of a range; empty where it ends before it starts.
    pub fn bytes(&self, range: Range) -> ops::Range<usize> {
        let start = self.offset(range.start);
        start..self.offset(range.end).max(start)
    }

    pub fn range(&self, bytes: ops::Range<usize>) -> Range {
        Range::new(self.position(bytes.start), self.position(bytes.end))
    }

    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The bytes of a line, without its end.
    pub fn line(&self, number: usize) -> ops::Range<usize> {
        let end = self.lines.get(number + 1).map_or(self.text.len(), |&next| next - 1);
        self.lines[number]..end
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.bytes().enumerate().filter(|b| b.1 == b'\n').map(|b| b.0 + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn document(text: &str) -> Document {
        Document::new(Uri::from_str("file:///t.ir").unwrap(), 0, text.into())
    }

    #[test]
    fn positions_count_utf16_and_are_forgiving() {
        let d = document("aé𝄞b\nlast");
        assert_eq!(d.offset(Position::new(0, 4)), "aé𝄞".len());
        assert_eq!(d.position("aé𝄞".len()), Position::new(0, 4));
        assert_eq!(d.offset(Position::new(0, 99)), "aé𝄞b".len());
        assert_eq!(d.offset(Position::new(99, 0)), d.text.len());
        assert_eq!(d.position(2), Position::new(0, 1));
        assert_eq!(d.bytes(Range::new(Position::new(1, 2), Position::new(0, 0))), 11..11);
    }

    #[test]
    fn changes_of_ranges_and_of_all() {
        let mut d = document("one\ntwo\n");
        let change =
            |range, text: &str| TextDocumentContentChangeEvent { range, range_length: None, text: text.into() };
        d.change(change(Some(Range::new(Position::new(1, 0), Position::new(1, 3))), "2"));
        assert_eq!(d.text, "one\n2\n");
        d.change(change(Some(Range::new(Position::new(7, 7), Position::new(9, 9))), "end"));
        assert_eq!(d.text, "one\n2\nend");
        d.change(change(None, "new"));
        assert_eq!((d.text.as_str(), d.line_count()), ("new", 1));
    }
}
