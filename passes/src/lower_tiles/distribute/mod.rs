//! `distribute`: from the placed to the thread phase. A tile becomes the registers that one thread holds of it, by
//! its layout; operations on tiles become operations on each register.

mod access;
mod ahead;
mod cluster;
mod consume;
mod dot;
mod edge;
mod elementwise;
mod exchange;
mod flight;
mod gather;
mod mma;
mod order;
mod parts;
mod phases;
mod piped;
mod produce;
mod reduce;
mod scan;
mod share;
mod sort;
mod staged;
mod turns;
mod warpgroup;
mod words;

use super::Options;
use super::emit::{Emit, Ix};
use super::indices::{Indices, Part};
use super::layout::{Distribution, Holder, Layout};
use super::place::is_divided;
use rc_dialects::op;
use rc_ir::{Attr, Block, Body, Dim, Op, OpRef, OpState, Result, Type, Value};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Registers of 32 bits (on a GPU) or vectors (on a CPU) that one tile may take in a thread.
const MAX_REGISTERS: usize = 256;

/// What stands for a value of the source.
#[derive(Clone)]
enum Mapped {
    One(Value),
    Registers(Rc<[Value]>),
    /// The accumulators of a product of warpgroups, as one vector for 64 rows.
    Sums(Rc<[Value]>),
}

/// The work on one function.
struct Distribute<'s> {
    src: &'s Body,
    emit: Emit,
    indices: Indices,
    values: FxHashMap<Value, Mapped>,
    spreads: FxHashMap<Type, Rc<Distribution>>,
    thread_parts: FxHashMap<Vec<(i64, i64, i64, bool)>, Ix>,
    cuda: bool,
    warps: i64,
    /// Bytes of a CPU's vector register.
    vector_bytes: i64,
    /// Registers of a GPU's multiprocessor.
    registers: i64,
    /// Shared memory for elements that change threads, and the bytes from which on it is used again.
    exchanges: Vec<exchange::Exchange>,
    exchange_room: i64,
    /// How many loops enclose the cursor.
    loops: usize,
    /// In a loop that only loads and computes, of which what is loaded element by element lies nearest to the bounds where it would be outside.
    clamps: bool,
    /// In a function whose threads have different roles.
    roles: Option<warpgroup::Roles>,
}

/// The thread-phase form of a placed `kernel.func`.
///
/// # Errors
/// A tile without a layout or with too many registers; operations that are not supported.
pub fn distribute(src: &Body, options: Options) -> Result<Body> {
    let root = src.op_ref(src.root());
    let cuda = root.str("target") == Some("cuda");
    let threads = root.int("threads").unwrap_or(1);
    let entry = root.entry(0).ok_or_else(|| root.error("has no body"))?;
    let mut work = Distribute {
        src,
        emit: Emit::new(src)?,
        indices: Indices::new(src),
        values: FxHashMap::default(),
        spreads: FxHashMap::default(),
        thread_parts: FxHashMap::default(),
        cuda,
        warps: (threads / super::layout::WARP).max(1),
        vector_bytes: options.lanes * 4,
        registers: options.registers,
        exchanges: Vec::new(),
        exchange_room: options.exchange_bytes,
        loops: 0,
        clamps: false,
        roles: None,
    };
    let out_entry = work.emit.entry();
    for (from, to) in src.block_args(entry).zip(work.emit.body.block_args(out_entry).collect::<Vec<_>>()) {
        work.values.insert(from, Mapped::One(to));
    }
    match warpgroup::warpgroup_dots(src).as_slice() {
        [] => {
            work.await_inputs()?;
            work.program(entry)?;
        }
        dots => work.specialized(entry, dots)?,
    }
    let mut out = work.emit.body;
    if cuda {
        share::share_reads(&mut out);
    } else {
        order::compute_before_writes(&mut out);
    }
    out.set_attr(out.root(), "phase", Attr::str("thread"));
    Ok(out)
}

impl<'s> Distribute<'s> {
    /// A block on a GPU may be in place before what it reads is written. The next kernel's blocks may come once all of this one's run.
    fn await_inputs(&mut self) -> Result {
        if self.cuda {
            self.emit.op(op::kernel::GRID_WAIT, &[], &[], None)?;
            self.emit.op(op::kernel::GRID_LAUNCH, &[], &[], None)?;
        }
        Ok(())
    }
    /// All operations of a block of the source, at the cursor.
    fn ops_of(&mut self, block: Block) -> Result {
        let src = self.src;
        src.ops(block).try_for_each(|op| self.op(src.op_ref(op)))
    }

    fn op(&mut self, op: OpRef<'s>) -> Result {
        self.emit.loc = op.loc();
        self.indices.note(op);
        if self.is_address(op.op) {
            return Ok(());
        }
        self.land_what_is_read(op)?;
        match op.name().as_str() {
            op::kernel::LOAD => {
                if self.read_ahead(op)? {
                    Ok(())
                } else {
                    self.load(op)
                }
            }
            op::kernel::GATHER => self.gather(op),
            op::kernel::STORE => self.store(op),
            op::kernel::SCATTER => self.scatter(op),
            op::kernel::REDUCE => self.reduce(op),
            op::kernel::SCAN => self.scan(op),
            op::kernel::SORT => self.sort(op),
            op::kernel::DOT => self.dot(op),
            op::kernel::PACK => self.pack(op),
            op::kernel::IOTA => self.iota(op),
            op::kernel::BROADCAST => self.broadcast(op),
            op::kernel::EXTRACT_SLICE => self.extract_slice(op),
            op::kernel::TRANSPOSE => {
                let perm = op.ints("perm").unwrap_or_default().iter().map(|&p| p as usize).collect::<Vec<_>>();
                self.permute(op, &perm)
            }
            op::kernel::CONVERT_LAYOUT => {
                let same: Vec<usize> = (0..op.result_types()[0].rank()).collect();
                match Layout::of(self.src.ty(op.operand(0))) {
                    Some(Layout::Parts { warps }) => self.sum_parts(op, warps),
                    Some(Layout::Once { .. }) => self.spread_row(op),
                    _ if self.read_staged(op)? => Ok(()),
                    _ => self.permute(op, &same),
                }
            }
            op::kernel::FOR if self.is_piped(op.op) => self.piped_loop(op),
            op::kernel::FOR => self.for_loop(op),
            op::kernel::IF => self.if_op(op),
            _ if !touches_tiles(op) => self.copy(op),
            op::core::CONSTANT => self.tile_constant(op),
            op::kernel::YIELD => {
                let values = self.flatten(op.operands());
                self.emit.op(op::kernel::YIELD, &[&values], &[], None).map(drop)
            }
            _ if op.has(rc_ir::Traits::ELEMENTWISE) => self.elementwise(op),
            _ => Err(op.unsupported("on tiles").help("lower it before lower-tiles")),
        }
    }

    /// An operation that has nothing to do with tiles.
    fn copy(&mut self, op: OpRef<'s>) -> Result {
        if let Some(value) = constant_of(self.src, op.op).filter(|value| value.type_of() == Some(op.result_types()[0]))
        {
            let constant = self.emit.constant(value)?;
            self.values.insert(op.result(0), Mapped::One(constant));
            return Ok(());
        }
        if !self.src.regions(op.op).is_empty() {
            return Err(op.unsupported("with regions inside of a kernel"));
        }
        let operands = self.flatten(op.operands());
        let state = OpState { operands: operands.into(), ..self.src.state(op.op) };
        let copied = self.emit.body.create(state);
        self.emit.body.append(self.emit.block, copied);
        self.bind_results(op, copied);
        Ok(())
    }
    fn bind_results(&mut self, op: OpRef<'s>, copied: Op) {
        for (i, from) in op.results().enumerate() {
            let to = self.emit.body.result(copied, i);
            self.bind(from, to);
        }
    }

    // ---- values ----

    fn bind(&mut self, from: Value, to: Value) {
        let name = self.src.value_name(from);
        if !name.is_empty() && self.emit.body.value_name(to).is_empty() {
            self.emit.body.set_value_name(to, name);
        }
        self.values.insert(from, Mapped::One(to));
    }
    /// Binds a tile to its registers, which take its name.
    fn bind_tile(&mut self, from: Value, registers: Vec<Value>) {
        let name = self.src.value_name(from);
        if !name.is_empty() {
            for &register in &registers {
                if self.emit.body.value_name(register).is_empty() {
                    self.emit.body.set_value_name(register, name);
                }
            }
        }
        self.values.insert(from, Mapped::Registers(registers.into()));
    }
    /// What a value that is not a tile became.
    fn one(&self, value: Value) -> Value {
        match &self.values[&value] {
            Mapped::One(v) => *v,
            _ => unreachable!("a tile where a scalar or memref is declared"),
        }
    }
    fn registers(&self, value: Value) -> Rc<[Value]> {
        match &self.values[&value] {
            Mapped::Registers(r) | Mapped::Sums(r) => r.clone(),
            Mapped::One(v) => Rc::from([*v]),
        }
    }
    fn flatten(&self, values: impl Iterator<Item = Value>) -> Vec<Value> {
        values.flat_map(|v| self.registers(v).to_vec()).collect()
    }
    /// An index of the source, folded where it is known.
    fn ix(&self, value: Value) -> Ix {
        if let Dim::Static(n) = self.indices.dim(value) {
            return Ix::constant(n);
        }
        // A sum with a constant keeps it apart, so that places which differ by one have the rest in common.
        let sum = self.src.defining_op(value).filter(|&op| self.src.name(op) == op::core::ADD);
        let terms = sum.map(|op| [self.src.operand(op, 0), self.src.operand(op, 1)]);
        match terms.map(|[a, b]| (a, self.indices.dim(b))) {
            Some((rest, Dim::Static(n))) if self.values.contains_key(&rest) => self.ix(rest).plus(n),
            _ => Ix::of(self.one(value)),
        }
    }

    // ---- layouts ----

    /// How a tile type is spread over threads and registers.
    fn spread(&mut self, op: OpRef, ty: Type) -> Result<Rc<Distribution>> {
        if let Some(known) = self.spreads.get(&ty) {
            return Ok(known.clone());
        }
        let shape = ty.static_shape().unwrap_or_default();
        let layout = Layout::of(ty)
            .ok_or_else(|| op.error(format!("has {ty} without a layout")).help("run lower-tiles' place first"))?;
        let spread = layout
            .distribute(&shape)
            .ok_or_else(|| op.unsupported(format!("with {ty}, whose sizes the layout does not divide")))?;
        let bytes = spread.vec * ty.elem().byte_width().unwrap_or(4) as i64;
        let unit = if self.cuda { 4 } else { self.vector_bytes.max(1) };
        let registers = spread.registers * bytes.div_euclid(unit).max(1) as usize;
        if registers > MAX_REGISTERS {
            let message =
                format!("with {ty}, which takes {registers} registers of each thread; at most {MAX_REGISTERS} are");
            return Err(op.unsupported(message).help("let the schedule choose a smaller tile or more threads"));
        }
        let spread = Rc::new(spread);
        self.spreads.insert(ty, spread.clone());
        Ok(spread)
    }
    fn spread_of(&mut self, op: OpRef, value: Value) -> Result<Rc<Distribution>> {
        self.spread(op, self.src.ty(value))
    }
    /// The thread's part of a coordinate along dimension `d`.
    fn thread_part(&mut self, spread: &Distribution, d: usize) -> Result<Ix> {
        let digits = |holder| spread.digits(d, holder).map(move |(g, w)| (g.stride, g.size, w, holder == Holder::Lane));
        let key: Vec<_> = digits(Holder::Lane).chain(digits(Holder::Warp)).collect();
        if let Some(&known) = self.thread_parts.get(&key) {
            return Ok(known);
        }
        let mut terms = Vec::new();
        for &(stride, size, weight, lane) in &key {
            terms.push((self.digit(stride, size, lane)?, weight));
        }
        let part = self.emit.combine_digits(&terms)?;
        self.thread_parts.insert(key, part);
        Ok(part)
    }
    fn digit(&mut self, stride: i64, size: i64, lane: bool) -> Result<Value> {
        let own = self.warps * self.roles.as_ref().map_or(1, |roles| roles.turns);
        let warps = if self.has_gatherers() { own + 4 } else { own };
        if lane { self.emit.lane_digit(stride, size) } else { self.emit.warp_digit(stride, size, warps) }
    }

    // ---- control flow ----

    /// A loop whose last step may be cut off runs its whole steps, where accesses need no masks, and then the rest.
    /// On a GPU, where a predicate for a vector costs little, it stays one loop otherwise.
    fn for_loop(&mut self, op: OpRef<'s>) -> Result {
        let init = self.flatten(op.operands().skip(3));
        let (lower, upper, step) = (self.ix(op.operand(0)), self.ix(op.operand(1)), self.ix(op.operand(2)));
        let cut_off = step.value.is_none() && step.plus > 0 && self.indices.has_rest(op);
        let peel = cut_off && self.is_worth_peeling(op)?;
        if !peel {
            let results = self.loop_part(op, [lower, upper, step], &init, Part::All)?;
            self.bind_carried(op.results(), &results);
            return Ok(());
        }
        let whole = self.whole_steps(lower, upper, step.plus)?;
        self.clamps = self.cuda;
        let carried = self.loop_part(op, [lower, whole, step], &init, Part::Whole)?;
        let results = self.loop_rest(op, whole, upper, &carried)?;
        self.clamps = false;
        self.bind_carried(op.results(), &results);
        Ok(())
    }
    /// On a CPU where memory is accessed. On a GPU where a loop loads straight to registers for a product, or element by element: a branch around each of the
    /// loads would keep them from being in flight together, so that in such a loop none is masked ([`Distribute::clamps`]).
    fn is_worth_peeling(&mut self, op: OpRef<'s>) -> Result<bool> {
        if !self.cuda {
            return Ok(accesses_memory(op));
        }
        let Some(entry) = op.entry(0) else { return Ok(false) };
        // Loads and what is computed of them: threads do not wait for one another here.
        let names = [op::kernel::LOAD, op::kernel::IOTA, op::kernel::BROADCAST, op::kernel::YIELD];
        let src = self.src;
        let ops = || src.ops(entry).map(|o| src.op_ref(o));
        if ops().any(|o| is_divided(src, o.op)) {
            return Ok(true);
        }
        let computes = |o: OpRef| o.has(rc_ir::Traits::ELEMENTWISE) || o.has(rc_ir::Traits::CONSTANT);
        if !ops().all(|o| names.iter().any(|name| o.is(name)) || computes(o)) {
            return Ok(false);
        }
        for load in ops().filter(|o| o.is(op::kernel::LOAD)) {
            let spread = self.spread(load, load.result_types()[0])?;
            if spread.registers > 1 && spread.vec == 1 && self.indices.neighbours(load) == 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// `lower + (upper - lower) / step * step`, where `upper` is not below `lower`; else `lower`.
    fn whole_steps(&mut self, lower: Ix, upper: Ix, step: i64) -> Result<Ix> {
        let span = self.emit.sub(upper, lower)?;
        if span.value.is_none() {
            return Ok(lower.plus(span.plus.max(0) / step * step));
        }
        let (span, step, zero) = (self.emit.get(span)?, self.emit.index(step)?, self.emit.index(0)?);
        let span = self.emit.core(op::core::MAX, &[span, zero])?;
        let steps = self.emit.core(op::core::DIV, &[span, step])?;
        let whole = self.emit.core(op::core::MUL, &[steps, step])?;
        self.emit.add(lower, Ix::of(whole))
    }
    fn loop_part(&mut self, op: OpRef<'s>, range: [Ix; 3], init: &[Value], part: Part) -> Result<Vec<Value>> {
        let bounds = [self.emit.get(range[0])?, self.emit.get(range[1])?, self.emit.get(range[2])?];
        let types: Vec<Type> = init.iter().map(|&v| self.emit.ty(v)).collect();
        let unroll: Vec<(&str, Attr)> = op.attr("unroll").map(|a| ("unroll", a)).into_iter().collect();
        let groups: [&[Value]; 4] = [&bounds[..1], &bounds[1..2], &bounds[2..], init];
        let at = self.emit.block;
        let made = self.emit.op(op::kernel::FOR, &groups, &unroll, Some(&types))?;
        let region = self.emit.body.add_region(made);
        let args: Vec<Type> = std::iter::once(Type::index()).chain(types).collect();
        self.emit.block = self.emit.body.add_block(region, &args);
        let args: Vec<Value> = self.emit.body.block_args(self.emit.block).collect();
        self.loops += 1;
        self.loop_body(op, args[0], &args[1..], part)?;
        self.loops -= 1;
        self.emit.block = at;
        Ok(self.emit.body.results(made).collect())
    }
    /// The step that starts at `whole`, where that is below `upper`.
    fn loop_rest(&mut self, op: OpRef<'s>, whole: Ix, upper: Ix, carried: &[Value]) -> Result<Vec<Value>> {
        if whole.value.is_none() && upper.value.is_none() {
            if whole.plus >= upper.plus {
                return Ok(carried.to_vec());
            }
            let counter = self.emit.get(whole)?;
            let src = self.src;
            self.enter_loop(op, counter, carried, Part::Rest)?;
            let Some(entry) = op.entry(0) else { return Ok(Vec::new()) };
            let last = src.last_op(entry);
            for inner in src.ops(entry).filter(|&o| Some(o) != last) {
                self.op(src.op_ref(inner))?;
            }
            return Ok(last.map_or(Vec::new(), |l| self.flatten(src.operands(l))));
        }
        let (counter, end) = (self.emit.get(whole)?, self.emit.get(upper)?);
        let left = self.emit.compare("lt", counter, end)?;
        let types: Vec<Type> = carried.iter().map(|&v| self.emit.ty(v)).collect();
        let made = self.emit.op(op::kernel::IF, &[&[left]], &[], Some(&types))?;
        let at = self.emit.block;
        let then = self.emit.body.add_region(made);
        self.emit.block = self.emit.body.add_block(then, &[]);
        self.loop_body(op, counter, carried, Part::Rest)?;
        if !carried.is_empty() {
            let otherwise = self.emit.body.add_region(made);
            self.emit.block = self.emit.body.add_block(otherwise, &[]);
            self.emit.op(op::kernel::YIELD, &[carried], &[], None)?;
        }
        self.emit.block = at;
        Ok(self.emit.body.results(made).collect())
    }
    fn enter_loop(&mut self, op: OpRef<'s>, counter: Value, carried: &[Value], part: Part) -> Result {
        let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        self.indices.enter(self.src, op.op, part);
        let mut args = self.src.block_args(entry);
        if let Some(first) = args.next() {
            self.bind(first, counter);
        }
        self.bind_carried(args, carried);
        Ok(())
    }
    /// A copy of the loop's body, with its yield, at the cursor.
    fn loop_body(&mut self, op: OpRef<'s>, counter: Value, carried: &[Value], part: Part) -> Result {
        self.enter_loop(op, counter, carried, part)?;
        self.region_ops(op, 0)
    }
    fn region_ops(&mut self, op: OpRef<'s>, region: usize) -> Result {
        let entry = op.entry(region).ok_or_else(|| op.error("has an empty region"))?;
        self.ops_of(entry)?;
        let ends = self.emit.body.last_op(self.emit.block).is_some_and(|o| self.emit.body.name(o) == op::kernel::YIELD);
        if !ends {
            self.emit.op(op::kernel::YIELD, &[&[]], &[], None)?;
        }
        Ok(())
    }
    /// Binds values of the source, tiles included, to a flat list.
    fn bind_carried(&mut self, values: impl Iterator<Item = Value>, flat: &[Value]) {
        let mut rest = flat;
        for value in values {
            let ty = self.src.ty(value);
            match self.spreads.get(&ty).filter(|_| ty.is_tile()) {
                Some(spread) => {
                    let (registers, tail) = rest.split_at(spread.registers);
                    rest = tail;
                    self.bind_tile(value, registers.to_vec());
                }
                None => {
                    let (one, tail) = rest.split_at(1);
                    rest = tail;
                    self.bind(value, one[0]);
                }
            }
        }
    }

    /// Does something where a condition holds; without one, always.
    fn only_if(&mut self, condition: Option<Value>, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let Some(condition) = condition else { return body(self) };
        let made = self.emit.op(op::kernel::IF, &[&[condition]], &[], Some(&[]))?;
        let at = self.emit.block;
        let then = self.emit.body.add_region(made);
        self.emit.block = self.emit.body.add_block(then, &[]);
        body(self)?;
        self.emit.op(op::kernel::YIELD, &[&[]], &[], None)?;
        self.emit.block = at;
        Ok(())
    }

    fn if_op(&mut self, op: OpRef<'s>) -> Result {
        let condition = self.one(op.operand(0));
        let mut types = Vec::new();
        for ty in op.result_types() {
            if ty.is_tile() {
                let spread = self.spread(op, ty)?;
                types.extend(std::iter::repeat_n(spread.register_type(ty.elem()), spread.registers));
            } else {
                types.push(ty);
            }
        }
        let made = self.emit.op(op::kernel::IF, &[&[condition]], &[], Some(&types))?;
        let at = self.emit.block;
        for region in 0..self.src.regions(op.op).len() {
            let to = self.emit.body.add_region(made);
            self.emit.block = self.emit.body.add_block(to, &[]);
            let assumed = self.indices.assume(self.src, op.operand(0), region == 0);
            self.region_ops(op, region)?;
            (0..assumed).for_each(|_| self.indices.facts.forget());
        }
        self.emit.block = at;
        let results: Vec<Value> = self.emit.body.results(made).collect();
        self.bind_carried(op.results(), &results);
        Ok(())
    }
}

/// The value of a constant.
fn constant_of(body: &Body, op: Op) -> Option<Attr> {
    body.op_ref(op).has(rc_ir::Traits::CONSTANT).then(|| body.attr(op, "value")).flatten()
}

fn touches_tiles(op: OpRef) -> bool {
    op.operand_types().iter().any(|t| t.is_tile()) || op.result_types().iter().any(|t| t.is_tile())
}

/// Whether an operation without regions makes a scalar, and that alone.
fn is_scalar(op: OpRef) -> bool {
    let makes_one = op.body.regions(op.op).is_empty() && !touches_tiles(op) && op.results().len() == 1;
    makes_one && (rc_ir::effects::is_pure(op.body, op.op) || op.is(op::kernel::READ))
}

/// Whether a loop loads or stores tiles: what bounds matter for.
fn accesses_memory(op: OpRef) -> bool {
    let names = [op::kernel::LOAD, op::kernel::STORE, op::kernel::GATHER, op::kernel::SCATTER];
    op.body.walk_from(op.op).iter().any(|&o| names.contains(&op.body.name(o).as_str()))
}
