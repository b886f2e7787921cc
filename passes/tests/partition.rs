//! A forward and a backward function give what their joint function gives, whatever is kept between them.

use rc_ir::pass::{PassManager, Report};
use rc_ir::{Module, Name};
use rc_parser::pipeline::parse_pipeline;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::Distribution;
use rc_runtime::{DType, Tensor};

/// A layer with a norm, dropout of its own seed, attention, and a product with an activation.
const BLOCK: &str = r#"
func.func @f(%x: tensor<2x5x8xf64>, %w: tensor<24x8xf64>, %g: tensor<8xf64>, %b: tensor<8xf64>, %up: tensor<32x8xf64>, %down: tensor<8x32xf64>, %seed: tensor<i64>) -> tensor<2x5x8xf64> {
  %n = tensor.layer_norm %x weight(%g) bias(%b) {eps = 1.0e-5} : tensor<2x5x8xf64>
  %qkv = tensor.linear %n, %w : tensor<2x5x24xf64>
  %q, %k, %v = tensor.split %qkv {sizes = [8, 8, 8], dim = 2} : tensor<2x5x8xf64>, tensor<2x5x8xf64>, tensor<2x5x8xf64>
  %a = tensor.sdpa %q, %k, %v {causal = true} : tensor<2x5x8xf64>
  %u = tensor.rand_uniform %seed, %seed {shape = [2, 5, 8], elem = f64} : tensor<2x5x8xf64>
  %half = core.constant {value = dense<0.5> : tensor<2x5x8xf64>} : tensor<2x5x8xf64>
  %stays = core.compare %u, %half {kind = gt} : tensor<2x5x8xi1>
  %zero = core.constant {value = dense<0.0> : tensor<2x5x8xf64>} : tensor<2x5x8xf64>
  %dropped = core.select %stays, %a, %zero : tensor<2x5x8xf64>
  %h = core.add %x, %dropped : tensor<2x5x8xf64>
  %z = tensor.linear %h, %up : tensor<2x5x32xf64>
  %act = tensor.gelu %z {approximate = tanh} : tensor<2x5x32xf64>
  %y = tensor.linear %act, %down : tensor<2x5x8xf64>
  %out = core.add %h, %y : tensor<2x5x8xf64>
  func.return %out
}
"#;

fn parse(text: &str) -> Module {
    rc_dialects::register();
    rc_passes::register();
    let (module, errors) = rc_parser::parse_module("partition", text);
    module.unwrap_or_else(|| panic!("{}", errors[0].render()))
}

fn run_passes(module: &mut Module, pipeline: &str) -> Report {
    let passes = parse_pipeline("test", pipeline).unwrap_or_else(|e| panic!("{}", e[0].render()));
    PassManager::new(passes).run(module)
}

fn joint(text: &str) -> Module {
    let mut module = parse(text);
    let report = run_passes(&mut module, "autodiff{mode=vjp},decompose,canonicalize,cse,dce");
    assert!(report.succeeded(), "{}", report.errors[0].render());
    module
}

fn inputs(module: &Module, function: &str, first: usize) -> Vec<Tensor> {
    let body = module.symbol(Name::new(function)).unwrap();
    let one = |(i, v): (usize, rc_ir::Value)| {
        let shape: Vec<usize> = body.ty(v).shape().iter().map(|d| d.as_static().unwrap_or(5) as usize).collect();
        match body.ty(v).elem().is_float() {
            true => Tensor::random(DType::F64, &shape, 5, (first + i) as u32, Distribution::Normal(0.0, 0.5)).unwrap(),
            false => Tensor::full(DType::I64, &shape, 3.0).unwrap(),
        }
    };
    body.block_args(body.entry().unwrap()).enumerate().map(one).collect()
}

fn run(module: &Module, function: &str, args: &[Tensor]) -> Vec<Tensor> {
    Interpreter::new(module, Mode::Float64).run(function, args).unwrap_or_else(|d| panic!("{}", d.render()))
}

/// The results of both functions, one after the other: what is kept goes from one to the other.
fn run_parts(module: &Module, args: &[Tensor], own: usize) -> Vec<Tensor> {
    let backward = module.symbol(Name::new("f_backward")).unwrap();
    let saved = backward.attr(backward.root(), "rc.saved").unwrap().as_ints().unwrap();
    let forward = module.symbol(Name::new("f_forward")).unwrap();
    let count = forward.block_args(forward.entry().unwrap()).len();
    let results = run(module, "f_forward", &args[..count]);
    let kept = saved
        .iter()
        .map(|&i| if (i as usize) < count { args[i as usize].clone() } else { results[i as usize - count].clone() });
    let gradients = run(module, "f_backward", &kept.chain(args[count..].iter().cloned()).collect::<Vec<_>>());
    results[..own].iter().cloned().chain(gradients).collect()
}

fn kept_bytes(report: &Report) -> u64 {
    report.statistics.iter().filter(|s| s.name == "bytes kept").map(|s| s.value).sum()
}

fn check(options: &str) -> u64 {
    let whole = joint(BLOCK);
    let args = inputs(&whole, "f", 0);
    let expected = run(&whole, "f", &args);
    let mut parts = whole.clone();
    let report = run_passes(&mut parts, &format!("partition{options}"));
    assert!(report.succeeded(), "{}", report.errors[0].render());
    let errors = rc_ir::verify_module(&parts);
    assert!(errors.is_empty(), "{}", errors[0].render());
    let found = run_parts(&parts, &args, 1);
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
            assert!((x - y).abs() <= 1e-12 * (1.0 + y.abs()), "{x} and {y} with {options}");
        }
    }
    kept_bytes(&report)
}

#[test]
fn the_parts_give_what_the_whole_gives() {
    let (all, half, most) = (check(""), check("{memory-budget=0.5}"), check("{memory-budget=0.8}"));
    assert!(half <= all / 2 && most <= all * 4 / 5, "{all} bytes, {half} and {most} within budgets");
    assert!(check("{memory-budget=2000}") <= 2000);
    assert_eq!(check("{memory-budget=0}"), 0);
}

/// What only the backward part needs is computed there, products too: attention's scores are not kept.
#[test]
fn scores_are_not_kept() {
    let mut module = joint(BLOCK);
    run_passes(&mut module, "partition");
    let forward = module.symbol(Name::new("f_forward")).unwrap();
    let end = forward.terminator(forward.entry().unwrap()).unwrap();
    let scores = |v: rc_ir::Value| forward.ty(v).static_shape().as_deref() == Some(&[2, 5, 5]);
    assert!(!forward.operands(end).any(scores), "{}", rc_ir::print::print_module(&module, &Default::default()));
}

#[test]
fn random_numbers_are_not_kept() {
    let mut module = joint(BLOCK);
    run_passes(&mut module, "partition");
    let text = rc_ir::print::print_module(&module, &Default::default());
    assert_eq!(text.matches("core.philox").count(), 2, "{text}");
    assert_eq!(text.matches("core.attention ").count(), 1, "{text}");
}

/// What is computed again is not held from the start on.
#[test]
fn values_are_computed_again_where_they_are_used() {
    let text = "func.func @f(%x: tensor<7xf64>, %w: tensor<7xf64>) -> (tensor<7xf64>, tensor<7xf64>) {
  %ex = core.exp %x : tensor<7xf64>
  %ew = core.exp %w : tensor<7xf64>
  %y = core.sin %ex : tensor<7xf64>
  %z = core.sin %ew : tensor<7xf64>
  func.return %y, %z
}
";
    let mut module = joint(text);
    run_passes(&mut module, "partition{memory-budget=0}");
    let backward = module.symbol(Name::new("f_backward")).unwrap();
    let ops = backward.ops(backward.entry().unwrap()).map(|op| backward.name(op).as_str());
    let order: Vec<&str> = ops.filter(|name| ["rc.core.exp", "rc.core.cos"].contains(name)).collect();
    assert_eq!(order, ["rc.core.exp", "rc.core.cos", "rc.core.exp", "rc.core.cos"]);
}

/// A result that is left in an argument's memory is the forward function's alone, and so is what was there.
#[test]
fn updated_arguments_are_not_kept() {
    let divided = |y: &str| {
        let text = format!(
            "func.func @f(%x: tensor<3xf64>, %m: tensor<3xf64> {{rc.donated = true}}) -> (tensor<3xf64>, tensor<3xf64> {{rc.updates = 1}}) {{
  %s = core.sin %x : tensor<3xf64>
  %new = core.add %m, %s : tensor<3xf64>
  %y = core.mul {y} : tensor<3xf64>
  func.return %y, %new
}}
"
        );
        let mut module = parse(&text);
        let report = run_passes(&mut module, "autodiff{mode=vjp,arguments=x,results=0},decompose,cse,dce,partition");
        (report, rc_ir::print::print_module(&module, &Default::default()))
    };
    let (report, text) = divided("%x, %s");
    assert!(report.succeeded(), "{}", report.errors[0].render());
    let backward = &text[text.find("f_backward\"").unwrap_or_else(|| panic!("{text}"))..];
    assert!(text.contains("tensor<3xf64> {rc.updates = 1") && !backward.contains("rc.updates"), "{text}");
    for y in ["%x, %m", "%x, %new"] {
        let (report, text) = divided(y);
        let error = report.errors.first().unwrap_or_else(|| panic!("{text}"));
        assert!(error.message.contains("needs donated arguments"), "{}", error.render());
    }
}

#[test]
fn wrong_modules_and_budgets_are_errors() {
    let error = |module: &mut Module, options: &str| {
        let report = run_passes(module, &format!("partition{options}"));
        report.errors.first().map(|e| e.message.clone()).unwrap_or_default()
    };
    assert_eq!(error(&mut parse(BLOCK), ""), "the module has no joint function");
    let text = "func.func @f(%x: tensor<9x3xf32>) -> tensor<9x3xf32> {
  %y, %at = tensor.sort %x {dim = 0} : tensor<9x3xf32>, tensor<9x3xi64>
  %z = core.mul %y, %y : tensor<9x3xf32>
  func.return %z
}
";
    assert_eq!(
        error(&mut joint(text), "{memory-budget=-1}"),
        "'func.func' op cannot keep within a memory budget of -1"
    );
}
