//! The programs that tests run: rc's own, which are built where they are missing or old, and LLVM's.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where LLVM's programs are: `RC_LLVM_BIN`, else Debian's LLVM 22.
pub fn llvm_folder() -> PathBuf {
    std::env::var_os("RC_LLVM_BIN").map_or_else(|| "/usr/lib/llvm-22/bin".into(), PathBuf::from)
}

/// A program of LLVM's, if it is there.
pub fn llvm(name: &str) -> Option<PathBuf> {
    let path = llvm_folder().join(name);
    path.is_file().then_some(path)
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in a folder of the repository").to_path_buf()
}

/// The programs that `RUN:` lines and the book name.
const PROGRAMS: [&str; 5] = ["rc-opt", "rc-run", "rc-plan", "rc-cache", "rc-tune"];

/// Builds rc's programs in the profile of the tests and returns the folder they are in. `RC_BIN` names a folder with programs to test instead.
///
/// Errors: they do not build; what cargo says has gone to standard error.
pub fn rc_folder(own: &Path) -> Result<PathBuf, String> {
    match std::env::var_os("RC_BIN") {
        Some(folder) => Ok(folder.into()),
        None => build(own, &PROGRAMS),
    }
}

/// Builds programs of the workspace in the profile of the test program `own`, and returns the folder they are in. Errors: as [`rc_folder`].
pub fn build(own: &Path, programs: &[&str]) -> Result<PathBuf, String> {
    // The tests' own programs are in the folder of the profile: target/debug.
    let folder = own.parent().ok_or("the test's program is in no folder")?.to_path_buf();
    let profile = match folder.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // With the workspace's features, as `cargo test --workspace` has built everything.
    build.current_dir(root()).args(["build", "--quiet", "--workspace", "--profile", profile]);
    build.args(programs.iter().flat_map(|program| ["--bin", program]));
    if let Some(target) = folder.parent() {
        build.arg("--target-dir").arg(target);
    }
    match build.status() {
        Ok(status) if status.success() => Ok(folder),
        Ok(_) => Err(format!("{} do not build", programs.join(", "))),
        Err(e) => Err(format!("cannot run cargo: {e}")),
    }
}

/// What a `REQUIRES:` line may name. `None`: nothing of this name is known.
pub fn has_feature(name: &str) -> Option<bool> {
    match name {
        "gpu" => Some(Path::new("/dev/nvidiactl").exists()),
        "ptxas" => Some(ptxas().is_some()),
        "mlir-opt" => Some(llvm("mlir-opt").is_some()),
        "avx2" => Some(std::arch::is_x86_feature_detected!("avx2")),
        "avx512" => Some(std::arch::is_x86_feature_detected!("avx512f")),
        _ => None,
    }
}

/// NVIDIA's assembler: `RC_PTXAS`, the one that `make setup` installs, or one on the PATH.
pub fn ptxas() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RC_PTXAS") {
        return Some(path.into());
    }
    let below = |folder: PathBuf| -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        found.sort();
        found
    };
    let pythons = below(root().join(".venv-ptxas/lib"));
    let wheels = pythons.into_iter().flat_map(|p| below(p.join("site-packages/nvidia")));
    let installed = wheels.map(|w| w.join("bin/ptxas")).find(|p| p.is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    installed.or_else(|| std::env::split_paths(&path).map(|p| p.join("ptxas")).find(|p| p.is_file()))
}
