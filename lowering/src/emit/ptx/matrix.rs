//! Matrix fragments of a warp: `ldmatrix`, `stmatrix`, `mma.sync`.

use super::{Effects, Instruction, Ptx, Value, operand_list};

/// Shapes and types of `mma.sync` with f32 accumulators, row-major A and column-major B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mma {
    /// 16 × 8 × 16; A is 4 and B is 2 `i32`, each of two bf16.
    M16N8K16Bf16,
    /// 16 × 8 × 16; A is 4 and B is 2 `i32`, each of two f16.
    M16N8K16F16,
    /// 16 × 8 × 8; A is 4 and B is 2 `i32`, each one TF32.
    M16N8K8Tf32,
}

impl Mma {
    fn text(self) -> &'static str {
        match self {
            Self::M16N8K16Bf16 => "m16n8k16.row.col.f32.bf16.bf16.f32",
            Self::M16N8K16F16 => "m16n8k16.row.col.f32.f16.f16.f32",
            Self::M16N8K8Tf32 => "m16n8k8.row.col.f32.tf32.tf32.f32",
        }
    }
}

impl<'m> Ptx<'_, 'm> {
    /// Loads `count` (1, 2 or 4) matrices of 8 × 8 16-bit elements from shared memory, transposed where asked. Lane
    /// `8 i + r` gives the address of row `r` of matrix `i`, aligned to 16 bytes. An `i32` for each matrix.
    pub fn ldmatrix(&self, count: usize, transposed: bool, row: Value<'m>) -> Vec<Value<'m>> {
        let text = format!(
            "ldmatrix.sync.aligned.m8n8.x{count}{}.shared.b16 {{{}}}, [${count}];",
            if transposed { ".trans" } else { "" },
            operand_list(0, count)
        );
        let results = "r".repeat(count);
        let instruction = Instruction { text: &text, results: &results, operands: "r", effects: Effects::Memory };
        self.instruction(instruction, &[self.shared_address(row)])
    }

    /// Stores 1, 2 or 4 matrices of 8 × 8 16-bit elements to shared memory; addresses as for [`Ptx::ldmatrix`].
    pub fn stmatrix(&self, transposed: bool, row: Value<'m>, matrices: &[Value<'m>]) {
        let count = matrices.len();
        let text = format!(
            "stmatrix.sync.aligned.m8n8.x{count}{}.shared.b16 [$0], {{{}}};",
            if transposed { ".trans" } else { "" },
            operand_list(1, count)
        );
        let letters = "r".repeat(count + 1);
        let operands = [&[self.shared_address(row)], matrices].concat();
        self.run(Instruction { text: &text, results: "", operands: &letters, effects: Effects::Memory }, &operands);
    }

    /// `A B + C` of a warp; C and the result are 4 f32.
    pub fn mma(&self, shape: Mma, a: [Value<'m>; 4], b: [Value<'m>; 2], c: [Value<'m>; 4]) -> [Value<'m>; 4] {
        let text = format!(
            "mma.sync.aligned.{} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};",
            shape.text()
        );
        let operands = [&a[..], &b, &c].concat();
        let instruction = Instruction { text: &text, results: "ffff", operands: "rrrrrrffff", effects: Effects::Pure };
        let results = self.instruction(instruction, &operands);
        [results[0], results[1], results[2], results[3]]
    }
}
