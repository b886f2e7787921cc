//! The verifier: what every pass may rely on. It checks the arena's links, blocks and terminators,
//! dominance, and each registered operation against its declaration. Operations that are not
//! registered are checked for structure only.

mod declared;
#[cfg(test)]
mod tests;

use crate::body::{Block, Body, Op, Region, Value, ValueDef};
use crate::diag::Diagnostic;
use crate::dominance::Dominators;
use crate::intern::Name;
use crate::loc::Loc;
use crate::module::Module;
use crate::op_def::{OpDef, Traits};
use declared::Memo;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// All that is wrong with a module, in program order; empty for a valid one. Bodies are checked in parallel.
pub fn verify_module(module: &Module) -> Vec<Diagnostic> {
    let mut found: Vec<Vec<Diagnostic>> = module.bodies.par_iter().map_init(Memo::default, verify_with).collect();
    let mut seen: FxHashMap<Name, Loc> = FxHashMap::default();
    for (body, errors) in module.bodies.iter().zip(&mut found) {
        let Some(symbol) = body.symbol() else { continue };
        let loc = body.loc(body.root());
        if let Some(&first) = seen.get(&symbol) {
            errors.push(redefined(symbol, loc, first));
        } else {
            seen.insert(symbol, loc);
        }
    }
    found.into_iter().flatten().collect()
}

/// All that is wrong with one top-level operation, in program order.
pub fn verify_body(body: &Body) -> Vec<Diagnostic> {
    verify_with(&mut Memo::default(), body)
}

fn verify_with(memo: &mut Memo, body: &Body) -> Vec<Diagnostic> {
    if let Err((loc, message)) = body.check_links() {
        let help = "the program that built this IR left it inconsistent; this is a bug in it";
        return vec![*Diagnostic::error(loc, message).help(help)];
    }
    let mut verifier = Verifier {
        body,
        position: vec![0; body.op_capacity()],
        next: 1,
        errors: Vec::new(),
        memo,
        dominators: FxHashMap::default(),
        symbols: FxHashMap::default(),
    };
    verifier.op(body.root(), Traits::empty());
    verifier.errors
}

fn redefined(symbol: Name, loc: Loc, first: Loc) -> Diagnostic {
    let error = Diagnostic::error(loc, format!("the symbol '@{symbol}' is defined more than once"));
    *error.note(first, "defined here first")
}

struct Verifier<'a, 'm> {
    body: &'a Body,
    /// By op: its number in a preorder walk, 0 where the walk has not come to it yet.
    position: Vec<u32>,
    next: u32,
    errors: Vec<Diagnostic>,
    memo: &'m mut Memo,
    /// Of regions with several blocks, made when first asked for.
    dominators: FxHashMap<Region, Dominators>,
    /// Symbols nested in the body, by the region that they are in.
    symbols: FxHashMap<(Region, Name), Loc>,
}

impl Verifier<'_, '_> {
    fn error(&mut self, op: Op, message: impl std::fmt::Display) {
        self.errors.push(*self.body.op_ref(op).error(message));
    }

    /// Checks `op`, which is in a region of an op with the traits `owner`, and all in its regions.
    fn op(&mut self, op: Op, owner: Traits) {
        self.position[op.index()] = self.next;
        self.next += 1;
        let body = self.body;
        for (i, value) in body.operands(op).enumerate() {
            if !self.is_visible(value, op, owner) {
                self.not_dominated(op, i, value);
            }
        }
        let def = body.name(op).def();
        let fits = def.is_none_or(|def| self.declared(op, def));
        if body.has_extra(op) {
            self.successors(op, &body.successors(op));
            for (i, region) in body.regions(op).into_iter().enumerate() {
                self.region(op, def, i, region);
            }
        }
        // After the regions, so that a hook may rely on what is in them being checked.
        if let Some(verify) = def.and_then(|d| d.verify)
            && fits
            && let Err(error) = verify(body.op_ref(op))
        {
            self.errors.push(*error);
        }
    }

    fn region(&mut self, op: Op, def: Option<&OpDef>, number: usize, region: Region) {
        let body = self.body;
        let traits = def.map_or(Traits::empty(), |d| d.traits);
        let blocks = body.blocks(region);
        let declaration = blocks.len() == 0 && traits.contains(Traits::FUNCTION);
        if traits.contains(Traits::SINGLE_BLOCK) && blocks.len() != 1 && !declaration {
            self.error(op, format_args!("expects one block in region {number}, got {}", blocks.len()));
        }
        let several = blocks.len() > 1;
        let optional = traits.intersects(Traits::IMPLICIT_TERMINATOR | Traits::GRAPH_REGION);
        for block in blocks {
            for inner in body.ops(block) {
                self.op(inner, traits);
            }
            self.block_end(op, block, several, def.is_none() || optional);
        }
    }

    /// Terminators end blocks, and nothing else has an op that ends one.
    fn block_end(&mut self, owner: Op, block: Block, several: bool, optional: bool) {
        let body = self.body;
        let last = body.last_op(block);
        for op in body.ops(block).filter(|&op| Some(op) != last) {
            let branches = body.has_extra(op) && !body.successors(op).is_empty();
            if branches || body.op_ref(op).has(Traits::TERMINATOR) {
                self.error(op, "must be the last operation of its block");
            }
        }
        let ends = last.is_some_and(|op| body.op_ref(op).def().is_none_or(|d| d.has(Traits::TERMINATOR)));
        if ends || (optional && !several) {
            return;
        }
        match last {
            Some(op) if several => {
                self.error(op, "ends a block, but is no terminator; a block of several ends with a branch or a return")
            }
            Some(op) => {
                self.error(op, format_args!("ends a block of '{}', but is no terminator", body.name(owner).pretty()))
            }
            None => self.error(owner, "has an empty block; expects at least a terminator"),
        }
    }

    fn successors(&mut self, op: Op, successors: &[Block]) {
        let body = self.body;
        let region = body.parent(op).and_then(|b| body.block_region(b));
        for &block in successors {
            let own = body.block_region(block);
            if own.is_none() || own != region {
                self.error(op, "branches to a block outside its region");
            } else if own.and_then(|r| body.first_block(r)) == Some(block) {
                self.error(op, "branches to the entry block of its region, which has no predecessors");
            }
        }
    }

    /// Whether `value` is defined before `user` on every path, and no isolated region hides it.
    /// `owner` has the traits of the op around `user`.
    fn is_visible(&mut self, value: Value, user: Op, owner: Traits) -> bool {
        let body = self.body;
        let (Some(block), Some(parent)) = (body.defining_block(value), body.parent(user)) else { return false };
        if block == parent {
            return match body.def(value) {
                ValueDef::Argument(..) => true,
                ValueDef::Result(def, _) => {
                    let ordered = self.position[def.index()] != 0 && def != user;
                    ordered || owner.contains(Traits::GRAPH_REGION)
                }
            };
        }
        let Some(region) = body.block_region(block) else { return false };
        // The op of the defining region in which the user is, with no isolated op on the way out.
        let mut holder = user;
        while body.parent(holder).and_then(|b| body.block_region(b)) != Some(region) {
            match body.parent_op(holder) {
                Some(outer) if !body.op_ref(outer).has(Traits::ISOLATED) => holder = outer,
                _ => return false,
            }
        }
        let graph = body.op_ref(body.region_owner(region)).has(Traits::GRAPH_REGION);
        if body.parent(holder) == Some(block) {
            return match body.def(value) {
                ValueDef::Argument(..) => true,
                ValueDef::Result(def, _) => graph || (self.position[def.index()] != 0 && def != holder),
            };
        }
        let dominators = self.dominators.entry(region).or_insert_with(|| Dominators::new(body, region));
        body.parent(holder).is_some_and(|b| dominators.dominates(block, b))
    }

    fn not_dominated(&mut self, op: Op, i: usize, value: Value) {
        let body = self.body;
        let error = match body.def(value) {
            ValueDef::Result(def, _) if body.parent(def).is_none() => body.op_ref(op).error(format_args!(
                "uses as operand {i} a result of '{}', which is nowhere in the program",
                body.name(def).pretty()
            )),
            ValueDef::Result(def, _) => body
                .op_ref(op)
                .error(format_args!("uses as operand {i} a value that is not defined before it on every path"))
                .note(body.loc(def), "defined here"),
            ValueDef::Argument(..) => {
                body.op_ref(op).error(format_args!("uses as operand {i} a block argument that it cannot see"))
            }
        };
        let isolated = std::iter::successors(body.parent_op(op), |&o| body.parent_op(o))
            .take_while(|&o| body.defining_block(value).and_then(|b| body.block_owner(b)) != Some(o))
            .find(|&o| body.op_ref(o).has(Traits::ISOLATED));
        let error = match isolated {
            Some(o) => error.note(body.loc(o), format!("'{}' sees no values from outside", body.name(o).pretty())),
            None => error,
        };
        self.errors.push(*error);
    }
}
