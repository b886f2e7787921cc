//! Calls, branches and loops. The derivative of a function is a function: of its arguments and of the gradients of its results.

use super::reverse::{Varied, derivative_of, expand, made_between};
use super::signature::{add_arg, set_results};
use super::{Derivatives, end_of};
use crate::dce::erase_unused;
use rc_dialects::CoreBuilder;
use rc_dialects::core::call::CALL;
use rc_dialects::core::control::{FOR, IF, WHILE};
use rc_dialects::derivative::Residuals;
use rc_dialects::func::{self, FUNC, return_op, symbols};
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::{Attr, Body, Builder, Dim, Name, Op, Result, Type, Value};
use rustc_hash::FxHashMap;

impl Derivatives<'_> {
    /// The gradients of the wanted operands of an op that calls functions.
    pub(super) fn of_call(
        &mut self,
        body: &mut Body,
        op: Op,
        results: &[Option<Value>],
        wanted: &[bool],
        end: Op,
    ) -> Result<Vec<Option<Value>>> {
        let name = body.name(op);
        if name == &FOR {
            return Loop::of(body, op, wanted, results).differentiate(self, body, end);
        }
        if name == &WHILE {
            let error = body.op_ref(op).unsupported("the derivative of a loop without a bound");
            return Err(error.help("say how many turns it takes at most: {…, at_most = 100}, or write core.for"));
        }
        let (callees, first): (Vec<&str>, usize) =
            if name == &IF { (vec!["then", "else"], 1) } else { (vec!["callee"], 0) };
        let given: Vec<bool> = results.iter().map(Option::is_some).collect();
        let mut attrs = body.attrs(op);
        for attr in callees {
            let callee = function_named(body, op, attr)?;
            let derivative = self.vjp_of(callee, &wanted[first..], &given)?;
            let symbol = body.attr(op, attr).is_some_and(|a| a.as_symbol().is_some());
            let value = if symbol { Attr::symbol(derivative) } else { Attr::str(derivative.as_str()) };
            attrs = attrs.with(Name::new(attr), Some(value));
        }
        let operands: Vec<Value> = body.operands(op).chain(results.iter().flatten().copied()).collect();
        let of: Vec<usize> = (first..wanted.len()).filter(|&i| wanted[i]).collect();
        let types: Vec<Type> = of.iter().map(|&i| body.ty(operands[i])).collect();
        let loc = body.loc(op);
        let mut b = Builder::before(body, end);
        let call = b.op(b.body.name(op)).operands(&operands).attrs(attrs).results(&types).loc(loc).build();
        let mut out = vec![None; wanted.len()];
        of.iter().zip(body.results(call)).for_each(|(&i, gradient)| out[i] = Some(gradient));
        Ok(out)
    }

    /// The function that gives the gradients of the wanted arguments of another one, which it computes again, from the arguments and the
    /// gradients of the results that have one.
    pub(super) fn vjp_of(&mut self, callee: Name, wanted: &[bool], given: &[bool]) -> Result<Name> {
        let key = (callee, wanted.to_vec(), given.to_vec());
        if let Some(&made) = self.made.get(&key) {
            return Ok(made);
        }
        let mut body = self.module.symbol(callee).expect("verified").clone();
        let entry =
            body.entry().ok_or_else(|| body.op_ref(body.root()).error("cannot be differentiated: it has no body"))?;
        let wrt: Vec<Value> = body.block_args(entry).zip(wanted).filter(|w| *w.1).map(|w| w.0).collect();
        let ops: Vec<Op> = body.ops(entry).filter(|&op| op != end_of(&body)).collect();
        let ops = self.prepare(&mut body, ops, &wrt, &mut FxHashMap::default())?;
        let end = end_of(&body);
        let results: Vec<Value> = body.operands(end).collect();
        let mut seeds = Vec::new();
        for (&result, _) in results.iter().zip(given).filter(|r| *r.1) {
            let ty = body.ty(result);
            seeds.push((result, add_arg(&mut body, ty, "d")));
        }
        let found = self.reverse(&mut body, ops, &seeds, &wrt, end)?;
        let gradients: Vec<Value> = wrt
            .iter()
            .zip(found)
            .map(|(&arg, gradient)| {
                let ty = body.ty(arg);
                gradient.unwrap_or_else(|| Builder::before(&mut body, end).splat(0.0, ty))
            })
            .collect();
        set_results(&mut body, &gradients);
        erase_unused(&mut body);
        let name = self.add(body, &format!("{callee}_vjp"));
        self.made.insert(key, name);
        Ok(name)
    }

    /// Expands ops of a function that follow `wrt`, and lets them give what their derivatives need: loops the values that each turn starts from,
    /// those with a bound as `core.for`. Notes which values were replaced by which.
    pub(super) fn prepare(
        &mut self,
        body: &mut Body,
        ops: Vec<Op>,
        wrt: &[Value],
        replaced: &mut FxHashMap<Value, Value>,
    ) -> Result<Vec<Op>> {
        let mut work = expand(body, ops, wrt, replaced)?;
        work.reverse();
        let mut varied = Varied::new(wrt);
        let mut out = Vec::with_capacity(work.len());
        while let Some(op) = work.pop() {
            let before = body.prev_op(op);
            let replaced_by = match varied.any_operand(body, op) {
                true => self.with_residuals(body, op)?,
                false => None,
            };
            let Some(values) = replaced_by else {
                varied.visit(body, op, derivative_of(body, op));
                out.push(op);
                continue;
            };
            let results: Vec<Value> = body.results(op).collect();
            work.extend(made_between(body, before, op).into_iter().rev());
            replaced.extend(results.into_iter().zip(values.iter().copied()));
            body.replace_op(op, &values);
        }
        Ok(out)
    }

    /// Makes the op that gives what its derivative needs as well; its results as they were. None where the op is that one.
    fn with_residuals(&mut self, body: &mut Body, op: Op) -> Result<Option<Vec<Value>>> {
        let name = body.name(op);
        if let Some(bound) = body.op_ref(op).int("at_most").filter(|_| name == &WHILE) {
            return self.bounded(body, op, bound).map(Some);
        }
        if name == &FOR && !self.saving.contains_key(&function_named(body, op, "body")?) {
            return self.save(body, op).map(Some);
        }
        let residuals = name.def().and_then(|d| d.interface::<Residuals>());
        let new = residuals.and_then(|r| (r.0)(&mut Builder::before(body, op), op));
        Ok(new.map(|new| body.results(new).take(body.result_count(op)).collect()))
    }

    /// A `core.for` that gives the values that each turn started from, as further results; gives those that it had.
    fn save(&mut self, body: &mut Body, op: Op) -> Result<Vec<Value>> {
        let turn = function_named(body, op, "body")?;
        let at = body.op_ref(op);
        let (init, slices, args) = (at.group("init"), at.group("slices"), at.group("args"));
        let mut saving = self.module.symbol(turn).expect("verified").clone();
        let (entry, end) = (saving.entry().expect("verified"), end_of(&saving));
        let values: Vec<Value> = saving.operands(end).chain(saving.block_args(entry).take(init.len())).collect();
        set_results(&mut saving, &values);
        let name = self.add(saving, &format!("{turn}_saving"));
        self.saving.insert(name, turn);
        let times = at.attr("times").and_then(|a| a.as_shape()).map_or(Dim::Static(0), |t| t[0]);
        let starts = init.iter().map(|&v| {
            let ty = body.ty(v);
            Type::tensor(&[&[times], ty.shape().as_slice()].concat(), ty.elem())
        });
        let types: Vec<Type> = at.result_types().into_iter().chain(starts).collect();
        let attrs = body.attrs(op).with(Name::new("body"), Some(Attr::str(name.as_str())));
        let count = body.result_count(op);
        let names: Vec<Name> = body.results(op).map(|v| body.value_name(v)).collect();
        let mut b = Builder::before(body, op);
        let new = b.op(&FOR).operands(&init).operands(&slices).operands(&args).attrs(attrs).results(&types).build();
        for (i, name) in names.into_iter().enumerate().filter(|n| !n.1.is_empty()) {
            let value = body.result(new, i);
            body.set_value_name(value, name);
        }
        Ok(body.results(new).take(count).collect())
    }

    /// A `core.while` of at most `bound` turns, as so many turns of which each does something only where the condition holds. Where it
    /// still holds after the last, results of floats are NaN.
    fn bounded(&mut self, body: &mut Body, op: Op, bound: i64) -> Result<Vec<Value>> {
        let (condition, turn) = (function_named(body, op, "condition")?, function_named(body, op, "body")?);
        let (init, args) = (body.op_ref(op).group("init"), body.op_ref(op).group("args"));
        let like = self.module.symbol(turn).expect("verified").clone();
        let inputs = arg_types(&like);
        let values = init.len();
        let same = self.function("same", &like, &inputs, |_, given| given[..values].to_vec());
        let bind = identity(&like);
        let step = self.function(&format!("{turn}_if"), &like, &inputs, |b, given| {
            let holds = Type::tensor(&[], Type::i1());
            let callee = Attr::str(condition.as_str());
            let holds = b.op(&CALL).operands(given).attr("callee", callee).attr("bind", bind).result(holds).value();
            let operands = [&[holds], given].concat();
            let next = b.op(&IF).operands(&operands).attr("then", Attr::str(turn.as_str()));
            let next =
                next.attr("else", Attr::str(same.as_str())).attr("bind", bind).results(&inputs[..values]).build();
            b.body.results(next).collect()
        });
        let bind = body.attr(op, "bind");
        let types: Vec<Type> = body.results(op).map(|v| body.ty(v)).collect();
        let mut b = Builder::before(body, op);
        let repeated = b.op(&FOR).operands(&init).operands(&[]).operands(&args).attr("body", Attr::str(step.as_str()));
        let times = Attr::shape(&[Dim::Static(bound)]);
        let repeated = repeated.attr("times", times).maybe_attr("bind", bind).results(&types).build();
        let results: Vec<Value> = b.body.results(repeated).collect();
        let operands = [&results[..], &args[..]].concat();
        let callee = Attr::str(condition.as_str());
        let more = b.op(&CALL).operands(&operands).attr("callee", callee).maybe_attr("bind", bind);
        let more = more.result(Type::tensor(&[], Type::i1())).value();
        let marked = |b: &mut Builder, v: Value| {
            let ty = b.ty(v);
            if !ty.elem().is_float() {
                return v;
            }
            let (more, nan) = (b.broadcast(more, &ty.shape(), &[]), b.splat(f64::NAN, ty));
            b.select(more, nan, v)
        };
        Ok(results.into_iter().map(|v| marked(&mut b, v)).collect())
    }

    /// A new private function with the symbols of another.
    fn function(
        &mut self,
        hint: &str,
        like: &Body,
        inputs: &[Type],
        build: impl FnOnce(&mut Builder, &[Value]) -> Vec<Value>,
    ) -> Name {
        let mut new = new_function(&FUNC, hint, inputs, &[], like.loc(like.root()));
        if let Some(declared) = like.attr(like.root(), func::SYMBOLS) {
            new.body.set_attr(new.body.root(), func::SYMBOLS, declared);
        }
        let mut b = Builder::at_end(&mut new.body, new.entry);
        b.loc = like.loc(like.root());
        let values = build(&mut b, &new.args);
        return_op(&mut b, &values);
        set_results(&mut new.body, &values);
        self.add(new.body, hint)
    }

    fn add(&mut self, mut body: Body, hint: &str) -> Name {
        let name = self.module.fresh_symbol(hint);
        let root = body.root();
        body.set_attr(root, "sym_name", Attr::str(name.as_str()));
        body.set_attr(root, "sym_visibility", Attr::str("private"));
        self.module.push(body);
        name
    }
}

/// The function that an attribute of an op names.
fn function_named(body: &Body, op: Op, attr: &str) -> Result<Name> {
    let value = body.attr(op, attr);
    let name = value.and_then(|a| a.as_symbol().or_else(|| a.as_str().map(Name::new)));
    name.ok_or_else(|| body.op_ref(op).error(format!("names no function in '{attr}'")))
}

fn arg_types(body: &Body) -> Vec<Type> {
    body.entry().map_or(Vec::new(), |entry| body.block_args(entry).map(|v| body.ty(v)).collect())
}

/// A function's symbols, each bound to itself.
fn identity(like: &Body) -> Attr {
    let own: Vec<(Name, Dim)> = symbols(like).iter().map(|s| (s.name, s.dim())).collect();
    func::bindings_attr(&own)
}

/// A `core.for` to be differentiated.
struct Loop<'a> {
    op: Op,
    init: Vec<Value>,
    slices: Vec<Value>,
    args: Vec<Value>,
    wanted: &'a [bool],
    /// The gradients of the results.
    given: &'a [Option<Value>],
}

impl<'a> Loop<'a> {
    fn of(body: &Body, op: Op, wanted: &'a [bool], given: &'a [Option<Value>]) -> Loop<'a> {
        let group = |name: &str| body.op_ref(op).group(name).to_vec();
        // The last results are the values that turns started from.
        let given = &given[..given.len() - body.op_ref(op).group("init").len()];
        Loop { op, init: group("init"), slices: group("slices"), args: group("args"), wanted, given }
    }

    /// A loop from the last turn to the first, over the values that each turn started from. It carries the gradients of the values and the sums of those of
    /// the arguments.
    fn differentiate(&self, cx: &mut Derivatives, body: &mut Body, end: Op) -> Result<Vec<Option<Value>>> {
        let (n, m) = (self.init.len(), self.slices.len());
        let is_float = |body: &Body, v: Value| body.ty(v).elem().is_float();
        let floats: Vec<usize> = (0..n).filter(|&i| is_float(body, self.init[i])).collect();
        let wanted: Vec<bool> =
            (0..self.wanted.len()).map(|i| if i < n { floats.contains(&i) } else { self.wanted[i] }).collect();
        let has: Vec<bool> =
            (0..self.given.len()).map(|i| if i < n { floats.contains(&i) } else { self.given[i].is_some() }).collect();
        let turn = cx.saving[&function_named(body, self.op, "body")?];
        let derivative = cx.vjp_of(turn, &wanted, &has)?;
        let saved: Vec<Value> = body.results(self.op).skip(self.given.len()).collect();
        let like = cx.module.symbol(turn).expect("verified").clone();
        let inputs = arg_types(&like);
        let summed: Vec<usize> = (n + m..wanted.len()).filter(|&i| wanted[i]).collect();
        let sliced: Vec<usize> = (n..n + m).filter(|&i| wanted[i]).collect();
        let outputs = super::request::signature(&like).1;
        let of_slices: Vec<Type> = (n..has.len()).filter(|&i| has[i]).map(|i| outputs[i]).collect();
        let carried: Vec<Type> = floats.iter().chain(&summed).map(|&i| inputs[i]).collect();
        let back_inputs = [&carried[..], &inputs[..n + m], &of_slices, &inputs[n + m..]].concat();
        let bind = identity(&like);
        let back = cx.function(&format!("{turn}_back"), &like, &back_inputs, |b, given| {
            let (gradients, rest) = given.split_at(floats.len());
            let (sums, rest) = rest.split_at(summed.len());
            let (values, rest) = rest.split_at(n + m);
            let (of_slices, args) = rest.split_at(of_slices.len());
            let operands = [values, args, gradients, of_slices].concat();
            let types: Vec<Type> = (0..wanted.len()).filter(|&i| wanted[i]).map(|i| inputs[i]).collect();
            let callee = Attr::str(derivative.as_str());
            let call =
                b.op(&CALL).operands(&operands).attr("callee", callee).attr("bind", bind).results(&types).build();
            let found: Vec<Value> = b.body.results(call).collect();
            let (next, found) = found.split_at(floats.len());
            let (of_slices, of_args) = found.split_at(sliced.len());
            let sums: Vec<Value> = sums.iter().zip(of_args).map(|(&sum, &g)| b.binary("add", sum, g)).collect();
            [next, &sums, of_slices].concat()
        });

        let zero = |body: &mut Body, v: Value| {
            let ty = body.ty(v);
            Builder::before(body, end).splat(0.0, ty)
        };
        let operands: Vec<Value> = body.operands(self.op).collect();
        let mut init = Vec::new();
        for &i in &floats {
            init.push(match self.given[i] {
                Some(g) => g,
                None => zero(body, operands[i]),
            });
        }
        for &i in &summed {
            init.push(zero(body, operands[i]));
        }
        let (times, bind, loc) = (body.attr(self.op, "times"), body.attr(self.op, "bind"), body.loc(self.op));
        let mut b = Builder::before(body, end);
        b.loc = loc;
        let of_slices: Vec<Value> = self.given[n..].iter().flatten().copied().collect();
        let slices: Vec<Value> =
            [&saved[..], &self.slices, &of_slices].concat().into_iter().map(|v| turned(&mut b, v)).collect();
        let types: Vec<Type> =
            init.iter().copied().chain(sliced.iter().map(|&i| operands[i])).map(|v| b.ty(v)).collect();
        let op = b.op(&FOR).operands(&init).operands(&slices).operands(&self.args);
        let op = op.attr("body", Attr::str(back.as_str())).maybe_attr("times", times).maybe_attr("bind", bind);
        let op = op.results(&types).build();
        let results: Vec<Value> = b.body.results(op).collect();
        let mut out = vec![None; wanted.len()];
        floats.iter().chain(&summed).zip(&results).for_each(|(&i, &g)| out[i] = Some(g).filter(|_| self.wanted[i]));
        for (&i, &g) in sliced.iter().zip(&results[init.len()..]) {
            out[i] = Some(turned(&mut b, g));
        }
        Ok(out)
    }
}

/// From the last turn's slice to the first's.
fn turned(b: &mut Builder, x: Value) -> Value {
    b.op(op::core::REVERSE).operand(x).attr("dims", Attr::i64s(&[0])).value()
}
