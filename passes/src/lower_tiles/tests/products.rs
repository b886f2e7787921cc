//! Matrix products on each unit, and tiles that are transposed.

use super::machine::{Buffer, run};
use super::programs::{lower, random};
use crate::lower_tiles::{Options, lower_tiles};
use rc_dialects::op;
use rc_ir::Type;

struct Product {
    target: &'static str,
    threads: i64,
    unit: &'static str,
    elem: &'static str,
    /// Rows, columns and depth of a program's tile.
    tile: [i64; 3],
    b_t: bool,
}

/// y = x w, or x w^T, of [m, k] and [k, n]: blocks of rows by blocks of columns.
fn product_program(p: &Product, [m, n, k]: [i64; 3]) -> String {
    let Product { target, threads, unit, elem, tile: [bm, bn, bk], b_t } = *p;
    let w = if b_t { format!("{n} x {k}") } else { format!("{k} x {n}") };
    let (b_tile, b_at) = if b_t { (format!("{bn}x{bk}"), "%j, %l") } else { (format!("{bk}x{bn}"), "%l, %j") };
    let (gm, gn) = ((m + bm - 1) / bm, (n + bn - 1) / bn);
    format!(
        "kernel.func @product(%x: memref<{m} x {k} x {elem}>, %w: memref<{w} x {elem}>, %bias: memref<{n} x f32>, %y: memref<{m} x {n} x f32>) \
attributes {{phase = tile, target = {target}, threads = {threads}, grid = [{gn}, {gm}, 1]}} {{
  %p = kernel.program_id {{axis = 0}} : index
  %q = kernel.program_id {{axis = 1}} : index
  %bn = core.constant {{value = {bn} : index}} : index
  %bm = core.constant {{value = {bm} : index}} : index
  %j = core.mul %p, %bn : index
  %i = core.mul %q, %bm : index
  %zero = core.constant {{value = 0 : index}} : index
  %k = core.constant {{value = {k} : index}} : index
  %bk = core.constant {{value = {bk} : index}} : index
  %none = core.constant {{value = dense<0.0> : !rc.tile<{bm}x{bn}xf32>}} : !rc.tile<{bm}x{bn}xf32>
  %s = kernel.for lower(%zero) upper(%k) step(%bk) iter(%acc = %none) ((%l: index) {{
    %a = kernel.load %x[%i, %l] {{dims = [0, 1]}} : !rc.tile<{bm}x{bk}x{elem}>
    %b = kernel.load %w[{b_at}] {{dims = [0, 1]}} : !rc.tile<{b_tile}x{elem}>
    %d = kernel.dot %a, %b, %acc {{unit = {unit}, b_t = {b_t}}} : !rc.tile<{bm}x{bn}xf32>
    kernel.yield %d
  }}) : !rc.tile<{bm}x{bn}xf32>
  %c = kernel.load %bias[%j] {{dims = [-1, 0]}} : !rc.tile<1x{bn}xf32>
  %cs = kernel.broadcast %c : !rc.tile<{bm}x{bn}xf32>
  %o = core.add %s, %cs : !rc.tile<{bm}x{bn}xf32>
  kernel.store %o, %y[%i, %j] {{dims = [0, 1]}}
  kernel.return
}}
"
    )
}

fn check(p: &Product, [m, n, k]: [i64; 3]) {
    let thread = lower(&product_program(p, [m, n, k]), 8);
    let elem = if p.elem == "bf16" { Type::bf16() } else { Type::f32() };
    let x = Buffer::floats(&[m, k], elem, &random(1, (m * k) as usize));
    let w = Buffer::floats(&if p.b_t { [n, k] } else { [k, n] }, elem, &random(2, (n * k) as usize));
    let bias = Buffer::floats(&[n], Type::f32(), &random(3, n as usize));
    let (xs, ws, bs) = (x.to_floats(), w.to_floats(), bias.to_floats());
    let y = Buffer::floats(&[m, n], Type::f32(), &vec![0.0; (m * n) as usize]);
    let out = run(&thread, vec![x, w, bias, y], &[])[3].to_floats();
    for i in 0..m {
        for j in 0..n {
            let factor = |l: i64| if p.b_t { ws[(j * k + l) as usize] } else { ws[(l * n + j) as usize] };
            let want: f64 = bs[j as usize] + (0..k).map(|l| xs[(i * k + l) as usize] * factor(l)).sum::<f64>();
            let got = out[(i * n + j) as usize];
            // Each of k + 1 additions of terms below 1 rounds by at most half an ulp of the partial sum.
            let bound = (k + 1) as f64 * (k as f64) * f64::from(f32::EPSILON);
            assert!(
                (got - want).abs() <= bound,
                "{} {} {:?} of {m} {n} {k} at {i}, {j}: {got} for {want}",
                p.target,
                p.unit,
                p.tile
            );
        }
    }
}

#[test]
fn cpu_products() {
    for b_t in [false, true] {
        for tile in [[6, 16, 1], [4, 24, 4], [1, 8, 8], [3, 1, 2]] {
            let p = Product { target: "cpu", threads: 1, unit: "fma", elem: "f32", tile, b_t };
            check(&p, [12, 48, 16]);
            check(&p, [7, 19, 13]);
        }
        check(&Product { target: "cpu", threads: 1, unit: "fma", elem: "bf16", tile: [4, 16, 2], b_t }, [5, 17, 6]);
    }
}

#[test]
fn gpu_products_in_exact_arithmetic() {
    for b_t in [false, true] {
        let p = Product { target: "cuda", threads: 64, unit: "fma", elem: "f32", tile: [32, 64, 16], b_t };
        check(&p, [64, 64, 32]);
        check(&p, [33, 70, 17]);
        let p = Product { target: "cuda", threads: 128, unit: "fma", elem: "f32", tile: [64, 64, 32], b_t };
        check(&p, [64, 128, 64]);
    }
}

#[test]
fn gpu_products_on_matrix_units() {
    for b_t in [false, true] {
        for (threads, tile) in [(32, [16, 16, 16]), (128, [64, 64, 32]), (128, [32, 128, 64])] {
            let p = Product { target: "cuda", threads, unit: "mma", elem: "bf16", tile, b_t };
            check(&p, [64, 128, 64]);
            check(&p, [40, 72, 24]);
            check(&p, [17, 33, 5]);
        }
    }
}

/// Whole tiles are copied asynchronously, 16 bytes at a time and without masks; others with masks; rows of odd lengths through
/// registers.
#[test]
fn loads_of_products_are_pipelined() {
    let count = |size: [i64; 3], masked: bool| {
        let p = Product { target: "cuda", threads: 128, unit: "mma", elem: "bf16", tile: [64, 64, 32], b_t: true };
        let thread = lower(&product_program(&p, size), 8);
        let copies = |o: &&rc_ir::Op| {
            let op = thread.op_ref(**o);
            op.is(op::kernel::ASYNC_COPY) && op.int("bytes") == Some(16) && op.group("valid").is_empty() != masked
        };
        thread.walk().iter().filter(copies).count()
    };
    // Two steps ahead of the loop and one in it, two tiles, 256 pieces of each among 128 threads.
    assert_eq!((count([64, 128, 96], false), count([64, 128, 96], true)), (12, 0));
    // The first half of a tile's rows ends before the memory does.
    assert_eq!((count([63, 120, 96], false), count([63, 120, 96], true)), (6, 6));
    assert_eq!((count([64, 128, 5], false), count([64, 128, 5], true)), (0, 0));
}

/// Scores, their exponentials, and the product of these: the accumulators of one product are the next one's operand.
#[test]
fn a_products_result_multiplies_again() {
    let text = "kernel.func @twice(%q: memref<32x16xbf16>, %k: memref<32x16xbf16>, %v: memref<32x16xbf16>, %y: memref<32x16xf32>) \
attributes {phase = tile, target = cuda, threads = 64, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %q[%zero, %zero] {dims = [0, 1]} : !rc.tile<32x16xbf16>
  %b = kernel.load %k[%zero, %zero] {dims = [0, 1]} : !rc.tile<32x16xbf16>
  %c = kernel.load %v[%zero, %zero] {dims = [0, 1]} : !rc.tile<32x16xbf16>
  %none = core.constant {value = dense<0.0> : !rc.tile<32x32xf32>} : !rc.tile<32x32xf32>
  %s = kernel.dot %a, %b, %none {unit = mma, b_t = true} : !rc.tile<32x32xf32>
  %m = kernel.reduce %s {dims = [1], kind = max} : !rc.tile<32x1xf32>
  %ms = kernel.broadcast %m : !rc.tile<32x32xf32>
  %d = core.sub %s, %ms : !rc.tile<32x32xf32>
  %p = core.convert %d : !rc.tile<32x32xbf16>
  %zeros = core.constant {value = dense<0.0> : !rc.tile<32x16xf32>} : !rc.tile<32x16xf32>
  %o = kernel.dot %p, %c, %zeros {unit = mma} : !rc.tile<32x16xf32>
  kernel.store %o, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
";
    let thread = lower(text, 8);
    let bf16 = |seed| Buffer::floats(&[32, 16], Type::bf16(), &random(seed, 512));
    let (q, k, v) = (bf16(1), bf16(2), bf16(3));
    let (qs, ks, vs) = (q.to_floats(), k.to_floats(), v.to_floats());
    let out = run(&thread, vec![q, k, v, Buffer::floats(&[32, 16], Type::f32(), &[0.0; 512])], &[])[3].to_floats();
    for i in 0..32 {
        let scores: Vec<f64> = (0..32).map(|j| (0..16).map(|l| qs[i * 16 + l] * ks[j * 16 + l]).sum()).collect();
        let max = scores.iter().cloned().fold(f64::MIN, f64::max);
        for e in 0..16 {
            let want: f64 = (0..32).map(|j| (scores[j] - max) * vs[j * 16 + e]).sum();
            // 32 terms below 32, of which one factor is rounded to bf16.
            assert!(
                (out[i * 16 + e] - want).abs() < 32.0 * 32.0 / 256.0 * 0.25,
                "{i} {e}: {} for {want}",
                out[i * 16 + e]
            );
        }
    }
}

#[test]
fn transposes() {
    let program = |target: &str, threads: i64, by_load: bool| {
        let body = if by_load {
            "%t = kernel.load %x[%j, %i] {dims = [1, 0]} : !rc.tile<32x16xf32>"
        } else {
            "%a = kernel.load %x[%j, %i] {dims = [0, 1]} : !rc.tile<16x32xf32>
  %t = kernel.transpose %a {perm = [1, 0]} : !rc.tile<32x16xf32>"
        };
        format!(
            "kernel.func @transpose(%x: memref<37 x 50 x f32>, %y: memref<50 x 37 x f32>) attributes {{phase = tile, target = {target}, \
threads = {threads}, grid = [3, 2, 1]}} {{
  %p = kernel.program_id {{axis = 0}} : index
  %q = kernel.program_id {{axis = 1}} : index
  %c = core.constant {{value = 16 : index}} : index
  %r = core.constant {{value = 32 : index}} : index
  %j = core.mul %p, %c : index
  %i = core.mul %q, %r : index
  {body}
  kernel.store %t, %y[%i, %j] {{dims = [0, 1]}}
  kernel.return
}}
"
        )
    };
    for (target, threads) in [("cpu", 1), ("cuda", 64)] {
        for by_load in [false, true] {
            let thread = lower(&program(target, threads, by_load), 8);
            let x = random(5, 37 * 50);
            let out = run(
                &thread,
                vec![Buffer::floats(&[37, 50], Type::f32(), &x), Buffer::floats(&[50, 37], Type::f32(), &[0.0; 1850])],
                &[],
            );
            let got = out[1].to_floats();
            assert!((0..50).all(|i| (0..37).all(|j| got[i * 37 + j] == x[j * 50 + i])), "{target}, by load: {by_load}");
        }
    }
}

#[test]
fn tiles_that_are_too_large_are_refused() {
    let p = Product { target: "cpu", threads: 1, unit: "fma", elem: "f32", tile: [64, 64, 1], b_t: false };
    let (module, _) = rc_parser::parse_module("test.ir", product_program(&p, [64, 64, 64]));
    let body = module.expect("parses").bodies.swap_remove(0);
    let error = lower_tiles(&body, Options { lanes: 8, ..Options::of(&rc_machine::Target::default()) })
        .expect_err("512 registers");
    assert!(
        error.message.starts_with("not supported: ") && error.message.contains("512 registers"),
        "{}",
        error.message
    );
    assert!(error.help.is_some());
}
