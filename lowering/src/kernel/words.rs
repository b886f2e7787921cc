//! Dot products of words, by the instructions of a CPU that has them: of vectors, and of tiles.

use super::Lowering;
use super::address::strides;
use super::value::lanes_of;
use crate::backend::Processor;
use crate::emit::{Access, Unroll, Value};
use rc_dialects::kernel::UNIT_TILE;
use rc_dialects::op;
use rc_ir::{self as ir, Body, OpRef, Result};
use rc_machine::Unit;

/// Bytes of a row of a tile, and of a word.
const ROW: i64 = 64;
const WORD: i64 = 4;
/// What the configuration of tiles takes.
const CONFIGURATION: u32 = 64;

/// Whether a kernel multiplies tiles, which are to be configured before.
pub(super) fn uses_tiles(body: &Body) -> bool {
    body.walk().into_iter().any(|op| body.name(op) == op::kernel::DOT_TILES)
}

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn dot_words(&mut self, op: OpRef) -> Result {
        let lanes = lanes_of(self.body.ty(op.result(0)));
        let ty = &self.b.ty;
        let floats = op.attr("of").and_then(|of| of.as_type()) == Some(ir::Type::bf16());
        let (unit, instruction, words, sums) = match floats {
            true => (Unit::Avx512Bf16, "llvm.x86.avx512bf16.dpbf16ps", ty.vector(2 * lanes, ty.bf16), ty.f32),
            false => (Unit::Vnni, "llvm.x86.avx512.vpdpbusd", ty.vector(4 * lanes, ty.i8), ty.i32),
        };
        let has = matches!(self.target, Processor::Cpu(cpu) if cpu.has_unit(unit));
        if !has || !matches!(lanes, 4 | 8 | 16) {
            let error = op.unsupported(format!("with {lanes} lanes on {}", self.target.cpu_name()));
            return Err(error.help(format!("it takes 4, 8 or 16 lanes of a CPU with the unit {}", unit.word())));
        }
        let [a, b] = [0, 1].map(|i| self.b.bitcast(self.values.one(op.operand(i)), words));
        let acc = self.values.one(op.operand(2));
        let name = format!("{instruction}.{}", 32 * lanes);
        let result = self.b.intrinsic1(&name, &[acc, a, b], ty.vector(lanes, sums));
        self.values.set(op.result(0), result);
        Ok(())
    }

    /// Makes all eight tiles ones of 16 rows of 64 bytes, as `uses_tiles` wants them.
    pub(super) fn configure_tiles(&self) {
        let b = self.b;
        let memory = b.alloca(b.ty.i8, i64::from(CONFIGURATION), ROW as u32);
        let put = |at: i32, word: i64| b.store(b.i64(word), b.gep_const(b.ty.i8, memory, at), Access::aligned(8));
        (0..CONFIGURATION as i32).step_by(8).for_each(|at| put(at, 0));
        put(0, 1); // the palette
        // Bytes of a row of each tile, then rows.
        let bytes = (0..4).fold(0, |word, i| word | ROW << (16 * i));
        let rows = (0..8).fold(0, |word, i| word | UNIT_TILE << (8 * i));
        [(16, bytes), (24, bytes), (48, rows)].into_iter().for_each(|(at, word)| put(at, word));
        b.intrinsic("llvm.x86.ldtilecfg", &[memory], None);
    }
    pub(super) fn release_tiles(&self) {
        self.b.intrinsic("llvm.x86.tilerelease", &[], None);
    }

    /// Sums in up to four tiles, one or two of each operand: those of a step are loaded, and each of the one is multiplied with each of the other.
    pub fn dot_tiles(&mut self, op: OpRef) -> Result {
        let of = op.attr("of").and_then(|of| of.as_type()).unwrap_or(ir::Type::bf16());
        if !matches!(self.target, Processor::Cpu(cpu) if cpu.has_unit(Unit::Amx)) {
            let error = op.unsupported(format!("on {}", self.target.cpu_name()));
            return Err(error.help("it takes a CPU with the unit amx"));
        }
        let shape = op.ints("shape").unwrap_or_default();
        let [rows, columns] = [0, 1].map(|d| shape[d] / UNIT_TILE);
        let b = self.b;
        let [left, right, sums] = [self.tile_memory(op, "a")?, self.tile_memory(op, "b")?, self.tile_memory(op, "c")?];
        let number = |tile: i64| b.int(b.ty.i8, tile);
        // Tiles 0 to 3: sums; 4 and 5: the left operand's rows; 6 and 7: the right one's columns.
        let each_sum = || (0..rows).flat_map(|i| (0..columns).map(move |j| (2 * i + j, i, j)));
        for (tile, i, j) in each_sum() {
            match op.bool("add") {
                true => self.tile_access("llvm.x86.tileloadd64", tile, sums, [i, j]),
                false => drop(b.intrinsic("llvm.x86.tilezero", &[number(tile)], None)),
            }
        }
        let count = self.index(op.group("count")[0], b.ty.i64);
        let multiply = if of.is_float() { "llvm.x86.tdpbf16ps" } else { "llvm.x86.tdpbssd" };
        b.for_loop((b.i64(0), count, b.i64(UNIT_TILE)), &[], Unroll::No, |word, _| {
            let left = (b.gep(b.ty.i32, left.0, word), left.1);
            let right = (b.gep(b.ty.i8, right.0, b.mul(word, right.1)), right.1);
            (0..columns).for_each(|j| self.tile_access("llvm.x86.tileloadd64", 6 + j, right, [0, j]));
            for i in 0..rows {
                self.tile_access("llvm.x86.tileloadd64", 4 + i, left, [i, 0]);
                for j in 0..columns {
                    b.intrinsic(multiply, &[number(2 * i + j), number(4 + i), number(6 + j)], None);
                }
            }
            vec![]
        });
        for (tile, i, j) in each_sum() {
            self.tile_access("llvm.x86.tilestored64", tile, sums, [i, j]);
        }
        Ok(())
    }

    /// Where an operand starts, and the bytes from one row to the next.
    fn tile_memory(&mut self, op: OpRef, name: &str) -> Result<(Value<'m>, Value<'m>)> {
        let memref = op.group(name)[0];
        let ty = self.body.ty(memref);
        let start = self.address(op, memref, &op.group(&format!("{name}_indices")))?;
        let row = strides(op, ty)?[ty.rank() - 2];
        let elements = self.dim(row, self.b.ty.i64)?;
        let bytes = ty.elem().byte_width().unwrap_or(1) as i64;
        Ok((start, self.b.mul(elements, self.b.i64(bytes))))
    }

    /// Loads or stores the tile in row `i` and column `j` of tiles.
    fn tile_access(&self, name: &str, tile: i64, (start, stride): (Value<'m>, Value<'m>), [i, j]: [i64; 2]) {
        let b = self.b;
        let row = if i == 0 { start } else { b.gep(b.ty.i8, start, b.mul(stride, b.i64(i * UNIT_TILE))) };
        let place = if j == 0 { row } else { b.gep_const(b.ty.i8, row, (j * UNIT_TILE * WORD) as i32) };
        b.intrinsic(name, &[b.int(b.ty.i8, tile), place, stride], None);
    }
}
