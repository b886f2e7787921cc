//! A small dialect for this crate's unit tests.

use crate::attr::Attr;
use crate::body::{Block, Op, Value};
use crate::builder::{Builder, NewFunc, new_function};
use crate::loc::Loc;
use crate::op_def::*;
use crate::types::Type;
use smallvec::SmallVec;

const INT: TypeConstraint = TypeConstraint { desc: "an integer", check: |t| t.is_int() };

fn infer_add(args: &InferArgs) -> std::result::Result<Types, String> {
    let (a, b) = (args.operand(0)?, args.operand(1)?);
    if a != b {
        return Err(format!("expects operands of one type, got {a} and {b}"));
    }
    Ok(SmallVec::from_iter([a]))
}
fn infer_value(args: &InferArgs) -> std::result::Result<Types, String> {
    let ty = args.attr("value").and_then(|v| v.type_of()).ok_or("expects a typed value")?;
    Ok(SmallVec::from_iter([ty]))
}
fn fold_add(args: &FoldArgs) -> Option<Fold> {
    let ty = args.op.body.ty(args.op.operand(0));
    match (args.constants[0]?.as_int(), args.constants[1].map(|c| c.as_int())) {
        (Some(0), _) => Some(Fold::Value(args.op.operand(1))),
        (Some(a), Some(Some(b))) => Some(Fold::Attr(Attr::int(a.wrapping_add(b), ty))),
        _ => None,
    }
}
fn verify_odd(op: OpRef) -> crate::diag::Result {
    match op.int("n") {
        Some(n) if n % 2 == 0 => Err(op.error(format_args!("expects an odd 'n', got {n}"))),
        _ => Ok(()),
    }
}
use crate::body::OpRef;

static FUNC: OpDef = OpDef {
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED),
    ..OpDef::new("rc.test.func")
};
static RETURN: OpDef = OpDef {
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.test.return")
};
static BR: OpDef =
    OpDef { successors: 1, traits: Traits::TERMINATOR, effects: Effects::Pure, ..OpDef::new("rc.test.br") };
static COND_BR: OpDef = OpDef {
    operands: &[operand("condition", INT)],
    successors: 2,
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.test.cond_br")
};
static ADD: OpDef = OpDef {
    operands: &[operand("x", INT), operand("y", INT)],
    results: &[result("sum", INT)],
    attrs: &[attr("n", AttrKind::I64, "").optional()],
    traits: Traits::COMMUTATIVE.union(Traits::ELEMENTWISE),
    effects: Effects::Pure,
    infer: Some(infer_add),
    fold: Some(fold_add),
    verify: Some(verify_odd),
    ..OpDef::new("rc.test.add")
};
static CONSTANT: OpDef = OpDef {
    results: &[result("result", ANY)],
    attrs: &[attr("value", AttrKind::Elements, "")],
    traits: Traits::CONSTANT,
    effects: Effects::Pure,
    infer: Some(infer_value),
    ..OpDef::new("rc.test.constant")
};
static LOOP: OpDef = OpDef {
    operands: &[variadic("inits", ANY)],
    results: &[variadic_result("results", ANY)],
    regions: Regions::Exactly(1),
    traits: Traits::SINGLE_BLOCK,
    effects: Effects::Recursive,
    ..OpDef::new("rc.test.loop")
};
static ISOLATED: OpDef = OpDef {
    regions: Regions::Exactly(1),
    traits: Traits::ISOLATED.union(Traits::IMPLICIT_TERMINATOR),
    ..OpDef::new("rc.test.isolated")
};
static GRAPH: OpDef = OpDef { regions: Regions::Any, traits: Traits::GRAPH_REGION, ..OpDef::new("rc.test.graph") };
static GROUPS: OpDef = OpDef {
    operands: &[operand("x", ANY), optional("bias", INT), variadic("rest", ANY).named()],
    attrs: &[
        attr("mode", AttrKind::Enum(&["near", "far"]), ""),
        attr("count", AttrKind::I64, "").default(AttrDefault::Int(1)),
    ],
    ..OpDef::new("rc.test.groups")
};
static LOAD: OpDef = OpDef {
    operands: &[operand("memory", ANY)],
    results: &[result("value", INT)],
    effects: Effects::Read,
    ..OpDef::new("rc.test.load")
};
static STORE: OpDef = OpDef {
    operands: &[operand("value", ANY), operand("memory", ANY)],
    effects: Effects::Write,
    ..OpDef::new("rc.test.store")
};

pub fn register() {
    crate::op_def::register(&[
        &FUNC, &RETURN, &BR, &COND_BR, &ADD, &CONSTANT, &LOOP, &ISOLATED, &GRAPH, &GROUPS, &LOAD, &STORE,
    ]);
}

/// `test.func @name(inputs)` with an empty entry block.
pub fn func(name: &str, inputs: &[Type]) -> NewFunc {
    register();
    new_function("rc.test.func", name, inputs, &[], Loc::UNKNOWN)
}
pub fn constant(b: &mut Builder, n: i64) -> Value {
    b.op("rc.test.constant").attr("value", Attr::i64(n)).value()
}
pub fn add(b: &mut Builder, x: Value, y: Value) -> Value {
    b.op("rc.test.add").operands(&[x, y]).value()
}
pub fn ret(b: &mut Builder, values: &[Value]) -> Op {
    b.op("rc.test.return").operands(values).build()
}
/// An op with one region of one block, and that block.
pub fn region_op(b: &mut Builder, name: &str) -> (Op, Block) {
    let op = b.op(name).regions(1).results(&[]).build();
    let region = b.body.regions(op)[0];
    (op, b.body.add_block(region, &[]))
}
