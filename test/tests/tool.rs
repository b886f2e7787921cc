//! `rc-test`, run on folders of tests.

use std::path::Path;
use std::process::{Command, Output};

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn rc_test(folder: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_rc-test")).args(arguments).current_dir(folder).output().unwrap();
    (String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap(), status.code())
}

const MARKED: &str = "// RUN: printf 'one\\ntwo\\n' | FileCheck %s\n// The whole output, rewritten by `make test-update`:\n\n// CHECK: one\n// CHECK-NEXT: three\n";

#[test]
fn passes_fails_skips_and_counts() {
    let tests = folder(&[
        ("a/pass.ir", "// DEFINE: %{say} = echo\n// RUN: %{say} yes | FileCheck %s\n// CHECK: yes\n"),
        ("a/fail.ir", "// RUN: echo no | FileCheck %s\n// CHECK: yes\n"),
        ("a/expected.ir", "// XFAIL: *\n// RUN: false\n"),
        ("a/surprise.ir", "// XFAIL: odd\n// RUN: true\n"),
        ("a/needs.ir", "// REQUIRES: gpu || tpu\n// RUN: false\n"),
        ("a/not-here.ir", "// UNSUPPORTED: odd\n// RUN: false\n"),
        ("a/crash.ir", "// RUN: not --crash bash -c 'kill -SEGV $$'\n// RUN: echo %p %T > %t && test -s %t\n"),
        ("a/Inputs/none.ir", "// RUN: false\n"),
        ("a/none.txt", "// RUN: false\n"),
    ]);
    let (said, code) = rc_test(tests.path(), &["a", "--feature=odd"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 passed, 1 failed as they were to, 2 skipped, 2 failed"), "{said}");
    assert!(
        said.contains("skipped: a/needs.ir: needs gpu || tpu") && said.contains("XFAIL: says that it fails"),
        "{said}"
    );
    let (said, code) = rc_test(tests.path(), &["a", "--filter=pass"]);
    assert!(code == Some(0) && said.contains("1 passed"), "{said}");
}

#[test]
fn whole_outputs_are_compared_and_rewritten() {
    let tests = folder(&[("whole.ir", MARKED)]);
    let (said, code) = rc_test(tests.path(), &["."]);
    assert!(
        code == Some(1) && said.contains("-// CHECK-NEXT: three") && said.contains("+// CHECK-NEXT: two"),
        "{said}"
    );
    assert_eq!(rc_test(tests.path(), &[".", "--update"]).1, Some(0));
    assert!(std::fs::read_to_string(tests.path().join("whole.ir")).unwrap().contains("CHECK-NEXT: two"));
    assert_eq!(rc_test(tests.path(), &["whole.ir"]).1, Some(0));
}

#[test]
fn bad_input_is_an_error() {
    let tests = folder(&[("a.ir", "// REQUIRES: gpu &&\n// RUN: true\n"), ("b/c.txt", "")]);
    for (arguments, why) in [
        (&["a.ir"][..], "the condition 'gpu &&' is malformed at its end"),
        (&["none"], "cannot read 'none'"),
        (&["b"], "no file has RUN: lines"),
        (&["a.ir", "--path=nowhere"], "nowhere"),
    ] {
        let (said, code) = rc_test(tests.path(), arguments);
        assert!(code == Some(1) && said.contains(why), "{arguments:?}: {said}");
    }
}
