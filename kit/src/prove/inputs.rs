//! Numbers on which rules are tried.

use rc_ir::{Body, Name};
use rc_passes::rules::Random;
use rc_runtime::program::{Bindings, TensorSpec};
use rc_runtime::{DType, Tensor};

/// What numbers are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// Between -2 and 2.
    Ordinary,
    /// Zeros of both signs, infinities, NaN and large ones among them.
    Special,
    /// Integers from -3 to 3.
    Small,
}

const SPECIAL: [f64; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-3, 1000.0, -1000.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
const WHOLE: [i64; 8] = [0, 1, -1, 2, 7, i64::MAX, i64::MIN, 100];

/// Inputs for a program; `None` for types that no tensor has.
pub fn draw(body: &Body, numbers: Numbers, finite: bool, random: &mut Random) -> Option<Vec<Tensor>> {
    let entry = body.entry()?;
    let types: Vec<_> = body.block_args(entry).map(|v| body.ty(v)).collect();
    (types.into_iter())
        .map(|ty| {
            let spec = TensorSpec::new(Name::default(), ty).ok()?;
            let shape = spec.sizes(&Bindings::default()).ok()?;
            let count = shape.iter().product();
            match spec.dtype.is_float() {
                true => Tensor::from_f64(spec.dtype, &shape, &floats(numbers, finite, count, random)).ok(),
                false => Tensor::from_i64(spec.dtype, &shape, &integers(spec.dtype, numbers, count, random)).ok(),
            }
        })
        .collect()
}

fn floats(numbers: Numbers, finite: bool, count: usize, random: &mut Random) -> Vec<f64> {
    let known = if finite { &SPECIAL[..9] } else { &SPECIAL[..] };
    let one = |_| match numbers {
        Numbers::Ordinary => (random.bits() >> 11) as f64 / (1u64 << 51) as f64 - 2.0,
        Numbers::Special => known[random.below(known.len())],
        Numbers::Small => random.below(7) as f64 - 3.0,
    };
    (0..count).map(one).collect()
}

fn integers(dtype: DType, numbers: Numbers, count: usize, random: &mut Random) -> Vec<i64> {
    let bits = 8 * dtype.size() as u32;
    let one = |_| match numbers {
        // As the type stores them.
        Numbers::Special => WHOLE[random.below(WHOLE.len())] >> (64 - bits.min(64)),
        Numbers::Ordinary => random.below(10) as i64,
        Numbers::Small => random.below(7) as i64 - 3,
    };
    let all: Vec<i64> = (0..count).map(one).collect();
    if dtype == DType::Bool { all.into_iter().map(|n| n & 1).collect() } else { all }
}
