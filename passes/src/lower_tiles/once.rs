//! Rows that go with the columns of a product's sums, such as a bias of keys, or what attention's gradients subtract for each query. As those columns lie,
//! eight lanes of a warp would load and compute the same: rows of a loop are loaded and computed once in a warp instead, and lanes exchange them where they
//! are repeated.

use super::layout::Layout;
use super::place::give;
use rc_dialects::op;
use rc_ir::{Block, Body, Builder, Mapping, Op, OpRef, Result, Traits, Type, Value};

/// Gives the rows that loops load beside their products, and what is computed of them alone, the layout [`Layout::Once`].
pub fn hold_rows_once(body: &mut Body) -> Result {
    let dots: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::kernel::DOT).collect();
    let mut blocks: Vec<Block> = dots.into_iter().filter_map(|dot| looped(body, dot)).collect();
    blocks.dedup();
    for block in blocks {
        let loads: Vec<Op> = body.ops(block).filter(|&op| body.name(op) == op::kernel::LOAD).collect();
        for load in loads {
            let Some(once) = once_of(body.ty(body.result(load, 0))) else { continue };
            if let Some(row) = Row::of(body, block, load) {
                row.hold_once(body, &once)?;
            }
        }
    }
    Ok(())
}

fn looped(body: &Body, op: Op) -> Option<Block> {
    body.parent_op(op).filter(|&parent| body.name(parent) == op::kernel::FOR)?;
    body.parent(op)
}

/// The layout that a row with a product's columns is to have; none for other tiles.
fn once_of(ty: Type) -> Option<Layout> {
    let Some(Layout::Mma { warps }) = Layout::of(ty) else { return None };
    let shape = ty.static_shape()?;
    let once = Layout::Once { warps };
    (shape[0] == 1 && shape[1] > 1).then_some(once).filter(|once| once.distribute(&shape).is_some())
}

/// A row, and what is computed of it.
struct Row {
    /// The load and elementwise operations, in order.
    ops: Vec<Op>,
    /// Where others use the values: they are converted before.
    ends: Vec<(Op, usize)>,
}

impl Row {
    /// `None` where other tiles go in than what is known without memory, where regions use it, or lanes would exchange elements of another size than 4 bytes.
    fn of(body: &Body, block: Block, load: Op) -> Option<Row> {
        let mut row = Row { ops: vec![load], ends: Vec::new() };
        for op in body.ops(block).skip_while(|&op| op != load).skip(1).map(|op| body.op_ref(op)) {
            let made = |v: Value| body.defining_op(v).is_some_and(|def| row.ops.contains(&def));
            let given = |v: Value| made(v) || is_known(body, v);
            let read: Vec<usize> = (0..op.operands().len()).filter(|&i| made(op.operand(i))).collect();
            let same = |op: OpRef| once_of(body.ty(op.result(0))).is_some();
            match op.has(Traits::ELEMENTWISE) && op.results().len() == 1 && same(op) && !read.is_empty() {
                true => {
                    op.operands().all(given).then_some(())?;
                    row.ops.push(op.op);
                }
                false => row.ends.extend(read.into_iter().map(|i| (op.op, i))),
            }
        }
        let here = |&op: &Op| body.uses(body.result(op, 0)).all(|(user, _)| body.parent(user) == Some(block));
        let words = |&(user, at): &(Op, usize)| body.ty(body.operand(user, at)).elem().byte_width() == Some(4);
        (!row.ends.is_empty() && row.ops.iter().all(here) && row.ends.iter().all(words)).then_some(row)
    }

    fn hold_once(self, body: &mut Body, once: &Layout) -> Result {
        let ends = self.ends.into_iter().map(|(user, at)| (user, at, body.operand(user, at)));
        let ends: Vec<(Op, usize, Value, Type)> =
            ends.map(|(user, at, value)| (user, at, value, body.ty(value))).collect();
        for &op in &self.ops {
            for at in 0..body.operand_count(op) {
                let value = body.operand(op, at);
                if is_known(body, value) {
                    let copied = copy_known(body, op, value, once);
                    body.set_operand(op, at, copied);
                }
            }
            give(body, body.result(op, 0), once);
        }
        let mut converted: Vec<(Value, Value)> = Vec::new();
        for (user, at, value, ty) in ends {
            let known = converted.iter().find(|(from, _)| *from == value).map(|(_, to)| *to);
            let to = match known {
                Some(to) => to,
                None => {
                    let mut b = Builder::before(body, user);
                    b.op(op::kernel::CONVERT_LAYOUT).operand(value).result(ty).try_value()?
                }
            };
            converted.push((value, to));
            body.set_operand(user, at, to);
        }
        Ok(())
    }
}

/// Whether a tile is a constant, counts places, or is computed of such tiles; scalars are.
fn is_known(body: &Body, value: Value) -> bool {
    let of = |op: OpRef| match op.has(Traits::ELEMENTWISE) {
        true => op.operands().all(|v| is_known(body, v)),
        false => op.has(Traits::CONSTANT) || op.is(op::kernel::IOTA),
    };
    !body.ty(value).is_tile() || body.defining_op(value).is_some_and(|op| of(body.op_ref(op)))
}

/// The same tile in another layout.
fn copy_known(body: &mut Body, before: Op, value: Value, layout: &Layout) -> Value {
    if !body.ty(value).is_tile() {
        return value;
    }
    let made = body.defining_op(value).expect("known");
    let operands: Vec<Value> = body.operands(made).collect();
    let operands: Vec<Value> = operands.into_iter().map(|v| copy_known(body, before, v, layout)).collect();
    let copied = body.clone_op(made, &mut Mapping::new());
    body.insert_before(before, copied);
    body.set_operands(copied, &operands);
    give(body, body.result(copied, 0), layout);
    body.result(copied, 0)
}
