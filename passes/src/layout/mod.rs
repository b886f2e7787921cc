//! `layout`: decides how operands are stored, so that nothing is moved only to be read in another order.

pub(crate) mod attention;
mod gathers;
mod masks;
mod one_hot;
mod places;
pub(crate) mod planes;
mod segments;
mod tables;
mod turned_windows;
mod views;

pub(crate) use segments::Segments;

use crate::fuse::symbol_ranges;
use crate::rules::{Applied, attentions, transposes};
use crate::schedule::Target;
use rc_dialects::core::attention::ATTENTION;
use rc_dialects::core::constant::CONSTANT;
use rc_dialects::core::dot::DOT;
use rc_dialects::core::gather::GATHER;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{RESHAPE, TRANSPOSE};
use rc_dialects::core::slice::CONCAT;
use rc_dialects::func::FUNC;
use rc_dialects::op;
use rc_ir::effects::is_dead;
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::{Attr, AttrData, Blob, Body, Builder, Diagnostic, Dim, Op, OpDef, Result, Type, Value};

pub static LAYOUT: PassDef = PassDef {
    summary: "Folds transposes into what reads them, and stores constants as they are read.",
    doc: "A product reads a transposed operand as it is stored, by other numbers of its dimensions, where its free dimensions keep their order. \
A product that is only read transposed is that of its operands, exchanged. What else reads a result of attention that is transposed reads it in that order. \
A constant that is only read transposed is stored transposed. What is gathered from a transposed table is gathered from the table as it is stored, and transposed itself. A few elements of a result of elementwise operations are computed from the operands' elements there. A remark says what was decided for each transpose of a product's operand or a \
constant, with the bytes that are not moved, and why a transpose stays. Reshapes that collapse leading dimensions (for a product, say) move behind \
products and elementwise operations, where they meet those that undo them, by the rules of `passes/rules/layout.rules` and `transposes.rules`; elementwise operations on any view of a product, or of what is computed from the sums of its own rows, work on these themselves, and on convolutions with channels last in that order, as do padding, windows, slices, reductions, concatenations, and views of channels or of places in other dimensions. \
Masks of attention that follow from positions are taken out: what is true everywhere, and what hides the keys after a query, which becomes `causal`. Where a few queries go over many keys, those are counted that a mask shows, once for all attentions that have it. Sums of rows that have one element at most, of classes compared with a counter, are read off. On a CPU depthwise convolutions of images that lie in planes, and are read and written so alone, work on planes; windows that are turned so that a row of places comes last are those of the turned image.",
    ..PassDef::new("layout", |_| Ok(PassKind::symbol(run)))
};

fn run(body: &mut Body, cx: &mut SymbolContext) -> Result {
    if body.name(body.root()) != &FUNC {
        return Ok(());
    }
    let target = Target::of("", "", cx.module.attrs).map_err(|why| Diagnostic::error(body.loc(body.root()), why))?;
    let symbols = symbol_ranges(body);
    let mut simpler = 0;
    for op in body.walk() {
        if body.name(op) == &ATTENTION && masks::simplify_mask(body, op, &symbols)? {
            simpler += 1;
        }
    }
    cx.count("masks", simpler);
    if simpler > 0 {
        see_keys(body, cx)?;
    }
    for op in body.walk() {
        if body.name(op) == &ATTENTION && masks::count_keys(body, op, &target.fusion)? {
            cx.count("keys counted", 1);
        }
    }
    for op in body.walk() {
        if body.name(op) == &REDUCE && one_hot::read_off(body, op)? {
            cx.count("sums read off", 1);
        }
    }
    let gathers = gathers::move_gathers(body, target.fusion.gathered, cx)?;
    cx.count("gathers moved", gathers);
    let views = views::move_views(body, cx)?;
    cx.count("views moved", views);
    let ops = body.walk();
    read_as_stored(body, &ops, &GATHER, cx)?;
    for op in body.walk() {
        if !body.is_erased(op) && body.name(op) == &CONCAT && attention::join_turned(body, op)? {
            cx.count("joins of attention's results turned", 1);
        }
    }
    for op in body.walk() {
        let name = body.name(op);
        if !body.is_erased(op) && (name == &ATTENTION || name == op::core::ATTENTION_BACKWARD) {
            cx.count("attention's results turned", attention::settle(body, op)?);
        }
    }
    let ops = body.walk();
    read_as_stored(body, &ops, &DOT, cx)?;
    // A CPU reads the rows of a product's left operand where they are, also those of windows, but packs the right one.
    let turns: Vec<Op> =
        ops.iter().copied().filter(|&op| !(target.is_cpu() && crate::windows::follows_product(body, op))).collect();
    read_as_stored(body, &turns, &TRANSPOSE, cx)?;
    if target.is_cpu() {
        cx.count("images kept in planes", planes::keep(body));
        cx.count("images turned to planes", turned_windows::turn_images(body));
    }
    for op in body.walk() {
        views::merge(body, op, cx)?;
    }
    erase_dead(body);
    for op in ops {
        if !body.is_erased(op) && body.name(op) == &TRANSPOSE {
            store_transposed(body, op, cx);
        }
    }
    if target.gpu.is_some() {
        cx.count("tables turned", tables::turn(body));
    }
    Ok(())
}

/// What a rule of `attention.rules` has made NaN for queries that see no key is as it was, where each is known to see one.
fn see_keys(body: &mut Body, cx: &mut SymbolContext) -> Result {
    for op in body.walk() {
        if !body.is_erased(op)
            && body.name(op) == op::core::SUB
            && let Some(applied) = attentions().apply_at(body, op, None, cx)?
        {
            erase_read(body, &applied);
        }
    }
    Ok(())
}

/// Erases what a rule has read and nothing else reads.
fn erase_read(body: &mut Body, applied: &Applied) {
    for &read in &applied.read {
        if is_dead(body, read) {
            body.erase(read);
        }
    }
}

/// Erases what is read in another form now.
fn erase_dead(body: &mut Body) {
    for op in body.walk().into_iter().rev() {
        if is_dead(body, op) {
            body.erase(op);
        }
    }
}

/// Has operations of a name that read transposed values read them as they are stored, by `transposes.rules`. Views that meet then are made one.
fn read_as_stored(body: &mut Body, ops: &[Op], def: &'static OpDef, cx: &mut SymbolContext) -> Result {
    for &op in ops {
        views::merge(body, op, cx)?;
        let mut next = Some(op).filter(|&op| !body.is_erased(op) && body.name(op) == def);
        while let Some(op) = next {
            let whole: Vec<Value> = body.operands(op).filter(|&v| lies_in_lines(body, v)).collect();
            let Some(applied) = transposes().apply_at(body, op, Some(&whole), cx)? else { break };
            erase_read(body, &applied);
            let is_next = |op: &Op| body.name(*op) == def;
            let made = body.defining_op(applied.values[0]).filter(is_next);
            // A product of several batches is viewed as of one, and so were its operands.
            let viewed = made_by(body, applied.values[0]).filter(|op| is_next(op) && body.name(*op) == &DOT);
            next = made.or(viewed);
            if let Some(op) = next.filter(|_| made.is_none()) {
                let views: Vec<Op> = body.operands(op).filter_map(|v| body.defining_op(v)).collect();
                views.into_iter().try_for_each(|view| views::merge(body, view, cx))?;
            }
        }
    }
    Ok(())
}

/// Bytes of a line of a cache.
const LINE: u64 = 128;

/// Whether what is transposed for a value has rows of whole lines. Shorter ones, which lie apart, share lines with those of other matrices; they are moved, as no
/// figures say that products read them faster where they are.
fn lies_in_lines(body: &Body, value: Value) -> bool {
    let Some(op) = made_by(body, value).filter(|&op| body.name(op) == &TRANSPOSE) else { return false };
    let ty = body.ty(body.operand(op, 0));
    let row = ty.shape().iter().rev().find(|&&size| size != Dim::Static(1)).and_then(|size| size.as_static());
    row.unwrap_or(0) as u64 * ty.elem().byte_width().unwrap_or(0) >= LINE
}

/// What makes a value, in this shape or another.
fn made_by(body: &Body, value: Value) -> Option<Op> {
    let op = body.defining_op(value)?;
    if body.name(op) == &RESHAPE { body.defining_op(body.operand(op, 0)) } else { Some(op) }
}

pub(crate) fn bytes_text(ty: Type) -> String {
    let count = ty.static_shape().map(|shape| shape.iter().product::<i64>());
    match count.zip(ty.elem().byte_width()) {
        Some((n, width)) => format!("{} bytes are", n * width as i64),
        None => format!("a {ty} is"),
    }
}

/// Stores a constant as its only reader, a transpose, gives it.
fn store_transposed(body: &mut Body, transpose: Op, cx: &mut SymbolContext) {
    let source = body.operand(transpose, 0);
    let Some(constant) = body.defining_op(source).filter(|&op| body.name(op) == &CONSTANT) else { return };
    if body.uses(source).count() > 1 {
        cx.remark(body.loc(transpose), "the constant is read in another order too, and stays as it is stored");
        return;
    }
    let (from, to) = (body.ty(source), body.ty(body.result(transpose, 0)));
    let perm = body.op_ref(transpose).ints("perm").unwrap_or_default();
    let Some(value) = body.attr(constant, "value").and_then(|value| transposed(value, from, to, &perm, cx)) else {
        return;
    };
    let built = Builder::before(body, transpose).op(op::core::CONSTANT).attr("value", value).result(to).build();
    let result = body.result(built, 0);
    body.replace_op(transpose, &[result]);
    body.erase(constant);
    cx.remark(
        body.loc(built),
        format!("the constant is stored transposed by {perm:?}, as it is read: {} not moved", bytes_text(to)),
    );
    cx.count("constants stored transposed", 1);
}

/// The constant's elements in the order of `to`; `None` for a splat, which has no order, and for elements that are not whole bytes.
fn transposed(value: Attr, from: Type, to: Type, perm: &[i64], cx: &mut SymbolContext) -> Option<Attr> {
    let width = from.elem().byte_width()? as usize;
    let shape: Vec<usize> = from.static_shape()?.iter().map(|&n| n as usize).collect();
    let count: usize = shape.iter().product();
    let moved = |bytes: &[u8]| (bytes.len() == count * width).then(|| permuted(bytes, width, &shape, perm));
    match value.data() {
        AttrData::Dense { data, .. } if !data.splat => Some(Attr::dense(to, moved(&data.bytes)?)),
        AttrData::Resource { name, .. } => {
            let blob = cx.module.resources.get(name)?;
            Some(cx.add_resource(&format!("{name}_transposed"), to, Blob::new(moved(blob.bytes())?)))
        }
        _ => None,
    }
}

fn permuted(bytes: &[u8], width: usize, shape: &[usize], perm: &[i64]) -> Vec<u8> {
    let strides: Vec<usize> = (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect();
    let order: Vec<usize> = perm.iter().map(|&d| d as usize).collect();
    let mut index = vec![0; shape.len()];
    let mut out = Vec::with_capacity(bytes.len());
    while out.len() < bytes.len() {
        let at: usize = order.iter().zip(&index).map(|(&d, &i)| i * strides[d]).sum();
        out.extend_from_slice(&bytes[at * width..][..width]);
        for d in (0..index.len()).rev() {
            index[d] += 1;
            if index[d] < shape[order[d]] {
                break;
            }
            index[d] = 0;
        }
    }
    out
}
