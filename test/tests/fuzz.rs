//! Random modules through every phase: see `rc_test::fuzz`.

use rc_test::fuzz::{Outcome, Seeds, TARGETS, build, check};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const CASES: u64 = 240;

#[test]
fn every_phase_computes_the_same() {
    // The same modules each time, so that a run says something of the change at hand; `RC_FUZZ_SEED` asks for others.
    let seed = std::env::var("RC_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= CASES || !found.lock().unwrap().is_empty() {
                return;
            }
            let module = build(&Seeds::of(seed, case));
            for target in TARGETS {
                if let Outcome::Failed(finding) = check(&module, target) {
                    found.lock().unwrap().push((case, finding, module.text.clone()));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some((case, finding, text)) = found.into_inner().unwrap().first() {
        panic!(
            "after {} for {} {}: {}\n{text}\nRun: cargo run -p rc-test --bin rc-fuzz -- --seed {seed} --first {case} --cases 1",
            finding.after, finding.target.machine, finding.target.arch, finding.what
        );
    }
}

#[test]
fn every_kind_of_step_is_made() {
    let all: String = (0..2000).map(|case| build(&Seeds::of(0, case)).text).collect();
    for op in [
        "core.exp ",
        "core.fma",
        "core.clamp",
        "core.select",
        "core.convert",
        "core.shl",
        "core.broadcast",
        "core.transpose",
        "core.reshape",
        "core.slice",
        "core.pad",
        "core.concat",
        "core.window",
        "core.gather",
        "core.reverse",
        "core.iota",
        "core.bitcast",
        "core.reduce",
        "core.scan",
        "core.dot",
        "core.scatter",
        "core.attention",
        "core.if",
        "core.for",
        "core.call",
        "core.while",
        "core.not",
        "core.is_nan",
        "core.atan2",
        "core.erfinv",
        "core.acosh",
        "mask(",
        "ui16",
        "ui32",
        "ui64",
        "tensor.relu",
        "tensor.gelu",
        "tensor.mean",
        "tensor.var",
        "tensor.logsumexp",
        "tensor.cumsum",
        "tensor.roll",
        "tensor.tril",
        "tensor.flip",
        "tensor.topk",
        "tensor.max_pool",
        "tensor.cross_entropy",
        "tensor.linear",
        "tensor.conv",
        "tensor.avg_pool",
        "tensor.softmax",
        "tensor.log_softmax",
        "tensor.layer_norm",
        "tensor.rms_norm",
        "tensor.sort",
        "tensor.rand_uniform",
    ] {
        assert!(all.contains(op), "no module has {op}");
    }
}

#[test]
fn long_chains_of_numbers_are_lowered() {
    rc_dialects::register();
    rc_passes::register();
    for length in [20, 60_000] {
        let chain: String = (0..length).map(|i| format!("  %v{} = core.add %v{i}, %v{i} : index\n", i + 1)).collect();
        let text = format!(
            "func.func @main(%x: tensor<s x f32>) -> tensor<s x f32> attributes {{rc.symbols = #rc.symbols<s = [1, 64, 1]>}} {{
  %v0 = core.extent {{expr = [s]}} : index
{chain}  %c = core.convert %v{length} : f32
  %b = core.broadcast %c {{dims = []}} : tensor<s x f32>
  %r = core.add %b, %x : tensor<s x f32>
  func.return %r
}}
"
        );
        let mut module = rc_parser::parse_module("chain.ir", &text).0.expect("a module");
        let passes = rc_parser::pipeline::parse_pipeline("test", "fuse,lower-loops").unwrap();
        let report = rc_ir::pass::PassManager::new(passes).run(&mut module);
        assert!(report.succeeded(), "{}", report.errors[0].render());
    }
}
