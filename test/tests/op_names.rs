//! Ops are named by the constants of `rc_dialects::op`, which the compiler checks, and by no text of their own.

use rc_ir::op_def::{OpName, registered};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The sources that make ops and look for them.
const SOURCES: [&str; 9] = [
    "dialects/src",
    "passes/src",
    "lowering/src",
    "compiler/src",
    "machine/src",
    "runtime/src",
    "kit/src",
    "tools/src",
    "frontends/torch/src",
];

#[test]
fn there_is_a_constant_for_each_declaration() {
    rc_dialects::register();
    let ours = |name: &&str| !name.starts_with("rc.module.");
    let declared: BTreeSet<&str> = registered().iter().map(|def| def.name).filter(ours).collect();
    let named: BTreeSet<&str> = rc_dialects::op::ALL.iter().flat_map(|names| names.iter().copied()).collect();
    let missing: Vec<_> = declared.symmetric_difference(&named).collect();
    assert!(missing.is_empty(), "either declared or in dialects/src/op.rs, not both: {missing:?}");
}

#[test]
fn no_source_names_an_op_by_text() {
    rc_dialects::register();
    let names: BTreeSet<&str> =
        registered().iter().flat_map(|def| [def.name, OpName::new(def.name).pretty()]).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for file in SOURCES.iter().flat_map(|folder| rust_files(&root.join(folder))) {
        let text = std::fs::read_to_string(&file).expect("a source");
        for (number, line) in text.lines().enumerate() {
            let where_ = || format!("{}:{}: {}", file.display(), number + 1, line.trim());
            found.extend(literals(line).into_iter().filter(|name| names.contains(name)).map(|_| where_()));
            found.extend(bare_names(line).into_iter().filter(|name| !is_core(name)).map(|_| where_()));
        }
    }
    assert!(found.is_empty(), "write op::core::ADD for \"rc.core.add\":\n{}", found.join("\n"));
}

/// The string literals of a line but those of declarations and of text in MLIR's form.
fn literals(line: &str) -> Vec<&str> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return Vec::new();
    }
    let parts: Vec<&str> = line.split('"').collect();
    let inside = (1..parts.len().saturating_sub(1)).step_by(2);
    let declares = |i: &usize| parts[i - 1].ends_with("OpDef::new(") || parts[i + 1].starts_with('(');
    inside.filter(|i| !declares(i)).map(|i| parts[i]).collect()
}

/// What the builder of core ops is told by name alone.
fn bare_names(line: &str) -> Vec<&str> {
    let calls = [".unary(\"", ".binary(\""];
    let after = |call: &&str| line.split(call).skip(1).filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>();
    if line.trim_start().starts_with("//") { Vec::new() } else { calls.iter().flat_map(after).collect() }
}

fn is_core(name: &str) -> bool {
    OpName::new(&format!("rc.core.{name}")).def().is_some()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
    out
}

#[test]
fn what_is_looked_for_is_found() {
    assert_eq!(literals(r#"    b.op("rc.core.add").attr("kind", x);"#), ["rc.core.add", "kind"]);
    assert_eq!(literals(r#"    ..OpDef::new("rc.core.add")"#), [""; 0]);
    assert_eq!(literals(r#"  %0 = "rc.core.add"(%a, %b)"#), [""; 0]);
    assert_eq!(bare_names(r#"b.binary("ad", b.unary("exp", x), y)"#), ["exp", "ad"]);
}
