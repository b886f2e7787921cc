//! Every op's derivative against differences in float64: of the examples of all declarations, of elementwise ops at odd shapes, and of forms with more
//! dimensions than the examples have. An op of `tensor` or `core` that declares neither a derivative nor a definition fails.

use rc_dialects::derivative::Derivative;
use rc_dialects::func::symbols;
use rc_dialects::interfaces::Decompose;
use rc_ir::builder::new_function;
use rc_ir::op_def::registered;
use rc_ir::pass::Options;
use rc_ir::pass::PassContext;
use rc_ir::{Attr, Body, Builder, Dim, Loc, Module, Name, OpDef, Traits, Type, Value};
use rc_passes::autodiff::{AUTODIFF, Mode, Request, autodiff};
use rc_runtime::interp::{Interpreter, Mode as Precision, slopes::Slopes};
use rc_runtime::tensor::Distribution;
use rc_runtime::{DType, Tensor};
use std::collections::BTreeSet;

fn parse(name: &str, text: &str) -> Module {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module(name, text);
    module.unwrap_or_else(|| panic!("{name}: {}\n{text}", errors[0].render()))
}

fn text(module: &Module) -> String {
    rc_ir::print::print_module(module, &Default::default())
}

fn differentiated(module: &Module, request: &Request) -> Result<Module, String> {
    let mut joint = module.clone();
    let options = Options::defaults(&AUTODIFF);
    autodiff(&mut joint, request, &mut PassContext::new(&options)).map_err(|d| d.render())?;
    let errors = rc_ir::verify_module(&joint);
    assert!(errors.is_empty(), "{}\n{}", errors[0].render(), text(&joint));
    Ok(joint)
}

fn request(module: &Module, function: Name, mode: Mode) -> Option<Request> {
    let body = module.symbol(function)?;
    let (inputs, results) = body.attr(body.root(), "function_type")?.as_type()?.as_function()?;
    let floats = |types: &[Type]| -> Vec<usize> {
        (0..types.len()).filter(|&i| types[i].is_tensor() && types[i].elem().is_float()).collect()
    };
    let (arguments, results) = (floats(inputs), floats(results));
    (!arguments.is_empty() && !results.is_empty()).then_some(Request { function, mode, arguments, results })
}

/// Where functions are looked at: between 0 and 1, above 1, below 0.
const RANGES: [(f64, f64); 3] = [(0.1, 0.9), (1.1, 1.9), (-0.9, -0.1)];

fn inputs(body: &Body, range: (f64, f64), seed: u64) -> Vec<Tensor> {
    let decls = symbols(body);
    let value = |name: Name| {
        let decl = decls.iter().find(|d| d.name == name)?;
        Some((4 * decl.divisor).clamp(decl.min, decl.max))
    };
    let one = |(i, v): (usize, Value)| {
        let ty = body.ty(v);
        let shape: Vec<usize> = ty.shape().into_iter().map(|d: Dim| d.evaluate(&value).unwrap() as usize).collect();
        match ty.elem() {
            e if e.is_float() => {
                let between = Distribution::Uniform(range.0, range.1);
                Tensor::random(DType::F64, &shape, seed, i as u32, between).unwrap()
            }
            e => Tensor::full(e.to_string().parse().unwrap_or(DType::I64), &shape, 1.0).unwrap(),
        }
    };
    body.block_args(body.entry().unwrap()).enumerate().map(one).collect()
}

/// Checks the slopes of a function wherever they are numbers; whether they were anywhere.
fn check(what: &str, primal: &Module, function: Name, twice: bool) -> Result<bool, String> {
    let Some(request) = request(primal, function, Mode::Vjp) else { return Ok(false) };
    let joint = differentiated(primal, &request)?;
    let tangents = differentiated(primal, &Request { mode: Mode::Jvp, ..request.clone() })?;
    let mut checked = false;
    for (k, &range) in RANGES.iter().enumerate() {
        let point = inputs(primal.symbol(function).unwrap(), range, 7 + k as u64);
        let slopes = Slopes {
            function: function.as_str(),
            primal,
            joint: &joint,
            arguments: &request.arguments,
            results: &request.results,
        };
        let all = slopes.check(&point, 3).map_err(|d| format!("{what}: {}", d.render()))?;
        if !all.iter().all(|s| s.is_finite()) {
            continue;
        }
        if let Some(slope) = all.iter().find(|s| !s.agrees()) {
            return Err(format!("{what}: {slope}\n{}", text(&joint)));
        }
        checked |= all.iter().any(|s| s.found != 0.0);
        forward_agrees(what, &tangents, &joint, &request, &point)?;
    }
    if twice && checked {
        check(&format!("the joint function of {what}"), &joint, function, false)?;
    }
    Ok(checked)
}

/// The product of results' gradients, a Jacobian and arguments' tangents, from either side.
fn forward_agrees(
    what: &str,
    forward: &Module,
    backward: &Module,
    request: &Request,
    point: &[Tensor],
) -> Result<(), String> {
    let run = |module: &Module, extra: &[Tensor]| {
        let point: Vec<Tensor> = [point, extra].concat();
        Interpreter::new(module, Precision::Float64)
            .run(request.function.as_str(), &point)
            .map_err(|d| format!("{what}: {}\n{}", d.render(), text(module)))
    };
    let random = |like: &Tensor, i: usize| {
        Tensor::random(DType::F64, like.shape(), 11, i as u32, Distribution::Normal(0.0, 1.0)).unwrap()
    };
    let directions: Vec<Tensor> = request.arguments.iter().map(|&i| random(&point[i], i)).collect();
    let results = run(forward, &directions)?;
    let own = results.len() - request.results.len();
    let weights: Vec<Tensor> = results[own..].iter().enumerate().map(|(i, t)| random(t, 50 + i)).collect();
    let gradients = run(backward, &weights)?;
    let product = |a: &[Tensor], b: &[Tensor], f: fn(f64) -> f64| -> f64 {
        a.iter().zip(b).flat_map(|(a, b)| a.to_f64().into_iter().zip(b.to_f64())).map(|(a, b)| f(a * b)).sum()
    };
    let left = product(&results[own..], &weights, |x| x);
    let right = product(&gradients[own..], &directions, |x| x);
    let size = product(&gradients[own..], &directions, f64::abs) + product(&results[own..], &weights, f64::abs);
    // Constants in a definition are rounded to f32, and those in an op's attributes are not.
    if (left - right).abs() > 1e-7 * size + 1e-12 {
        return Err(format!("{what}: {left} forward and {right} backward\n{}", text(forward)));
    }
    Ok(())
}

fn is_ours(def: &OpDef) -> bool {
    def.name.starts_with("rc.core.") || def.name.starts_with("rc.tensor.")
}

/// Ops whose examples have no slope to compare: of integers and of nothing, of a loop without a bound, and of places in windows
/// that are in none here (the joint function of a pool has such as are).
fn is_flat(def: &OpDef) -> bool {
    ["rc.core.while", "rc.tensor.max_pool_grad"].contains(&def.name)
        || matches!(def.interface::<Derivative>(), Some(Derivative::Zero | Derivative::Missing(_)))
}

#[test]
fn every_op_declares_its_derivative() {
    rc_dialects::register();
    let without: Vec<&str> = registered()
        .into_iter()
        .filter(|d| is_ours(d) && d.interface::<Derivative>().is_none() && d.interface::<Decompose>().is_none())
        .map(|d| d.name)
        .collect();
    assert!(without.is_empty(), "these ops declare neither a derivative nor a definition: {without:?}");
}

#[test]
fn examples_have_the_slopes_of_differences() {
    rc_dialects::register();
    let only = std::env::var("OP").ok();
    let (mut wrong, mut unseen) = (Vec::new(), BTreeSet::new());
    for def in registered().into_iter().filter(|d| is_ours(d) && !is_flat(d)) {
        if only.as_ref().is_some_and(|o| o != def.name) {
            continue;
        }
        let module = parse(def.name, def.example);
        let mut seen = false;
        for body in module.bodies.iter().filter(|b| !b.is_private() && b.entry().is_some()) {
            match check(def.name, &module, body.symbol().unwrap(), true) {
                Ok(found) => seen |= found,
                Err(text) => wrong.push(text),
            }
        }
        if !seen && def.traits.contains(Traits::ELEMENTWISE) {
            unseen.insert(def.name);
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(unseen.is_empty(), "no slope was compared of {unseen:?}");
}

/// A function of one op on operands of one shape.
fn function_of(def: &'static OpDef, shape: &[i64]) -> Module {
    let ty = Type::tensor_of(shape, Type::f64());
    let inputs = vec![ty; def.operands.len()];
    let mut func = new_function("func.func", "f", &inputs, &[], Loc::UNKNOWN);
    let mut b = Builder::at_end(&mut func.body, func.entry);
    let y = b.op(def).operands(&func.args).value();
    let result = b.ty(y);
    b.op("func.return").operands(&[y]).build();
    func.body.set_attr(func.body.root(), "function_type", Attr::ty(Type::function(&inputs, &[result])));
    let mut module = Module::default();
    module.push(func.body);
    module
}

#[test]
fn elementwise_ops_at_odd_shapes() {
    rc_dialects::register();
    let slopes = |d: &&'static OpDef| matches!(d.interface::<Derivative>(), Some(Derivative::Elementwise(_)));
    let mut wrong = Vec::new();
    for def in registered().into_iter().filter(|d| is_ours(d)).filter(slopes) {
        for shape in [&[][..], &[0], &[1], &[3, 1, 2], &[7]] {
            let module = function_of(def, shape);
            wrong.extend(check(&format!("{} {shape:?}", def.name), &module, Name::new("f"), false).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bodies of functions of %x, a 3x4x5 tensor, and %y, a 5x2x3 tensor, with the type of the result.
const FORMS: &[(&str, &str)] = &[
    ("core.dot %x, %y {lhs_contract = [2, 0], rhs_contract = [0, 2]}", "4x2"),
    ("core.dot %x, %y {lhs_batch = [0], rhs_batch = [2], lhs_contract = [2], rhs_contract = [0]}", "3x4x2"),
    ("core.dot %x, %y {lhs_batch = [2, 0], rhs_batch = [0, 2], lhs_contract = [], rhs_contract = []}", "5x3x4x2"),
    ("core.dot %x, %y {lhs_contract = [0], rhs_contract = [2]}", "4x5x5x2"),
    ("core.broadcast %x {dims = [1, 2, 4]}", "2x3x4x3x5"),
    ("core.transpose %x {perm = [2, 0, 1]}", "5x3x4"),
    ("core.slice %x {starts = [1, 0, 1], sizes = [2, 2, 2], strides = [1, 3, 3]}", "2x2x2"),
    ("core.slice %x {starts = [1, 0, 1], sizes = [0, 2, 2], strides = [1, 3, 3]}", "0x2x2"),
    ("core.window %x {dims = [1, 2], sizes = [2, 3], strides = [2, 1], dilations = [1, 2]}", "3x2x1x2x3"),
    ("core.window %x {dims = [2], sizes = [2], strides = [3]}", "3x4x2x2"),
    ("core.reduce %x {dims = [0, 2], kind = add}", "4"),
    ("core.reduce %x {dims = [0, 2], kind = mul}", "4"),
    ("core.reduce %x {dims = [1], kind = max}", "3x5"),
    ("core.reduce %x {dims = [0, 1, 2], kind = min}", ""),
    ("core.scan %x {dim = 1, kind = add, exclusive = true}", "3x4x5"),
    ("core.scan %x {dim = 0, kind = add, reverse = true}", "3x4x5"),
    ("core.scan %x {dim = 1, kind = mul}", "3x4x5"),
    ("core.scan %x {dim = 1, kind = mul, reverse = true, exclusive = true}", "3x4x5"),
    ("core.scan %x {dim = 1, kind = max}", "3x4x5"),
    ("core.scan %x {dim = 2, kind = min, reverse = true}", "3x4x5"),
    ("tensor.cumprod %x {dim = 2}", "3x4x5"),
    ("tensor.log_softmax %x {dim = 1}", "3x4x5"),
    ("tensor.softmax %x {dim = 0}", "3x4x5"),
    ("tensor.layer_norm %x {eps = 1.0e-5}", "3x4x5"),
    ("tensor.rms_norm %x {eps = 1.0e-5}", "3x4x5"),
    ("tensor.logsumexp %x {dims = [0, 2]}", "4"),
    ("tensor.var %x {dims = [1]}", "3x5"),
    ("tensor.matmul %x, %x2", "3x4x4"),
    ("tensor.sdpa %x, %x, %x {causal = true}", "3x4x5"),
    ("tensor.sdpa %q, %k, %k mask(%seen)", "3x4x2x5"),
    ("tensor.sdpa %q, %k, %k mask(%bias) {scale = 0.3}", "3x4x2x5"),
];

#[test]
fn forms_with_more_dimensions() {
    let mut wrong = Vec::new();
    for (op, shape) in FORMS {
        let result = if shape.is_empty() { "tensor<f64>".into() } else { format!("tensor<{shape}xf64>") };
        let source = format!(
            "func.func @f(%x: tensor<3x4x5xf64>, %y: tensor<5x2x3xf64>) -> {result} {{
  %x2 = core.transpose %x {{perm = [0, 2, 1]}} : tensor<3x5x4xf64>
  %y1 = core.transpose %y {{perm = [2, 1, 0]}} : tensor<3x2x5xf64>
  %y2 = core.broadcast %y1 {{dims = [0, 1, 3]}} : tensor<3x2x6x5xf64>
  %number = core.iota {{dim = 2}} : tensor<3x2x6x5xf64>
  %k = core.mul %number, %y2 : tensor<3x2x6x5xf64>
  %q = core.broadcast %x {{dims = [0, 1, 3]}} : tensor<3x4x2x5xf64>
  %sum = core.reduce %x {{dims = [0, 2], kind = add}} : tensor<4xf64>
  %sums = core.broadcast %sum {{dims = [1]}} : tensor<1x4x1x6xf64>
  %column = core.iota {{dim = 3}} : tensor<1x4x1x6xf64>
  %bias = core.mul %column, %sums : tensor<1x4x1x6xf64>
  %half = core.iota {{dim = 2}} : tensor<1x1x2x6xi64>
  %odd = core.iota {{dim = 3}} : tensor<1x1x2x6xi64>
  %seen = core.compare %half, %odd {{kind = le}} : tensor<1x1x2x6xi1>
  %r = {op} : {result}
  func.return %r
}}
"
        );
        match check(op, &parse(op, &source), Name::new("f"), true) {
            Ok(seen) => assert!(seen || shape.starts_with('0'), "no slope was compared of {op}"),
            Err(text) => wrong.push(text),
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

/// Statistics of channels, of rows, of groups with weights that run within them, of everything and of single elements; weights or none.
#[test]
fn normalizations() {
    let mut wrong = Vec::new();
    for (dims, kept, row) in [
        ("0, 2", "4", Some("1x4x1")),
        ("0, 2", "4", None),
        ("-1", "3x4", Some("1x1x5")),
        ("1, 2", "3", Some("1x4x1")),
        ("1, 2", "3", Some("1x4x5")),
        ("1, 2", "3", Some("3x1x5")),
        ("2", "3x4", Some("3x4x1")),
        ("0, 1, 2", "", Some("1x1x1")),
        ("0, 1, 2", "", Some("3x1x5")),
        ("", "3x4x5", Some("1x4x1")),
    ] {
        let ty =
            |shape: &str| if shape.is_empty() { "tensor<f64>".to_string() } else { format!("tensor<{shape}xf64>") };
        let (row, groups) = match row {
            Some(row) => (ty(row), "weight(%w) bias(%b) "),
            None => (ty("1"), ""),
        };
        let (x, kept) = (ty("3x4x5"), ty(kept));
        let source = format!(
            "func.func @f(%x: {x}, %w: {row}, %b: {row}) -> ({x}, {kept}, {kept}) {{
  %y, %mean, %variance = tensor.normalize %x {groups}{{dims = [{dims}], eps = 1.0e-03}} : {x}, {kept}, {kept}
  func.return %y, %mean, %variance
}}
"
        );
        let what = format!("dims [{dims}], weight {row}");
        wrong.extend(check(&what, &parse(&what, &source), Name::new("f"), true).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Indices twice, factors of zero, kinds of scatter.
#[test]
fn scattered_updates() {
    let mut wrong = Vec::new();
    for kind in ["set", "add", "mul", "max", "min"] {
        let source = format!(
            "func.func @f(%x: tensor<4x2xf64>, %u: tensor<5x2xf64>) -> tensor<4x2xf64> {{
  %ids = core.constant {{value = dense<[2, 0, 2, 3, 2]> : tensor<5xi64>}} : tensor<5xi64>
  %mask = core.constant {{value = dense<[[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]> : tensor<5x2xf64>}} : tensor<5x2xf64>
  %m = core.mul %u, %mask : tensor<5x2xf64>
  %r = core.scatter %x, %ids, %m {{axis = 0, kind = {kind}}} : tensor<4x2xf64>
  func.return %r
}}
"
        );
        wrong.extend(check(kind, &parse(kind, &source), Name::new("f"), kind != "mul").err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Calls, branches and loops, one in the other, of symbolic sizes.
#[test]
fn control_flow() {
    let source = r#"
func.func @f(%x: tensor<s x 3 x f64>, %h: tensor<3xf64>, %w: tensor<3xf64>) -> (tensor<3xf64>, tensor<s x 3 x f64>) attributes {rc.symbols = #rc.symbols<s = [1, 9, 1]>} {
  %least = core.constant {value = dense<1.3> : tensor<f64>} : tensor<f64>
  %zero = core.constant {value = dense<0> : tensor<i64>} : tensor<i64>
  %last, %all = core.for init(%h) slices(%x) args(%w, %least) {body = "step", times = [s], bind = <s = #rc.shape<[s]>>} : tensor<3xf64>, tensor<s x 3 x f64>
  %end, %count = core.while init(%last, %zero) args(%w) {condition = "small", body = "grow", at_most = 20} : tensor<3xf64>, tensor<i64>
  %called = core.call %all, %w {callee = "scaled", bind = <n = #rc.shape<[s]>>} : tensor<s x 3 x f64>
  func.return %end, %called
}
func.func private @step(%h: tensor<3xf64>, %row: tensor<3xf64>, %w: tensor<3xf64>, %least: tensor<f64>) -> (tensor<3xf64>, tensor<3xf64>) attributes {rc.symbols = #rc.symbols<s = [1, 9, 1]>} {
  %sum = core.reduce %row {dims = [0], kind = add} : tensor<f64>
  %p = core.compare %sum, %least {kind = gt} : tensor<i1>
  %next = core.if %p, %h, %row {then = "blend", else = "bend"} : tensor<3xf64>
  %y = core.mul %next, %w : tensor<3xf64>
  func.return %next, %y
}
func.func private @blend(%h: tensor<3xf64>, %row: tensor<3xf64>) -> tensor<3xf64> {
  %y = core.mul %h, %row : tensor<3xf64>
  func.return %y
}
func.func private @bend(%h: tensor<3xf64>, %row: tensor<3xf64>) -> tensor<3xf64> {
  %y = core.tanh %h : tensor<3xf64>
  func.return %y
}
func.func private @small(%h: tensor<3xf64>, %n: tensor<i64>, %w: tensor<3xf64>) -> tensor<i1> {
  %max = core.reduce %h {dims = [0], kind = max} : tensor<f64>
  %ten = core.constant {value = dense<10.0> : tensor<f64>} : tensor<f64>
  %p = core.compare %max, %ten {kind = lt} : tensor<i1>
  %most = core.constant {value = dense<9> : tensor<i64>} : tensor<i64>
  %more = core.compare %n, %most {kind = lt} : tensor<i1>
  %both = core.and %p, %more : tensor<i1>
  func.return %both
}
func.func private @grow(%h: tensor<3xf64>, %n: tensor<i64>, %w: tensor<3xf64>) -> (tensor<3xf64>, tensor<i64>) {
  %one = core.constant {value = dense<1> : tensor<i64>} : tensor<i64>
  %twice = core.add %h, %h : tensor<3xf64>
  %y = core.add %twice, %w : tensor<3xf64>
  %m = core.add %n, %one : tensor<i64>
  func.return %y, %m
}
func.func private @scaled(%x: tensor<n x 3 x f64>, %w: tensor<3xf64>) -> tensor<n x 3 x f64> attributes {rc.symbols = #rc.symbols<n = [1, 9, 1]>} {
  %all = core.broadcast %w {dims = [1]} : tensor<n x 3 x f64>
  %y = core.mul %x, %all : tensor<n x 3 x f64>
  func.return %y
}
"#;
    assert!(check("control flow", &parse("control", source), Name::new("f"), true).unwrap_or_else(|e| panic!("{e}")));
}
