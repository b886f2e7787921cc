//! Control flow: `core.if`, `core.while` and `core.for`. Branches and bodies are functions of the module, as XLA has them: they take all
//! that they use as arguments, and every pass treats them as it treats any function.

use crate::constraints::{BOOL_TENSOR, TENSOR, fail};
use crate::derivative::Derivative;
use rc_ir::op_def::{AttrKind, InferArgs, Types, attr, operand, variadic, variadic_result};
use rc_ir::{Dim, Effects, OpDef, OpRef, Result, Type};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&IF, &WHILE, &FOR];

const BIND: &str = "The functions' symbols, each as a one-element shape.";

pub static IF: OpDef = OpDef {
    summary: "The results of one of two functions.",
    doc: "Calls `then` where the condition, a `tensor<i1>`, holds, and `else` where it does not, with the same arguments; both give results of \
          the same types. Functions must have no effects. `bind` is as for core.call, for both. On a GPU the host waits for the condition.",
    example: r#"
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = core.constant {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %sum = core.reduce %x {dims = [0], kind = add} : tensor<f32>
  %p = core.compare %sum, %zero {kind = gt} : tensor<i1>
  %y = core.if %p, %x {then = "double", else = "negate"} : tensor<4xf32>
  func.return %y
}
func.func private @double(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = core.add %x, %x : tensor<4xf32>
  func.return %y
}
func.func private @negate(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = core.neg %x : tensor<4xf32>
  func.return %y
}
"#,
    operands: &[operand("condition", BOOL_TENSOR), variadic("args", TENSOR)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("then", AttrKind::Str, "The function that is called where the condition holds."),
        attr("else", AttrKind::Str, "The function that is called where it does not."),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    effects: Effects::Pure,
    verify: Some(verify_if),
    interfaces: &[&Derivative::Calls],
    ..OpDef::new("rc.core.if")
};

pub static WHILE: OpDef = OpDef {
    summary: "Values that a function changes for as long as another says so.",
    doc: "The values `init` and the arguments are those of both functions. As long as `condition` gives a true `tensor<i1>` of the values, \
          `body` gives the next ones, of the same types. The results are the values at the end. The arguments stay as they are. `bind` is as \
          for core.call, for both. `at_most` is a promise that derivatives rely on: where it is broken, what follows of a differentiated loop is NaN. On a GPU the host waits for each condition.",
    example: r#"
func.func @main(%x: tensor<f32>, %most: tensor<f32>) -> tensor<f32> {
  %y = core.while init(%x) args(%most) {condition = "below", body = "double"} : tensor<f32>
  func.return %y
}
func.func private @below(%x: tensor<f32>, %most: tensor<f32>) -> tensor<i1> {
  %p = core.compare %x, %most {kind = lt} : tensor<i1>
  func.return %p
}
func.func private @double(%x: tensor<f32>, %most: tensor<f32>) -> tensor<f32> {
  %y = core.add %x, %x : tensor<f32>
  func.return %y
}
"#,
    operands: &[variadic("init", TENSOR).named(), variadic("args", TENSOR).named()],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("condition", AttrKind::Str, "The function that says whether to go on."),
        attr("body", AttrKind::Str, "The function that gives the next values."),
        attr("at_most", AttrKind::I64, "That it takes no more turns than these, for its derivative.").optional(),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    infer: Some(infer_while),
    effects: Effects::Pure,
    verify: Some(crate::func::verify_bindings),
    interfaces: &[&Derivative::Calls],
    ..OpDef::new("rc.core.while")
};

pub static FOR: OpDef = OpDef {
    summary: "Values that a function changes a number of times, reading slices and giving slices.",
    doc: "Calls `body` `times` times, one after the other, with the values, a slice of each of `slices` along its first dimension, and the \
          arguments, which stay as they are. It gives the next values, of the same types as `init`, and slices of the results after them: \
          slice i of the i-th call. The first results are the values at the end. `times` is an expression, the first dimension of all that \
          is sliced. `bind` is as for core.call.",
    example: r#"
func.func @main(%start: tensor<3xf32>, %x: tensor<5x3xf32>, %by: tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
  %last, %all = core.for init(%start) slices(%x) args(%by) {body = "step", times = [5]} : tensor<3xf32>, tensor<5x3xf32>
  func.return %last, %all
}
func.func private @step(%sum: tensor<3xf32>, %row: tensor<3xf32>, %by: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %scaled = core.mul %row, %by : tensor<3xf32>
  %next = core.add %sum, %scaled : tensor<3xf32>
  func.return %next, %scaled
}
"#,
    operands: &[variadic("init", TENSOR).named(), variadic("slices", TENSOR).named(), variadic("args", TENSOR).named()],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("body", AttrKind::Str, "The function that is called."),
        attr("times", AttrKind::Shape, "How often, one expression."),
        attr("bind", AttrKind::Dialect("bind"), BIND).optional(),
    ],
    effects: Effects::Pure,
    verify: Some(verify_for),
    interfaces: &[&Derivative::Calls],
    ..OpDef::new("rc.core.for")
};

fn verify_if(op: OpRef) -> Result {
    let condition = op.operand_types()[0];
    if condition.rank() != 0 {
        return Err(op
            .error(format!("has a condition of type {condition}"))
            .help("it takes one tensor<i1>, of no dimensions"));
    }
    crate::func::verify_bindings(op)
}

fn infer_while(args: &InferArgs) -> std::result::Result<Types, String> {
    let segments = args.attrs.get("operandSegmentSizes").and_then(|a| a.as_ints());
    let groups = args.def.operand_groups(args.operands.len(), segments.as_deref());
    let init = groups.and_then(|g| g.first().cloned()).ok_or("expects the sizes of its groups of operands")?;
    Ok(args.operands[init].iter().copied().collect())
}

fn verify_for(op: OpRef) -> Result {
    fail(op, check_for(op))?;
    crate::func::verify_bindings(op)
}

fn check_for(op: OpRef) -> std::result::Result<(), String> {
    let &[times] = op.attr("times").and_then(|a| a.as_shape()).unwrap_or_default() else {
        return Err("expects one expression in 'times'".into());
    };
    let (init, results) = (op.group("init"), op.result_types());
    if results.len() < init.len() || init.iter().zip(&results).any(|(&v, &ty)| op.body.ty(v) != ty) {
        return Err("has other types for its first results than for its values".into());
    }
    let sliced = op
        .group("slices")
        .iter()
        .map(|&v| op.body.ty(v))
        .chain(results[init.len()..].iter().copied())
        .collect::<Vec<_>>();
    match sliced.iter().find(|ty| ty.shape().first() != Some(&times)) {
        Some(ty) => Err(format!("has slices of {ty}, whose first dimension is not {times}")),
        None => Ok(()),
    }
}

/// The type of a slice along the first dimension.
pub fn slice_of(ty: Type) -> Type {
    let shape: Vec<Dim> = ty.shape().iter().skip(1).copied().collect();
    Type::tensor(&shape, ty.elem())
}
