//! Running the operations of a body on values.

use rc_dialects::op;
use std::sync::Arc;

use rc_dialects::func::{SymbolDecl, bindings};
use rc_dialects::interfaces::Decompose;
use rc_ir::builder::new_function;
use rc_ir::{Block, Body, Builder, Diagnostic, Dim, Loc, Mapping, Name, OpRef, Result, Traits, Type};

use super::elementwise::Elementwise;
use super::value::{Array, Format, Value};
use super::{Interpret, Interpreter, Mode};
use crate::tensor::Tensor;

/// From this many elements on it is asked whether there is memory for a tensor.
const LARGE: usize = 1 << 24;

/// Calls inside calls, and decompositions inside decompositions, may nest so deep.
const MAX_DEPTH: usize = 256;

/// What a body's symbols are bound to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols(Arc<Vec<(Name, i64)>>);

impl Symbols {
    pub fn new(bound: Vec<(Name, i64)>) -> Symbols {
        Symbols(Arc::new(bound))
    }
    pub fn get(&self, name: Name) -> Option<i64> {
        self.0.iter().find(|s| s.0 == name).map(|s| s.1)
    }
    pub fn eval(&self, dim: Dim) -> Option<i64> {
        dim.evaluate(&|name| self.get(name))
    }
    pub fn bind(&mut self, name: Name, value: i64) {
        Arc::make_mut(&mut self.0).push((name, value));
    }
    /// Whether each symbol has a value, and one that its declaration allows. Some may lack one with `later`: it is
    /// learnt while the body runs.
    pub fn check(&self, loc: Loc, decls: &[SymbolDecl], later: bool) -> Result {
        for decl in decls {
            let Some(value) = self.get(decl.name) else {
                if later {
                    continue;
                }
                return Err(Diagnostic::error(loc, format!("nothing says what the symbol {} is", decl.name))
                    .help("some argument needs a dimension that is the symbol, or a multiple of it"));
            };
            if !(decl.min..=decl.max).contains(&value) {
                let range = format!("{}..{}", decl.min, decl.max);
                return Err(Diagnostic::error(loc, format!("symbol {} = {value} is outside {range}", decl.name)));
            }
            if !decl.allows(value) {
                let what = format!("symbol {} = {value} is not a multiple of {}", decl.name, decl.divisor);
                return Err(Diagnostic::error(loc, what));
            }
        }
        Ok(())
    }
}

/// One activation of a body: its values, and what its symbols are.
pub(crate) struct Frame<'a> {
    pub interp: &'a Interpreter<'a>,
    pub body: &'a Body,
    pub symbols: Symbols,
    pub depth: usize,
    values: Vec<Option<Value>>,
    /// Uses of each value that have not run yet; a value is dropped after the last.
    pending: Vec<u32>,
}

impl<'a> Frame<'a> {
    pub fn new(interp: &'a Interpreter<'a>, body: &'a Body, symbols: Symbols, depth: usize) -> Result<Frame<'a>> {
        if depth > MAX_DEPTH {
            let what = format!("calls nest deeper than {MAX_DEPTH}");
            return Err(Diagnostic::error(body.loc(body.root()), what));
        }
        let mut pending = vec![0; body.value_capacity()];
        for op in body.walk() {
            body.operands(op).for_each(|v| pending[v.index()] += 1);
        }
        Ok(Frame { interp, body, symbols, depth, values: vec![None; body.value_capacity()], pending })
    }

    /// Runs a one-block function-like body and gives its terminator's operands.
    pub fn run(&mut self, args: Vec<Value>) -> Result<Vec<Value>> {
        let root = self.body.op_ref(self.body.root());
        let block = self.body.entry().ok_or_else(|| root.error("is declared only: it has no body to run"))?;
        if let Some(region) = root.region(0)
            && self.body.blocks(region).len() > 1
        {
            return Err(root.unsupported("with several blocks in the interpreter"));
        }
        self.run_block(block, args)
    }

    pub fn run_block(&mut self, block: Block, args: Vec<Value>) -> Result<Vec<Value>> {
        let names: Vec<_> = self.body.block_args(block).collect();
        names.into_iter().zip(args).for_each(|(name, value)| self.set(name, value));
        let body = self.body;
        for op in body.ops(block) {
            let op = body.op_ref(op);
            if op.has(Traits::TERMINATOR) {
                return op.operands().map(|v| self.get(v).cloned()).collect();
            }
            let results = self.exec(op)?;
            self.check_results(op, &results)?;
            op.results().zip(results).for_each(|(name, value)| self.set(name, value));
            self.release(op);
        }
        Ok(Vec::new())
    }

    fn release(&mut self, op: OpRef) {
        for value in op.operands() {
            let left = &mut self.pending[value.index()];
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.values[value.index()] = None;
            }
        }
    }

    fn check_results(&self, op: OpRef, results: &[Value]) -> Result {
        for (value, name) in results.iter().zip(op.results()) {
            let ty = op.body.ty(name);
            if let Value::Array(array) = value
                && !ty.shape().contains(&Dim::Dynamic)
            {
                let declared = self.shape_of(op, ty)?;
                if declared != array.shape {
                    let what = format!("gives the shape {:?}, and its type {ty} says {declared:?}", array.shape);
                    return Err(op.error(what));
                }
            }
        }
        Ok(())
    }

    pub fn get(&self, value: rc_ir::Value) -> Result<&Value> {
        self.values[value.index()].as_ref().ok_or_else(|| {
            let what = format!("the value %{} is used before it has run", self.body.value_name(value));
            let loc = self.body.defining_op(value).map_or(Loc::UNKNOWN, |op| self.body.loc(op));
            Diagnostic::error(loc, what)
        })
    }
    pub fn set(&mut self, name: rc_ir::Value, value: Value) {
        self.values[name.index()] = Some(value);
    }
    /// Operand `i` as an array; a scalar is one of rank 0.
    pub fn array(&self, op: OpRef, i: usize) -> Result<Array> {
        if i >= op.operands().len() {
            return Err(op.error(format!("has no operand {i}")));
        }
        Ok(self.get(op.operand(i))?.to_array())
    }
    pub fn dim(&self, op: OpRef, dim: Dim) -> Result<i64> {
        self.symbols.eval(dim).ok_or_else(|| op.error(format!("needs the value of {dim}, which is not known")))
    }
    /// The value of a shape attribute's entries.
    pub fn sizes(&self, op: OpRef, name: &str) -> Result<Vec<i64>> {
        let dims = op.attr(name).and_then(|a| a.as_shape()).ok_or_else(|| op.error(format!("needs '{name}'")))?;
        dims.iter().map(|&d| self.dim(op, d)).collect()
    }
    pub fn shape_of(&self, op: OpRef, ty: Type) -> Result<Vec<usize>> {
        let size = |d: Dim| {
            let n = self.dim(op, d)?;
            usize::try_from(n).map_err(|_| op.error(format!("has the type {ty}, where {d} is {n}")))
        };
        ty.shape().into_iter().map(size).collect()
    }
    /// The format of a type's elements.
    pub fn format(&self, op: OpRef, ty: Type) -> Result<Format> {
        let elem = ty.elem();
        Format::of(elem, self.interp.mode).ok_or_else(|| op.unsupported(format!("on elements of type {elem}")))
    }
    pub fn mode(&self) -> Mode {
        self.interp.mode
    }

    fn exec(&mut self, op: OpRef) -> Result<Vec<Value>> {
        self.check_room(op)?;
        let value = match op.name().as_str() {
            op::core::CONSTANT => {
                let attr = op.attr("value").ok_or_else(|| op.error("needs 'value'"))?;
                self.constant(op, attr, op.body.ty(op.result(0)))
            }
            op::core::IOTA => self.iota(op),
            op::core::BROADCAST => self.broadcast(op),
            op::core::RESHAPE => self.reshape(op),
            op::core::TRANSPOSE => self.transpose(op),
            op::core::SLICE => self.slice(op),
            op::core::PAD => self.pad(op),
            op::core::CONCAT => self.concat(op),
            op::core::REVERSE => self.reverse(op),
            op::core::WINDOW => self.window(op),
            op::core::GATHER => self.gather(op),
            op::core::SCATTER | op::loop_::SCATTER => self.scatter(op),
            op::core::SORT | op::loop_::SORT => return self.sort(op),
            op::core::DIM => {
                let dim = op.int("dim").unwrap_or(0) as usize;
                Ok(Value::Int(self.array(op, 0)?.shape[dim] as i64))
            }
            op::core::EXTENT => Ok(Value::Int(self.sizes(op, "expr")?[0])),
            op::core::ASSUME_SHAPE => self.assume_shape(op),
            op::core::REDUCE => self.reduce(op),
            op::core::SCAN => self.scan(op),
            op::core::DOT => self.dot(op),
            op::core::ATTENTION => return self.attention(op),
            op::core::FUSION => return self.fusion(op),
            op::core::ATTENTION_BACKWARD => return self.attention_backward(op),
            op::loop_::NEST => return self.nest(op),
            op::loop_::ATTENTION => return self.nest_attention(op),
            op::loop_::ATTENTION_BACKWARD => return self.nest_attention_backward(op),
            op::host::LAUNCH => return self.launch_on_tensors(op),
            op::loop_::LAUNCH => return self.launch_loops(op),
            op::func::CALL | op::core::CALL => return self.call(op),
            op::core::IF | op::core::WHILE | op::core::FOR => return self.control(op),
            op::core::FOREIGN => return self.foreign(op),
            _ => return self.exec_by_trait(op),
        };
        Ok(vec![value?])
    }

    /// Fails where a result is larger than memory: an allocation that fails ends the process.
    fn check_room(&self, op: OpRef) -> Result {
        for ty in op.result_types().iter().filter(|t| t.is_tensor()) {
            // A size that is not known before the op has run is the op's own to check.
            let Ok(shape) = self.shape_of(op, *ty) else { continue };
            let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            let fits = count.is_some_and(|n| n < LARGE || Vec::<f64>::new().try_reserve_exact(n).is_ok());
            if !fits {
                return Err(
                    op.error(format!("gives a tensor of shape {shape:?}, for which there is not enough memory"))
                );
            }
        }
        Ok(())
    }

    fn exec_by_trait(&mut self, op: OpRef) -> Result<Vec<Value>> {
        if let Some(interpret) = op.def().and_then(|d| d.interface::<Interpret>()) {
            return self.interpreted(op, interpret);
        }
        if op.has(Traits::ELEMENTWISE) {
            return Ok(vec![self.elementwise(op)?]);
        }
        if let Some(decompose) = op.def().and_then(|d| d.interface::<Decompose>()) {
            return self.decomposed(op, decompose);
        }
        Err(op.unsupported("in the interpreter"))
    }

    pub fn elementwise(&mut self, op: OpRef) -> Result<Value> {
        let ready = Elementwise::of(op, self.mode())?;
        let args = op.operands().map(|v| self.get(v)).collect::<Result<Vec<_>>>()?;
        let mut shapes = args.iter().filter_map(|a| if let Value::Array(a) = a { Some(&a.shape) } else { None });
        if let Some(first) = shapes.next()
            && let Some(other) = shapes.find(|s| *s != first)
        {
            return Err(op.error(format!("has operands of shapes {first:?} and {other:?}")));
        }
        ready.apply(&args).ok_or_else(|| op.error("divides an integer by zero"))
    }

    fn fusion(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let args = op.operands().map(|v| self.get(v).cloned()).collect::<Result<Vec<_>>>()?;
        let block = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        self.run_block(block, args)
    }

    fn call(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let callee = rc_dialects::func::callee(op).ok_or_else(|| op.error("needs 'callee'"))?;
        self.enter(op, callee, &bindings(op))
    }

    fn launch_loops(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let callee = op.str("callee").ok_or_else(|| op.error("needs 'callee'"))?;
        self.enter(op, Name::new(callee), &bindings(op))
    }

    /// Runs the symbol `callee` on the operands, with its symbols bound to expressions over this frame's.
    pub fn enter(&mut self, op: OpRef, callee: Name, bind: &[(Name, Dim)]) -> Result<Vec<Value>> {
        let args = op.operands().map(|v| self.get(v).cloned()).collect::<Result<Vec<_>>>()?;
        self.enter_with(op, callee, bind, args)
    }

    /// Runs the symbol `callee` on values.
    pub fn enter_with(&self, op: OpRef, callee: Name, bind: &[(Name, Dim)], args: Vec<Value>) -> Result<Vec<Value>> {
        let body = self
            .interp
            .module
            .symbol(callee)
            .ok_or_else(|| op.error(format!("calls '@{callee}', which the module does not have")))?;
        let bound = bind.iter().map(|&(name, dim)| Ok((name, self.dim(op, dim)?))).collect::<Result<Vec<_>>>()?;
        let symbols = Symbols::new(bound);
        symbols.check(op.loc(), &rc_dialects::func::symbols(body), super::bind::assumes(body))?;
        let mut frame = Frame::new(self.interp, body, symbols, self.depth + 1)?;
        frame.check_args(op, &args)?;
        frame.run(args)
    }

    /// Whether arrays have the shapes that this body's arguments say.
    fn check_args(&self, call: OpRef, args: &[Value]) -> Result {
        let Some(entry) = self.body.entry() else { return Ok(()) };
        let types = self.body.block_args(entry).map(|v| self.body.ty(v));
        if types.len() != args.len() {
            return Err(call.error(format!("passes {} arguments for {}", args.len(), types.len())));
        }
        for (i, (ty, arg)) in types.zip(args).enumerate() {
            if let Value::Array(array) = arg
                && self.shape_of(call, ty)? != array.shape
            {
                return Err(call.error(format!("passes the shape {:?} for argument {i} of type {ty}", array.shape)));
            }
        }
        Ok(())
    }

    /// Runs an op by a function of its dialect.
    fn interpreted(&mut self, op: OpRef, interpret: &Interpret) -> Result<Vec<Value>> {
        let arg = |v| {
            let array = self.get(v)?.to_array();
            let tensor = match array.is_float() {
                true => Tensor::from_slice(&array.shape, &array.as_floats()),
                false => Tensor::from_slice(&array.shape, &array.as_ints()),
            };
            tensor.map_err(|e| op.error(e))
        };
        let args = op.operands().map(arg).collect::<Result<Vec<_>>>()?;
        let results = (interpret.0)(op, &args)?;
        if results.len() != op.results().len() {
            return Err(op.error(format!("gives {} results, and declares {}", results.len(), op.results().len())));
        }
        let rounded = |(tensor, ty): (&Tensor, &Type)| {
            let format = self.format(op, *ty)?;
            let array = match format.is_float() {
                true => {
                    Array::floats(tensor.shape().to_vec(), tensor.to_f64().iter().map(|&x| format.round(x)).collect())
                }
                false => Array::ints(
                    tensor.shape().to_vec(),
                    tensor.to_i64().iter().map(|&n| format.wrap(n.into())).collect(),
                ),
            };
            Ok(if ty.is_scalar() { array.element(0) } else { Value::Array(array) })
        };
        results.iter().zip(&op.result_types()).map(rounded).collect()
    }

    /// Runs an op by its definition in a lower dialect, made in a function of its own.
    fn decomposed(&mut self, op: OpRef, decompose: &Decompose) -> Result<Vec<Value>> {
        let (inputs, results) = (op.operand_types(), op.result_types());
        let mut func = new_function(op::func::FUNC, "decomposed", &inputs, &results, op.loc());
        if let Some(symbols) = self.body.attr(self.body.root(), rc_dialects::func::SYMBOLS) {
            func.body.set_attr(func.body.root(), rc_dialects::func::SYMBOLS, symbols);
        }
        let mut map = Mapping::new();
        op.operands().zip(&func.args).for_each(|(from, &to)| map.map(from, to));
        let copy = func.body.clone_from_body(op.body, op.op, &mut map);
        func.body.append(func.entry, copy);
        let mut builder = Builder::before(&mut func.body, copy);
        let values = (decompose.0)(&mut builder, copy)?;
        func.body.replace_op(copy, &values);
        Builder::at_end(&mut func.body, func.entry).op(op::func::RETURN).operands(&values).try_build()?;
        let args = op.operands().map(|v| self.get(v).cloned()).collect::<Result<Vec<_>>>()?;
        // The frame lives no longer than this call, so it may borrow the function made here.
        let mut frame = Frame::new(self.interp, &func.body, self.symbols.clone(), self.depth + 1)?;
        frame.run(args)
    }
}
