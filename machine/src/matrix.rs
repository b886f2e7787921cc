//! What multiplies matrices: the units of a machine, and their instructions.

use serde::{Deserialize, Serialize};

/// What multiplies matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Multiply-adds of vectors (CPU) or scalars (GPU).
    Fma,
    /// `mma.sync` of a warp.
    Mma,
    /// `wgmma.mma_async` of four warps.
    Wgmma,
    /// Dot products of pairs of bf16 in vectors.
    #[serde(rename = "avx512_bf16")]
    Avx512Bf16,
    /// Dot products of four bytes in vectors.
    Vnni,
    /// Products of tiles.
    Amx,
}

impl Unit {
    /// What each is called.
    pub const WORDS: &'static [(Unit, &'static str)] = &[
        (Unit::Fma, "fma"),
        (Unit::Mma, "mma"),
        (Unit::Wgmma, "wgmma"),
        (Unit::Avx512Bf16, "avx512_bf16"),
        (Unit::Vnni, "vnni"),
        (Unit::Amx, "amx"),
    ];
    pub fn word(self) -> &'static str {
        Unit::WORDS.iter().find(|w| w.0 == self).expect("every unit has a word").1
    }
    /// Whether a CPU's unit multiplies words of several neighbours.
    pub fn multiplies_words(self) -> bool {
        matches!(self, Unit::Avx512Bf16 | Unit::Vnni | Unit::Amx)
    }
}

/// A matrix instruction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    pub unit: Unit,
    /// m, n and k of one instruction; of `wgmma` the greatest n.
    pub shape: [i64; 3],
    pub operands: String,
    pub accumulator: String,
    /// How fragments lie in registers.
    pub layout: String,
    /// Of a CPU: cycles until a core may start the next one; half a cycle where there are two at once.
    #[serde(default = "two_a_cycle", skip_serializing_if = "is_two_a_cycle")]
    pub cycles: f64,
}

fn two_a_cycle() -> f64 {
    0.5
}
fn is_two_a_cycle(cycles: &f64) -> bool {
    *cycles == two_a_cycle()
}

impl Matrix {
    /// LLVM's names of the features of a CPU that has it, besides those of its vectors.
    pub fn features(&self) -> &'static [&'static str] {
        match self.unit {
            Unit::Avx512Bf16 => &["avx512bf16"],
            Unit::Vnni => &["avx512vnni"],
            Unit::Amx if self.operands == "bf16" => &["amx-tile", "amx-bf16"],
            Unit::Amx => &["amx-tile", "amx-int8"],
            _ => &[],
        }
    }
    /// Why no machine has this instruction, in which vectors have `vector_bits` bits.
    pub(crate) fn misfit(&self, vector_bits: i64) -> Option<String> {
        let Matrix { unit, shape: [m, n, k], operands, accumulator, layout, cycles } = self;
        let words = [&operands[..], accumulator, layout];
        let rows = || INSTRUCTIONS.iter().filter(|row| row.0 == *unit);
        let Some((_, _, shape)) = rows().find(|row| row.1 == words) else {
            let known: Vec<String> = rows().map(|(_, [o, a, l], _)| format!("{o}, {a}, {l:?}")).collect();
            let (unit, known) = (unit.word(), known.join("; "));
            return Some(format!(
                "'{unit}' has no instruction of {operands}, {accumulator}, {layout:?}, only of {known}"
            ));
        };
        let lanes = vector_bits / 32;
        let fits = match shape {
            Shape::Lanes(words) => [*m, *n, *k] == [1, lanes, *words],
            Shape::UpTo(most) => (1..=most[0]).contains(m) && (1..=most[1]).contains(n) && *k == most[2],
            Shape::Is(shape) => [*m, *n, *k] == *shape,
        };
        if !fits {
            let has = match shape {
                Shape::Lanes(words) => format!("[1, {lanes}, {words}] for vectors of {vector_bits} bits"),
                Shape::UpTo(most) => format!("{most:?} at most"),
                Shape::Is(shape) => format!("{shape:?}"),
            };
            return Some(format!("'{}' of {operands} has the shape {has}, not {:?}", unit.word(), self.shape));
        }
        (!cycles.is_finite() || !(0.01..=1e6).contains(cycles))
            .then(|| format!("'cycles' is {cycles}, and must be from 0.01 to 1000000"))
    }
}

/// The m, n and k that an instruction may have.
enum Shape {
    /// `[1, lanes, k]`: the lanes of a vector's 32-bit elements.
    Lanes(i64),
    /// m and n up to these, and this k.
    UpTo([i64; 3]),
    Is([i64; 3]),
}

/// What code generation knows: the unit; operands, accumulator and layout; shape.
const INSTRUCTIONS: &[(Unit, [&str; 3], Shape)] = &[
    (Unit::Fma, ["f32", "f32", "vector"], Shape::Lanes(1)),
    (Unit::Avx512Bf16, ["bf16", "f32", "pairs"], Shape::Lanes(2)),
    (Unit::Vnni, ["i8", "i32", "quads"], Shape::Lanes(4)),
    (Unit::Amx, ["bf16", "f32", "amx"], Shape::UpTo([16, 16, 32])),
    (Unit::Amx, ["i8", "i32", "amx"], Shape::UpTo([16, 16, 64])),
    (Unit::Mma, ["bf16", "f32", "mma.m16n8k16"], Shape::Is([16, 8, 16])),
    (Unit::Mma, ["f16", "f32", "mma.m16n8k16"], Shape::Is([16, 8, 16])),
    (Unit::Mma, ["tf32", "f32", "mma.m16n8k8"], Shape::Is([16, 8, 8])),
    (Unit::Mma, ["i8", "i32", "mma.m16n8k32"], Shape::Is([16, 8, 32])),
    (Unit::Wgmma, ["bf16", "f32", "wgmma"], Shape::UpTo([64, 256, 16])),
    (Unit::Wgmma, ["f16", "f32", "wgmma"], Shape::UpTo([64, 256, 16])),
    (Unit::Wgmma, ["tf32", "f32", "wgmma"], Shape::UpTo([64, 256, 8])),
];
