//! A test file: `// RUN:` lines run by bash, conditions on the machine, substitutions. The lines are those of LLVM's lit.

use crate::condition::holds;
use std::path::Path;
use std::process::{Command, Output};

/// The lines of a test file that are for the runner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// Shell commands, each from one `RUN:` line and its continuations.
    pub runs: Vec<String>,
    /// Conditions that the machine must meet, all of them.
    pub requires: Vec<String>,
    /// Conditions of which none may hold.
    pub unsupported: Vec<String>,
    /// Conditions under which the test fails; `*` is always.
    pub xfail: Vec<String>,
    /// `%{name}` and what it stands for.
    pub defined: Vec<(String, String)>,
}

impl Script {
    /// Why the test is not for this machine; `None` where it is. Errors: a condition that is malformed, or what `has` says of a feature.
    pub fn skipped(&self, has: &dyn Fn(&str) -> Result<bool, String>) -> Result<Option<String>, String> {
        for condition in &self.requires {
            if !holds(condition, has)? {
                return Ok(Some(format!("needs {condition}")));
            }
        }
        for condition in &self.unsupported {
            if holds(condition, has)? {
                return Ok(Some(format!("is not for {condition}")));
            }
        }
        Ok(None)
    }
    /// Whether the test is to fail. Errors: as [`Script::skipped`].
    pub fn fails(&self, has: &dyn Fn(&str) -> Result<bool, String>) -> Result<bool, String> {
        let mut fails = false;
        for condition in &self.xfail {
            fails |= condition == "*" || holds(condition, has)?;
        }
        Ok(fails)
    }
}

/// Reads the script of a test. Errors: a `RUN:` line that ends in a backslash without a line to go on.
pub fn script(text: &str) -> Result<Script, String> {
    let mut script = Script::default();
    let mut open = false;
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//").map(str::trim) else { continue };
        for (key, list) in [
            ("REQUIRES:", &mut script.requires),
            ("UNSUPPORTED:", &mut script.unsupported),
            ("XFAIL:", &mut script.xfail),
        ] {
            if let Some(names) = comment.strip_prefix(key) {
                list.extend(names.split(',').map(|n| n.trim().to_string()));
            }
        }
        if let Some(definition) = comment.strip_prefix("REDEFINE:").or(comment.strip_prefix("DEFINE:")) {
            let parts = definition.trim().strip_prefix("%{").and_then(|d| d.split_once('}'));
            let parts = parts.and_then(|(name, value)| Some((name, value.trim().strip_prefix('=')?)));
            let (name, value) =
                parts.ok_or_else(|| format!("expected DEFINE: %{{name}} = value, found{definition}"))?;
            script.defined.retain(|(known, _)| known != name);
            script.defined.push((name.to_string(), value.trim().to_string()));
        }
        let Some(command) = comment.strip_prefix("RUN:").map(|c| expanded(c.trim(), &script.defined)) else { continue };
        let command = command?;
        let (command, continues) = match command.strip_suffix('\\') {
            Some(start) => (start, true),
            None => (command.as_str(), false),
        };
        match script.runs.last_mut() {
            Some(last) if open => last.push_str(command),
            _ => script.runs.push(command.to_string()),
        }
        open = continues;
    }
    if open { Err("the last RUN: line ends in a backslash".into()) } else { Ok(script) }
}

/// A command with what `%{name}` stands for. What stands for itself, by whatever way, is an error.
fn expanded(command: &str, defined: &[(String, String)]) -> Result<String, String> {
    let mut out = command.to_string();
    for _ in 0..=defined.len() {
        let found = defined.iter().find(|(name, _)| out.contains(&format!("%{{{name}}}")));
        let Some((name, value)) = found else { return Ok(out) };
        out = out.replace(&format!("%{{{name}}}"), value);
    }
    Err(format!("'{command}' does not come to an end: something defined stands for itself"))
}

/// `%s` is the test file, `%S` and `%p` its folder, `%t` a path for temporary files, `%T` the folder of these, `%%` a
/// percent sign.
pub fn substitute(command: &str, file: &Path, temp: &Path) -> String {
    let mut out = String::new();
    let mut rest = command;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let folder = file.parent().unwrap_or(Path::new("."));
        let (text, used) = match rest[at + 1..].chars().next() {
            Some('s') => (file.display().to_string(), 2),
            Some('S' | 'p') => (folder.display().to_string(), 2),
            Some('T') => (temp.parent().unwrap_or(Path::new(".")).display().to_string(), 2),
            Some('t') => (temp.display().to_string(), 2),
            Some('%') => ("%".to_string(), 2),
            _ => ("%".to_string(), 1),
        };
        out.push_str(&text);
        rest = &rest[at + used..];
    }
    out + rest
}

/// A failure is exit code 1: neither success, nor a panic (101), nor a signal (128 and more). With --crash it is one of these.
const PRELUDE: &str = r#"not() {
  if [ "$1" = --crash ]; then
    shift
    "$@"
    local code=$?
    [ $code -ge 101 ] && return 0
    echo "not: '$1' exited with $code, expected a crash" >&2
    return 1
  fi
  "$@"
  local code=$?
  [ $code -eq 1 ] && return 0
  echo "not: '$1' exited with $code, expected 1" >&2
  return 1
}
"#;

/// How long one `RUN:` line may take, seconds.
const LIMIT: &str = "300";

/// Where and with what commands run.
pub struct Shell<'a> {
    /// Searched for programs before the user's PATH.
    pub programs: &'a Path,
    /// The working directory: the repository's root.
    pub root: &'a Path,
}

impl Shell<'_> {
    /// Runs a command by `bash -o pipefail`. Errors: bash cannot be started.
    pub fn run(&self, command: &str) -> Result<Output, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("timeout")
            .args([LIMIT, "bash", "-o", "pipefail", "-c"])
            .arg(format!("{PRELUDE}{command}"))
            .current_dir(self.root)
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("LC_ALL", "C.UTF-8")
            .env("RUST_BACKTRACE", "0")
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|e| format!("cannot run bash: {e}"))
    }

    /// Runs a test's commands in order. Errors: the first that fails, with what it wrote.
    pub fn run_script(&self, script: &Script, file: &Path, temp: &Path) -> Result<(), String> {
        for command in &script.runs {
            let command = substitute(command, file, temp);
            let output = self.run(&command)?;
            if !output.status.success() {
                let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                let why = if output.status.code() == Some(124) {
                    format!("took more than {LIMIT} s")
                } else {
                    output.status.to_string()
                };
                return Err(format!("$ {command}\n{why}\n{out}{err}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_run_lines() {
        let s = script("// RUN: a \\\n// RUN:   b\n// x\n// REQUIRES: gpu, ptxas\n  // RUN: c").unwrap();
        assert_eq!(s.runs, ["a b", "c"]);
        assert_eq!(s.requires, ["gpu", "ptxas"]);
        assert!(script("// RUN: a \\\n").is_err());
    }

    #[test]
    fn conditions_and_definitions() {
        let s = script("// DEFINE: %{opt} = a %{b}\n// DEFINE: %{b} = --c\n// RUN: %{opt} %s\n// REDEFINE: %{b} = --d\n// RUN: %{opt}\n// XFAIL: *\n// UNSUPPORTED: x && y").unwrap();
        assert_eq!(s.runs, ["a --c %s", "a --d"]);
        let all = |_: &str| Ok(true);
        assert_eq!(s.skipped(&all).unwrap().unwrap(), "is not for x && y");
        assert!(s.skipped(&|_| Ok(false)).unwrap().is_none() && s.fails(&all).unwrap());
        assert!(script("// DEFINE: %{a} = %{a}\n// RUN: %{a}").unwrap_err().contains("stands for itself"));
        assert!(script("// DEFINE: a = b").is_err());
    }

    #[test]
    fn substitutes() {
        let (file, temp) = (Path::new("test/x/y.ir"), Path::new("/t/1"));
        assert_eq!(substitute("a %s %S %t.o 5%% %x %", file, temp), "a test/x/y.ir test/x /t/1.o 5% %x %");
    }

    #[test]
    fn a_panic_or_a_broken_pipe_is_no_expected_failure() {
        let shell = Shell { programs: Path::new("/nowhere"), root: Path::new("/") };
        let ok = |command: &str| shell.run(command).unwrap().status.success();
        assert!(ok("not false") && ok("not false | cat"));
        assert!(
            ok("not --crash bash -c 'exit 101'")
                && ok("not --crash bash -c 'kill -SEGV $$'")
                && !ok("not --crash false")
        );
        assert!(!ok("not true") && !ok("not bash -c 'exit 101'") && !ok("not bash -c 'kill -SEGV $$'"));
        assert!(!ok("false | cat"));
    }
}
