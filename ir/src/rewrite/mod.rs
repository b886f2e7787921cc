//! Rewriting: patterns anchored on operations, applied until none applies.
//!
//! ```
//! use rc_ir::rewrite::*;
//! # use rc_ir::{*, op_def::*};
//! # static NEG: OpDef = OpDef { operands: &[operand("x", ANY)], results: &[result("r", ANY)],
//! #     effects: Effects::Pure, infer: Some(infer_same), ..OpDef::new("rc.doc2.neg") };
//! # static FUNC: OpDef = OpDef { regions: Regions::Exactly(1), ..OpDef::new("rc.doc2.func") };
//! # rc_ir::op_def::register(&[&NEG, &FUNC]);
//! // -(-x) is x.
//! let mut patterns = PatternSet::new();
//! patterns.add_fn("neg-neg", Anchor::Op("rc.doc2.neg".into()), |op, rw| {
//!     let x = rw.body.operand(op, 0);
//!     match rw.body.defining_op(x).filter(|&d| rw.body.name(d) == "rc.doc2.neg") {
//!         Some(inner) => {
//!             let x = rw.body.operand(inner, 0);
//!             rw.replace(op, &[x]);
//!             Ok(true)
//!         }
//!         None => Ok(false),
//!     }
//! });
//! # let mut f = builder::new_function("rc.doc2.func", "f", &[Type::f32()], &[], Loc::UNKNOWN);
//! # let mut b = Builder::at_end(&mut f.body, f.entry);
//! # let x = b.op("rc.doc2.neg").operand(f.args[0]).value();
//! # let x = b.op("rc.doc2.neg").operand(x).value();
//! # b.op("rc.doc2.keep").operand(x).results(&[]).build();
//! let outcome = apply_patterns(&mut f.body, &patterns, &RewriteConfig::default()).unwrap();
//! assert!(outcome.changed() && outcome.erased == 1); // the inner negation has no uses left
//! ```

mod driver;
mod fold;
pub mod limit;
mod rewriter;
#[cfg(test)]
mod tests;

pub use driver::{Outcome, RewriteConfig, apply_patterns};
pub use fold::{Constants, fold};
pub use rewriter::Rewriter;

use crate::body::Op;
use crate::diag::Result;
use crate::op_def::{OpDef, OpName};
use std::borrow::Cow;
use std::sync::Arc;

/// Which operations a pattern is tried on.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Those of a name.
    Op(OpName),
    /// Registered ones whose declaration answers yes: `Anchor::Def(|def| def.interface::<Tileable>().is_some())`.
    Def(fn(&OpDef) -> bool),
    /// All.
    Any,
}

/// A rewrite of one operation.
pub trait Pattern: Send + Sync {
    /// The name under which diagnostics and statistics speak of it.
    fn name(&self) -> &str;
    fn anchor(&self) -> Anchor;
    /// Patterns of higher benefit are tried first; equal ones in the order in which they were added.
    fn benefit(&self) -> u32 {
        1
    }
    /// Rewrites `op` where it matches; whether it did. Nothing may have changed when it says no.
    fn rewrite(&self, op: Op, rewriter: &mut Rewriter) -> Result<bool>;
}

/// The rewrite of a [`Pattern`] that is just a function.
pub type RewriteFn = fn(Op, &mut Rewriter) -> Result<bool>;

/// The interface of ops with canonicalization patterns, each with its name:
/// `interfaces: &[&Canonicalize(&[("add-zero", add_zero)])]`.
pub struct Canonicalize(pub &'static [(&'static str, RewriteFn)]);

/// Patterns to apply together.
#[derive(Clone, Default)]
pub struct PatternSet {
    patterns: Vec<Arc<dyn Pattern>>,
}

struct FnPattern<F> {
    name: Cow<'static, str>,
    anchor: Anchor,
    rewrite: F,
}
impl<F: Fn(Op, &mut Rewriter) -> Result<bool> + Send + Sync> Pattern for FnPattern<F> {
    fn name(&self) -> &str {
        &self.name
    }
    fn anchor(&self) -> Anchor {
        self.anchor
    }
    fn rewrite(&self, op: Op, rewriter: &mut Rewriter) -> Result<bool> {
        (self.rewrite)(op, rewriter)
    }
}

impl PatternSet {
    pub fn new() -> PatternSet {
        Self::default()
    }
    pub fn add(&mut self, pattern: impl Pattern + 'static) -> &mut Self {
        self.patterns.push(Arc::new(pattern));
        self
    }
    /// Adds a pattern that other sets have, too.
    pub fn add_shared(&mut self, pattern: Arc<dyn Pattern>) -> &mut Self {
        self.patterns.push(pattern);
        self
    }
    /// Adds a pattern of benefit 1 made of a function.
    pub fn add_fn(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        anchor: Anchor,
        rewrite: impl Fn(Op, &mut Rewriter) -> Result<bool> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add(FnPattern { name: name.into(), anchor, rewrite })
    }
    /// The [`Canonicalize`] patterns of all registered ops, ordered by op name.
    pub fn canonicalization() -> PatternSet {
        let mut set = PatternSet::new();
        for def in crate::op_def::registered() {
            for &(name, rewrite) in def.interface::<Canonicalize>().map_or(&[][..], |c| c.0) {
                set.add_fn(name, Anchor::Op(OpName::new(def.name)), rewrite);
            }
        }
        set
    }
    pub fn len(&self) -> usize {
        self.patterns.len()
    }
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
    pub(crate) fn get(&self, i: usize) -> &dyn Pattern {
        &*self.patterns[i]
    }
    /// The numbers of the patterns to try on ops named `name`, in order.
    pub(crate) fn matching(&self, name: OpName) -> Vec<u32> {
        let applies = |anchor: Anchor| match anchor {
            Anchor::Op(n) => n == name,
            Anchor::Def(check) => name.def().is_some_and(check),
            Anchor::Any => true,
        };
        let mut found: Vec<u32> =
            (0..self.patterns.len() as u32).filter(|&i| applies(self.get(i as usize).anchor())).collect();
        found.sort_by_key(|&i| std::cmp::Reverse(self.get(i as usize).benefit()));
        found
    }
}
