//! Gathers of a few elements of what elementwise operations compute, as of the logarithms of a softmax by a loss: the operands' elements are gathered and
//! computed with. The whole result need not lie in memory then, and what is gathered goes with the reductions of the same rows.

use super::reshape::{as_shape, is_splat, replace};
use rc_dialects::core::convert::CONVERT;
use rc_dialects::core::gather::GATHER;
use rc_dialects::core::shape::{BROADCAST, RESHAPE};
use rc_ir::effects::is_dead;
use rc_ir::{Attr, Body, Builder, Dim, Op, Result, Traits, Value};

/// Moves gathers of at most one in `few` elements before elementwise operations; how many.
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn move_gathers(body: &mut Body, few: i64) -> Result<u64> {
    let mut left: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &GATHER).collect();
    let mut moved = 0;
    while let Some(gather) = left.pop() {
        if let Some(gather) = without_units(body, gather)? {
            left.push(gather);
        } else if let Some(made) = before_elementwise(body, gather, few)? {
            left.extend(made);
        } else {
            continue;
        }
        moved += 1;
    }
    for op in body.walk().into_iter().rev() {
        if moved > 0 && is_dead(body, op) {
            body.erase(op);
        }
    }
    Ok(moved)
}

/// The batch of a gather along the dimension that follows its batch, the table's last.
fn batch_of(body: &Body, gather: Op) -> Option<usize> {
    let op = body.op_ref(gather);
    let batch = usize::try_from(op.int("batch").unwrap_or(0)).ok()?;
    let last = body.ty(op.operand(0)).rank().checked_sub(1)?;
    (op.int("axis") == Some(last as i64) && batch == last).then_some(batch)
}

/// One element for each of a batch: a gather by indices without dimensions of one element, where it has these.
fn without_units(body: &mut Body, gather: Op) -> Result<Option<Op>> {
    let Some(batch) = batch_of(body, gather) else { return Ok(None) };
    let indices = body.operand(gather, 1);
    let shape = body.ty(indices).shape();
    if shape.len() == batch || shape[batch..].iter().any(|&d| d != Dim::Static(1)) {
        return Ok(None);
    }
    let old = body.ty(body.result(gather, 0));
    let mut state = body.state(gather);
    state.operands[1] = as_shape(body, gather, indices, &shape[..batch])?;
    state.results[0] = old.with_shape(&shape[..batch]);
    let made = body.create(state);
    replace(body, gather, made, |b, value| b.op(&RESHAPE).operand(value).result(old).try_value())?;
    Ok(Some(made))
}

/// What an operand of the elementwise operation that makes a table is, for a gather from it.
enum Operand {
    Splat,
    /// The same for all places along the gathered dimension.
    Rows,
    Table,
}

/// The elementwise operation on what is gathered of its operands. Gives the gathers.
fn before_elementwise(body: &mut Body, gather: Op, few: i64) -> Result<Option<Vec<Op>>> {
    let (table, result) = (body.operand(gather, 0), body.result(gather, 0));
    let Some(made_by) = body.defining_op(table) else { return Ok(None) };
    let plain = body.op_ref(made_by).has(Traits::ELEMENTWISE) && body.results(made_by).len() == 1;
    let widens = body.name(made_by) == &CONVERT
        && body.ty(body.operand(made_by, 0)).elem().bit_width() <= body.ty(table).elem().bit_width();
    let batch = batch_of(body, gather).filter(|_| is_few(body, gather, few));
    if !plain || !(widens || batch.is_some()) {
        return Ok(None);
    }
    let operands: Vec<Value> = body.operands(made_by).collect();
    let kinds: Option<Vec<Operand>> = operands.iter().map(|&v| operand(body, v, table, batch)).collect();
    let Some(kinds) = kinds else { return Ok(None) };
    let shape = body.ty(result).shape();
    let mut state = body.state(made_by);
    let mut gathers = Vec::new();
    for ((slot, &value), kind) in state.operands.iter_mut().zip(&operands).zip(kinds) {
        let ty = body.ty(value).with_shape(&shape);
        *slot = match kind {
            Operand::Splat => as_shape(body, gather, value, &shape)?,
            Operand::Rows => {
                let repeat = body.defining_op(value).expect("a broadcast");
                let (source, dims) = (body.operand(repeat, 0), body.op_ref(repeat).ints("dims").unwrap_or_default());
                match body.ty(source) == ty {
                    true => source,
                    false => {
                        let mut b = Builder::before(body, gather);
                        let repeat = b.op(&BROADCAST).operand(source);
                        repeat.attr("dims", Attr::i64s(&dims)).result(ty).try_value()?
                    }
                }
            }
            Operand::Table => {
                let mut own = body.state(gather);
                (own.operands[0], own.results[0]) = (value, ty);
                let made = body.create(own);
                body.insert_before(gather, made);
                gathers.push(made);
                body.result(made, 0)
            }
        };
    }
    state.results[0] = body.ty(result);
    let made = body.create(state);
    replace(body, gather, made, |_, value| Ok(value))?;
    Ok(Some(gathers))
}

/// Whether what is gathered has at most one in `few` of the table's elements: less than what the whole table would take to store.
fn is_few(body: &Body, gather: Op, few: i64) -> bool {
    let elements = |v: Value| {
        let shape = body.ty(v).static_shape()?;
        shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d))
    };
    let (table, result) = (elements(body.operand(gather, 0)), elements(body.result(gather, 0)));
    table.zip(result).is_some_and(|(table, result)| result.saturating_mul(few) <= table)
}

/// `None` where an operand is neither of the table's shape nor the same along the gathered dimension.
fn operand(body: &Body, value: Value, table: Value, batch: Option<usize>) -> Option<Operand> {
    if is_splat(body, value) {
        return Some(Operand::Splat);
    }
    let repeat = body.defining_op(value).filter(|&op| body.name(op) == &BROADCAST);
    let dims = repeat.and_then(|op| body.op_ref(op).ints("dims"));
    if let (Some(dims), Some(batch)) = (dims, batch)
        && dims.iter().all(|&d| (d as usize) < batch)
    {
        return Some(Operand::Rows);
    }
    (body.ty(value).shape() == body.ty(table).shape()).then_some(Operand::Table)
}
