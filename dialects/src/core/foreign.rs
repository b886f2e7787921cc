//! `core.foreign`: functions that rc does not have, called in the middle of a program.

use crate::constraints::{TENSOR, fail};
use crate::derivative::Derivative;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, attr, variadic, variadic_result};
use rc_ir::{Effects, OpDef, OpRef, Result};

pub const OPS: &[&OpDef] = &[&FOREIGN];

pub(crate) const FUNCTION: AttrDef =
    attr("function", AttrKind::Str, "Its name; where none of that name is registered, the part before the first `:`.");
pub(crate) const CONFIG: AttrDef =
    attr("config", AttrKind::Str, "Text for the function, which rc does not read.").default(AttrDefault::Str(""));
pub(crate) const SIZES: AttrDef =
    attr("sizes", AttrKind::Shape, "Expressions whose values the function gets, as integers.").optional();

pub static FOREIGN: OpDef = OpDef {
    summary: "What a function of the process gives that runs the program.",
    doc: "The function is registered there by its name, before the program is loaded. It reads the operands, row-major, and writes the results. \
          A result of `updates` begins as an operand, which stays as it is. `effects` is what the function does besides: `none`, it may \
          be left out, or called once for equal operands; `ordered`, it is called as often as it is written, in this order among its kind. A function that fails \
          ends the call of the program with its error; if it is called from the program's first function, before any argument is updated.",
    example: r#"
func.func @main(%x: tensor<s x 4 x f32>, %w: tensor<4xf32>) -> tensor<s x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %h = core.neg %x : tensor<s x 4 x f32>
  %y = core.foreign %h, %w {function = "mine.score", config = "scale = 2", sizes = [s], effects = none} : tensor<s x f32>
  func.return %y
}
"#,
    operands: &[variadic("args", TENSOR)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        FUNCTION,
        CONFIG,
        SIZES,
        attr("effects", AttrKind::Enum(&["none", "ordered"]), "What it does besides giving its results.")
            .default(AttrDefault::Str("ordered")),
        attr("updates", AttrKind::I64Array, "Pairs of result and operand numbers: the result begins as the operand.")
            .optional(),
    ],
    effects: Effects::Declared,
    verify: Some(verify_foreign),
    interfaces: &[&Derivative::Missing("what the function computes is not known")],
    ..OpDef::new("rc.core.foreign")
};

fn verify_foreign(op: OpRef) -> Result {
    verify_named(op)?;
    fail(op, check_updates(op))
}

/// That a function is named.
pub(crate) fn verify_named(op: OpRef) -> Result {
    match op.str("function") {
        Some("") => {
            Err(op.error("names no function").help("write {function = \"…\"}, the name that it is registered by"))
        }
        _ => Ok(()),
    }
}

fn check_updates(op: OpRef) -> std::result::Result<(), String> {
    let pairs = op.ints("updates").unwrap_or_default();
    if !pairs.len().is_multiple_of(2) {
        return Err("has 'updates' that are no pairs of result and operand numbers".into());
    }
    let (args, results) = (op.operand_types(), op.result_types());
    for (i, pair) in pairs.chunks_exact(2).enumerate() {
        let of = |types: &[rc_ir::Type], n: i64| usize::try_from(n).ok().and_then(|n| types.get(n).copied());
        match (of(&results, pair[0]), of(&args, pair[1])) {
            (Some(result), Some(arg)) if result == arg => {}
            (Some(result), Some(arg)) => {
                return Err(format!(
                    "has a result {} of type {result} that begins as an operand of type {arg}",
                    pair[0]
                ));
            }
            _ => return Err(format!("has no result {} and operand {}, which 'updates' names", pair[0], pair[1])),
        }
        if pairs.chunks_exact(2).take(i).any(|before| before[0] == pair[0]) {
            return Err(format!("has a result {} that begins as two operands", pair[0]));
        }
    }
    Ok(())
}
