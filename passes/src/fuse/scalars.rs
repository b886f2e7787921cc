//! Numbers that are made of more than constants and sizes, as tensors of no dimensions: a function's scalar arguments and results, those
//! of calls, and what is computed of them. Kernels read and write such tensors as any others.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::func::calls;
use rc_ir::{Attr, Block, Body, Builder, Op, Traits, Type, Value};

/// Turns the scalars of a function that are no sizes into tensors.
pub fn to_tensors(body: &mut Body) {
    let Some(region) = body.op_ref(body.root()).region(0) else { return };
    let blocks: Vec<Block> = body.blocks(region).collect();
    for &block in &blocks {
        let args: Vec<Value> = body.block_args(block).collect();
        args.into_iter().for_each(|arg| retype(body, arg));
    }
    for &block in &blocks {
        let ops: Vec<Op> = body.ops(block).collect();
        ops.into_iter().for_each(|op| convert(body, op));
    }
    let ty = body.attr(body.root(), "function_type").and_then(|t| t.as_type());
    if let Some((inputs, results)) = ty.and_then(Type::as_function) {
        let tensors = |types: &[Type]| types.iter().map(|&ty| tensor(ty)).collect::<Vec<Type>>();
        let ty = Type::function(&tensors(inputs), &tensors(results));
        body.set_attr(body.root(), "function_type", Attr::ty(ty));
    }
}

fn tensor(ty: Type) -> Type {
    if ty.is_scalar() { Type::tensor(&[], ty) } else { ty }
}

fn retype(body: &mut Body, value: Value) {
    let ty = tensor(body.ty(value));
    body.set_ty(value, ty);
}

fn convert(body: &mut Body, op: Op) {
    let at = body.op_ref(op);
    let passes_on = at.has(Traits::TERMINATOR) || !calls(at).is_empty();
    let computes = at.has(Traits::ELEMENTWISE) && at.operands().any(|v| body.ty(v).is_tensor());
    if passes_on || computes {
        for i in 0..body.operand_count(op) {
            let value = body.operand(op, i);
            if body.ty(value).is_scalar() {
                let whole = Builder::before(body, op).broadcast(value, &[], &[]);
                body.set_operand(op, i, whole);
            }
        }
        let results: Vec<Value> = body.results(op).collect();
        results.into_iter().for_each(|result| retype(body, result));
    }
}
