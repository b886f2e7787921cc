//! Rewriting expectations: a file with the line [`MARKER`] has its check lines below it, which are the whole output,
//! line by line. Check lines above it are the author's and stay.

use crate::lit::{Script, Shell, substitute};
use std::path::Path;

/// Everything below this line is rewritten by `make test-update`.
pub const MARKER: &str = "// The whole output, rewritten by `make test-update`:";

/// The file's text with expectations made anew; `None` for a file whose expectations are written by hand.
///
/// Errors: a command whose output is checked fails.
pub fn updated(text: &str, script: &Script, shell: &Shell, file: &Path, temp: &Path) -> Result<Option<String>, String> {
    let Some(at) = text.find(MARKER) else { return Ok(None) };
    let mut out = format!("{}{MARKER}\n", &text[..at]);
    for run in &script.runs {
        let Some((command, prefix)) = checked(run) else { continue };
        let command = substitute(command, file, temp);
        let output = shell.run(&command)?;
        if !output.status.success() {
            return Err(format!("$ {command}\n{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        out.push('\n');
        out.push_str(&check_lines(&String::from_utf8_lossy(&output.stdout), prefix));
    }
    Ok(Some(out))
}

/// The part of a command whose output FileCheck reads, and FileCheck's prefix.
fn checked(run: &str) -> Option<(&str, &str)> {
    let (command, check) = run.rsplit_once('|')?;
    let check = check.trim().strip_prefix("FileCheck")?;
    let prefix = check.split_whitespace().find_map(|a| a.strip_prefix("--check-prefix=")).unwrap_or("CHECK");
    Some((command, prefix))
}

/// Check lines that an output meets exactly.
pub fn check_lines(output: &str, prefix: &str) -> String {
    let mut lines = String::new();
    let mut first = true;
    for line in output.lines().map(str::trim_end) {
        let kind = match (first, line.is_empty()) {
            (true, true) => continue,
            (true, false) => String::new(),
            (false, true) => "-EMPTY".into(),
            (false, false) => "-NEXT".into(),
        };
        first = false;
        let space = if line.is_empty() { "" } else { " " };
        lines += &format!("// {prefix}{kind}:{space}{}\n", escape(line));
    }
    lines
}

/// Text that FileCheck takes literally: `[[` starts a variable and `{{` a regular expression.
fn escape(line: &str) -> String {
    line.replace("{{", "\u{1}").replace("[[", r"{{\[\[}}").replace('\u{1}', r"{{\{\{}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_output() {
        let lines = check_lines("\na\n  b [[m, k], [n]] {{x\n\nc\n", "OUT");
        assert_eq!(
            lines,
            "// OUT: a\n// OUT-NEXT:   b {{\\[\\[}}m, k], [n]] {{\\{\\{}}x\n// OUT-EMPTY:\n// OUT-NEXT: c\n"
        );
    }

    #[test]
    fn finds_the_checked_command() {
        assert_eq!(checked("a | b | FileCheck %s"), Some(("a | b ", "CHECK")));
        assert_eq!(checked("a 2>&1 | FileCheck --check-prefix=X %s"), Some(("a 2>&1 ", "X")));
        assert_eq!(checked("a | b"), None);
    }

    #[test]
    fn rewrites_below_the_marker_only() {
        let shell = Shell { programs: Path::new("/nowhere"), root: Path::new("/") };
        let script = crate::lit::script("// RUN: echo one | FileCheck %s").unwrap();
        let update = |text: &str| updated(text, &script, &shell, Path::new("f"), Path::new("t")).unwrap();
        assert_eq!(update("// CHECK: two"), None);
        let text = format!("// CHECK: mine\n{MARKER}\n// CHECK: old\n");
        assert_eq!(update(&text).unwrap(), format!("// CHECK: mine\n{MARKER}\n\n// CHECK: one\n"));
    }
}
