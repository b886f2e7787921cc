//! `lower-loops`: each `core.fusion` becomes a `loop.kernel` of nests, and a `loop.launch` of it.
//!
//! Operations that move elements turn into index maps; elementwise chains into the regions of nests; each
//! reduction, product and attention is a nest, and so is each result that is none of these. Equal kernels are one.

mod attention_backward;
mod collapse;
mod emit;
mod joined;
mod kernel;
mod share;

use crate::schedule::Target;
use rc_dialects::core::fusion::FUSION;
use rc_dialects::loop_::LAUNCH;
use rc_dialects::op;
use rc_ir::pass::{PassContext, PassDef, PassKind, has_op};
use rc_ir::{Attr, Body, Builder, Dim, Module, Name, Op, Result, Traits, Type, Value};

pub static LOWER_LOOPS: PassDef = PassDef {
    summary: "Turns fusions into kernels of structured nests; equal ones into one.",
    requires: &["outline-ops"],
    pending: Some(|module| has_op(module, |name| name == &FUSION)),
    ..PassDef::new("lower-loops", |_| {
        Ok(PassKind::module(|module: &mut Module, cx: &mut PassContext| {
            let before = module.bodies.len();
            lower_loops(module)?;
            cx.count("kernels", (module.bodies.len() - before) as u64);
            Ok(())
        }))
    })
};

/// Lowers every fusion of the module's functions.
pub fn lower_loops(module: &mut Module) -> Result {
    let mut shared = share::Kernels::of(module);
    let mut made: Vec<Body> = Vec::new();
    let target = Target::of("", "", module.attrs).ok();
    for index in 0..module.bodies.len() {
        let mut body = std::mem::replace(&mut module.bodies[index], placeholder());
        let result = lower_body(&mut body, target.as_ref(), &mut shared, &mut made);
        module.bodies[index] = body;
        result?;
    }
    module.bodies.extend(made);
    Ok(())
}

fn placeholder() -> Body {
    Body::new(rc_ir::OpState::new("builtin.placeholder", rc_ir::Loc::UNKNOWN))
}

fn lower_body(body: &mut Body, target: Option<&Target>, shared: &mut share::Kernels, made: &mut Vec<Body>) -> Result {
    let fusions: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &FUSION).collect();
    for fusion in fusions {
        // What nothing uses has no results to compute.
        if body.result_count(fusion) == 0 {
            body.erase(fusion);
            continue;
        }
        let kernel = kernel::kernel_of(body, fusion, target)?;
        let (callee, bind) = shared.intern(kernel.body, made);
        launch(body, fusion, target, (callee, bind), &kernel.inputs, &kernel.results);
    }
    Ok(())
}

/// Replaces a fusion by a launch; operands and results are reshaped where the kernel collapsed dimensions.
fn launch(
    body: &mut Body,
    fusion: Op,
    target: Option<&Target>,
    (callee, bind): (Name, Attr),
    inputs: &[Type],
    results: &[Type],
) {
    let operands: Vec<Value> = body.operands(fusion).collect();
    let wanted: Vec<Type> = body.results(fusion).map(|r| body.ty(r)).collect();
    let names: Vec<Name> = body.results(fusion).map(|r| body.value_name(r)).collect();
    let joins = joins(body, fusion);
    let (pads, padding) = target.filter(|target| target.is_cpu()).and_then(|_| pads(body, fusion)).unzip();
    let mut b = Builder::before(body, fusion);
    let args: Vec<Value> = operands.iter().zip(inputs).map(|(&v, &ty)| reshape(&mut b, v, ty)).collect();
    let op = b.op(&LAUNCH).operands(&args).attr("callee", Attr::str(callee.as_str())).attr("bind", bind);
    let op = op.maybe_attr("joins", joins).maybe_attr("pads", pads).maybe_attr("padding", padding);
    let op = op.results(results).build();
    let mut values = Vec::new();
    for (i, (&ty, name)) in wanted.iter().zip(names).enumerate() {
        let result = b.body.result(op, i);
        b.body.set_value_name(result, name);
        values.push(reshape(&mut b, result, ty));
    }
    body.replace_op(fusion, &values);
}

/// Where a fusion that does nothing but concatenate its operands, each of them once and in some shape, puts them: `joins` of the launch.
fn joins(body: &Body, fusion: Op) -> Option<Attr> {
    let entry = body.op_ref(fusion).entry(0)?;
    let (concats, others): (Vec<Op>, Vec<Op>) = body.ops(entry).partition(|&op| body.name(op) == op::core::CONCAT);
    let moves = |&op: &Op| body.name(op) == op::core::RESHAPE || body.op_ref(op).has(Traits::TERMINATOR);
    let ([concat], true) = (&concats[..], others.iter().all(moves)) else { return None };
    let axis = usize::try_from(body.op_ref(*concat).int("dim")?).ok()?;
    let size = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
    let mut places = vec![None; body.block_args(entry).len()];
    let mut column = Dim::Static(0);
    for part in body.operands(*concat) {
        let source = body.defining_op(part).map_or(part, |op| body.operand(op, 0));
        let place = &mut places[body.block_args(entry).position(|arg| arg == source)?];
        let columns = size(&body.ty(part).shape()[axis..]);
        if place.replace([column, columns]).is_some() {
            return None;
        }
        column = column + columns;
    }
    let rows = size(&body.ty(body.result(*concat, 0)).shape()[..axis]);
    let places: Vec<[Dim; 2]> = places.into_iter().collect::<Option<_>>()?;
    Some(Attr::shape(&[[rows].as_slice(), places.as_flattened()].concat()))
}

/// Where a fusion that does nothing but pad its operand, in some shape, puts it, and what is around: `pads` and `padding` of the launch.
fn pads(body: &Body, fusion: Op) -> Option<(Attr, Attr)> {
    let entry = body.op_ref(fusion).entry(0)?;
    let (pads, others): (Vec<Op>, Vec<Op>) = body.ops(entry).partition(|&op| body.name(op) == op::core::PAD);
    let moves = |&op: &Op| {
        let own = body.op_ref(op);
        own.is(op::core::RESHAPE) || own.has(Traits::TERMINATOR) || own.has(Traits::CONSTANT)
    };
    let ([pad], true, 1) = (&pads[..], others.iter().all(moves), body.block_args(entry).len()) else { return None };
    let value = rc_ir::op_def::constant_of(body, body.operand(*pad, 1))?;
    let low = body.attr(*pad, "low")?.as_shape()?;
    let sizes = [body.result(*pad, 0), body.operand(*pad, 0)].map(|v| body.ty(v).shape());
    let dims: Vec<Dim> = (0..low.len()).flat_map(|d| [sizes[0][d], low[d], sizes[1][d]]).collect();
    Some((Attr::shape(&dims), value))
}

fn reshape(b: &mut Builder, value: Value, ty: Type) -> Value {
    if b.ty(value) == ty { value } else { b.op(op::core::RESHAPE).operand(value).result(ty).value() }
}

/// Symbols that types or expressions mention, in order of first mention.
pub(crate) fn symbols_in(dims: impl IntoIterator<Item = Dim>) -> Vec<Name> {
    let mut out: Vec<Name> = Vec::new();
    for dim in dims {
        dim.for_each_symbol(&mut |name| {
            if !out.contains(&name) {
                out.push(name);
            }
        });
    }
    out
}
