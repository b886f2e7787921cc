//! Control flow: loops and conditionals from closures, and plain branches.

use super::{Block, Builder, ICmp, Type, Value};
use melior::ir::{Attribute, ValueLike};

/// What LLVM does with a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unroll {
    /// Leaves it as it is.
    #[default]
    No,
    /// Unrolls it wholly; its number of trips must be a constant.
    Full,
    /// Unrolls it by a factor.
    By(u32),
}

impl<'m> Builder<'m> {
    /// Branches to a block with its arguments.
    pub fn br(&self, target: Block<'m>, arguments: &[Value<'m>]) {
        self.op("llvm.br", arguments, &[], &[], &[target]);
    }

    /// Branches to `yes` where the `i1` holds, else to `no`.
    pub fn cond_br(
        &self,
        condition: Value<'m>,
        (yes, yes_arguments): (Block<'m>, &[Value<'m>]),
        (no, no_arguments): (Block<'m>, &[Value<'m>]),
    ) {
        let operands = [&[condition], yes_arguments, no_arguments].concat();
        let sizes = self.i32_array(&[1, yes_arguments.len() as i32, no_arguments.len() as i32]);
        self.op("llvm.cond_br", &operands, &[], &[("operandSegmentSizes", sizes)], &[yes, no]);
    }

    /// Returns, with a value where the function has one.
    pub fn ret(&self, value: Option<Value<'m>>) {
        self.op("llvm.return", value.as_slice(), &[], &[], &[]);
    }

    /// Ends a block that is never reached.
    pub fn unreachable(&self) {
        self.op("llvm.unreachable", &[], &[], &[], &[]);
    }

    /// `for i in (lower..upper).step_by(step)` with values carried from trip to trip. Bounds are signed integers of one
    /// type and `step` is positive. `body` gets the index and the carried values and returns the next ones; the loop's
    /// values are the last ones.
    pub fn for_loop(
        &self,
        (lower, upper, step): (Value<'m>, Value<'m>, Value<'m>),
        init: &[Value<'m>],
        unroll: Unroll,
        body: impl FnOnce(Value<'m>, &[Value<'m>]) -> Vec<Value<'m>>,
    ) -> Vec<Value<'m>> {
        let carried = types(init);
        let header = self.new_block(&[&[lower.r#type()], &*carried].concat());
        let inside = self.new_block(&[]);
        let exit = self.new_block(&carried);
        self.br(header, &[&[lower], init].concat());

        self.position_at_end(header);
        let index = self.block_arg(header, 0);
        let values = self.block_args(header, 1);
        self.cond_br(self.icmp(ICmp::Slt, index, upper), (inside, &[]), (exit, &values));

        self.position_at_end(inside);
        let next = body(index, &values);
        let advanced = self.add_nsw(index, step);
        let annotation = self.loop_annotation(unroll);
        let attributes = [("loop_annotation", annotation)];
        self.op("llvm.br", &[&[advanced], &*next].concat(), &[], &attributes, &[header]);

        self.position_at_end(exit);
        self.block_args(exit, 0)
    }

    /// `while`: `condition` gets the carried values and returns an `i1`; `body` returns the next values.
    pub fn while_loop(
        &self,
        init: &[Value<'m>],
        condition: impl FnOnce(&[Value<'m>]) -> Value<'m>,
        body: impl FnOnce(&[Value<'m>]) -> Vec<Value<'m>>,
    ) -> Vec<Value<'m>> {
        let carried = types(init);
        let header = self.new_block(&carried);
        let inside = self.new_block(&[]);
        let exit = self.new_block(&carried);
        self.br(header, init);

        self.position_at_end(header);
        let values = self.block_args(header, 0);
        let goes_on = condition(&values);
        self.cond_br(goes_on, (inside, &[]), (exit, &values));

        self.position_at_end(inside);
        let next = body(&values);
        self.br(header, &next);

        self.position_at_end(exit);
        self.block_args(exit, 0)
    }

    /// Runs `then` where the `i1` holds.
    pub fn if_then(&self, condition: Value<'m>, then: impl FnOnce()) {
        let inside = self.new_block(&[]);
        let exit = self.new_block(&[]);
        self.cond_br(condition, (inside, &[]), (exit, &[]));
        self.position_at_end(inside);
        then();
        self.br(exit, &[]);
        self.position_at_end(exit);
    }

    /// The values of `then` where the `i1` holds, else those of `otherwise`; both have the types `results`.
    pub fn if_else(
        &self,
        condition: Value<'m>,
        results: &[Type<'m>],
        then: impl FnOnce() -> Vec<Value<'m>>,
        otherwise: impl FnOnce() -> Vec<Value<'m>>,
    ) -> Vec<Value<'m>> {
        let yes = self.new_block(&[]);
        let no = self.new_block(&[]);
        let exit = self.new_block(results);
        self.cond_br(condition, (yes, &[]), (no, &[]));
        self.position_at_end(yes);
        let values = then();
        self.br(exit, &values);
        self.position_at_end(no);
        let values = otherwise();
        self.br(exit, &values);
        self.position_at_end(exit);
        self.block_args(exit, 0)
    }

    /// A block's arguments from `first` on.
    fn block_args(&self, block: Block<'m>, first: usize) -> Vec<Value<'m>> {
        use melior::ir::BlockLike;
        (first..block.argument_count()).map(|index| self.block_arg(block, index)).collect()
    }

    fn loop_annotation(&self, unroll: Unroll) -> Attribute<'m> {
        let unroll = match unroll {
            Unroll::No => "disable = true".into(),
            Unroll::Full => "full = true".into(),
            Unroll::By(factor) => format!("count = {factor} : i32"),
        };
        // The schedule has vectorized what it wants vectorized.
        self.parse_attribute(&format!(
            "#llvm.loop_annotation<vectorize = <disable = true>, unroll = <{unroll}>, mustProgress = true>"
        ))
    }
}

fn types<'m>(values: &[Value<'m>]) -> Vec<Type<'m>> {
    values.iter().map(|value| value.r#type()).collect()
}
