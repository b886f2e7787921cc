//! A test file: `// RUN:` lines run by bash, `// REQUIRES:` lines, substitutions.

use std::path::Path;
use std::process::{Command, Output};

/// The lines of a test file that are for the runner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// Shell commands, each from one `RUN:` line and its continuations.
    pub runs: Vec<String>,
    /// Features that the machine must have.
    pub requires: Vec<String>,
}

/// Reads the script of a test. Errors: a `RUN:` line that ends in a backslash without a line to go on.
pub fn script(text: &str) -> Result<Script, String> {
    let mut script = Script::default();
    let mut open = false;
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//").map(str::trim) else { continue };
        if let Some(names) = comment.strip_prefix("REQUIRES:") {
            script.requires.extend(names.split(',').map(|n| n.trim().to_string()));
        }
        let Some(command) = comment.strip_prefix("RUN:").map(str::trim) else { continue };
        let (command, continues) = match command.strip_suffix('\\') {
            Some(start) => (start, true),
            None => (command, false),
        };
        match script.runs.last_mut() {
            Some(last) if open => last.push_str(command),
            _ => script.runs.push(command.to_string()),
        }
        open = continues;
    }
    if open { Err("the last RUN: line ends in a backslash".into()) } else { Ok(script) }
}

/// `%s` is the test file, `%S` its folder, `%t` a path for temporary files, `%%` a percent sign.
pub fn substitute(command: &str, file: &Path, temp: &Path) -> String {
    let mut out = String::new();
    let mut rest = command;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let folder = file.parent().unwrap_or(Path::new("."));
        let (text, used) = match rest[at + 1..].chars().next() {
            Some('s') => (file.display().to_string(), 2),
            Some('S') => (folder.display().to_string(), 2),
            Some('t') => (temp.display().to_string(), 2),
            Some('%') => ("%".to_string(), 2),
            _ => ("%".to_string(), 1),
        };
        out.push_str(&text);
        rest = &rest[at + used..];
    }
    out + rest
}

/// A failure is exit code 1: neither success, nor a panic (101), nor a signal (128 and more).
const PRELUDE: &str = r#"not() {
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
    fn substitutes() {
        let (file, temp) = (Path::new("test/x/y.ir"), Path::new("/t/1"));
        assert_eq!(substitute("a %s %S %t.o 5%% %x %", file, temp), "a test/x/y.ir test/x /t/1.o 5% %x %");
    }

    #[test]
    fn a_panic_or_a_broken_pipe_is_no_expected_failure() {
        let shell = Shell { programs: Path::new("/nowhere"), root: Path::new("/") };
        let ok = |command: &str| shell.run(command).unwrap().status.success();
        assert!(ok("not false") && ok("not false | cat"));
        assert!(!ok("not true") && !ok("not bash -c 'exit 101'") && !ok("not bash -c 'kill -SEGV $$'"));
        assert!(!ok("false | cat"));
    }
}
