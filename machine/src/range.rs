//! Figures that no machine has, and constants that no cost model can take.

use crate::matrix::Unit;
use crate::target::{Machine, Target};
use toml::{Table, Value};

/// Constants that a model divides by.
const RATES: &[&str] = &[
    "rate",
    "cache_rate",
    "combine_rate",
    "near_rate",
    "far_rate",
    "slow_tflops",
    "fast_tflops",
    "exact_tflops",
    "parts_tflops",
    "words_tflops",
    "reuse",
    "times",
];

/// Counts and sizes that may not be zero.
const COUNTS: &[&str] = &[
    "across",
    "at_once",
    "block",
    "chunk",
    "colliding_rows",
    "columns",
    "depth",
    "digits",
    "each",
    "fma_stages",
    "held",
    "in_flight",
    "load_bytes",
    "loads",
    "long",
    "long_vectors",
    "longest",
    "max_stages",
    "memory_bytes",
    "mma_stages",
    "most",
    "most_registers",
    "page_bytes",
    "part",
    "part_steps",
    "pieces",
    "registers",
    "row_bytes",
    "rows",
    "run",
    "sector_bytes",
    "shortest",
    "square",
    "stage_bytes",
    "threads",
    "unroll",
    "updates",
    "vectors",
    "whole",
    "wide",
];

/// Sizes of a GPU's tiles, and what divides them.
const POWERS: &[&str] = &[
    "across",
    "at_once",
    "block",
    "chunk",
    "each",
    "load_bytes",
    "longest",
    "row_bytes",
    "run",
    "sector_bytes",
    "square",
    "threads",
    "updates",
    "whole",
    "wide",
];

/// Parts of one.
const PARTS: &[&str] = &["whole_waves", "overlap", "last", "beside", "beyond_last"];

/// Figures with their bounds, of the machine itself.
fn figures(t: &Target) -> Vec<(&'static str, f64, f64, f64)> {
    let mut out = vec![
        ("cores", t.cores as f64, 1.0, 1e6),
        ("threads", t.threads as f64, 1.0, 65536.0),
        ("shared_bytes", t.shared_bytes as f64, 1024.0, 1e9),
        ("cache_bytes", t.cache_bytes as f64, 1024.0, 1e12),
        ("vector_bits", t.vector_bits as f64, 64.0, 2048.0),
        ("bandwidth", t.bandwidth, 0.01, 1e7),
        ("core_bandwidth", t.core_bandwidth, 0.0, 1e5),
        ("cache_bandwidth", t.cache_bandwidth, 0.01, 1e8),
        ("flops_f32", t.flops_f32, 1e-6, 1e7),
        ("flops_mma", t.flops_mma, 1e-6, 1e7),
        ("last_bytes", t.last_bytes as f64, 0.0, 1e12),
        ("core_shared_bytes", t.core_shared_bytes as f64, 0.0, 1e9),
        ("merged_kernels", t.merged_kernels as f64, 0.0, 1024.0),
        ("launch_us", t.launch_us, 0.0, 1e6),
    ];
    if t.machine == Machine::Cpu {
        out.push(("registers", t.registers as f64, 8.0, 256.0));
    } else {
        out.extend([
            ("registers", t.registers as f64, 16384.0, 1e8),
            ("block_threads", t.block_threads as f64, 32.0, 1024.0),
            ("thread_registers", t.thread_registers as f64, 16.0, 255.0),
            ("parameter_bytes", t.parameter_bytes as f64, 128.0, 32764.0),
            ("ptx", f64::from(t.ptx), 70.0, 99.0),
        ]);
    }
    out
}

impl Target {
    /// What no machine has, or what the figures contradict: the path of the figure, and why.
    pub(crate) fn check(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        for (path, value, low, high) in figures(self) {
            within(&mut wrong, path, value, low, high);
        }
        let table = Table::try_from(self).expect("a description is a table");
        for model in ["fusion", "cpu", "gpu"] {
            if let Some(constants) = table.get(model).and_then(Value::as_table) {
                check_constants(&mut wrong, model, constants);
            }
        }
        let mut is_wrong = |path: &str, why: String| wrong.push((path.to_string(), why));
        match self.machine {
            Machine::Cuda if crate::target::capability(&self.arch).is_none_or(|n| n < 80) => {
                is_wrong("arch", format!("'arch' is {:?}, no CUDA architecture from sm_80 on", self.arch));
            }
            Machine::Cpu if self.triple.is_empty() => {
                is_wrong("machine", "a CPU needs its 'triple': x86_64-unknown-linux-gnu".into());
            }
            _ => {}
        }
        if !(self.vector_bits as u64).is_power_of_two() {
            is_wrong("vector_bits", format!("'vector_bits' is {}, and no power of two", self.vector_bits));
        }
        let is_feature = |f: &&String| f.len() > 1 && f.starts_with(['+', '-']) && !f.contains([',', '\0']);
        if let Some(feature) = self.features.iter().find(|f| !is_feature(f)) {
            is_wrong(
                "features",
                format!("'features' has {feature:?}: a feature is \"+avx2\", or \"-avx2\" without it"),
            );
        }
        if self.machine == Machine::Cuda && self.gpu.is_none() {
            is_wrong("machine", "[gpu] is missing: start from another description, base = \"cuda\"".into());
        }
        if self.machine == Machine::Cpu && self.cpu.is_none() {
            is_wrong("machine", "[cpu] is missing: start from another description, base = \"x86-64\"".into());
        }
        if let Some(why) = self.matrix.iter().find_map(|m| m.misfit(self.vector_bits)) {
            is_wrong("matrix", why);
        }
        let multiplies = match self.machine {
            Machine::Cpu => Unit::Fma,
            Machine::Cuda => Unit::Mma,
        };
        if !self.has_unit(multiplies) {
            is_wrong(
                "matrix",
                format!(
                    "'matrix' has no instruction with unit = {:?}, which every such machine has",
                    multiplies.word()
                ),
            );
        }
        wrong
    }
}

fn within(wrong: &mut Vec<(String, String)>, path: &str, value: f64, low: f64, high: f64) {
    if !(low..=high).contains(&value) {
        wrong.push((path.to_string(), format!("'{path}' is {value}, and must be from {low} to {high}")));
    }
}

/// The constants of a model and of those inside it.
fn check_constants(wrong: &mut Vec<(String, String)>, model: &str, constants: &Table) {
    for (key, value) in constants {
        let path = format!("{model}.{key}");
        let figures = match value {
            Value::Table(inner) => {
                check_constants(wrong, &path, inner);
                continue;
            }
            Value::Array(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        };
        let is = |keys: &[&str]| keys.contains(&key.as_str());
        let low = if is(COUNTS) {
            1.0
        } else if is(RATES) {
            1e-3
        } else {
            0.0
        };
        let high = match key.as_str() {
            "digits" => 16.0,
            _ if is(PARTS) => 1.0,
            _ => 1e9,
        };
        for figure in figures {
            let number = figure.as_float().or(figure.as_integer().map(|n| n as f64)).unwrap_or(f64::NAN);
            within(wrong, &path, number, low, high);
            let power = figure.as_integer().is_none_or(|n| n > 0 && n & (n - 1) == 0);
            if model.starts_with("gpu") && is(POWERS) && !power {
                wrong.push((path.clone(), format!("'{path}' is {number}, and no power of two")));
            }
        }
    }
}
