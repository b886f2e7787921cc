//! Images that are turned to channels last for depthwise convolutions alone, on a CPU: what computes these may as well work on planes, whose rows fill vectors.

use super::erase_dead;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Builder, Dim, Op, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Elements of a row that fill vectors, at least: convolutions of 14 x 14 places take less time on planes, of 7 x 7 as long or more.
pub const ROW: i64 = 12;

/// For values that are turned: dimension i is dimension `perm[i]` of what is not.
type Turned = FxHashMap<Value, Vec<usize>>;

/// Has what reads such images work on these as they lie, where it reads windows and all that it computes is turned back or has no places left. Gives the
/// number of images.
pub fn keep(body: &mut Body) -> u64 {
    let mut turns: FxHashSet<Op> = body.walk().into_iter().filter(|&op| turns_image(body, op)).collect();
    // A gradient for weights reads two images, both as they lie or none.
    let turned = loop {
        match follow(body, &turns) {
            Ok(turned) => break turned,
            Err(others) => turns.retain(|op| !others.contains(op)),
        }
    };
    if !turns.is_empty() {
        rewrite(body, &turned);
        erase_dead(body);
    }
    turns.len() as u64
}

/// Whether an operation turns an image with rows long enough to channels last.
fn turns_image(body: &Body, op: Op) -> bool {
    let at = body.op_ref(op);
    let long = |shape: &[Dim]| shape.last().and_then(|d| d.as_static()).is_some_and(|n| n >= ROW);
    at.is(op::core::TRANSPOSE)
        && at.ints("perm").as_deref() == Some(&[0, 2, 3, 1])
        && body.ty(at.operand(0)).static_shape().is_some()
        && long(&body.ty(at.operand(0)).shape())
}

/// What follows from the turned images, turned as well; or those of which something follows that cannot be computed of planes.
fn follow(body: &Body, turns: &FxHashSet<Op>) -> Result<Turned, FxHashSet<Op>> {
    let mut turned = Turned::default();
    let mut from: FxHashMap<Value, FxHashSet<Op>> = FxHashMap::default();
    for op in body.walk() {
        if turns.contains(&op) {
            turned.insert(body.result(op, 0), vec![0, 2, 3, 1]);
            from.insert(body.result(op, 0), [op].into_iter().collect());
            continue;
        }
        let sources = body.operands(op).filter_map(|v| from.get(&v)).flatten().copied();
        let mut sources: FxHashSet<Op> = sources.collect();
        let repeated = body.operands(op).filter_map(|v| repeats(body, v)).filter_map(|v| from.get(&v));
        sources.extend(repeated.flatten());
        if sources.is_empty() || body.name(op) == op::core::BROADCAST && repeats_for_turned(body, op) {
            continue;
        }
        match perm_of(body, op, &turned) {
            Some(perm) if is_identity(&perm) => {}
            Some(perm) => {
                turned.insert(body.result(op, 0), perm);
                from.insert(body.result(op, 0), sources);
            }
            None => return Err(sources),
        }
    }
    Ok(turned)
}

fn is_identity(perm: &[usize]) -> bool {
    perm.iter().enumerate().all(|(i, &d)| i == d)
}

/// What a broadcast repeats.
fn repeats(body: &Body, value: Value) -> Option<Value> {
    let op = body.defining_op(value).filter(|&op| body.name(op) == op::core::BROADCAST)?;
    Some(body.operand(op, 0))
}

/// The number that a constant is everywhere.
fn splat_of(body: &Body, value: Value) -> Option<f64> {
    constant_of(body, value).filter(|_| body.ty(value).elem().is_float()).and_then(|constant| constant.as_splat())
}

/// Whether elementwise operations alone read a broadcast, beside something else.
fn repeats_for_turned(body: &Body, op: Op) -> bool {
    let reads = |user: Op| body.op_ref(user).has(Traits::ELEMENTWISE) && body.operands(user).count() > 1;
    body.uses(body.result(op, 0)).all(|(user, _)| reads(user))
}

/// How an operation's result is turned whose operands are; `None` where it cannot be computed of planes.
fn perm_of(body: &Body, op: Op, turned: &Turned) -> Option<Vec<usize>> {
    let at = body.op_ref(op);
    let own = || turned.get(&at.operand(0));
    match at.name().as_str() {
        op::core::PAD => own().cloned(),
        op::core::WINDOW => {
            let (perm, dims) = (own()?, at.ints("dims")?);
            let ones = |name: &str| at.ints(name).is_none_or(|all| all.iter().all(|&n| n == 1));
            let rank = body.ty(at.result(0)).rank();
            // Along rows neighbouring windows start at neighbours.
            (dims.len() == 2 && ones("strides") && ones("divisors"))
                .then(|| perm.iter().copied().chain(perm.len()..rank).collect())
        }
        op::core::TRANSPOSE => {
            let perm = own()?;
            Some(at.ints("perm")?.iter().map(|&d| perm[d as usize]).collect())
        }
        op::core::REDUCE => {
            let (perm, dims) = (own()?, at.ints("dims")?);
            let kept: Vec<usize> = (0..perm.len()).filter(|d| !dims.contains(&(*d as i64))).map(|d| perm[d]).collect();
            Some(kept.iter().map(|d| kept.iter().filter(|other| *other < d).count()).collect())
        }
        _ if at.has(Traits::ELEMENTWISE) => {
            let mut perms = at.operands().filter_map(|v| turned.get(&v));
            let perm = perms.next()?;
            let fits = |v: Value| turned.contains_key(&v) || repeats(body, v).is_some() || splat_of(body, v).is_some();
            (perms.all(|other| other == perm) && at.operands().all(fits)).then(|| perm.clone())
        }
        _ => None,
    }
}

/// Computes of planes what is turned, and what follows from it.
fn rewrite(body: &mut Body, turned: &Turned) {
    let mut plain: FxHashMap<Value, Value> = FxHashMap::default();
    for op in body.walk() {
        let Some(result) = body.results(op).next() else { continue };
        let mine = turned.get(&result);
        if mine.is_some() && body.operands(op).all(|v| !turned.contains_key(&v)) {
            plain.insert(result, body.operand(op, 0));
            continue;
        }
        let last = body.operands(op).any(|v| turned.contains_key(&v)) && body.name(op) != op::core::BROADCAST;
        if mine.is_none() && !last {
            continue;
        }
        let ty = body.ty(result);
        let to = mine.map_or(ty, |perm| unturned(ty, perm));
        let made = match body.name(op).as_str() {
            op::core::TRANSPOSE if mine.is_none() => plain[&body.operand(op, 0)],
            op::core::TRANSPOSE => {
                plain.insert(result, plain[&body.operand(op, 0)]);
                continue;
            }
            _ => of_planes(body, op, turned, &plain, to),
        };
        match mine {
            Some(_) => {
                plain.insert(result, made);
            }
            None => body.replace_op(op, &[made]),
        }
    }
}

/// The type of what a value of type `ty` is turned from.
fn unturned(ty: Type, perm: &[usize]) -> Type {
    let (from, mut shape) = (ty.shape(), ty.shape().to_vec());
    perm.iter().enumerate().for_each(|(i, &d)| shape[d] = from[i]);
    ty.with_shape(&shape)
}

/// The operation on what its operands are turned from.
fn of_planes(body: &mut Body, op: Op, turned: &Turned, plain: &FxHashMap<Value, Value>, to: Type) -> Value {
    let operands: Vec<Value> = body.operands(op).collect();
    let perm = operands.iter().find_map(|v| turned.get(v)).expect("an operand is turned").clone();
    let elementwise = body.op_ref(op).has(Traits::ELEMENTWISE);
    let operands: Vec<Value> = operands
        .into_iter()
        .map(|v| match plain.get(&v) {
            Some(&plain) => plain,
            None if elementwise => repeated(body, op, v, &perm, turned, plain),
            None => v,
        })
        .collect();
    let (name, attrs) = (body.name(op).as_str(), body.attrs(op));
    let mut b = Builder::before(body, op);
    let mut made = b.op(name).operands(&operands).attrs(attrs);
    for &(key, attr) in attrs.as_dict().unwrap_or_default() {
        if let Some(attr) = of_perm(name, key.as_str(), attr, &perm) {
            made = made.attr(key.as_str(), attr);
        }
    }
    made.result(to).value()
}

/// An attribute that names or counts dimensions, for planes.
fn of_perm(op: &str, key: &str, attr: Attr, perm: &[usize]) -> Option<Attr> {
    match (op, key) {
        (op::core::PAD, "low" | "high") => {
            let mut sizes = attr.as_shape()?.to_vec();
            attr.as_shape()?.iter().zip(perm).for_each(|(&size, &d)| sizes[d] = size);
            Some(Attr::shape(&sizes))
        }
        (op::core::WINDOW | op::core::REDUCE, "dims") => {
            let mut dims: Vec<i64> = attr.as_ints()?.iter().map(|&d| perm[d as usize] as i64).collect();
            if op == op::core::REDUCE {
                dims.sort_unstable();
            }
            Some(Attr::i64s(&dims))
        }
        _ => None,
    }
}

/// What a broadcast or a constant repeats, repeated for planes.
fn repeated(
    body: &mut Body,
    before: Op,
    value: Value,
    perm: &[usize],
    turned: &Turned,
    plain: &FxHashMap<Value, Value>,
) -> Value {
    if let Some(number) = splat_of(body, value) {
        let to = unturned(body.ty(value), perm);
        return Builder::before(body, before).splat(number, to);
    }
    let op = body.defining_op(value).expect("a broadcast");
    let source = body.operand(op, 0);
    let dims: Vec<usize> = body.op_ref(op).ints("dims").unwrap_or_default().iter().map(|&d| perm[d as usize]).collect();
    let (source, dims) = match turned.get(&source) {
        Some(own) => {
            let mut places = dims.clone();
            own.iter().zip(&dims).for_each(|(&d, &place)| places[d] = place);
            (plain[&source], places)
        }
        None => (source, dims),
    };
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&d| dims[d]);
    let (from, to) = (body.ty(source), unturned(body.ty(value), perm));
    let source = match is_identity(&order) {
        true => source,
        false => {
            let shape: Vec<Dim> = order.iter().map(|&d| from.shape()[d]).collect();
            let perm: Vec<i64> = order.iter().map(|&d| d as i64).collect();
            let mut b = Builder::before(body, before);
            let made = b.op(op::core::TRANSPOSE).operands(&[source]).attr("perm", Attr::i64s(&perm));
            made.result(from.with_shape(&shape)).value()
        }
    };
    let dims: Vec<i64> = order.iter().map(|&d| dims[d] as i64).collect();
    let mut b = Builder::before(body, before);
    b.op(op::core::BROADCAST).operands(&[source]).attr("dims", Attr::i64s(&dims)).result(to).value()
}
