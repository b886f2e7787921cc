//! `philox`: ten rounds of two products of 32-bit words, in integers of 64 bits.

use super::emit::Math;
use rc_dialects::core::random::{KEY_STEPS, MULTIPLIERS, ROUNDS};
use rc_ir::Value;

const WORD: i64 = 0xFFFF_FFFF;

impl Math<'_> {
    /// The first two words for the key's and the counter's two, each pair in one integer. `ty` is f64's, for its integers.
    pub fn philox(&mut self, key: Value, counter: Value) -> Value {
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
        let high = self.shl(c1, 32);
        self.op("rc.core.or", &[high, c0])
    }
    fn low_word(&mut self, x: Value) -> Value {
        let mask = self.i(WORD);
        self.op("rc.core.and", &[x, mask])
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
        let both = self.op("rc.core.xor", &[a, b]);
        self.op("rc.core.xor", &[both, c])
    }
    fn next_key(&mut self, key: Value, step: u32) -> Value {
        let step = self.i(i64::from(step));
        let sum = self.add(key, step);
        self.low_word(sum)
    }
}
