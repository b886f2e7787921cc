//! The example of every op declaration parses, verifies, shows the op, and comes back the same from both text forms
//! and from `mlir-opt`. That the examples run is tested where the interpreter is.

use rc_ir::{Module, OpDef, OpName, op_def};
use rc_test::{interop, tools};

fn examples() -> Vec<(&'static OpDef, Module)> {
    rc_dialects::register();
    let parsed = op_def::registered().into_iter().filter(|def| !def.example.is_empty()).map(|def| {
        let (module, diagnostics) = rc_parser::parse_module(def.name, def.example);
        let errors: String = diagnostics.iter().map(|d| d.render()).collect();
        (def, module.unwrap_or_else(|| panic!("the example of {}:\n{errors}", def.name)))
    });
    parsed.collect()
}

#[test]
fn every_op_has_words_and_an_example() {
    rc_dialects::register();
    let lacking = |what: fn(&OpDef) -> bool| -> Vec<&str> {
        op_def::registered().into_iter().filter(|d| what(d)).map(|d| d.name).collect()
    };
    assert_eq!(lacking(|d| d.summary.is_empty()), [""; 0], "without a summary");
    assert_eq!(lacking(|d| d.example.is_empty()), [""; 0], "without an example");
    assert_eq!(lacking(|d| d.attrs.iter().any(|a| a.doc.is_empty())), [""; 0], "with an attribute without a word");
}

#[test]
fn examples_verify_and_show_their_op() {
    for (def, module) in examples() {
        let errors: String = rc_ir::verify_module(&module).iter().map(|d| d.render()).collect();
        assert!(errors.is_empty(), "the example of {}:\n{errors}", def.name);
        let name = OpName::new(def.name);
        let shown = module.bodies.iter().any(|b| b.walk().into_iter().any(|op| b.name(op) == name));
        assert!(shown, "the example of {} does not have the op", def.name);
    }
}

#[test]
fn examples_survive_both_forms() {
    for (def, module) in examples() {
        interop::round_trip(&module).unwrap_or_else(|e| panic!("the example of {}: {e}", def.name));
    }
}

#[test]
fn mlir_opt_reads_examples() {
    let Some(mlir_opt) = tools::llvm("mlir-opt") else {
        eprintln!("mlir-opt is not in {}: nothing was tested", tools::llvm_folder().display());
        return;
    };
    let mut last = "";
    for (def, module) in examples() {
        // Ops that share an example come in a row.
        if last != def.example {
            interop::check(&mlir_opt, &module).unwrap_or_else(|e| panic!("the example of {}: {e}", def.name));
        }
        last = def.example;
    }
}
