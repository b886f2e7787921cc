//! `philox` and `philox_word`: ten rounds of two products of 32-bit words, in integers of 64 bits.

use super::emit::Math;
use rc_dialects::core::random::{KEY_STEPS, MULTIPLIERS, ROUNDS};
use rc_dialects::op;
use rc_ir::builder::Builder;
use rc_ir::{Attr, AttrData, Body, Type, Value};

const WORD: i64 = 0xFFFF_FFFF;

/// Elements of which one computation gives a word each.
const WORDS: usize = 4;

impl Math<'_> {
    /// The first two words for the key's and the counter's two, each pair in one integer. `ty` is f64's, for its integers.
    pub fn philox(&mut self, key: Value, counter: Value) -> Value {
        let [first, second, ..] = self.philox_words(key, counter);
        let high = self.shl(second, 32);
        self.op(op::core::OR, &[high, first])
    }
    /// The word that the counter's remainder by four numbers, of those for its quotient. Lanes that are four neighbours share them.
    pub fn philox_word(&mut self, key: Value, counter: Value) -> Value {
        if follows_by_fours(self.body, counter) {
            return self.words_of_fours(key, counter);
        }
        let quotient = self.shr(counter, 2);
        let words = self.philox_words(key, quotient);
        let three = self.i(3);
        let number = self.op(op::core::AND, &[counter, three]);
        let mut chosen = words[0];
        for (n, &word) in words.iter().enumerate().skip(1) {
            let n = self.i(n as i64);
            let here = self.compare("eq", number, n);
            chosen = self.select(here, word, chosen);
        }
        chosen
    }
    /// For lanes of which each four have one quotient.
    fn words_of_fours(&mut self, key: Value, counter: Value) -> Value {
        let lanes = self.body.ty(counter).static_shape().map_or(1, |s| s.iter().product::<i64>());
        let mut lane = |vector: Value, lane: i64| {
            let mut b = Builder::before(self.body, self.before);
            b.op(op::kernel::EXTRACT).operand(vector).attr("lane", Attr::i64(lane)).value()
        };
        let key = lane(key, 0);
        let firsts: Vec<Value> = (0..lanes).step_by(WORDS).map(|n| lane(counter, n)).collect();
        let (body, constants, before) = (&mut *self.body, &mut *self.constants, self.before);
        let mut one = Math { body, constants, before, ty: Type::f64(), approx: false, rounded: false };
        let mut words = Vec::new();
        for first in firsts {
            let quotient = one.shr(first, 2);
            words.extend(one.philox_words(key, quotient));
        }
        one.op(op::kernel::CONCAT, &words)
    }

    fn philox_words(&mut self, key: Value, counter: Value) -> [Value; WORDS] {
        let [mut k0, mut k1] = self.words(key);
        let [mut c0, mut c1] = self.words(counter);
        let zero = self.i(0);
        let (mut c2, mut c3) = (zero, zero);
        for round in 0..ROUNDS {
            let (a_high, a_low) = self.wide_product(c0, MULTIPLIERS[0]);
            let (b_high, b_low) = self.wide_product(c2, MULTIPLIERS[1]);
            c0 = self.xor3(b_high, c1, k0);
            c2 = self.xor3(a_high, c3, k1);
            (c1, c3) = (b_low, a_low);
            if round + 1 < ROUNDS {
                k0 = self.next_key(k0, KEY_STEPS[0]);
                k1 = self.next_key(k1, KEY_STEPS[1]);
            }
        }
        [c0, c1, c2, c3]
    }
    fn low_word(&mut self, x: Value) -> Value {
        let mask = self.i(WORD);
        self.op(op::core::AND, &[x, mask])
    }
    fn high_word(&mut self, x: Value) -> Value {
        let high = self.shr(x, 32);
        self.low_word(high)
    }
    fn words(&mut self, x: Value) -> [Value; 2] {
        [self.low_word(x), self.high_word(x)]
    }
    fn wide_product(&mut self, word: Value, by: u32) -> (Value, Value) {
        let by = self.i(i64::from(by));
        let product = self.mul(word, by);
        (self.high_word(product), self.low_word(product))
    }
    fn xor3(&mut self, a: Value, b: Value, c: Value) -> Value {
        let both = self.op(op::core::XOR, &[a, b]);
        self.op(op::core::XOR, &[both, c])
    }
    fn next_key(&mut self, key: Value, step: u32) -> Value {
        let step = self.i(i64::from(step));
        let sum = self.add(key, step);
        self.low_word(sum)
    }
}

/// Whether a vector's lanes are consecutive numbers from a multiple of four on, and fours of them.
fn follows_by_fours(body: &Body, counter: Value) -> bool {
    let ty = body.ty(counter);
    let fours = ty.is_vector() && ty.static_shape().is_some_and(|s| s.iter().product::<i64>() % WORDS as i64 == 0);
    fours && lanes(body, counter).is_some_and(|(step, zeros)| step == 1 && zeros >= WORDS.trailing_zeros())
}

/// By how much each lane is more than the one before, and how many of the first one's lowest bits are known to be zero.
fn lanes(body: &Body, vector: Value) -> Option<(i64, u32)> {
    let op = body.defining_op(vector)?;
    let operand = |i: usize| body.operand(op, i);
    match body.name(op).as_str() {
        op::kernel::SPLAT => Some((0, zeros(body, operand(0)))),
        op::core::CONSTANT => {
            let values = integers(body.attr(op, "value")?)?;
            let (first, step) = (values[0], values.get(1).map_or(0, |second| second - values[0]));
            let even = values.windows(2).all(|pair| pair[1] - pair[0] == step);
            even.then_some((step, first.trailing_zeros()))
        }
        op::core::CONVERT => lanes(body, operand(0)),
        op::core::ADD => {
            let (a, b) = (lanes(body, operand(0))?, lanes(body, operand(1))?);
            Some((a.0 + b.0, a.1.min(b.1)))
        }
        _ => None,
    }
}

/// How many of a number's lowest bits are known to be zero.
fn zeros(body: &Body, number: Value) -> u32 {
    let Some(op) = body.defining_op(number) else { return 0 };
    let of = |i: usize| zeros(body, body.operand(op, i));
    match body.name(op).as_str() {
        op::core::CONSTANT => body.attr(op, "value").and_then(|n| n.as_int()).map_or(0, |n| n.trailing_zeros()),
        op::core::CONVERT => of(0),
        op::core::ADD => of(0).min(of(1)),
        op::core::MUL => (of(0) + of(1)).min(i64::BITS),
        _ => 0,
    }
}

/// The integers of a constant vector; a splat's once.
fn integers(attr: Attr) -> Option<Vec<i64>> {
    let AttrData::Dense { ty, data } = attr.data() else { return None };
    let width = ty.elem().byte_width().filter(|_| !ty.elem().is_float())? as usize;
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        i64::from_le_bytes(word)
    };
    let values: Vec<i64> = data.bytes.chunks_exact(width).map(word).collect();
    (!values.is_empty()).then_some(values)
}
