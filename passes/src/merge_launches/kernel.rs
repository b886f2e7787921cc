//! The kernel that has the programs of several.

use rc_dialects::func::symbols;
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::clone::Mapping;
use rc_ir::{Attr, Block, Body, Builder, Dim, Name, Op, Type, Value};

/// What a program needs no shared memory and no other program for.
const ALONE: &[&str] = &[
    op::kernel::PROGRAM_ID,
    op::kernel::THREAD_ID,
    op::kernel::EXTENT,
    op::kernel::VIEW,
    op::kernel::READ,
    op::kernel::WRITE,
    op::kernel::PREFETCH,
    op::kernel::FOR,
    op::kernel::IF,
    op::kernel::YIELD,
    op::kernel::SPLAT,
    op::kernel::EXTRACT,
    op::kernel::INSERT,
    op::kernel::CONCAT,
    op::kernel::SLICE,
    op::kernel::VECTOR_REDUCE,
    op::kernel::BITCAST,
    op::kernel::APPROX,
    op::kernel::SHUFFLE,
    op::kernel::RETURN,
    op::kernel::GRID_WAIT,
    op::kernel::GRID_LAUNCH,
];

/// What launches of one kernel share: each block has it for itself.
const OF_BLOCK: &[&str] = &[
    op::kernel::ALLOC,
    op::kernel::BARRIER,
    op::kernel::ELECT,
    op::kernel::FENCE,
    op::kernel::ASYNC_COPY,
    op::kernel::ASYNC_COMMIT,
    op::kernel::ASYNC_WAIT,
    op::kernel::ASYNC_ARRIVE,
    op::kernel::MBARRIER_INIT,
    op::kernel::MBARRIER_EXPECT,
    op::kernel::MBARRIER_ARRIVE,
    op::kernel::MBARRIER_WAIT,
    op::kernel::TENSOR_PREFETCH,
    op::kernel::BOX_PREFETCH,
    op::kernel::TENSOR_LOAD,
    op::kernel::TENSOR_STORE,
    op::kernel::BULK_COMMIT,
    op::kernel::BULK_WAIT,
    op::kernel::SET_MAX_REGISTERS,
    op::kernel::LDMATRIX,
    op::kernel::STMATRIX,
    op::kernel::MMA,
    op::kernel::WGMMA,
    op::kernel::WGMMA_FENCE,
    op::kernel::WGMMA_COMMIT,
    op::kernel::WGMMA_WAIT,
    op::kernel::CLUSTER_RANK,
    op::kernel::CLUSTER_BARRIER,
];

/// What only reads the memory of a tensor map, or asks for it.
const MAP_READS: &[&str] = &[op::kernel::TENSOR_LOAD, op::kernel::TENSOR_PREFETCH, op::kernel::BOX_PREFETCH];

/// What merging asks of a kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Whether it may be one of several.
    pub merges: bool,
    /// Whether several launches of it may become one.
    pub repeats: bool,
    pub threads: i64,
    /// Programs of a launch.
    pub programs: i64,
    /// Whether it waits by itself for the kernels before it.
    pub early: bool,
    /// Whether subnormal numbers count as zero.
    pub flush: bool,
    /// Whether its blocks need the first-level cache.
    pub prefer_l1: bool,
    /// Which arguments it writes to.
    pub writes: Vec<bool>,
}

impl Kernel {
    /// Whether their launches may be one, on a machine with so many cores. Of blocks with more threads than a kernel has, the others do nothing:
    /// that is nothing lost where a launch has no program for each core.
    pub fn joins(&self, other: &Kernel, cores: i64) -> bool {
        let (fewer, more) = if self.threads < other.threads { (self, other) } else { (other, self) };
        let kept = |kernel: &Kernel| (kernel.early, kernel.flush, kernel.prefer_l1);
        let alike = kept(self) == kept(other);
        alike && (fewer.threads == more.threads || fewer.programs <= cores)
    }

    pub fn of(kernel: &Body) -> Kernel {
        let root = kernel.op_ref(kernel.root());
        let args: Vec<Value> = kernel.entry().into_iter().flat_map(|entry| kernel.block_args(entry)).collect();
        let early = kernel.walk().into_iter().any(|op| kernel.name(op) == op::kernel::GRID_WAIT);
        Kernel {
            merges: root.str("phase") == Some("thread") && is_alone(kernel, false),
            repeats: root.str("phase") == Some("thread") && is_alone(kernel, true),
            threads: root.int("threads").unwrap_or(1),
            programs: programs(kernel).unwrap_or(0),
            early,
            flush: root.bool("flush"),
            prefer_l1: root.bool("prefer_l1"),
            writes: (0..args.len()).map(|i| is_written(kernel, args[i]) || is_stored_to(kernel, &args, i)).collect(),
        }
    }
}

/// Whether a program needs nothing but its number to know its work; with other launches of the same kernel alone, its block's threads
/// may share memory too, and it may have tensor maps.
fn is_alone(kernel: &Body, alike: bool) -> bool {
    let Some(entry) = kernel.entry() else { return false };
    let of_program = |op: Op| {
        [op::kernel::PROGRAM_ID, op::kernel::GRID_WAIT, op::kernel::GRID_LAUNCH].contains(&kernel.name(op).as_str())
    };
    let known = |op: Op| match kernel.name(op).as_str() {
        name if alike && OF_BLOCK.contains(&name) => true,
        // Of so many threads, that may be fewer than the merged kernel's.
        op::kernel::BARRIER => kernel.attr(op, "threads").is_some(),
        name => kernel.name(op).dialect() == "core" || ALONE.contains(&name),
    };
    let ops: Vec<Op> = kernel.walk().into_iter().filter(|&op| op != kernel.root()).collect();
    let plain = |name: &str| kernel.attr(kernel.root(), name).is_none();
    let others = kernel.block_args(entry).filter(|&arg| !kernel.ty(arg).is_memref()).count();
    (alike || plain("cluster") && plain("min_blocks") && plain("tensor_maps"))
        && symbols(kernel).is_empty()
        && programs(kernel).is_some_and(|n| n > 0)
        && others == maps(kernel).iter().filter(|map| described(**map).is_some()).count()
        && ops.iter().all(|&op| known(op) && (alike || !of_program(op) || kernel.parent(op) == Some(entry)))
}

/// What a kernel's tensor maps describe: its last arguments.
fn maps(kernel: &Body) -> &[Attr] {
    kernel.attr(kernel.root(), "tensor_maps").and_then(|a| a.as_array()).unwrap_or_default()
}

/// The argument whose memory a tensor map describes.
fn described(map: Attr) -> Option<usize> {
    usize::try_from(map.get("arg")?.as_int()?).ok()
}

/// A tensor map that describes another argument's memory.
fn describing(map: Attr, arg: usize) -> Attr {
    let params = map.as_dialect("tensor_map").unwrap_or_default();
    let param = |&(name, value): &(Name, Attr)| match name.as_str() {
        "arg" => ("arg", Attr::i64(arg as i64)),
        name => (name, value),
    };
    Attr::dialect("tensor_map", &params.iter().map(param).collect::<Vec<_>>())
}

/// Whether anything but a read uses an argument, or a view of it.
fn is_written(kernel: &Body, memory: Value) -> bool {
    kernel.uses(memory).any(|(op, _)| match kernel.name(op).as_str() {
        op::kernel::VIEW => is_written(kernel, kernel.result(op, 0)),
        // Asynchronous copies go to shared memory.
        name => ![op::kernel::READ, op::kernel::PREFETCH, op::kernel::ASYNC_COPY].contains(&name),
    })
}

/// Whether the copy engine stores to an argument: through a tensor map of its memory, which is an argument of its own.
fn is_stored_to(kernel: &Body, args: &[Value], arg: usize) -> bool {
    let of_maps = args.iter().filter(|&&a| !kernel.ty(a).is_memref());
    of_maps.zip(maps(kernel)).any(|(&map, about)| {
        let stores = || kernel.uses(map).any(|(op, _)| !MAP_READS.contains(&kernel.name(op).as_str()));
        described(*about) == Some(arg) && stores()
    })
}

fn grid(kernel: &Body) -> [Option<i64>; 3] {
    let dims = kernel.attr(kernel.root(), "grid").and_then(|a| a.as_shape()).unwrap_or_default();
    [0, 1, 2].map(|axis| dims.get(axis).map_or(Some(1), |dim| dim.as_static()))
}

/// How many programs a launch has.
pub fn programs(kernel: &Body) -> Option<i64> {
    let [x, y, z] = grid(kernel);
    x?.checked_mul(y?)?.checked_mul(z?)
}

/// A kernel's launches, each with its operands.
pub struct Member<'a> {
    pub kernel: &'a Body,
    pub launches: Vec<Vec<Value>>,
}

impl Member<'_> {
    /// The buffers of one argument: one for each launch, or one for all.
    fn buffers(&self, arg: usize) -> Vec<Value> {
        let mut all: Vec<Value> = self.launches.iter().map(|operands| operands[arg]).collect();
        if all.iter().all(|value| *value == all[0]) {
            all.truncate(1);
        }
        all
    }
    /// The arguments that are buffers: one for each operand of a launch. Tensor maps come after them.
    fn args(&self) -> Vec<Value> {
        let args = self.kernel.entry().into_iter().flat_map(|entry| self.kernel.block_args(entry));
        args.filter(|&arg| self.kernel.ty(arg).is_memref()).collect()
    }
    /// The tensor maps among a merged kernel's arguments, where it has no other member: of each as many as of its buffer.
    fn maps(&self) -> Vec<(Value, Vec<Attr>)> {
        let entry = self.kernel.entry().into_iter().flat_map(|entry| self.kernel.block_args(entry));
        let of_buffer = |(arg, map): (Value, &Attr)| {
            let buffer = described(*map).unwrap_or_default();
            let first = (0..buffer).map(|i| self.buffers(i).len()).sum::<usize>();
            (arg, (0..self.buffers(buffer).len()).map(|i| describing(*map, first + i)).collect())
        };
        entry.filter(|&arg| !self.kernel.ty(arg).is_memref()).zip(maps(self.kernel)).map(of_buffer).collect()
    }
    fn threads(&self) -> i64 {
        self.kernel.op_ref(self.kernel.root()).int("threads").unwrap_or(1)
    }
    fn programs(&self) -> i64 {
        programs(self.kernel).unwrap_or(0) * self.launches.len() as i64
    }
}

/// The kernel of all members' launches, and its operands.
pub fn merge(name: &str, members: &[Member], early: bool) -> (Body, Vec<Value>) {
    let mut types: Vec<Type> = Vec::new();
    let mut operands: Vec<Value> = Vec::new();
    for member in members {
        for (i, &arg) in member.args().iter().enumerate() {
            let buffers = member.buffers(i);
            types.extend(vec![member.kernel.ty(arg); buffers.len()]);
            operands.extend(buffers);
        }
    }
    let first = members[0].kernel;
    // Only launches of one kernel have any.
    let maps: Vec<Attr> = members[0].maps().into_iter().flat_map(|map| map.1).collect();
    types.extend(vec![Type::dialect("tensor_map", &[]); maps.len()]);
    let made = new_function(op::kernel::FUNC, name, &types, &[], first.loc(first.root()));
    let mut ends = Vec::new();
    let total = members.iter().fold(0, |sum, member| {
        ends.push(sum + member.programs());
        sum + member.programs()
    });
    let mut merging = Merging { members, ends, args: made.args.clone(), body: made.body };
    let threads = members.iter().map(Member::threads).max().unwrap_or(1);
    let root = merging.body.root();
    merging.body.set_attr(root, "threads", Attr::i64(threads));
    if !maps.is_empty() {
        merging.body.set_attr(root, "tensor_maps", Attr::array(&maps));
    }
    for kept in ["phase", "target", "flush", "cluster", "min_blocks", "prefer_l1", "origin"] {
        if let Some(value) = first.attr(first.root(), kept) {
            let root = merging.body.root();
            merging.body.set_attr(root, kept, value);
        }
    }
    let root = merging.body.root();
    merging.body.set_attr(root, "grid", Attr::shape(&[Dim::Static(total), Dim::Static(1), Dim::Static(1)]));
    let mut b = Builder::at_end(&mut merging.body, made.entry);
    // Launches of one kernel wait where it does.
    if early && members.len() > 1 {
        b.op(op::kernel::GRID_WAIT).build();
        b.op(op::kernel::GRID_LAUNCH).build();
    }
    let program = b.op(op::kernel::PROGRAM_ID).attr("axis", Attr::i64(0)).value();
    merging.among(made.entry, program, 0, members.len());
    Builder::at_end(&mut merging.body, made.entry).op(op::kernel::RETURN).build();
    (merging.body, operands)
}

struct Merging<'a> {
    members: &'a [Member<'a>],
    /// The number of the first program after each member's.
    ends: Vec<i64>,
    args: Vec<Value>,
    body: Body,
}

impl Merging<'_> {
    /// A program of one of the members `low` to `high`.
    fn among(&mut self, block: Block, program: Value, low: usize, high: usize) {
        if high - low == 1 {
            self.one(block, program, low);
            return;
        }
        let middle = (low + high) / 2;
        let mut b = Builder::at_end(&mut self.body, block);
        let bound = index(&mut b, self.ends[middle - 1]);
        let below = b.op(op::core::COMPARE).operand(program).operand(bound).attr("kind", Attr::str("lt")).value();
        let branch = b.op(op::kernel::IF).operand(below).results(&[]).regions(2).build();
        let regions = self.body.regions(branch);
        for (region, (low, high)) in regions.into_iter().zip([(low, middle), (middle, high)]) {
            let block = self.body.add_block(region, &[]);
            self.among(block, program, low, high);
            Builder::at_end(&mut self.body, block).op(op::kernel::YIELD).build();
        }
    }

    /// A program of one member.
    fn one(&mut self, block: Block, program: Value, number: usize) {
        let member = &self.members[number];
        let mut block = block;
        let threads = self.body.op_ref(self.body.root()).int("threads").unwrap_or(1);
        if member.threads() < threads {
            let mut b = Builder::at_end(&mut self.body, block);
            let (thread, own) = (b.op(op::kernel::THREAD_ID).value(), index(&mut b, member.threads()));
            let works = b.op(op::core::COMPARE).operand(thread).operand(own).attr("kind", Attr::str("lt")).value();
            let branch = b.op(op::kernel::IF).operand(works).results(&[]).regions(1).build();
            let region = self.body.regions(branch)[0];
            block = self.body.add_block(region, &[]);
        }
        let start = self.ends[number] - member.programs();
        let mut b = Builder::at_end(&mut self.body, block);
        let mut at = program;
        if start > 0 {
            let (start, zero) = (index(&mut b, start), index(&mut b, 0));
            at = binary(&mut b, op::core::SUB, at, start);
            // It is not negative here, which the code generator is to know.
            at = binary(&mut b, op::core::MAX, at, zero);
        }
        let [x, y, _] = grid(member.kernel).map(|extent| extent.unwrap_or(1));
        let [launch, at] = split(&mut b, at, programs(member.kernel).unwrap_or(1), member.launches.len() > 1);
        let [rest, at_x] = split(&mut b, at, x, programs(member.kernel) != Some(x));
        let [at_z, at_y] = split(&mut b, rest, y, programs(member.kernel) != Some(x * y));
        let mut map = Mapping::new();
        let mut next = self.members[..number]
            .iter()
            .map(|m| (0..m.args().len()).map(|i| m.buffers(i).len()).sum::<usize>())
            .sum::<usize>();
        let buffers = member.args().into_iter().enumerate().map(|(i, arg)| (arg, member.buffers(i).len()));
        let maps = member.maps().into_iter().map(|(arg, maps)| (arg, maps.len()));
        for (arg, count) in buffers.chain(maps) {
            let buffers = &self.args[next..next + count];
            next += count;
            let memory = match buffers {
                [one] => *one,
                _ => b.op(op::kernel::CHOOSE).operand(launch).operands(buffers).result(member.kernel.ty(arg)).value(),
            };
            map.map(arg, memory);
        }
        let entry = member.kernel.entry().expect("merged kernels have a body");
        for op in member.kernel.ops(entry) {
            match member.kernel.name(op).as_str() {
                op::kernel::RETURN => {}
                op::kernel::GRID_WAIT | op::kernel::GRID_LAUNCH if self.members.len() > 1 => {}
                op::kernel::PROGRAM_ID => {
                    let axis = member.kernel.op_ref(op).int("axis").unwrap_or(0);
                    map.map(member.kernel.result(op, 0), [at_x, at_y, at_z][axis.clamp(0, 2) as usize]);
                }
                _ => {
                    let copy = self.body.clone_from_body(member.kernel, op, &mut map);
                    self.body.append(block, copy);
                    self.number_programs(copy, [at_x, at_y, at_z]);
                }
            }
        }
        if member.threads() < threads {
            Builder::at_end(&mut self.body, block).op(op::kernel::YIELD).build();
        }
    }

    /// Gives programs their numbers in their own launch, where an operation's regions ask for them.
    fn number_programs(&mut self, op: Op, at: [Value; 3]) {
        let asks = |op: &Op| self.body.name(*op) == op::kernel::PROGRAM_ID;
        for op in self.body.walk_from(op).into_iter().filter(asks).collect::<Vec<_>>() {
            let axis = self.body.op_ref(op).int("axis").unwrap_or(0);
            self.body.replace_all_uses(self.body.result(op, 0), at[axis.clamp(0, 2) as usize]);
            self.body.erase(op);
        }
    }
}

/// Quotient and remainder by a count, or 0 and the number where it is known to be less.
fn split(b: &mut Builder, at: Value, count: i64, several: bool) -> [Value; 2] {
    if !several {
        return [index(b, 0), at];
    }
    let by = index(b, count);
    [binary(b, op::core::DIV, at, by), binary(b, op::core::REM, at, by)]
}

fn binary(b: &mut Builder, op: &str, x: Value, y: Value) -> Value {
    b.op(op).operand(x).operand(y).value()
}

fn index(b: &mut Builder, n: i64) -> Value {
    b.op(op::core::CONSTANT).attr("value", Attr::int(n, Type::index())).result(Type::index()).value()
}
