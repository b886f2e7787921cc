//! Random bits as a function of a key and a counter, so that neither fusion nor tiling changes them.

use super::scalar::IntType;
use crate::constraints::{INTEGER, Inferred, infer_elementwise};
use crate::derivative::Derivative;
use crate::interfaces::{Elementwise, IntFn};
use rc_ir::op_def::{InferArgs, OperandDef, ResultDef, operand, result};
use rc_ir::{Effects, OpDef, Traits};

pub static PHILOX: OpDef = OpDef {
    summary: "Elementwise: 64 random bits that a key and a counter determine.",
    doc: "The first two words of Philox 4x32-10 (Salmon et al., 2011) for the key's two words of 32 bits, low word first, and \
          the counter's two followed by zeros; the first word is the low half of the result. All of i64. Exact.",
    example: "func.func @philox(%key: tensor<7xi64>, %counter: tensor<7xi64>) -> tensor<7xi64> {
  %bits = core.philox %key, %counter : tensor<7xi64>
  func.return %bits
}
",
    operands: OPERANDS,
    results: RESULTS,
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[&Elementwise { float: None, int: Some(IntFn::Binary(bits)) }, &Derivative::Zero],
    ..OpDef::new("rc.core.philox")
};

pub static PHILOX_WORD: OpDef = OpDef {
    summary: "Elementwise: 32 random bits that a key and a counter determine; four counters share their computation.",
    doc: "Of the four words of Philox 4x32-10 (Salmon et al., 2011) for the key's two words of 32 bits, low word first, and those of the counter's \
          quotient by four, rounded down, followed by zeros: the word that the counter's remainder numbers, from 0 to 2^32 - 1. All of i64. Exact.",
    example: "func.func @philox_word(%key: tensor<7xi64>, %counter: tensor<7xi64>) -> tensor<7xi64> {
  %bits = core.philox_word %key, %counter : tensor<7xi64>
  func.return %bits
}
",
    operands: OPERANDS,
    results: RESULTS,
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[&Elementwise { float: None, int: Some(IntFn::Binary(word)) }, &Derivative::Zero],
    ..OpDef::new("rc.core.philox_word")
};

const OPERANDS: &[OperandDef] = &[operand("key", INTEGER), operand("counter", INTEGER)];
const RESULTS: &[ResultDef] = &[result("bits", INTEGER)];

fn infer(args: &InferArgs) -> Inferred {
    match args.operand(0)?.elem() {
        ty if ty == rc_ir::Type::i64() => infer_elementwise(args),
        ty => Err(format!("works on i64, and has {ty}")),
    }
}

/// Multipliers of the two products of a round, and what is added to the key's words after each.
pub const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
pub const ROUNDS: usize = 10;

/// Philox 4x32-10 of a counter and a key.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let product = |i: usize, word: u32| u64::from(MULTIPLIERS[i]) * u64::from(word);
        let (a, b) = (product(0, c[0]), product(1, c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
    }
    c
}

fn bits(key: i128, counter: i128, _: IntType) -> Option<i128> {
    let words = |n: i128| [n as u32, (n >> 32) as u32];
    let ([low, high], key) = (words(counter), words(key));
    let out = philox([low, high, 0, 0], key);
    Some(i128::from((u64::from(out[1]) << 32 | u64::from(out[0])) as i64))
}

fn word(key: i128, counter: i128, _: IntType) -> Option<i128> {
    let words = |n: i128| [n as u32, (n >> 32) as u32];
    let [low, high] = words(counter >> 2);
    Some(i128::from(philox([low, high, 0, 0], words(key))[(counter & 3) as usize]))
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&PHILOX, &PHILOX_WORD];

#[cfg(test)]
mod tests {
    /// The known answers that come with Random123, the authors' own code.
    #[test]
    fn known_answers() {
        assert_eq!(super::philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(super::philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        let pi = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344];
        assert_eq!(super::philox(pi, [0xa4093822, 0x299f31d0]), [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
    }
}
