//! The region of a nest, made ready to run on blocks of points: every scalar of it is an array, one element a point.

use rc_dialects::loop_::Nest;
use rc_dialects::op;
use rc_ir::{Dim, OpRef, Result, Traits, Value as Name};

use super::elementwise::Elementwise;
use super::exec::{Frame, Symbols};
use super::space::{Access, Block, Space, eval};
use super::value::{Array, Value};

/// A region as a list of steps. Only what the wanted values need is in it.
pub(crate) struct Region<'a> {
    steps: Vec<(OpRef<'a>, Step)>,
    inputs: Vec<Input>,
    wanted: Vec<Name>,
}

enum Step {
    Elementwise(Elementwise),
    Constant(Value),
    Index(Dim),
    Gather { source: Array, access: Access },
}

/// An operand of the nest, read into a region argument.
struct Input {
    argument: Name,
    from: Array,
    access: Access,
}

/// Which iterators (as bits) a value of the region depends on.
pub(crate) fn iterators(op: OpRef, nest: &Nest, value: Name) -> u64 {
    let of_dims = |dims: &[Dim]| {
        let mut bits = 0;
        for dim in dims {
            dim.for_each_symbol(&mut |name| bits |= nest.iter(name).map_or(0, |i| 1u64 << i));
        }
        bits
    };
    let body = op.body;
    match body.def(value) {
        rc_ir::ValueDef::Argument(block, i) if Some(block) == op.entry(0) => of_dims(nest.maps[i]),
        rc_ir::ValueDef::Argument(..) => 0,
        rc_ir::ValueDef::Result(def, _) if body.parent_op(def) != Some(op.op) => 0,
        rc_ir::ValueDef::Result(def, _) => {
            let def = body.op_ref(def);
            let own = ["expr", "at"].iter().filter_map(|n| def.attr(n)?.as_shape()).map(of_dims).fold(0, |a, b| a | b);
            def.operands().fold(own, |bits, v| bits | iterators(op, nest, v))
        }
    }
}

impl<'a> Region<'a> {
    /// Prepares the nest `op`'s region to give the values `wanted` over `space`.
    pub fn new(frame: &Frame, op: OpRef<'a>, nest: &Nest, space: &Space, wanted: Vec<Name>) -> Result<Region<'a>> {
        let body = op.body;
        let entry = op.entry(0).ok_or_else(|| op.error("has no region"))?;
        let ops: Vec<_> = body.ops(entry).collect();
        let mut needed = vec![false; body.value_capacity()];
        wanted.iter().for_each(|v| needed[v.index()] = true);
        let mut steps = Vec::new();
        for &inner in ops.iter().rev() {
            let inner = body.op_ref(inner);
            if inner.has(Traits::TERMINATOR) || !inner.results().any(|r| needed[r.index()]) {
                continue;
            }
            inner.operands().for_each(|v| needed[v.index()] = true);
            steps.push((inner, Step::new(frame, inner, space)?));
        }
        steps.reverse();
        let mut inputs = Vec::new();
        for (i, argument) in body.block_args(entry).enumerate().filter(|(_, a)| needed[a.index()]) {
            let from = frame.array(op, i)?.ready(space.points());
            let access =
                Access::new(nest.maps[i], &from.shape, space, &frame.symbols).zero_outside(nest.zero_outside[i]);
            inputs.push(Input { argument, from, access });
        }
        Ok(Region { steps, inputs, wanted })
    }

    /// The wanted values on a block.
    pub fn run(&self, frame: &mut Frame, op: OpRef, space: &Space, block: &Block) -> Result<Vec<Value>> {
        for input in &self.inputs {
            let positions = input.access.positions(space, block, &[]).map_err(|why| op.error(why))?;
            frame.set(input.argument, Value::Array(input.from.pick(vec![block.len], &positions)));
        }
        for (inner, step) in &self.steps {
            let value = step.run(frame, *inner, space, block)?;
            frame.set(inner.result(0), value);
        }
        self.wanted.iter().map(|&v| frame.get(v).cloned()).collect()
    }

    /// The one wanted value over the whole space.
    pub fn dense(&self, frame: &mut Frame, op: OpRef, space: &Space) -> Result<Vec<f64>> {
        let mut out = Vec::with_capacity(space.points());
        for start in space.blocks() {
            let block = space.block(start);
            let value = self.run(frame, op, space, &block)?.remove(0);
            out.extend_from_slice(&over(&value, block.len).as_floats());
        }
        Ok(out)
    }
}

/// A value of a region as an array over the block's points.
pub(crate) fn over(value: &Value, len: usize) -> Array {
    match value {
        Value::Array(array) => array.clone(),
        scalar => Array::splat(vec![len], scalar),
    }
}

impl Step {
    fn new(frame: &Frame, op: OpRef, space: &Space) -> Result<Step> {
        match op.name().as_str() {
            op::core::CONSTANT => {
                let value = op.attr("value").ok_or_else(|| op.error("needs 'value'"))?;
                Ok(Step::Constant(frame.constant(op, value, op.body.ty(op.result(0)))?))
            }
            op::loop_::INDEX => {
                let expr = op.attr("expr").and_then(|a| a.as_shape()).and_then(|s| s.first().copied());
                let expr = expr.ok_or_else(|| op.error("needs 'expr'"))?;
                Ok(Step::Index(space.resolve(expr, &frame.symbols)))
            }
            op::loop_::GATHER => {
                let source = frame.array(op, 0)?.ready(space.points());
                let at = op.attr("at").and_then(|a| a.as_shape()).ok_or_else(|| op.error("needs 'at'"))?;
                let access = Access::new(at, &source.shape, space, &frame.symbols);
                Ok(Step::Gather { source, access })
            }
            _ if op.has(Traits::ELEMENTWISE) => Ok(Step::Elementwise(Elementwise::of(op, frame.mode())?)),
            _ => Err(op.unsupported("in the region of a nest")),
        }
    }

    fn run(&self, frame: &Frame, op: OpRef, space: &Space, block: &Block) -> Result<Value> {
        match self {
            Step::Constant(value) => Ok(value.clone()),
            Step::Elementwise(ready) => {
                let args = op.operands().map(|v| frame.get(v)).collect::<Result<Vec<_>>>()?;
                ready.apply(&args).ok_or_else(|| op.error("divides an integer by zero"))
            }
            Step::Index(expr) => {
                let values = eval(*expr, space, block, &[]).map_err(|why| op.error(why))?;
                Ok(Value::Array(Array::ints(vec![block.len], values)))
            }
            Step::Gather { source, access } => {
                let index = |v| Ok(over(frame.get(v)?, block.len).as_ints().into_owned());
                let extra = op.operands().skip(1).map(index).collect::<Result<Vec<_>>>()?;
                let positions = access.positions(space, block, &extra).map_err(|why| op.error(why))?;
                Ok(Value::Array(source.pick(vec![block.len], &positions)))
            }
        }
    }
}

/// The iterators of a nest with their sizes.
pub(crate) fn whole_space(frame: &Frame, op: OpRef, names: &[rc_ir::Name], extents: &[Dim]) -> Result<Space> {
    let size = |&d: &Dim| {
        let n = frame.dim(op, d)?;
        usize::try_from(n).map_err(|_| op.error(format!("has an iterator of extent {d} = {n}")))
    };
    Ok(Space { names: names.to_vec(), extents: extents.iter().map(size).collect::<Result<_>>()? })
}

/// The iterators of `space` whose bits are set, in the order of `groups`.
pub(crate) fn subspace(space: &Space, groups: &[u64]) -> Space {
    let chosen = groups.iter().flat_map(|&g| (0..space.names.len()).filter(move |&i| g >> i & 1 == 1));
    let (names, extents) = chosen.map(|i| (space.names[i], space.extents[i])).unzip();
    Space { names, extents }
}

/// Symbols for maps that name iterators only.
pub(crate) fn scatter<T: Copy>(
    out: &mut [T],
    values: &[T],
    map: &[Dim],
    shape: &[usize],
    space: &Space,
    symbols: &Symbols,
) -> std::result::Result<(), String> {
    let access = Access::new(map, shape, space, symbols);
    for start in space.blocks() {
        let block = space.block(start);
        let positions = access.positions(space, &block, &[])?;
        positions.iter().zip(&values[start..]).for_each(|(&p, &v)| out[p] = v);
    }
    Ok(())
}
