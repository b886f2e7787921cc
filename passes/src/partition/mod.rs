//! `partition`: a joint function becomes a forward and a backward one.
//!
//! Which values the forward function keeps for the backward one, and which are computed again, is a minimum cut (as in Chen et al., "Training
//! deep nets with sublinear memory cost", 2016, for the question, and PyTorch's partitioner for the graph): a value that the backward function needs is
//! kept, at the price of its bytes, or computed again, at the price of its operations and of what these need.

mod absent;
mod cut;
mod once;
mod price;
mod split;

pub use absent::without;
pub use once::give_once;

use crate::autodiff::JOINT;
use crate::fuse::{Class, classify, overlaps, symbol_ranges};
use crate::layout::attention::settling;
use crate::schedule::Target;
use cut::{Graph, INFINITE, SINK, SOURCE};
pub use price::RECOMPUTE;
use price::{Prices, counted};
use rc_dialects::func::{donated_args, updated_args};
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::pass::{OptionKind, PassContext, PassDef, PassKind, option};
use rc_ir::{Body, Diagnostic, Module, Op, Result, Value};
use rustc_hash::{FxHashMap, FxHashSet};

pub static PARTITION: PassDef = PassDef {
    summary: "Makes of a joint function a forward and a backward one, and decides what is kept between them.",
    doc: "A joint function that takes gradients of results (autodiff, mode = vjp) becomes `NAME_forward`, with its results and what is kept, and \
`NAME_backward`, which takes what is kept and the gradients of the results. `rc.saved` of the backward function says what its first arguments are: number k \
below the forward function's number of arguments is that argument, the others are its results, counted from there. Keeping costs its bytes over the \
target's bandwidth, twice; computing again costs operations over its peak, and a launch for a reduction. Products, attention and what is a kernel of its \
own are kept, unless `recompute-products`; what follows from counters alone (random numbers, masks) is computed again; so is what has the attribute \
`rc.recompute` (and what it is decomposed to). `memory-budget` bounds the bytes that are kept: what is larger than 1 is bytes, else a share of what would be kept without a bound. \
Symbolic sizes count as their largest, one that may be beyond 65,536 as 1024. Donated arguments are the forward function's alone, which results may update.",
    options: &[
        option(
            "memory-budget",
            OptionKind::Float,
            "1",
            "Bytes that are kept at most, or their share of what is kept without a bound.",
        ),
        option(
            "recompute-products",
            OptionKind::Bool,
            "false",
            "Whether products and attention may be computed again.",
        ),
        option(
            "absent",
            OptionKind::Str,
            "",
            "Numbers, separated by spaces, of gradients of results that the backward function does not take: they are zero.",
        ),
    ],
    requires: &["decompose"],
    ..PassDef::new("partition", |options| {
        let budget = options.float("memory-budget");
        let products = options.bool("recompute-products");
        let absent = options.str("absent").to_string();
        Ok(PassKind::module(move |module: &mut Module, cx: &mut PassContext| {
            run(module, cx, budget, products, &absent)
        }))
    })
};

fn run(module: &mut Module, cx: &mut PassContext, budget: f64, products: bool, absent: &str) -> Result {
    let target = Target::of("", "", module.attrs).map_err(|why| Diagnostic::error(module.loc, why))?;
    let joints: Vec<usize> =
        (0..module.bodies.len()).filter(|&i| module.bodies[i].attr(module.bodies[i].root(), JOINT).is_some()).collect();
    if joints.is_empty() {
        return Err(
            Diagnostic::error(module.loc, "the module has no joint function").help("make one: --autodiff=mode=vjp")
        );
    }
    for i in joints.into_iter().rev() {
        let joint = Joint::of(&module.bodies[i])?;
        let mut kept = joint.within(&target, budget, products, cx)?;
        let turned = joint.turned(&kept);
        split::keep_turned(&mut module.bodies[i], &mut kept, &turned)?;
        let joint = Joint::of(&module.bodies[i])?;
        let (forward, mut backward) = split::split(&module.bodies[i], &joint, &kept);
        let absent = joint.numbers(absent)?;
        if !absent.is_empty() {
            without(&mut backward, &absent);
        }
        module.bodies.splice(i..=i, [forward, backward]);
    }
    Ok(())
}

/// A joint function, seen as what is forward and what is backward.
pub(crate) struct Joint<'a> {
    body: &'a Body,
    /// All but the terminator.
    ops: Vec<Op>,
    end: Op,
    /// The function's own arguments.
    arguments: Vec<Value>,
    /// Those of them whose memory the forward function may write to.
    donated: FxHashSet<Value>,
    /// The gradients of results.
    gradients: Vec<Value>,
    /// How many results are the function's own.
    results: usize,
    /// Those of them that are left in arguments' memory, which the next call overwrites.
    updates: FxHashSet<Value>,
    /// What depends on gradients of results.
    backward: FxHashSet<Value>,
    /// What the function's own results are computed of. What is neither is computed once, wherever it is computed.
    forward: FxHashSet<Value>,
    ranges: Ranges,
}

impl<'a> Joint<'a> {
    fn of(body: &'a Body) -> Result<Joint<'a>> {
        let root = body.op_ref(body.root());
        let number = |name: &str| root.attr(JOINT).and_then(|j| j.get(name)).and_then(|a| a.as_int());
        let (Some(arguments), Some(results)) = (number("arguments"), number("results")) else {
            return Err(root.error("has a malformed 'rc.joint'").help("write #rc.joint<arguments = 2, results = 1>"));
        };
        let entry = body.entry().ok_or_else(|| root.error("has no body to divide"))?;
        let end = body.terminator(entry).ok_or_else(|| root.error("has no terminator"))?;
        let all: Vec<Value> = body.block_args(entry).collect();
        let (arguments, results) = (arguments as usize, results as usize);
        if arguments >= all.len() || results >= body.operand_count(end) {
            let error =
                root.error("has no backward part: it takes no gradients of results, or gives none of arguments");
            return Err(error.help("differentiate with mode=vjp"));
        }
        let ops: Vec<Op> = body.ops(entry).filter(|&op| op != end).collect();
        let mut backward: FxHashSet<Value> = all[arguments..].iter().copied().collect();
        for &op in &ops {
            if body.operands(op).any(|v| backward.contains(&v)) {
                backward.extend(body.results(op));
            }
        }
        let mut forward: FxHashSet<Value> = body.operands(end).take(results).collect();
        for &op in ops.iter().rev() {
            if body.results(op).any(|v| forward.contains(&v)) {
                forward.extend(body.operands(op));
            }
        }
        if let Some(result) = body.operands(end).take(results).find(|v| backward.contains(v)) {
            let number = body.operands(end).position(|v| v == result).unwrap_or(0);
            return Err(root.error(format!("has a result, number {number}, that depends on gradients of results")));
        }
        let donated = donated_args(body).into_iter().filter_map(|i| all.get(i).copied()).collect();
        let updates = updated_args(body).into_iter().zip(body.operands(end));
        let updates = updates.filter_map(|(argument, result)| argument.map(|_| result)).collect();
        let ranges = symbol_ranges(body);
        let (arguments, gradients) = (all[..arguments].to_vec(), all[arguments..].to_vec());
        Ok(Joint { body, ops, end, arguments, donated, gradients, results, updates, backward, forward, ranges })
    }

    /// Numbers of gradients of results, as text.
    fn numbers(&self, text: &str) -> Result<Vec<usize>> {
        let number = |word: &str| word.parse().ok().filter(|&n: &usize| n < self.gradients.len());
        let numbers: Option<Vec<usize>> = text.split_whitespace().map(number).collect();
        let all = self.gradients.len();
        numbers.ok_or_else(|| {
            self.body
                .op_ref(self.body.root())
                .error(format!("takes gradients of {all} results, and '{text}' are to be absent"))
        })
    }

    /// What to keep so that it is no more than the budget. Bytes become dearer until it is.
    fn within(&self, target: &Target, budget: f64, products: bool, cx: &mut PassContext) -> Result<Vec<Value>> {
        let root = self.body.op_ref(self.body.root());
        if budget.is_nan() || budget < 0.0 {
            return Err(root.error(format!("cannot keep within a memory budget of {budget}")));
        }
        let prices = |weight: f64, products: bool| Prices { target, ranges: &self.ranges, products, weight };
        let free = prices(1.0, products);
        let mut kept = self.cheapest(&free)?;
        let most = self.bytes(&kept, &free);
        let allowed = if budget > 1.0 { budget } else { budget * most };
        if most > allowed {
            // The dearest bytes show what is possible.
            let (mut cheap, mut dear) = (1.0, 1e6);
            let least = self.cheapest(&prices(dear, true))?;
            let reached = self.bytes(&least, &free);
            if reached > allowed {
                let error = root.error(format!(
                    "keeps at least {reached:.0} bytes between its parts, and the memory budget allows {allowed:.0}"
                ));
                return Err(error.help("what is left are results of operations that cannot be computed again"));
            }
            kept = least;
            for _ in 0..24 {
                let weight = f64::sqrt(cheap * dear);
                let tried = self.cheapest(&prices(weight, true))?;
                if self.bytes(&tried, &free) <= allowed {
                    (kept, dear) = (tried, weight);
                } else {
                    cheap = weight;
                }
            }
        }
        self.remark(&kept, &prices(1.0, true), cx);
        Ok(kept)
    }

    /// Of what is kept, the results of attention that the forward part transposes, with the transpose: it is kept in that order.
    fn turned(&self, kept: &[Value]) -> Vec<(Value, Op)> {
        let own = |v: Value| self.body.operands(self.end).any(|result| result == v);
        let forward = |op: &Op| self.forward.contains(&self.body.result(*op, 0));
        let found = |&v: &Value| settling(self.body, v).filter(forward).map(|transpose| (v, transpose));
        kept.iter().filter(|&&v| !own(v)).filter_map(found).collect()
    }

    /// The bytes that are kept of what the function computes: its arguments are there in any case.
    fn bytes(&self, kept: &[Value], prices: &Prices) -> f64 {
        let own = |v: &&Value| !self.arguments.contains(v);
        kept.iter().filter(own).map(|&v| prices.bytes(self.body.ty(v))).fold(0.0, |sum, bytes| sum + bytes)
    }

    /// The values to keep at the least price, arguments included, in the order of the program.
    fn cheapest(&self, prices: &Prices) -> Result<Vec<Value>> {
        let body = self.body;
        let counted = counted(body, &self.ops, &self.arguments);
        let stored = self.stored();
        let mut graph = Graph::new();
        let mut available: FxHashMap<Value, usize> = FxHashMap::default();
        for &arg in &self.arguments {
            let node = graph.node();
            let price = if self.donated.contains(&arg) { INFINITE } else { prices.reading(body.ty(arg)) };
            graph.edge(SOURCE, node, price);
            available.insert(arg, node);
        }
        let mut makers: Vec<(Op, usize)> = Vec::new();
        let results: FxHashSet<Value> = body.operands(self.end).take(self.results).collect();
        for &op in &self.ops {
            let at = body.op_ref(op);
            if at.results().any(|v| self.backward.contains(&v)) {
                continue;
            }
            let made = graph.node();
            let stores = |v: Value| if stored[1].contains(&v) { prices.storing(body.ty(v)) } else { 0 };
            let price = match at.results().any(|v| self.forward.contains(&v)) {
                true => prices.again(at).map(|price| price + at.results().map(stores).sum::<u64>()),
                false => Some(0),
            };
            graph.edge(SOURCE, made, price.unwrap_or(INFINITE));
            for operand in at.operands() {
                graph.edge(available[&operand], made, INFINITE);
            }
            let again = at.attr(RECOMPUTE).is_some();
            for value in at.results() {
                let node = graph.node();
                let tensor = body.ty(value).is_tensor();
                let free = results.contains(&value);
                let never =
                    !tensor || self.updates.contains(&value) || (again || counted[&value] && price.is_some()) && !free;
                let price = match (never, free) {
                    (true, _) => INFINITE,
                    (_, true) => prices.reading(body.ty(value)),
                    _ => prices.keeping(body.ty(value), stored[0].contains(&value)),
                };
                graph.edge(made, node, price);
                available.insert(value, node);
            }
            makers.push((op, made));
        }
        let needed = self.ops.iter().filter(|&&op| body.results(op).any(|v| self.backward.contains(&v)));
        let read = needed.flat_map(|&op| body.operands(op)).chain(body.operands(self.end).skip(self.results));
        let mut seen = FxHashSet::default();
        for value in read.filter(|v| !self.backward.contains(v)) {
            if seen.insert(value) {
                graph.edge(available[&value], SINK, INFINITE);
            }
        }
        let forward = graph.cut().ok_or_else(|| {
            body.op_ref(body.root()).error("has operations marked to be computed again that cannot be, or a backward part that needs donated arguments")
        })?;
        let args = self.arguments.iter().copied().filter(|v| !forward[available[v]]);
        let made = makers.iter().filter(|m| forward[m.1]).flat_map(|m| body.results(m.0));
        Ok(args.chain(made.filter(|v| !forward[available[v]])).collect())
    }

    /// Whether rows are reduced that are read elsewhere too: a product's kernel does not have them when its rows are done.
    fn is_read_twice(&self, value: Value) -> bool {
        let forward = |op: &Op| !self.body.results(*op).any(|v| self.backward.contains(&v));
        let users: Vec<Op> = self.body.uses(value).map(|(op, _)| op).filter(forward).collect();
        users.len() > 1 && users.iter().any(|&op| classify(self.body.op_ref(op)) == Class::Reduce)
    }

    /// What products and the like read, and pools whose windows overlap, of the forward part and of the backward one: it lies in memory in any case.
    /// Views of it, windows and padding do not, nor matrices that a table names: a product reads them where the map leads.
    fn stored(&self) -> [FxHashSet<Value>; 2] {
        let (body, mut out) = (self.body, <[FxHashSet<Value>; 2]>::default());
        let viewed = |value: &Value| {
            let view = body.op_ref(body.defining_op(*value)?);
            let named = view.is(op::core::GATHER) && body.ty(view.operand(0)).rank() > 2;
            (classify(view) == Class::Reindex || view.is(op::core::PAD) || named).then(|| view.operand(0))
        };
        let follows = |op: Op| usize::from(body.results(op).any(|v| self.backward.contains(&v)));
        for at in self.ops.iter().map(|&op| body.op_ref(op)) {
            let source = |v: Value| std::iter::successors(Some(v), viewed).last();
            if at.is(op::core::WINDOW) && overlaps(at) {
                // What the function's own results do not need is computed in the backward part.
                let own = |op: Op| body.results(op).any(|v| self.forward.contains(&v));
                for (user, _) in body.uses(at.result(0)) {
                    out[usize::from(!own(user))].extend(source(at.operand(0)));
                }
            }
            if matches!(classify(at), Class::Contract | Class::Attention | Class::Alone) {
                out[follows(at.op)].extend(at.operands().filter_map(source));
            }
            let own = classify(at) == Class::Contract && !self.backward.contains(&at.result(0));
            if own && self.is_read_twice(at.result(0)) {
                out[0].insert(at.result(0));
            }
        }
        out
    }

    fn remark(&self, kept: &[Value], prices: &Prices, cx: &mut PassContext) {
        let again = split::recomputed(self, kept);
        let cost: u64 = again.iter().filter_map(|&op| prices.again(self.body.op_ref(op))).sum();
        let count = kept.iter().filter(|v| !self.arguments.contains(v)).count();
        let bytes = self.bytes(kept, prices);
        cx.remark(
            self.body.loc(self.body.root()),
            format!(
                "@{} keeps {count} values of {bytes:.0} bytes for its backward part, which computes {} operations again: {:.1} microseconds",
                self.body.symbol().unwrap_or_default(),
                again.len(),
                cost as f64 * 1e-6
            ),
        );
        cx.count("bytes kept", bytes as u64);
        cx.count("operations computed again", again.len() as u64);
    }
}
