//! The GPU's own instructions: special registers, barriers, asynchronous copies, matrix products, approximations.
//!
//! Operations of the `nvvm` dialect and LLVM intrinsics stand where LLVM 22 has them and lowers them to the very
//! instruction with the right effects. The rest is one table of single PTX instructions ([`Instruction`]), inline.
//! (`griddepcontrol.wait` for one: its intrinsic claims to touch no memory, and loads would move above it.)

mod copy;
mod math;
mod matrix;
mod sync;
mod wgmma;

pub use self::{
    copy::{CacheHint, LoadCache, StoreCache},
    matrix::Mma,
    wgmma::{Major, Swizzle, Wgmma, WgmmaA, WgmmaElement},
};

use super::{Builder, Space, Type, Value};
use melior::ir::ValueLike;

/// One PTX instruction as inline assembly.
#[derive(Clone, Copy, Debug)]
pub struct Instruction<'a> {
    /// PTX, with `$0`, `$1`, … for results and then operands.
    pub text: &'a str,
    /// A letter for each result: `b` predicate, `h` 16 bits, `r` 32 bits, `l` 64 bits, `f` f32, `d` f64.
    pub results: &'a str,
    /// A letter for each operand, as for results; `n` is a constant.
    pub operands: &'a str,
    pub effects: Effects,
}

/// What an instruction does beside making its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: it may be merged, moved or dropped.
    Pure,
    /// It happens each time, in order with other effects, but leaves memory that the program reads alone.
    Ordered,
    /// It reads, writes or orders memory: no access moves across it.
    Memory,
}

/// The instructions without a parameter in their text.
macro_rules! instructions {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $results:literal, $operands:literal, $effects:ident;)+) => {
        $(
            $(#[$doc])*
            pub(in crate::emit::ptx) const $name: $crate::emit::ptx::Instruction<'static> =
                $crate::emit::ptx::Instruction {
                    text: $text,
                    results: $results,
                    operands: $operands,
                    effects: $crate::emit::ptx::Effects::$effects,
                };
        )+
    };
}
pub(in crate::emit::ptx) use instructions;

/// Appends GPU instructions at a builder's insertion point; see [`Builder::ptx`].
#[derive(Clone, Copy)]
pub struct Ptx<'b, 'm> {
    b: &'b Builder<'m>,
}

/// One of the three directions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    X,
    Y,
    Z,
}

impl Axis {
    fn letter(self) -> char {
        match self {
            Self::X => 'x',
            Self::Y => 'y',
            Self::Z => 'z',
        }
    }
}

impl<'b, 'm> Ptx<'b, 'm> {
    pub(super) fn new(b: &'b Builder<'m>) -> Self {
        Self { b }
    }

    /// The thread's number in its block, `i32`.
    pub fn thread_id(&self, axis: Axis) -> Value<'m> {
        self.register(&format!("tid.{}", axis.letter()))
    }

    /// The block's extent in threads, `i32`.
    pub fn block_dim(&self, axis: Axis) -> Value<'m> {
        self.register(&format!("ntid.{}", axis.letter()))
    }

    /// The block's number in the grid, `i32`.
    pub fn block_id(&self, axis: Axis) -> Value<'m> {
        self.register(&format!("ctaid.{}", axis.letter()))
    }

    /// The grid's extent in blocks, `i32`.
    pub fn grid_dim(&self, axis: Axis) -> Value<'m> {
        self.register(&format!("nctaid.{}", axis.letter()))
    }

    /// The block's rank in its cluster, `i32`.
    pub fn cluster_rank(&self) -> Value<'m> {
        self.register("cluster.ctarank")
    }

    /// The thread's lane in its warp, `i32`.
    pub fn lane_id(&self) -> Value<'m> {
        self.register("laneid")
    }

    /// Nanoseconds of a clock that all multiprocessors share, `i64`.
    pub fn global_timer(&self) -> Value<'m> {
        self.b.op1("nvvm.read.ptx.sreg.globaltimer", &[], self.b.ty.i64, &[])
    }

    /// A special register by its name in PTX, `i32`.
    pub fn register(&self, name: &str) -> Value<'m> {
        self.b.op1(&format!("nvvm.read.ptx.sreg.{name}"), &[], self.b.ty.i32, &[])
    }

    /// The 32-bit address in shared memory of a shared pointer; 32-bit integers pass through.
    pub fn shared_address(&self, pointer: Value<'m>) -> Value<'m> {
        if pointer.r#type() == self.b.ty.i32 { pointer } else { self.b.ptrtoint(pointer, self.b.ty.i32) }
    }

    /// A global pointer as the assembler wants it in `[…]`.
    fn global_address(&self, pointer: Value<'m>) -> Value<'m> {
        if pointer.r#type() == self.b.ty.ptr { self.b.space_cast(pointer, Space::Global) } else { pointer }
    }

    /// Appends one instruction.
    pub fn instruction(&self, instruction: Instruction<'_>, operands: &[Value<'m>]) -> Vec<Value<'m>> {
        let results: Vec<_> = instruction.results.chars().map(|letter| self.register_type(letter)).collect();
        let mut constraints: Vec<String> = instruction.results.chars().map(|letter| format!("={letter}")).collect();
        constraints.extend(instruction.operands.chars().map(String::from));
        if instruction.effects == Effects::Memory {
            constraints.push("~{memory}".into());
        }
        let side_effects = instruction.effects != Effects::Pure;
        self.b.inline_asm(instruction.text, &constraints.join(","), operands, &results, side_effects)
    }

    /// Appends an instruction without results.
    fn run(&self, instruction: Instruction<'_>, operands: &[Value<'m>]) {
        self.instruction(instruction, operands);
    }

    /// Appends an instruction with one result.
    fn value(&self, instruction: Instruction<'_>, operands: &[Value<'m>]) -> Value<'m> {
        self.instruction(instruction, operands)[0]
    }

    fn register_type(&self, letter: char) -> Type<'m> {
        let ty = &self.b.ty;
        match letter {
            'b' => ty.i1,
            'h' => ty.i16,
            'l' => ty.i64,
            'f' => ty.f32,
            'd' => ty.f64,
            _ => ty.i32,
        }
    }
}

/// `$first, $first+1, …`, `count` of them.
fn operand_list(first: usize, count: usize) -> String {
    let names: Vec<_> = (first..first + count).map(|index| format!("${index}")).collect();
    names.join(", ")
}
