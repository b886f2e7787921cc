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

/// The code nearest to `value`, ties to the even code. What is too large for E5M2 is infinite; for E4M3FN, which has no infinity, it is the largest number.
pub fn encode(kind: FloatKind, value: f64) -> u64 {
    let (mantissa_bits, bias) = layout(kind);
    let (largest, too_large) = match kind {
        FloatKind::F8E4M3FN => (0x7e, 0x7e),
        _ => (0x7b, 0x7c),
    };
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    let code = if value.is_nan() {
        0x7f
    } else if magnitude >= 2.0 * decode(kind, largest) {
        too_large
    } else {
        // As many steps of the last digit as the value has, counted on from where its power of two starts.
        let exponent = magnitude.max(2f64.powi(1 - bias)).log2().floor() as i32;
        let steps = (magnitude * 2f64.powi(mantissa_bits as i32 - exponent)).round_ties_even() as i32;
        (((exponent + bias - 1) << mantissa_bits) + steps).min(too_large)
    };
    (sign | code) as u64
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
        assert_eq!(decode(FloatKind::F8E4M3FN, encode(FloatKind::F8E4M3FN, 1e9) as u8), 448.0);
        assert_eq!(decode(FloatKind::F8E5M2, encode(FloatKind::F8E5M2, 1e9) as u8), f64::INFINITY);
    }

    #[test]
    fn ties_go_to_the_even_code() {
        for kind in [FloatKind::F8E4M3FN, FloatKind::F8E5M2] {
            for code in 0..0x7bu8 {
                let tie = (decode(kind, code) + decode(kind, code + 1)) / 2.0;
                let even = u64::from(code + code % 2);
                assert_eq!(encode(kind, tie), even, "{kind:?} {tie}");
                assert_eq!(encode(kind, tie * (1.0 + 1e-9)), u64::from(code + 1), "{kind:?} above {tie}");
                assert_eq!(encode(kind, -tie * (1.0 - 1e-9)), u64::from(0x80 | code), "{kind:?} below {tie}");
            }
        }
        assert_eq!([464.0, 465.0, f64::INFINITY].map(|x| encode(FloatKind::F8E4M3FN, x)), [0x7e; 3]);
        assert_eq!([61439.0, 61440.0].map(|x| encode(FloatKind::F8E5M2, x)), [0x7b, 0x7c]);
    }
}
