//! `mlir-opt` reads every generic dump, and what it prints of one is the same module.

use crate::common::*;
use crate::random::{Choices, choices};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rc_ir::{Attr, Body, Module, Name, Op};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `mlir-opt` of LLVM 22: named by `RC_MLIR_OPT`, else where Debian puts it, else on the path.
fn mlir_opt() -> Option<PathBuf> {
    let named = std::env::var_os("RC_MLIR_OPT").map(PathBuf::from);
    let usual = PathBuf::from("/usr/lib/llvm-22/bin/mlir-opt");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).flat_map(|d| [d.join("mlir-opt-22"), d.join("mlir-opt")]);
    let found = named.or_else(|| std::iter::once(usual).chain(on_path).find(|p| p.is_file()));
    if found.is_none() {
        eprintln!("skipped: no mlir-opt; install mlir-22-tools or set RC_MLIR_OPT");
    }
    found
}

/// What `mlir-opt` prints of a text.
///
/// # Panics
/// With its errors, if it does not read the text.
#[track_caller]
fn through_mlir(mlir_opt: &PathBuf, text: &str, flags: &[&str]) -> String {
    let mut child = Command::new(mlir_opt)
        .args(["--allow-unregistered-dialect", "--mlir-print-op-generic", "-"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlir-opt runs");
    let mut stdin = child.stdin.take().unwrap();
    let input = text.to_string();
    let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("mlir-opt ends");
    let _ = feed.join();
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.split(':').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(1);
    let near: Vec<&str> = text.lines().skip(line.saturating_sub(3)).take(5).collect();
    assert!(output.status.success(), "{}\nnear\n{}", errors.chars().take(2000).collect::<String>(), near.join("\n"));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The generic form without the names of values and blocks, which `mlir-opt` does not keep.
fn anonymous(module: &Module) -> String {
    let mut module = module.clone();
    module.resources.clear();
    for body in &mut module.bodies {
        for op in body.walk() {
            forget_names(body, op);
        }
    }
    generic(&module)
}
fn forget_names(body: &mut Body, op: Op) {
    for result in body.results(op).collect::<Vec<_>>() {
        body.set_value_name(result, Name::EMPTY);
    }
    for block in body.regions(op).into_iter().flat_map(|r| body.blocks(r).collect::<Vec<_>>()).collect::<Vec<_>>() {
        body.set_block_label(block, Name::EMPTY);
        for arg in body.block_args(block).collect::<Vec<_>>() {
            body.set_value_name(arg, Name::EMPTY);
        }
    }
}

#[test]
fn hand_written_modules() {
    register();
    let Some(mlir_opt) = mlir_opt() else { return };
    let module = parse(
        "module @m attributes {rc.target = \"sm_90a\"} {
  func.func private @declared(tensor<s x 768 x f32>) -> (f32 {rc.x = \"ö\"})
  func.func @f(%x: tensor<s x 768 x f32> {rc.name = \"x\"}, %c: i1, %i: index) -> (tensor<s x f32>, i1) {
    %k = t.constant {value = dense<[[1.0, -2.5e+1], [0x7FC00000, 0.1]]> : tensor<2x2xf32>} : tensor<2x2xf32>
    %w = t.constant {value = dense_resource<w> : tensor<2xf32>} : tensor<2xf32>
    %r = t.nest %x[m, 2 * k + 1], %k[k mod 2, max(m, k) floordiv 2] {iterators = [parallel, reduce]} ((%a: f32, %b: f32) {
      %p = t.add %a, %b : f32
      t.yield %p
    }) : tensor<s x f32>
    %l:2 = t.for %i, %i iter(%acc = %r, %n = %i) ((%j: index) {
      t.store %j, %acc[%n] mask(%c)
      t.yield %acc, %j
    }) : tensor<s x f32>, index
    t.launch %c grid(%i, %l#1) args(%x) {n = 3}
    t.kinds {callee = @a::@\"b c\", dims = [1, -2], eps = 1.0e-5, flag, mode = mul, schedule = <grid = [4], w = \"q > r\">, shape = [s, 4], ty = memref<s x f32, 3>}
    t.kinds {any = [#map, \"a\\0A\\22\", 255 : i8, 0x7FC00000 : f32, !rc.tile<8x16xf32, #rc.layout<row>>, array<i1: true>, tensor<s x f32, #foo.enc>]}
    t.kinds {any = dense<1.5> : !rc.tile<8x16xf32, #rc.layout<row>>, elements = dense<[1, 2]> : !rc.tile<2xi8>}
    t.kinds {any = dense<true> : tensor<300xi1>, elements = dense<[1, 1]> : tensor<2xi8>}
    foo.branch [^later]
  ^last:
    func.return %l#0, %c
  ^later:
    foo.branch %c [^last]
  }
}
{-# dialect_resources: { builtin: { w: \"0x400000000000803F00000040\" } } #-}
"
        .replace("#map", "affine_map<(d0, d1) -> (d1, d0 floordiv 2)>")
        .as_str(),
    );
    let printed = through_mlir(&mlir_opt, &generic(&module), &[]);
    let again = parse(&printed);
    assert_same(&anonymous(&again), &anonymous(&module), "through mlir-opt");
    assert_eq!(again.resources, module.resources);
    // With locations, which it prints as aliases defined last.
    let options = rc_ir::print::PrintOptions { debug_info: true, ..rc_ir::print::PrintOptions::GENERIC };
    let text = rc_ir::print::print_module(&module, &options);
    let again = parse(&through_mlir(&mlir_opt, &text, &["--mlir-print-debuginfo"]));
    assert_same(&anonymous(&again), &anonymous(&module), "with locations");
    let places =
        |m: &Module| -> Vec<String> { m.bodies[1].walk().iter().map(|&op| m.bodies[1].loc(op).to_string()).collect() };
    assert_eq!(places(&again), places(&module));
}

#[test]
fn large_constants_in_hex() {
    register();
    let Some(mlir_opt) = mlir_opt() else { return };
    let mut module = Module::new();
    let constant = |elem: rc_ir::Type, n: usize| {
        let width = elem.byte_width().unwrap() as usize;
        let limit = if elem == rc_ir::Type::i1() { 2 } else { 251 };
        let bytes: Vec<u8> = (0..n * width).map(|i| (i * i % limit) as u8).collect();
        Attr::dense(rc_ir::Type::tensor_of(&[n as i64], elem), bytes)
    };
    use rc_ir::Type;
    for elem in [Type::i1(), Type::i8(), Type::i64(), Type::f32(), Type::bf16(), Type::index()] {
        let mut state = rc_ir::OpState::new("foo.op", rc_ir::Loc::UNKNOWN);
        state.attrs = Attr::dict([(Name::new("a"), constant(elem, 333))]);
        module.push(Body::new(state));
    }
    let printed = through_mlir(&mlir_opt, &generic(&module), &[]);
    assert!(printed.contains("\"0x"), "mlir-opt writes hex");
    assert_same(&anonymous(&parse(&printed)), &anonymous(&module), "through hex");
}

#[test]
fn generated_modules() {
    register();
    let Some(mlir_opt) = mlir_opt() else { return };
    let mut runner = TestRunner::deterministic();
    let mut modules = Vec::new();
    for _ in 0..150 {
        let data = choices().new_tree(&mut runner).expect("a value").current();
        let mut choices = Choices::new(data);
        choices.only_mlir = true;
        modules.push(choices.module());
    }
    let text: Vec<String> = modules.iter().map(generic).collect();
    // The modules are random: their uses need not be dominated. Reading is what is tested.
    let flags = ["--split-input-file", "--verify-each=0", "--mlir-very-unsafe-disable-verifier-on-parsing"];
    let printed = through_mlir(&mlir_opt, &text.join("// -----\n"), &flags);
    let pieces: Vec<&str> = printed.split("// -----\n").collect();
    assert_eq!(pieces.len(), modules.len());
    for (module, piece) in modules.iter().zip(pieces) {
        assert_same(&anonymous(&parse(piece)), &anonymous(module), "through mlir-opt");
    }
}
