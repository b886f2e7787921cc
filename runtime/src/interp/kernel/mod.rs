//! The `kernel` dialect: programs of a grid, run one by one, those of a cluster together; in the thread phase, the threads of a block in turn.
//!
//! | file | runs |
//! |---|---|
//! | `code`, `registers`, `block` | instructions, values that share registers, threads, who waits for whom |
//! | `tile` | tiles: load, gather, store, reduce, dot |
//! | `thread` | a thread's reads, writes, vectors |
//! | `words` | words of several elements, and their products |
//! | `warp` | what a warp or warpgroup does together |
//! | `barriers`, `copies` | barriers, mbarriers, asynchronous copies |

mod barriers;
mod block;
mod code;
mod copies;
mod ops;
mod registers;
mod thread;
mod tile;
mod warp;
mod words;

use rc_dialects::op;
use rc_ir::{Diagnostic, OpRef, Result};

use super::exec::Frame;
use super::memory::{Clock, Memory};
use super::value::Value;
use barriers::Mbarriers;
use block::{Program, Thread};
use copies::Copies;

/// Programs and threads at most; more would not end in time.
const MAX_PROGRAMS: i64 = 1 << 24;

/// Runs a kernel over its grid. `frame` is an activation of the `kernel.func`, `args` its memory.
pub(crate) fn launch(frame: &Frame, memory: &mut Memory, args: &[Value]) -> Result {
    let root = frame.body.op_ref(frame.body.root());
    let grid = frame.sizes(root, "grid")?;
    let whole = root.str("phase") != Some("thread");
    let block = if whole { 1 } else { root.int("threads").unwrap_or(1).clamp(1, 4096) as usize };
    let count = grid.iter().try_fold(1i64, |n, &g| n.checked_mul(g)).unwrap_or(i64::MAX);
    if grid.iter().any(|&g| g < 0) || count > MAX_PROGRAMS {
        return Err(root.error(format!("has the grid {grid:?}, which the interpreter does not run")));
    }
    let cluster = cluster(root, &grid)?;
    let blocks: i64 = cluster.iter().product();
    let threads = blocks as usize * block;
    let code = code::compile(frame)?;
    let races = count > 1 || threads > 1;
    let watched: Vec<usize> =
        if races { written(root).iter().filter_map(|&i| buffer_of(args.get(i)?)).collect() } else { Vec::new() };
    watched.iter().for_each(|&b| memory.watch(b));
    let kept = memory.count();
    let order = Order::new(frame.interp.order);
    for number in order.of((count / blocks) as usize, 0) {
        let clusters = [0, 1, 2].map(|axis| grid.get(axis).map_or(1, |n| n / cluster[axis]));
        let first = place(number as i64, clusters);
        let id = |rank: i64| {
            let inner = place(rank, cluster);
            [0, 1, 2].map(|axis| first[axis] * cluster[axis] + inner[axis])
        };
        let registers = entry_registers(root, &code, args)?;
        let thread = || Thread {
            pc: 0,
            registers: registers.clone(),
            clock: Clock::new(threads + 1),
            copies: Copies::default(),
            done: false,
            meeting: false,
            fenced: 0,
        };
        let mut program = Program {
            frame,
            code: &code,
            memory,
            threads: (0..threads).map(|_| thread()).collect(),
            block,
            ids: (0..blocks).map(id).collect(),
            number: number as u32,
            allocations: Default::default(),
            mbarriers: Mbarriers::default(),
            visits: Default::default(),
            engine: 0,
        };
        program.run(&order.of(threads, number as u64 + 1))?;
        memory.truncate(kept);
    }
    watched.iter().for_each(|&b| memory.unwatch(b));
    Ok(())
}

/// Blocks of a cluster along x, y, z.
fn cluster(root: OpRef, grid: &[i64]) -> Result<[i64; 3]> {
    let given = root.ints("cluster").unwrap_or_default();
    let cluster = [0, 1, 2].map(|axis| given.get(axis).copied().unwrap_or(1));
    let extents = [0, 1, 2].map(|axis| grid.get(axis).copied().unwrap_or(1));
    let divides = cluster.iter().zip(extents).all(|(&n, extent)| n > 0 && extent % n == 0);
    if !divides || cluster.iter().product::<i64>() > 16 {
        return Err(root.error(format!("has clusters of {cluster:?} blocks in a grid of {extents:?}")));
    }
    Ok(cluster)
}

/// The place with a number in a grid, x the fastest.
fn place(number: i64, extents: [i64; 3]) -> [i64; 3] {
    let mut rest = number;
    extents.map(|extent| {
        let at = rest % extent;
        rest /= extent;
        at
    })
}

/// The registers at the start: the kernel's arguments.
fn entry_registers(root: OpRef, code: &code::Code, args: &[Value]) -> Result<Vec<Option<Value>>> {
    let mut registers = vec![None; code.registers];
    let count = code.arguments.len();
    if count != args.len() {
        return Err(root.error(format!("takes {count} arguments, and {} were given", args.len())));
    }
    code.arguments.iter().zip(args).for_each(|(&register, arg)| registers[register] = Some(arg.clone()));
    Ok(registers)
}

/// The numbers of the arguments that the kernel may write.
pub(crate) fn written(root: OpRef) -> Vec<usize> {
    let body = root.body;
    let Some(entry) = root.entry(0) else { return Vec::new() };
    let mut arguments: Vec<usize> = Vec::new();
    for op in body.walk() {
        let op = body.op_ref(op);
        let target = match op.name().as_str() {
            op::kernel::STORE
            | op::kernel::SCATTER
            | op::kernel::WRITE
            | op::kernel::ATOMIC
            | op::kernel::TENSOR_STORE => op.operands().nth(1),
            op::kernel::DOT_TILES => op.group("c").first().copied(),
            _ => None,
        };
        // Through views, back to arguments.
        let mut waiting: Vec<_> = target.into_iter().collect();
        while let Some(value) = waiting.pop() {
            arguments.extend(body.block_args(entry).position(|a| a == value));
            match body.defining_op(value).map(|op| (op, body.name(op).as_str())) {
                Some((view, op::kernel::VIEW)) => waiting.push(body.operand(view, 0)),
                Some((choice, op::kernel::CHOOSE)) => waiting.extend(body.operands(choice).skip(1)),
                _ => {}
            }
        }
    }
    arguments.sort_unstable();
    arguments.dedup();
    arguments
}

/// The buffer behind an argument.
fn buffer_of(arg: &Value) -> Option<usize> {
    match arg {
        Value::Memory(memref) => Some(memref.buffer),
        Value::TensorMap(map) => Some(map.tensor.buffer),
        _ => None,
    }
}

/// In which order programs, and the threads of one, get their turns: ascending, or shuffled by a seed.
struct Order(Option<u64>);

impl Order {
    fn new(seed: Option<u64>) -> Order {
        Order(seed)
    }
    fn of(&self, count: usize, stream: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        let Some(seed) = self.0 else { return order };
        // xorshift64*, whose state must not be zero.
        let mut state = (seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        for i in (1..count).rev() {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
            order.swap(i, (random % (i as u64 + 1)) as usize);
        }
        order
    }
}

/// An error about an index outside of its dimension.
fn outside(op: OpRef, what: &str, index: i64, dim: usize, size: usize) -> Box<Diagnostic> {
    op.error(format!("{what} index {index} along dimension {dim}, which has {size}"))
}

/// The row-major position of an element, or the dimension along which the index is outside.
fn position(shape: &[usize], index: &[i64]) -> std::result::Result<usize, usize> {
    let mut at = 0;
    for (d, (&i, &size)) in index.iter().zip(shape).enumerate() {
        if i < 0 || i as usize >= size {
            return Err(d);
        }
        at = at * size + i as usize;
    }
    Ok(at)
}
