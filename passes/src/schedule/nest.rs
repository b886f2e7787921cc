//! A nest as the schedule and its application see it: accesses normalized, adjacent iterators collapsed.

use super::access::{Access, Iter, mentions};
use rc_dialects::func::SymbolDecl;
use rc_dialects::loop_::{self, IterKind};
use rc_ir::dim_range::Ranges;
use rc_ir::{Body, Dim, Name, Op, OpRef, Result, Type};

/// A `loop.nest` with its index maps in normal form.
#[derive(Clone, Debug)]
pub struct Nest {
    pub op: Op,
    pub iters: Vec<Iter>,
    pub inputs: Vec<Access>,
    pub outputs: Vec<Access>,
    /// Whether each input is zero outside of its bounds.
    pub zero_outside: Vec<bool>,
    pub combiners: Vec<&'static str>,
    /// Accumulation type of sums, products and contractions.
    pub acc: Option<Type>,
    /// What the iterators written in the nest are over `iters`, where they differ.
    pub subst: Vec<(Name, Dim)>,
    /// Bounds of the kernel's symbols and of `iters`.
    pub ranges: Ranges,
    /// Accesses of the region's gathers, for deciding what may be collapsed or tiled.
    pub gathers: Vec<Access>,
    /// The region's index expressions.
    pub indices: Vec<Dim>,
    /// Whether its scan goes from the iterator's last value to the first: see [`Nest::forward`].
    pub reverse: bool,
}

/// The bounds of a kernel's symbols.
pub fn symbol_ranges(symbols: &[SymbolDecl]) -> Ranges {
    let mut ranges = Ranges::new();
    for s in symbols {
        ranges.set(s.name, s.min, s.max);
    }
    ranges
}

impl Nest {
    /// Reads a verified `loop.nest`.
    ///
    /// # Errors
    /// If its attributes are malformed.
    pub fn read(body: &Body, op: Op, symbols: &[SymbolDecl]) -> Result<Nest> {
        let at = body.op_ref(op);
        let raw = loop_::Nest::read(at).ok_or_else(|| at.error("has malformed attributes"))?;
        let iters: Vec<Iter> = (0..raw.iters.len())
            .map(|i| Iter { name: raw.iters[i], extent: raw.extents[i], kind: raw.kinds[i] })
            .collect();
        let access = |ty: Type, map: &[Dim]| Access::new(&ty.shape(), map);
        let inputs = at.operand_types().iter().zip(&raw.maps).map(|(&t, m)| access(t, m)).collect();
        let outputs = at.result_types().iter().zip(&raw.out_maps).map(|(&t, m)| access(t, m)).collect();
        let mut nest = Nest {
            op,
            iters,
            inputs,
            outputs,
            zero_outside: raw.zero_outside,
            combiners: raw.combiners,
            acc: raw.acc,
            subst: Vec::new(),
            ranges: symbol_ranges(symbols),
            gathers: Vec::new(),
            indices: Vec::new(),
            reverse: false,
        };
        nest.read_region(at);
        nest.normalize();
        Ok(nest)
    }
    fn read_region(&mut self, at: OpRef) {
        let Some(entry) = at.entry(0) else { return };
        for inner in at.body.ops(entry).map(|o| at.body.op_ref(o)) {
            let shape = |name: &str| inner.attr(name).and_then(|a| a.as_shape()).unwrap_or_default();
            if inner.name() == &loop_::GATHER {
                self.gathers.push(Access::new(&at.body.ty(inner.operand(0)).shape(), shape("at")));
            } else if inner.name() == &loop_::INDEX {
                self.indices.extend(shape("expr"));
            }
        }
    }
    fn normalize(&mut self) {
        for i in &self.iters {
            self.ranges.set_iterator(i.name, i.extent);
        }
        for access in self.inputs.iter_mut().chain(&mut self.outputs).chain(&mut self.gathers) {
            *access = access.normalized(&self.ranges, &self.iters);
        }
    }

    pub fn iter(&self, name: Name) -> Option<&Iter> {
        self.iters.iter().find(|i| i.name == name)
    }
    pub fn of_kind(&self, kind: IterKind) -> impl Iterator<Item = &Iter> {
        self.iters.iter().filter(move |i| i.kind == kind)
    }
    pub fn has(&self, kind: IterKind) -> bool {
        self.of_kind(kind).next().is_some()
    }
    /// Whether it computes each element of its results for itself.
    pub fn is_pointwise(&self) -> bool {
        self.iters.iter().all(|i| i.kind == IterKind::Parallel)
    }
    pub fn is_contraction(&self) -> bool {
        self.combiners.contains(&"contract")
    }
    /// All accesses: operands, results, gathers.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.inputs.iter().chain(&self.outputs).chain(&self.gathers)
    }
    /// Whether an operand may be read outside of its bounds, where it is zero.
    pub fn reaches_outside(&self, operand: usize) -> bool {
        let access = &self.inputs[operand];
        self.zero_outside[operand] && !(0..access.shape.len()).all(|d| self.is_inside(access, d))
    }
    /// Whether an access is within bounds along dimension `d`, wherever the iterators are.
    pub fn is_inside(&self, access: &Access, d: usize) -> bool {
        let (e, size) = (access.exprs[d], access.shape[d]);
        self.ranges.interval(e).is_some_and(|r| r.0 >= 0) && self.ranges.always_le(e, size - Dim::Static(1))
    }
    /// An expression of the region, over `iters`.
    pub fn resolve(&self, expr: Dim) -> Dim {
        let map = |n: Name| self.subst.iter().find(|s| s.0 == n).map(|s| s.1);
        self.ranges.simplify(expr.substitute(&map))
    }

    /// The nest with `name` standing for something else, and the iterators `iters` instead of its own.
    pub fn substituted(&self, map: &[(Name, Dim)], iters: Vec<Iter>) -> Nest {
        let lookup = |n: Name| map.iter().find(|m| m.0 == n).map(|m| m.1);
        let mut out = self.clone();
        out.iters = iters;
        for access in out.inputs.iter_mut().chain(&mut out.outputs).chain(&mut out.gathers) {
            *access = access.substitute(&lookup);
        }
        out.indices.iter_mut().for_each(|e| *e = e.substitute(&lookup));
        out.subst.iter_mut().for_each(|s| s.1 = s.1.substitute(&lookup));
        let new = map.iter().filter(|m| !self.subst.iter().any(|s| s.0 == m.0));
        out.subst.extend(new.copied().collect::<Vec<_>>());
        out.normalize();
        out
    }

    /// The part of the nest where an iterator has one value.
    pub fn at(&self, name: Name, value: i64) -> Nest {
        let iters = self.iters.iter().filter(|i| i.name != name).copied().collect();
        self.substituted(&[(name, Dim::Static(value))], iters)
    }

    /// The nest so many steps further along an iterator.
    pub fn moved(&self, name: Name, by: i64) -> Nest {
        self.substituted(&[(name, Dim::symbol(name) + Dim::Static(by))], self.iters.clone())
    }

    /// A nest whose scan meets elements from the last to the first, with an iterator that counts them as they lie.
    pub fn forward(self) -> Nest {
        let Some(scan) = self.of_kind(IterKind::Scan).next().copied() else { return self };
        let mirrored = scan.extent - Dim::Static(1) - Dim::symbol(scan.name);
        let backward = self.outputs.first().is_some_and(|out| out.exprs.contains(&mirrored));
        if !backward || self.reverse {
            return self;
        }
        let iters = self.iters.clone();
        let mut nest = self.substituted(&[(scan.name, mirrored)], iters);
        nest.reverse = true;
        nest
    }
    /// The nest with the iterators `outer` and `inner` as one, named `outer_inner`; `None` where memory is not laid out so,
    /// or where the region asks for their values.
    pub fn collapsed(&self, outer: Name, inner: Name) -> Option<Nest> {
        let name = collapsed_name(outer, inner);
        let out = self.as_one(outer, inner).filter(|_| !self.asks_for([outer, inner]))?;
        Some(out).filter(|out| out.accesses().all(|x| x.plain(&[name]).is_some()))
    }
    /// As [`Nest::collapsed`], also where operands are then read at quotients and remainders: such as have an element for at least `reuse` points, or are
    /// reduced along what is contiguous, which stays so.
    pub fn collapsed_by_results(&self, outer: Name, inner: Name, reuse: f64) -> Option<Nest> {
        let name = [collapsed_name(outer, inner)];
        let small = |out: &Nest, x: &Access| out.elements(x) * reuse <= out.points();
        let reduces = |out: &Nest, n: Name| out.iter(n).is_some_and(|i| i.kind == IterKind::Reduce);
        let in_runs = |out: &Nest, x: &Access| x.innermost().is_some_and(|n| reduces(out, n));
        self.along_results(outer, inner).filter(|_| !self.asks_for([outer, inner])).filter(|out| {
            out.inputs.iter().chain(&out.gathers).all(|x| x.plain(&name).is_some() || small(out, x) || in_runs(out, x))
        })
    }
    /// The nest with both iterators as one, along which the results lie, however its operands are then read.
    pub fn along_results(&self, outer: Name, inner: Name) -> Option<Nest> {
        let name = [collapsed_name(outer, inner)];
        self.as_one(outer, inner).filter(|out| out.outputs.iter().all(|x| x.plain(&name).is_some()))
    }
    /// Whether the region asks for the value of one of the iterators.
    fn asks_for(&self, names: [Name; 2]) -> bool {
        self.indices.iter().any(|&e| names.iter().any(|&n| mentions(e, n)))
    }
    /// The nest with both iterators as one; `None` where it is not over them, one inside the other but for what is reduced in between.
    fn as_one(&self, outer: Name, inner: Name) -> Option<Nest> {
        let at = self.iters.iter().position(|i| i.name == outer)?;
        let to = self.iters.iter().position(|i| i.name == inner)?;
        let (a, b) = (self.iters[at], self.iters[to]);
        let between = self.iters.get(at + 1..to)?;
        let name = collapsed_name(outer, inner);
        let fits = a.kind == b.kind
            && a.kind != IterKind::Scan
            && between.iter().all(|i| i.kind == IterKind::Reduce && a.kind == IterKind::Parallel)
            && self.iter(name).is_none();
        if !fits || self.combiners.iter().any(|c| c.starts_with("arg")) && a.kind == IterKind::Reduce {
            return None;
        }
        let whole = Dim::symbol(name);
        let mut iters = self.iters.clone();
        iters.remove(to);
        iters[at] = Iter { name, extent: a.extent * b.extent, kind: a.kind };
        Some(self.substituted(&[(outer, whole.floordiv(b.extent)), (inner, whole.modulo(b.extent))], iters))
    }
    /// Applies a schedule's list of collapses where they apply.
    pub fn with_collapses(mut self, pairs: &[[Name; 2]]) -> Nest {
        for &[outer, inner] in pairs {
            if let Some(next) = self.along_results(outer, inner) {
                self = next;
            }
        }
        self
    }
    /// Whether the nest's next value of an iterator is at a place as far on in each operand and result, whatever the others are: what else their index
    /// maps compute is the same for all of them.
    pub fn moves_evenly(&self, name: Name) -> bool {
        self.accesses().all(|a| a.plain(&[name]).is_some()) && !self.indices.iter().any(|&e| mentions(e, name))
    }
    /// The number of results, symbols at their greatest value (capped).
    pub fn results(&self) -> f64 {
        self.of_kind(IterKind::Parallel).map(|i| extent_of(&self.ranges, i.extent) as f64).product()
    }
    /// The number of elements of the memory that an access is to, symbols at their greatest value (capped).
    pub fn elements(&self, access: &Access) -> f64 {
        access.shape.iter().map(|&d| extent_of(&self.ranges, d) as f64).product()
    }
    /// The number of points of the iteration space, symbols at their greatest value (capped).
    pub fn points(&self) -> f64 {
        self.iters.iter().map(|i| extent_of(&self.ranges, i.extent) as f64).product()
    }
}

/// A bounded guess of an extent for cost models: its value, or of a symbolic one the greatest value up to 4096.
pub fn extent_of(ranges: &Ranges, extent: Dim) -> i64 {
    match extent.as_static() {
        Some(n) => n,
        None => ranges.interval(extent).map_or(4096, |r| r.1.clamp(1, 4096)),
    }
}

/// What the iterators `outer` and `inner` are called as one.
pub fn collapsed_name(outer: Name, inner: Name) -> Name {
    Name::new(&format!("{outer}_{inner}"))
}
