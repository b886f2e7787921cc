//! What is shipped, tried where there is neither Rust nor LLVM: the tools' half of `make dist`, of the profile that is at hand.

use rc_test::tools;
use std::process::Command;

#[test]
fn the_tools_run_in_a_bare_root_directory() {
    // A root directory of one's own needs a namespace, which not every container gives.
    let can = Command::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "--root=/", "true"])
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let output = Command::new("bash")
        .args(["scripts/dist.sh", "tools"])
        .current_dir(tools::root())
        .env("PROFILE", profile)
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("LLVM 22.") && said.contains("argument x: tensor<n x 784 x f32>"), "{said}");
    assert!(said.ends_with("the tools run where there is neither Rust nor LLVM\n"), "{said}");
}
