//! `examples/own-dialect` builds, its tests pass by `rc-test`, and what rc asks of its own declarations holds for it.

use rc_test::tools;
use std::path::Path;
use std::process::Command;

#[test]
fn its_tests_pass() {
    let folder = tools::build(Path::new(env!("CARGO_BIN_EXE_FileCheck")), &["poly-opt"]).unwrap();
    let tests = tools::root().join("examples/own-dialect/test");
    let output = Command::new(env!("CARGO_BIN_EXE_rc-test")).arg("--path").args([&folder, &tests]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("3 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_is_short() {
    let lines = |folder: &str| -> usize {
        let entries = std::fs::read_dir(tools::root().join("examples/own-dialect").join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.map(|file| std::fs::read_to_string(file).unwrap().lines().count()).sum()
    };
    let lines: usize = ["", "src", "src/bin", "test"].map(lines).iter().sum();
    assert!(lines < 300, "{lines} lines");
}
