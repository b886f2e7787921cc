//! Programs that run packages: in C against `librc_runtime.so`, in Rust in a crate of its own.

use rc_test::tools;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const MODEL: &str = "func.func @main(%x: tensor<n x 3 x f32>) -> tensor<n x 3 x f32> attributes {rc.symbols = #rc.symbols<n = [1, 64, 1]>} {
  %y = core.add %x, %x : tensor<n x 3 x f32>
  func.return %y
}
";

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// A command's standard output.
fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The folder of the profile: `target/debug`, with rc's programs and `librc_runtime.so`.
fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tools::rc_folder(Path::new(env!("CARGO_BIN_EXE_FileCheck"))).unwrap();
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        let target = folder.parent().expect("target/debug");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let what = ["build", "--quiet", "--package", "rc-c", "--profile", profile, "--target-dir"];
        succeed(cargo.current_dir(tools::root()).args(what).arg(target));
        folder
    })
}

/// A package of a module, for this machine or another.
fn package(folder: &Path, text: &str, arch: &str) -> PathBuf {
    let (source, path) = (folder.join("model.ir"), folder.join(format!("{arch}.rcp")));
    std::fs::write(&source, text).unwrap();
    let arch = format!("--arch={arch}");
    succeed(Command::new(built().join("rc-opt")).args(["--emit=package", &arch, "-o"]).args([&path, &source]));
    path
}

/// A program of `embed/c/examples`.
fn compiled(folder: &Path, name: &str) -> PathBuf {
    let (root, program) = (tools::root(), folder.join(name));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-pthread", "-Wall", "-Wextra", "-Werror"]).arg("-I").arg(root.join("embed/c/include"));
    cc.arg(root.join(format!("embed/c/examples/{name}.c"))).arg("-o").arg(&program);
    succeed(cc.arg("-L").arg(built()).arg("-lrc_runtime").arg(format!("-Wl,-rpath,{}", built().display())));
    program
}

#[test]
fn c_programs_run_packages() {
    let folder = tempfile::tempdir().unwrap();
    let path = package(folder.path(), MODEL, "host");
    let program = compiled(folder.path(), "run");
    let said = succeed(Command::new(program).arg(path).arg("4"));
    // 0 to 6, then 0 to 4, twice.
    assert_eq!(said, "x: 12 elements\nresult 0: 12 elements, their sum is 62.0000\n");
}

/// Two kernels, with memory between them.
const SUMS: &str = "func.func @main(%x: tensor<n x 3 x f32>) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [1, 64, 1]>} {
  %s, %at = core.sort %x : tensor<n x 3 x f32>, tensor<n x 3 x i64>
  %r = core.reduce %s {dims = [1], kind = add} : tensor<n x f32>
  %y = core.add %r, %r : tensor<n x f32>
  func.return %y
}
";

#[test]
fn threads_of_c_programs_share_a_model_and_give_it_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = package(folder.path(), SUMS, "host");
    let said = succeed(Command::new(compiled(folder.path(), "threads")).arg(path));
    assert_eq!(said, "1600 calls, memory was taken, and 0 are held\n");
}

#[test]
fn c_programs_are_told_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (path, foreign) = (package(folder.path(), MODEL, "host"), package(folder.path(), MODEL, "bonnell"));
    let damaged = folder.path().join("damaged.rcp");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let program = compiled(folder.path(), "misuse");
    let said = succeed(Command::new(program).current_dir(folder.path()).args([&path, &damaged, &foreign]));
    let expected = [
        "1 path is null",
        "1 model is null",
        "2 absent.rcp: ",
        "3 ",
        "4 ",
        "3 ",
        "5 ",
        "1 the allocator's allocate is null",
        "1 model is null",
        "1 model is null",
        "0 ",
        "2 12",
        "1 inputs is null, and its count is 1",
        "1 the function takes 1 arguments, 0 were given",
        "1 the function has 1 results, 0 were given",
        "1 the function takes 1 arguments, 18446744073709551615 were given",
        "1 the function has 1 results, 1000000 were given",
        "1 the function takes 1 arguments, 2 were given",
        "1 results is null, and its count is 1",
        "1 argument 0 has no data: it is null",
        "1 argument 0 has no shape: it is null",
        "1 argument 0 (x) of type tensor<n x 3 x f32> has the shape [2, 4] here, where [2, 3] is expected",
        "1 argument 0 has the shape [-2, 3]",
        "1 argument 0 has the rank -1",
        "1 argument 0 (x) of type tensor<n x 3 x f32> was given an array of shape [2]",
        "1 argument 0 (x) of type tensor<n x 3 x f32> was given an array of i32",
        "1 argument 0 has the dtype 77, which there is not",
        "1 argument 0 has the strides [1, 2], and rc takes dense rows: copy it first",
        "1 argument 0 lies at ",
        "1 result 0 is given as f32 of shape [2, 4], and is f32 of shape [2, 3]",
        "1 result 0 is given as f64 of shape [2, 3], and is f32 of shape [2, 3]",
        "1 result 0 and argument 0 share memory",
        "8 not supported: a stream for code on the CPU: run it on the host's memory",
        "1 the function has 1 results",
        "1 shape is null",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "expected '{expected}', found '{line}'");
    }
    assert!(lines[4].contains("needs a CPU of the kind bonnell") && lines[5].contains("@other"), "{said}");
}

/// The crate's dependencies are compiled anew, since it is in no workspace of rc's.
#[test]
fn a_crate_outside_of_the_workspace_runs_packages_without_llvm() {
    let folder = tempfile::tempdir().unwrap();
    let path = package(folder.path(), MODEL, "host");
    let target = built().parent().expect("target/debug").join("embed");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(tools::root().join("embed/rust")).args([
        "run",
        "--quiet",
        "--locked",
        "--offline",
        "--target-dir",
    ]);
    // What finds LLVM for rc is out of its way.
    cargo.arg(target).env("MLIR_SYS_220_PREFIX", "/none").env("TABLEGEN_220_PREFIX", "/none");
    let said = succeed(cargo.arg("--").arg(path).arg("2"));
    assert!(said.starts_with("x: tensor<n x 3 x f32>\ntensor<2x3xf32>"), "{said}");
}

/// A crate that compiles, where LLVM is of another version: the crate that looks for it says what to set.
#[test]
fn a_crate_that_compiles_is_told_where_llvm_is_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let root = tools::root();
    let manifest = format!(
        "[package]\nname = \"compiles\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nrc = {{ path = {:?} }}\n\n[workspace]\n",
        root.join("compiler")
    );
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/main.rs"), "fn main() {\n    rc::register();\n}\n").unwrap();
    std::fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let llvm = folder.path().join("bin");
    std::fs::create_dir(&llvm).unwrap();
    std::fs::write(llvm.join("llvm-config"), "#!/bin/sh\necho 19.1.7\n").unwrap();
    succeed(Command::new("chmod").arg("+x").arg(llvm.join("llvm-config")));
    let path = std::env::join_paths(
        [llvm].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(folder.path())
        .args(["build", "--quiet", "--offline", "--package", "rc-llvm"])
        .env("PATH", path.unwrap());
    cargo.env_remove("MLIR_SYS_220_PREFIX").env_remove("TABLEGEN_220_PREFIX");
    cargo.env("CARGO_TARGET_DIR", folder.path().join("target"));
    let output = run(&mut cargo);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("rc needs LLVM 22 with MLIR: llvm-config on PATH is of LLVM 19.1.7"), "{said}");
    assert!(said.contains("put LLVM 22 first on PATH: export PATH="), "{said}");
}
