//! Kernels, scheduled and lowered: they verify, print and parse back, and compute what the nests compute.

use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Module, Name, Type, verify_module};
use rc_passes::fuse::FuseOptions;
use rc_passes::lower_kernel::lower_module;
use rc_passes::lower_loops::lower_loops;
use rc_passes::lower_tiles::{Options, lower_tiles};
use rc_passes::schedule::Target;
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

fn check(module: &Module) {
    let errors: String = verify_module(module).iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{errors}\n{}", print_module(module, &PrintOptions::default()));
}

fn targets() -> Vec<Target> {
    [("cpu", None), ("cpu", Some("x86-64-v4")), ("cuda", None), ("cuda", Some("sm_80"))]
        .map(|(machine, arch)| Target::find(machine, arch).unwrap())
        .into()
}

fn kernels() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let only = std::env::var("KERNEL").ok();
    let name = |p: &std::path::PathBuf| p.file_stem().unwrap().to_str().unwrap().to_string();
    let wanted = |n: &String| only.as_ref().is_none_or(|o| o == n);
    files.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).filter(|k| wanted(&k.0)).collect()
}

#[test]
fn lowered_kernels_verify() {
    for (name, text) in kernels() {
        for target in targets() {
            let mut module = parse(&name, &text);
            check(&module);
            let remarks = lower_module(&mut module, &target).unwrap_or_else(|d| panic!("{name}: {}", d.render()));
            if std::env::var("SHOW").is_ok() {
                remarks.iter().for_each(|r| println!("{}", r.render()));
                println!("{}", print_module(&module, &PrintOptions::default()));
            }
            check(&module);
            let printed = print_module(&module, &PrintOptions::default());
            let again = parse(&name, &printed);
            assert_eq!(print_module(&again, &PrintOptions::default()), printed);
        }
    }
}

/// Every core operation's example gets a schedule that can be applied, and computes the same.
#[test]
fn every_core_op_is_lowered() {
    rc_dialects::register();
    let wanted = |name: &str| name.starts_with("rc.core.");
    for def in rc_ir::op_def::registered().into_iter().filter(|d| wanted(d.name) && !d.example.is_empty()) {
        let module = parse(def.name, def.example);
        let main = module.bodies.last().unwrap().symbol().unwrap();
        let symbols = [("s", 8), ("n", 6), ("t", 4)];
        let args = inputs(&module, main, &symbols);
        let Ok(want) = Interpreter::new(&module, Mode::Typed).run(main.as_str(), &args) else {
            continue; // The example's indices do not suit random numbers.
        };
        for target in targets() {
            let mut lowered = module.clone();
            lower_all(&mut lowered, &target, true).unwrap_or_else(|why| panic!("{}: {why}", def.name));
            check(&lowered);
            let got = Interpreter::new(&lowered, Mode::Typed).run(main.as_str(), &args);
            let got =
                got.unwrap_or_else(|d| panic!("{}\n{}", d.render(), print_module(&lowered, &PrintOptions::default())));
            check_results(&format!("{} on {}", def.name, target.name), &lowered, &got, &want, 1e-5);
        }
    }
}

/// Each op alone (or fused), lowered for the target.
fn lower_all(module: &mut Module, target: &Target, fuse: bool) -> Result<(), String> {
    let options = FuseOptions { fuse, ..FuseOptions::default() };
    for body in &mut module.bodies {
        rc_passes::decompose::decompose(body).map_err(|d| d.render())?;
        rc_passes::fuse::fuse(body, &options);
    }
    lower_loops(module).map_err(|d| d.render())?;
    if std::env::var("SHOW").is_ok() {
        println!("{}", print_module(module, &PrintOptions::default()));
    }
    lower_module(module, target).map(|_| ()).map_err(|d| d.render())
}

fn input(ty: Type, shape: &[usize], seed: u64, i: u32) -> Tensor {
    let dtype: DType = ty.elem().to_string().parse().unwrap();
    Tensor::random_input(dtype, shape, seed, i).unwrap()
}

/// Random arguments for a function.
fn inputs(module: &Module, name: Name, symbols: &[(&str, i64)]) -> Vec<Tensor> {
    let func = module.symbol(name).unwrap();
    let (types, _) = func.attr(func.root(), "function_type").unwrap().as_type().unwrap().as_function().unwrap();
    let bind = |n: Name| symbols.iter().find(|s| n == s.0).map(|s| s.1);
    let shape = |t: &Type| t.shape().iter().map(|d| d.evaluate(&bind).unwrap() as usize).collect::<Vec<_>>();
    types.iter().enumerate().map(|(i, t)| input(*t, &shape(t), 11, i as u32)).collect()
}

fn run(module: &Module, args: &[Tensor]) -> Vec<Tensor> {
    let results = Interpreter::new(module, Mode::Typed).run("main", args);
    results.unwrap_or_else(|d| panic!("{}\n{}", d.render(), print_module(module, &PrintOptions::default())))
}

/// Runs a module's `main` before and after its kernels are lowered, to tiles and to threads. `symbols` are the sizes.
fn check_runs(name: &str, module: &Module, symbols: &[(&str, i64)], tolerance: f64) {
    let args = inputs(module, Name::new("main"), symbols);
    let want = run(module, &args);
    for target in targets() {
        let mut lowered = module.clone();
        lower_module(&mut lowered, &target).unwrap_or_else(|d| panic!("{}", d.render()));
        check(&lowered);
        check_results(&format!("{name} on {}, tiles", target.name), &lowered, &run(&lowered, &args), &want, tolerance);
        for body in lowered.bodies.iter_mut().filter(|b| b.name(b.root()) == "rc.kernel.func") {
            let options = Options::of(&target);
            *body = lower_tiles(body, options).unwrap_or_else(|d| panic!("{name} on {}: {}", target.name, d.render()));
        }
        check_results(
            &format!("{name} on {}, threads", target.name),
            &lowered,
            &run(&lowered, &args),
            &want,
            tolerance,
        );
    }
}

fn check_results(what: &str, module: &Module, got: &[Tensor], want: &[Tensor], tolerance: f64) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let allowed = Tolerance { abs: tolerance, rel: tolerance, ..Tolerance::EXACT }.equal_nan();
        let compared = compare(got, want, allowed).unwrap();
        assert!(
            compared.passed(),
            "{what}, result {i}: {compared}\n{}",
            print_module(module, &PrintOptions::default())
        );
    }
}

macro_rules! kernels {
    ($($name:ident($file:literal, $tolerance:expr, $([$($symbol:literal = $size:expr),*]),+);)*) => {
        $(#[test]
        fn $name() {
            let module = parse($file, include_str!(concat!("kernels/", $file, ".ir")));
            $(check_runs($file, &module, &[$(($symbol, $size)),*], $tolerance);)+
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
    attentions("attentions", 2e-2, ["s" = 70], ["s" = 1]);
    attention_backward("attention_backward", 1e-4, ["s" = 41], ["s" = 1], ["s" = 0]);
    attention_backward_half("attention_backward_half", 4e-2, []);
    attention_backward_masked("attention_backward_masked", 1e-4, []);
    reductions("reductions", 1e-2, ["s" = 37], ["s" = 1]);
    symbolic_rows("symbolic_rows", 2e-6, ["t" = 37], ["t" = 1], ["t" = 200]);
    decode("decode", 1e-5, []);
    maps("maps", 1e-4, ["s" = 21], ["s" = 0]);
}
