//! FileCheck, judged twice: by `litcheck-filecheck` in process and by LLVM's own program. A test passes where both
//! say so. Where they differ, the test is one that only one of them understands, and fails.

use clap::Parser;
use litcheck_filecheck::litcheck::diagnostics::{FileName, SourceLanguage};
use litcheck_filecheck::{Config, Options, Test};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the two say about an input.
pub struct Verdict {
    /// litcheck's complaint.
    pub litcheck: Option<String>,
    /// LLVM's complaint.
    pub llvm: Option<String>,
}

impl Verdict {
    pub fn passes(&self) -> bool {
        self.litcheck.is_none() && self.llvm.is_none()
    }
    /// What to tell the author of a test that does not pass.
    pub fn explain(&self) -> String {
        match (&self.llvm, &self.litcheck) {
            (Some(llvm), Some(_)) => llvm.clone(),
            (None, Some(litcheck)) => format!(
                "LLVM's FileCheck passes, litcheck does not. Known causes: {{{{.*}}}} before [[X]], which does not backtrack; \
                 more than one space, which litcheck takes literally.\n{litcheck}"
            ),
            (Some(llvm), None) => format!(
                "litcheck passes, LLVM's FileCheck does not. A known cause: two equal CHECK-DAG lines, which litcheck \
                 meets with one line.\n{llvm}"
            ),
            (None, None) => String::new(),
        }
    }
}

/// Judges `input` by the check lines of `file`. `args` are FileCheck's options, `--check-prefix=X` and the like.
///
/// Errors: LLVM's FileCheck cannot be run, or litcheck does not know an option.
pub fn judge(llvm: &Path, file: &Path, args: &[String], input: &[u8]) -> Result<Verdict, String> {
    Ok(Verdict { litcheck: litcheck(file, args, input)?, llvm: run_llvm(llvm, file, args, input)? })
}

fn litcheck(file: &Path, args: &[String], input: &[u8]) -> Result<Option<String>, String> {
    let options = Options::try_parse_from(args).map_err(|e| format!("litcheck: {e}"))?;
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read '{}': {e}", file.display()))?;
    let input = String::from_utf8_lossy(input).into_owned();
    // LLVM's FileCheck takes a run of spaces for one; litcheck is given what that leaves.
    let (text, input) = (one_space(&text), one_space(&input));
    if input.trim().is_empty() && !options.allow_empty {
        return Ok(Some("the input is empty".into()));
    }
    let config = Config { options, ..Config::default() };
    let manager = config.source_manager();
    let checks = manager.load(SourceLanguage::Unknown, FileName::from(file.display().to_string()), text);
    let input = manager.load(SourceLanguage::Unknown, FileName::from("<stdin>".to_string()), input);
    // Reports in words; set once for the process.
    let _ = miette::set_hook(Box::new(|_| Box::new(miette::NarratableReportHandler::new())));
    let outcome = Test::new(checks, &config).verify(input);
    Ok(outcome.err().map(|report| format!("{report:?}")))
}

fn run_llvm(program: &Path, file: &Path, args: &[String], input: &[u8]) -> Result<Option<String>, String> {
    let failed = |e: std::io::Error| format!("cannot run '{}': {e}", program.display());
    let mut child = Command::new(program)
        .args(args)
        .arg(file)
        .args(["--dump-input=fail", "--dump-input-context=8"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // FileCheck may end before it has read all: what it says then counts, not the broken pipe.
    let bytes = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().map_err(failed)?;
    let _ = writer.join();
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Every run of spaces and tabs as one space.
fn one_space(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let blank = matches!(c, ' ' | '\t');
        if !blank || !out.ends_with(' ') {
            out.push(if blank { ' ' } else { c });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn verdict(checks: &str, input: &str) -> Option<Verdict> {
        let llvm = crate::tools::llvm("FileCheck")?;
        let folder = tempfile::tempdir().unwrap();
        let file: PathBuf = folder.path().join("c.ir");
        std::fs::write(&file, checks).unwrap();
        Some(judge(&llvm, &file, &[], input.as_bytes()).unwrap())
    }

    #[test]
    fn both_judge() {
        let Some(good) = verdict("// CHECK: a [[X:[a-z]+]]\n// CHECK-NEXT: b [[X]]\n", "a foo\nb   foo\n") else {
            return;
        };
        assert!(good.passes(), "{}", good.explain());
        let bad = verdict("// CHECK: a [[X:[a-z]+]]\n// CHECK-NEXT: b [[X]]\n", "a foo\nb bar\n").unwrap();
        assert!(bad.litcheck.is_some() && bad.llvm.is_some());
        assert!(!verdict("// CHECK: a\n", "").unwrap().passes());
    }

    #[test]
    fn disagreement_fails() {
        // Two equal CHECK-DAGs need two lines, which litcheck does not see.
        let Some(verdict) = verdict("// CHECK-DAG: x\n// CHECK-DAG: x\n", "x\n") else { return };
        assert!(verdict.llvm.is_some() && !verdict.passes());
    }
}
