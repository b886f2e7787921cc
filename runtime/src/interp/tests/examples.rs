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
        if dtype.is_float() { random(dtype, &shape, seed + i as u64) } else { Tensor::full(dtype, &shape, 1.0).unwrap() }
    };
    body.block_args(entry).enumerate().map(one).collect()
}

#[test]
fn examples_run() {
    rc_dialects::register();
    let mut ran = 0;
    for def in rc_ir::op_def::registered().into_iter().filter(|d| !d.example.is_empty()) {
        let (module, errors) = rc_parser::parse_module(def.name, def.example);
        let Some(module) = module else { panic!("{}: {}", def.name, errors[0].render()) };
        for body in &module.bodies {
            let runnable = body.name(body.root()) == "func.func" || body.name(body.root()) == "rc.loop.kernel";
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
