//! An operation seen together with its body.

use super::{Block, Body, Op, Region, Value};
use crate::attr::Attr;
use crate::diag::Diagnostic;
use crate::loc::Loc;
use crate::op_def::{OpDef, OpName, Traits};
use crate::types::Type;
use smallvec::SmallVec;

/// An operation with its body: what verifiers, folders and readers take.
#[derive(Clone, Copy)]
pub struct OpRef<'a> {
    pub body: &'a Body,
    pub op: Op,
}

impl<'a> OpRef<'a> {
    pub fn name(self) -> OpName {
        self.body.name(self.op)
    }
    pub fn def(self) -> Option<&'static OpDef> {
        self.name().def()
    }
    pub fn has(self, traits: Traits) -> bool {
        self.def().is_some_and(|d| d.has(traits))
    }
    pub fn is(self, name: &str) -> bool {
        self.name() == name
    }
    pub fn loc(self) -> Loc {
        self.body.loc(self.op)
    }
    /// An attribute, or its declared default.
    pub fn attr(self, name: &str) -> Option<Attr> {
        self.body.attr(self.op, name).or_else(|| self.def()?.default_of(name))
    }
    pub fn int(self, name: &str) -> Option<i64> {
        self.attr(name)?.as_int()
    }
    pub fn ints(self, name: &str) -> Option<Vec<i64>> {
        self.attr(name)?.as_ints()
    }
    pub fn str(self, name: &str) -> Option<&'static str> {
        self.attr(name)?.as_str()
    }
    pub fn bool(self, name: &str) -> bool {
        match self.attr(name) {
            Some(a) => a.as_bool().unwrap_or(true),
            None => false,
        }
    }
    #[track_caller]
    pub fn operand(self, i: usize) -> Value {
        self.body.operand(self.op, i)
    }
    pub fn operands(self) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone + 'a {
        self.body.operands(self.op)
    }
    /// The operands of the group named in the declaration; empty where there is no such group.
    pub fn group(self, name: &str) -> SmallVec<[Value; 4]> {
        let range = self.group_range(name).unwrap_or(0..0);
        self.operands().skip(range.start).take(range.len()).collect()
    }
    /// The operand numbers of a declared group.
    pub fn group_range(self, name: &str) -> Option<std::ops::Range<usize>> {
        let def = self.def()?;
        let index = def.operands.iter().position(|o| o.name == name)?;
        let segments = self.ints("operandSegmentSizes");
        def.operand_groups(self.body.operand_count(self.op), segments.as_deref())?.get(index).cloned()
    }
    pub fn operand_types(self) -> SmallVec<[Type; 4]> {
        self.operands().map(|v| self.body.ty(v)).collect()
    }
    #[track_caller]
    pub fn result(self, i: usize) -> Value {
        self.body.result(self.op, i)
    }
    pub fn results(self) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone + 'a {
        self.body.results(self.op)
    }
    pub fn result_types(self) -> SmallVec<[Type; 2]> {
        self.results().map(|v| self.body.ty(v)).collect()
    }
    pub fn region(self, i: usize) -> Option<Region> {
        self.body.regions(self.op).get(i).copied()
    }
    /// The first block of region `i`.
    pub fn entry(self, i: usize) -> Option<Block> {
        self.region(i).and_then(|r| self.body.first_block(r))
    }
    /// An error about this operation, to be returned: `'core.add' op …`.
    pub fn error(self, message: impl std::fmt::Display) -> Box<Diagnostic> {
        Diagnostic::error(self.loc(), format!("'{}' op {message}", self.name().pretty()))
    }
    /// `not supported: core.x …`.
    pub fn unsupported(self, what: impl std::fmt::Display) -> Box<Diagnostic> {
        Diagnostic::unsupported(self.loc(), format!("'{}' {what}", self.name().pretty()))
    }
}
