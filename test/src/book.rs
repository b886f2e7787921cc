//! What the book shows: its commands are run, its outputs compared, its modules parsed, its code looked up where it is from.
//!
//! | a block of | is |
//! |---|---|
//! | `console` | commands after `$`, each with what it writes; `console,fails`: the last one's exit code is 1 |
//! | `sh` | commands that succeed, one on each line |
//! | `mlir` | a module, or what `--verify-diagnostics` expects of it |
//! | `rust,from=FILE` | lines of a file of the repository, one after another |
//! | `python` | code that parses |
//! | `text`, `toml`, `c`, `lua` | nothing to check |
//!
//! `file=NAME` puts a block where the page's later commands find it. `norun=WHY` is for commands that this test cannot run. In outputs, `…` stands for any
//! text within a line, and alone on a line for any lines.

use crate::lit::Shell;
use similar::TextDiff;
use std::path::Path;

/// A fenced block of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub language: String,
    /// `file=my.toml`, `fails`.
    pub words: Vec<String>,
    /// The page's lines between the fences.
    pub lines: std::ops::Range<usize>,
}

impl Block {
    /// What a word after the language says: `my.toml` of `file=my.toml`, nothing of `fails`.
    fn word(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key == name).then_some(value)
        })
    }
}

/// The blocks of a page. Errors: one that does not end.
pub fn blocks(lines: &[&str]) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, &str)> = None;
    for (i, line) in lines.iter().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        match open.take() {
            None => open = Some((i, info)),
            Some((start, info)) => {
                let mut words = info.split(',').map(|word| word.trim().to_string());
                let language = words.next().unwrap_or_default();
                blocks.push(Block { language, words: words.collect(), lines: start + 1..i });
            }
        }
    }
    match open {
        Some((start, _)) => Err(format!("line {}: the block does not end", start + 1)),
        None => Ok(blocks),
    }
}

/// A command and the lines of what it writes.
struct Step {
    command: String,
    output: std::ops::Range<usize>,
}

fn steps(lines: &[&str], block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for i in block.lines.clone() {
        let line = lines[i].trim_start();
        let start = if block.language == "sh" { Some(line) } else { line.strip_prefix("$ ") };
        let (text, more) = match (continues, start) {
            (true, _) => (line, true),
            (false, Some(text)) => (text, false),
            (false, None) => {
                if let Some(step) = steps.last_mut() {
                    step.output.end = i + 1;
                }
                continue;
            }
        };
        if block.language == "sh" && !more && (text.is_empty() || text.starts_with('#')) {
            continue;
        }
        let (text, end) = (text.strip_suffix('\\').unwrap_or(text), i + 1..i + 1);
        match steps.last_mut().filter(|_| more) {
            Some(step) => (step.command, step.output) = (format!("{}{text}", step.command), end),
            None => steps.push(Step { command: text.to_string(), output: end }),
        }
        continues = line.ends_with('\\');
    }
    steps
}

/// Checks a page in a folder of its own. `update` gives the page with the outputs that differ as they are now.
///
/// Errors: everything that is wrong with the page.
pub fn check(page: &str, shell: &Shell, root: &Path, update: bool) -> Result<Option<String>, String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut wrong = Vec::new();
    // Ranges of lines and what they are to be, in order.
    let mut changes: Vec<(std::ops::Range<usize>, Vec<String>)> = Vec::new();
    for block in blocks(&lines)? {
        let text = lines[block.lines.clone()].join("\n") + "\n";
        if let Some(name) = block.word("file") {
            std::fs::write(shell.root.join(name), &text).map_err(|e| format!("cannot write '{name}': {e}"))?;
        }
        if block.word("norun").is_some() {
            continue;
        }
        let at = |why: String| format!("line {}: {why}", block.lines.start + 1);
        match block.language.as_str() {
            "console" | "sh" => match run_block(&lines, &block, shell) {
                Ok(new) if update => changes.extend(new),
                Ok(new) => wrong.extend(new.iter().map(|(range, new)| at(difference(&lines[range.clone()], new)))),
                Err(why) => wrong.push(at(why)),
            },
            "rules" => wrong.extend(rules(&text, shell).err().map(at)),
            "mlir" => wrong.extend(module(&text, shell).err().map(at)),
            "rust" => wrong.extend(quoted(&text, block.word("from"), root).err().map(at)),
            "python" => wrong.extend(python(&text, shell).err().map(at)),
            "text" | "toml" | "c" | "lua" => {}
            other => wrong.push(at(format!("nothing is known of blocks of '{other}'"))),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    let mut out: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
    for (range, new) in changes.into_iter().rev() {
        out.splice(range, new);
    }
    let out = out.join("\n") + "\n";
    Ok((out != page).then_some(out))
}

/// What outputs of a block's commands are now, where they are not what the page says.
fn run_block(
    lines: &[&str],
    block: &Block,
    shell: &Shell,
) -> Result<Vec<(std::ops::Range<usize>, Vec<String>)>, String> {
    let steps = steps(lines, block);
    let mut changes = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let output = shell.run(&format!("{{ {}\n}} 2>&1", step.command))?;
        let fails = block.word("fails").is_some() && i + 1 == steps.len();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() != Some(i32::from(fails)) {
            return Err(format!("$ {}\n{}\n{said}", step.command, output.status));
        }
        let (expected, actual) = (&lines[step.output.clone()], said.lines().map(str::trim_end).collect::<Vec<_>>());
        if block.language == "console" && !matches(expected, &actual) {
            changes.push((step.output.clone(), renewed(expected, &actual)));
        }
    }
    Ok(changes)
}

fn module(text: &str, shell: &Shell) -> Result<(), String> {
    let path = shell.root.join("block.ir");
    std::fs::write(&path, text).map_err(|e| format!("cannot write '{}': {e}", path.display()))?;
    let output = shell
        .run("rc-opt --allow-unregistered-dialect --split-input-file --verify-diagnostics block.ir -o block.out")?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn rules(text: &str, shell: &Shell) -> Result<(), String> {
    let path = shell.root.join("block.rules");
    std::fs::write(&path, text).map_err(|e| format!("cannot write '{}': {e}", path.display()))?;
    let output = shell.run("rc-opt --check-rules=block.rules")?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn python(text: &str, shell: &Shell) -> Result<(), String> {
    let path = shell.root.join("block.py");
    std::fs::write(&path, text).map_err(|e| format!("cannot write '{}': {e}", path.display()))?;
    let output = shell.run("python3 -c 'import ast; ast.parse(open(\"block.py\").read())'")?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Whether a block's lines stand in its file, one after another but for `…`, whatever their indentation.
fn quoted(text: &str, from: Option<&str>, root: &Path) -> Result<(), String> {
    let from = from.ok_or("a block of code says which file it is from: ```rust,from=FILE")?;
    let file = std::fs::read_to_string(root.join(from)).map_err(|e| format!("cannot read '{from}': {e}"))?;
    let file: Vec<&str> = file.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let around = [&["…"], text.as_slice(), &["…"]].concat();
    if matches(&around, &file) { Ok(()) } else { Err(format!("these lines are not in '{from}', in this order")) }
}

/// Whether an output is what is expected, with `…` for anything.
pub fn matches(expected: &[&str], actual: &[&str]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((line, rest)) if line.trim() == "…" => (0..=actual.len()).any(|n| matches(rest, &actual[n..])),
        Some((line, rest)) => {
            actual.split_first().is_some_and(|(first, others)| line_matches(line, first) && matches(rest, others))
        }
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|start| actual.trim_end().strip_prefix(start)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The expected lines made anew: each run of lines between two `…` is replaced by the lines of the output that are most like it.
fn renewed(expected: &[&str], actual: &[&str]) -> Vec<String> {
    let runs: Vec<&[&str]> = expected.split(|line| line.trim() == "…").collect();
    let Some((last, others)) = runs.split_last() else { return Vec::new() };
    if others.is_empty() {
        return actual.iter().map(|line| line.to_string()).collect();
    }
    let mut out = Vec::new();
    let mut from = 0;
    for (i, run) in runs.iter().enumerate() {
        let latest = actual.len().saturating_sub(run.len());
        let at = match i {
            0 => 0,
            _ if std::ptr::eq(*run, *last) && !run.is_empty() && i + 1 == runs.len() => latest.max(from),
            _ => (from..=latest).rev().max_by_key(|&at| likeness(run, &actual[at..])).unwrap_or(from),
        };
        let end = (at + run.len()).min(actual.len());
        for (old, new) in run.iter().zip(&actual[at.min(end)..end]) {
            out.push(if line_matches(old, new) { old.to_string() } else { new.to_string() });
        }
        if i + 1 < runs.len() {
            out.push("…".to_string());
        }
        from = end;
    }
    out
}

fn likeness(run: &[&str], actual: &[&str]) -> u32 {
    let ratio = |(a, b): (&&str, &&str)| (TextDiff::from_chars(*a, *b).ratio() * 1000.0) as u32;
    run.iter().zip(actual).map(ratio).sum()
}

fn difference(old: &[&str], new: &[String]) -> String {
    let (old, new) = (old.join("\n") + "\n", new.join("\n") + "\n");
    format!("the output differs\n{}", TextDiff::from_lines(&old, &new).unified_diff().header("the page", "is"))
}

/// Texts between single backquotes outside of blocks, with their lines.
pub fn spans(page: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut inside = false;
    for (i, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (i + 1, span)));
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ellipses() {
        assert!(matches(&["a", "…", "c"], &["a", "b", "b", "c"]) && matches(&["…"], &[]));
        assert!(matches(&["x … y … z"], &["x 1 y 2 z"]) && !matches(&["x … y"], &["x 1"]));
        assert!(!matches(&["a", "…", "c"], &["a", "b"]) && !matches(&[], &["a"]));
    }

    #[test]
    fn outputs_are_renewed_between_ellipses() {
        let actual = ["head 2", "x = 1", "y = 9", "z = 3", "end"];
        assert_eq!(renewed(&["head 1", "…", "  y = 2", "…"], &actual), ["head 2", "…", "y = 9", "…"]);
        assert_eq!(renewed(&["old"], &actual), actual);
        assert_eq!(renewed(&["…", "the end"], &actual), ["…", "end"]);
    }

    #[test]
    fn commands_and_their_outputs() {
        let page = "```console,fails\n$ a \\\n  b\nout\n$ c\n```\n";
        let lines: Vec<&str> = page.lines().collect();
        let block = &blocks(&lines).unwrap()[0];
        assert_eq!((block.language.as_str(), block.word("fails"), block.word("file")), ("console", Some(""), None));
        let found: Vec<_> = steps(&lines, block).into_iter().map(|s| (s.command, s.output)).collect();
        assert_eq!(found, [("a b".to_string(), 3..4), ("c".to_string(), 5..5)]);
    }
}
