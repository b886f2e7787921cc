//! `place`: from the tile to the placed phase. Every tile gets a layout; on a GPU, operands of products go to shared
//! memory, and tiles that memory holds in another order are loaded in that order and converted.

use super::Options;
use super::groups::{Group, consecutive_dim, gathers_runs, groups, run_of, steps_of};
use super::indices::{GPU_ACCESS, Indices};
use super::layout::{Layout, WARP};
use super::once::hold_rows_once;
use super::pipeline::pipeline_loops;
use crate::schedule::row_width;
use rc_dialects::op;
use rc_ir::attr::AttrData;
use rc_ir::{Attr, Block, Body, Builder, InsertPoint, Op, OpRef, Result, Type, Value, ValueDef};
use rustc_hash::FxHashMap;

/// The placed form of a `kernel.func` in the tile phase. `lanes` is the CPU's f32 vector width.
///
/// # Errors
/// A product whose unit does not fit its tile sizes.
pub fn place(src: &Body, options: Options) -> Result<Body> {
    let lanes = options.lanes;
    let mut body = src.clone();
    let root = body.op_ref(body.root());
    let cuda = root.str("target") == Some("cuda");
    let threads = root.int("threads").unwrap_or(1);
    if cuda && threads % WARP != 0 {
        return Err(root.unsupported(format!("with {threads} threads")).help("choose a multiple of 32"));
    }
    if cuda {
        sum_parts_after_loops(&mut body, threads / WARP)?;
    }
    for group in groups(&body) {
        let layout = if cuda { gpu_layout(&body, &group, threads / WARP)? } else { cpu_layout(&body, &group, lanes) };
        set_layout(&mut body, &group, &layout);
    }
    match cuda {
        true => convert_where_memory_differs(&mut body, &|group, dim| Some(memory_layout(group, dim, threads / WARP)))?,
        false => convert_where_memory_differs(&mut body, &|group, dim| square_layout(group, dim, lanes))?,
    }
    if cuda {
        hold_rows_once(&mut body)?;
        pipeline_loops(&mut body, options)?;
        stage_operands(&mut body)?;
    }
    body.set_attr(body.root(), "phase", Attr::str("placed"));
    Ok(body)
}

// ---- choice of layouts ----

/// One thread: vectors along the dimension that memory or the product wants; scalars for what a product repeats.
fn cpu_layout(body: &Body, group: &Group, lanes: i64) -> Layout {
    let rank = group.shape.len();
    let repeated = !group.left_of.is_empty() && group.accumulates.is_empty() && group.right_of.is_empty();
    if repeated && !group.stored && group.reduced.is_empty() {
        return Layout::single(rank, 1, rank.saturating_sub(1));
    }
    let product = group.right_of.first().map(|&op| usize::from(!body.op_ref(op).bool("b_t")));
    let dim = if group.accumulates.is_empty() { product } else { Some(1) };
    Layout::single(rank, lanes, dim.unwrap_or_else(|| vector_dim(group, &group.consecutive)))
}

/// The dimension along which most of the memory accesses are consecutive, by their `elements`; else the last with several elements.
fn vector_dim(group: &Group, elements: &[i64]) -> usize {
    let best = (0..group.shape.len()).rev().max_by_key(|&d| (elements[d], group.shape[d] > 1, d));
    best.unwrap_or(0)
}

fn gpu_layout(body: &Body, group: &Group, warps: i64) -> Result<Layout> {
    if let Some(&dot) = group.accumulates.iter().find(|&&op| is_warpgroup(body, op)) {
        return warpgroup_layout(body, dot, warps);
    }
    if let Some(&dot) = group.left_of.iter().chain(&group.right_of).find(|&&op| is_warpgroup(body, op)) {
        return shared_layout(body, group, dot);
    }
    if group.accumulates.iter().any(|&op| is_divided(body, op)) {
        return Ok(Layout::Parts { warps });
    }
    if group.left_of.iter().chain(&group.right_of).any(|&op| is_divided(body, op)) {
        return Ok(Layout::divided(warps));
    }
    if let Some(&gather) = group.places_of.iter().chain(&group.gathered_by).next() {
        return Ok(gather_layout(body, gather, warps, group.places_of.is_empty()));
    }
    let mma: Vec<OpRef> =
        group.accumulates.iter().map(|&op| body.op_ref(op)).filter(|op| op.str("unit") == Some("mma")).collect();
    if !mma.is_empty() {
        return mma_layout(body, group, &mma, warps);
    }
    if !group.accumulates.is_empty() {
        return Ok(product_layout(body, group, warps));
    }
    if group.sorted {
        return Ok(sorted_layout(group, warps));
    }
    let elements: Vec<i64> = group.consecutive.iter().zip(&group.near).map(|(a, b)| a + b).collect();
    Ok(memory_layout(group, vector_dim(group, &elements), warps))
}

/// Of tiles that are scanned across what is contiguous, `dim`: lanes along it, and each thread has neighbours along the scan.
fn scanned_layout(shape: &[i64], scanned: usize, dim: usize, warps: i64) -> Layout {
    let columns = 1 << shape[dim].trailing_zeros().min(WARP.trailing_zeros());
    let along = |of_scan: i64, of_columns: i64| {
        (0..shape.len())
            .map(|d| {
                if d == scanned {
                    of_scan
                } else if d == dim {
                    of_columns
                } else {
                    1
                }
            })
            .collect()
    };
    let each = (shape[scanned] / (WARP / columns * warps)).max(1);
    Layout::Blocked {
        vec: 1,
        dim,
        own: Some((scanned, each)),
        lanes: along(WARP / columns, columns),
        warps: along(warps, 1),
    }
}

/// Of tiles whose rows are sorted: each thread has neighbouring elements, as one vector.
fn sorted_layout(group: &Group, warps: i64) -> Layout {
    let total: i64 = group.shape.iter().product();
    blocked(&group.shape, group.shape.len() - 1, total / (warps * WARP), warps, false)
}

/// Of the places of a gather in runs, and of the runs themselves (`whole`): each thread holds the places of its runs. A line of 128 bytes is spread over
/// neighbouring lanes, and rows over others and over warps, so that a thread knows the places of few rows. What a product on warpgroups reads is gathered by four warps.
fn gather_layout(body: &Body, gather: Op, warps: i64, whole: bool) -> Layout {
    let op = body.op_ref(gather);
    let (dim, run) = run_of(op).expect("a gather in runs");
    let shape = body.ty(op.group("where")[0]).static_shape().unwrap_or_default();
    let produced = body.uses(op.result(0)).any(|(user, _)| is_warpgroup(body, user));
    let warps = if produced { 4 } else { warps };
    let others = (0..shape.len()).filter(|&d| d != dim);
    let rows: i64 = others.clone().map(|d| 1 << shape[d].trailing_zeros()).product();
    let line = (row_width(op.result_types()[0].elem()) / run).max(WARP / rows);
    let mut rest = shape.clone();
    rest[dim] = rest[dim].min(line);
    let lanes = hand_out(&mut rest, &[dim].into_iter().chain(others.clone()).collect::<Vec<_>>(), WARP);
    let mut rest: Vec<i64> = shape.iter().zip(&lanes).map(|(n, lanes)| (n / lanes).max(1)).collect();
    let warps = hand_out(&mut rest, &others.chain([dim]).collect::<Vec<_>>(), warps);
    Layout::Blocked { vec: if whole { run } else { 1 }, dim, own: None, lanes, warps }
}

pub fn is_warpgroup(body: &Body, dot: Op) -> bool {
    body.op_ref(dot).str("unit") == Some("wgmma")
}

/// Whether it is a product whose k warps divide.
pub fn is_divided(body: &Body, op: Op) -> bool {
    body.name(op) == op::kernel::DOT && body.op_ref(op).attr("parts").is_some()
}

/// Whether it is a load, or a gather in runs.
fn is_load(op: OpRef) -> bool {
    op.is(op::kernel::LOAD) || gathers_runs(op)
}

/// Products of which each warp has a part of the sums: what comes out of their loops is the sums of the parts.
fn sum_parts_after_loops(body: &mut Body, warps: i64) -> Result {
    for dot in body.walk().into_iter().filter(|&op| is_divided(body, op)).collect::<Vec<_>>() {
        let op = body.op_ref(dot);
        let fits = op.str("unit") == Some("mma") && op.int("parts") == Some(warps);
        let sums = sums_of_parts(body, dot).filter(|_| fits).ok_or_else(|| {
            op.unsupported(format!("with parts in {warps} warps"))
                .help("parts take unit = mma, as many of them as warps, and sums that start at zero and that loops do nothing else with")
        })?;
        let (ty, users) = (body.ty(sums), body.uses(sums).collect::<Vec<_>>());
        let made = body.defining_op(sums).expect("a loop's or a product's result");
        let mut b = Builder::after(body, made);
        let whole = b.op(op::kernel::CONVERT_LAYOUT).operand(sums).result(ty).try_value()?;
        users.into_iter().for_each(|(user, at)| body.set_operand(user, at, whole));
    }
    Ok(())
}
/// What a product's sums are after the loops that carry them, where these start at zero: every warp starts with all of them.
fn sums_of_parts(body: &Body, dot: Op) -> Option<Value> {
    let (mut start, mut sums) = (body.operand(dot, 2), body.result(dot, 0));
    while let ValueDef::Argument(block, at) = body.def(start) {
        let once = |value| body.uses(value).count() == 1;
        let (user, i) = body.uses(sums).next()?;
        let carried = body.name(user) == op::kernel::YIELD && i + 1 == at && once(sums) && once(start);
        let looped = body.parent_op(user).filter(|&op| carried && body.name(op) == op::kernel::FOR)?;
        (body.op_ref(looped).entry(0) == Some(block)).then_some(())?;
        (start, sums) = (body.operand(looped, 3 + i), body.result(looped, i));
    }
    let zero = rc_ir::op_def::constant_of(body, start)?;
    matches!(zero.data(), AttrData::Dense { data, .. } if data.splat && data.bytes.iter().all(|&b| b == 0))
        .then_some(sums)
}

/// Operands of `wgmma` stay in shared memory, where the copy engine puts them.
fn shared_layout(body: &Body, group: &Group, dot: Op) -> Result<Layout> {
    let loaded = |&tile: &Value| {
        let load = body.defining_op(tile).filter(|&op| is_load(body.op_ref(op)));
        let beside = |user: Op| is_warpgroup(body, user) && body.parent(user) == body.parent(dot);
        load.is_some() && body.uses(tile).all(|(user, _)| beside(user))
    };
    let looped = body.parent_op(dot).filter(|&op| body.name(op) == op::kernel::FOR);
    let (Some(looped), true) = (looped, group.tiles.iter().all(loaded)) else {
        let error =
            body.op_ref(dot).unsupported("with unit = wgmma for operands that are not loaded for it, in a loop");
        return Err(error.help("choose unit = mma"));
    };
    let least = if steps_of(body.op_ref(looped)).is_some_and(|n| n <= 1) { 1 } else { 2 };
    Ok(Layout::Shared { stages: body.op_ref(looped).int("stages").unwrap_or(4).max(least) })
}
/// The accumulators of `wgmma`: each warp has 16 rows of the 64 of its warpgroup, once or several times.
fn warpgroup_layout(body: &Body, dot: Op, warps: i64) -> Result<Layout> {
    let ty = body.ty(body.result(dot, 0));
    match ty.static_shape().as_deref() {
        Some(&[m, n]) if m % (16 * warps) == 0 && warps % 4 == 0 && n % 8 == 0 && n <= 256 => Ok(Layout::Mma { warps: [warps, 1] }),
        _ => Err(body
            .op_ref(dot)
            .unsupported(format!("with unit = wgmma for {ty} in {warps} warps"))
            .help("a warpgroup of four warps takes multiples of 64 rows, and up to 256 columns in steps of 8: change the schedule's tile or threads")),
    }
}

/// For products in exact arithmetic: 4 x 8 lanes, warps so that each reads the least of a and b. Columns are vectors where b lies
/// [k, n] in shared memory; where it lies [n, k], lanes have neighbouring columns, whose rows lie in different banks. Where a lies [k, m], each thread has
/// neighbouring rows, which it reads together.
fn product_layout(body: &Body, group: &Group, warps: i64) -> Layout {
    let (m, n) = (group.shape[0], group.shape.get(1).copied().unwrap_or(1));
    let by_rows = group.accumulates.iter().any(|&op| body.op_ref(op).bool("b_t"));
    let vec = if by_rows { 1 } else { power_below(n.min(4)) };
    let columns = (n / vec).clamp(1, 8);
    let lanes = vec![WARP / power_below(columns), power_below(columns)];
    let rest = [(m / lanes[0]).max(1), (n / vec / lanes[1]).max(1)];
    let splits = (0..).map(|i| 1 << i).take_while(|&rows| rows <= warps).map(|rows| (rows, warps / rows));
    let cost = |&(rows, columns): &(i64, i64)| {
        ((rest[0] + rows - 1) / rows + vec * ((rest[1] + columns - 1) / columns), columns)
    };
    let (rows, columns) = splits.min_by_key(cost).unwrap_or((warps, 1));
    let each = m / (lanes[0] * rows);
    let turned = group.accumulates.iter().all(|&op| body.op_ref(op).bool("a_t"));
    let own = (turned && each > 1 && m % (lanes[0] * rows) == 0).then(|| (0, 1 << each.trailing_zeros().min(2)));
    Layout::Blocked { vec, dim: 1, own: own.filter(|own| own.1 > 1), lanes, warps: vec![rows, columns] }
}

/// Accesses of 16 bytes, where there is work enough for all threads and the memory's rows are aligned so. What is gathered one by one at places
/// along the dimension goes to neighbouring lanes.
fn memory_layout(group: &Group, dim: usize, warps: i64) -> Layout {
    if let Some(scanned) = group.scanned.filter(|&scanned| scanned != dim) {
        return scanned_layout(&group.shape, scanned, dim, warps);
    }
    // What threads can share out, which is by powers of two: the rest of a dimension is in each.
    let total: i64 = group.shape.iter().map(|n| 1 << n.trailing_zeros()).product();
    let of = |counts: &[i64]| counts.get(dim).copied().unwrap_or(0);
    let most = if of(&group.places) > of(&group.consecutive) { 1 } else { group.neighbours() };
    let wide = (GPU_ACCESS / group.narrowest.max(1)).min(most);
    let mut vec = power_below(wide.min(total / (warps * WARP)).max(1));
    // Columns that are reduced stay with one thread where each has several.
    let each = group.shape[dim] / (warps * WARP);
    if each > 1 && group.reduced.iter().any(|&d| d != dim) {
        vec = vec.min(power_below(each));
    }
    // Rows that are reduced stay with one warp where there are rows enough.
    let rows_first = group.reduced.contains(&dim);
    // Rows of a few elements that are read moved stay with one thread, which knows where in the row each of its elements is; and so do those whose
    // elements share arithmetic, as the coordinates of a point share its distance: each of several lanes would do it. Every thread has a row then.
    let shares = group.repeated.get(dim).is_some_and(|&times| times > 0) && total / (warps * WARP) >= group.shape[dim];
    let alone = group.slides.map_or(shares, |s| s.0 == dim);
    if alone && (2..=FEW).contains(&group.shape[dim]) && !rows_first {
        return blocked(&group.shape, dim, group.shape[dim], warps, false);
    }
    let Some((slides, most)) = group.slides.filter(|s| s.0 != dim) else {
        return blocked(&group.shape, dim, vec, warps, rows_first);
    };
    // What windows share is read once where one thread has the neighbours. Other neighbours make none of its loads fewer where windows start anywhere.
    vec = vec.min(most);
    let each = (total / (warps * WARP * vec)).clamp(1, group.shape[slides]);
    let mut shape = group.shape.clone();
    shape[slides] /= each;
    match blocked(&shape, dim, vec, warps, rows_first) {
        Layout::Blocked { vec, dim, lanes, warps, .. } => {
            Layout::Blocked { vec, dim, own: Some((slides, each)), lanes, warps }
        }
        other => other,
    }
}

/// Elements of the rows that a thread has to itself, at most.
const FEW: i64 = 4;

/// Lanes along the vectors' dimension first, then along the others from the last; warps likewise, or first along the others.
fn blocked(shape: &[i64], dim: usize, vec: i64, warps: i64, spread_warps: bool) -> Layout {
    let mut order: Vec<usize> = (0..shape.len()).rev().filter(|&d| d != dim).collect();
    order.insert(0, dim);
    let vec = power_below(vec.min(shape.get(dim).copied().unwrap_or(1)));
    let mut rest: Vec<i64> = shape.to_vec();
    if let Some(n) = rest.get_mut(dim) {
        *n = (*n / vec).max(1);
    }
    let lanes = hand_out(&mut rest, &order, WARP);
    if spread_warps {
        order.rotate_left(1);
    }
    let warps = hand_out(&mut rest, &order, warps);
    Layout::Blocked { vec, dim, own: None, lanes, warps }
}

/// Gives out `count` lanes or warps over dimensions in order, a power of two that divides the elements that each has left; what remains,
/// which holds copies, to the first dimension.
fn hand_out(rest: &mut [i64], order: &[usize], count: i64) -> Vec<i64> {
    let mut given = vec![1; rest.len()];
    let mut left = count;
    for &d in order {
        let take = 1 << rest[d].trailing_zeros().min(left.trailing_zeros());
        given[d] = take;
        rest[d] /= take;
        left /= take;
    }
    if let Some(&first) = order.first() {
        given[first] *= left;
    }
    given
}

/// The largest power of two that is at most `n`.
fn power_below(n: i64) -> i64 {
    if n < 2 { 1 } else { 1 << (63 - n.leading_zeros()) }
}

/// Warps split the accumulators so that each reads the least of a and b; rows that are reduced, or go into another
/// product, stay with one warp.
fn mma_layout(body: &Body, group: &Group, dots: &[OpRef], warps: i64) -> Result<Layout> {
    let keep_rows = group.reduced.contains(&1) || !group.left_of.is_empty();
    let shapes: Vec<Vec<i64>> = dots.iter().map(|op| op.result_types()[0].static_shape().unwrap_or_default()).collect();
    let fits = |&(m, n): &(i64, i64)| {
        shapes.iter().all(|s| s[0] % (16 * m) == 0 && s[1] % (16 * n) == 0) && !(keep_rows && n > 1)
    };
    let cost = |&(m, n): &(i64, i64)| (shapes.iter().map(|s| s[0] / m + s[1] / n).sum::<i64>(), n);
    let splits = (0..).map(|i| 1 << i).take_while(|&m| m <= warps).filter(|m| warps % m == 0).map(|m| (m, warps / m));
    let best = splits.filter(fits).min_by_key(cost);
    let (m, n) = best.ok_or_else(|| {
        let (op, ty) = (dots[0], body.ty(dots[0].result(0)));
        let rows = if keep_rows { " with whole rows in each (they are reduced or multiplied again)" } else { "" };
        op.unsupported(format!("with unit = mma for {ty} in {warps} warps{rows}"))
            .help("each warp needs a multiple of 16 rows and 16 columns: change the schedule's tile or threads")
    })?;
    Ok(Layout::Mma { warps: [m, n] })
}

fn set_layout(body: &mut Body, group: &Group, layout: &Layout) {
    for &tile in &group.tiles {
        if Layout::of(body.ty(tile)).is_none() {
            give(body, tile, layout);
        }
    }
}
/// Sets the layout of a tile's type, and of the constant that it may be.
pub fn give(body: &mut Body, tile: Value, layout: &Layout) {
    let ty = body.ty(tile);
    let ty = Type::tile(&ty.static_shape().unwrap_or_default(), ty.elem(), Some(layout.to_attr()));
    body.set_ty(tile, ty);
    let Some(op) = body.defining_op(tile).filter(|&op| body.name(op) == op::core::CONSTANT) else { return };
    if let Some(AttrData::Dense { data, .. }) = body.attr(op, "value").map(|a| a.data()) {
        let value = Attr::new(AttrData::Dense { ty, data: data.clone() });
        body.set_attr(op, "value", value);
    }
}

// ---- memory in another order ----

/// A CPU's layout with vectors along `dim`, for tiles of squares: those are turned in registers.
fn square_layout(group: &Group, dim: usize, lanes: i64) -> Option<Layout> {
    let squares = lanes >= 4 && group.shape.iter().filter(|&&n| n > 1 && n % lanes == 0).count() == 2;
    squares.then(|| Layout::single(group.shape.len(), lanes, dim))
}

/// Loads, stores and scatters whose consecutive dimension is not their layout's go through a layout of their own, which `layout` says, if it has one.
fn convert_where_memory_differs(body: &mut Body, layout: &dyn Fn(&Group, usize) -> Option<Layout>) -> Result {
    let mut indices = Indices::new(body);
    for op in body.walk() {
        indices.meet(body, op);
        let load = body.name(op) == op::kernel::LOAD;
        if !load && ![op::kernel::STORE, op::kernel::SCATTER].iter().any(|name| body.name(op) == *name) {
            continue;
        }
        let tile = if load { body.result(op, 0) } else { body.operand(op, 0) };
        let (ty, consecutive) = (body.ty(tile), consecutive_dim(body.op_ref(op)));
        let (Some(Layout::Blocked { dim, .. }), Some(wanted)) = (Layout::of(ty), consecutive) else { continue };
        let shape = ty.static_shape().unwrap_or_default();
        let repeated = load && shape[dim] == 1 && is_looped(body, op);
        if dim == wanted || repeated || feeds_only_products(body, tile) {
            continue;
        }
        let narrowest = ty.elem().byte_width().unwrap_or(4) as i64;
        let accesses = vec![(1, indices.neighbours(body.op_ref(op)))];
        let own = layout(&Group { shape: shape.clone(), narrowest, accesses, ..Group::default() }, wanted);
        let Some(own) = own else { continue };
        let own = own.to_attr();
        if load {
            body.set_ty(tile, Type::tile(&shape, ty.elem(), Some(own)));
            let mut b = Builder::after(body, op);
            let converted = b.op(op::kernel::CONVERT_LAYOUT).operand(tile).result(ty).try_build()?;
            let value = body.result(converted, 0);
            body.replace_all_uses(tile, value);
            body.set_operand(converted, 0, tile);
            continue;
        }
        // The places of a scatter go with its elements.
        for i in 0..body.operand_count(op) {
            let given = body.operand(op, i);
            let Some(shape) = body.ty(given).is_tile().then(|| body.ty(given).static_shape()).flatten() else {
                continue;
            };
            let ty = Type::tile(&shape, body.ty(given).elem(), Some(own));
            let mut b = Builder::before(body, op);
            let value = b.op(op::kernel::CONVERT_LAYOUT).operand(given).result(ty).try_value()?;
            body.set_operand(op, i, value);
        }
    }
    Ok(())
}
/// Whether a loop runs the operation: threads that exchanged what they load would wait for one another at each step. Of a column, which lanes have in
/// common, each may as well load its own rows.
fn is_looped(body: &Body, op: Op) -> bool {
    body.parent_op(op).is_some_and(|outer| body.name(outer) == op::kernel::FOR)
}
fn feeds_only_products(body: &Body, tile: Value) -> bool {
    body.has_uses(tile) && body.uses(tile).all(|(user, _)| body.name(user) == op::kernel::DOT)
}

// ---- operands of products ----

/// Tiles that a product reads go to shared memory: right before it, or where they are defined outside of its loop.
fn stage_operands(body: &mut Body) -> Result {
    let mut staged: FxHashMap<Value, Value> = FxHashMap::default();
    let dots: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::kernel::DOT).collect();
    for dot in dots {
        let mut here: Vec<(Value, Value)> = Vec::new();
        for i in 0..2 {
            let tile = body.operand(dot, i);
            let is_shared = matches!(Layout::of(body.ty(tile)), Some(Layout::Shared { .. }));
            let placed = is_shared || is_warpgroup(body, dot) || is_divided(body, dot);
            if !body.ty(tile).is_tile() || placed || i == 0 && stays_in_registers(body, dot) {
                continue;
            }
            let memory = match staged.get(&tile) {
                Some(&memory) => memory,
                None => {
                    let memory = allocate(body, tile)?;
                    staged.insert(tile, memory);
                    if body.defining_block(tile) == body.parent(dot) {
                        here.push((tile, memory));
                    } else {
                        let at = after_definition(body, tile);
                        copy_in(body, at, &[(tile, memory)])?;
                    }
                    memory
                }
            };
            body.set_operand(dot, i, memory);
        }
        if !here.is_empty() {
            copy_in(body, InsertPoint::Before(dot), &here)?;
        }
    }
    Ok(())
}
/// An mma's left operand that is an earlier product's result, with whole rows in each warp.
fn stays_in_registers(body: &Body, dot: Op) -> bool {
    let ty = body.ty(body.operand(dot, 0));
    let op = body.op_ref(dot);
    let half = ty.elem().byte_width() == Some(2);
    let same_rows = match (Layout::of(ty), Layout::of(body.ty(body.result(dot, 0)))) {
        (Some(Layout::Mma { warps: [a, 1] }), Some(Layout::Mma { warps: [b, 1] })) => a == b,
        _ => false,
    };
    half && same_rows && op.str("unit") == Some("mma") && !op.bool("a_t")
}
fn allocate(body: &mut Body, tile: Value) -> Result<Value> {
    let entry = body.entry().expect("a kernel has a body");
    let ty = Type::memref(&body.ty(tile).shape(), body.ty(tile).elem(), 3);
    let name = body.value_name(tile);
    let mut b = at_start(body, entry);
    let memory = b.op(op::kernel::ALLOC).attr("align", Attr::i64(1024)).result(ty).try_value()?;
    if !name.is_empty() {
        b.name(memory, &format!("{name}_shared"));
    }
    Ok(memory)
}
fn at_start(body: &mut Body, block: Block) -> Builder<'_> {
    match body.first_op(block) {
        Some(first) => Builder::before(body, first),
        None => Builder::at_end(body, block),
    }
}
fn after_definition(body: &Body, value: Value) -> InsertPoint {
    match body.def(value) {
        ValueDef::Result(op, _) => InsertPoint::After(op),
        ValueDef::Argument(block, _) => match body.first_op(block) {
            Some(first) => InsertPoint::Before(first),
            None => InsertPoint::End(block),
        },
    }
}
/// Stores tiles to memory that others may still read, and makes them visible.
fn copy_in(body: &mut Body, at: InsertPoint, copies: &[(Value, Value)]) -> Result {
    let loc = body.defining_op(copies[0].0).map_or(rc_ir::Loc::UNKNOWN, |op| body.loc(op));
    let mut b = Builder { body, at, loc };
    b.op(op::kernel::BARRIER).try_build()?;
    let zero = b.op(op::core::CONSTANT).attr("value", Attr::index(0)).result(Type::index()).try_value()?;
    for &(tile, memory) in copies {
        let rank = b.ty(tile).rank();
        let dims: Vec<i64> = (0..rank as i64).collect();
        let store = b.op(op::kernel::STORE).operand(tile).operand(memory).operands(&vec![zero; rank]);
        store.attr("dims", Attr::i64s(&dims)).try_build()?;
    }
    b.op(op::kernel::BARRIER).try_build()?;
    Ok(())
}
