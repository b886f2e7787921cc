//! Lowers a module step by step, and runs it after each.

use super::build::{Case, Value};
use super::numbers::is_float;
use rc_ir::pass::PassManager;
use rc_ir::{Attr, Diagnostic, Module};
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{Distribution, Tolerance, compare};
use rc_runtime::{DType, Tensor};

/// What a module is lowered for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub machine: &'static str,
    pub arch: &'static str,
}

pub const TARGETS: [Target; 4] = [
    Target { machine: "cpu", arch: "x86-64-v3" },
    Target { machine: "cpu", arch: "x86-64-v4" },
    Target { machine: "cuda", arch: "sm_80" },
    Target { machine: "cuda", arch: "sm_90a" },
];

/// The CPU at hand.
pub const HERE: Target = Target { machine: "cpu", arch: "host" };

/// What went wrong, and after which passes.
#[derive(Clone, Debug)]
pub struct Finding {
    pub target: Target,
    pub after: String,
    pub what: String,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Same,
    /// Refused by name: `not supported: …`.
    Refused(String),
    Failed(Finding),
}

/// Passes between which the module is run.
fn phases(target: Target) -> Vec<&'static str> {
    let mut all = vec!["decompose", "canonicalize,cse,dce", "layout", "hoist-constants"];
    if target.machine == "cuda" {
        all.extend(["align-products,cse", "split-scans", "order-scatters"]);
    }
    all.extend(["fuse,cse", "lower-loops", "schedule", "lower-kernel", "plan-buffers", "lower-tiles", "expand-math"]);
    all
}

/// Lowers a module for `target`, and says whether it computes the same after every phase.
pub fn check(case: &Case, target: Target) -> Outcome {
    let unwound = std::panic::catch_unwind(|| lower(case, target));
    unwound.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".into());
        Outcome::Failed(Finding { target, after: "a panic".into(), what })
    })
}

fn lower(case: &Case, target: Target) -> Outcome {
    rc_dialects::register();
    rc_passes::register();
    let failed = |after: &str, what: String| Outcome::Failed(Finding { target, after: after.into(), what });
    let (module, diagnostics) = rc_parser::parse_module("case.ir", &case.text);
    let Some(mut module) = module else { return failed("parsing", diagnostics[0].render()) };
    if let Some(error) = rc_ir::verify_module(&module).first() {
        return failed("parsing", error.render());
    }
    let word = Attr::str;
    module.set_attr(
        "rc.target",
        Attr::dialect("target", &[("machine", word(target.machine)), ("arch", word(target.arch))]),
    );
    let inputs = inputs(case);
    let expected = match run(&module, &inputs) {
        Ok(results) => results,
        Err(e) => return failed("parsing", e.render()),
    };
    for phase in phases(target) {
        let passes = rc_parser::pipeline::parse_pipeline("phase", phase).expect("the phases are pipelines");
        let report = PassManager::new(passes).run(&mut module);
        if let Some(error) = report.errors.first() {
            return match error.message.starts_with("not supported") {
                true => Outcome::Refused(error.message.clone()),
                false => failed(phase, error.render()),
            };
        }
        let results = match run(&module, &inputs) {
            Ok(results) => results,
            Err(error) => return failed(phase, error.render()),
        };
        for (i, (actual, expected)) in results.iter().zip(&expected).enumerate() {
            if let Some(what) = differs(&case.results[i], actual, expected) {
                return failed(phase, format!("result {i}: {what}"));
            }
        }
    }
    Outcome::Same
}

/// What the interpreter computes of the module as it was written.
pub(super) fn reference(case: &Case, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module("case.ir", &case.text);
    let module = module.ok_or_else(|| diagnostics[0].render())?;
    run(&module, inputs).map_err(|e| e.render())
}

fn run(module: &Module, inputs: &[Tensor]) -> Result<Vec<Tensor>, Box<Diagnostic>> {
    Interpreter::new(module, Mode::Typed).run("main", inputs)
}

pub(super) fn differs(value: &Value, actual: &Tensor, expected: &Tensor) -> Option<String> {
    let tolerance = match is_float(value.elem) {
        true => Tolerance { abs: 4.0 * value.numbers.error, equal_nan: true, ..Tolerance::EXACT },
        false => Tolerance::EXACT,
    };
    match compare(actual, expected, tolerance) {
        Err(error) => Some(error.to_string()),
        Ok(comparison) if !comparison.passed() => Some(comparison.to_string()),
        Ok(_) => None,
    }
}

/// The arguments: quarters from -2 to 2, and small integers.
pub fn inputs(case: &Case) -> Vec<Tensor> {
    let one = |(i, arg): (usize, &Value)| {
        let shape: Vec<usize> = arg.shape.iter().map(|d| d.at(case.symbols) as usize).collect();
        let dtype = dtype(arg.elem);
        let made = match dtype.is_float() {
            false => Tensor::random(dtype, &shape, case.seed, i as u32, Distribution::default_for(dtype)),
            true => {
                let whole = Tensor::random(DType::I64, &shape, case.seed, i as u32, Distribution::Integers(-8, 9));
                whole.and_then(|t| {
                    let values: Vec<f64> = t.to_f64().into_iter().map(|n| n / 4.0).collect();
                    Tensor::from_f64(dtype, &shape, &values)
                })
            }
        };
        made.expect("inputs are small")
    };
    case.args.iter().enumerate().map(one).collect()
}

fn dtype(elem: &str) -> DType {
    match elem {
        "f64" => DType::F64,
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::Bf16,
        "i64" => DType::I64,
        "i32" => DType::I32,
        "i16" => DType::I16,
        "i8" => DType::I8,
        "ui8" => DType::U8,
        "ui16" => DType::U16,
        "ui32" => DType::U32,
        "ui64" => DType::U64,
        _ => DType::Bool,
    }
}
