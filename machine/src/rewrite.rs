//! Figures written into the text of a target file, whose comments and order stay.

use crate::target::Target;
use rc_ir::{Diagnostic, Loc, Result};
use std::ops::Range;
use toml::de::DeTable;

impl Target {
    /// The text of a description with other figures of the machine: each in its place, those that it took from its `base` after its own.
    ///
    /// # Errors
    /// As [`Target::parse`], of the text as it is and as it becomes.
    pub fn rewrite(file: &str, text: &str, figures: &[(&str, f64)]) -> Result<String> {
        Target::parse(file, text)?;
        let at = |e: toml::de::Error| Diagnostic::error(Loc::UNKNOWN, format!("{file}: {}", e.message()));
        let spans = DeTable::parse(text).map_err(at)?;
        let own = |key: &str| spans.get_ref().iter().find(|(k, _)| k.get_ref() == key).map(|(_, value)| value.span());
        let (there, new): (Vec<_>, Vec<_>) = figures.iter().partition(|(key, _)| own(key).is_some());
        let mut edits: Vec<(Range<usize>, String)> =
            there.iter().filter_map(|(key, x)| Some(edit(text, own(key)?, *x))).collect();
        let end = end_of_figures(text, spans.get_ref());
        let lines: String = new.iter().map(|(key, x)| format!("{key} = {}\n", figure(*x))).collect();
        edits.push((end..end, lines));
        edits.sort_by_key(|e| e.0.start);
        let mut out = text.to_string();
        for (span, new) in edits.into_iter().rev() {
            out.replace_range(span, &new);
        }
        Target::parse(file, &out)?;
        Ok(out)
    }
}

/// A value's new text, with as many blanks before a comment as keep it in its column.
fn edit(text: &str, span: Range<usize>, x: f64) -> (Range<usize>, String) {
    let (new, rest) = (figure(x), &text[span.end..]);
    let blanks = rest.len() - rest.trim_start_matches(' ').len();
    if !rest[blanks..].starts_with('#') {
        return (span, new);
    }
    let width = span.len() + blanks;
    (span.start..span.end + blanks, format!("{new:width$}", width = width.max(new.len() + 1)))
}

/// Where the line after the last figure outside of tables begins.
fn end_of_figures(text: &str, table: &DeTable) -> usize {
    let own = table.iter().filter(|(_, value)| !matches!(value.get_ref(), toml::de::DeValue::Table(_)));
    let last = own.map(|(_, value)| value.span().end).max().unwrap_or(0);
    text[last..].find('\n').map_or(text.len(), |n| last + n + 1)
}

/// Three digits: more are not measured.
pub fn figure(x: f64) -> String {
    let digits = (2 - x.abs().max(f64::MIN_POSITIVE).log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{x:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_order_stay() {
        let text = "# Mine.\nbase = \"x86-64-v3\"\ncores = 4\nbandwidth = 20   # GB/s\nlaunch_us = 2.0 # us\nmatrix = [\n  { unit = \"fma\", shape = [1, 8, 1], operands = \"f32\", accumulator = \"f32\", layout = \"vector\" },\n]\n\n[cpu.products]\ntile = 3.0 # mine\n";
        let figures =
            [("bandwidth", 123.456), ("launch_us", 0.98765), ("flops_f32", 0.081234), ("cache_bandwidth", 1234.5)];
        let out = Target::rewrite("t.toml", text, &figures).unwrap();
        let want = "# Mine.\nbase = \"x86-64-v3\"\ncores = 4\nbandwidth = 123  # GB/s\nlaunch_us = 0.988 # us\nmatrix = [\n  { unit = \"fma\", shape = [1, 8, 1], operands = \"f32\", accumulator = \"f32\", layout = \"vector\" },\n]\nflops_f32 = 0.0812\ncache_bandwidth = 1234\n\n[cpu.products]\ntile = 3.0 # mine\n";
        assert_eq!(out, want);
        assert_eq!(Target::rewrite("t.toml", text, &[]).unwrap(), text);
        assert!(Target::rewrite("t.toml", text, &[("bandwidth", -1.0)]).is_err());
        assert!(Target::rewrite("t.toml", "base = 3", &figures).is_err());
    }
}
