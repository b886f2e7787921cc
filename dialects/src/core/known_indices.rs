//! Gathers at places that follow from numbers alone: parts of the table, side by side.
//!
//! ```text
//! gather(x, (iota + 1) rem 3)      concat(slice(x, 1 to 3), slice(x, 0 to 1))
//! ```

use super::scalar::{self, Scalar};
use crate::builder::CoreBuilder;
use crate::op;
use rc_ir::attr::AttrData;
use rc_ir::op_def::{Traits, constant_of};
use rc_ir::rewrite::Rewriter;
use rc_ir::{Body, Dim, Op, Result, Value};

/// The most indices that are computed here, and the most parts that a table is taken in.
const MOST: i64 = 1024;
const PARTS: usize = 4;
/// The most operations that are followed for an index, each as often as it is used.
const STEPS: usize = 256;

/// Reads the few parts of a table that known indices name, each as a slice: these fuse with what computes the table and with what uses it.
pub fn slice_at_known(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (Some(axis), 0) = (at.int("axis"), at.int("batch").unwrap_or(0)) else { return Ok(false) };
    let (table, indices, result) = (at.operand(0), at.operand(1), at.result_types()[0]);
    let shape = rw.body.ty(table).shape().to_vec();
    let (axis, Some(size)) = (axis as usize, shape[axis as usize].as_static()) else { return Ok(false) };
    let Some(parts) = parts(rw.body, indices).filter(|parts| parts.iter().all(|p| p.start >= 0 && p.end <= size))
    else {
        return Ok(false);
    };
    let mut b = rw.before(op);
    let slices: Vec<Value> = parts
        .into_iter()
        .map(|part| {
            let (mut starts, mut sizes) = (vec![Dim::Static(0); shape.len()], shape.clone());
            (starts[axis], sizes[axis]) = (Dim::Static(part.start), Dim::Static(part.end - part.start));
            b.slice(table, &starts, &sizes)
        })
        .collect();
    let joined = if let [one] = slices[..] { one } else { b.concat(&slices, axis as i64) };
    let value = b.reshape(joined, &result.shape());
    rw.replace(op, &[value]);
    Ok(true)
}

/// The runs of numbers that indices go through one by one, if they are known and the runs are few.
fn parts(body: &Body, indices: Value) -> Option<Vec<std::ops::Range<i64>>> {
    let shape = body.ty(indices).static_shape()?;
    let count = shape.iter().product::<i64>();
    let mut parts: Vec<std::ops::Range<i64>> = Vec::new();
    for number in (0..count).take_while(|_| (1..=MOST).contains(&count)) {
        let at = place(number, &shape);
        let index = i64::try_from(element(body, indices, &at, &mut { STEPS })?.int()?).ok()?;
        let next = index.checked_add(1)?;
        let count = parts.len();
        match parts.last_mut() {
            Some(part) if part.end == index => part.end = next,
            _ if count < PARTS => parts.push(index..next),
            _ => return None,
        }
    }
    (!parts.is_empty()).then_some(parts)
}

/// The place of a row-major number.
fn place(number: i64, shape: &[i64]) -> Vec<i64> {
    let mut rest = number;
    let mut at: Vec<i64> = shape.iter().rev().map(|size| (rest % size, rest /= size).0).collect();
    at.reverse();
    at
}

/// An element of a value that numbers and counters make; `steps` more operations are followed at most.
fn element(body: &Body, value: Value, at: &[i64], steps: &mut usize) -> Option<Scalar> {
    let op = body.op_ref(body.defining_op(value)?);
    let (ty, shape) = (body.ty(value), body.ty(value).static_shape()?);
    if let Some(attr) = constant_of(body, value) {
        let AttrData::Dense { data, .. } = attr.data() else { return scalar::splat_of(attr) };
        let number = at.iter().zip(&shape).fold(0, |n, (i, size)| n * size + i) as usize;
        let width = ty.elem().byte_width()? as usize;
        let start = if data.splat { 0 } else { number * width };
        let mut word = [0; 8];
        word.get_mut(..width)?.copy_from_slice(data.bytes.get(start..start + width)?);
        return Scalar::from_bits(u64::from_le_bytes(word), ty.elem());
    }
    *steps = steps.checked_sub(1)?;
    match op.name().as_str() {
        op::core::IOTA => Some(Scalar::Int(i128::from(at[op.int("dim")? as usize]))),
        op::core::BROADCAST => {
            let dims = op.ints("dims")?;
            let from = body.ty(op.operand(0)).static_shape()?;
            let at: Vec<i64> = dims.iter().zip(&from).map(|(&d, &n)| if n == 1 { 0 } else { at[d as usize] }).collect();
            element(body, op.operand(0), &at, steps)
        }
        op::core::RESHAPE => {
            let from = body.ty(op.operand(0)).static_shape()?;
            let number = at.iter().zip(&shape).fold(0, |n, (i, size)| n * size + i);
            element(body, op.operand(0), &place(number, &from), steps)
        }
        _ if op.has(Traits::ELEMENTWISE) => {
            let args: Vec<Scalar> = op.operands().map(|v| element(body, v, at, steps)).collect::<Option<_>>()?;
            let operand = body.ty(op.operands().next_back()?).elem();
            scalar::eval(op.def()?, body.attrs(op.op), operand, ty.elem(), &args)
        }
        _ => None,
    }
}
