//! What each operation of a block is to fusion: found out once, in program order, from what its operands' makers are. Rules look it up.

use super::classify::{Class, classify, is_cheap};
use super::is_view;
use super::reads::reduced_dims;
use crate::work::is_function;
use rc_dialects::func::given_inputs;
use rc_dialects::op;
use rc_ir::{Block, Body, Dim, Op, Traits, Value};

/// The shape that rows are reduced from, and along which dimensions.
pub type Row = (Vec<Dim>, Vec<usize>);

/// What is known of an operation.
#[derive(Clone)]
pub struct Fact {
    pub class: Class,
    /// Whether doing it again costs less than storing its result.
    pub cheap: bool,
    /// Its operations in quarters: arithmetic on integers (places, masks), and what moves or repeats elements, counts as a quarter of an operation.
    pub quarters: usize,
    /// Whether it is computed from a product, element by element.
    pub follows_product: bool,
    /// Whether it only moves elements of what the function's initializer computed: of a packed weight, perhaps.
    pub moves_constant: bool,
    /// Whether it is an elementary function, or computed from one element by element by it alone.
    pub function: bool,
    /// The reduction that it is computed from element by element, with a result of its shape.
    finishes: Option<Op>,
    /// Whether it is made of windows, element by element.
    of_windows: bool,
}

/// The facts of a block, by operation.
pub struct Ops(Vec<Option<Fact>>);

impl Ops {
    pub fn of(body: &Body, block: Block) -> Ops {
        let mut ops = Ops(Vec::new());
        ops.0.resize_with(body.op_capacity(), || None);
        for op in body.ops(block) {
            let fact = ops.fact(body, op);
            ops.0[op.index()] = Some(fact);
        }
        ops
    }

    /// Of a copy, what is known of the operation.
    pub fn add_copy(&mut self, op: Op, copy: Op) {
        let fact = self.get(op).cloned();
        self.0.resize_with(self.0.len().max(copy.index() + 1), || None);
        self.0[copy.index()] = fact;
    }

    /// Of an operation of the block.
    pub fn get(&self, op: Op) -> Option<&Fact> {
        self.0.get(op.index())?.as_ref()
    }

    /// The rows of the reduction that it finishes element by element. Windows are no rows that others reduce.
    pub fn finished_row(&self, body: &Body, op: Op) -> Option<Row> {
        let reduce = self.get(op)?.finishes?;
        let of_windows = body.operands(reduce).any(|v| self.maker(body, v).is_some_and(|(_, fact)| fact.of_windows));
        if of_windows { None } else { row_of(body, reduce) }
    }

    fn maker(&self, body: &Body, value: Value) -> Option<(Op, &Fact)> {
        let op = body.defining_op(value)?;
        Some((op, self.get(op)?))
    }

    fn fact(&self, body: &Body, op: Op) -> Fact {
        let at = body.op_ref(op);
        let class = classify(at);
        let float = body.results(op).next().is_some_and(|v| body.ty(v).elem().is_float());
        let makers = || body.operands(op).filter_map(|v| self.maker(body, v));
        let moves = matches!(class, Class::Pointwise | Class::Reindex);
        Fact {
            class,
            cheap: is_cheap(at),
            quarters: if float && class != Class::Reindex { 4 } else { 1 },
            follows_product: makers().any(|(from, fact)| match fact.class {
                Class::Contract => true,
                class => fact.follows_product && (class == Class::Pointwise || is_view(body.op_ref(from))),
            }),
            moves_constant: class == Class::Reindex && self.is_constant(body, op),
            function: self.computes_function(body, op),
            finishes: self.finishes(body, op),
            of_windows: at.is(op::core::WINDOW) || moves && makers().any(|(_, fact)| fact.of_windows),
        }
    }

    fn computes_function(&self, body: &Body, op: Op) -> bool {
        let elementwise = |op: Op| body.op_ref(op).has(Traits::ELEMENTWISE);
        let alone = |from: Op| body.results(from).map(|v| body.uses(v).count()).sum::<usize>() == 1;
        let inner =
            || body.operands(op).filter_map(|v| self.maker(body, v)).any(|(from, fact)| fact.function && alone(from));
        elementwise(op) && (is_function(body.op_ref(op)) || inner())
    }

    fn is_constant(&self, body: &Body, op: Op) -> bool {
        let value = body.operand(op, 0);
        if let Some((_, fact)) = self.maker(body, value) {
            return fact.moves_constant;
        }
        let given = given_inputs(body.op_ref(body.root()));
        let mut args = body.entry().into_iter().flat_map(|entry| body.block_args(entry));
        args.position(|arg| arg == value).is_some_and(|i| i >= given)
    }

    /// A reduction among its operands' makers, or one that those of its shape are computed from.
    fn finishes(&self, body: &Body, op: Op) -> Option<Op> {
        let shape = |op: Op| body.results(op).next().map(|v| body.ty(v).shape());
        let own = shape(op)?;
        let makers = body.operands(op).filter_map(|v| self.maker(body, v));
        let alike = |from: &(Op, &Fact)| shape(from.0).is_some_and(|other| other == own);
        let makers: Vec<(Op, &Fact)> = makers.filter(alike).collect();
        let reduces = makers.iter().find(|(_, fact)| fact.class == Class::Reduce).map(|(from, _)| *from);
        let pointwise = makers.iter().rev().filter(|(_, fact)| fact.class == Class::Pointwise);
        reduces.or_else(|| pointwise.filter_map(|(_, fact)| fact.finishes).next())
    }
}

/// The rows that a reduction reduces.
pub fn row_of(body: &Body, reduce: Op) -> Option<Row> {
    let shape = body.ty(body.operand(reduce, 0)).shape().to_vec();
    Some((shape, reduced_dims(body.op_ref(reduce))?))
}
