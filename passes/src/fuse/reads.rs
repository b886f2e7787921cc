//! Where a group of operations reads each value, as index maps over the space of the nest that reads it.
//! Fusion asks it whether maps are what a kernel can do; lower-loops makes the same walk to emit code.

use super::classify::{Class, classify};
use super::ops::Ops;
use rc_dialects::core::reindex::Reindex;
use rc_dialects::interfaces::{Contraction, ReductionInfo};
use rc_dialects::op;
use rc_ir::dim::Atom;
use rc_ir::dim_range::Ranges;
use rc_ir::{Body, Dim, Name, Op, OpRef, Type, Value};
use rustc_hash::FxHashSet;

/// The iteration space of a nest: iterators by position, named so that equal positions meet.
#[derive(Clone, Debug)]
pub struct Space {
    pub iters: Vec<Name>,
    pub extents: Vec<Dim>,
    pub ranges: Ranges,
}

const LETTERS: [&str; 10] = ["i", "j", "k", "l", "m", "n", "o", "p", "q", "r"];

/// The name of iterator number `d`, none of the `taken` symbols.
pub fn iterator_name(d: usize, taken: &Ranges) -> Name {
    let base = LETTERS.get(d).map_or_else(|| format!("i{d}"), |l| l.to_string());
    let free = |name: &Name| taken.get(*name).is_none();
    let plain = Some(Name::new(&base)).filter(free);
    plain.unwrap_or_else(|| (0..).map(|n| Name::new(&format!("{base}_{n}"))).find(free).expect("an endless range"))
}

impl Space {
    /// A space over dimensions of these extents; `symbols` are the function's.
    pub fn new(extents: &[Dim], symbols: &Ranges) -> Space {
        Space::at(extents, 0..extents.len(), symbols)
    }
    /// A space whose iterators are those of the given positions in a larger one.
    pub fn at(extents: &[Dim], positions: impl IntoIterator<Item = usize>, symbols: &Ranges) -> Space {
        let iters: Vec<Name> = positions.into_iter().map(|d| iterator_name(d, symbols)).collect();
        let mut ranges = symbols.clone();
        iters.iter().zip(extents).for_each(|(&n, &e)| ranges.set_iterator(n, e));
        Space { iters, extents: extents.to_vec(), ranges }
    }
    /// Dimension `d`'s index: its iterator, or 0 where the extent is 1.
    pub fn index(&self, d: usize) -> Dim {
        if self.extents[d] == Dim::Static(1) { Dim::Static(0) } else { Dim::symbol(self.iters[d]) }
    }
    pub fn identity(&self) -> Vec<Dim> {
        (0..self.iters.len()).map(|d| self.index(d)).collect()
    }
    /// The iterators, those of extent 1 too: where a result is written, so that tiles find each of its dimensions.
    pub fn symbols(&self) -> Vec<Dim> {
        self.iters.iter().map(|&n| Dim::symbol(n)).collect()
    }
}

/// A value read at an index map from the space of a root.
#[derive(Clone, Debug)]
pub struct Read {
    pub value: Value,
    pub map: Vec<Dim>,
    /// Shape of the root's space.
    pub space: Vec<Dim>,
    /// Whether it is read for an operand of a product or of attention.
    pub through_anchor: bool,
}

/// The operations of a kernel whose reads are asked for.
pub struct Scope<'a> {
    pub body: &'a Body,
    pub facts: &'a Ops,
    pub group: &'a FxHashSet<Op>,
    /// One that is to join them.
    pub also: Option<Op>,
}

impl Scope<'_> {
    fn contains(&self, op: Op) -> bool {
        self.also == Some(op) || self.group.contains(&op)
    }

    fn class(&self, op: Op) -> Class {
        self.facts.get(op).map_or_else(|| classify(self.body.op_ref(op)), |fact| fact.class)
    }

    /// The operations that what `op` gives leads to.
    pub fn after(&self, op: Op) -> FxHashSet<Op> {
        let mut after = FxHashSet::default();
        let mut stack = vec![op];
        while let Some(op) = stack.pop() {
            let users = self.body.results(op).flat_map(|r| self.body.uses(r)).map(|(user, _)| user);
            stack.extend(users.filter(|&user| self.contains(user) && after.insert(user)));
        }
        after
    }

    /// All reads of values made by anchors of the scope or from outside of it, from `outputs` and the anchors; of what `op` gives alone, or of what it
    /// reads, where one is named. `None` where a map cannot be written.
    pub fn reads(&self, op: Option<Op>, outputs: &[Value], symbols: &Ranges) -> Option<Vec<Read>> {
        let way = op.map(|op| self.after(op).into_iter().chain([op]).collect::<FxHashSet<Op>>());
        let anchor = |&op: &Op| self.contains(op) && self.class(op).is_anchor();
        let mut anchors: Vec<Op> = match &way {
            Some(way) => way.iter().copied().filter(anchor).collect(),
            None => self.group.iter().copied().chain(self.also).filter(anchor).collect(),
        };
        anchors.sort();
        let mut walk = Walk { scope: self, way, found: Vec::new(), roots: Vec::new(), seen: FxHashSet::default() };
        for &value in outputs {
            let space = Space::new(&self.body.ty(value).shape(), symbols);
            walk.visit_root(value, space.identity(), &space, false)?;
        }
        for op in anchors {
            walk.anchor(self.body.op_ref(op), symbols)?;
        }
        Some(walk.found)
    }
}

struct Walk<'a> {
    scope: &'a Scope<'a>,
    /// What is walked through, where not all is.
    way: Option<FxHashSet<Op>>,
    found: Vec<Read>,
    /// The shapes of the roots' spaces, which `seen` has by their numbers.
    roots: Vec<Vec<Dim>>,
    seen: FxHashSet<(Value, Vec<Dim>, usize, bool)>,
}

impl Walk<'_> {
    fn anchor(&mut self, op: OpRef, symbols: &Ranges) -> Option<()> {
        for (i, value) in op.operands().enumerate() {
            let (space, map) = operand_access(op, i, symbols)?;
            let through = !matches!(self.scope.class(op.op), Class::Reduce | Class::Scan | Class::Alone);
            self.visit_root(value, map, &space, through)?;
        }
        Some(())
    }

    fn visit_root(&mut self, value: Value, map: Vec<Dim>, space: &Space, through_anchor: bool) -> Option<()> {
        let known = self.roots.iter().position(|extents| *extents == space.extents);
        let root = known.unwrap_or(self.roots.len());
        if known.is_none() {
            self.roots.push(space.extents.clone());
        }
        self.visit(value, map, (space, root), through_anchor)
    }

    fn visit(&mut self, value: Value, map: Vec<Dim>, root: (&Space, usize), through_anchor: bool) -> Option<()> {
        let (def, space) = (self.scope.body.defining_op(value), root.0);
        if self.way.as_ref().is_some_and(|way| !def.is_some_and(|def| way.contains(&def)))
            || !self.seen.insert((value, map.clone(), root.1, through_anchor))
        {
            return Some(());
        }
        let inside = def.filter(|&op| self.scope.contains(op) && !self.scope.class(op).is_anchor());
        let Some(op) = inside else {
            self.found.push(Read { value, map, space: space.extents.clone(), through_anchor });
            return Some(());
        };
        for (operand, map) in sources(self.scope.body.op_ref(op), &map, &space.ranges)? {
            match map {
                Some(map) => self.visit(operand, map, root, through_anchor)?,
                // A gathered table: it has to be in memory.
                None => self.found.push(Read {
                    value: operand,
                    map: vec![Dim::Dynamic],
                    space: space.extents.clone(),
                    through_anchor: true,
                }),
            }
        }
        Some(())
    }
}

/// The space of an anchor's nest and the map at which operand `i` is read in it.
pub fn operand_access(op: OpRef, i: usize, symbols: &Ranges) -> Option<(Space, Vec<Dim>)> {
    match classify(op) {
        Class::Reduce => {
            let space = Space::new(&op.body.ty(op.operand(0)).shape(), symbols);
            let map = space.identity();
            Some((space, map))
        }
        Class::Contract => {
            let (space, maps) = contraction_space(op, symbols)?;
            Some((space, maps[i].clone()))
        }
        _ => {
            let space = Space::new(&op.body.ty(op.operand(i)).shape(), symbols);
            let map = space.identity();
            Some((space, map))
        }
    }
}

/// The space of a contraction, result dimensions first, then contracted ones, and its operands' maps.
pub fn contraction_space(op: OpRef, symbols: &Ranges) -> Option<(Space, [Vec<Dim>; 2])> {
    let roles = (op.def()?.interface::<Contraction>()?.0)(op)?;
    let (lhs, rhs) = (op.body.ty(op.operand(0)), op.body.ty(op.operand(1)));
    let mut extents = op.body.ty(op.result(0)).shape().to_vec();
    let outs = extents.len();
    extents.extend(roles.lhs_contract.iter().map(|&d| lhs.shape()[d]));
    let space = Space::new(&extents, symbols);
    let mut maps = [vec![Dim::Static(0); lhs.rank()], vec![Dim::Static(0); rhs.rank()]];
    let batch = roles.lhs_batch.len();
    let free = batch + roles.lhs_free.len();
    for (n, (&l, &r)) in roles.lhs_batch.iter().zip(&roles.rhs_batch).enumerate() {
        (maps[0][l], maps[1][r]) = (space.index(n), space.index(n));
    }
    roles.lhs_free.iter().enumerate().for_each(|(n, &d)| maps[0][d] = space.index(batch + n));
    roles.rhs_free.iter().enumerate().for_each(|(n, &d)| maps[1][d] = space.index(free + n));
    for (n, (&l, &r)) in roles.lhs_contract.iter().zip(&roles.rhs_contract).enumerate() {
        (maps[0][l], maps[1][r]) = (space.index(outs + n), space.index(outs + n));
    }
    Some((space, maps))
}

/// The dimensions that a reduction combines.
pub fn reduced_dims(op: OpRef) -> Option<Vec<usize>> {
    Some(ReductionInfo::of(op)?.dims)
}

/// A value and the map at which it is read; none where the place depends on data.
pub type Source = (Value, Option<Vec<Dim>>);

/// The operands that an op without a nest of its own reads for its result's element at `map`.
pub fn sources(op: OpRef, map: &[Dim], ranges: &Ranges) -> Option<Vec<Source>> {
    if let Some(reindex) = op.def()?.interface::<Reindex>() {
        return Some(vec![(op.operand(0), Some((reindex.source)(op, map, ranges)?))]);
    }
    match op.name().as_str() {
        op::core::GATHER => {
            let axis = usize::try_from(op.int("axis")?).ok()?;
            let (batch, own) = index_dims(op)?;
            let at = [&map[..batch], &map[axis..axis + own]].concat();
            Some(vec![(op.operand(0), None), (op.operand(1), Some(at))])
        }
        op::core::CONCAT => {
            let dim = usize::try_from(op.int("dim")?).ok()?;
            let mut start = Dim::Static(0);
            let mut out = Vec::new();
            for operand in op.operands() {
                let mut at = map.to_vec();
                at[dim] = at[dim] - start;
                start = start + op.body.ty(operand).shape()[dim];
                out.push((operand, Some(at)));
            }
            Some(out)
        }
        op::core::PAD => {
            let low = op.attr("low")?.as_shape()?;
            let at = map.iter().zip(low).map(|(&i, &l)| i - l).collect();
            Some(vec![(op.operand(0), Some(at)), (op.operand(1), Some(Vec::new()))])
        }
        _ => {
            let at = |v: Value| if op.body.ty(v).is_tensor() { map.to_vec() } else { Vec::new() };
            Some(op.operands().map(|v| (v, Some(at(v)))).collect())
        }
    }
}

/// Of a `core.gather`: how many batch dimensions its indices have, and how many others.
pub fn index_dims(op: OpRef) -> Option<(usize, usize)> {
    let batch = usize::try_from(op.int("batch").unwrap_or(0)).ok()?;
    Some((batch, op.body.ty(op.operand(1)).rank().checked_sub(batch)?))
}

/// Whether every entry is a sum of iterators and symbols with coefficients: no `floordiv`, `mod`, `max`, `min`.
pub fn is_affine(map: &[Dim]) -> bool {
    map.iter().all(|d| match d {
        Dim::Static(_) => true,
        Dim::Dynamic => false,
        Dim::Expr(e) => e.data().terms.iter().flat_map(|t| &t.0).all(|f| matches!(f.0, rc_ir::dim::Atom::Symbol(_))),
    })
}

/// Whether it is a projection but for one iterator that runs over panels: `[i floordiv c, k, i mod c]`, or an order of these on the way there. With
/// words of k, `[i floordiv c, k floordiv w, i mod c, k mod w]`.
pub fn is_panelled(map: &[Dim]) -> bool {
    let is_plain = |d: &Dim| d.is_static() || d.as_symbol().is_some();
    let odd: Vec<usize> = (0..map.len()).filter(|&d| !is_plain(&map[d])).collect();
    if let [a, b, c, d] = *odd {
        let both = |x: [usize; 2], y: [usize; 2]| [x, y].iter().all(|&[i, j]| panel_iterator(map[i], map[j]).is_some());
        return map.len() == 4 && (both([a, b], [c, d]) || both([a, c], [b, d]));
    }
    matches!(*odd, [panel, lane] if panel_iterator(map[panel], map[lane]).is_some() && (lane == panel + 1 || lane + 1 == map.len()))
}

/// i and c of the places `i floordiv c` and `i mod c`, for an iterator i.
pub fn panel_iterator(panel: Dim, lane: Dim) -> Option<(Name, i64)> {
    let (Some(Atom::FloorDiv(i, c)), Some(Atom::Mod(j, d))) = (panel.as_atom(), lane.as_atom()) else { return None };
    let iterator = i.as_symbol().filter(|_| i == j && c == d)?;
    Some((iterator, c.as_static()?))
}

/// Whether every entry is an iterator or a symbol for itself, or a number.
pub fn is_projection(map: &[Dim]) -> bool {
    map.iter().all(|d| d.is_static() || d.as_symbol().is_some())
}

/// The elements of a shape, with symbols as they count for costs; so many at most that sums of bytes stay within 64 bits.
pub fn most_elements(shape: &[Dim], ranges: &Ranges) -> i64 {
    let elements = shape.iter().fold(Dim::Static(1), |n, &d| n * d);
    ranges.counted(elements).unwrap_or(i64::MAX).min(1 << 46)
}

/// Bytes of a tensor, with symbols as they count for costs.
pub fn tensor_bytes(ty: Type, ranges: &Ranges) -> i64 {
    most_elements(&ty.shape(), ranges) * ty.elem().byte_width().unwrap_or(8) as i64
}
