//! Every choice of a schedule changes the code and not the result.

use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Attr, Module, Name, Type};
use rc_passes::fuse::FuseOptions;
use rc_passes::lower_kernel::lower_module;
use rc_passes::lower_tiles::{Options, lower_tiles};
use rc_passes::schedule::{Target, Tuning, reference, schedule_kernel};
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{Tolerance, compare};
use rc_runtime::{DType, Tensor};

fn parse(text: &str) -> Module {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module("test.ir", text);
    let errors: String = diagnostics.iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{errors}");
    module.expect("a module")
}

/// The module's kernels, scheduled.
fn scheduled(text: &str, target: &Target) -> Module {
    let mut module = parse(text);
    for body in &mut module.bodies {
        rc_passes::decompose::decompose(body).unwrap();
        rc_passes::fuse::fuse(body, &FuseOptions::default());
    }
    rc_passes::lower_loops::lower_loops(&mut module).unwrap();
    for body in module.bodies.iter_mut().filter(|b| b.name(b.root()) == "rc.loop.kernel") {
        schedule_kernel(body, target, &Tuning::default(), 1).unwrap();
    }
    module
}

/// Sets parameters of the nests' schedules.
fn change(module: &mut Module, kind: &str, changes: &[(&str, Attr)]) {
    let mut changed = 0;
    for body in &mut module.bodies {
        for op in body.walk() {
            let Some(attr) = body.attr(op, "schedule").filter(|a| a.get("kind").and_then(|k| k.as_str()) == Some(kind))
            else {
                continue;
            };
            let own = attr.as_dialect("schedule").unwrap();
            let kept = own.iter().filter(|p| changes.iter().all(|c| p.0 != c.0)).map(|p| (p.0.as_str(), p.1));
            let all: Vec<(&str, Attr)> = kept.chain(changes.iter().copied()).collect();
            body.set_attr(op, "schedule", Attr::dialect("schedule", &all));
            changed += 1;
        }
    }
    assert!(changed > 0, "no schedule of the kind {kind}");
}

/// The code of the threads, and what it computes.
fn lowered(mut module: Module, target: &Target) -> (String, Vec<Tensor>) {
    lower_module(&mut module, target).unwrap_or_else(|d| panic!("{}", d.render()));
    for body in module.bodies.iter_mut().filter(|b| b.name(b.root()) == "rc.kernel.func") {
        *body = lower_tiles(body, Options::of(target)).unwrap_or_else(|d| panic!("{}", d.render()));
    }
    let text = print_module(&module, &PrintOptions::default());
    let main = module.symbol(Name::new("main")).unwrap();
    let (types, _) = main.attr(main.root(), "function_type").unwrap().as_type().unwrap().as_function().unwrap();
    let input = |(i, ty): (usize, &Type)| {
        let shape: Vec<usize> = ty.static_shape().unwrap().iter().map(|&n| n as usize).collect();
        Tensor::random_input(ty.elem().to_string().parse::<DType>().unwrap(), &shape, 7, i as u32).unwrap()
    };
    let args: Vec<Tensor> = types.iter().enumerate().map(input).collect();
    let results = Interpreter::new(&module, Mode::Typed).run("main", &args);
    (text.clone(), results.unwrap_or_else(|d| panic!("{}\n{text}", d.render())))
}

/// Lowers with the changed schedule beside the planned one.
fn check(text: &str, arch: (&str, &str), kind: &str, changes: &[(&str, Attr)], tolerance: f64) {
    let target = Target::find(arch.0, Some(arch.1)).unwrap();
    let planned = scheduled(text, &target);
    let mut other = planned.clone();
    change(&mut other, kind, changes);
    let ((code, want), (turned, got)) = (lowered(planned, &target), lowered(other, &target));
    assert_ne!(code, turned, "{changes:?} changes nothing");
    for (want, got) in want.iter().zip(&got) {
        let compared = compare(got, want, Tolerance { abs: tolerance, rel: tolerance, ..Tolerance::EXACT }).unwrap();
        assert!(compared.passed(), "{changes:?}: {compared}");
    }
}

fn sizes(list: &[(&str, i64)]) -> Attr {
    Attr::dict(list.iter().map(|&(name, size)| (Name::new(name), Attr::i64(size))))
}
fn words(list: &[&str]) -> Attr {
    Attr::array(&list.iter().map(|word| Attr::str(word)).collect::<Vec<_>>())
}

const PRODUCT: &str = "func.func @main(%x: tensor<96x80xT>, %y: tensor<80x64xT>) -> tensor<96x64xT> {
  %0 = tensor.matmul %x, %y : tensor<96x64xT>
  func.return %0
}";

fn product(ty: &str) -> String {
    PRODUCT.replace('T', ty)
}

#[test]
fn products_on_a_gpu() {
    let (f32s, halves) = (product("f32"), product("bf16"));
    for stages in [1, 2, 4] {
        check(&f32s, ("cuda", "sm_80"), "contract", &[("stages", Attr::i64(stages))], 1e-4);
        check(&halves, ("cuda", "sm_80"), "contract", &[("stages", Attr::i64(stages))], 2e-2);
    }
    let tile = ("tile", sizes(&[("i", 32), ("j", 32), ("k", 16)]));
    check(&f32s, ("cuda", "sm_80"), "contract", &[tile, ("threads", Attr::i64(32))], 1e-4);
    check(&halves, ("cuda", "sm_80"), "contract", &[("unit", Attr::str("fma"))], 2e-2);
    check(&halves, ("cuda", "sm_80"), "contract", &[("grid", words(&["i", "j"]))], 2e-2);
}

#[test]
fn products_on_warpgroups() {
    let text = product("bf16").replace("96", "256").replace("64", "128").replace("80", "128");
    for change in [("stages", 2), ("stages", 3), ("programs", 2)] {
        let wgmma = [
            ("unit", Attr::str("wgmma")),
            ("tile", sizes(&[("i", 128), ("j", 128), ("k", 64)])),
            ("threads", Attr::i64(256)),
            ("programs", Attr::i64(132)),
            ("stages", Attr::i64(4)),
        ];
        let with = |changes: &[(&str, Attr)]| {
            let target = Target::cuda("sm_90a").unwrap();
            let mut module = scheduled(&text, &target);
            self::change(&mut module, "contract", changes);
            lowered(module, &target)
        };
        let mut other = wgmma.to_vec();
        other.iter_mut().filter(|w| w.0 == change.0).for_each(|w| w.1 = Attr::i64(change.1));
        let ((code, want), (turned, got)) = (with(&wgmma), with(&other));
        assert_ne!(code, turned, "{change:?} changes nothing");
        assert!(compare(&got[0], &want[0], Tolerance::EXACT).unwrap().passed(), "{change:?}");
    }
}

#[test]
fn products_on_a_cpu() {
    let text = product("f32");
    let block = ("block", sizes(&[("i", 12), ("j", 32), ("k", 16)]));
    let tile = ("tile", sizes(&[("i", 4), ("j", 16), ("k", 1)]));
    for pack in [&["left"][..], &["right"], &["left", "right"]] {
        let changes = [block, tile, ("pack", words(pack))];
        check(&text, ("cpu", "x86-64-v3"), "contract", &changes, 1e-4);
    }
    check(&text, ("cpu", "x86-64-v3"), "contract", &[block, tile], 1e-4);
}

#[test]
fn reductions() {
    let sums = |dim: &str| {
        let (rows, columns) = if dim == "1" { ("8", "4096") } else { ("4096", "8") };
        format!(
            "func.func @main(%x: tensor<{rows}x{columns}xf32>) -> tensor<8xf32> {{
  %0 = core.reduce %x {{dims = [{dim}], kind = add}} : tensor<8xf32>
  func.return %0
}}"
        )
    };
    check(&sums("1"), ("cuda", "sm_80"), "row", &[("split", Attr::i64(4))], 1e-3);
    check(&sums("1"), ("cuda", "sm_80"), "row", &[("threads", Attr::i64(64))], 1e-3);
    check(&sums("0"), ("cuda", "sm_80"), "column", &[("split", Attr::i64(8))], 1e-3);
    check(&sums("1"), ("cpu", "x86-64-v3"), "row", &[("split", Attr::i64(2))], 1e-3);
}

const ATTENTION: &str = "func.func @main(%q: tensor<1x2x64x32xf32>, %k: tensor<1x2x64x32xf32>, %v: tensor<1x2x64x32xf32>) -> tensor<1x2x64x32xf32> {
  %0 = tensor.sdpa %q, %k, %v : tensor<1x2x64x32xf32>
  func.return %0
}";

#[test]
fn attention() {
    check(ATTENTION, ("cuda", "sm_80"), "attention", &[("split", Attr::i64(2))], 1e-4);
    check(ATTENTION, ("cuda", "sm_80"), "attention", &[("stages", Attr::i64(2))], 1e-4);
    check(ATTENTION, ("cpu", "x86-64-v3"), "attention", &[("block", sizes(&[("m", 6)]))], 1e-4);
}

/// The page names every choice.
#[test]
fn the_reference_has_all() {
    let page = reference();
    for word in ["`collapse`", "`block`", "`stages`", "`keep`", "## `scatter`"] {
        assert!(page.contains(word), "{word}\n{page}");
    }
}
