//! Matrix units, mbarriers and tensor maps.

use super::*;

fn constants(values: &[i64]) -> String {
    values.iter().map(|n| format!("  %c{n} = core.constant {{value = {n} : index}} : index\n")).collect()
}

#[test]
fn a_warp_multiplies_fragments_from_shared_memory() {
    // a is [16, 16], b is given as [n = 8 + 8 unused rows, k = 16]; both by ldmatrix.
    let body = constants(&[0, 2, 4, 8, 16])
        + "  %t = kernel.thread_id : index
  %a = kernel.alloc : memref<16x16xbf16, 3>
  %b = kernel.alloc : memref<16x16xbf16, 3>
  %row = core.div %t, %c2 : index
  %half = core.rem %t, %c2 : index
  %col = core.mul %half, %c8 : index
  %av = kernel.read %x0[%row, %col] : vector<8xbf16>
  %bv = kernel.read %x1[%row, %col] : vector<8xbf16>
  kernel.write %av, %a[%row, %col]
  kernel.write %bv, %b[%row, %col]
  kernel.barrier
  %in8 = core.rem %t, %c8 : index
  %mat = core.div %t, %c8 : index
  %down = core.rem %mat, %c2 : index
  %right = core.div %mat, %c2 : index
  %d8 = core.mul %down, %c8 : index
  %r8 = core.mul %right, %c8 : index
  %ar = core.add %in8, %d8 : index
  %af = kernel.ldmatrix %a[%ar, %r8] : vector<8xbf16>
  %br = core.add %in8, %r8 : index
  %bf = kernel.ldmatrix %b[%br, %d8] : vector<8xbf16>
  %b0 = kernel.slice %bf {start = 0} : vector<4xbf16>
  %zero = core.constant {value = dense<0.0> : vector<4xf32>} : vector<4xf32>
  %acc = kernel.mma %af, %b0, %zero : vector<4xf32>
  %g = core.div %t, %c4 : index
  %q = core.rem %t, %c4 : index
  %n = core.mul %q, %c2 : index
  %lo = kernel.slice %acc {start = 0} : vector<2xf32>
  %hi = kernel.slice %acc {start = 2} : vector<2xf32>
  %g8 = core.add %g, %c8 : index
  kernel.write %lo, %y[%g, %n]
  kernel.write %hi, %y[%g8, %n]";
    let text =
        launched("phase = thread, grid = [1, 1, 1], threads = 32", &["16x16xbf16", "16x16xbf16"], "16x8xf32", &body);
    let (a, b) = (random(DType::Bf16, &[16, 16], 1), random(DType::Bf16, &[16, 16], 2));
    let (x, w) = (a.to_f64(), b.to_f64());
    let want: Vec<f64> = (0..128).map(|i| (0..16).map(|k| x[i / 8 * 16 + k] * w[i % 8 * 16 + k]).sum()).collect();
    assert_close(&launch(&text, &[a, b]).unwrap(), &want, 1e-6);
}

/// Writes a warpgroup's accumulators %r to y [64, 8].
const STORE: &str = "
  %warp = core.div %t, %c32 : index
  %lane = core.rem %t, %c32 : index
  %m = core.mul %warp, %c16 : index
  %g0 = core.div %lane, %c4 : index
  %g = core.add %m, %g0 : index
  %g8 = core.add %g, %c8 : index
  %q = core.rem %lane, %c4 : index
  %n = core.mul %q, %c2 : index
  %lo = kernel.slice %r {start = 0} : vector<2xf32>
  %hi = kernel.slice %r {start = 2} : vector<2xf32>
  kernel.write %lo, %y[%g, %n]
  kernel.write %hi, %y[%g8, %n]";

/// One box of each operand by TMA, then one wgmma of depth 16: y [64, 8] = a [64, 64][:, 16..32] b [8, 64][:, 16..32]^T.
fn wgmma(fence: &str, expect: i64, wait: &str) -> String {
    let body = constants(&[0, 2, 4, 8, 16, 32])
        + &format!(
            "  %t = kernel.thread_id : index
  %as = kernel.alloc {{align = 1024}} : memref<64x64xbf16, 3>
  %bs = kernel.alloc {{align = 1024}} : memref<8x64xbf16, 3>
  %bar = kernel.alloc : memref<1xi64, 3>
  %first = core.compare %t, %c0 {{kind = eq}} : i1
  kernel.if %first ({{
    kernel.mbarrier_init %bar[%c0] {{count = 1}}
    kernel.fence {{kind = mbarrier_init}}
  }})
  kernel.barrier
  kernel.if %first ({{
    kernel.mbarrier_expect %bar[%c0] {{bytes = {expect}}}
    kernel.tensor_load %as, %x0[%c0, %c0], %bar[%c0]
    kernel.tensor_load %bs, %x1[%c0, %c0], %bar[%c0]
  }})
  {wait}
  %zero = core.constant {{value = dense<0.0> : vector<4xf32>}} : vector<4xf32>
  kernel.wgmma_fence
  %d = kernel.wgmma %as, %bs, %zero {{n = 8, k_offset = 16}} : vector<4xf32>
  kernel.wgmma_commit
  {fence}"
        )
        + STORE;
    let maps = "tensor_maps = [#rc.tensor_map<tensor = memref<64x64xbf16>, box = [64, 64], swizzle = 128>, #rc.tensor_map<tensor = memref<8x64xbf16>, box = [8, 64], swizzle = 128>]";
    let attributes = format!("phase = thread, grid = [1, 1, 1], threads = 128, {maps}");
    let text = launched(&attributes, &["64x64xbf16", "8x64xbf16"], "64x8xf32", &body);
    text.replacen("%x0: memref<64x64xbf16>", "%x0: !rc.tensor_map", 1).replacen(
        "%x1: memref<8x64xbf16>",
        "%x1: !rc.tensor_map",
        1,
    )
}

const WAIT: &str = "kernel.mbarrier_wait %bar[%c0] parity(%c0)";
const DONE: &str = "%r = kernel.wgmma_wait %d {pending = 0} : vector<4xf32>";

/// y [64, 8] = (0 + 1 + 2 + 3) * 16: the left operand is in registers that each step writes; `pending` wgmmas may run as the next step begins.
fn wgmma_of_registers(pending: usize) -> String {
    let body = constants(&[0, 1, 2, 4, 8, 16, 32])
        + &format!(
            "  %t = kernel.thread_id : index
  %b = kernel.alloc {{align = 1024}} : memref<8x64xbf16, 3>
  %one = core.constant {{value = dense<1.0> : vector<4xbf16>}} : vector<4xbf16>
  %row = core.div %t, %c16 : index
  %col = core.rem %t, %c16 : index
  %col4 = core.mul %col, %c4 : index
  kernel.write %one, %b[%row, %col4]
  kernel.fence {{kind = async_shared}}
  kernel.barrier
  %none = core.constant {{value = dense<0.0> : vector<4xf32>}} : vector<4xf32>
  %sums = kernel.for lower(%c0) upper(%c4) step(%c1) iter(%acc = %none) ((%i: index) {{
    %x = core.convert %i : bf16
    %a = kernel.splat %x : vector<8xbf16>
    kernel.wgmma_fence
    %d = kernel.wgmma %a, %b, %acc {{n = 8}} : vector<4xf32>
    kernel.wgmma_commit
    %w = kernel.wgmma_wait %d {{pending = {pending}}} : vector<4xf32>
    kernel.yield %w
  }}) : vector<4xf32>
  %r = kernel.wgmma_wait %sums {{pending = 0}} : vector<4xf32>"
        )
        + STORE;
    launched("phase = thread, grid = [1, 1, 1], threads = 128", &[], "64x8xf32", &body)
}

#[test]
fn a_wgmma_reads_its_registers_until_a_wait() {
    assert_close(&launch(&wgmma_of_registers(0), &[]).unwrap(), &[96.0; 512], 1e-6);
    let error = launch(&wgmma_of_registers(1), &[]).unwrap_err();
    assert!(error.contains("computed anew"), "{error}");
}

#[test]
fn tensor_maps_feed_wgmma() {
    let (a, b) = (random(DType::Bf16, &[64, 64], 1), random(DType::Bf16, &[8, 64], 2));
    let (x, w) = (a.to_f64(), b.to_f64());
    let want: Vec<f64> = (0..512).map(|i| (16..32).map(|k| x[i / 8 * 64 + k] * w[i % 8 * 64 + k]).sum()).collect();
    let args = [a, b];
    let bytes = 64 * 64 * 2 + 8 * 64 * 2;
    assert_close(&launch(&wgmma(DONE, bytes, WAIT), &args).unwrap(), &want, 1e-6);
    let error = launch(&wgmma(DONE, bytes, ""), &args).unwrap_err();
    assert!(error.contains("before the copy to it is waited for"), "{error}");
    let error = launch(&wgmma(DONE, bytes + 16, WAIT), &args).unwrap_err();
    assert!(error.contains("deadlock"), "{error}");
    let early = "%r = kernel.wgmma_wait %d {pending = 1} : vector<4xf32>";
    let error = launch(&wgmma(early, bytes, WAIT), &args).unwrap_err();
    assert!(error.contains("before kernel.wgmma_wait"), "{error}");
}
