//! Reductions and scans. Sums and products are formed in f64, rounded to the accumulation type, then to the result's.

use rc_dialects::interfaces::{self, Combiner, FloatFn, IntFn, Reduction, ReductionInfo};
use rc_ir::{OpName, OpRef, Result, Type};

use super::exec::Frame;
use super::shape::{strides, walk};
use super::value::{Array, Format, Value};

/// The function of two elements behind a combiner that is no arg-kind.
pub(crate) fn float_fn(combiner: Combiner) -> Option<fn(f64, f64) -> f64> {
    match declared(combiner)?.float? {
        FloatFn::Binary(f) => Some(f),
        _ => None,
    }
}
pub(crate) fn int_fn(combiner: Combiner, format: Format) -> Option<impl Fn(i64, i64) -> i64> {
    let int = rc_dialects::core::scalar::IntType::of(format.ty)?;
    match declared(combiner)?.int? {
        IntFn::Binary(f) => Some(move |a, b| format.wrap(f(format.wide(a), format.wide(b), int).unwrap_or(0))),
        _ => None,
    }
}
fn declared(combiner: Combiner) -> Option<&'static interfaces::Elementwise> {
    OpName::new(combiner.core_op()?).def()?.interface()
}

/// What a combiner starts from, in the class of `ty`.
pub(crate) fn identity(combiner: Combiner, ty: Type) -> Option<Value> {
    rc_dialects::core::scalar::splat_of(combiner.identity(ty)?).map(Value::from_scalar)
}

/// Whether the candidate takes the place of the best so far in an argmax (argmin) that meets elements in order.
pub(crate) fn better(combiner: Combiner, candidate: f64, best: f64) -> bool {
    if best.is_nan() {
        return false;
    }
    candidate.is_nan() || if combiner == Combiner::ArgMax { candidate > best } else { candidate < best }
}

impl Frame<'_> {
    pub fn reduce(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let info = reduction(op)?;
        let (format, acc) = (self.format(op, op.body.ty(op.result(0)))?, self.format(op, info.acc)?);
        reduce(op, &x, &info.dims, info.combiner, acc, format)
    }

    pub fn scan(&mut self, op: OpRef) -> Result<Value> {
        let x = self.array(op, 0)?;
        let info = reduction(op)?;
        let format = self.format(op, op.body.ty(op.result(0)))?;
        let acc = self.format(op, info.acc)?;
        let dim = info.dims[0];
        let order = Order {
            lines: lines(&x.shape, dim),
            length: x.shape[dim],
            step: strides(&x.shape)[dim],
            reverse: op.bool("reverse"),
            exclusive: op.bool("exclusive"),
        };
        let no = || op.unsupported(format!("with the kind '{}' on {}", info.combiner.kind(), format.ty));
        let start = identity(info.combiner, info.acc).ok_or_else(no)?;
        Ok(Value::Array(match start {
            Value::Float(start) => {
                let f = float_fn(info.combiner).ok_or_else(no)?;
                let values = order.run(&x.as_floats(), start, f, |v| format.round(acc.round(v)));
                Array::floats(x.shape.clone(), values)
            }
            Value::Int(start) => {
                let f = int_fn(info.combiner, acc).ok_or_else(no)?;
                let values = order.run(&x.as_ints(), start, f, |v| format.wrap(acc.wide(v)));
                Array::ints(x.shape.clone(), values)
            }
            _ => return Err(no()),
        }))
    }
}

fn reduction(op: OpRef) -> Result<ReductionInfo> {
    let interface = op.def().and_then(|d| d.interface::<Reduction>());
    interface.and_then(|r| (r.0)(op)).ok_or_else(|| op.error("has attributes that say no reduction"))
}

/// Reduces `dims`, which vanish.
pub(crate) fn reduce(
    op: OpRef,
    x: &Array,
    dims: &[usize],
    combiner: Combiner,
    acc: Format,
    out: Format,
) -> Result<Value> {
    let kept: Vec<usize> = (0..x.shape.len()).filter(|d| !dims.contains(d)).collect();
    let all = strides(&x.shape);
    let part = |dims: &[usize]| {
        let shape: Vec<usize> = dims.iter().map(|&d| x.shape[d]).collect();
        let steps: Vec<isize> = dims.iter().map(|&d| all[d] as isize).collect();
        let offsets = walk(&shape, &steps, 0);
        (shape, offsets)
    };
    let ((shape, starts), (_, inner)) = (part(&kept), part(dims));
    let no = || op.unsupported(format!("with the kind '{}' on {}", combiner.kind(), out.ty));
    if matches!(combiner, Combiner::ArgMax | Combiner::ArgMin) {
        if inner.is_empty() && !starts.is_empty() {
            return Err(op.error(format!("finds the '{}' of no elements", combiner.kind())));
        }
        return Ok(Value::Array(Array::ints(shape, arg(x, &starts, &inner, combiner))));
    }
    Ok(Value::Array(match identity(combiner, acc.ty).ok_or_else(no)? {
        Value::Float(start) => {
            let (f, from) = (float_fn(combiner).ok_or_else(no)?, x.as_floats());
            let one = |&s: &usize| out.round(acc.round(inner.iter().fold(start, |a, &i| f(a, from[s + i]))));
            Array::floats(shape, starts.iter().map(one).collect())
        }
        Value::Int(start) => {
            let (f, from) = (int_fn(combiner, acc).ok_or_else(no)?, x.as_ints());
            let one = |&s: &usize| out.wrap(acc.wide(inner.iter().fold(start, |a, &i| f(a, from[s + i]))));
            Array::ints(shape, starts.iter().map(one).collect())
        }
        _ => return Err(no()),
    }))
}

fn arg(x: &Array, starts: &[usize], inner: &[usize], combiner: Combiner) -> Vec<i64> {
    if x.is_float() {
        let from = x.as_floats();
        let one =
            |&s: &usize| {
                (1..inner.len()).fold(0, |best, i| {
                    if better(combiner, from[s + inner[i]], from[s + inner[best]]) { i } else { best }
                })
            };
        return starts.iter().map(|s| one(s) as i64).collect();
    }
    let from = x.as_ints();
    let one = |&s: &usize| {
        (1..inner.len()).fold(0, |best, i| {
            let (new, old) = (from[s + inner[i]], from[s + inner[best]]);
            if (combiner == Combiner::ArgMax && new > old) || (combiner == Combiner::ArgMin && new < old) {
                i
            } else {
                best
            }
        })
    };
    starts.iter().map(|s| one(s) as i64).collect()
}

/// The positions at which the lines along `dim` start.
fn lines(shape: &[usize], dim: usize) -> Vec<usize> {
    let mut others = shape.to_vec();
    others[dim] = 1;
    walk(&others, &strides(shape).iter().map(|&s| s as isize).collect::<Vec<_>>(), 0)
}

/// How a scan goes through an array.
struct Order {
    lines: Vec<usize>,
    length: usize,
    step: usize,
    reverse: bool,
    exclusive: bool,
}

impl Order {
    fn run<T: Copy>(&self, from: &[T], start: T, f: impl Fn(T, T) -> T, round: impl Fn(T) -> T) -> Vec<T> {
        let mut out = from.to_vec();
        if self.length == 0 {
            return out;
        }
        for &line in &self.lines {
            let mut acc = start;
            for i in 0..self.length {
                let i = if self.reverse { self.length - 1 - i } else { i };
                let at = line + i * self.step;
                let next = f(acc, from[at]);
                out[at] = round(if self.exclusive { acc } else { next });
                acc = next;
            }
        }
        out
    }
}
