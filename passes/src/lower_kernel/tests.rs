//! Nests, scheduled, lowered down to threads and run on the machine of lower-tiles' tests, against the reference interpreter.

use super::{Lowered, Ref, lower_kernel};
use crate::lower_tiles::tests::machine::{Buffer, run};
use crate::lower_tiles::{Options, lower_tiles};
use crate::schedule::{Target, schedule_kernel};
use rc_dialects::core::scalar::Scalar;
use rc_ir::{Body, Module, Name, Type, verify_body};
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{Tolerance, compare};
use rc_runtime::{DType, Tensor};

fn parse(name: &str, text: &str) -> Module {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module(name, text);
    let errors: String = diagnostics.iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{errors}");
    module.expect("a module")
}

fn buffer(elem: Type, tensor: &Tensor) -> Buffer {
    let shape: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
    if elem.is_float() {
        return Buffer::floats(&shape, elem, &tensor.to_f64());
    }
    Buffer::new(&shape, elem, tensor.to_i64().into_iter().map(|n| Scalar::Int(n.into())).collect())
}
fn tensor(dtype: DType, buffer: &Buffer) -> Tensor {
    let shape: Vec<usize> = buffer.shape.iter().map(|&n| n as usize).collect();
    if buffer.elem.is_float() {
        return Tensor::from_f64(dtype, &shape, &buffer.to_floats()).unwrap();
    }
    let values: Vec<i64> = buffer.data.iter().map(|s| s.int().unwrap() as i64).collect();
    Tensor::from_i64(dtype, &shape, &values).unwrap()
}

/// Runs the launches that a kernel became, one after the other.
fn run_steps(lowered: &Lowered, lanes: i64, args: &[Tensor], arg_types: &[Type], symbols: &[(&str, i64)]) -> Vec<Buffer> {
    let bind = |n: Name| symbols.iter().find(|s| n == s.0).map(|s| s.1);
    let clone = |b: &Buffer| Buffer::new(&b.shape, b.elem, b.data.clone());
    let given: Vec<Buffer> = args.iter().zip(arg_types).map(|(a, t)| buffer(t.elem(), a)).collect();
    let mut made: Vec<Vec<Buffer>> = Vec::new();
    let find = |made: &[Vec<Buffer>], r: Ref| match r {
        Ref::Arg(i) => clone(&given[i]),
        Ref::Step(s, i) => clone(&made[s][i]),
    };
    for (step, func) in lowered.steps.iter().zip(&lowered.funcs) {
        let thread = lower_tiles(func, Options { lanes }).unwrap_or_else(|d| panic!("{}\n{}", d.render(), text(func)));
        let mut buffers: Vec<Buffer> = step.inputs.iter().map(|&r| find(&made, r)).collect();
        for ty in &step.results {
            let shape: Vec<i64> = ty.shape().iter().map(|d| d.evaluate(&bind).unwrap()).collect();
            let poison = if ty.elem().is_float() { Scalar::Float(f64::NAN) } else { Scalar::Int(77) };
            buffers.push(Buffer::new(&shape, ty.elem(), vec![poison; shape.iter().product::<i64>() as usize]));
        }
        let out = run(&thread, buffers, symbols);
        made.push(out.into_iter().skip(step.inputs.len()).collect());
    }
    lowered.results.iter().map(|&r| find(&made, r)).collect()
}

fn text(body: &Body) -> String {
    rc_ir::print::print_body(body, &rc_ir::print::PrintOptions::default())
}

fn input(ty: Type, shape: &[usize], seed: u64, i: u32) -> Tensor {
    let dtype: DType = ty.elem().to_string().parse().unwrap();
    Tensor::random_input(dtype, shape, seed, i).unwrap()
}

/// Lowers the kernel of a module for several targets, and compares with the nests. `sizes` are the symbols.
fn check(name: &str, source: &str, symbols: &[(&str, i64)], tolerance: f64) {
    for (machine, arch) in [("cpu", None), ("cpu", Some("x86-64-v4")), ("cuda", Some("sm_90a"))] {
        let target = Target::find(machine, arch).unwrap();
        let mut module = parse(name, source);
        let main = module.symbol("main").unwrap();
        let (inputs, _) = main.attr(main.root(), "function_type").unwrap().as_type().unwrap().as_function().unwrap();
        let bind = |n: Name| symbols.iter().find(|s| n == s.0).map(|s| s.1);
        let shape = |t: &Type| t.shape().iter().map(|d| d.evaluate(&bind).unwrap() as usize).collect::<Vec<_>>();
        let args: Vec<Tensor> = inputs.iter().enumerate().map(|(i, t)| input(*t, &shape(t), 11, i as u32)).collect();
        let want = Interpreter::new(&module, Mode::Typed).run("main", &args).unwrap_or_else(|d| panic!("{}", d.render()));
        let kernel = module.bodies.iter_mut().find(|b| b.name(b.root()) == "rc.loop.kernel").unwrap();
        schedule_kernel(kernel, &target).unwrap();
        let lowered = lower_kernel(kernel, &target).unwrap_or_else(|d| panic!("{}", d.render()));
        for func in &lowered.funcs {
            let errors: String = verify_body(func).iter().map(|d| d.render()).collect();
            assert!(errors.is_empty(), "{errors}\n{}", text(func));
        }
        let lanes = target.lanes(Type::f32());
        let got = run_steps(&lowered, lanes, &args, inputs, symbols);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let allowed = Tolerance { abs: tolerance, rel: tolerance, ..Tolerance::EXACT }.equal_nan();
            let compared = compare(&tensor(want.dtype(), got), want, allowed).unwrap();
            let all: String = lowered.funcs.iter().map(text).collect();
            assert!(compared.passed(), "{name} on {}, result {i}: {compared}\n{all}", target.name);
        }
    }
}

macro_rules! kernels {
    ($($name:ident($file:literal, $tolerance:expr, $([$($symbol:literal = $size:expr),*]),+);)*) => {
        $(#[test]
        fn $name() {
            $(check($file, include_str!(concat!("../../tests/kernels/", $file, ".ir")), &[$(($symbol, $size)),*], $tolerance);)+
        })*
    };
}

// Tolerances: a few roundings of the type, times the square root of the longest sum.
kernels! {
    softmax("softmax", 2e-6, ["s" = 13, "n" = 13], ["s" = 1, "n" = 1], ["s" = 0, "n" = 0]);
    layer_norm("layer_norm", 2e-2, []);
    gelu_bias("gelu_bias", 1e-6, ["s" = 29], ["s" = 0]);
    transpose("transpose", 0.0, []);
    embedding("embedding", 0.0, ["s" = 17], ["s" = 1]);
    column_sum("column_sum", 1e-5, ["s" = 19], ["s" = 1]);
    linear("linear", 1e-5, ["s" = 37], ["s" = 1], ["s" = 0]);
    batched("batched", 2e-2, []);
    attention("attention", 1e-5, ["s" = 41], ["s" = 1], ["s" = 0]);
}
