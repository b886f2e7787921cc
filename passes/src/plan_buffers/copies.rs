//! Copies of buffers on a GPU. As a kernel a large copy is faster than the driver's (of 103 MB on an H200 by 24 us), begins while the kernel before it
//! ends, and becomes one launch with its like.

use super::pad::constant;
use super::view;
use rc_dialects::host::{COPY, FUNC, LAUNCH};
use rc_dialects::op;
use rc_dialects::op::kernel;
use rc_ir::builder::new_function;
use rc_ir::{Attr, Body, Builder, Dim, Loc, Module, Name, Op, Type, Value};
use rustc_hash::FxHashMap;

/// Bytes from which on a copy is a kernel.
const LEAST: i64 = 1 << 16;

/// What a program copies: 16 bytes of each thread, four times.
const THREADS: i64 = 128;
const BYTES: i64 = 4 * 16 * THREADS;

/// Makes launches of the large copies of all functions. Copies whose sizes are symbols stay.
pub fn launch_copies(module: &mut Module) {
    let mut made: FxHashMap<Type, Name> = FxHashMap::default();
    for index in 0..module.bodies.len() {
        let body = &module.bodies[index];
        if body.name(body.root()) != &FUNC {
            continue;
        }
        let copies: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &COPY).collect();
        for op in copies {
            let body = &module.bodies[index];
            let Some(flat) = flat(body, op) else { continue };
            let loc = body.loc(op);
            let name = made.get(&flat).copied().unwrap_or_else(|| {
                let name = module.fresh_symbol("copy");
                module.bodies.push(kernel(name.as_str(), flat, loc));
                made.insert(flat, name);
                name
            });
            launch(&mut module.bodies[index], op, flat, name);
        }
    }
}

/// The elements of a large copy, in one row.
fn flat(body: &Body, copy: Op) -> Option<Type> {
    let ty = body.ty(body.operand(copy, 0));
    let dense = body.operands(copy).all(|memory| body.ty(memory).is_row_major());
    let count = ty.num_elements().as_static().filter(|_| dense)?;
    let bytes = count.checked_mul(ty.elem().byte_width()? as i64)?;
    (bytes >= LEAST).then(|| Type::memref(&[Dim::Static(count)], ty.elem(), 0))
}

fn launch(function: &mut Body, copy: Op, flat: Type, callee: Name) {
    let memories: Vec<_> = function.operands(copy).collect();
    let mut b = Builder::before(function, copy);
    let rows: Vec<Value> = memories.into_iter().map(|memory| view(&mut b, memory, Dim::Static(0), flat)).collect();
    b.op(&LAUNCH).operands(&rows).attr("callee", Attr::str(callee.as_str())).results(&[]).build();
    function.erase(copy);
}

/// The kernel that copies a row of elements.
fn kernel(name: &str, flat: Type, loc: Loc) -> Body {
    let made = new_function(kernel::FUNC, name, &[flat, flat], &[], loc);
    let mut body = made.body;
    let count = flat.num_elements().as_static().expect("a row of known size");
    let step = BYTES / flat.elem().byte_width().map_or(1, |bytes| bytes as i64);
    let mut b = Builder::at_end(&mut body, made.entry);
    let program = b.op(kernel::PROGRAM_ID).attr("axis", Attr::i64(0)).result(Type::index()).value();
    let step_value = constant(&mut b, step);
    let first = b.op(op::core::MUL).operands(&[program, step_value]).value();
    let dims = Attr::i64s(&[-1, 0]);
    let tile = Type::tile(&[1, step], flat.elem(), None);
    let load = b.op(kernel::LOAD).operand(made.args[0]).operands(&[first]).attr("dims", dims);
    let tile = load.result(tile).value();
    b.op(kernel::STORE).operand(tile).operand(made.args[1]).operands(&[first]).attr("dims", dims).build();
    b.op(kernel::RETURN).build();
    let root = body.root();
    let attrs = [("phase", Attr::str("tile")), ("target", Attr::str("cuda")), ("origin", Attr::str("copy"))];
    attrs.into_iter().for_each(|(name, value)| body.set_attr(root, name, value));
    body.set_attr(root, "grid", Attr::shape(&[(count + step - 1) / step, 1, 1].map(Dim::Static)));
    body.set_attr(root, "threads", Attr::i64(THREADS));
    body
}
