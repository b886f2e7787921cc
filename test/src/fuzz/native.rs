//! Runs a module as machine code of the CPU at hand, by `rc-run`.

use super::build::Case;
use super::check::{Finding, HERE, Outcome, differs, inputs, reference};
use rc_runtime::npy;
use std::path::Path;
use std::process::Command;

/// Compiles and runs a module, and says whether it computes what the interpreter does.
pub fn run(case: &Case, rc_run: &Path) -> Outcome {
    let failed = |what: String| Outcome::Failed(Finding { target: HERE, after: "running".into(), what });
    match results(case, rc_run) {
        Ok(None) => Outcome::Same,
        Ok(Some(what)) => failed(what),
        Err(why) if why.contains("not supported") => {
            Outcome::Refused(why.lines().next().unwrap_or_default().to_string())
        }
        Err(why) => failed(why),
    }
}

/// How a result differs from the interpreter's; an error says what went wrong.
fn results(case: &Case, rc_run: &Path) -> Result<Option<String>, String> {
    let words = |e: &dyn std::fmt::Display| e.to_string();
    let folder = tempfile::tempdir().map_err(|e| words(&e))?;
    let at = |name: String| folder.path().join(name);
    std::fs::write(at("case.ir".into()), &case.text).map_err(|e| words(&e))?;
    let inputs = inputs(case);
    let expected = reference(case, &inputs)?;
    let mut command = Command::new(rc_run);
    command.arg(at("case.ir".into())).args(["--entry", "main"]);
    for (i, tensor) in inputs.iter().enumerate() {
        let path = at(format!("in{i}.npy"));
        npy::write(&path, tensor).map_err(|e| words(&e))?;
        command.arg("--input").arg(path);
    }
    for i in 0..expected.len() {
        command.arg("-o").arg(at(format!("out{i}.npy")));
    }
    let output = command.output().map_err(|e| format!("cannot run {}: {e}", rc_run.display()))?;
    if !output.status.success() {
        return Err(format!("{}{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    for (i, expected) in expected.iter().enumerate() {
        let actual = npy::read(at(format!("out{i}.npy"))).map_err(|e| words(&e))?;
        if let Some(what) = differs(&case.results[i], &actual, expected) {
            return Ok(Some(format!("result {i}: {what}")));
        }
    }
    Ok(None)
}
