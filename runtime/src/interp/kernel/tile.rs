//! Tiles: loads, stores, reductions and products of whole tiles.

use rc_dialects::interfaces::Combiner;
use rc_ir::{Result, Type};

use super::block::{Program, Step};
use super::code::Inst;
use super::thread::gathered;
use super::words::apart;
use super::{outside, position};
use crate::interp::dot::{Sizes, product_of_floats, product_of_ints};
use crate::interp::memory::{MemRef, check_class};
use crate::interp::reduce::{float_fn, int_fn, reduce};
use crate::interp::shape::{broadcast, positions, strides, transpose, walk};
use crate::interp::sort::orders;
use crate::interp::value::{Array, Class, Format, Value};

/// Where the elements of a tile lie in a memref: `None` outside of its bounds.
struct Places {
    shape: Vec<usize>,
    at: Vec<Option<usize>>,
}

impl Program<'_, '_> {
    /// `dims` says along which memref dimension each tile dimension runs.
    fn places(&self, inst: &Inst, memref: &MemRef, index: &[i64], shape: Vec<usize>, dims: &[i64]) -> Result<Places> {
        let steps = memref.steps();
        let inside = |d: usize, i: i64| (0..memref.shape[d] as i64).contains(&i);
        // What dimensions that no tile dimension runs along contribute; then each tile dimension in turn.
        let mut fixed = (0..memref.shape.len()).filter(|&d| !dims.contains(&(d as i64)));
        let start =
            fixed.try_fold(memref.start, |at, d| inside(d, index[d]).then(|| at + index[d] as usize * steps[d]));
        let mut at = vec![start];
        for (i, &size) in shape.iter().enumerate() {
            let along = usize::try_from(dims.get(i).copied().unwrap_or(-1)).ok();
            if along.is_some_and(|d| dims[..i].contains(&(d as i64))) {
                return Err(inst.op.unsupported("with two tile dimensions along one of memory"));
            }
            let offset = |j: usize| match along {
                None => Some(0),
                Some(d) => {
                    let place = index[d].saturating_add(j as i64);
                    inside(d, place).then(|| place as usize * steps[d])
                }
            };
            let offsets: Vec<Option<usize>> = (0..size).map(offset).collect();
            at = at.iter().flat_map(|&a| offsets.iter().map(move |o| Some(a? + (*o)?))).collect();
        }
        Ok(Places { shape, at })
    }

    /// The elements at these places, `other` where there is none.
    fn collect(&mut self, t: usize, inst: &Inst, memref: &MemRef, places: Places, other: f64) -> Result<Value> {
        let format = inst.format()?;
        let loc = inst.op.loc();
        if format.is_float() {
            let mut values = Vec::with_capacity(places.at.len());
            for at in places.at {
                values.push(match at {
                    None => format.round(other),
                    Some(at) => {
                        let value = self.read(t, memref, at, loc)?;
                        check_class(&value, format, loc)?;
                        if let Value::Float(x) = value { x } else { 0.0 }
                    }
                });
            }
            return Ok(Value::Array(Array::floats(places.shape, values)));
        }
        let outside = format.wrap(other as i128);
        let mut values = Vec::with_capacity(places.at.len());
        for at in places.at {
            values.push(match at {
                None => outside,
                Some(at) => {
                    let value = self.read(t, memref, at, loc)?;
                    check_class(&value, format, loc)?;
                    if let Value::Int(n) = value { n } else { 0 }
                }
            });
        }
        Ok(Value::Array(Array::ints(places.shape, values)))
    }

    pub fn load(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let memref = self.memref(t, inst.args[0], inst)?;
        let index = self.ints(t, &inst.args[1..], inst)?;
        let shape = inst.shape.clone();
        let places = self.places(inst, &memref, &index, shape, &inst.dims)?;
        let value = self.collect(t, inst, &memref, places, inst.other)?;
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn gather(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let (memref, places, chosen) = self.chosen_places(t, inst, 0, inst.shape.clone())?;
        let axis = inst.op.int("axis").unwrap_or(0) as usize;
        let size = memref.shape[axis];
        if let Some((_, i)) =
            places.at.iter().zip(&chosen).find(|(at, i)| at.is_some() && !(0..size as i64).contains(*i))
        {
            return Err(outside(inst.op, "gathers", *i, axis, size));
        }
        let value = self.collect(t, inst, &memref, places, inst.other)?;
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn scatter(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let Value::Array(tile) = self.get(t, inst.args[0], inst)?.clone() else {
            return Err(inst.op.error("scatters something that is no tile"));
        };
        let (memref, places, chosen) = self.chosen_places(t, inst, 1, tile.shape.clone())?;
        let axis = inst.op.int("axis").unwrap_or(0) as usize;
        let elem = inst.op.body.ty(inst.op.operand(0)).elem();
        let mode = self.frame.interp.mode;
        let format = Format::of(elem, mode).ok_or_else(|| inst.op.unsupported(format!("on {elem}")))?;
        for (i, (at, place)) in places.at.into_iter().zip(chosen).enumerate() {
            if let Some(at) = at.filter(|_| (0..memref.shape[axis] as i64).contains(&place)) {
                self.combine_atomically(t, inst, (&memref, at), &tile.element(i), format)?;
            }
        }
        Ok(Step::Next)
    }

    /// Memory (operand group `source`), where the elements of a tile lie in it if those of `where` are inside along `axis`, and the latter.
    fn chosen_places(
        &mut self,
        t: usize,
        inst: &Inst,
        source: usize,
        shape: Vec<usize>,
    ) -> Result<(MemRef, Places, Vec<i64>)> {
        let memref = self.memref(t, inst.group(source)[0], inst)?;
        let mut index = self.ints(t, inst.group(source + 1), inst)?;
        let axis = inst.op.int("axis").unwrap_or(0) as usize;
        let missing = || inst.op.error("has an axis that the memory does not have");
        let size = *memref.shape.get(axis).ok_or_else(missing)?;
        let Some(&chosen) = inst.group(source + 2).first() else {
            return Err(inst.op.error("needs a tile of indices"));
        };
        let Value::Array(chosen) = self.get(t, chosen, inst)?.clone() else {
            return Err(inst.op.error("needs a tile of indices"));
        };
        if chosen.shape.len() != shape.len()
            || (0..shape.len()).any(|d| !shape[d].is_multiple_of(chosen.shape[d].max(1)))
        {
            return Err(inst
                .op
                .error(format!("has indices of shape {:?} for a tile of shape {shape:?}", chosen.shape)));
        }
        let bounded = inst.op.bool("bounded");
        let along: Vec<bool> = inst.dims.iter().map(|&d| d == axis as i64).collect();
        let chosen = spread_runs(&chosen, &shape, &along);
        // Place everything as if index 0 were chosen, then move along the axis: the tile of indices says all about it.
        index[axis] = 0;
        let dims: Vec<i64> = inst.dims.iter().map(|&d| if d == axis as i64 { -1 } else { d }).collect();
        let mut places = self.places(inst, &memref, &index, shape, &dims)?;
        let step = memref.steps()[axis];
        for (place, &i) in places.at.iter_mut().zip(&chosen) {
            if bounded && i < 0 {
                *place = None;
            }
            if let Some(at) = place.as_mut().filter(|_| (0..size as i64).contains(&i)) {
                *at += i as usize * step;
            }
        }
        Ok((memref, places, chosen))
    }

    pub fn store(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let memref = self.memref(t, inst.args[1], inst)?;
        let index = self.ints(t, &inst.args[2..], inst)?;
        let tile = match self.get(t, inst.args[0], inst)? {
            Value::Array(tile) => tile.clone(),
            _ => return Err(inst.op.error("stores something that is no tile")),
        };
        let places = self.places(inst, &memref, &index, tile.shape.clone(), &inst.dims)?;
        for (i, at) in places.at.into_iter().enumerate() {
            if let Some(at) = at {
                self.write(t, &memref, at, &tile.element(i), inst.op.loc())?;
            }
        }
        Ok(Step::Next)
    }

    pub fn tile_reduce(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let Value::Array(tile) = self.get(t, inst.args[0], inst)?.clone() else {
            return Err(inst.op.error("reduces something that is no tile"));
        };
        let dims = positions(inst.op, "dims", tile.shape.len())?;
        let format = inst.format()?;
        let combiner =
            inst.op.str("kind").and_then(Combiner::from_kind).ok_or_else(|| inst.op.error("needs 'kind'"))?;
        let shape = inst.shape.clone();
        let value = match reduce(inst.op, &tile, &dims, combiner, format, format)? {
            Value::Array(a) if a.len() == shape.iter().product::<usize>() => Value::Array(a.with_shape(shape)),
            _ => return Err(inst.op.error("has a result of another shape")),
        };
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn tile_scan(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let Value::Array(tile) = self.get(t, inst.args[0], inst)?.clone() else {
            return Err(inst.op.error("scans something that is no tile"));
        };
        let dim = inst.op.int("dim").unwrap_or(0) as usize;
        let format = inst.format()?;
        let kind = inst.op.str("kind").unwrap_or("add");
        let combiner = Combiner::from_kind(kind).ok_or_else(|| inst.op.error("needs 'kind'"))?;
        let no = || inst.op.unsupported(format!("with the kind '{kind}' on {}", format.ty));
        let (n, inner) = (tile.shape[dim], tile.shape[dim + 1..].iter().product::<usize>());
        let reverse = inst.op.bool("reverse");
        let mut values: Vec<Value> = (0..tile.len()).map(|i| tile.element(i)).collect();
        let mut totals = Vec::with_capacity(tile.len() / n.max(1));
        for line in 0..tile.len() / n.max(1) {
            let start = line / inner * n * inner + line % inner;
            let at = |i: usize| start + if reverse { n - 1 - i } else { i } * inner;
            for i in 1..n {
                values[at(i)] = match (&values[at(i - 1)], &values[at(i)]) {
                    (Value::Float(a), Value::Float(b)) => {
                        Value::Float(format.round(float_fn(combiner).ok_or_else(no)?(*a, *b)))
                    }
                    (Value::Int(a), Value::Int(b)) => Value::Int(int_fn(combiner, format).ok_or_else(no)?(*a, *b)),
                    _ => return Err(no()),
                };
            }
            totals.push(values[at(n - 1)].clone());
        }
        let mut shape = tile.shape.clone();
        self.set(t, inst.outs[0], Value::Array(gathered(shape.clone(), &values, format)));
        shape[dim] = 1;
        self.set(t, inst.outs[1], Value::Array(gathered(shape, &totals, format)));
        Ok(Step::Next)
    }

    /// What is past `count` stays in its order, which is none that anyone may rely on.
    pub fn tile_sort(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let tiles = (0..inst.args.len()).map(|i| match self.get(t, inst.args[i], inst)? {
            Value::Array(tile) => Ok(tile.clone()),
            _ => Err(inst.op.error("sorts something that is no tile")),
        });
        let tiles = tiles.collect::<Result<Vec<_>>>()?;
        let n = tiles[0].shape.last().copied().unwrap_or(1);
        let count = inst.op.int("count").map_or(n, |count| (count as usize).min(n));
        let mut order = orders(&tiles[0], n, n, inst.format()?, false);
        order.chunks_mut(n.max(1)).for_each(|row| row[count..].sort_unstable());
        for (&out, tile) in inst.outs.iter().zip(&tiles) {
            let sorted = tile.pick(tile.shape.clone(), &order);
            self.set(t, out, Value::Array(sorted));
        }
        Ok(Step::Next)
    }

    pub fn tile_dot(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let a = self.dot_operand(t, inst, 0)?;
        let b = self.dot_operand(t, inst, 1)?;
        let Value::Array(acc) = self.get(t, inst.args[2], inst)?.clone() else {
            return Err(inst.op.error("needs an accumulator tile"));
        };
        let format = inst.format()?;
        let (a_t, b_t) = (inst.op.bool("a_t"), inst.op.bool("b_t"));
        let (a, b) = match inst.op.attr("of").and_then(|of| of.as_type()) {
            Some(of) if of == Type::tf32() => {
                let format = self.format(inst, of)?;
                (rounded(&a, format), rounded(&b, format))
            }
            Some(of) => (apart(&a, usize::from(!a_t), of, true), apart(&b, usize::from(b_t), of, false)),
            None => (a, b),
        };
        let ([a0, a1], [b0, b1], [m, n]) = (two(inst, &a)?, two(inst, &b)?, two(inst, &acc)?);
        let k = if a_t { a0 } else { a1 };
        let l = if a_t { [0, 1, a1 as isize] } else { [0, a1 as isize, 1] };
        let r = if b_t { [0, b1 as isize, 1] } else { [0, 1, b1 as isize] };
        let fits = (if a_t { a1 } else { a0 }) == m && (if b_t { [b1, b0] } else { [b0, b1] }) == [k, n];
        if !fits {
            return Err(inst.op.error(format!(
                "has tiles of shapes {:?}, {:?} and {:?}, which do not fit",
                a.shape, b.shape, acc.shape
            )));
        }
        let sizes = Sizes { b: 1, m, n, k };
        let value = match format.class {
            Class::Float(round) => {
                let sums = product_of_floats(sizes, &a.as_floats(), l, &b.as_floats(), r, |x| x);
                let values = acc.as_floats().iter().zip(&sums).map(|(c, x)| round(c + x)).collect();
                Array::floats(acc.shape.clone(), values)
            }
            Class::Int(_) => {
                let sums = product_of_ints(sizes, &a.as_ints(), l, &b.as_ints(), r, |x| x);
                let values =
                    acc.as_ints().iter().zip(&sums).map(|(c, x)| format.wrap(i128::from(c.wrapping_add(*x)))).collect();
                Array::ints(acc.shape.clone(), values)
            }
        };
        self.set(t, inst.outs[0], Value::Array(value));
        Ok(Step::Next)
    }

    /// An operand of a product: a tile, or all of a memref.
    fn dot_operand(&mut self, t: usize, inst: &Inst, i: usize) -> Result<Array> {
        match self.get(t, inst.args[i], inst)?.clone() {
            Value::Array(tile) => Ok(tile),
            Value::Memory(memref) => {
                let float = inst.op.body.ty(inst.op.operand(i)).elem().is_float();
                let mut values = Vec::with_capacity(memref.len());
                let steps: Vec<isize> = memref.steps().into_iter().map(|step| step as isize).collect();
                for at in walk(&memref.shape, &steps, memref.start as isize) {
                    values.push(self.read(t, &memref, at, inst.op.loc())?);
                }
                let shape = memref.shape.to_vec();
                Ok(if float {
                    Array::floats(
                        shape,
                        values.iter().map(|v| if let Value::Float(x) = v { *x } else { 0.0 }).collect(),
                    )
                } else {
                    Array::ints(shape, values.iter().map(|v| if let Value::Int(n) = v { *n } else { 0 }).collect())
                })
            }
            _ => Err(inst.op.error("needs a tile or memory")),
        }
    }

    pub fn tile_iota(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let start = self.int(t, inst.args[0], inst)?;
        let (shape, format) = (inst.shape.clone(), inst.format()?);
        let dim = inst.op.int("dim").unwrap_or(0) as usize;
        if dim >= shape.len() {
            return Err(inst.op.error(format!("counts along dimension {dim} of rank {}", shape.len())));
        }
        let inner: usize = shape[dim + 1..].iter().product();
        let at = |i: usize| start + (i / inner % shape[dim]) as i64;
        let count = shape.iter().product();
        let value = if format.is_float() {
            Array::floats(shape.clone(), (0..count).map(|i| format.round(at(i) as f64)).collect())
        } else {
            Array::ints(shape.clone(), (0..count).map(|i| format.wrap(i128::from(at(i)))).collect())
        };
        self.set(t, inst.outs[0], Value::Array(value));
        Ok(Step::Next)
    }

    pub fn tile_broadcast(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let shape = inst.shape.clone();
        let value = match self.get(t, inst.args[0], inst)? {
            Value::Array(tile) if tile.shape.len() == shape.len() => {
                let dims: Vec<usize> = (0..shape.len()).collect();
                broadcast(tile, shape, &dims)
            }
            Value::Array(tile) if tile.len() == 1 => Array::splat(shape, &tile.element(0)),
            Value::Array(_) => return Err(inst.op.error("repeats a tile of another rank")),
            scalar => Array::splat(shape, scalar),
        };
        self.set(t, inst.outs[0], Value::Array(value));
        Ok(Step::Next)
    }

    pub fn tile_transpose(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let Value::Array(tile) = self.get(t, inst.args[0], inst)? else {
            return Err(inst.op.error("transposes something that is no tile"));
        };
        let perm = positions(inst.op, "perm", tile.shape.len())?;
        let value = Value::Array(transpose(tile, &perm));
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn tile_slice(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let Value::Array(tile) = self.get(t, inst.args[0], inst)? else {
            return Err(inst.op.error("takes a part of something that is no tile"));
        };
        let steps = strides(&tile.shape);
        let offsets = inst.op.ints("offsets").unwrap_or_default();
        let start = offsets.iter().zip(&steps).map(|(&at, &step)| at as isize * step as isize).sum();
        let steps: Vec<isize> = steps.iter().map(|&step| step as isize).collect();
        let value = Value::Array(tile.pick(inst.shape.clone(), &walk(&inst.shape, &steps, start)));
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn same(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let value = self.get(t, inst.args[0], inst)?.clone();
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    /// The position of one element in its buffer; an error if it is outside.
    pub fn element(&self, inst: &Inst, memref: &MemRef, index: &[i64], does: &str) -> Result<usize> {
        match position(&memref.shape, index) {
            Ok(_) if index.len() == memref.shape.len() => Ok(memref.at(index)),
            Ok(_) => {
                Err(inst.op.error(format!("has {} indices for memory of rank {}", index.len(), memref.shape.len())))
            }
            Err(d) => Err(outside(inst.op, does, index[d], d, memref.shape[d])),
        }
    }
}

fn two(inst: &Inst, tile: &Array) -> Result<[usize; 2]> {
    match tile.shape[..] {
        [a, b] => Ok([a, b]),
        _ => Err(inst.op.unsupported(format!("on tiles of shape {:?}: a product has two dimensions", tile.shape))),
    }
}

/// The place of each element of a tile: along a dimension of runs, a place is the first of its neighbours; elsewhere one place may be for
/// all.
fn spread_runs(chosen: &Array, shape: &[usize], along: &[bool]) -> Vec<i64> {
    let (places, steps) = (chosen.as_ints(), strides(&chosen.shape));
    let mut out = Vec::with_capacity(shape.iter().product());
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product::<usize>() {
        let (mut at, mut inside) = (0, 0);
        for d in 0..shape.len() {
            let run = shape[d] / chosen.shape[d];
            at += index[d] / run * steps[d];
            inside += if along[d] { index[d] % run } else { 0 };
        }
        out.push(if places[at] < 0 { places[at] } else { places[at] + inside as i64 });
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            if index[d] < shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    out
}

/// A tile with its elements rounded to a type of floats.
fn rounded(tile: &Array, format: Format) -> Array {
    Array::floats(tile.shape.clone(), tile.as_floats().iter().map(|&x| format.round(x)).collect())
}
