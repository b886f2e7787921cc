//! Whether the crates that link LLVM will find it, and what to set where they do not. They look for `llvm-config` where these variables say, else
//! on PATH; theirs is a panic after minutes.

use std::path::Path;
use std::process::Command;

const VERSION: &str = "22";
const VARIABLES: [&str; 2] = ["MLIR_SYS_220_PREFIX", "TABLEGEN_220_PREFIX"];

fn main() {
    println!("cargo::rerun-if-env-changed=PATH");
    for variable in VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Some(why) = VARIABLES.iter().find_map(|variable| missing(variable)) {
        let debian = format!("/usr/lib/llvm-{VERSION}/bin");
        let folder = if Path::new(&debian).exists() { &debian } else { "/where/llvm-22/is/bin" };
        println!("cargo::error=rc needs LLVM {VERSION} with MLIR: {why}");
        println!("cargo::error=put LLVM {VERSION} first on PATH: export PATH={folder}:$PATH");
    }
}

/// Why a crate that reads this variable will not find LLVM; `None` where it will.
fn missing(variable: &str) -> Option<String> {
    let prefix = std::env::var_os(variable).filter(|prefix| !prefix.is_empty());
    let program = prefix.as_ref().map_or("llvm-config".into(), |prefix| Path::new(prefix).join("bin/llvm-config"));
    let place = match &prefix {
        Some(prefix) => format!("in {}, where {variable} says that it is", Path::new(prefix).display()),
        None => "on PATH".to_string(),
    };
    let Ok(said) = Command::new(&program).arg("--version").output() else {
        return Some(format!("there is no llvm-config {place}"));
    };
    let version = String::from_utf8_lossy(&said.stdout).trim().to_string();
    if version.split('.').next() == Some(VERSION) {
        None
    } else {
        Some(format!("llvm-config {place} is of LLVM {version}"))
    }
}
