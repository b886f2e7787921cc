//! The driver: folds, erases what is dead and applies patterns, from a worklist, until nothing changes.

use super::fold::fold;
use super::{PatternSet, Rewriter, limit};
use crate::body::{Body, Op};
use crate::diag::{Diagnostic, Result};
use crate::effects::{is_dead, is_removable};
use crate::loc::Loc;
use crate::op_def::{Fold, OpName, Traits, constant_of};
use rustc_hash::FxHashSet;

/// What the driver does besides applying patterns.
#[derive(Clone, Debug)]
pub struct RewriteConfig {
    /// Fold by the ops' declarations, and put constants on the right of commutative ops.
    pub fold: bool,
    /// Erase ops that have no effects and no uses.
    pub erase_dead: bool,
    /// Rewrites after which patterns count as not converging; by default a hundred for each op.
    pub max_rewrites: Option<usize>,
}

impl Default for RewriteConfig {
    fn default() -> Self {
        RewriteConfig { fold: true, erase_dead: true, max_rewrites: None }
    }
}

impl RewriteConfig {
    /// Patterns alone: no folding, and nothing erased but what they erase.
    pub fn patterns_only() -> Self {
        RewriteConfig { fold: false, erase_dead: false, max_rewrites: None }
    }
}

/// What the driver did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Applications of each pattern, by its number in the set.
    pub applied: Vec<usize>,
    /// Ops replaced by what they fold to, and commutative ops whose operands were swapped.
    pub folded: usize,
    /// Dead ops erased.
    pub erased: usize,
    /// What patterns said, once each, and where.
    pub remarks: Vec<(Loc, String)>,
}

impl Outcome {
    pub fn changed(&self) -> bool {
        self.rewrites() > 0
    }
    /// The number of rewrites of all kinds.
    pub fn rewrites(&self) -> usize {
        self.folded + self.erased + self.applied.iter().sum::<usize>()
    }
}

/// Applies patterns to all ops below the root until none applies, visiting ops in program order first and then
/// what changed. The result depends on the program and on the order of the patterns alone.
///
/// Errors: a pattern's own, and patterns that do not converge.
pub fn apply_patterns(body: &mut Body, patterns: &PatternSet, config: &RewriteConfig) -> Result<Outcome> {
    let ops = body.walk();
    let limit = config.max_rewrites.unwrap_or(ops.len() * 100 + 1000);
    let mut work = Worklist::default();
    // The worklist is a stack: the first op goes on top.
    ops[1..].iter().rev().for_each(|&op| work.push(op));
    let mut driver = Driver {
        patterns,
        config,
        outcome: Outcome { applied: vec![0; patterns.len()], ..Outcome::default() },
        matching: Vec::new(),
    };
    let mut rewriter = Rewriter::new(body);
    while let Some(op) = work.pop() {
        if rewriter.body.is_erased(op) || rewriter.body.parent(op).is_none() {
            continue;
        }
        if limit::is_reached() {
            break;
        }
        let (before, loc) = (rewriter.body.op_capacity(), rewriter.body.loc(op));
        limit::before(rewriter.body, op);
        let earlier = driver.outcome.clone_if_limited();
        let changed = driver.visit(op, &mut rewriter)?;
        if let (true, Some(earlier)) = (changed, earlier) {
            limit::made(driver.kind_since(&earlier), loc);
        }
        // New ops are visited in the order of their making, before what was touched.
        rewriter.touched.drain(..).for_each(|op| work.push(op));
        let new: Vec<Op> = rewriter.body.ops_since(before).collect();
        new.into_iter().rev().for_each(|op| work.push(op));
        if changed && driver.outcome.rewrites() > limit {
            return Err(driver.diverges(limit, loc));
        }
        if changed && !rewriter.body.is_erased(op) {
            work.push(op);
        }
    }
    let mut said = FxHashSet::default();
    driver.outcome.remarks = rewriter.remarks.drain(..).filter(|remark| said.insert(remark.clone())).collect();
    Ok(driver.outcome)
}

/// Outcomes are compared only where rewrites are counted.
impl Outcome {
    fn clone_if_limited(&self) -> Option<Outcome> {
        limit::is_set().then(|| self.clone())
    }
}

struct Driver<'a> {
    patterns: &'a PatternSet,
    config: &'a RewriteConfig,
    outcome: Outcome,
    /// By [`OpName::id`]: the patterns to try.
    matching: Vec<Option<Vec<u32>>>,
}

impl Driver<'_> {
    /// One rewrite of `op`, if there is one; whether it was.
    fn visit(&mut self, op: Op, rewriter: &mut Rewriter) -> Result<bool> {
        if self.config.erase_dead && is_dead(rewriter.body, op) {
            rewriter.erase(op);
            self.outcome.erased += 1;
            return Ok(true);
        }
        if self.config.fold && (fold_op(op, rewriter)? || constant_to_the_right(op, rewriter)) {
            self.outcome.folded += 1;
            return Ok(true);
        }
        let name = rewriter.body.name(op);
        for at in 0..self.matching(name).len() {
            let number = self.matching(name)[at] as usize;
            if self.patterns.get(number).rewrite(op, rewriter)? {
                self.outcome.applied[number] += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
    fn matching(&mut self, name: OpName) -> &[u32] {
        let id = name.id() as usize;
        if self.matching.len() <= id {
            self.matching.resize(id + 1, None);
        }
        self.matching[id].get_or_insert_with(|| self.patterns.matching(name))
    }
    /// What the rewrite was that was made since then.
    fn kind_since(&self, earlier: &Outcome) -> String {
        let applied = self.outcome.applied.iter().zip(&earlier.applied).position(|(now, then)| now > then);
        match applied {
            Some(number) => format!("the pattern '{}'", self.patterns.get(number).name()),
            None if self.outcome.erased > earlier.erased => "erasing what is dead".into(),
            None => "folding".into(),
        }
    }
    fn diverges(&self, limit: usize, loc: crate::loc::Loc) -> Box<Diagnostic> {
        let mut busiest: Vec<(usize, &str)> =
            self.outcome.applied.iter().enumerate().map(|(i, &n)| (n, self.patterns.get(i).name())).collect();
        busiest.push((self.outcome.folded, "folding"));
        busiest.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let busiest: Vec<String> =
            busiest.iter().take(3).filter(|b| b.0 > 0).map(|(n, name)| format!("{name} ({n} times)")).collect();
        Diagnostic::error(
            loc,
            format!("rewriting does not come to an end: {limit} rewrites, most by {}", busiest.join(", ")),
        )
        .help("two patterns undo each other, or one applies to what it makes")
    }
}

fn fold_op(op: Op, rewriter: &mut Rewriter) -> Result<bool> {
    // An op that may do more than compute its result stays, and is not to be folded again.
    let removable = is_removable(rewriter.body, op);
    if !removable && rewriter.body.results(op).all(|r| !rewriter.body.has_uses(r)) {
        return Ok(false);
    }
    let value = match fold(rewriter.body, op)? {
        None => return Ok(false),
        Some(Fold::Value(value)) => value,
        Some(Fold::Attr(attr)) => {
            let ty = rewriter.body.ty(rewriter.body.result(op, 0));
            rewriter.constant(op, attr, ty)?
        }
    };
    rewriter.replace_uses(rewriter.body.result(op, 0), value);
    if removable {
        name_after(rewriter.body, op, value);
        rewriter.erase(op);
    }
    Ok(true)
}

/// Keeps the folded value's name on what it folds to, where that is an op's result without one.
fn name_after(body: &mut Body, op: Op, value: crate::body::Value) {
    let name = body.value_name(body.result(op, 0));
    if !name.is_empty() && body.value_name(value).is_empty() && body.defining_op(value).is_some() {
        body.set_value_name(value, name);
    }
}

fn constant_to_the_right(op: Op, rewriter: &mut Rewriter) -> bool {
    let body = &rewriter.body;
    let r = body.op_ref(op);
    if !r.has(Traits::COMMUTATIVE) || r.has(Traits::INDEXED) || body.operand_count(op) != 2 {
        return false;
    }
    let (x, y) = (body.operand(op, 0), body.operand(op, 1));
    if constant_of(body, x).is_none() || constant_of(body, y).is_some() {
        return false;
    }
    rewriter.body.set_operands(op, &[y, x]);
    rewriter.modified(op);
    true
}

/// A stack of ops, each in it once.
#[derive(Default)]
struct Worklist {
    stack: Vec<Op>,
    queued: Vec<bool>,
}

impl Worklist {
    fn push(&mut self, op: Op) {
        if self.queued.len() <= op.index() {
            self.queued.resize(op.index() + 1, false);
        }
        if !std::mem::replace(&mut self.queued[op.index()], true) {
            self.stack.push(op);
        }
    }
    fn pop(&mut self) -> Option<Op> {
        let op = self.stack.pop()?;
        self.queued[op.index()] = false;
        Some(op)
    }
}
