//! `loop.sort` on tiles: integers in the order of the elements are sorted together with their places, by which the elements are
//! looked up then.

use super::program::{Program, RANK};
use super::run::bind;
use super::scope::{Scope, Tiled};
use crate::schedule::Schedule;
use crate::schedule::access::{Access, Iter};
use crate::schedule::sort::Sort as Sizes;
use rc_dialects::core::sort::BELOW;
use rc_dialects::op;
use rc_ir::{Attr, Dim, Name, Op, Result, Type, Value};

pub struct Sort {
    pub sizes: Sizes,
    pub(super) op: Op,
    pub(super) x: Value,
    pub(super) places: Option<Value>,
    pub(super) descending: bool,
    /// What natural numbers are known to be less than.
    pub(super) below: Option<i64>,
}

impl Sort {
    pub fn read(p: &Program, op: Op) -> Result<Sort> {
        let at = p.src.op_ref(op);
        let sizes = Sizes::read(at).ok_or_else(|| at.error("has malformed attributes"))?;
        let places = at.operands().nth(1);
        Ok(Sort { sizes, op, x: at.operand(0), places, descending: at.bool("descending"), below: at.int(BELOW.name) })
    }

    /// On a GPU: a tile of rows.
    pub fn run(&self, p: &mut Program, schedule: &Schedule, scope: &Scope) -> Result {
        let [_, j] = self.sizes.iters;
        let zero = p.constant_index(0);
        let scope = scope.with(j.name, bind(&j, zero, schedule.axis_of(j.name), schedule.tile_of(j.name)));
        let x = p.load(self.x, &self.element(Dim::symbol(j.name)), &scope)?;
        let x = p.broadcast(x, scope.shape());
        let mut keys = self.keys(p, x);
        if let Some(mask) = p.inside(&scope, &|name| name == j.name) {
            let elem = p.ty(keys).elem();
            let greatest = p.splat([1; RANK], greatest(elem));
            keys = p.select(mask, keys, greatest);
        }
        let places = p.index(Dim::symbol(j.name), &scope, Tiled::All)?;
        let places = p.broadcast(places, scope.shape());
        let places = p.convert(places, Type::int(32));
        let count = self.sizes.count.as_static();
        let at = p.sort(&[keys, places], count)[1];
        self.look_up(p, &scope, at)
    }

    /// The first elements and their places, where `at` are places in the row.
    pub(super) fn look_up(&self, p: &mut Program, scope: &Scope, at: Value) -> Result {
        let ([o, j], count) = (self.sizes.iters, self.sizes.count);
        let bound = *scope.get(j.name).expect("bound before");
        let kept = bind(&Iter { extent: count, ..j }, bound.base, bound.axis, bound.size);
        let mut scope = scope.with(j.name, kept);
        let at = p.convert(at, Type::index());
        scope.indices = vec![at];
        let there = self.element(Dim::symbol(Name::new("_0")));
        let first = Access { shape: vec![o.extent, count], exprs: vec![Dim::symbol(o.name), Dim::symbol(j.name)] };
        let [values, indices] = [0, 1].map(|i| p.src.result(self.op, i));
        if p.memory.contains_key(&values) {
            let found = p.load(self.x, &there, &scope)?;
            p.store(found, values, &first, &scope)?;
        }
        if p.memory.contains_key(&indices) {
            let found = match self.places {
                Some(places) => p.load(places, &there, &scope)?,
                None => at,
            };
            p.store(found, indices, &first, &scope)?;
        }
        Ok(())
    }

    /// An element of the program's row.
    pub(super) fn element(&self, at: Dim) -> Access {
        let [o, j] = self.sizes.iters;
        Access { shape: vec![o.extent, j.extent], exprs: vec![Dim::symbol(o.name), at] }
    }

    /// Integers of 32 or 64 bits in the order that is wanted.
    pub(super) fn keys(&self, p: &mut Program, x: Value) -> Value {
        let keys = if self.below.is_some() { p.convert(x, Type::int(32)) } else { ascending(p, x) };
        if self.descending { p.unary(op::core::NOT, keys) } else { keys }
    }
}

/// Integers of 32 or 64 bits in the order of the elements: of a float its bits, where those of a negative number are its magnitude's,
/// negated; a NaN has the greatest.
fn ascending(p: &mut Program, x: Value) -> Value {
    let elem = p.ty(x).elem();
    let width = elem.bit_width().unwrap_or(64);
    let keys = if elem.is_float() {
        let int = Type::int(width);
        let bits = p.elementwise(op::core::BITCAST, &[x], Attr::empty_dict(), int);
        let [zero, least, most] = [Attr::int(0, int), Attr::int(i64::MIN >> (64 - width), int), greatest(int)];
        let [zero, least, most] = [zero, least, most].map(|scalar| p.splat([1; RANK], scalar));
        let negated = p.binary(op::core::SUB, least, bits);
        let negative = p.compare("lt", bits, zero);
        let keys = p.select(negative, negated, bits);
        let nan = p.elementwise(op::core::IS_NAN, &[x], Attr::empty_dict(), Type::i1());
        p.select(nan, most, keys)
    } else {
        x
    };
    let wide = if width > 32 || elem.is_unsigned() && width == 32 { Type::i64() } else { Type::int(32) };
    let mut keys = p.convert(keys, wide);
    if elem.is_unsigned() && width == 64 {
        let sign = p.splat([1; RANK], Attr::int(i64::MIN, wide));
        keys = p.binary(op::core::XOR, keys, sign);
    }
    keys
}

/// The greatest signed integer of a type.
fn greatest(int: Type) -> Attr {
    Attr::int(i64::MAX >> (64 - int.bit_width().unwrap_or(64)), int)
}
