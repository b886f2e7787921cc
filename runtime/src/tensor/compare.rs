//! Errors against a reference, usually the float64 interpreter's.

use std::fmt;

use rayon::prelude::*;

use super::Tensor;
use crate::{Error, Result};

/// How far an element may be from its reference `r`: `abs + rel·|r| + of_max·max|r|`, the largest over finite elements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Part relative to the element's own reference.
    pub rel: f64,
    /// Part relative to the largest finite magnitude in the reference.
    pub of_max: f64,
    /// Whether NaN passes where the reference is NaN. Otherwise NaN never passes.
    pub equal_nan: bool,
}

impl Tolerance {
    /// Nothing but equality passes.
    pub const EXACT: Tolerance = Tolerance { abs: 0.0, rel: 0.0, of_max: 0.0, equal_nan: false };

    /// An absolute tolerance.
    pub fn abs(abs: f64) -> Tolerance {
        Tolerance { abs, ..Tolerance::EXACT }
    }

    /// A tolerance relative to each element's reference.
    pub fn rel(rel: f64) -> Tolerance {
        Tolerance { rel, ..Tolerance::EXACT }
    }

    /// A tolerance relative to the reference's largest finite magnitude.
    pub fn of_max(of_max: f64) -> Tolerance {
        Tolerance { of_max, ..Tolerance::EXACT }
    }

    /// The same, with NaN equal to NaN.
    pub fn equal_nan(self) -> Tolerance {
        Tolerance { equal_nan: true, ..self }
    }
}

/// An element that did not pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Its index in each dimension.
    pub index: Vec<usize>,
    /// The value found.
    pub actual: f64,
    /// The reference.
    pub expected: f64,
}

/// What [`compare`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of elements.
    pub elements: usize,
    /// Largest absolute error; infinite where a NaN or an infinity is on one side only.
    pub max_abs: f64,
    /// Index of the largest error in each dimension; `None` where every element is exact.
    pub worst: Option<Vec<usize>>,
    /// Largest finite magnitude in the reference.
    pub scale: f64,
    /// Number of elements outside the tolerance.
    pub failures: usize,
    /// The first of them.
    pub first_failure: Option<Failure>,
}

impl Comparison {
    /// Whether every element passed.
    pub fn passed(&self) -> bool {
        self.failures == 0
    }

    /// The largest error as a fraction of the reference's largest magnitude: 0 where exact, infinite where the
    /// reference is all zeros and the error is not.
    pub fn of_max(&self) -> f64 {
        if self.max_abs == 0.0 { 0.0 } else { self.max_abs / self.scale }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "largest error {:.3e}", self.max_abs)?;
        if let Some(worst) = &self.worst {
            write!(f, " at {worst:?} ({:.3e} of the largest magnitude {:.3e})", self.of_max(), self.scale)?;
        }
        if let Some(first) = &self.first_failure {
            write!(f, "; {} of {} elements outside the tolerance", self.failures, self.elements)?;
            write!(f, ", first {:?}: expected {:?}, found {:?}", first.index, first.expected, first.actual)?;
        }
        Ok(())
    }
}

/// Compares `actual` with `reference`, element by element in f64 (i64 where both are integers). An infinity passes
/// only against the same infinity, and NaN only where the tolerance says so. Fails where the shapes differ.
pub fn compare(actual: &Tensor, reference: &Tensor, tolerance: Tolerance) -> Result<Comparison> {
    if actual.shape() != reference.shape() {
        return Err(Error::Invalid(format!(
            "shapes differ: expected {:?}, found {:?}",
            reference.shape(),
            actual.shape()
        )));
    }
    let integers = !actual.dtype().is_float() && !reference.dtype().is_float();
    let scales = pieces(actual.len()).map(|piece| {
        let mut scale = 0.0f64;
        for_pairs(actual, reference, piece, |_, _, r| {
            if r.is_finite() {
                scale = scale.max(r.abs())
            }
        });
        scale
    });
    let scale = scales.reduce(|| 0.0, f64::max);
    let found = pieces(actual.len()).map(|piece| {
        let mut found = Found::default();
        for_pairs(actual, reference, piece, |i, a, r| {
            let error = if integers {
                actual.get_i64(i).abs_diff(reference.get_i64(i)) as f64
            } else {
                distance(a, r, tolerance.equal_nan)
            };
            if error > found.max_abs {
                (found.max_abs, found.worst) = (error, Some(i));
            }
            // An infinite error never passes; a tolerance that is infinite or NaN must not let it.
            let allowed = tolerance.abs + tolerance.rel * r.abs() + tolerance.of_max * scale;
            if error != 0.0 && !(error <= allowed && error.is_finite()) {
                found.failures += 1;
                found.first.get_or_insert((i, a, r));
            }
        });
        found
    });
    let Found { max_abs, worst, failures, first } = found.reduce(Found::default, Found::then);
    let mut result = Comparison { elements: actual.len(), max_abs, worst: None, scale, failures, first_failure: None };
    result.worst = worst.map(|i| unravel(i, actual.shape()));
    result.first_failure = first.map(|(i, actual_value, expected)| Failure {
        index: unravel(i, actual.shape()),
        actual: actual_value,
        expected,
    });
    Ok(result)
}

/// The largest absolute difference between two tensors of one shape; infinite where a NaN or infinity is on one side
/// only, or NaN on both.
pub fn max_abs_diff(a: &Tensor, b: &Tensor) -> Result<f64> {
    Ok(compare(a, b, Tolerance::EXACT)?.max_abs)
}

fn distance(actual: f64, expected: f64, equal_nan: bool) -> f64 {
    if actual == expected || (equal_nan && actual.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    let error = (actual - expected).abs();
    if error.is_nan() { f64::INFINITY } else { error }
}

/// What was found in a part of two tensors.
#[derive(Default)]
struct Found {
    max_abs: f64,
    worst: Option<usize>,
    failures: usize,
    first: Option<(usize, f64, f64)>,
}

impl Found {
    /// With what was found in the part that follows.
    fn then(self, next: Found) -> Found {
        let (max_abs, worst) =
            if next.max_abs > self.max_abs { (next.max_abs, next.worst) } else { (self.max_abs, self.worst) };
        Found { max_abs, worst, failures: self.failures + next.failures, first: self.first.or(next.first) }
    }
}

/// Elements that are converted at once.
const PIECE: usize = 4096;

/// Parts of so many elements, in order.
fn pieces(elements: usize) -> impl IndexedParallelIterator<Item = std::ops::Range<usize>> {
    (0..elements.div_ceil(PIECE)).into_par_iter().map(move |i| i * PIECE..elements.min((i + 1) * PIECE))
}

/// Calls `visit(index, actual, reference)` for every element of a part.
fn for_pairs(
    actual: &Tensor,
    reference: &Tensor,
    piece: std::ops::Range<usize>,
    mut visit: impl FnMut(usize, f64, f64),
) {
    let (mut a, mut r) = ([0.0; PIECE], [0.0; PIECE]);
    let (start, length) = (piece.start, piece.len());
    actual.read_f64(start, &mut a[..length]);
    reference.read_f64(start, &mut r[..length]);
    for i in 0..length {
        visit(start + i, a[i], r[i]);
    }
}

/// The index in each dimension of the element at `index` in row-major order.
fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut result = vec![0; shape.len()];
    for (position, &extent) in result.iter_mut().zip(shape).rev() {
        (*position, index) = (index % extent, index / extent);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn tensor(values: &[f64]) -> Tensor {
        Tensor::from_f64(DType::F64, &[values.len()], values).unwrap()
    }

    fn passes(actual: f64, expected: f64, tolerance: Tolerance) -> bool {
        compare(&tensor(&[actual]), &tensor(&[expected]), tolerance).unwrap().passed()
    }

    #[test]
    fn nan_never_passes_unless_asked() {
        let loose = Tolerance { abs: f64::INFINITY, rel: 1.0, of_max: 1.0, equal_nan: false };
        assert!(!passes(f64::NAN, 1.0, loose));
        assert!(!passes(1.0, f64::NAN, loose));
        assert!(!passes(f64::NAN, f64::NAN, loose));
        assert!(passes(f64::NAN, f64::NAN, loose.equal_nan()));
        assert!(!passes(1.0, f64::NAN, loose.equal_nan()));
        assert!(!passes(1.0, 2.0, Tolerance::abs(f64::NAN)));
        let largest = max_abs_diff(&tensor(&[1.0, f64::NAN, 3.0]), &tensor(&[1.0; 3]));
        assert_eq!(largest.unwrap(), f64::INFINITY);
    }

    #[test]
    fn infinities_must_match() {
        let loose = Tolerance { rel: 1.0, ..Tolerance::abs(1e300) };
        assert!(passes(f64::INFINITY, f64::INFINITY, Tolerance::EXACT));
        assert!(!passes(f64::NEG_INFINITY, f64::INFINITY, loose));
        assert!(!passes(1e308, f64::INFINITY, loose));
        assert!(!passes(f64::INFINITY, 1e308, loose));
    }

    #[test]
    fn reports_the_worst_and_the_first() {
        let reference = Tensor::from_f64(DType::F64, &[2, 3], &[0.0, 1.0, -8.0, 3.0, 4.0, 5.0]).unwrap();
        let actual = Tensor::from_f64(DType::F32, &[2, 3], &[0.0, 1.25, -8.0, 3.0, 4.5, 5.0]).unwrap();
        let report = compare(&actual, &reference, Tolerance::abs(0.1)).unwrap();
        assert_eq!(
            (report.max_abs, report.worst.clone(), report.scale, report.failures),
            (0.5, Some(vec![1, 1]), 8.0, 2)
        );
        assert_eq!(report.first_failure.as_ref().unwrap().index, [0, 1]);
        assert_eq!(report.of_max(), 0.0625);
        assert!(report.to_string().contains("2 of 6 elements"), "{report}");
        assert!(compare(&actual, &reference, Tolerance::rel(0.25)).unwrap().passed());
        assert!(!compare(&actual, &reference, Tolerance::rel(0.24)).unwrap().passed());
        assert!(compare(&actual, &reference, Tolerance::of_max(0.0625)).unwrap().passed());
    }

    #[test]
    fn integers_compare_exactly() {
        let a = Tensor::from_i64(DType::I64, &[1], &[(1 << 53) + 1]).unwrap();
        let b = Tensor::from_i64(DType::I64, &[1], &[1 << 53]).unwrap();
        assert_eq!(max_abs_diff(&a, &b).unwrap(), 1.0);
    }

    #[test]
    fn shapes_must_agree() {
        assert!(compare(&tensor(&[1.0]), &tensor(&[1.0, 2.0]), Tolerance::EXACT).is_err());
        assert!(compare(&tensor(&[]), &tensor(&[]), Tolerance::EXACT).unwrap().passed());
    }
}
