//! `hoist-constants`: what a function computes of constant arguments alone moves to a function that runs once.
//!
//! A frontend says which arguments are the same at every call (`rc.constant`: a model's weights). What follows from them alone
//! becomes an *initializer*, a function of its own; its results are the last arguments of what remains, which names it (`rc.init`). On a
//! CPU the weights of products are such results too, packed in the order in which a product reads them.

mod pack;
mod scale;
mod split;

use crate::fuse::is_cheap;
use crate::schedule::Target;
use pack::Packer;
use rc_dialects::func::{FUNC, INIT, Initializer, calls, constant_args};
use rc_ir::pass::{OptionKind, PassContext, PassDef, PassKind, option};
use rc_ir::{Block, Body, Diagnostic, Effects, Loc, Module, Name, Op, OpRef, Result, Type, Value};
use rustc_hash::FxHashSet;

pub static HOIST_CONSTANTS: PassDef = PassDef {
    summary: "Moves what depends on constant arguments alone to an initializer, which runs once.",
    doc: "An argument with `rc.constant = true` is the same at every call. Operations on such arguments alone move to a new function, the \
initializer, whose results the function takes as further arguments; `rc.init` names it, and whoever runs the function runs the initializer before \
the first call. What is larger than the arguments it is made of, or costs less to do again than to load, stays. \
For a CPU (`rc.target`) the constant right operand of a product is packed by the initializer: in panels of as many columns as a tile of results has, \
each contiguous, so that no call packs it; what scales its columns by constants, as a batch norm with known statistics does, is \
multiplied into it, and what shifts them is one addition. Functions that others call stay as they are.",
    options: &[option("pack", OptionKind::Bool, "true", "Whether products' weights are packed, for a CPU.")],
    requires: &["decompose"],
    ..PassDef::new("hoist-constants", |options| {
        let pack = options.bool("pack");
        Ok(PassKind::module(move |module: &mut Module, cx: &mut PassContext| run(module, cx, pack)))
    })
};

fn run(module: &mut Module, cx: &mut PassContext, pack: bool) -> Result {
    let target = match module.attr("rc.target") {
        Some(_) => Some(Target::of("", "", module.attrs).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?),
        None => None,
    };
    let target = target.filter(|t| pack && t.is_cpu());
    let called = called(module);
    let is_entry = |body: &Body| {
        let root = body.op_ref(body.root());
        root.name() == &FUNC && root.attr(INIT).is_none() && body.symbol().is_some_and(|name| !called.contains(&name))
    };
    for i in 0..module.bodies.len() {
        if !is_entry(&module.bodies[i]) {
            continue;
        }
        let name = module.fresh_symbol(&format!("{}_init", module.bodies[i].symbol().unwrap_or_default()));
        if let Some(init) = hoist(&mut module.bodies[i], name, target.as_ref(), cx) {
            module.push(init);
        }
    }
    Ok(())
}

/// The functions that others call, or name as their initializers: their types are not theirs alone.
fn called(module: &Module) -> FxHashSet<Name> {
    let mut out = FxHashSet::default();
    for body in &module.bodies {
        out.extend(Initializer::of(body.op_ref(body.root())).map(|init| init.function));
        out.extend(body.walk().into_iter().flat_map(|op| calls(body.op_ref(op))).map(|call| call.callee));
    }
    out
}

/// Splits a function; gives its initializer, if there is anything to compute once.
fn hoist(body: &mut Body, name: Name, target: Option<&Target>, cx: &mut PassContext) -> Option<Body> {
    let args = constant_args(body);
    let entry = body.entry().filter(|_| !args.is_empty())?;
    if target.is_some() {
        scale::fold(body, entry, &Constants::of(body, entry, &args), cx);
    }
    let packed = match target {
        Some(target) => Packer { target, constants: &Constants::of(body, entry, &args), cx }.run(body, entry),
        None => FxHashSet::default(),
    };
    let constants = Constants::of(body, entry, &args);
    let roots = roots(body, entry, &constants, &packed);
    if roots.is_empty() {
        return None;
    }
    let bytes: i64 = roots.iter().map(|&v| bytes(body.ty(v))).sum();
    let count = roots.len();
    cx.remark(
        body.loc(body.root()),
        format!("@{name} computes {count} values of constant arguments, once: {bytes} bytes"),
    );
    cx.count("values computed once", count as u64);
    Some(split::split(body, entry, name, &args, &roots))
}

/// The values of a function that constant arguments decide.
struct Constants {
    values: FxHashSet<Value>,
    /// Values that no argument decides: constants, counters.
    free: FxHashSet<Value>,
}

impl Constants {
    fn of(body: &Body, entry: Block, args: &[usize]) -> Constants {
        let values = args.iter().map(|&i| body.block_arg(entry, i)).filter(|&v| is_fixed(body.ty(v))).collect();
        let mut out = Constants { values, free: FxHashSet::default() };
        for op in body.ops(entry).map(|op| body.op_ref(op)) {
            let pure = op.def().is_some_and(|d| d.effects == Effects::Pure) && body.regions(op.op).is_empty();
            let fixed = op.results().len() > 0 && op.result_types().iter().all(|&t| is_fixed(t));
            if !pure || !fixed || !op.operands().all(|v| out.values.contains(&v) || out.free.contains(&v)) {
                continue;
            }
            let decided = op.operands().any(|v| out.values.contains(&v));
            let set = if decided { &mut out.values } else { &mut out.free };
            set.extend(op.results());
        }
        out
    }
    /// Bytes of the constant arguments of which a value is made.
    fn source_bytes(&self, body: &Body, value: Value) -> i64 {
        let (mut seen, mut stack, mut sum) = (FxHashSet::default(), vec![value], 0);
        while let Some(v) = stack.pop() {
            if !self.values.contains(&v) || !seen.insert(v) {
                continue;
            }
            match body.defining_op(v) {
                Some(op) => stack.extend(body.operands(op)),
                None => sum += bytes(body.ty(v)),
            }
        }
        sum
    }
}

/// Whether it is a tensor or a number of fixed size.
fn is_fixed(ty: Type) -> bool {
    !ty.is_tensor() || ty.static_shape().is_some()
}

fn bytes(ty: Type) -> i64 {
    let elements: i64 = ty.static_shape().map_or(1, |shape| shape.iter().product());
    elements * ty.elem().byte_width().unwrap_or(8) as i64
}

/// The constant values that what remains of the function reads, in program order: `packed` ones, and all that are worth keeping.
fn roots(body: &Body, entry: Block, constants: &Constants, packed: &FxHashSet<Value>) -> Vec<Value> {
    let mut wanted: FxHashSet<Value> = FxHashSet::default();
    let mut roots = Vec::new();
    let ops: Vec<Op> = body.ops(entry).collect();
    for &op in ops.iter().rev() {
        let at = body.op_ref(op);
        let constant = at.results().len() > 0 && at.results().all(|v| constants.values.contains(&v));
        let read: Vec<Value> = at.results().filter(|v| wanted.contains(v)).collect();
        if constant && read.is_empty() {
            continue;
        }
        if constant && read.iter().all(|&v| packed.contains(&v) || is_worth_keeping(at, v, constants)) {
            roots.extend(read.into_iter().rev());
        } else {
            wanted.extend(at.operands());
        }
    }
    roots.reverse();
    roots
}

/// Whether loading the value costs less than computing it: it is no index map, and not larger than what it is made of (a padded weight may be by an eighth).
fn is_worth_keeping(op: OpRef, value: Value, constants: &Constants) -> bool {
    let body = op.body;
    body.ty(value).is_tensor()
        && !is_cheap(op)
        && bytes(body.ty(value)) <= constants.source_bytes(body, value).saturating_mul(9) / 8
}
