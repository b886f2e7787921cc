//! `loop.launch` to `host.launch`: one for each function that a kernel became.

use super::{Lowered, Ref};
use rc_dialects::loop_;
use rc_dialects::op;
use rc_ir::{Attr, Body, Builder, Dim, Name, Op, OpRef, Result, Value};

/// Replaces every `loop.launch` of a body; `lowered` finds what the callee became.
///
/// # Errors
/// If a callee is unknown, or a launch does not bind a symbol of it.
pub fn lower_launches<'a>(body: &mut Body, lowered: &dyn Fn(Name) -> Option<&'a Lowered>) -> Result {
    let launches: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &loop_::LAUNCH).collect();
    for op in launches {
        let at = body.op_ref(op);
        let callee = at.str("callee").map(Name::new).ok_or_else(|| at.error("expects a callee"))?;
        let missing = || at.error(format!("launches '{callee}', and there is no loop.kernel of that name"));
        let target = lowered(callee).ok_or_else(missing)?;
        let values = launch(body, op, target)?;
        body.replace_op(op, &values);
    }
    Ok(())
}

fn launch(body: &mut Body, op: Op, target: &Lowered) -> Result<Vec<Value>> {
    let at = body.op_ref(op);
    let bind = at.attr("bind");
    let joins = joins(at, target);
    // Nothing is read of an operand without elements.
    let is_one = matches!(&target.steps[..], [step] if step.inputs.len() == 1);
    let [pads, padding] = ["pads", "padding"].map(|name| at.attr(name).filter(|_| is_one));
    let bound = bindings(at, target)?;
    let args: Vec<Value> = at.operands().collect();
    let mut made: Vec<Vec<Value>> = Vec::new();
    for step in &target.steps {
        let find = |r: &Ref| {
            resolve(&args, &made, *r).ok_or_else(|| body.op_ref(op).error("has fewer operands than its kernel takes"))
        };
        let inputs = step.inputs.iter().map(find).collect::<Result<Vec<_>>>()?;
        let lookup = |n: Name| bound.iter().find(|b| b.0 == n).map(|b| b.1);
        let types: Vec<_> = step.results.iter().map(|t| t.map_dims(&|d| d.substitute(&lookup))).collect();
        let mut b = Builder::before(body, op);
        let launch = b.op(op::host::LAUNCH).operands(&inputs).attr("callee", Attr::str(step.callee.as_str()));
        let pairs = |list: &[i64]| Some(Attr::i64s(list)).filter(|_| !list.is_empty());
        let launch = launch.maybe_attr("updates", pairs(&step.updates)).maybe_attr("inplace", pairs(&step.inplace));
        let launch = launch.maybe_attr("bind", bind).maybe_attr("joins", joins);
        let launch = launch.maybe_attr("pads", pads).maybe_attr("padding", padding).results(&types).try_build()?;
        made.push(body.results(launch).collect());
    }
    let find = |r: &Ref| {
        resolve(&args, &made, *r).ok_or_else(|| body.op_ref(op).error("has fewer operands than its kernel takes"))
    };
    target.results.iter().map(find).collect()
}

/// `joins` in the order of the only kernel's inputs, where it has all of them: of a result without elements it has none.
fn joins(launch: OpRef, target: &Lowered) -> Option<Attr> {
    let (&rows, places) = launch.attr("joins")?.as_shape()?.split_first()?;
    let [step] = &target.steps[..] else { return None };
    if 2 * step.inputs.len() != places.len() {
        return None;
    }
    let place = |input: &Ref| match *input {
        Ref::Arg(i) => places.get(2 * i..2 * i + 2),
        Ref::Step(..) => None,
    };
    let places: Vec<&[Dim]> = step.inputs.iter().map(place).collect::<Option<_>>()?;
    Some(Attr::shape(&[&[rows], places.concat().as_slice()].concat()))
}

fn resolve(args: &[Value], made: &[Vec<Value>], r: Ref) -> Option<Value> {
    match r {
        Ref::Arg(i) => args.get(i).copied(),
        Ref::Step(s, i) => made.get(s)?.get(i).copied(),
    }
}

fn bindings(launch: OpRef, target: &Lowered) -> Result<Vec<(Name, Dim)>> {
    let params = launch.attr("bind").and_then(|a| a.as_dialect("bind")).unwrap_or(&[]);
    let find = |&symbol: &Name| {
        let bound = params.iter().find(|p| p.0 == symbol).and_then(|p| p.1.as_shape()?.first().copied());
        let missing =
            || launch.error(format!("does not bind the symbol '{symbol}' of its kernel")).help("bind = <s = [t + 1]>");
        Ok((symbol, bound.ok_or_else(missing)?))
    };
    target.symbols.iter().map(find).collect()
}
