//! Products that are only read transposed: those of their operands, exchanged. The gradient of a weight that a layer reads transposed is one.

use super::bytes_text;
use rc_dialects::core::dot::{DOT, roles};
use rc_ir::pass::SymbolContext;
use rc_ir::{Attr, Body, Op};

/// Makes a transpose of a product the product of its operands, exchanged; whether it did.
pub fn exchange(body: &mut Body, transpose: Op, cx: &mut SymbolContext) -> bool {
    let product = body.operand(transpose, 0);
    let Some(dot) = body.defining_op(product).filter(|&op| body.name(op) == &DOT && body.has_one_use(product)) else {
        return false;
    };
    let Ok(roles) = roles(body.op_ref(dot)) else { return false };
    let (batch, left, right) = (roles.lhs_batch.len(), roles.lhs_free.len(), roles.rhs_free.len());
    let rank = batch + left + right;
    let exchanged = (0..batch).chain(batch + left..rank).chain(batch..batch + left);
    let perm = body.op_ref(transpose).ints("perm").unwrap_or_default();
    if left == 0 || right == 0 || !exchanged.eq(perm.iter().map(|&d| d as usize)) {
        return false;
    }
    let ty = body.ty(body.result(transpose, 0));
    let mut state = body.state(dot);
    state.operands.swap(0, 1);
    state.results[0] = ty;
    let made = body.create(state);
    for (name, other) in [("lhs_batch", "rhs_batch"), ("lhs_contract", "rhs_contract")] {
        let [of_left, of_right] = [name, other].map(|name| body.op_ref(dot).ints(name));
        for (name, dims) in [(name, of_right), (other, of_left)] {
            if let Some(dims) = dims {
                body.set_attr(made, name, Attr::i64s(&dims));
            }
        }
    }
    body.insert_before(transpose, made);
    let value = body.result(made, 0);
    body.set_value_name(value, body.value_name(body.result(transpose, 0)));
    body.replace_op(transpose, &[value]);
    body.erase(dot);
    cx.remark(
        body.loc(made),
        format!(
            "the product's operands are exchanged, and it is not transposed by {perm:?}: {} not moved",
            bytes_text(ty)
        ),
    );
    cx.count("products exchanged", 1);
    true
}
