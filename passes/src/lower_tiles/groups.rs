//! Which tiles of a kernel must have one layout: those that meet in elementwise operations, reductions, repeats and loops.

use super::indices::Indices;
use rc_dialects::op;
use rc_ir::{Body, Dim, Op, OpRef, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Tiles that share a layout, and what is done with them.
#[derive(Default)]
pub struct Group {
    pub tiles: Vec<Value>,
    /// The largest size of a tile along each dimension.
    pub shape: Vec<i64>,
    /// Elements accessed in memory with each dimension as the consecutive one, as often as loops have them accessed.
    pub consecutive: Vec<i64>,
    /// The narrowest element that is accessed, in bytes.
    pub narrowest: i64,
    /// Elements that are gathered one by one at places that follow from positions along each dimension.
    pub places: Vec<i64>,
    /// Elements that are gathered one by one near one another along each dimension, in memory as well.
    pub near: Vec<i64>,
    /// Of each access along the memory's last dimension: the elements of its tile, and how many neighbours a thread may access at once.
    pub accesses: Vec<(i64, i64)>,
    /// Products whose accumulators are here, whose left and whose right operands are.
    pub accumulates: Vec<Op>,
    pub left_of: Vec<Op>,
    pub right_of: Vec<Op>,
    /// Gathers in runs whose places are here, and those whose elements are.
    pub places_of: Vec<Op>,
    pub gathered_by: Vec<Op>,
    /// Whether rows are sorted.
    pub sorted: bool,
    /// Dimensions that are reduced.
    pub reduced: Vec<usize>,
    /// The dimension of a scan.
    pub scanned: Option<usize>,
    /// The dimension along which several loads read the same memory, moved by less than the tile, and how many neighbours each of them may access at once.
    pub slides: Option<(usize, i64)>,
    /// Operations for each dimension on tiles that are one element wide there, which lanes along it would do again.
    pub repeated: Vec<usize>,
    pub stored: bool,
}

/// An access of this part of a group's largest tile says how its elements are spread.
const LARGE: i64 = 4;

/// The groups in order of their first tile.
pub fn groups(body: &Body) -> Vec<Group> {
    let mut sets = Sets::default();
    let mut indices = Indices::new(body);
    let ops = body.walk();
    let tiles =
        |op: OpRef| -> Vec<Value> { op.operands().chain(op.results()).filter(|&v| body.ty(v).is_tile()).collect() };
    let mut order: Vec<Value> = Vec::new();
    for &op in &ops {
        let op = body.op_ref(op);
        order.extend(op.results().filter(|&v| body.ty(v).is_tile()));
        for region in body.regions(op.op) {
            order.extend(
                body.blocks(region)
                    .flat_map(|b| body.block_args(b).collect::<Vec<_>>())
                    .filter(|&v| body.ty(v).is_tile()),
            );
        }
        match op.name().as_str() {
            op::kernel::LOAD
            | op::kernel::STORE
            | op::kernel::IOTA
            | op::kernel::TRANSPOSE
            | op::kernel::CONVERT_LAYOUT => {}
            op::kernel::DOT => sets.join(op.operand(2), op.result(0)),
            op::kernel::FOR => join_loop(op, &mut sets),
            op::kernel::IF => join_branches(op, &mut sets),
            op::kernel::GATHER if gathers_runs(op) => {}
            op::kernel::BROADCAST
            | op::kernel::PACK
            | op::kernel::SCAN
            | op::kernel::SORT
            | op::kernel::REDUCE
            | op::kernel::GATHER
            | op::kernel::SCATTER
            | op::kernel::EXTRACT_SLICE => sets.join_all(&tiles(op)),
            _ if op.has(Traits::ELEMENTWISE) => sets.join_all(&tiles(op)),
            _ => {}
        }
    }
    let mut at: FxHashMap<Value, usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    for tile in order {
        let root = sets.find(tile);
        let i = *at.entry(root).or_insert_with(|| {
            groups.push(Group { narrowest: 4, ..Group::default() });
            groups.len() - 1
        });
        groups[i].add(tile, body.ty(tile));
    }
    for &op in &ops {
        indices.meet(body, op);
        note_uses(body.op_ref(op), &indices, &mut groups, &mut |v| at.get(&sets.find(v)).copied());
    }
    let loads = ops.iter().map(|&op| body.op_ref(op)).filter(|op| op.is(op::kernel::LOAD)).collect::<Vec<_>>();
    for (n, &load) in loads.iter().enumerate() {
        let found = loads[..n].iter().rev().take(SLIDING).find_map(|&before| slides(before, load, &indices));
        if let (Some(d), Some(&g)) = (found, at.get(&sets.find(load.result(0)))) {
            let (_, each) = groups[g].slides.get_or_insert((d, i64::MAX));
            *each = indices.neighbours(load).min(*each);
        }
    }
    groups
}

/// How many loads back one of the same memory is looked for.
const SLIDING: usize = 8;

/// The tile dimension along which two loads read the same memory, moved by less than the tile.
fn slides(a: OpRef, b: OpRef, indices: &Indices) -> Option<usize> {
    let (dims, shape) = (a.ints("dims")?, a.body.ty(a.result(0)).static_shape()?);
    let same = a.operand(0) == b.operand(0) && b.ints("dims")? == dims && b.result_types() == a.result_types();
    let starts = a.group("indices").into_iter().zip(b.group("indices")).map(|(x, y)| indices.dim(y) - indices.dim(x));
    let mut moved = starts.enumerate().filter(|(_, by)| *by != Dim::Static(0));
    let ((along, by), None) = (moved.next().filter(|_| same)?, moved.next()) else { return None };
    let d = dims.iter().position(|&k| k == along as i64)?;
    by.as_static().filter(|by| by.abs() < shape[d]).map(|_| d)
}

impl Group {
    /// How many neighbours a thread takes at once: as many as all of the large accesses may. An access element by element whose threads are
    /// several elements apart would touch every line of memory several times.
    pub fn neighbours(&self) -> i64 {
        let most = self.accesses.iter().map(|a| a.0).max().unwrap_or(0);
        let large = self.accesses.iter().filter(|a| a.0 * LARGE >= most);
        large.map(|a| a.1).min().unwrap_or(i64::MAX)
    }
    fn add(&mut self, tile: Value, ty: Type) {
        let shape = ty.static_shape().unwrap_or_default();
        self.shape.resize(self.shape.len().max(shape.len()), 1);
        self.consecutive.resize(self.shape.len(), 0);
        self.places.resize(self.shape.len(), 0);
        self.near.resize(self.shape.len(), 0);
        self.repeated.resize(self.shape.len(), 0);
        self.shape.iter_mut().zip(&shape).for_each(|(max, &n)| *max = n.max(*max));
        self.tiles.push(tile);
    }
}

/// Whether a gather has a place for each run of neighbours, not for each element.
pub fn gathers_runs(op: OpRef) -> bool {
    op.is(op::kernel::GATHER) && run_of(op).is_some_and(|run| run.1 > 1)
}

/// The tile dimension along which the runs of a gather lie, and their length.
pub fn run_of(op: OpRef) -> Option<(usize, i64)> {
    let dim = op.ints("dims")?.iter().position(|d| Some(*d) == op.int("axis"))?;
    let [tile, places] = [op.result_types()[0], op.body.ty(*op.group("where").first()?)].map(|t| t.static_shape());
    Some((dim, tile?.get(dim)? / places?.get(dim)?))
}

/// The memory and the tile of a load, store, gather or scatter.
pub fn accessed(op: OpRef) -> (Value, Value) {
    match op.name().as_str() {
        op::kernel::STORE | op::kernel::SCATTER => (op.operand(1), op.operand(0)),
        _ => (op.operand(0), op.result(0)),
    }
}

/// The tile dimension along which a load or store runs through consecutive memory.
pub fn consecutive_dim(op: OpRef) -> Option<usize> {
    let (memref, tile) = accessed(op);
    let (rank, shape) = (op.body.ty(memref).rank() as i64, op.body.ty(tile).static_shape()?);
    let dims = op.ints("dims")?;
    (0..dims.len().min(shape.len())).find(|&d| dims[d] == rank - 1 && shape[d] > 1)
}

/// The tile dimensions along which a gather's places follow from positions alone, element by element.
fn places_along(op: OpRef) -> Vec<usize> {
    if !op.is(op::kernel::GATHER) || gathers_runs(op) {
        return Vec::new();
    }
    let [places] = op.group("where")[..] else { return Vec::new() };
    let shape = op.body.ty(places).static_shape().unwrap_or_default();
    if from_memory(op.body, places) { Vec::new() } else { (0..shape.len()).filter(|&d| shape[d] > 1).collect() }
}

/// The one tile dimension along which a gather's places in the last dimension of memory follow from positions: they are near one another.
fn gathered_dim(op: OpRef) -> Option<usize> {
    let rank = op.body.ty(accessed(op).0).rank() as i64;
    match places_along(op)[..] {
        [d] if op.int("axis") == Some(rank - 1) => Some(d),
        _ => None,
    }
}

/// Whether a value is computed from elements of memory.
fn from_memory(body: &Body, value: Value) -> bool {
    let reads = [op::kernel::LOAD, op::kernel::GATHER, op::kernel::READ, op::kernel::FOR];
    let (mut waiting, mut seen) = (vec![value], FxHashSet::default());
    while let Some(value) = waiting.pop() {
        let Some(op) = body.defining_op(value).filter(|_| seen.insert(value)) else { continue };
        if reads.iter().any(|name| body.name(op) == *name) {
            return true;
        }
        waiting.extend(body.operands(op));
    }
    false
}

/// How often the loops around an operation have it run, where that is known.
fn turns(op: OpRef) -> i64 {
    let around = std::iter::successors(op.body.parent_op(op.op), |&outer| op.body.parent_op(outer));
    let loops = around.map(|outer| op.body.op_ref(outer)).filter(|outer| outer.is(op::kernel::FOR));
    loops.filter_map(steps_of).fold(1, |all, steps| all.saturating_mul(steps.max(1)))
}

/// The steps of a loop between constants.
pub fn steps_of(looped: OpRef) -> Option<i64> {
    let constant = |i: usize| rc_ir::op_def::constant_of(looped.body, looped.operand(i)).and_then(|a| a.as_int());
    let [lower, upper, step] = [constant(0)?, constant(1)?, constant(2)?];
    (step > 0).then(|| ((upper - lower + step - 1) / step).max(0))
}

fn note_uses(op: OpRef, indices: &Indices, groups: &mut [Group], group: &mut dyn FnMut(Value) -> Option<usize>) {
    match op.name().as_str() {
        op::kernel::LOAD | op::kernel::GATHER | op::kernel::STORE | op::kernel::SCATTER => {
            let tile = accessed(op).1;
            let Some(g) = group(tile) else { return };
            let ty = op.body.ty(tile);
            groups[g].stored |= op.is(op::kernel::STORE);
            groups[g].narrowest = groups[g].narrowest.min(ty.elem().byte_width().unwrap_or(4) as i64);
            if gathers_runs(op) {
                groups[g].gathered_by.push(op.op);
                let places = group(op.group("where")[0]);
                groups[places.expect("a tile")].places_of.push(op.op);
            }
            let elements = ty.static_shape().unwrap_or_default().iter().product::<i64>();
            let all = elements.saturating_mul(turns(op));
            places_along(op).into_iter().for_each(|d| groups[g].places[d] += all);
            if let Some(d) = consecutive_dim(op) {
                // What is stored can go through another layout; what is gathered, whose places have its layout, cannot.
                groups[g].consecutive[d] += if op.is(op::kernel::GATHER) { 2 * all } else { all };
                groups[g].accesses.push((elements, indices.neighbours(op)));
            } else if let Some(d) = gathered_dim(op) {
                groups[g].near[d] += 2 * all;
            }
        }
        _ if op.has(Traits::ELEMENTWISE) => {
            let Some((g, tile)) = op.results().next().and_then(|tile| Some((group(tile)?, op.body.ty(tile)))) else {
                return;
            };
            let shape = tile.static_shape().unwrap_or_default();
            let narrow = (0..shape.len()).filter(|&d| shape[d] == 1 && shape.iter().any(|&n| n > 1));
            narrow.for_each(|d| groups[g].repeated[d] += 1);
        }
        op::kernel::REDUCE => {
            let Some(g) = group(op.operand(0)) else { return };
            groups[g].reduced.extend(op.ints("dims").unwrap_or_default().iter().map(|&d| d as usize));
        }
        op::kernel::SCAN => {
            let Some(g) = group(op.operand(0)) else { return };
            groups[g].scanned = op.int("dim").map(|d| d as usize);
            groups[g].reduced.extend(groups[g].scanned);
        }
        op::kernel::SORT => {
            let Some(g) = group(op.operand(0)) else { return };
            groups[g].sorted = true;
        }
        op::kernel::DOT => {
            let [left, right, acc] = [0, 1, 2].map(|i| group(op.operand(i)));
            if let Some(g) = left {
                groups[g].left_of.push(op.op);
            }
            if let Some(g) = right {
                groups[g].right_of.push(op.op);
            }
            if let Some(g) = acc {
                groups[g].accumulates.push(op.op);
            }
        }
        _ => {}
    }
}

fn join_loop(op: OpRef, sets: &mut Sets) {
    let Some(entry) = op.entry(0) else { return };
    let yielded = op.body.last_op(entry).map_or(Vec::new(), |t| op.body.operands(t).collect());
    let rows = op.operands().skip(3).zip(op.results()).zip(op.body.block_args(entry).skip(1)).zip(yielded);
    for (((init, result), arg), next) in rows {
        if op.body.ty(init).is_tile() {
            sets.join_all(&[init, result, arg, next]);
        }
    }
}

fn join_branches(op: OpRef, sets: &mut Sets) {
    for region in 0..op.body.regions(op.op).len() {
        let Some(last) = op.entry(region).and_then(|b| op.body.last_op(b)) else { continue };
        for (value, result) in op.body.operands(last).zip(op.results()) {
            if op.body.ty(value).is_tile() {
                sets.join(value, result);
            }
        }
    }
}

/// Union-find.
#[derive(Default)]
struct Sets {
    parents: FxHashMap<Value, Value>,
}

impl Sets {
    fn find(&mut self, value: Value) -> Value {
        let parent = *self.parents.get(&value).unwrap_or(&value);
        if parent == value {
            return value;
        }
        let root = self.find(parent);
        self.parents.insert(value, root);
        root
    }
    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.parents.insert(b, a);
        }
    }
    fn join_all(&mut self, values: &[Value]) {
        values.windows(2).for_each(|pair| self.join(pair[0], pair[1]));
    }
}
