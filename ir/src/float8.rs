//! The 8-bit float formats of the OCP specification "OFP8" (E4M3FN without infinities, E5M2).

use crate::types::FloatKind;

/// (mantissa bits, exponent bias) of the format.
fn layout(kind: FloatKind) -> (u32, i32) {
    match kind {
        FloatKind::F8E4M3FN => (3, 7),
        _ => (2, 15),
    }
}

/// The exact value of a code.
pub fn decode(kind: FloatKind, code: u8) -> f64 {
    let (mantissa_bits, bias) = layout(kind);
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(code & 0x7f) >> mantissa_bits;
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    match kind {
        FloatKind::F8E4M3FN if code & 0x7f == 0x7f => f64::NAN,
        FloatKind::F8E5M2 if exponent == 31 => {
            if mantissa == 0.0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ if exponent == 0 => sign * mantissa * 2f64.powi(1 - bias),
        _ => sign * (1.0 + mantissa) * 2f64.powi(exponent - bias),
    }
}

/// The code nearest to `value`, ties to the even code; E4M3FN overflows to NaN, E5M2 to infinity.
pub fn encode(kind: FloatKind, value: f64) -> u64 {
    let sign = if value.is_sign_negative() { 0x80u8 } else { 0 };
    let nan = sign | 0x7f;
    if value.is_nan() {
        return u64::from(nan);
    }
    let (max, overflow) = match kind {
        FloatKind::F8E4M3FN => (0x7eu8, 0x7f),
        _ => (0x7bu8, 0x7c),
    };
    let magnitude = value.abs();
    let largest = decode(kind, max);
    let half_step = (largest - decode(kind, max - 1)) / 2.0;
    if magnitude >= largest + half_step {
        return u64::from(sign | overflow);
    }
    // Codes of one sign are ordered as their values are: find the last that is not above.
    let codes: Vec<u8> = (0..=max).collect();
    let below = codes.partition_point(|&c| decode(kind, c) <= magnitude) as u8 - 1;
    if below == max {
        return u64::from(sign | max);
    }
    let (low, high) = (magnitude - decode(kind, below), decode(kind, below + 1) - magnitude);
    let code = if low < high || (low == high && below.is_multiple_of(2)) { below } else { below + 1 };
    u64::from(sign | code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for kind in [FloatKind::F8E4M3FN, FloatKind::F8E5M2] {
            for code in 0..=255u8 {
                let value = decode(kind, code);
                if !value.is_nan() {
                    assert_eq!(encode(kind, value), u64::from(code), "{kind:?} {code:#x} = {value}");
                }
            }
        }
        assert_eq!(decode(FloatKind::F8E4M3FN, 0x7e), 448.0);
        assert!(decode(FloatKind::F8E4M3FN, encode(FloatKind::F8E4M3FN, 1e9) as u8).is_nan());
        assert_eq!(decode(FloatKind::F8E5M2, encode(FloatKind::F8E5M2, 1e9) as u8), f64::INFINITY);
    }
}
