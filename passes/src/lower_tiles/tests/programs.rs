use super::machine::{Buffer, run};
use crate::lower_tiles::{Options, lower_tiles, place};
use rc_ir::{Body, Type};

/// Parses a kernel, checks that every phase verifies and survives printing and parsing, and gives its thread phase.
pub fn lower(text: &str, lanes: i64) -> Body {
    let tile = parse(text);
    let placed = place(&tile, options(&tile, lanes)).unwrap_or_else(|d| panic!("{}", d.render()));
    check(&placed);
    let thread = lower_tiles(&tile, options(&tile, lanes)).unwrap_or_else(|d| panic!("{}", d.render()));
    check(&thread);
    thread
}
fn options(kernel: &Body, lanes: i64) -> Options {
    let machine = kernel.op_ref(kernel.root()).str("target").unwrap_or("cpu");
    Options { lanes, ..Options::of(&rc_machine::Target::find(machine, None).expect("a machine that is known")) }
}
fn parse(text: &str) -> Body {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module("test.ir", text);
    let errors: Vec<String> = diagnostics.iter().map(|d| d.render()).collect();
    module.unwrap_or_else(|| panic!("{}\n{text}", errors.join("\n"))).bodies.swap_remove(0)
}
fn check(body: &Body) {
    let text = rc_ir::print::print_body(body, &rc_ir::print::PrintOptions::PRETTY);
    let problems: Vec<String> = rc_ir::verify_body(body).iter().map(|d| d.render()).collect();
    assert!(problems.is_empty(), "{}\n{text}", problems.join("\n"));
    let again = rc_ir::print::print_body(&parse(&text), &rc_ir::print::PrintOptions::PRETTY);
    assert_eq!(text, again);
}

/// Numbers in [-1, 1), from a seed.
pub fn random(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    (0..n).map(|_| next()).collect()
}
fn floats(shape: &[i64], values: &[f64]) -> Buffer {
    Buffer::floats(shape, Type::f32(), values)
}
fn zeros(shape: &[i64]) -> Buffer {
    floats(shape, &vec![0.0; shape.iter().product::<i64>() as usize])
}

fn add_program(target: &str, threads: i64, tile: i64, symbols: &str) -> String {
    format!(
        "kernel.func @add(%x: memref<s x f32>, %y: memref<s x f32>, %z: memref<s x f32>) attributes {{phase = tile, target = {target}, \
threads = {threads}, grid = [(s + {}) floordiv {tile}, 1, 1], rc.symbols = #rc.symbols<s = {symbols}>}} {{
  %p = kernel.program_id {{axis = 0}} : index
  %c = core.constant {{value = {tile} : index}} : index
  %i = core.mul %p, %c : index
  %a = kernel.load %x[%i] {{dims = [0]}} : !rc.tile<{tile}xf32>
  %b = kernel.load %y[%i] {{dims = [0]}} : !rc.tile<{tile}xf32>
  %s = core.add %a, %b : !rc.tile<{tile}xf32>
  kernel.store %s, %z[%i] {{dims = [0]}}
  kernel.return
}}
",
        tile - 1
    )
}

#[test]
fn adds_vectors_of_any_length() {
    for (target, threads, tile) in [("cpu", 1, 64), ("cuda", 32, 128), ("cuda", 128, 256), ("cuda", 64, 32)] {
        let thread = lower(&add_program(target, threads, tile, "[1, 1000, 1]"), 8);
        for n in [1, 7, 64, 255, 257] {
            let (x, y) = (random(n as u64, n as usize), random(7 + n as u64, n as usize));
            let out = run(&thread, vec![floats(&[n], &x), floats(&[n], &y), zeros(&[n])], &[("s", n)]);
            let want: Vec<f64> = x.iter().zip(&y).map(|(a, b)| f64::from((a + b) as f32)).collect();
            assert_eq!(out[2].to_floats(), want, "{target}, {threads} threads, {n} elements");
        }
    }
}

#[test]
fn masks_go_where_sizes_divide() {
    let count = |symbols: &str| {
        let thread = lower(&add_program("cpu", 1, 64, symbols), 8);
        let masked = |o: &&rc_ir::Op| {
            !thread.op_ref(**o).group("valid").is_empty() || !thread.op_ref(**o).group("pred").is_empty()
        };
        thread.walk().iter().filter(masked).count()
    };
    assert_eq!((count("[1, 1000, 1]"), count("[64, 1024, 64]")), (24, 0));
}

/// softmax over rows of n, in chunks: the loop form.
fn softmax_program(target: &str, threads: i64, chunk: i64, rows: i64) -> String {
    format!(
        "kernel.func @softmax(%x: memref<7 x n x f32>, %y: memref<7 x n x f32>) attributes {{phase = tile, target = {target}, \
threads = {threads}, grid = [{}, 1, 1], rc.symbols = #rc.symbols<n = [1, 100000, 1]>}} {{
  %p = kernel.program_id {{axis = 0}} : index
  %r = core.constant {{value = {rows} : index}} : index
  %i = core.mul %p, %r : index
  %zero = core.constant {{value = 0 : index}} : index
  %n = kernel.extent {{expr = [n]}} : index
  %c = core.constant {{value = {chunk} : index}} : index
  %low = core.constant {{value = dense<-1000.0> : !rc.tile<{rows}x{chunk}xf32>}} : !rc.tile<{rows}x{chunk}xf32>
  %m = kernel.for lower(%zero) upper(%n) step(%c) iter(%a = %low) ((%j: index) {{
    %v = kernel.load %x[%i, %j] {{dims = [0, 1], other = -1000.0}} : !rc.tile<{rows}x{chunk}xf32>
    %w = core.max %a, %v : !rc.tile<{rows}x{chunk}xf32>
    kernel.yield %w
  }}) : !rc.tile<{rows}x{chunk}xf32>
  %max = kernel.reduce %m {{dims = [1], kind = max}} : !rc.tile<{rows}x1xf32>
  %maxes = kernel.broadcast %max : !rc.tile<{rows}x{chunk}xf32>
  %none = core.constant {{value = dense<0.0> : !rc.tile<{rows}x{chunk}xf32>}} : !rc.tile<{rows}x{chunk}xf32>
  %s = kernel.for lower(%zero) upper(%n) step(%c) iter(%a = %none) ((%j: index) {{
    %v = kernel.load %x[%i, %j] {{dims = [0, 1], other = -1000.0}} : !rc.tile<{rows}x{chunk}xf32>
    %d = core.sub %v, %maxes : !rc.tile<{rows}x{chunk}xf32>
    %e = core.exp %d : !rc.tile<{rows}x{chunk}xf32>
    %w = core.add %a, %e : !rc.tile<{rows}x{chunk}xf32>
    kernel.yield %w
  }}) : !rc.tile<{rows}x{chunk}xf32>
  %sum = kernel.reduce %s {{dims = [1], kind = add}} : !rc.tile<{rows}x1xf32>
  %sums = kernel.broadcast %sum : !rc.tile<{rows}x{chunk}xf32>
  kernel.for lower(%zero) upper(%n) step(%c) ((%j: index) {{
    %v = kernel.load %x[%i, %j] {{dims = [0, 1]}} : !rc.tile<{rows}x{chunk}xf32>
    %d = core.sub %v, %maxes : !rc.tile<{rows}x{chunk}xf32>
    %e = core.exp %d : !rc.tile<{rows}x{chunk}xf32>
    %q = core.div %e, %sums : !rc.tile<{rows}x{chunk}xf32>
    kernel.store %q, %y[%i, %j] {{dims = [0, 1]}}
  }})
  kernel.return
}}
",
        (7 + rows - 1) / rows
    )
}

#[test]
fn softmax_rows_of_any_length() {
    for (target, threads, chunk, rows) in
        [("cpu", 1, 16, 1), ("cpu", 1, 32, 2), ("cuda", 32, 128, 1), ("cuda", 128, 256, 1), ("cuda", 128, 64, 4)]
    {
        let thread = lower(&softmax_program(target, threads, chunk, rows), 8);
        for n in [1, 5, 32, 100, 259] {
            let x: Vec<f64> = random(n as u64, 7 * n as usize).iter().map(|x| x * 10.0).collect();
            let out = run(&thread, vec![floats(&[7, n], &x), zeros(&[7, n])], &[("n", n)]);
            for (row, got) in x.chunks(n as usize).zip(out[1].to_floats().chunks(n as usize)) {
                let max = row.iter().cloned().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
                for (x, got) in row.iter().zip(got) {
                    let want = (x - max).exp() / sum;
                    // exp's argument is rounded to half an ulp of 20; sums of n terms.
                    assert!((got - want).abs() <= want * 1e-5, "{target} {threads} {chunk} {n}: {got} for {want}");
                }
            }
        }
    }
}
