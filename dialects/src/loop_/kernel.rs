//! `loop.kernel`, its `loop.return`, and `loop.launch`.

use crate::constraints::TENSOR;
use rc_ir::op_def::*;

pub static KERNEL: OpDef = OpDef {
    summary: "A fusion outlined as a symbol: nests over its arguments, giving tensors.",
    doc: "Equal fusions are one kernel. Its dimension symbols are declared by `rc.symbols`, as a function's are. \
          The attribute `origin` says which operations it came from, for names and profiles.",
    example: r#"
loop.kernel @scale(%x: tensor<s x 8 x f32>) -> tensor<s x 8 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.nest %x[i, j] {iters = [i, j], kinds = [parallel, parallel], extents = [s, 8], out_maps = [[i, j]], combiner = [none]} ((%a: f32) {
    %b = core.add %a, %a : f32
    loop.yield %b
  }) : tensor<s x 8 x f32>
  loop.return %r
}
"#,
    attrs: &[
        attr("sym_name", AttrKind::Str, "The kernel's name."),
        attr("function_type", AttrKind::Type, "The tensors in and out."),
        attr("origin", AttrKind::Str, "The operations it came from, `dot+add+gelu`.").optional(),
        attr("launches", AttrKind::I64, "How many launches of it come together, none of which waits for another.")
            .optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED).union(Traits::SINGLE_BLOCK),
    effects: Effects::Unknown,
    ..OpDef::new("rc.loop.kernel")
};

pub static RETURN: OpDef = OpDef {
    summary: "Ends a `loop.kernel` with its results.",
    example: KERNEL.example,
    operands: &[variadic("results", TENSOR)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    verify: Some(crate::func::verify_return),
    ..OpDef::new("rc.loop.return")
};

pub static LAUNCH: OpDef = OpDef {
    summary: "Runs a kernel on tensors.",
    doc: "`bind` gives each of the callee's symbols as an expression over the caller's: `#rc.bind<s = [t + 1]>`. \
          The callee is a plain string so that generic dumps load in tools that resolve symbols.",
    example: r#"
loop.kernel @double(%x: tensor<s x f32>) -> tensor<s x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.nest %x[i] {iters = [i], kinds = [parallel], extents = [s], out_maps = [[i]], combiner = [none]} ((%a: f32) {
    %b = core.add %a, %a : f32
    loop.yield %b
  }) : tensor<s x f32>
  loop.return %r
}
func.func @main(%x: tensor<t x f32>, %y: tensor<8xf32>) -> (tensor<t x f32>, tensor<8xf32>) attributes {rc.symbols = #rc.symbols<t = [1, 64, 1]>} {
  %a = loop.launch %x {callee = "double", bind = <s = #rc.shape<[t]>>} : tensor<t x f32>
  %b = loop.launch %y {callee = "double", bind = <s = #rc.shape<[8]>>} : tensor<8xf32>
  func.return %a, %b
}
"#,
    operands: &[variadic("inputs", TENSOR)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("callee", AttrKind::Str, "The kernel's symbol."),
        attr("bind", AttrKind::Dialect("bind"), "The callee's symbols, each as a one-element shape.").optional(),
        attr(
            "joins",
            AttrKind::Shape,
            "The result is the inputs side by side: its rows, and of each input the first column and the columns.",
        )
        .optional(),
        attr(
            "pads",
            AttrKind::Shape,
            "The result is the input with elements around it: of each dimension the result's size, the elements before, and the input's size.",
        )
        .optional(),
        attr("padding", AttrKind::Any, "The element around an input that is padded.").optional(),
    ],
    effects: Effects::Pure,
    verify: Some(crate::func::verify_bindings),
    ..OpDef::new("rc.loop.launch")
};
