//! A result against the float64 reference, on sampled elements.

use crate::case::Problem;
use rc_runtime::{DType, Tensor};

/// Elements that are compared with the reference; each takes a whole row's work.
const SAMPLES: usize = 2000;

/// The byte that outputs are filled with first: NaN in every float type.
pub const POISON: u8 = 0xff;

/// The largest error as a part of what is allowed, or what is wrong.
pub fn check(problem: &Problem, output: &Tensor) -> Result<f64, String> {
    let count = output.len();
    let mut values = vec![0.0; count.min(1 << 16)];
    for start in (0..count).step_by(1 << 16) {
        let piece = (count - start).min(1 << 16);
        output.read_f64(start, &mut values[..piece]);
        if let Some(at) = values[..piece].iter().position(|x| !x.is_finite()) {
            return Err(format!("element {} is {}: not written, or wrong", start + at, values[at]));
        }
    }
    // All of a small result, else the corners and places spread by a stride that meets every row and column.
    let step = if count <= SAMPLES { 1 } else { (count / SAMPLES) | 1 };
    let mut worst: f64 = 0.0;
    for index in (0..count).step_by(step).chain([count - 1]) {
        let (expected, got) = (problem.expected(index), output.get_f64(index));
        let allowed = expected.error + expected.value.abs() * roundoff(problem.output_dtype);
        let error = (got - expected.value).abs();
        if error > allowed {
            return Err(format!(
                "element {index} is {got}, not {}: off by {error:.3e} of {allowed:.3e}",
                expected.value
            ));
        }
        worst = worst.max(if allowed > 0.0 { error / allowed } else { 0.0 });
    }
    Ok(worst)
}

/// Half a unit in the last place, relative.
fn roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// The median of times in microseconds.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// `4096x4096x4096   231.0 µs   595.1 TFLOP/s (60% of 989)   error 0.21 of what is allowed`.
pub fn line(problem: &Problem, micros: f64, peaks: Option<(f64, f64)>, worst: f64) -> String {
    let size: Vec<String> = problem.symbols.iter().map(|s| s.1.to_string()).collect();
    let (tflops, gigabytes) = (problem.flops / micros / 1e6, problem.bytes / micros / 1e3);
    let share = |have: f64, peak: fn((f64, f64)) -> f64| {
        peaks.map_or(String::new(), |peaks| format!(" ({:.0}% of {:.0})", 100.0 * have / peak(peaks), peak(peaks)))
    };
    format!(
        "{:20} {micros:10.1} µs {tflops:9.3} TFLOP/s{} {gigabytes:8.1} GB/s{}   error {worst:.2} of what is allowed",
        size.join("x"),
        share(tflops, |p| p.0),
        share(gigabytes, |p| p.1),
    )
}
