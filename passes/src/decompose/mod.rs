//! `decompose`: operations of `tensor` become what their definitions in `core` say.

mod attention;
mod pairs;

use crate::layout::planes::ROW;
use crate::partition::RECOMPUTE;
use crate::schedule::Target;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::constraints::default_acc;
use rc_dialects::core::dot::PRECISION;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{BROADCAST, RESHAPE, TRANSPOSE};
use rc_dialects::core::sort::BELOW;
use rc_dialects::core::value_range;
use rc_dialects::interfaces::Decompose;
use rc_dialects::tensor::normalize::normalize_instances;
use rc_dialects::tensor::{
    ADAPTIVE_AVG_POOL, CONV, CONV_TRANSPOSE, CONV_WEIGHT_GRAD, IN_PLANES, SORT, TOPK, channels_last,
};
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, has_op, option};
use rc_ir::{Attr, Body, Builder, Dim, Op, OpRef, Result, Value};
use rustc_hash::FxHashMap;

pub static DECOMPOSE: PassDef = PassDef {
    summary: "Replaces operations by their definitions in core.",
    doc: "Every operation that has a definition (the interface Decompose) is replaced by it, until none is left. Locations and names stay. \
          Before, a softmax of scores between two products becomes attention, by the rules of `passes/rules/attention.rules`. On a CPU a \
          convolution with few results sums windows of the planes (`in_planes`).",
    pending: Some(|module| has_op(module, |name| name.def().is_some_and(|d| d.interface::<Decompose>().is_some()))),
    options: &[option(
        "order",
        OptionKind::Enum(&["auto", "channels_first", "channels_last"]),
        "auto",
        "The order of dimensions that convolutions are computed in, where they do not say it: channels_last where all of a function's can, and what is between them keeps channels apart from places; auto: channels_last for a target that is known, whose products and vectors want channels contiguous.",
    )],
    ..PassDef::new("decompose", |options| {
        let order = options.str("order").to_string();
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let known = cx.module.attrs.get("rc.target").is_some();
            normalize_instances(body)?;
            let target = Target::of("", "", cx.module.attrs).ok();
            let cpu = target.as_ref().filter(|target| target.is_cpu());
            if known && cpu.is_none() {
                pool_by_windows(body);
            }
            if let Some(target) = target.as_ref().filter(|_| known) {
                sort_by_pairs(body, target);
            }
            if known && cpu.is_some() {
                multiply_exactly(body);
            }
            if let Some(cpu) = cpu.filter(|_| known && order == "auto") {
                cx.count("convolutions in planes", sum_in_planes(body, cpu));
            }
            if order == "channels_last" || order == "auto" && known {
                cx.count("convolutions with channels last", order_channels_last(body, cpu));
            }
            attention::recognize(body, cx)?;
            let replaced = decompose(body)?;
            if let Some(gpu) = target.filter(|target| !target.is_cpu()) {
                cx.count("attention with stored scores", attention::store_scores(body, &gpu)?);
            }
            cx.count("operations replaced", replaced);
            Ok(())
        }))
    })
};

/// A GPU reads parts of different sizes as windows, once; for a CPU the products with matrices of shares take less.
fn pool_by_windows(body: &mut Body) {
    for op in body.walk().into_iter().filter(|&op| body.name(op) == &ADAPTIVE_AVG_POOL).collect::<Vec<_>>() {
        body.set_attr(op, "windows", Attr::bool(true));
    }
}

/// A CPU multiplies f32 as they are.
fn multiply_exactly(body: &mut Body) {
    for op in body.walk() {
        body.remove_attr(op, PRECISION.name);
    }
}

/// Compares all pairs only in rows as short as the target says: it sorts others in its own memory. What is known of their elements is noted now, as indices that
/// come from a topk no longer tell it later.
fn sort_by_pairs(body: &mut Body, target: &Target) {
    let longest = target.gpu.as_ref().map_or_else(|| target.cpu().sorts.pairs, |gpu| gpu.sorts.pairs);
    let sorts = |op: &Op| [&SORT, &TOPK].iter().any(|def| body.name(*op) == *def);
    for op in body.walk().into_iter().filter(sorts).collect::<Vec<_>>() {
        body.set_attr(op, "pairs", Attr::i64(longest));
        let bound = value_range::bound_of(body, body.operand(op, 0));
        if let Some(bound) = bound.filter(|_| body.name(op) == &SORT) {
            body.set_attr(op, BELOW.name, Attr::i64(bound));
        }
    }
}

/// Has convolutions with few results sum windows of the planes: their results are the lanes of a product's vectors, of which most would be empty, and places are
/// those of these. Gives how many there are.
fn sum_in_planes(body: &mut Body, cpu: &Target) -> u64 {
    let few = |&op: &Op| body.name(op) == &CONV && has_few_results(body.op_ref(op), cpu);
    let convolutions: Vec<Op> = body.walk().into_iter().filter(few).collect();
    for &op in &convolutions {
        body.set_attr(op, IN_PLANES.name, Attr::bool(true));
    }
    convolutions.len() as u64
}

/// Whether a convolution of one group has results for at most half of a vector, and rows of windows that are neighbours and fill vectors.
fn has_few_results(op: OpRef, cpu: &Target) -> bool {
    let [x, w] = [0, 1].map(|i| op.body.ty(op.operand(i)));
    let Some(weights) = w.static_shape() else { return false };
    let lanes = cpu.lanes(default_acc(x.elem()));
    let steps = op.ints("strides").and_then(|strides| strides.last().copied()).unwrap_or(1);
    let row = op.result_types()[0].shape().last().and_then(|d| d.as_static()).unwrap_or(lanes);
    let one_group = op.int("groups").unwrap_or(1) == 1;
    one_group && steps == 1 && row >= ROW && 2 * weights[0] <= lanes && weights[2..].iter().any(|&n| n > 1)
}

/// Sets the order of convolutions, if all can be computed so: between different orders everything would be transposed. So it would
/// be between a convolution and a normalization of groups of channels. A CPU's are given channels in fours, and groups of a vector's channels.
fn order_channels_last(body: &mut Body, cpu: Option<&Target>) -> u64 {
    let gradients = [&CONV_TRANSPOSE, &CONV_WEIGHT_GRAD];
    let is_gradient = |op: Op| gradients.iter().any(|def| body.name(op) == *def);
    let (convolutions, rest): (Vec<Op>, Vec<Op>) =
        body.walk().into_iter().partition(|&op| body.name(op) == &CONV || is_gradient(op));
    let convolutions: Vec<Op> = convolutions.into_iter().filter(|&op| !body.op_ref(op).bool(IN_PLANES.name)).collect();
    let first = channels_first(body);
    let mixing = rest.into_iter().filter(|&op| mixes_channels(body, op, &first)).count();
    let supports = |&op: &Op| {
        let narrow =
            body.ty(body.operand(op, 0)).elem().byte_width() == Some(2) || body.attr(op, PRECISION.name).is_some();
        match is_gradient(op) {
            true => {
                let chosen = narrow || cpu.is_some() || channels_last::is_by_channel(body.op_ref(op));
                chosen && channels_last::supports_gradient(body.op_ref(op))
            }
            // A GPU's matrix units multiply 16-bit elements, and f32 that may be rounded; others of groups have nothing to gain from wider groups.
            false => {
                let chosen = narrow || cpu.is_some() || !is_grouped(body, op);
                chosen && channels_last::supports(body.op_ref(op))
            }
        }
    };
    // Windows of each channel alone are read as they lie: there is nothing to gain from turning them.
    let turned = body.walk().into_iter().any(|op| turns(body, op));
    let stays = cpu.is_none() && !turned && convolutions.iter().all(|&op| is_by_channel(body, op));
    let all =
        !stays && mixing <= convolutions.len() / 4 && convolutions.iter().filter(|&&op| !is_gradient(op)).all(supports);
    // To turn a gradient's operands and result takes a CPU less than to store windows.
    let alone = |op: &Op| {
        cpu.is_some() && is_gradient(*op) && has_windows(body, *op) && !channels_last::is_by_channel(body.op_ref(*op))
    };
    let convolutions: Vec<Op> = convolutions.into_iter().filter(supports).filter(|op| all || alone(op)).collect();
    for &op in &convolutions {
        body.set_attr(op, "order", Attr::str("channels_last"));
        let Some(cpu) = cpu else {
            if body.name(op) == &CONV {
                pairs::take_pairs(body, op);
            }
            continue;
        };
        let lanes = cpu.lanes(default_acc(body.ty(body.operand(op, 0)).elem()));
        if body.op_ref(op).int("groups").is_some_and(|n| n > 1) && body.name(op) != &CONV_WEIGHT_GRAD {
            body.set_attr(op, "group_channels", Attr::i64(lanes));
        }
        if body.name(op) == &CONV && !channels_last::has_patches(body.op_ref(op)) {
            pad_channels(body, op);
        }
    }
    convolutions.len() as u64
}

/// Whether an operation, a gradient of a convolution, has windows of several places.
fn has_windows(body: &Body, op: Op) -> bool {
    match body.op_ref(op).ints("window") {
        Some(window) => window.iter().any(|&n| n != 1),
        None => body.ty(body.operand(op, 1)).shape()[2..].iter().any(|&d| d != Dim::Static(1)),
    }
}

/// Whether a convolution or a gradient has weights for each channel alone.
fn is_by_channel(body: &Body, op: Op) -> bool {
    let depthwise =
        || body.name(op) == &CONV && body.op_ref(op).int("groups").is_some_and(|n| n > 1) && !is_grouped(body, op);
    channels_last::is_by_channel(body.op_ref(op)) || depthwise()
}

/// Whether an operation puts images in another order, as it does with those that lie in memory with channels last.
fn turns(body: &Body, op: Op) -> bool {
    let perm = body.op_ref(op).ints("perm").filter(|_| body.name(op) == &TRANSPOSE);
    perm.is_some_and(|perm| perm.len() > 3 && !places_stay(&perm))
}

/// Whether a convolution has several groups of several channels.
fn is_grouped(body: &Body, op: Op) -> bool {
    body.op_ref(op).int("groups").is_some_and(|n| n > 1) && body.ty(body.operand(op, 1)).shape()[1] != Dim::Static(1)
}

/// Makes the channels that a convolution sums over a multiple of four, with zeros, where that is at most a third more: a product gathers windows in
/// runs of neighbours.
fn pad_channels(body: &mut Body, op: Op) {
    let shape = body.ty(body.operand(op, 1)).shape();
    let Some(channels) = shape[1].as_static().filter(|c| c % 4 != 0 && *c >= 3) else { return };
    let more = 4 - channels % 4;
    let one_place = shape[2..].iter().all(|&d| d == Dim::Static(1));
    if one_place || 3 * more > channels || body.op_ref(op).int("groups").unwrap_or(1) != 1 {
        return;
    }
    let (low, mut high) = (vec![Dim::Static(0); shape.len()], vec![Dim::Static(0); shape.len()]);
    high[1] = Dim::Static(more);
    for i in 0..2 {
        let value = body.operand(op, i);
        let padded = Builder::before(body, op).pad_or_crop(value, 0.0, &low, &high);
        body.set_operand(op, i, padded);
    }
}

/// What has images, channels, and then places: convolutions' results, and what is made of them in that order; the number of the first dimension of places.
fn channels_first(body: &Body) -> FxHashMap<Value, usize> {
    let mut first = FxHashMap::default();
    for op in body.walk() {
        let convolves = [&CONV, &CONV_TRANSPOSE].iter().any(|def| body.name(op) == *def);
        let from =
            || body.operands(op).find_map(|v| first.get(&v).and_then(|&places| places_after(body, op, v, places)));
        if let Some(places) = if convolves { Some(2) } else { from() } {
            // Statistics beside a result have no places.
            let rank = |v: Value| body.ty(v).rank();
            let alike = body.results(op).filter(|&v| rank(v) == rank(body.result(op, 0)));
            first.extend(alike.map(|result| (result, places)));
        }
    }
    first
}

/// Where places begin in what an operation makes of a value in which they begin with dimension `places`.
fn places_after(body: &Body, op: Op, from: Value, places: usize) -> Option<usize> {
    let at = body.op_ref(op);
    let rank = |v: Value| body.ty(v).rank();
    if body.name(op) == &RESHAPE {
        return boundary(&body.ty(from).shape()[..places], &body.ty(at.result(0)).shape());
    }
    if body.name(op) == &TRANSPOSE {
        return at.ints("perm").is_some_and(|perm| places_stay(&perm)).then_some(places);
    }
    if let Some(dims) = at.ints("dims").filter(|_| body.name(op) == &REDUCE) {
        return Some(places - dims.iter().filter(|&&d| (d as usize) < places).count());
    }
    if let Some(dims) = at.ints("dims").filter(|_| body.name(op) == &BROADCAST) {
        return dims.get(places).or(dims.last()).map(|&d| d as usize + usize::from(places >= dims.len()));
    }
    (body.result_count(op) > 0 && rank(at.result(0)) == rank(from)).then_some(places)
}

/// The dimension before which as many elements of a shape are counted as there are in `before`, if one begins there.
fn boundary(before: &[Dim], shape: &[Dim]) -> Option<usize> {
    let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
    (0..=shape.len()).rfind(|&n| product(&shape[..n]) == product(before))
}

/// Whether a permutation leaves the last two dimensions where they are: it is one of channels, as a shuffle's.
fn places_stay(perm: &[i64]) -> bool {
    let rank = perm.len();
    rank > 3 && perm[rank - 2..] == [rank as i64 - 2, rank as i64 - 1]
}

/// Whether it is a reshape of `first` that puts channels and places in one dimension, but for one that flattens all of them.
fn mixes_channels(body: &Body, op: Op, first: &FxHashMap<Value, usize>) -> bool {
    if body.name(op) != &RESHAPE {
        return false;
    }
    let Some(&places) = first.get(&body.operand(op, 0)) else { return false };
    let (from, to) = (body.ty(body.operand(op, 0)).shape(), body.ty(body.result(op, 0)).shape());
    let many = |d: &&Dim| **d != Dim::Static(1);
    let flattens =
        from.len() < 4 || to.iter().filter(many).count() < 3 || from[places..].iter().filter(many).count() == 0;
    !flattens && boundary(&from[..places], &to).is_none()
}

/// Replaces every operation that has a definition; gives how many there were. Definitions may use operations that have definitions themselves.
///
/// # Errors
/// What a definition does not cover, with the operation's place.
pub fn decompose(body: &mut Body) -> Result<u64> {
    let mut replaced = 0;
    let mut work: Vec<Op> = body.walk();
    work.reverse();
    while let Some(op) = work.pop() {
        let Some(definition) = body.name(op).def().and_then(|d| d.interface::<Decompose>()) else { continue };
        let before = body.prev_op(op);
        let values: Vec<Value> = (definition.0)(&mut Builder::before(body, op), op)?;
        // What the definition put in front of the op may have definitions too.
        let kept = [RECOMPUTE, PRECISION.name].map(|name| (name, body.attr(op, name)));
        let mut made = body.prev_op(op);
        while made != before {
            let Some(new) = made else { break };
            for (name, value) in kept {
                let has =
                    name == RECOMPUTE || body.name(new).def().is_some_and(|d| d.attrs.iter().any(|a| a.name == name));
                value.into_iter().filter(|_| has).for_each(|value| body.set_attr(new, name, value));
            }
            work.push(new);
            made = body.prev_op(new);
        }
        body.replace_op(op, &values);
        replaced += 1;
    }
    Ok(replaced)
}
