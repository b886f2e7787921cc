//! What changed between two texts of a module, by operation: that values are numbered otherwise is no change.

use rustc_hash::FxHashMap;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};
use std::fmt::Write;

/// Lines around what changed.
const CONTEXT: usize = 3;

/// The changed lines with three lines around each, as `diff -u` writes them; lines that are the same but for the numbers of values count
/// as equal where these are the same values.
pub fn difference(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let [old_keys, new_keys] = [&old, &new].map(|lines| lines.iter().map(|line| key(line)).collect::<Vec<_>>());
    let ops = capture_diff_slices(Algorithm::Myers, &old_keys, &new_keys);
    let mut out = String::new();
    for group in group_diff_ops(same_values(ops, &old, &new), CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (a, b) = (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        let _ = writeln!(out, "@@ -{},{} +{},{} @@", a.start + 1, a.len(), b.start + 1, b.len());
        for op in group {
            let mut lines = |sign: char, lines: &[&str]| {
                for line in lines {
                    out.push(sign);
                    out.push_str(line);
                    out.push('\n');
                }
            };
            if op.tag() == DiffTag::Equal {
                lines(' ', &new[op.new_range()]);
            } else {
                lines('-', &old[op.old_range()]);
                lines('+', &new[op.new_range()]);
            }
        }
    }
    out
}

/// A line without the numbers of values.
fn key(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut parts = line.split('%');
    out.extend(parts.next());
    for part in parts {
        out.push('%');
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

/// The numbers of values in a line, those that it defines first.
fn numbers(line: &str) -> impl Iterator<Item = &str> {
    line.split('%').skip(1).filter_map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        (end > 0).then(|| &part[..end])
    })
}

/// Equal lines whose operands are other values than before are changes, too.
fn same_values(ops: Vec<DiffOp>, old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let mut now: FxHashMap<&str, &str> = FxHashMap::default();
    let mut out: Vec<DiffOp> = Vec::new();
    for op in ops {
        if op.tag() != DiffTag::Equal {
            // What these lines define stands for nothing any more.
            old[op.old_range()].iter().for_each(|line| forget(&mut now, line));
            out.push(op);
            continue;
        }
        for (old_index, new_index) in op.old_range().zip(op.new_range()) {
            let (a, b) = (old[old_index], new[new_index]);
            let defined = a.split_once(" = ").map_or(0, |(results, _)| numbers(results).count());
            let mut pairs: Vec<_> = numbers(a).zip(numbers(b)).collect();
            let operands = pairs.split_off(defined.min(pairs.len()));
            let same = operands.iter().all(|(x, y)| now.get(x).is_none_or(|known| known == y));
            now.extend(pairs);
            match out.last_mut() {
                Some(DiffOp::Equal { len, .. }) if same => *len += 1,
                _ if same => out.push(DiffOp::Equal { old_index, new_index, len: 1 }),
                _ => out.push(DiffOp::Replace { old_index, old_len: 1, new_index, new_len: 1 }),
            }
        }
    }
    out
}

fn forget<'a>(now: &mut FxHashMap<&'a str, &'a str>, line: &'a str) {
    let Some((results, _)) = line.split_once(" = ") else { return };
    for number in numbers(results) {
        now.remove(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_alone_are_no_change() {
        let before = "f {\n  %0 = a %x\n  %1 = b %0\n  %2 = c %1\n  r %2\n}\n";
        let after = "f {\n  %0 = b %x\n  %1 = c %0\n  r %1\n}\n";
        // `b` takes another value; `c` and `r` the same as before under other numbers.
        assert_eq!(
            difference(before, after),
            "@@ -1,6 +1,5 @@\n f {\n-  %0 = a %x\n-  %1 = b %0\n+  %0 = b %x\n   %1 = c %0\n   r %1\n }\n"
        );
        assert_eq!(difference(before, before), "");
    }

    #[test]
    fn other_operands_are_a_change() {
        let before = "  %0 = a\n  %1 = a\n  r %0, %1\n";
        let changed = difference(before, "  %0 = a\n  %1 = a\n  r %1, %1\n");
        assert_eq!(changed, "@@ -1,3 +1,3 @@\n   %0 = a\n   %1 = a\n-  r %0, %1\n+  r %1, %1\n");
    }
}
