//! The kernels of bench/cases at small and odd sizes, on GPUs: what threads compute is what float64 gives, in the interpreter.

use rc_ir::{Module, Name};
use rc_passes::fuse::FuseOptions;
use rc_passes::lower_kernel::lower_module;
use rc_passes::lower_loops::lower_loops;
use rc_passes::lower_tiles::{Options, lower_tiles};
use rc_passes::schedule::Target;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{Distribution, Tolerance, compare};
use rc_runtime::{DType, Tensor};
use std::fmt::Write;

/// Rows and columns in the files, which stand for any.
const SIZES: [&str; 2] = ["16384", "8192"];

fn cases() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/cases");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    paths.sort();
    let name = |p: &std::path::PathBuf| p.file_stem().unwrap().to_str().unwrap().to_string();
    let only = std::env::var("KERNEL").ok();
    let wanted = |n: &String| only.as_ref().is_none_or(|o| o == n);
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).filter(|c| wanted(&c.0)).collect()
}

fn sized(text: &str, rows: usize, columns: usize) -> String {
    text.replace(SIZES[0], "ROWS").replace(SIZES[1], &columns.to_string()).replace("ROWS", &rows.to_string())
}

/// The same with a symbolic number of rows.
fn symbolic(text: &str, columns: usize) -> String {
    let text = text.replace("x16384x", " x m x ").replace("16384x", "m x ");
    let signature = text.lines().find(|l| l.starts_with("func.func")).unwrap();
    let declared =
        signature.trim_end_matches('{').to_string() + "attributes {rc.symbols = #rc.symbols<m = [1, 300, 1]>} {";
    text.replace(signature, &declared).replace(SIZES[1], &columns.to_string())
}

fn parse(text: &str) -> Module {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module("case.ir", text);
    module.unwrap_or_else(|| panic!("{}\n{text}", diagnostics[0].render()))
}

/// Normal numbers; for classes, any of them.
fn inputs(module: &Module, rows: usize, columns: usize) -> Vec<Tensor> {
    let body = module.symbol(Name::new("main")).unwrap();
    let entry = body.entry().unwrap();
    let one = |(i, v): (usize, rc_ir::Value)| {
        let size = |d: &rc_ir::Dim| d.as_static().map_or(rows, |n| n as usize);
        let shape: Vec<usize> = body.ty(v).shape().iter().map(size).collect();
        let dtype: DType = body.ty(v).elem().to_string().parse().unwrap();
        if dtype == DType::I64 {
            let classes: Vec<i64> = (0..rows).map(|k| (k * 7919 % columns) as i64).collect();
            return Tensor::from_slice(&shape, &classes).unwrap();
        }
        Tensor::random(dtype, &shape, 5, i as u32, Distribution::Normal(0.0, 1.0)).unwrap()
    };
    body.block_args(entry).enumerate().map(one).collect()
}

/// What is wrong with a case on its way to threads, or nothing.
fn failure(name: &str, text: &str, [rows, columns]: [usize; 2], arch: &str) -> Option<String> {
    let module = parse(text);
    let target = Target::find("cuda", Some(arch)).unwrap();
    let args = inputs(&module, rows, columns);
    let want = Interpreter::new(&module, Mode::Float64).run("main", &args).unwrap();
    let mut lowered = module.clone();
    for body in &mut lowered.bodies {
        rc_passes::decompose::decompose(body).unwrap();
        rc_passes::fuse::fuse(body, &FuseOptions::default());
    }
    lower_loops(&mut lowered).unwrap();
    if let Err(d) = lower_module(&mut lowered, &target) {
        return Some(d.render());
    }
    for body in lowered.bodies.iter_mut().filter(|b| b.name(b.root()) == "rc.kernel.func") {
        match lower_tiles(body, Options::of(&target)) {
            Ok(threads) => *body = threads,
            Err(d) => return Some(d.render()),
        }
    }
    let got = match Interpreter::new(&lowered, Mode::Typed).run("main", &args) {
        Ok(got) => got,
        Err(d) => return Some(d.render()),
    };
    // A rounding of the result, one before, and sums in f32; sums of rounded numbers may cancel.
    let of_max = if name == "bias_gelu_add" { 2f64.powi(-7) } else { 1e-5 };
    let allowed = Tolerance { rel: 2f64.powi(-7), abs: 1e-6, of_max, ..Tolerance::EXACT };
    let compared = got.iter().zip(&want).map(|(g, w)| compare(g, w, allowed).unwrap());
    compared.into_iter().find(|c| !c.passed()).map(|c| c.to_string())
}

#[test]
fn kernels_of_the_benchmark_are_right_at_odd_sizes() {
    let mut wrong = String::new();
    for (name, text) in cases() {
        // So many rows that sums of columns are split.
        let long = if name == "column_sum" { [4099, 520] } else { [3, 72] };
        for size in [[1, 1], [7, 13], [130, 264], [65, 129], [2, 1030], long] {
            if let Some(error) = failure(&name, &sized(&text, size[0], size[1]), size, "sm_90a") {
                writeln!(wrong, "{name} {size:?}: {error}").unwrap();
            }
        }
        for (arch, columns) in [("sm_80", 72), ("sm_90a", 35)] {
            if let Some(error) = failure(&name, &symbolic(&text, columns), [129, columns], arch) {
                writeln!(wrong, "{name} m x {columns} on {arch}: {error}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
