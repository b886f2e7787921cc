//! Calls of functions that are registered in the process that runs the program.

use crate::constraints::MEMREF;
use crate::core::foreign::{CONFIG, FUNCTION, SIZES, verify_named};
use rc_ir::op_def::variadic;
use rc_ir::{Effects, OpDef};

pub static FOREIGN: OpDef = OpDef {
    summary: "Calls a function of the process that runs the program.",
    doc: "It reads `args` and writes `results`, all of them: memory on the program's device, row-major. On a GPU it queues its work on the program's \
stream, and may return before that is done. It keeps none of the memory. A program with functions that are not registered is not loaded.",
    example: r#"
host.func @main(%x: memref<s x 4 x f32>, %y: memref<s x f32>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0], rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  host.foreign args(%x) results(%y) {function = "mine.score", config = "scale = 2", sizes = [s]}
  host.return
}
"#,
    operands: &[variadic("args", MEMREF).named(), variadic("results", MEMREF).named()],
    attrs: &[FUNCTION, CONFIG, SIZES],
    effects: Effects::Channel("stream"),
    verify: Some(verify_named),
    ..OpDef::new("rc.host.foreign")
};
