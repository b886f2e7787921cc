//! When results are the same.

use rc_passes::rules::Assuming;
use rc_runtime::Tensor;
use rc_runtime::interp::Mode;
use std::fmt;

/// A float64 sum in another order is off by a few units of its rounding.
const FLOAT64: f64 = 1e-11;
/// Roundings to a result's type by which the sides may differ: sums are rounded once each.
const UNITS: f64 = 4.0;

/// Where two sides differ.
#[derive(Clone, Debug)]
pub struct Difference {
    mode: Mode,
    what: String,
}

impl Difference {
    pub fn fails(mode: Mode, why: &str) -> Difference {
        Difference { mode, what: format!("what replaces it fails: {why}") }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.mode == Mode::Float64 { "in float64" } else { "rounded as the types say" };
        write!(f, "{} ({mode})", self.what)
    }
}

/// The first element of the results that is not the same on both sides.
pub fn difference(expected: &[Tensor], actual: &[Tensor], mode: Mode, assuming: Assuming) -> Option<Difference> {
    expected.iter().zip(actual).enumerate().find_map(|(i, (before, after))| {
        let what = if before.shape() != after.shape() {
            Some(format!("result {i} has the shape {:?} before and {:?} after", before.shape(), after.shape()))
        } else if before.dtype().is_float() {
            floats(i, before, after, mode, assuming)
        } else {
            let (a, b) = (before.to_i64(), after.to_i64());
            let at = (0..a.len()).find(|&at| a[at] != b[at])?;
            Some(element(i, at, before, &a[at], &b[at]))
        };
        what.map(|what| Difference { mode, what })
    })
}

fn floats(i: usize, before: &Tensor, after: &Tensor, mode: Mode, assuming: Assuming) -> Option<String> {
    let (a, b) = (before.to_f64(), after.to_f64());
    let largest = a.iter().chain(&b).filter(|x| x.is_finite()).fold(0.0f64, |most, x| most.max(x.abs()));
    let error = if mode == Mode::Float64 { FLOAT64 } else { UNITS * before.dtype().epsilon() };
    let same = |x: f64, y: f64| {
        let zeros = x == 0.0 && y == 0.0;
        if x.is_nan() || y.is_nan() {
            // What is assumed to be finite is not asked about where it is not.
            (x.is_nan() && y.is_nan()) || assuming.finite
        } else if zeros {
            assuming.unsigned_zeros || x.is_sign_negative() == y.is_sign_negative()
        } else if x.is_infinite() || y.is_infinite() {
            x == y || assuming.finite
        } else {
            (x - y).abs() <= error * largest
        }
    };
    let at = (0..a.len()).find(|&at| !same(a[at], b[at]))?;
    Some(element(i, at, before, &a[at], &b[at]))
}

fn element(i: usize, at: usize, of: &Tensor, before: &dyn fmt::Debug, after: &dyn fmt::Debug) -> String {
    let mut rest = at;
    let mut index: Vec<usize> = (of.shape().iter().rev())
        .map(|&n| {
            let here = rest % n.max(1);
            rest /= n.max(1);
            here
        })
        .collect();
    index.reverse();
    let result = if i == 0 { String::new() } else { format!(" of result {i}") };
    format!("element {index:?}{result} is {before:?} before and {after:?} after")
}
