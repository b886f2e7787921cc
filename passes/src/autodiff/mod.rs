//! `autodiff`: makes of a function its joint function, which gives derivatives beside its results.
//!
//! | file | does |
//! |---|---|
//! | `request` | what is asked for, checked against the function |
//! | `reverse` | the sweep from results back to arguments, by the rules that ops declare |
//! | `parts` | sums of gradients of a tensor's parts |
//! | `forward` | tangents, by transposing the same rules |
//! | `control` | calls, branches and loops: derivatives of the functions that they call |
//! | `signature` | arguments and results added to functions |

mod control;
mod forward;
mod parts;
mod request;
mod reverse;
mod signature;

pub use request::{Mode, Request};

use crate::dce::erase_unused;
use rc_dialects::CoreBuilder;
use rc_dialects::tensor::normalize::normalize_instances;
use rc_ir::pass::{OptionKind, PassContext, PassDef, PassKind, option};
use rc_ir::{Attr, Body, Builder, Module, Name, Op, Result, Value};
use rustc_hash::FxHashMap;
use signature::add_arg;
pub(crate) use signature::set_results;

pub static AUTODIFF: PassDef = PassDef {
    summary: "Makes of a function its joint function: its results, and their derivatives for chosen arguments.",
    doc: "`gradient`: the first chosen result is one float; its gradients for the chosen arguments follow the function's results. `vjp`: \
further arguments are the gradients of the chosen results, and the gradients of the chosen arguments follow the results. `jvp`: further arguments \
are the tangents of the chosen arguments, and the tangents of the chosen results follow. Each op declares its derivative (the interface Derivative); \
one of `tensor` that declares none is replaced by its definition first. Gradients that meet are added in the type of the value. Branches, bodies and called \
functions are computed again where their derivative is taken; `core.for` keeps the values that each turn starts from, and a `core.while` needs its bound, \
`at_most`. The joint function says what is what: `rc.joint = #rc.joint<arguments = n, results = m>`, where n arguments and m results are the function's \
own. Applied again, the pass gives second derivatives.",
    options: &[
        option("function", OptionKind::Str, "", "The function; the module's only public one where absent."),
        option("mode", OptionKind::Enum(&["gradient", "vjp", "jvp"]), "gradient", "Which derivatives."),
        option(
            "arguments",
            OptionKind::Str,
            "",
            "Names or numbers, separated by spaces, of the arguments that are differentiated for; all of floats where absent.",
        ),
        option(
            "results",
            OptionKind::Str,
            "",
            "Numbers, separated by spaces, of the results that are differentiated; the first for gradient, else all of floats, where absent.",
        ),
    ],
    ..PassDef::new("autodiff", |options| {
        let options = options.clone();
        Ok(PassKind::module(move |module: &mut Module, cx: &mut PassContext| {
            let request = Request::read(module, &options)?;
            autodiff(module, &request, cx)
        }))
    })
};

/// The attribute of a joint function that tells the function's own arguments and results from what was added.
pub const JOINT: &str = "rc.joint";

/// Differentiates a function of a module, which becomes its joint function.
///
/// # Errors
/// What has no derivative, at the operation.
pub fn autodiff(module: &mut Module, request: &Request, cx: &mut PassContext) -> Result {
    let found = module.bodies.iter().position(|b| b.symbol() == Some(request.function));
    let at = found.expect("a request names a function of the module");
    let mut body = module.bodies[at].clone();
    request.check(&body)?;
    normalize_instances(&mut body)?;
    let own = (body.block_args(body.entry().expect("checked")).len(), body.operand_count(end_of(&body)));
    let mut derivatives = Derivatives { module, made: FxHashMap::default(), saving: FxHashMap::default() };
    match request.mode {
        Mode::Gradient | Mode::Vjp => gradients(&mut derivatives, &mut body, request, cx)?,
        Mode::Jvp => tangents(&mut derivatives, &mut body, request)?,
    }
    let before = body.walk().len() as u64;
    let erased = erase_unused(&mut body);
    cx.count("operations in joint functions", before - erased);
    let (arguments, results) = (Attr::i64(own.0 as i64), Attr::i64(own.1 as i64));
    body.set_attr(body.root(), JOINT, Attr::dialect("joint", &[("arguments", arguments), ("results", results)]));
    module.bodies[at] = body;
    Ok(())
}

/// A function's terminator.
pub(crate) fn end_of(body: &Body) -> Op {
    body.entry().and_then(|entry| body.terminator(entry)).expect("a function with a body has a terminator")
}

fn gradients(derivatives: &mut Derivatives, body: &mut Body, request: &Request, cx: &mut PassContext) -> Result {
    let entry = body.entry().expect("checked");
    let wrt: Vec<Value> = request.arguments.iter().map(|&i| body.block_arg(entry, i)).collect();
    let ops: Vec<Op> = body.ops(entry).filter(|&op| op != end_of(body)).collect();
    let ops = derivatives.prepare(body, ops, &wrt, &mut FxHashMap::default())?;
    let end = end_of(body);
    let results: Vec<Value> = request.results.iter().map(|&i| body.operand(end, i)).collect();
    let mut seeds = Vec::new();
    for (&i, &result) in request.results.iter().zip(&results) {
        let ty = body.ty(result);
        let gradient = match request.mode {
            Mode::Gradient => Builder::before(body, end).splat(1.0, ty),
            _ => {
                let name = gradient_name(body, result, i);
                add_arg(body, ty, &name)
            }
        };
        seeds.push((result, gradient));
    }
    let found = derivatives.reverse(body, ops, &seeds, &wrt, end)?;
    let mut values: Vec<Value> = body.operands(end).collect();
    for (&arg, gradient) in wrt.iter().zip(found) {
        let gradient = gradient.unwrap_or_else(|| {
            let name = body.value_name(arg);
            cx.remark(
                body.loc(body.root()),
                format!("the results do not depend smoothly on '%{name}': its gradient is 0"),
            );
            let ty = body.ty(arg);
            Builder::before(body, end).splat(0.0, ty)
        });
        if body.defining_op(gradient).is_some() && body.value_name(gradient).is_empty() {
            let name = gradient_name(body, arg, 0);
            body.set_value_name(gradient, Name::new(&name));
        }
        values.push(gradient);
    }
    set_results(body, &values);
    Ok(())
}

/// `d_w` of `%w`.
fn gradient_name(body: &Body, value: Value, number: usize) -> String {
    match body.value_name(value) {
        name if name.is_empty() => format!("d_{number}"),
        name => format!("d_{name}"),
    }
}

fn tangents(derivatives: &mut Derivatives, body: &mut Body, request: &Request) -> Result {
    let entry = body.entry().expect("checked");
    let wrt: Vec<Value> = request.arguments.iter().map(|&i| body.block_arg(entry, i)).collect();
    let ops: Vec<Op> = body.ops(entry).filter(|&op| op != end_of(body)).collect();
    let ops = derivatives.prepare(body, ops, &wrt, &mut FxHashMap::default())?;
    let mut seeds = Vec::new();
    for (&i, &arg) in request.arguments.iter().zip(&wrt) {
        let name = gradient_name(body, arg, i);
        let ty = body.ty(arg);
        seeds.push((arg, add_arg(body, ty, &name)));
    }
    let found = derivatives.forward(body, ops, &seeds)?;
    let end = end_of(body);
    let mut values: Vec<Value> = body.operands(end).collect();
    for &i in &request.results {
        let result = body.operand(end, i);
        let ty = body.ty(result);
        let tangent = found.get(&result).copied();
        values.push(tangent.unwrap_or_else(|| Builder::before(body, end).splat(0.0, ty)));
    }
    set_results(body, &values);
    Ok(())
}

/// The derivatives of the functions of a module, made as they are asked for.
pub(crate) struct Derivatives<'m> {
    module: &'m mut Module,
    /// By function, arguments wanted and results given.
    made: FxHashMap<(Name, Vec<bool>, Vec<bool>), Name>,
    /// Bodies of loops that give the values they start from, each with the one that it was made of.
    saving: FxHashMap<Name, Name>,
}
