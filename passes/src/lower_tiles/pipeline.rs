//! Pipelines on a GPU: where a loop loads tiles for its products, the loads of later steps are started before the products
//! of this one. Shared memory has several stages; copies into them are `kernel.store` with `async`, visible after
//! `kernel.async_wait` and a barrier.

use super::Options;
use super::groups::run_of;
use super::layout::Layout;
use super::place::{is_divided, is_warpgroup};
use rc_dialects::op;
use rc_ir::body::ValueDef;
use rc_ir::{Attr, Block, Body, Builder, Dim, InsertPoint, Mapping, Op, OpRef, Result, Traits, Type, Value};

/// The attribute of a store of a loaded tile that may complete later.
pub const ASYNC: &str = "async";

/// A load whose places a loop's counter says: one that only products of the loop read, or a small one.
struct Stream {
    load: Op,
    /// What computes its indices from the loop's counter, in order.
    indices: Vec<Op>,
    memory: Option<Value>,
}

/// Pipelines every loop that can be.
pub fn pipeline_loops(body: &mut Body, options: Options) -> Result {
    let loops: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::kernel::FOR).collect();
    for op in loops {
        let streams = streams(body, op);
        let bytes: i64 = streams.iter().map(|s| bytes_of(body.ty(body.result(s.load, 0)))).sum();
        let usual = options.stages.min(options.stage_bytes / bytes.max(1));
        let stages = if bytes > 0 { body.op_ref(op).int("stages").unwrap_or(usual) } else { 0 };
        let ahead = if stages > 1 { small_loads(body, op, &streams) } else { rows(body, op) };
        let op = read_ahead(body, op, &ahead)?;
        if stages > 1 {
            pipeline(body, op, streams, stages)?;
        }
    }
    Ok(())
}

fn bytes_of(tile: Type) -> i64 {
    tile.static_shape().unwrap_or_default().iter().product::<i64>() * tile.elem().byte_width().unwrap_or(4) as i64
}

fn streams(body: &Body, for_op: Op) -> Vec<Stream> {
    let Some(block) = body.op_ref(for_op).entry(0) else { return Vec::new() };
    let mut found: Vec<Stream> = Vec::new();
    let staged = |op: &Op| body.name(*op) == op::kernel::DOT && !is_warpgroup(body, *op) && !is_divided(body, *op);
    for dot in body.ops(block).filter(staged) {
        for i in 0..2 {
            let tile = body.operand(dot, i);
            let copied = |op: &Op| body.name(*op) == op::kernel::LOAD || copies_runs(body.op_ref(*op));
            let Some(load) = body.defining_op(tile).filter(|op| copied(op) && body.parent(*op) == Some(block)) else {
                continue;
            };
            let other = body.op_ref(load).attr("other").and_then(|a| a.as_float()).unwrap_or(0.0);
            let by_products = body.uses(tile).all(|(user, _)| staged(&user) && body.parent(user) == Some(block));
            let known = found.iter().any(|stream| stream.load == load);
            if by_products && !known && other == 0.0 {
                found.extend(by_counter(body, block, load));
            }
        }
    }
    found
}

/// A load of a loop's block, if the loop's counter says its places in memory that lies outside.
fn by_counter(body: &Body, block: Block, load: Op) -> Option<Stream> {
    let mut indices = Vec::new();
    let follows = body.operands(load).skip(1).all(|v| collect(body, block, v, &mut indices));
    let memory_is_outside = body.defining_block(body.operand(load, 0)) != Some(block);
    indices.sort_by_key(|op| op.index());
    indices.dedup();
    (follows && memory_is_outside).then_some(Stream { load, indices, memory: None })
}

/// Elements of a tile that a thread reads a step ahead, at most: they stay in its registers.
const AHEAD: i64 = 16;

/// Small loads of a pipelined loop beside its streams, such as of a mask.
fn small_loads(body: &Body, for_op: Op, streams: &[Stream]) -> Vec<Stream> {
    let Some(block) = body.op_ref(for_op).entry(0) else { return Vec::new() };
    let threads = body.op_ref(body.root()).int("threads").unwrap_or(1);
    let small = |load: &Op| {
        let elements = body.ty(body.result(*load, 0)).num_elements().as_static();
        elements.is_some_and(|n| n <= AHEAD * threads)
    };
    let beside = |op: &Op| body.name(*op) == op::kernel::LOAD && !streams.iter().any(|s| s.load == *op);
    body.ops(block).filter(|op| beside(op) && small(op)).filter_map(|load| by_counter(body, block, load)).collect()
}

/// Rows that a loop of products on warpgroups loads for itself, of which a thread has few elements.
fn rows(body: &Body, for_op: Op) -> Vec<Stream> {
    let Some(block) = body.op_ref(for_op).entry(0) else { return Vec::new() };
    let multiplies = body.ops(block).any(|op| is_warpgroup(body, op));
    let rows = body.ops(block).filter(|&op| multiplies && is_row(body, op));
    rows.filter_map(|load| by_counter(body, block, load)).collect()
}

/// Whether it loads a row of which a lane has few elements.
fn is_row(body: &Body, op: Op) -> bool {
    body.name(op) == op::kernel::LOAD && matches!(Layout::of(body.ty(body.result(op, 0))), Some(Layout::Once { .. }))
}

/// The loop with these loads a step ahead: a step begins with what the one before it has read, and nothing waits for memory after the copies have come.
fn read_ahead(body: &mut Body, for_op: Op, loads: &[Stream]) -> Result<Op> {
    let mut for_op = for_op;
    for load in loads {
        let [lower, _, step] = [0, 1, 2].map(|i| body.operand(for_op, i));
        let block = body.op_ref(for_op).entry(0).expect("verified");
        let counter = body.block_arg(block, 0);
        let first = load_at(body, for_op, load, counter, lower);
        let at = place_of_next(body, block, load.load);
        let next = Builder::before(body, at).op(op::core::ADD).operand(counter).operand(step).try_value()?;
        let next = load_at(body, at, load, counter, next);
        let (made, block, here) = with_carried(body, for_op, first)?;
        body.replace_all_uses(body.result(load.load, 0), here);
        body.erase(load.load);
        let last = body.last_op(block).expect("a loop yields");
        let yielded: Vec<Value> = body.operands(last).chain([next]).collect();
        body.set_operands(last, &yielded);
        for_op = made;
    }
    Ok(for_op)
}

/// Before which operation of a step the next one's tile is loaded: as late as the last product, which covers some of its time, since the step's sums take registers
/// until then. A row takes next to none: it is loaded when this step's has been read, into the same registers, so that nothing waits for it to be moved.
fn place_of_next(body: &Body, block: Block, load: Op) -> Op {
    let tile = body.result(load, 0);
    if is_row(body, load) {
        let last = body.ops(block).rfind(|&op| body.operands(op).any(|v| v == tile)).expect("the loop reads it");
        return body.next_op(last).expect("a loop yields");
    }
    body.ops(block).rfind(|&op| body.name(op) == op::kernel::DOT).expect("reads a stream")
}

/// A copy of a load where the loop's counter is `at`.
fn load_at(body: &mut Body, before: Op, load: &Stream, counter: Value, at: Value) -> Value {
    let mut map = Mapping::new();
    map.map(counter, at);
    for &op in load.indices.iter().chain([&load.load]) {
        let copied = body.clone_op(op, &mut map);
        body.insert_before(before, copied);
    }
    map.lookup(body.result(load.load, 0))
}

/// Whether an operation gathers runs of neighbours that are copied at once, from memory in one piece.
fn copies_runs(op: OpRef) -> bool {
    let bytes = |run: i64| run * op.result_types()[0].elem().byte_width().unwrap_or(1) as i64;
    let last = op.result_types().first().map_or(0, |ty| ty.rank().saturating_sub(1));
    op.is(op::kernel::GATHER)
        && op.body.ty(op.operand(0)).rank() == 1
        && run_of(op).is_some_and(|(dim, run)| dim == last && matches!(bytes(run), 4 | 8 | 16 | 32))
}

/// Adds what computes `value` in `block`; false where that is more than arithmetic on the counter.
fn collect(body: &Body, block: Block, value: Value, out: &mut Vec<Op>) -> bool {
    match body.def(value) {
        ValueDef::Argument(of, i) => of != block || i == 0,
        ValueDef::Result(op, _) if body.parent(op) != Some(block) => true,
        ValueDef::Result(op, _) => {
            let at = body.op_ref(op);
            let simple = at.has(Traits::ELEMENTWISE) || at.has(Traits::CONSTANT) || at.is(op::kernel::EXTENT);
            let places = at.is(op::kernel::IOTA) || at.is(op::kernel::BROADCAST);
            out.push(op);
            let of_places = body.ty(value).is_tile() && (simple || places);
            (simple && body.ty(value).is_index() || of_places)
                && body.operands(op).all(|v| collect(body, block, v, out))
        }
    }
}

fn pipeline(body: &mut Body, for_op: Op, mut streams: Vec<Stream>, stages: i64) -> Result {
    for stream in &mut streams {
        let tile = body.result(stream.load, 0);
        let (ty, name) = (body.ty(tile), body.value_name(tile));
        let shape: Vec<Dim> = std::iter::once(Dim::Static(stages)).chain(ty.shape()).collect();
        let first = body.entry().and_then(|entry| body.first_op(entry)).expect("a kernel has operations");
        let mut b = Builder::before(body, first);
        let memory = b
            .op(op::kernel::ALLOC)
            .attr("align", Attr::i64(1024))
            .result(Type::memref(&shape, ty.elem(), 3))
            .try_value()?;
        if !name.is_empty() {
            b.name(memory, &format!("{name}_stages"));
        }
        stream.memory = Some(memory);
    }
    let [lower, upper, step] = [0, 1, 2].map(|i| body.operand(for_op, i));
    let block = body.op_ref(for_op).entry(0).expect("verified");
    let counter = body.block_arg(block, 0);
    prologue(body, for_op, &streams, counter, [lower, upper, step], stages)?;
    let (block, stage) = with_stage_counter(body, for_op)?;
    let counter = body.block_arg(block, 0);

    // At the start of each step: its tiles are there, and everyone is done with those before.
    let first = body.first_op(block).expect("a loop yields");
    let mut b = Builder::before(body, first);
    b.op(op::kernel::ASYNC_WAIT).attr("pending", Attr::i64(stages - 2)).try_build()?;
    b.op(op::kernel::BARRIER).try_build()?;
    let distance = index(&mut b, stages - 1)?;
    let span = b.op(op::core::MUL).operand(step).operand(distance).try_value()?;
    let ahead = b.op(op::core::ADD).operand(counter).operand(span).try_value()?;
    let filled = b.op(op::core::ADD).operand(stage).operand(distance).try_value()?;
    let count = index(&mut b, stages)?;
    let filled = b.op(op::core::REM).operand(filled).operand(count).try_value()?;
    issue(body, InsertPoint::Before(first), &streams, counter, ahead, upper, filled)?;
    for stream in &streams {
        let tile = body.result(stream.load, 0);
        let ty = Type::memref(&body.ty(tile).shape(), body.ty(tile).elem(), 3);
        let memory = stream.memory.expect("allocated");
        let mut b = Builder::before(body, stream.load);
        let view = b.op(op::kernel::VIEW).operands(&[memory]).operands(&[stage]).result(ty).try_value()?;
        body.replace_all_uses(tile, view);
        body.erase(stream.load);
    }
    let last = body.last_op(block).expect("a loop yields");
    let mut yielded: Vec<Value> = body.operands(last).collect();
    let mut b = Builder::before(body, last);
    let (one, count) = (index(&mut b, 1)?, index(&mut b, stages)?);
    let after = b.op(op::core::ADD).operand(stage).operand(one).try_value()?;
    yielded.push(b.op(op::core::REM).operand(after).operand(count).try_value()?);
    body.set_operands(last, &yielded);
    Ok(())
}

fn index(b: &mut Builder, n: i64) -> Result<Value> {
    b.op(op::core::CONSTANT).attr("value", Attr::index(n)).result(Type::index()).try_value()
}

/// The copies of the first steps, in front of the loop.
fn prologue(
    body: &mut Body,
    for_op: Op,
    streams: &[Stream],
    counter: Value,
    [lower, upper, step]: [Value; 3],
    stages: i64,
) -> Result {
    if body.parent_op(for_op) != Some(body.root()) {
        // The last steps of an earlier run of this loop may still be read.
        Builder::before(body, for_op).op(op::kernel::BARRIER).try_build()?;
    }
    for s in 0..stages - 1 {
        let mut b = Builder::before(body, for_op);
        let stage = index(&mut b, s)?;
        let at = if s == 0 {
            lower
        } else {
            let span = b.op(op::core::MUL).operand(step).operand(stage).try_value()?;
            b.op(op::core::ADD).operand(lower).operand(span).try_value()?
        };
        issue(body, InsertPoint::Before(for_op), streams, counter, at, upper, stage)?;
    }
    Ok(())
}

/// Starts the copies of the step at `at`, if it is one, into a stage, and closes their group.
fn issue(
    body: &mut Body,
    point: InsertPoint,
    streams: &[Stream],
    counter: Value,
    at: Value,
    upper: Value,
    stage: Value,
) -> Result {
    let loc = body.loc(streams[0].load);
    let mut b = Builder { body, at: point, loc };
    let inside = b.op(op::core::COMPARE).operand(at).operand(upper).attr("kind", Attr::str("lt")).try_value()?;
    let branch = b.op(op::kernel::IF).operand(inside).results(&[]).regions(1).try_build()?;
    b.op(op::kernel::ASYNC_COMMIT).try_build()?;
    let region = body.regions(branch)[0];
    let block = body.add_block(region, &[]);
    let end = Builder { body, at: InsertPoint::End(block), loc }.op(op::kernel::YIELD).try_build()?;
    for stream in streams {
        let tile = load_at(body, end, stream, counter, at);
        let (ty, memory) = (body.ty(tile), stream.memory.expect("allocated"));
        let mut b = Builder { body, at: InsertPoint::Before(end), loc };
        let view = Type::memref(&ty.shape(), ty.elem(), 3);
        let view = b.op(op::kernel::VIEW).operands(&[memory]).operands(&[stage]).result(view).try_value()?;
        let zero = index(&mut b, 0)?;
        let store = b.op(op::kernel::STORE).operand(tile).operand(view).operands(&vec![zero; ty.rank()]);
        let dims: Vec<i64> = (0..ty.rank() as i64).collect();
        store.attr("dims", Attr::i64s(&dims)).attr(ASYNC, Attr::bool(true)).try_build()?;
    }
    Ok(())
}

/// The loop with the number of the stage, which it does not yield yet. Gives its block and that value.
fn with_stage_counter(body: &mut Body, for_op: Op) -> Result<(Block, Value)> {
    let zero = index(&mut Builder::before(body, for_op), 0)?;
    let (_, block, stage) = with_carried(body, for_op, zero)?;
    body.set_value_name(stage, rc_ir::Name::new("stage"));
    Ok((block, stage))
}

/// The loop with one more carried value, which begins as `first`, and which it does not yield yet; its block, and that value there.
fn with_carried(body: &mut Body, for_op: Op, first: Value) -> Result<(Op, Block, Value)> {
    let mut state = body.state(for_op);
    let carried = body.ty(first);
    state.operands.push(first);
    state.results.push(carried);
    let old_block = body.op_ref(for_op).entry(0).expect("verified");
    let new = body.create(state);
    body.insert_before(for_op, new);
    let region = body.regions(new)[0];
    let old_args: Vec<Value> = body.block_args(old_block).collect();
    let types: Vec<Type> = old_args.iter().map(|&v| body.ty(v)).chain([carried]).collect();
    let block = body.add_block(region, &types);
    let new_args: Vec<Value> = body.block_args(block).collect();
    for (&old, &new) in old_args.iter().zip(&new_args) {
        let name = body.value_name(old);
        body.replace_all_uses(old, new);
        body.set_value_name(new, name);
    }
    for op in body.ops(old_block).collect::<Vec<_>>() {
        body.move_to_end(block, op);
    }
    let results: Vec<(Value, Value)> = body.results(for_op).zip(body.results(new)).collect();
    for (old, new) in results {
        let name = body.value_name(old);
        body.replace_all_uses(old, new);
        body.set_value_name(new, name);
    }
    body.erase(for_op);
    Ok((new, block, *new_args.last().expect("just added")))
}
