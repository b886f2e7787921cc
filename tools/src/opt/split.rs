//! `--split-input-file`.

use std::ops::Range;

/// The pieces of a text between lines that are `// -----`, blank ones left out.
pub fn pieces(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "// -----" {
            pieces.push(start..at);
            start = at + line.len();
        }
        at += line.len();
    }
    pieces.push(start..text.len());
    // Nothing before the first line or after the last is no piece, unless it is all there is.
    let whole = 0..text.len();
    pieces.retain(|piece| !text[piece.clone()].trim().is_empty());
    if pieces.is_empty() { vec![whole] } else { pieces }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_line_alone() {
        let text = "a\n// -----\nb // -----\n// ----- \n";
        let found: Vec<&str> = pieces(text).into_iter().map(|r| &text[r]).collect();
        assert_eq!(found, ["a\n", "b // -----\n"]);
        assert_eq!(pieces("").len(), 1);
        assert!(pieces("")[0].is_empty());
    }
}
