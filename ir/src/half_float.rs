//! Rounding of f64 to the 16-bit floats, once.

use half::{bf16, f16};

/// The f32 nearest to `value` whose last bit records whether anything was lost ("round to odd"). A second rounding,
/// to a type at least two bits narrower, is then as if done at once. (`half` 2.7 drops the low 32 bits of an f64.)
pub fn f64_to_f32_round_odd(value: f64) -> f32 {
    let rounded = value as f32;
    let exact = f64::from(rounded) == value || value.is_nan() || value.is_infinite();
    if exact || rounded.to_bits() & 1 == 1 {
        return rounded;
    }
    // `rounded` is even: the odd neighbour is on the side of `value`.
    let away = value.abs() > f64::from(rounded).abs();
    f32::from_bits(if away { rounded.to_bits() + 1 } else { rounded.to_bits() - 1 })
}

/// Rounds to the nearest bf16, ties to even.
pub fn f64_to_bf16(value: f64) -> bf16 {
    bf16::from_f32(f64_to_f32_round_odd(value))
}

/// Rounds to the nearest f16, ties to even.
pub fn f64_to_f16(value: f64) -> f16 {
    f16::from_f32(f64_to_f32_round_odd(value))
}

#[cfg(test)]
mod tests {
    use crate::attr::float_to_bits;
    use crate::types::FloatKind;

    #[test]
    fn what_lies_just_beyond_a_tie_rounds_up() {
        let beyond = |tie: f64| 1.0 + tie + 2f64.powi(-40);
        assert_eq!(float_to_bits(FloatKind::BF16, beyond(2f64.powi(-8))), 0x3f81);
        assert_eq!(float_to_bits(FloatKind::F16, beyond(2f64.powi(-11))), 0x3c01);
        assert_eq!(float_to_bits(FloatKind::TF32, beyond(2f64.powi(-11))), 0x3f80_2000);
    }
}
