//! Ops of `core` that move elements: the result is a pick of the operand's elements.

use rc_dialects::core::window;
use rc_ir::{Dim, OpRef, Result};

use super::exec::Frame;
use super::value::{Array, Value};

/// Row-major strides of a shape, in elements.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// The positions that a walk over `shape` in row-major order visits, stepping by `strides` from `start`.
pub(crate) fn walk(shape: &[usize], strides: &[isize], start: isize) -> Vec<usize> {
    let count = shape.iter().product();
    let mut out = Vec::with_capacity(count);
    let mut index = vec![0; shape.len()];
    let mut at = start;
    while out.len() < count {
        out.push(at as usize);
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < shape[d] {
                break;
            }
            at -= strides[d] * shape[d] as isize;
            index[d] = 0;
        }
    }
    out
}

/// As [`walk`], with the strides of the dimensions named by `dims` of a row-major array (`None`: stay in place).
fn gather_strides(from: &[usize], dims: impl Iterator<Item = Option<usize>>) -> Vec<isize> {
    let all = strides(from);
    dims.map(|d| d.map_or(0, |d| all[d] as isize)).collect()
}

/// The array repeated to `shape`, its dimension i becoming dimension `dims[i]`.
pub(crate) fn broadcast(x: &Array, shape: Vec<usize>, dims: &[usize]) -> Array {
    let from = |d: usize| dims.iter().position(|&to| to == d).filter(|&i| x.shape[i] != 1);
    let steps = gather_strides(&x.shape, (0..shape.len()).map(from));
    let positions = walk(&shape, &steps, 0);
    x.pick(shape, &positions)
}

/// Result dimension i is dimension `perm[i]`.
pub(crate) fn transpose(x: &Array, perm: &[usize]) -> Array {
    let shape: Vec<usize> = perm.iter().map(|&d| x.shape[d]).collect();
    let steps = gather_strides(&x.shape, perm.iter().map(|&d| Some(d)));
    let positions = walk(&shape, &steps, 0);
    x.pick(shape, &positions)
}

impl Frame<'_> {
    pub fn broadcast(&mut self, op: OpRef) -> Result<Value> {
        let shape = self.shape_of(op, op.body.ty(op.result(0)))?;
        let x = match self.get(op.operand(0))? {
            Value::Array(x) => x,
            scalar => return Ok(Value::Array(Array::splat(shape, scalar))),
        };
        let dims = positions(op, "dims", shape.len())?;
        let fits = |(i, &d): (usize, &usize)| x.shape[i] == shape[d] || x.shape[i] == 1;
        if !dims.iter().enumerate().all(fits) {
            return Err(op.error(format!("cannot repeat {:?} to {shape:?}", x.shape)));
        }
        Ok(Value::Array(broadcast(x, shape, &dims)))
    }

    pub fn reshape(&mut self, op: OpRef) -> Result<Value> {
        let shape = self.shape_of(op, op.body.ty(op.result(0)))?;
        let x = match self.get(op.operand(0))? {
            Value::Array(x) => x.clone(),
            scalar => Array::splat(vec![], scalar),
        };
        if x.len() != shape.iter().product::<usize>() {
            return Err(op.error(format!("cannot reshape {:?} to {shape:?}: the numbers of elements differ", x.shape)));
        }
        Ok(Value::Array(x.with_shape(shape)))
    }

    pub fn transpose(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let perm = positions(op, "perm", x.shape.len())?;
        Ok(Value::Array(transpose(&x, &perm)))
    }

    pub fn slice(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let (starts, sizes) = (self.sizes(op, "starts")?, self.sizes(op, "sizes")?);
        let by = op.ints("strides").unwrap_or_else(|| vec![1; sizes.len()]);
        let all = strides(&x.shape);
        let mut start = 0;
        let mut steps = Vec::new();
        for d in 0..x.shape.len() {
            let last = starts[d] + (sizes[d] - 1).max(0) * by[d];
            let inside = |at: i64| (0..x.shape[d] as i64).contains(&at);
            if sizes[d] < 0 || (sizes[d] > 0 && !(inside(starts[d]) && inside(last))) {
                let range = format!("{} elements from {} by {}", sizes[d], starts[d], by[d]);
                return Err(op.error(format!("takes {range} of dimension {d}, which has {}", x.shape[d])));
            }
            start += starts[d] as isize * all[d] as isize;
            steps.push(by[d] as isize * all[d] as isize);
        }
        let shape: Vec<usize> = sizes.iter().map(|&n| n as usize).collect();
        let positions = walk(&shape, &steps, start);
        Ok(Value::Array(x.pick(shape, &positions)))
    }

    pub fn pad(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let (low, high) = (self.sizes(op, "low")?, self.sizes(op, "high")?);
        if low.iter().chain(&high).any(|&n| n < 0) {
            return Err(op.error(format!("pads by a negative number: low {low:?}, high {high:?}")));
        }
        let size = |d: usize| low[d] as usize + x.shape[d] + high[d] as usize;
        let shape: Vec<usize> = (0..x.shape.len()).map(size).collect();
        let all = strides(&shape);
        let start: usize = (0..shape.len()).map(|d| low[d] as usize * all[d]).sum();
        let steps: Vec<isize> = all.iter().map(|&s| s as isize).collect();
        let targets = walk(&x.shape, &steps, start as isize);
        let filled = Array::splat(shape.clone(), self.get(op.operand(1))?);
        Ok(Value::Array(if x.is_float() {
            Array::floats(shape, placed(filled.as_floats().into_owned(), &targets, &x.as_floats()))
        } else {
            Array::ints(shape, placed(filled.as_ints().into_owned(), &targets, &x.as_ints()))
        }))
    }

    pub fn concat(&mut self, op: OpRef) -> Result<Value> {
        let parts = (0..op.operands().len()).map(|i| self.array(op, i)).collect::<Result<Vec<_>>>()?;
        let Some(first) = parts.first() else { return Err(op.error("has no operands")) };
        let dim = op.int("dim").unwrap_or(0) as usize;
        let same = |p: &Array| (0..first.shape.len()).all(|d| d == dim || p.shape[d] == first.shape[d]);
        if let Some(odd) = parts.iter().find(|p| !same(p)) {
            return Err(op.error(format!("joins {:?} and {:?} along dimension {dim}", first.shape, odd.shape)));
        }
        let mut shape = first.shape.clone();
        shape[dim] = parts.iter().map(|p| p.shape[dim]).sum();
        let outer: usize = shape[..dim].iter().product();
        let inner: usize = shape[dim + 1..].iter().product();
        Ok(Value::Array(if first.is_float() {
            let parts: Vec<_> = parts.iter().map(|p| (p.as_floats(), p.shape[dim] * inner)).collect();
            Array::floats(shape, interleaved(outer, &parts))
        } else {
            let parts: Vec<_> = parts.iter().map(|p| (p.as_ints(), p.shape[dim] * inner)).collect();
            Array::ints(shape, interleaved(outer, &parts))
        }))
    }

    pub fn reverse(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let dims = positions(op, "dims", x.shape.len())?;
        let mut start = 0;
        let mut steps: Vec<isize> = strides(&x.shape).iter().map(|&s| s as isize).collect();
        for d in dims {
            start += steps[d] * (x.shape[d] as isize - 1);
            steps[d] = -steps[d];
        }
        let positions = walk(&x.shape, &steps, start);
        Ok(Value::Array(x.pick(x.shape.clone(), &positions)))
    }

    pub fn window(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let shape = self.shape_of(op, op.body.ty(op.result(0)))?;
        let dims = positions(op, "dims", x.shape.len())?;
        let (all, rank) = (strides(&x.shape), x.shape.len());
        // For each window and each of its elements, how far the element lies from the first along its dimension.
        let mut far: Vec<Vec<usize>> = Vec::new();
        for (i, &d) in dims.iter().enumerate() {
            let size = x.shape[d] as i64;
            let at = |n: usize| Dim::Static(n as i64);
            let places = (0..shape[d]).flat_map(|o| (0..shape[rank + i]).map(move |k| (at(o), at(k))));
            let places = places.map(|place| window::element(op, i, place, Dim::Static(size)).as_static().unwrap_or(-1));
            let places: Vec<i64> = places.collect();
            if let Some(place) = places.iter().find(|&&p| p < 0 || p >= size) {
                return Err(op.error(format!("reads element {place} of dimension {d}, which has {size}")));
            }
            far.push(places.iter().map(|&p| p as usize * all[d]).collect());
        }
        let slides: Vec<Option<usize>> = (0..rank).map(|d| dims.iter().position(|&s| s == d)).collect();
        let mut place = vec![0; shape.len()];
        let positions: Vec<usize> = (0..shape.iter().product())
            .map(|_| {
                let along = |d: usize| match slides[d] {
                    Some(i) => far[i][place[d] * shape[rank + i] + place[rank + i]],
                    None => place[d] * all[d],
                };
                let at = (0..rank).map(along).sum();
                for d in (0..shape.len()).rev() {
                    place[d] += 1;
                    if place[d] < shape[d] {
                        break;
                    }
                    place[d] = 0;
                }
                at
            })
            .collect();
        Ok(Value::Array(x.pick(shape, &positions)))
    }

    pub fn iota(&mut self, op: OpRef) -> Result<Value> {
        let ty = op.body.ty(op.result(0));
        let (shape, format) = (self.shape_of(op, ty)?, self.format(op, ty)?);
        let dim = op.int("dim").unwrap_or(0) as usize;
        let count = shape.iter().product();
        let inner: usize = shape[dim + 1..].iter().product();
        let index = |i: usize| (i / inner % shape[dim]) as i64;
        if format.is_float() {
            let at = |i| format.round(index(i) as f64);
            return Ok(Value::Array(Array::floats(shape.clone(), (0..count).map(at).collect())));
        }
        let values = (0..count).map(|i| format.wrap(i128::from(index(i)))).collect();
        Ok(Value::Array(Array::ints(shape, values)))
    }

    pub fn assume_shape(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let ty = op.body.ty(op.result(0));
        let sizes: Vec<i64> = x.shape.iter().map(|&n| n as i64).collect();
        super::bind::learn_shape(ty, &sizes, &mut self.symbols);
        self.symbols.check(op.loc(), &rc_dialects::func::symbols(op.body), true)?;
        let shape = self.shape_of(op, ty)?;
        if x.shape == shape {
            return Ok(Value::Array(x));
        }
        Err(op.error(format!("does not hold: the operand has the shape {:?}, not {shape:?}", x.shape)))
    }
}

/// The attribute's dimensions, each below `rank`.
pub(crate) fn positions(op: OpRef, name: &str, rank: usize) -> Result<Vec<usize>> {
    let dims = op.ints(name).unwrap_or_default();
    let at = |&d: &i64| usize::try_from(d).ok().filter(|&d| d < rank);
    dims.iter()
        .map(at)
        .collect::<Option<_>>()
        .ok_or_else(|| op.error(format!("has '{name}' = {dims:?} outside of rank {rank}")))
}

fn placed<T: Copy>(mut into: Vec<T>, targets: &[usize], values: &[T]) -> Vec<T> {
    targets.iter().zip(values).for_each(|(&t, &v)| into[t] = v);
    into
}

/// For each of `outer` rows, that row of every part: (elements, elements of a row).
fn interleaved<T: Copy>(outer: usize, parts: &[(std::borrow::Cow<[T]>, usize)]) -> Vec<T>
where
    [T]: ToOwned<Owned = Vec<T>>,
{
    (0..outer).flat_map(|o| parts.iter().flat_map(move |(p, row)| p[o * row..(o + 1) * row].iter().copied())).collect()
}
