//! `core.call`: calls between functions of symbolic sizes.

use rc_ir::OpDef;
use rc_ir::op_def::{ANY, AttrKind, attr, variadic, variadic_result};

pub const OPS: &[&OpDef] = &[&CALL];

pub static CALL: OpDef = OpDef {
    summary: "Calls a function whose sizes are symbolic.",
    doc: "`bind` gives each of the callee's symbols as an expression over the caller's; operand and result types are those of the callee \
          with its symbols so replaced. It is an op beside `func.call` because MLIR wants the types of a `func.call` and its callee \
          to be the same. The callee is a plain string so that generic dumps load in tools that resolve symbols.",
    example: r#"
func.func private @twice(%x: tensor<n x f32>) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [1, 1024, 1]>} {
  %y = core.add %x, %x : tensor<n x f32>
  func.return %y
}
func.func @call(%x: tensor<s x f32>, %z: tensor<8xf32>) -> (tensor<s x f32>, tensor<8xf32>) attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %y = core.call %x {callee = "twice", bind = <n = #rc.shape<[s]>>} : tensor<s x f32>
  %w = core.call %z {callee = "twice", bind = <n = #rc.shape<[8]>>} : tensor<8xf32>
  func.return %y, %w
}
"#,
    operands: &[variadic("args", ANY)],
    results: &[variadic_result("results", ANY)],
    attrs: &[
        attr("callee", AttrKind::Str, "The function's symbol."),
        attr("bind", AttrKind::Dialect("bind"), "The callee's symbols, each as a one-element shape.").optional(),
    ],
    verify: Some(crate::func::verify_bindings),
    interfaces: &[&crate::derivative::Derivative::Calls],
    ..OpDef::new("rc.core.call")
};
