//! Compiled modules: a `host.func` read into a list of steps, and the machine code of its kernels.

mod bands;
mod cpu;
mod cuda;
mod graphs;
mod guard;
mod kernels;
mod load;
pub(crate) use load::while_limit;
mod maps;
mod pace;
mod prepare;
mod profile;
mod queue;
mod record;
mod signature;
mod stretch;
mod timing;
mod turns;
mod uses;

pub use cpu::CpuProgram;
pub use cuda::{CudaInputs, CudaProgram, Source};
pub use guard::{Exact, Guard};
pub use maps::MapParam;
pub use rc_dialects::func::SymbolDecl;
pub use signature::{Bindings, Signature, TensorSpec, evaluate};
pub use turns::{Joined, Turn, join};
pub use uses::Uses;

use crate::DType;
use rc_ir::{Dim, Name};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Addresses of a caller's memory. Those of results may be written while the program runs, before the first step that uses them
/// ([`Program::uses`]).
pub type Addresses = [AtomicU64];

/// What a caller does between a program's outermost steps: called with the number of each before it, and with how many they are after the last.
pub type Between<'a> = &'a mut dyn FnMut(usize) -> crate::Result<()>;

/// Where the arena is.
#[derive(Clone, Copy)]
pub enum Arena<'a> {
    Whole(u64),
    /// The address of each slab, which may be written before the first step that uses it ([`Program::uses`]).
    Slabs(&'a Addresses),
}

/// Fixed addresses.
pub(crate) fn fixed(addresses: impl Iterator<Item = u64>) -> Vec<AtomicU64> {
    addresses.map(AtomicU64::new).collect()
}

/// A planned function: what it takes and gives, its memory and its steps. Sizes are expressions over the function's
/// symbols, which the shapes of the inputs bind.
#[derive(Debug)]
pub struct Program {
    pub name: Name,
    pub signature: Signature,
    /// The inputs that are the same at every call, of those that it reads.
    pub constant_inputs: Vec<usize>,
    /// The inputs whose memory it writes to.
    pub updated_inputs: Vec<usize>,
    /// For each result the input whose memory it is left in, where it has none of its own.
    pub left_in: Vec<Option<usize>>,
    /// Bytes of the arena.
    pub arena: Dim,
    /// Where in the arena its slabs begin and end, which a caller may hold apart; empty where it is held as a whole.
    pub slabs: Vec<(usize, usize)>,
    /// The bytes of constants; [`Place::Constant`] refers to them.
    pub constants: Vec<Constant>,
    pub kernels: Vec<Binary>,
    /// The functions of the process that it calls, by name.
    pub foreign: Vec<String>,
    pub steps: Vec<Step>,
    /// Sizes that have to be equal, the second as expected.
    pub asserts: Vec<(Dim, Dim)>,
    /// Turns after which a `core.while` is an error: the module's `rc.while_limit`.
    pub while_limit: Option<usize>,
    /// On a CPU: which launches threads share.
    pub sharing: pace::Sharing,
    /// Bytes before and after each buffer in the arena that nothing may write to; 0 where it was planned without.
    pub guard: usize,
}

/// A constant: elements in row-major order, or one element for all.
#[derive(Clone, Debug)]
pub struct Constant {
    pub bytes: rc_ir::Blob,
}

/// A kernel's machine code and how it is launched.
#[derive(Clone, Debug)]
pub struct Binary {
    pub name: Name,
    pub code: Code,
    pub threads: u32,
    pub cluster: Option<[u32; 3]>,
    /// Whether the code waits by itself for the kernels launched before it.
    pub early: bool,
    /// Whether blocks on a GPU need the first-level cache.
    pub prefer_l1: bool,
    /// Dynamic shared memory of a block, bytes.
    pub shared: u32,
    /// Memory of a CPU thread, bytes.
    pub scratch: usize,
    /// Its symbols, in the order in which it takes their values.
    pub symbols: Vec<Name>,
    pub grid: [Dim; 3],
    /// Whether a GPU's code takes all addresses as one parameter.
    pub table: bool,
    /// Tensor maps among its parameters, in their order.
    pub maps: Vec<MapParam>,
    pub arch: String,
}

#[derive(Clone, Debug)]
pub enum Code {
    /// Relocatable object code for the CPU.
    Elf(rc_ir::Blob),
    /// Text for the GPU's driver to assemble.
    Ptx(rc_ir::Blob),
}

/// Memory that a program works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    Input(usize),
    Output(usize),
    /// This slab of the arena, in which offsets count from the arena's start.
    Arena(usize),
    Constant(usize),
}

/// A place in memory: an offset in bytes, over the function's symbols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub memory: Memory,
    pub offset: Dim,
    /// What each turn of the loops around it adds: (how many loops are around the loop, bytes).
    pub turns: SmallVec<[(usize, Dim); 1]>,
    /// The bytes of the buffer that it is the start of, where bands lie around it (`guard`).
    pub guarded: Option<Dim>,
}

/// How many launches back those are that a launch waits for; nothing where it waits for all before it.
pub type After = Option<Arc<[usize]>>;

#[derive(Clone, Debug)]
pub enum Step {
    /// Runs a kernel: its pointers, the values of its symbols, its grid, over the function's symbols.
    Launch {
        kernel: usize,
        args: Vec<Place>,
        symbols: Vec<Dim>,
        grid: [Dim; 3],
        after: After,
    },
    Copy {
        from: Place,
        to: Place,
        bytes: Dim,
    },
    /// The first steps where the byte at the condition is not 0, else the second.
    If {
        condition: Place,
        branches: [Vec<Step>; 2],
    },
    Loop(Box<Loop>),
    Foreign(Box<Foreign>),
}

/// A call of a function of the process.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Which of the program's.
    pub function: usize,
    pub config: String,
    pub sizes: Vec<Dim>,
    pub args: Vec<Passed>,
    pub results: Vec<Passed>,
}

/// Memory that a function of the process is given.
#[derive(Clone, Debug)]
pub struct Passed {
    pub place: Place,
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

/// Steps that run again and again: in even turns the first of each pair, in odd ones the second, whose values have changed their places.
#[derive(Clone, Debug)]
pub struct Loop {
    pub until: Until,
    pub body: [Vec<Step>; 2],
    /// What brings the values back to where they began, after an odd number of turns.
    pub back: Vec<Step>,
}

/// When a loop ends.
#[derive(Clone, Debug)]
pub enum Until {
    /// After so many turns.
    Times(Dim),
    /// When steps before a turn leave 0 in the byte.
    False { test: [Vec<Step>; 2], flag: Place },
}
