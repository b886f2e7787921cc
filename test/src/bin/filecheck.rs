//! `FileCheck` of the tests' `RUN:` lines: litcheck and LLVM's FileCheck, both of which must pass.

use rc_test::{judge::judge, tools};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (options, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with('-'));
    let [file] = files.as_slice() else {
        eprintln!("FileCheck: expected one file with check lines; write options as --option=value");
        return ExitCode::from(2);
    };
    let mut input = Vec::new();
    if let Err(e) = std::io::stdin().read_to_end(&mut input) {
        eprintln!("FileCheck: cannot read standard input: {e}");
        return ExitCode::from(2);
    }
    let Some(llvm) = tools::llvm("FileCheck") else {
        eprintln!("FileCheck: LLVM's was not found in {}; run 'make setup'", tools::llvm_folder().display());
        return ExitCode::from(2);
    };
    match judge(&llvm, &PathBuf::from(file), &options, &input) {
        Ok(verdict) if verdict.passes() => ExitCode::SUCCESS,
        Ok(verdict) => {
            eprintln!("{}", verdict.explain());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("FileCheck: {error}");
            ExitCode::from(2)
        }
    }
}
