//! Random tensors. Element `i` of argument `a` under seed `s` is a function of `(s, a, i)` and the distribution alone:
//! block `i / 2` of Philox4x32-10 under key `s`, with counter `(block low, block high, a, 0)`, gives two 64-bit words,
//! `w0 = x0 | x1 << 32` for even `i` and `w1 = x2 | x3 << 32` for odd `i`.
//!
//! - uniform: `low + (w >> 11) · 2^-53 · (high - low)`
//! - integers: `low + ⌊w · (high - low) / 2^64⌋`
//! - normal: Box and Muller on the pair, `r = sqrt(-2 ln(((w0 >> 11) + 1) · 2^-53))`, `t = 2π · (w1 >> 11) · 2^-53`;
//!   `r cos t` for even `i`, `r sin t` for odd `i`
//!
//! All in f64, with `libm`'s functions so that every machine agrees, then rounded to the dtype.

use super::{DType, Tensor};
use crate::philox::philox4x32_10;
use crate::{Error, Result};

/// What random elements are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Normal with this mean and standard deviation.
    Normal(f64, f64),
    /// Uniform from the first, inclusive, to the second, exclusive (before rounding to the dtype).
    Uniform(f64, f64),
    /// Integers from the first, inclusive, to the second, exclusive.
    Integers(i64, i64),
}

impl Distribution {
    /// What an input of `dtype` is drawn from when nobody says: floats standard normal, integers 0 to 9, bools even.
    pub fn default_for(dtype: DType) -> Distribution {
        match dtype {
            DType::Bool => Distribution::Integers(0, 2),
            dtype if dtype.is_float() => Distribution::Normal(0.0, 1.0),
            _ => Distribution::Integers(0, 10),
        }
    }

    fn check(self) -> Result<()> {
        let sound = match self {
            Distribution::Normal(mean, deviation) => mean.is_finite() && deviation.is_finite() && deviation >= 0.0,
            Distribution::Uniform(low, high) => low.is_finite() && high.is_finite() && low <= high,
            Distribution::Integers(low, high) => low < high,
        };
        if sound { Ok(()) } else { Err(Error::Invalid(format!("an empty or unbounded distribution: {self:?}"))) }
    }
}

const UNIT: f64 = 1.0 / (1u64 << 53) as f64;

/// The two words of a block.
fn words(seed: u64, argument: u32, block: u64) -> [u64; 2] {
    let counter = [block as u32, (block >> 32) as u32, argument, 0];
    let x = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
    [u64::from(x[0]) | u64::from(x[1]) << 32, u64::from(x[2]) | u64::from(x[3]) << 32]
}

fn normal_pair([w0, w1]: [u64; 2]) -> [f64; 2] {
    let radius = libm::sqrt(-2.0 * libm::log(((w0 >> 11) + 1) as f64 * UNIT));
    let angle = std::f64::consts::TAU * ((w1 >> 11) as f64 * UNIT);
    [radius * libm::cos(angle), radius * libm::sin(angle)]
}

fn integer(word: u64, low: i64, high: i64) -> i64 {
    let span = high.wrapping_sub(low) as u64;
    low.wrapping_add(((u128::from(word) * u128::from(span)) >> 64) as i64)
}

impl Tensor {
    /// Random elements for argument number `argument` under `seed`, as this module's documentation defines them; the
    /// same on every machine. Integer dtypes take [`Distribution::Integers`] exactly, floats any distribution.
    pub fn random(
        dtype: DType,
        shape: &[usize],
        seed: u64,
        argument: u32,
        distribution: Distribution,
    ) -> Result<Tensor> {
        distribution.check()?;
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let count = tensor.len();
        // In pieces, so that a large tensor needs no second copy in a wide type.
        const PIECE: usize = 4096;
        if let (Distribution::Integers(low, high), false) = (distribution, dtype.is_float()) {
            for start in (0..count).step_by(PIECE) {
                let draw = |i: usize| integer(words(seed, argument, i as u64 / 2)[i % 2], low, high);
                let values: Vec<i64> = (start..count.min(start + PIECE)).map(draw).collect();
                tensor.write_i64(start, &values)?;
            }
            return Ok(tensor);
        }
        let draw = |block: u64| -> [f64; 2] {
            let words = words(seed, argument, block);
            match distribution {
                Distribution::Normal(mean, deviation) => normal_pair(words).map(|x| mean + deviation * x),
                Distribution::Uniform(low, high) => words.map(|w| low + (w >> 11) as f64 * UNIT * (high - low)),
                Distribution::Integers(low, high) => words.map(|w| integer(w, low, high) as f64),
            }
        };
        let mut values = Vec::with_capacity(PIECE);
        for start in (0..count).step_by(PIECE) {
            let piece = PIECE.min(count - start);
            values.clear();
            values.extend((0..piece.div_ceil(2)).flat_map(|k| draw((start / 2 + k) as u64)));
            tensor.write_f64(start, &values[..piece])?;
        }
        Ok(tensor)
    }

    /// Random elements of the dtype's [default distribution](Distribution::default_for).
    pub fn random_input(dtype: DType, shape: &[usize], seed: u64, argument: u32) -> Result<Tensor> {
        Tensor::random(dtype, shape, seed, argument, Distribution::default_for(dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_depend_on_seed_argument_and_index_alone() {
        let long = Tensor::random_input(DType::F32, &[9973], 42, 1).unwrap().to_f64();
        let short = Tensor::random_input(DType::F32, &[11, 1], 42, 1).unwrap().to_f64();
        assert_eq!(long[..11], short);
        assert_ne!(Tensor::random_input(DType::F32, &[11], 43, 1).unwrap().to_f64(), short);
        assert_ne!(Tensor::random_input(DType::F32, &[11], 42, 2).unwrap().to_f64(), short);
    }

    #[test]
    fn normal_moments() {
        let n = 200_001;
        let values = Tensor::random(DType::F64, &[n], 5, 0, Distribution::Normal(0.0, 1.0)).unwrap().to_f64();
        let moment = |k: i32| values.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
        // Six standard deviations of each moment's estimate: var(x)=1, var(x^2)=2, var(x^4)=96.
        let limit = |variance: f64| 6.0 * (variance / n as f64).sqrt();
        assert!(
            moment(1).abs() < limit(1.0)
                && (moment(2) - 1.0).abs() < limit(2.0)
                && (moment(4) - 3.0).abs() < limit(96.0)
        );
        // Neighbours come from one pair and must not correlate.
        let lagged = values.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
        assert!(lagged.abs() < limit(1.0), "{lagged}");
    }

    #[test]
    fn integers_cover_their_range() {
        let tensor = Tensor::random(DType::I32, &[10_000], 3, 0, Distribution::Integers(-3, 4)).unwrap();
        let mut counts = [0; 7];
        tensor.to_i64().iter().for_each(|&x| counts[(x + 3) as usize] += 1);
        // Six standard deviations of a binomial with p = 1/7.
        let limit = 6.0 * (10_000.0f64 / 7.0 * 6.0 / 7.0).sqrt();
        assert!(counts.iter().all(|&c| (f64::from(c) - 10_000.0 / 7.0).abs() < limit), "{counts:?}");
        let whole = Distribution::Integers(i64::MIN, i64::MAX);
        assert!(Tensor::random(DType::I64, &[99], 3, 0, whole).unwrap().to_i64().iter().any(|&x| x < i64::MIN / 2));
    }

    #[test]
    fn uniform_stays_inside() {
        let values = Tensor::random(DType::F64, &[1001], 3, 0, Distribution::Uniform(2.0, 5.0)).unwrap().to_f64();
        assert!(values.iter().all(|x| (2.0..5.0).contains(x)));
        assert!(Tensor::random(DType::F64, &[3], 3, 0, Distribution::Integers(4, 4)).is_err());
        assert!(Tensor::random(DType::F64, &[3], 3, 0, Distribution::Normal(0.0, f64::NAN)).is_err());
    }
}
