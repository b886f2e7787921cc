//! Results of attention are written in the order in which they are read: attention writes through a transpose as well as without one.

use crate::fuse::{Class, classify};
use rc_dialects::core::convert::CONVERT;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{RESHAPE, TRANSPOSE};
use rc_dialects::core::slice::CONCAT;
use rc_ir::effects::is_dead;
use rc_ir::{Attr, Body, Builder, Dim, Op, Result, Traits, Value};

/// Has what reads a result of attention that is transposed too read the transposed one; how many results.
pub fn settle(body: &mut Body, attention: Op) -> Result<u64> {
    let results: Vec<Value> = body.results(attention).collect();
    let mut settled = 0;
    for result in results {
        let Some(transpose) = settling(body, result) else { continue };
        if body.uses(result).any(|(user, _)| body.op_ref(user).has(Traits::TERMINATOR)) {
            continue;
        }
        let before = body.uses(result).count();
        let users: Vec<Op> = body.uses(result).map(|(user, _)| user).collect();
        for user in users {
            sum_turned(body, user, transpose)?;
        }
        settled += u64::from(body.uses(result).count() < before);
        let others: Vec<(Op, usize)> = body.uses(result).filter(|&(user, _)| user != transpose).collect();
        if !others.is_empty() {
            read_turned(body, transpose, &others)?;
            settled += 1;
        }
    }
    Ok(settled)
}

/// Has sums of what a transpose is of, converted perhaps, add up the transposed elements, where what they keep stays in order.
fn sum_turned(body: &mut Body, user: Op, transpose: Op) -> Result {
    let converts = body.name(user) == &CONVERT;
    let only = |v: Value| body.uses(v).next().map(|(user, _)| user).filter(|_| body.has_one_use(v));
    let sum = if converts { only(body.result(user, 0)) } else { Some(user) };
    let Some(sum) = sum.filter(|&sum| body.name(sum) == &REDUCE) else { return Ok(()) };
    let perm = body.op_ref(transpose).ints("perm").unwrap_or_default();
    let dims = body.op_ref(sum).ints("dims").unwrap_or_default();
    let (reduced, kept): (Vec<i64>, Vec<i64>) = (0..perm.len() as i64).partition(|&d| dims.contains(&perm[d as usize]));
    let sums = body.op_ref(sum).str("kind") == Some("add") && body.operand_count(sum) == 1;
    if !sums || !kept.iter().map(|&d| perm[d as usize]).is_sorted() {
        return Ok(());
    }
    move_behind(body, transpose);
    let turned = body.result(transpose, 0);
    let mut operand = turned;
    if converts {
        let ty = body.ty(turned).with_elem(body.ty(body.result(user, 0)).elem());
        operand = Builder::before(body, user).op(&CONVERT).operand(turned).result(ty).try_value()?;
    }
    body.set_operand(sum, 0, operand);
    body.set_attr(sum, "dims", Attr::i64s(&reduced));
    if converts {
        body.erase(user);
    }
    Ok(())
}

/// Puts a transpose right behind what it is of.
fn move_behind(body: &mut Body, transpose: Op) {
    let from = body.defining_op(body.operand(transpose, 0)).expect("attention computes it");
    let next = body.next_op(from).expect("the terminator at least");
    if next != transpose {
        body.move_before(next, transpose);
    }
}

/// Makes a transpose of joined results of attention the join of their transposes, which attention writes; whether it did.
pub fn join_turned(body: &mut Body, concat: Op) -> Result<bool> {
    let joined = body.result(concat, 0);
    let Some(transpose) = whole_rows_turned(body, joined) else { return Ok(false) };
    let operands: Vec<Value> = body.operands(concat).collect();
    let uses: Vec<(Op, usize)> = body.uses(joined).filter(|&(user, _)| user != transpose).collect();
    let ends = uses.iter().any(|&(user, _)| body.op_ref(user).has(Traits::TERMINATOR));
    let perm = body.op_ref(transpose).ints("perm").unwrap_or_default();
    let Some(sources) = operands.iter().map(|&v| source_of(body, v)).collect::<Option<Vec<_>>>().filter(|_| !ends)
    else {
        return Ok(false);
    };
    let along = body.op_ref(concat).int("dim").unwrap_or(0);
    let mut b = Builder::before(body, concat);
    let mut parts = Vec::new();
    for (&operand, (source, dims)) in operands.iter().zip(sources) {
        let order: Vec<i64> = perm.iter().filter_map(|&d| dims[d as usize]).collect();
        let turned = b.op(&TRANSPOSE).operand(source).attr("perm", Attr::i64s(&order)).try_value()?;
        let shape = b.ty(operand).shape();
        let shape: Vec<_> = perm.iter().map(|&d| shape[d as usize]).collect();
        let ty = b.ty(operand).with_shape(&shape);
        parts.push(match b.ty(turned) == ty {
            true => turned,
            false => b.op(&RESHAPE).operand(turned).result(ty).try_value()?,
        });
    }
    let dim = perm.iter().position(|&d| d == along).unwrap_or(0) as i64;
    let made = b.op(&CONCAT).operands(&parts).attr("dim", Attr::i64(dim)).try_value()?;
    if !uses.is_empty() {
        let back =
            Builder::before(body, concat).op(&TRANSPOSE).operand(made).attr("perm", inverse(&perm)).try_value()?;
        uses.iter().for_each(|&(user, operand)| body.set_operand(user, operand, back));
    }
    body.replace_op(transpose, &[made]);
    body.erase(concat);
    let views: Vec<Op> = operands.into_iter().filter_map(|v| body.defining_op(v)).collect();
    for view in views {
        if !body.is_erased(view) && body.name(view) == &RESHAPE && is_dead(body, view) {
            body.erase(view);
        }
    }
    Ok(true)
}

/// The first transpose of a value that leaves its rows whole.
fn whole_rows_turned(body: &Body, value: Value) -> Option<Op> {
    let block = body.parent(body.defining_op(value)?);
    let rows = |op: &Op| {
        let perm = body.op_ref(*op).ints("perm").unwrap_or_default();
        body.name(*op) == &TRANSPOSE && perm.last() == Some(&(perm.len() as i64 - 1)) && !perm.is_sorted()
    };
    body.uses(value).map(|(user, _)| user).filter(|&user| body.parent(user) == block).find(rows)
}

/// The result of attention that a value is, or is with dimensions of one element more; and of each of the value's dimensions, which one of the result it is.
fn source_of(body: &Body, value: Value) -> Option<(Value, Vec<Option<i64>>)> {
    let def = body.defining_op(value)?;
    let source = if body.name(def) == &RESHAPE { body.operand(def, 0) } else { value };
    let from = body.defining_op(source).filter(|&op| classify(body.op_ref(op)) == Class::Attention)?;
    let (own, shape) = (body.ty(value).shape(), body.ty(source).shape());
    let mut dims = Vec::new();
    let mut next = 0;
    for &size in own.iter() {
        let same = shape.get(next) == Some(&size);
        dims.push(same.then_some(next as i64));
        next += usize::from(same);
        if !same && size != Dim::Static(1) {
            return None;
        }
    }
    (next == shape.len() && body.parent(from) == body.parent(def)).then_some((source, dims))
}

fn inverse(perm: &[i64]) -> Attr {
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(to, &from)| back[from as usize] = to as i64);
    Attr::i64s(&back)
}

/// The first transpose of a result of attention that leaves its rows whole.
pub fn settling(body: &Body, result: Value) -> Option<Op> {
    let attention = body.defining_op(result)?;
    whole_rows_turned(body, result).filter(|_| classify(body.op_ref(attention)) == Class::Attention)
}

/// Has these uses of what a transpose is of read the transpose, turned back.
pub fn read_turned(body: &mut Body, transpose: Op, uses: &[(Op, usize)]) -> Result {
    let perm = body.op_ref(transpose).ints("perm").unwrap_or_default();
    move_behind(body, transpose);
    let turned = body.result(transpose, 0);
    let mut b = Builder::after(body, transpose);
    let value = b.op(&TRANSPOSE).operand(turned).attr("perm", inverse(&perm)).try_value()?;
    for &(user, operand) in uses {
        body.set_operand(user, operand, value);
    }
    Ok(())
}
