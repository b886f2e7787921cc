//! `rc-opt` of the tests' `RUN:` lines: runs the real one (`RC_REAL_OPT`) and, where that prints a module, checks that
//! both text forms and `mlir-opt` (`RC_MLIR_OPT`, where there is one) give the same module back.

use rc_test::interop;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

/// With these no single module goes to standard output.
const SKIPPED: [&str; 16] = [
    "-o",
    "--output",
    "--emit",
    "--verify-diagnostics",
    "--split-input-file",
    "--help",
    "-h",
    "--version",
    "--check-rules",
    "--print-docs",
    "--print-target",
    "--list-passes",
    "--list-dialects",
    "--list-ops",
    "--list-phases",
    "--completions",
];

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rc-opt-and-back: {error}");
            ExitCode::from(99)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_output = |i: usize| i > 0 && ["-o", "--output"].contains(&args[i - 1].as_str());
    let reads_file =
        args.iter().enumerate().any(|(i, a)| !a.starts_with('-') && !is_output(i) && Path::new(a).exists());
    let mut input = Vec::new();
    if !reads_file {
        std::io::stdin().read_to_end(&mut input).map_err(|e| format!("cannot read standard input: {e}"))?;
    }
    let output = rc_opt(&args, input)?;
    // A reader that has seen enough closes the pipe.
    let _ = std::io::stdout().write_all(&output.stdout);
    let _ = std::io::stderr().write_all(&output.stderr);
    let code = output.status.code().ok_or_else(|| format!("rc-opt: {}", output.status))?;
    let skipped = |a: &String| SKIPPED.iter().any(|s| a == s || a.starts_with(&format!("{s}=")));
    if code == 0 && !args.iter().any(skipped) {
        check(&String::from_utf8_lossy(&output.stdout))?;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)))
}

fn rc_opt(args: &[String], input: Vec<u8>) -> Result<Output, String> {
    let program = std::env::var_os("RC_REAL_OPT").ok_or("RC_REAL_OPT does not name rc-opt")?;
    let failed = |e: std::io::Error| format!("cannot run rc-opt: {e}");
    let mut command = Command::new(program);
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().ok_or("rc-opt has no standard input")?;
    std::thread::spawn(move || drop(stdin.write_all(&input)));
    child.wait_with_output().map_err(failed)
}

fn check(text: &str) -> Result<(), String> {
    rc_dialects::register();
    let module = interop::read("<rc-opt>", text)?;
    interop::round_trip(&module)?;
    match std::env::var_os("RC_MLIR_OPT") {
        Some(mlir_opt) => interop::check(Path::new(&mlir_opt), &module),
        None => Ok(()),
    }
}
