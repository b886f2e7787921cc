//! The reducer on the failing modules of `test/reduce`, on passes that are wrong on purpose, and on bad input.

use rc_ir::pass::{PassContext, PassDef, PassKind, register};
use rc_ir::{Module, OpName, Result};
use rc_kit::reduce::{
    ChangesResult, FailsWith, Search, Test, error_of, op_count, reduced, reduced_pipeline, shape_of_error,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Takes a difference for a sum.
static WRONG_SUB: PassDef = PassDef::new("test-wrong-sub", |_| Ok(PassKind::module(wrong_sub)));
/// Panics on a product.
static PANICS: PassDef = PassDef::new("test-panics", |_| Ok(PassKind::module(panics)));

fn wrong_sub(module: &mut Module, _: &mut PassContext) -> Result {
    for body in &mut module.bodies {
        for op in body.walk() {
            if body.name(op) == "rc.core.sub" {
                body.set_name_of_op(op, OpName::new("rc.core.add"));
            }
        }
    }
    Ok(())
}

fn panics(module: &mut Module, _: &mut PassContext) -> Result {
    let has_product = module.bodies.iter().any(|b| b.walk().into_iter().any(|op| b.name(op) == "rc.core.dot"));
    assert!(!has_product, "no products here");
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("test/reduce")
}

fn read(name: &str) -> (String, Module) {
    rc_kit::register();
    register(&[&WRONG_SUB, &PANICS]);
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let (module, diagnostics) = rc_parser::parse_module(name, text.clone());
    (text, module.unwrap_or_else(|| panic!("{diagnostics:?}")))
}

fn reduce(module: &Module, test: &dyn Test, jobs: usize) -> (Module, usize) {
    let mut search = Search::new(test, jobs, 10_000);
    assert!(search.holds(module));
    let small = reduced(module.clone(), &mut search);
    assert!(rc_dialects::verify(&small).is_empty() && test.holds(&small));
    (small, search.counts.runs)
}

#[test]
fn failing_modules_become_small_in_few_runs() {
    let (mut seen, mut all) = (0, 0);
    for entry in std::fs::read_dir(folder()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with(".ir") {
            continue;
        }
        let (text, module) = read(&name);
        let Some((pipeline, error)) =
            text.lines().next().and_then(|l| l.strip_prefix("// TEST: fails ")).and_then(|l| l.rsplit_once(": "))
        else {
            continue;
        };
        let message = error_of(&module, pipeline).unwrap_or_else(|| panic!("{name}: {pipeline} does not fail")).message;
        assert!(message.contains(error), "{name}: {message}");
        let test = FailsWith { pipeline: pipeline.to_string(), shape: shape_of_error(&message) };
        let (small, runs) = reduce(&module, &test, 1);
        assert!(op_count(&small) <= 8 && runs <= 80, "{name}: {} operations in {runs} runs\n{small}", op_count(&small));
        assert_eq!(reduce(&module, &test, 3).0.to_string(), small.to_string(), "{name}: depends on the threads");
        (seen, all) = (seen + 1, all + runs);
    }
    assert_eq!(seen, 8);
    // Halving without a test of each half, and types before what is tested again once they change.
    assert!(all <= 290, "{all} runs");
}

#[test]
fn a_wrong_result_is_narrowed_to_its_operation() {
    read("attention-rank.ir");
    let mut text = String::from("func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {\n");
    text += "  %v0 = core.tanh %x : tensor<8xf32>\n";
    for i in 1..40 {
        let op = if i == 33 { "sub" } else { ["max", "min", "add"][(i / 13) % 3] };
        text += &format!("  %v{i} = core.{op} %v{}, %{} : tensor<8xf32>\n", i - 1, ["x", "y"][i % 2]);
    }
    let module = rc_parser::parse_module("f.ir", text + "  func.return %v39\n}\n").0.unwrap();
    let pipeline = "canonicalize,test-wrong-sub,cse";
    let test = |text: &str| ChangesResult { pipeline: text.to_string(), seed: 0 };
    let fewer = reduced_pipeline(pipeline, |text| test(text).holds(&module));
    assert_eq!(fewer, "test-wrong-sub");
    let (small, _) = reduce(&module, &test(&fewer), 2);
    assert!(op_count(&small) == 3 && small.to_string().contains("core.sub"), "{small}");
}

#[test]
fn a_panic_is_a_failure() {
    let (_, module) = read("attention-rank.ir");
    let message = error_of(&module, "test-panics").unwrap().message;
    assert!(message.contains("failed on an internal check: no products here"), "{message}");
    let test = FailsWith { pipeline: "test-panics".into(), shape: shape_of_error(&message) };
    let (small, _) = reduce(&module, &test, 2);
    assert!(op_count(&small) == 3 && small.to_string().contains("core.dot"), "{small}");
}

#[test]
fn messages_are_compared_without_names_and_numbers() {
    let shape = |text: &str| shape_of_error(text);
    assert_eq!(shape("@f has tensor<4x8xf32> of 3 in %v12"), shape("@main has tensor<1xbf16> of 77 in %x"));
    assert_ne!(shape("on tensors of rank 5"), shape("with a symbolic head size"));
}

fn rc_reduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rc-reduce")).args(arguments).current_dir(folder()).output().unwrap()
}

#[test]
fn a_command_is_a_test() {
    let out = rc_reduce(&["two-far-apart.ir", "--test=grep -q core.gather %s && grep -q 'core.convert.*i64' %s"]);
    let (text, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success() && text.lines().count() <= 5, "{text}{said}");
    assert!(
        text.contains("core.gather") && text.contains("core.convert") && said.contains("runs of the test"),
        "{text}{said}"
    );
    let slow = rc_reduce(&["attention-rank.ir", "--test=sleep 60; true", "--timeout=0.1"]);
    assert!(!slow.status.success());
}

#[test]
fn check_says_whether_the_test_holds() {
    assert!(rc_reduce(&["attention-rank.ir", "--still-fails=lower-loops", "--check"]).status.success());
    assert_eq!(rc_reduce(&["attention-rank.ir", "--still-fails=cse", "--check"]).status.code(), Some(1));
}

#[test]
fn bad_input_is_an_error() {
    for (arguments, said) in [
        (&["attention-rank.ir", "--still-fails=cse"][..], "'cse' does not fail on the module"),
        (&["attention-rank.ir", "--still-changes=cse"], "changes no result"),
        (&["attention-rank.ir", "--test=false"], "does not hold on the module as it is"),
        (&["attention-rank.ir", "--still-fails=fues"], "did you mean 'fuse'?"),
        (&["attention-rank.ir", "--still-fails=lower-cpu"], "for machine code give a command"),
        (&["none.ir", "--test=true"], "cannot read 'none.ir'"),
        (&["generate.py", "--test=true"], "error: expected"),
        (&["attention-rank.ir", "--test=true", "--timeout=-1"], "--timeout is no time"),
        (&["attention-rank.ir", "--test=true", "-o", "no/such/out.ir", "--max-runs=3"], "cannot write"),
    ] {
        let out = rc_reduce(arguments);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && text.contains(said), "{arguments:?}: {text}");
    }
}
