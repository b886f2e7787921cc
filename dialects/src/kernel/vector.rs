//! Vectors of the *thread* phase, and single instructions on them. Elementwise arithmetic is `core`'s.

use crate::constraints::{INDEX, SCALAR, SCALAR_OR_VECTOR, VECTOR};
use rc_ir::op_def::*;
use rc_ir::{OpDef, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] =
    &[&SPLAT, &EXTRACT, &INSERT, &CONCAT, &SLICE, &PERMUTE, &VECTOR_REDUCE, &BITCAST, &APPROX, &SHUFFLE];

pub static SPLAT: OpDef = OpDef {
    summary: "A vector with the same scalar in every lane.",
    example: r#"
kernel.func @example(%x: memref<1xf32>, %y: memref<8xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : f32
  %s = kernel.splat %v : vector<8xf32>
  kernel.write %s, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("value", SCALAR)],
    results: &[result("vector", VECTOR)],
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.splat")
};

pub static EXTRACT: OpDef = OpDef {
    summary: "One lane of a vector.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %e = kernel.extract %v {lane = 3} : f32
  kernel.write %e, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("vector", VECTOR)],
    results: &[result("value", SCALAR)],
    attrs: &[attr("lane", AttrKind::I64, "From 0.")],
    effects: Effects::Pure,
    infer: Some(|args| Ok(smallvec![args.operand(0)?.elem()])),
    verify: Some(|op| {
        let lanes = op.body.ty(op.operand(0)).static_shape().map_or(0, |s| s.iter().product::<i64>());
        let lane = op.int("lane").unwrap_or(-1);
        if (0..lanes).contains(&lane) { Ok(()) } else { Err(op.error(format!("takes lane {lane} of {lanes}"))) }
    }),
    ..OpDef::new("rc.kernel.extract")
};

pub static INSERT: OpDef = OpDef {
    summary: "A vector with one lane replaced.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<8xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %c = core.constant {value = 1.0 : f32} : f32
  %r = kernel.insert %c, %v {lane = 0} : vector<8xf32>
  kernel.write %r, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("value", SCALAR), operand("vector", VECTOR)],
    results: &[result("result", VECTOR)],
    attrs: &[attr("lane", AttrKind::I64, "From 0.")],
    effects: Effects::Pure,
    infer: Some(|args| Ok(smallvec![args.operand(1)?])),
    ..OpDef::new("rc.kernel.insert")
};

pub static CONCAT: OpDef = OpDef {
    summary: "The lanes of several vectors or scalars of one element type, in order.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<16xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %w = kernel.concat %v, %v : vector<16xf32>
  kernel.write %w, %y[%zero]
  kernel.return
}
"#,
    operands: &[variadic("parts", SCALAR_OR_VECTOR)],
    results: &[result("vector", VECTOR)],
    effects: Effects::Pure,
    infer: Some(|args| {
        let lanes = |t: &Type| t.static_shape().map_or(1, |s| s.iter().product::<i64>());
        let elem = args.operand(0)?.elem();
        Ok(smallvec![Type::vector(&[args.operands.iter().map(lanes).sum()], elem)])
    }),
    ..OpDef::new("rc.kernel.concat")
};

pub static SLICE: OpDef = OpDef {
    summary: "Consecutive lanes of a vector, as many as the result has.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<4xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %w = kernel.slice %v {start = 4} : vector<4xf32>
  kernel.write %w, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("vector", VECTOR)],
    results: &[result("result", VECTOR)],
    attrs: &[attr("start", AttrKind::I64, "The first lane.")],
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.slice")
};

pub static PERMUTE: OpDef = OpDef {
    summary: "The lanes of two vectors that `lanes` numbers, those of the first vector first.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<4xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %four = core.constant {value = 4 : index} : index
  %v = kernel.read %x[%zero] : vector<4xf32>
  %w = kernel.read %x[%four] : vector<4xf32>
  %both = kernel.permute %v, %w {lanes = [0, 4, 1, 5]} : vector<4xf32>
  kernel.write %both, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("first", VECTOR), operand("second", VECTOR)],
    results: &[result("result", VECTOR)],
    attrs: &[attr("lanes", AttrKind::I64Array, "Below the lanes of both vectors together, from 0.")],
    effects: Effects::Pure,
    infer: Some(|args| {
        let (first, second, lanes) = (args.operand(0)?, args.operand(1)?, args.ints("lanes")?);
        let each = first.static_shape().map_or(1, |s| s.iter().product::<i64>());
        if first != second || lanes.iter().any(|lane| !(0..2 * each).contains(lane)) {
            return Err(format!("takes lanes {lanes:?} of {first} and {second}"));
        }
        Ok(smallvec![Type::vector(&[lanes.len() as i64], first.elem())])
    }),
    ..OpDef::new("rc.kernel.permute")
};

pub static VECTOR_REDUCE: OpDef = OpDef {
    summary: "Combines a vector's lanes, in any order; NaN wins in max and min.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %s = kernel.vector_reduce %v {kind = max} : f32
  kernel.write %s, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("vector", VECTOR)],
    results: &[result("value", SCALAR)],
    attrs: &[attr("kind", AttrKind::Enum(&["add", "mul", "max", "min", "and", "or"]), "The combiner.")],
    effects: Effects::Pure,
    infer: Some(|args| Ok(smallvec![args.operand(0)?.elem()])),
    ..OpDef::new("rc.kernel.vector_reduce")
};

pub static BITCAST: OpDef = OpDef {
    summary: "The same bits as another scalar or vector type of equal size.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<8xi32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %v = kernel.read %x[%zero] : vector<8xf32>
  %b = kernel.bitcast %v : vector<8xi32>
  kernel.write %b, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("value", SCALAR_OR_VECTOR)],
    results: &[result("result", SCALAR_OR_VECTOR)],
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.bitcast")
};

pub static APPROX: OpDef = OpDef {
    summary: "A hardware approximation, f32: ex2 (2 ulp), tanh (relative error 2^-11), rcp (1 ulp), rsqrt (2 ulp), lg2 (2^-22, from 1/2 to 2 absolute, else relative), sin, cos.",
    doc: "The interpreter computes the exact function; comparisons allow for the stated error. Subnormal inputs and results are flushed to zero, but for lg2 and rsqrt. \
On the CPU not supported.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  %v = kernel.read %x[%t] : f32
  %e = kernel.approx %v {fn = ex2} : f32
  kernel.write %e, %y[%t]
  kernel.return
}
"#,
    operands: &[operand("x", SCALAR_OR_VECTOR)],
    results: &[result("result", SCALAR_OR_VECTOR)],
    attrs: &[attr("fn", AttrKind::Enum(&["ex2", "tanh", "rcp", "rsqrt", "lg2", "sin", "cos"]), "The function.")],
    effects: Effects::Pure,
    infer: Some(infer_same),
    ..OpDef::new("rc.kernel.approx")
};

pub static SHUFFLE: OpDef = OpDef {
    summary: "The value that another thread of the warp holds. All 32 threads take part.",
    doc: "`xor`: that of lane (own ^ by); `up`, `down`: of lane own - by, own + by, or one's own beyond the warp; `index`: of the lane given by the operand; \
          `within`: of the lane whose number has the bits of `keep` from one's own and the others from `by`.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  %v = kernel.read %x[%t] : f32
  %w = kernel.shuffle %v {mode = xor, by = 16} : f32
  %s = core.add %v, %w : f32
  kernel.write %s, %y[%t]
  kernel.return
}
"#,
    operands: &[operand("value", SCALAR_OR_VECTOR), optional("lane", INDEX)],
    results: &[result("result", SCALAR_OR_VECTOR)],
    attrs: &[
        attr("mode", AttrKind::Enum(&["xor", "up", "down", "index", "within"]), "Which lane."),
        attr("by", AttrKind::I64, "Lane distance or mask, or bits of a number.").default(AttrDefault::Int(0)),
        attr("keep", AttrKind::I64, "Bits of one's own number, with `within`.").default(AttrDefault::Int(0)),
    ],
    effects: Effects::Channel("warp"),
    infer: Some(infer_same),
    ..OpDef::new("rc.kernel.shuffle")
};
