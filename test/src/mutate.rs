//! Broken input out of good input: bytes, tokens and pieces of files, changed at random.

/// A sequence of random numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Less than `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// What numbers, names and brackets are replaced by.
const ODD: [&str; 28] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e999",
    "0x7FC00000",
    "nan",
    "?",
    "*",
    "[]",
    "{}",
    "()",
    "<>",
    "\"\"",
    "%",
    "@",
    "^bb0",
    "#rc.shape<[n]>",
    "tensor<0xf32>",
    "tensor<*xf32>",
    "i1",
    "f64",
    "index",
    "->",
    ":",
    "// -----\n",
];

/// A text with one to eight changes; some take a piece of `other`.
pub fn mutated(text: &str, other: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len());
        let (start, end) = word(&bytes, at);
        match random.below(9) {
            0 => bytes[at] = random.number() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..(at + random.below(40)).min(bytes.len()))),
            3 => drop(bytes.drain(start..end)),
            4 => drop(bytes.splice(start..end, random.pick(&ODD).bytes())),
            5 => {
                let piece = bytes[at..(at + random.below(200)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            6 if !other.is_empty() => {
                let from = random.below(other.len());
                let piece = &other.as_bytes()[from..(from + random.below(200)).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            // One word takes another's place: types and names that do not fit.
            7 => {
                let (from, to) = word(&bytes, random.below(bytes.len()));
                let piece = bytes[from..to].to_vec();
                bytes.splice(start..end, piece);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// The word, number or other byte at a place.
fn word(bytes: &[u8], at: usize) -> (usize, usize) {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || b"_.%@".contains(b);
    if !is_word(&bytes[at]) {
        return (at, at + 1);
    }
    let start = at - bytes[..at].iter().rev().take_while(|b| is_word(b)).count();
    (start, at + bytes[at..].iter().take_while(|b| is_word(b)).count())
}

/// Names of passes with options, some of them wrong.
pub fn pipeline(passes: &[&str], options: &[String], random: &mut Random) -> String {
    let mut parts = Vec::new();
    for _ in 0..=random.below(5) {
        let name = *random.pick(passes);
        let mut part = match random.below(3) {
            0 if !options.is_empty() => {
                let value = *random.pick(&["0", "1", "-1", "64", "999999999999999999999", "true", "x", "\"a b\"", ""]);
                format!("{name}{{{}={value}}}", random.pick(options))
            }
            _ => name.to_string(),
        };
        if random.below(6) == 0 {
            part = format!("func.func({part})");
        }
        parts.push(part);
    }
    let text = parts.join(",");
    match random.below(4) {
        0 => String::from_utf8_lossy(&mutated(&text, &text, random)).into_owned(),
        _ => text,
    }
}
