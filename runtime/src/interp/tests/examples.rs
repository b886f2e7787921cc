//! Every function among the examples of the op declarations runs, in both modes, with results of the declared types.

use super::*;
use rc_dialects::func::symbols;
use rc_ir::{Body, Dim};

fn inputs(body: &Body, seed: u64) -> Vec<Tensor> {
    let decls = symbols(body);
    let value = |name: rc_ir::Name| {
        let decl = decls.iter().find(|d| d.name == name)?;
        let near = decl.min.max(4.min(decl.max));
        Some((near + decl.divisor - 1) / decl.divisor * decl.divisor)
    };
    let entry = body.entry().unwrap();
    let size = |d: Dim| d.evaluate(&value).unwrap() as usize;
    let one = |(i, v): (usize, Value)| {
        let ty = body.ty(v);
        let shape: Vec<usize> = ty.shape().into_iter().map(size).collect();
        let dtype = super::super::value::dtype_of(ty.elem()).unwrap();
        // Indices into tables must be small.
        if dtype.is_float() {
            random(dtype, &shape, seed + i as u64)
        } else {
            Tensor::full(dtype, &shape, 1.0).unwrap()
        }
    };
    body.block_args(entry).enumerate().map(one).collect()
}

#[test]
fn examples_run() {
    rc_dialects::register();
    let mut ran = 0;
    // What a foreign function computes is not the interpreter's.
    let runs = |def: &&rc_ir::OpDef| !def.example.is_empty() && def.name != op::core::FOREIGN;
    for def in rc_ir::op_def::registered().into_iter().filter(runs) {
        let (module, errors) = rc_parser::parse_module(def.name, def.example);
        let Some(module) = module else { panic!("{}: {}", def.name, errors[0].render()) };
        for body in &module.bodies {
            let runnable = body.name(body.root()) == op::func::FUNC || body.name(body.root()) == op::loop_::KERNEL;
            if !runnable || body.entry().is_none() {
                continue;
            }
            let (args, name) = (inputs(body, 7), body.symbol().unwrap());
            let go = |mode| Interpreter::new(&module, mode).run(name.as_str(), &args);
            let typed = go(Mode::Typed).unwrap_or_else(|d| panic!("{} @{name}: {}", def.name, d.render()));
            let exact = go(Mode::Float64).unwrap_or_else(|d| panic!("{} @{name}: {}", def.name, d.render()));
            for (t, e) in typed.iter().zip(&exact) {
                assert_eq!(t.shape(), e.shape());
                assert_close(&t.to_f64(), &e.to_f64(), 40.0 * t.dtype().epsilon());
            }
            ran += 1;
        }
    }
    assert!(ran > 40, "only {ran} examples ran");
}

/// A tensor's type with fixed sizes, as text.
fn fixed(ty: rc_ir::Type, size: &dyn Fn(Dim) -> i64) -> String {
    let sizes: String = ty.shape().into_iter().map(|d| format!("{}x", size(d))).collect();
    format!("tensor<{sizes}{}>", ty.elem())
}

/// A function that launches a kernel: the last argument is its result.
fn launching(kernel: &Body) -> Option<String> {
    let root = kernel.op_ref(kernel.root());
    let decls = symbols(kernel);
    let near = |name: rc_ir::Name| decls.iter().find(|d| d.name == name).map(|d| d.min.max(4.min(d.max)));
    let size = |d: Dim| d.evaluate(&near).unwrap();
    let mut maps = root.attr("tensor_maps").and_then(|a| a.as_array()).unwrap_or_default().iter();
    let args = kernel.block_args(kernel.entry()?).map(|v| kernel.ty(v));
    let args =
        args.map(|ty| if ty.is_memref() { ty } else { maps.next().unwrap().get("tensor").unwrap().as_type().unwrap() });
    let mut types: Vec<String> = args.map(|ty| fixed(ty, &size)).collect();
    let result = types.pop()?;
    let names: Vec<String> = (0..types.len()).map(|i| format!("%a{i}")).collect();
    let params: Vec<String> = names.iter().zip(&types).map(|(n, t)| format!("{n}: {t}")).collect();
    let binds: Vec<String> =
        decls.iter().map(|d| format!("{} = #rc.shape<[{}]>", d.name, near(d.name).unwrap())).collect();
    let (params, names, binds) = (params.join(", "), names.join(", "), binds.join(", "));
    let callee = kernel.symbol()?;
    Some(format!(
        "func.func @launches_{callee}({params}) -> {result} {{
  %r = host.launch {names} {{callee = \"{callee}\", bind = <{binds}>}} : {result}
  func.return %r
}}
"
    ))
}

#[test]
fn kernels_of_examples_run() {
    rc_dialects::register();
    let (mut ran, mut wrong) = (0, Vec::new());
    // As texts name it.
    let func = op::kernel::FUNC.trim_start_matches("rc.");
    for def in rc_ir::op_def::registered().into_iter().filter(|d| d.example.contains(func)) {
        let (module, _) = rc_parser::parse_module(def.name, def.example);
        let module = module.expect("another test reads all examples");
        let launches: Vec<(String, String)> = module
            .bodies
            .iter()
            .filter(|b| b.name(b.root()) == op::kernel::FUNC)
            .filter_map(|b| Some((format!("launches_{}", b.symbol()?), launching(b)?)))
            .collect();
        for (name, text) in launches {
            let (module, errors) = rc_parser::parse_module(def.name, format!("{}{text}", def.example));
            let module = module.unwrap_or_else(|| panic!("{}: {}\n{text}", def.name, errors[0].render()));
            let args = inputs(module.symbol(rc_ir::Name::new(&name)).unwrap(), 7);
            let done = Interpreter::new(&module, Mode::Typed).shuffled(3).run(&name, &args);
            if let Err(d) = done {
                wrong.push(format!("{}: {}", def.name, d.render()));
            }
            ran += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 30, "only {ran} kernels ran");
}
