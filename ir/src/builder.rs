//! Building operations: an insertion point, a location, and one fluent call for any declared op.

use crate::attr::Attr;
use crate::body::{Block, Body, Op, OpState, Region, Value};
use crate::diag::{Diagnostic, Result};
use crate::intern::Name;
use crate::loc::Loc;
use crate::module::Module;
use crate::op_def::{Arity, InferArgs, OpName};
use crate::types::Type;
use smallvec::SmallVec;

/// Where new operations go.
#[derive(Clone, Copy, Debug)]
pub enum InsertPoint {
    End(Block),
    Before(Op),
    After(Op),
}

/// Creates operations at an insertion point of a body.
pub struct Builder<'a> {
    pub body: &'a mut Body,
    pub at: InsertPoint,
    pub loc: Loc,
}

/// An operation under construction; [`OpBuilder::build`] makes it.
pub struct OpBuilder<'b, 'a> {
    builder: &'b mut Builder<'a>,
    state: OpState,
    segments: Vec<i64>,
    inferred: bool,
}

impl<'a> Builder<'a> {
    pub fn at_end(body: &'a mut Body, block: Block) -> Builder<'a> {
        Builder { body, at: InsertPoint::End(block), loc: Loc::UNKNOWN }
    }
    /// Before `op`, with its location.
    pub fn before(body: &'a mut Body, op: Op) -> Builder<'a> {
        let loc = body.loc(op);
        Builder { body, at: InsertPoint::Before(op), loc }
    }
    /// After `op`, with its location.
    pub fn after(body: &'a mut Body, op: Op) -> Builder<'a> {
        let loc = body.loc(op);
        Builder { body, at: InsertPoint::After(op), loc }
    }
    /// Starts an operation: `b.op("rc.core.add").operands(&[x, y]).build()`.
    pub fn op(&mut self, name: impl Into<OpName>) -> OpBuilder<'_, 'a> {
        let state = OpState::new(name, self.loc);
        OpBuilder { builder: self, state, segments: Vec::new(), inferred: true }
    }
    /// Runs `f` with the insertion point at the end of `block`, then returns to where it was.
    pub fn within<T>(&mut self, block: Block, f: impl FnOnce(&mut Builder<'_>) -> T) -> T {
        let mut inner = Builder { body: self.body, at: InsertPoint::End(block), loc: self.loc };
        f(&mut inner)
    }
    /// Puts a detached op at the insertion point; after it, for [`InsertPoint::After`], so that order is kept.
    pub fn insert(&mut self, op: Op) {
        match self.at {
            InsertPoint::End(block) => self.body.append(block, op),
            InsertPoint::Before(before) => self.body.insert_before(before, op),
            InsertPoint::After(after) => {
                self.body.insert_after(after, op);
                self.at = InsertPoint::After(op);
            }
        }
    }
    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.body.ty(value)
    }
    /// Names a value for printing, and returns it.
    pub fn name(&mut self, value: Value, name: &str) -> Value {
        self.body.set_value_name(value, Name::new(name));
        value
    }
}

impl<'b, 'a> OpBuilder<'b, 'a> {
    pub fn operands(mut self, values: &[Value]) -> Self {
        self.state.operands.extend_from_slice(values);
        self.segments.push(values.len() as i64);
        self
    }
    pub fn operand(self, value: Value) -> Self {
        self.operands(&[value])
    }
    pub fn attr(mut self, name: &str, value: Attr) -> Self {
        self.state.attrs = self.state.attrs.with(Name::new(name), Some(value));
        self
    }
    /// Sets an attribute where there is a value.
    pub fn maybe_attr(self, name: &str, value: Option<Attr>) -> Self {
        match value {
            Some(value) => self.attr(name, value),
            None => self,
        }
    }
    /// A dictionary, instead of the attributes set so far.
    pub fn attrs(mut self, dict: Attr) -> Self {
        self.state.attrs = dict;
        self
    }
    /// The result types, where the declaration does not infer them.
    pub fn results(mut self, types: &[Type]) -> Self {
        self.state.results = types.into();
        self.inferred = false;
        self
    }
    pub fn result(self, ty: Type) -> Self {
        self.results(&[ty])
    }
    pub fn successors(mut self, blocks: &[Block]) -> Self {
        self.state.successors = blocks.into();
        self
    }
    /// This many empty regions.
    pub fn regions(mut self, n: usize) -> Self {
        self.state.regions = n;
        self
    }
    pub fn loc(mut self, loc: Loc) -> Self {
        self.state.loc = loc;
        self
    }

    /// Makes the operation, or says why its operands do not fit.
    pub fn try_build(self) -> Result<Op> {
        self.finish().map(|(op, _)| op)
    }
    /// As [`OpBuilder::try_build`], giving the one result.
    pub fn try_value(self) -> Result<Value> {
        self.finish().map(|(op, body)| body.result(op, 0))
    }
    fn finish(mut self) -> Result<(Op, &'b mut Body)> {
        let loc = self.state.loc;
        if let Some(def) = self.state.name.def() {
            if def.has_segments() && self.state.attrs.get("operandSegmentSizes").is_none() {
                let sizes = self.segment_sizes(def.operands.len());
                self.state.attrs = self.state.attrs.with(Name::new("operandSegmentSizes"), Some(Attr::i32s(&sizes)));
            }
            if let (true, Some(infer)) = (self.inferred, def.infer) {
                let operands: SmallVec<[Type; 4]> =
                    self.state.operands.iter().map(|&v| self.builder.body.ty(v)).collect();
                let args = InferArgs { operands: &operands, attrs: self.state.attrs, def };
                self.state.results = infer(&args)
                    .map_err(|why| Diagnostic::error(loc, format!("'{}' op {why}", self.state.name.pretty())))?;
            } else if self.inferred && def.results.iter().any(|r| r.arity == Arity::One) {
                return Err(Diagnostic::error(
                    loc,
                    format!("'{}' op needs its result types given", self.state.name.pretty()),
                ));
            }
        }
        let op = self.builder.body.create(self.state);
        self.builder.insert(op);
        Ok((op, self.builder.body))
    }
    /// One size for each declared group: `operands` was called once for each, in order.
    fn segment_sizes(&self, groups: usize) -> Vec<i64> {
        let mut sizes = self.segments.clone();
        sizes.resize(groups, 0);
        sizes
    }
    /// Makes the operation.
    ///
    /// # Panics
    /// If the operands do not fit the declaration; use [`OpBuilder::try_build`] on input that is not known to be right.
    #[track_caller]
    pub fn build(self) -> Op {
        match self.try_build() {
            Ok(op) => op,
            Err(d) => panic!("{}", d.render()),
        }
    }
    /// Makes the operation and gives its one result.
    #[track_caller]
    pub fn value(self) -> Value {
        match self.try_value() {
            Ok(value) => value,
            Err(d) => panic!("{}", d.render()),
        }
    }
}

/// A function's pieces, just made.
pub struct NewFunc {
    pub body: Body,
    pub region: Region,
    pub entry: Block,
    pub args: Vec<Value>,
}

/// `func.func @name(inputs) -> results` (or another function-like op) with an empty entry block.
pub fn new_function(op: impl Into<OpName>, name: &str, inputs: &[Type], results: &[Type], loc: Loc) -> NewFunc {
    let mut state = OpState::new(op, loc);
    state.regions = 1;
    state.attrs = Attr::dict([
        (Name::new("sym_name"), Attr::str(name)),
        (Name::new("function_type"), Attr::ty(Type::function(inputs, results))),
    ]);
    let mut body = Body::new(state);
    let region = body.regions(body.root())[0];
    let entry = body.add_block(region, inputs);
    let args = body.block_args(entry).collect();
    NewFunc { body, region, entry, args }
}

impl Module {
    /// Appends a top-level operation.
    pub fn push(&mut self, body: Body) -> &mut Body {
        self.bodies.push(body);
        self.bodies.last_mut().expect("just pushed")
    }
}
