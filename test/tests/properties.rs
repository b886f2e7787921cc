//! Properties over generated modules: at every step of the pipeline the module verifies, survives both text forms,
//! and computes what it did before.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rc_ir::Module;
use rc_ir::pass::PassManager;
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};
use rc_test::generate::{MAX_ROWS, Step, function};
use rc_test::{interop, tools};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(kind, a, b, dim)| Step { kind, a, b, dim });
    prop::collection::vec(step, 1..12)
}

fn parse(text: &str) -> Module {
    rc_dialects::register();
    rc_passes::register();
    let (module, diagnostics) = rc_parser::parse_module("generated.ir", text);
    module.unwrap_or_else(|| panic!("{}\n{text}", diagnostics[0].render()))
}

/// Small numbers, so that nothing overflows: sums of products of up to 12 steps grow fast.
fn inputs(module: &Module, rows: i64) -> Vec<Tensor> {
    let body = module.symbol("main").unwrap();
    let entry = body.entry().unwrap();
    let one = |(i, v): (usize, rc_ir::Value)| {
        let columns = body.ty(v).shape()[1].as_static().unwrap() as usize;
        let value = |k: usize| ((k * 7919 + i * 104729 + 13) % 201) as f32 / 200.0 - 0.5;
        let values: Vec<f32> = (0..rows as usize * columns).map(value).collect();
        Tensor::from_slice(&[rows as usize, columns], &values).unwrap()
    };
    body.block_args(entry).enumerate().map(one).collect()
}

fn run(module: &Module, rows: i64, mode: Mode) -> Vec<Vec<f64>> {
    let results = Interpreter::new(module, mode).run("main", &inputs(module, rows));
    results.unwrap_or_else(|d| panic!("{}\n{module}", d.render())).iter().map(Tensor::to_f64).collect()
}

/// In float64 nothing rounds but the order of sums: results agree to 1e-9 of the largest, or are both not finite.
/// A comparison may tip over on the last bit; generated values are too coarse for that before a reduction.
fn agree(a: &[Vec<f64>], b: &[Vec<f64>]) -> bool {
    let largest = a.iter().flatten().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
    let close = |x: f64, y: f64| (x - y).abs() <= 1e-9 * largest || !x.is_finite() && !y.is_finite();
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(&x, &y)| close(x, y)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn passes_keep_results_and_text(steps in steps(), columns: u8, rows in 1..=MAX_ROWS) {
        let text = function(&steps, columns);
        let mut module = parse(&text);
        let before = run(&module, rows, Mode::Float64);
        for pass in ["canonicalize", "cse", "dce", "fuse", "lower-loops"] {
            let passes = rc_parser::pipeline::parse_pipeline("test", pass).unwrap();
            let report = PassManager::new(passes).run(&mut module);
            prop_assert!(report.succeeded(), "{pass}: {}\n{text}", report.errors[0].render());
            let trip = interop::round_trip(&module);
            prop_assert!(trip.is_ok(), "{pass}: {}", trip.unwrap_err());
            let after = run(&module, rows, Mode::Float64);
            prop_assert!(agree(&before, &after), "{pass} changed the result of\n{text}\nto\n{module}");
        }
    }
}

#[test]
fn mlir_opt_reads_generated_modules() {
    let Some(mlir_opt) = tools::llvm("mlir-opt") else {
        eprintln!("mlir-opt is not in {}: nothing was tested", tools::llvm_folder().display());
        return;
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut all = Module::default();
    for i in 0..40u8 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let text = function(&steps, i).replace("@main", &format!("@main{i}"));
        all.bodies.extend(parse(&text).bodies);
    }
    for pass in ["canonicalize", "fuse", "lower-loops"] {
        let passes = rc_parser::pipeline::parse_pipeline("test", pass).unwrap();
        assert!(PassManager::new(passes).run(&mut all).succeeded());
        interop::check(&mlir_opt, &all).unwrap_or_else(|e| panic!("after {pass}: {e}"));
    }
}
