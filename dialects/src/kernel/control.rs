//! Structured control flow of a program or a thread.

use crate::constraints::{I1, INDEX};
use crate::op;
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result, Type};
use smallvec::SmallVec;

pub(super) static OPS: &[&OpDef] = &[&FOR, &IF, &YIELD];

pub static FOR: OpDef = OpDef {
    summary: "A counted loop: for i = lower, lower + step, … below upper.",
    doc: "The step is positive. The region takes the counter and the carried values and yields their next ones; the \
results are the last ones. `unroll` asks the code generator for that factor (0: fully). `stages` says for how many steps \
the tiles that products read may be in shared memory at once.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %one = core.constant {value = 1 : index} : index
  %n = core.constant {value = 8 : index} : index
  %none = core.constant {value = 0.0 : f32} : f32
  %sum = kernel.for lower(%zero) upper(%n) step(%one) iter(%acc = %none) ((%i: index) {
    %v = kernel.read %x[%i] : f32
    %next = core.add %acc, %v : f32
    kernel.yield %next
  }) : f32
  kernel.write %sum, %y[%zero]
  kernel.return
}
"#,
    operands: &[
        operand("lower", INDEX).named(),
        operand("upper", INDEX).named(),
        operand("step", INDEX).named(),
        variadic("init", ANY).iter(),
    ],
    results: &[variadic_result("results", ANY)],
    attrs: &[
        attr("unroll", AttrKind::I64, "Unroll factor.").optional(),
        attr("stages", AttrKind::I64, "Steps whose tiles are in flight.").optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::SINGLE_BLOCK.union(Traits::IMPLICIT_TERMINATOR),
    effects: Effects::Recursive,
    infer: Some(|args| Ok(args.operands.iter().skip(3).copied().collect())),
    verify: Some(verify_for),
    ..OpDef::new("rc.kernel.for")
};

pub static IF: OpDef = OpDef {
    summary: "Runs its first region where the condition holds, else its second, if it has one.",
    doc: "Both regions yield the results. On a GPU the condition may differ between threads; barriers inside need it uniform.",
    example: r#"
kernel.func @example(%x: memref<1xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : f32
  %low = core.constant {value = 0.0 : f32} : f32
  %negative = core.compare %v, %low {kind = lt} : i1
  %r = kernel.if %negative ({
    %n = core.neg %v : f32
    kernel.yield %n
  }, {
    kernel.yield %v
  }) : f32
  kernel.write %r, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("condition", I1)],
    results: &[variadic_result("results", ANY)],
    regions: Regions::Any,
    traits: Traits::SINGLE_BLOCK.union(Traits::IMPLICIT_TERMINATOR),
    effects: Effects::Recursive,
    verify: Some(verify_if),
    ..OpDef::new("rc.kernel.if")
};

pub static YIELD: OpDef = OpDef {
    summary: "Ends a region of kernel.for or kernel.if with its values.",
    example: IF.example,
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.yield")
};

fn verify_for(op: OpRef) -> Result {
    let Some(entry) = op.entry(0) else { return Err(op.error("expects a body")) };
    let args: SmallVec<[Type; 4]> = op.body.block_args(entry).map(|v| op.body.ty(v)).collect();
    let want: SmallVec<[Type; 4]> = std::iter::once(Type::index()).chain(op.result_types()).collect();
    if args != want {
        return Err(
            op.error(format!("expects its body to take {want:?}, the counter and the carried values, got {args:?}"))
        );
    }
    verify_yield(op, 0)
}

fn verify_if(op: OpRef) -> Result {
    match op.body.regions(op.op).len() {
        1 if op.results().len() == 0 => verify_yield(op, 0),
        2 => verify_yield(op, 0).and_then(|()| verify_yield(op, 1)),
        1 => Err(op.error("gives results, so it needs a second region")),
        n => Err(op.error(format!("expects one or two regions, got {n}"))),
    }
}

fn verify_yield(op: OpRef, region: usize) -> Result {
    let last = op.entry(region).and_then(|b| op.body.last_op(b)).filter(|&t| op.body.name(t) == op::kernel::YIELD);
    let types: SmallVec<[Type; 2]> =
        last.map_or(SmallVec::new(), |t| op.body.operands(t).map(|v| op.body.ty(v)).collect());
    let want = op.result_types();
    if types == want {
        Ok(())
    } else {
        Err(op.error(format!("expects region {region} to yield {want:?}, got {types:?}")))
    }
}
