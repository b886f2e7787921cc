//! Calls and control flow on memory. A callee is a `host.func`, which gets an arena of its own behind the caller's.

use crate::constraints::MEMREF;
use rc_ir::op_def::{AttrKind, attr, operand, variadic};
use rc_ir::{Effects, OpDef};

const STREAM: Effects = Effects::Channel("stream");
const BIND: &str = "The callees' symbols, each as a one-element shape.";
const EXAMPLE: &str = r#"
host.func @copied(%x: memref<4xf32>, %y: memref<4xf32>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0]} {
  host.copy %x, %y
  host.return
}
host.func @never(%x: memref<4xf32>, %p: memref<i1>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0]} {
  %false = host.constant {value = dense<false> : tensor<i1>} : memref<i1>
  host.copy %false, %p
  host.return
}
host.func @main(%p: memref<i1>, %x: memref<4xf32>, %rows: memref<3x4xf32>, %y: memref<4xf32>, %all: memref<3x4xf32>, %z: memref<4xf32>, %arena: memref<?xi8>) attributes {inputs = 3, arena = [512]} {
  %next = host.view %arena {offset = [0]} : memref<4xf32>
  %flag = host.view %arena {offset = [256]} : memref<i1>
  host.if %p args(%x) results(%y) {then = "copied", else = "copied"}
  host.while carried(%y) next(%next) flag(%flag) {condition = "never", body = "copied"}
  host.for slices(%rows) results(%all) {body = "copied", times = [3]}
  host.call args(%y) results(%z) {callee = "copied"}
  host.return
}
"#;

pub static CALL: OpDef = OpDef {
    summary: "Calls a function.",
    doc: "It reads `args` and writes `results`.",
    example: EXAMPLE,
    operands: &[variadic("args", MEMREF).named(), variadic("results", MEMREF).named()],
    attrs: &[attr("callee", AttrKind::Str, "The function."), attr("bind", AttrKind::Dialect("bind"), BIND).optional()],
    effects: STREAM,
    ..OpDef::new("rc.host.call")
};

pub static IF: OpDef = OpDef {
    summary: "Calls one of two functions.",
    doc: "`then` where the condition holds when all before it is done, else `else`. It reads `args` and writes `results`.",
    example: EXAMPLE,
    operands: &[operand("condition", MEMREF), variadic("args", MEMREF).named(), variadic("results", MEMREF).named()],
    attrs: &[
        attr("then", AttrKind::Str, "The function for a condition that holds."),
        attr("else", AttrKind::Str, "The function for one that does not."),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    effects: STREAM,
    ..OpDef::new("rc.host.if")
};

pub static WHILE: OpDef = OpDef {
    summary: "Calls a function for as long as another says so.",
    doc: "`condition` reads `carried` and `args` and writes `flag`; while that is true, `body` reads them and writes `next`, and the two change \
their places. At the end what was computed last is in `carried`.",
    example: EXAMPLE,
    operands: &[
        variadic("carried", MEMREF).named(),
        variadic("next", MEMREF).named(),
        variadic("args", MEMREF).named(),
        variadic("flag", MEMREF).named(),
    ],
    attrs: &[
        attr("condition", AttrKind::Str, "The function that says whether to go on."),
        attr("body", AttrKind::Str, "The function that computes."),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    effects: STREAM,
    ..OpDef::new("rc.host.while")
};

pub static FOR: OpDef = OpDef {
    summary: "Calls a function a number of times.",
    doc: "Call i reads `carried`, slice i of each of `slices` along its first dimension, and `args`; it writes `next` and slice i of \
each of `results`. `carried` and `next` then change their places; at the end what was computed last is in `carried`.",
    example: EXAMPLE,
    operands: &[
        variadic("carried", MEMREF).named(),
        variadic("next", MEMREF).named(),
        variadic("slices", MEMREF).named(),
        variadic("args", MEMREF).named(),
        variadic("results", MEMREF).named(),
    ],
    attrs: &[
        attr("body", AttrKind::Str, "The function."),
        attr("times", AttrKind::Shape, "How often, one expression."),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    effects: STREAM,
    ..OpDef::new("rc.host.for")
};
