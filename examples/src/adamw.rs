//! A whole training step as one function: a loss, its gradients, their global norm bounded, and AdamW (Loshchilov and Hutter, 2019), as PyTorch has them.

use rc_dialects::CoreBuilder;
use rc_dialects::func::{arg_names, return_op, set_updates};
use rc_ir::builder::{NewFunc, new_function};
use rc_ir::pass::{Options, PassContext};
use rc_ir::{Attr, Body, Builder, Loc, Module, Name, Result, Type, Value};
use rc_passes::autodiff::{AUTODIFF, Mode, Request, autodiff};

/// What is the same at every step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamW {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// Of parameters with two dimensions or more.
    pub decay: f64,
    /// The greatest norm of all gradients together.
    pub clip: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1, clip: 1.0 }
    }
}

/// The arguments of a step, by number: what the loss is of, the rate and the count of steps, then parameters, their means and their mean squares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    pub data: usize,
    pub parameters: usize,
}

impl Places {
    pub fn rate(self) -> usize {
        self.data
    }
    pub fn count(self) -> usize {
        self.data + 1
    }
    pub fn parameter(self, i: usize) -> usize {
        self.data + 2 + i
    }
    pub fn mean(self, i: usize) -> usize {
        self.parameter(self.parameters + i)
    }
    pub fn square(self, i: usize) -> usize {
        self.mean(self.parameters + i)
    }
    pub fn arguments(self) -> usize {
        self.square(self.parameters)
    }
}

/// Adds `@step` to a module whose function `@loss` takes `data` arguments and then parameters of f32, and gives one number. Its results are the loss, the
/// gradients' norm, then what it leaves in the memory of arguments: the count, parameters, means and mean squares. Where the norm is infinite or NaN, these
/// stay what they are.
///
/// # Errors
/// A loss that cannot be differentiated, at the operation.
pub fn add_step(module: &mut Module, data: usize, rule: &AdamW) -> Result<Places> {
    let name = Name::new("loss");
    let (inputs, names) = signature(module, name);
    let places = Places { data, parameters: inputs.len() - data };
    let request =
        Request { function: name, mode: Mode::Gradient, arguments: (data..inputs.len()).collect(), results: vec![0] };
    autodiff(module, &request, &mut PassContext::new(&Options::defaults(&AUTODIFF)))?;
    if let Some(loss) = module.symbol_mut(name.as_str()) {
        loss.set_attr(loss.root(), "sym_visibility", Attr::str("private"));
    }
    module.push(step(&inputs, &names, places, rule));
    Ok(places)
}

/// The types and names of a function's arguments.
fn signature(module: &Module, name: Name) -> (Vec<Type>, Vec<Name>) {
    let body = module.symbol(name).expect("a module with a function '@loss'");
    let entry = body.entry().expect("a function with a body");
    (body.block_args(entry).map(|v| body.ty(v)).collect(), arg_names(body))
}

fn step(inputs: &[Type], names: &[Name], places: Places, rule: &AdamW) -> Body {
    let scalar = Type::tensor(&[], Type::f32());
    let parameters = &inputs[places.data..];
    let state = [&[scalar], parameters, parameters, parameters].concat();
    let types = [&inputs[..places.data], &[scalar], &state].concat();
    let results = [&[scalar, scalar], &state[..]].concat();
    let NewFunc { mut body, entry, args, .. } = new_function("func.func", "step", &types, &results, Loc::UNKNOWN);
    name_arguments(&mut body, names, places);
    set_updates(&mut body, &(0..state.len()).map(|i| (i + 2, places.count() + i)).collect::<Vec<_>>());

    let mut b = Builder::at_end(&mut body, entry);
    let given: Vec<Value> =
        args[..places.data].iter().chain(&args[places.parameter(0)..places.mean(0)]).copied().collect();
    let call = b.op("func.call").operands(&given).attr("callee", Attr::symbol("loss"));
    let call = call.results(&[&[scalar], parameters].concat()).build();
    let found: Vec<Value> = b.body.results(call).collect();
    let (loss, gradients) = (found[0], &found[1..]);
    let norm = norm(&mut b, gradients);
    let step = Step::new(&mut b, rule, norm, args[places.rate()], args[places.count()]);
    let mut updated: [Vec<Value>; 3] = Default::default();
    for (i, &gradient) in gradients.iter().enumerate() {
        let at = [places.parameter(i), places.mean(i), places.square(i)].map(|i| args[i]);
        let new = step.update(&mut b, rule, at, gradient);
        updated.iter_mut().zip(new).for_each(|(all, new)| all.push(new));
    }
    return_op(&mut b, &[vec![loss, norm, step.count], updated.concat()].concat());
    body
}

fn name_arguments(body: &mut Body, names: &[Name], places: Places) {
    let (data, parameters) = names.split_at(places.data);
    let mut all: Vec<String> = data.iter().map(Name::to_string).collect();
    all.extend(["rate".to_string(), "count".to_string()]);
    for suffix in ["", ".mean", ".square"] {
        all.extend(parameters.iter().map(|name| format!("{name}{suffix}")));
    }
    let named: Vec<Attr> = all.iter().map(|name| Attr::dict([(Name::new("rc.name"), Attr::str(name))])).collect();
    body.set_attr(body.root(), "arg_attrs", Attr::array(&named));
}

/// The norm of all gradients together.
fn norm(b: &mut Builder, gradients: &[Value]) -> Value {
    let squares: Vec<Value> = gradients
        .iter()
        .map(|&gradient| {
            let square = b.binary("mul", gradient, gradient);
            let dims: Vec<i64> = (0..b.ty(gradient).rank() as i64).collect();
            b.reduce("add", square, &dims)
        })
        .collect();
    let sum = squares.into_iter().reduce(|x, y| b.binary("add", x, y)).expect("a model with parameters");
    b.unary("sqrt", sum)
}

/// Numbers that all parameters' updates share.
struct Step {
    /// Of gradients, by their norm.
    scale: Value,
    count: Value,
    rate: Value,
    /// Whether there is an update.
    sound: Value,
    /// 1 - beta1^count, and the root of 1 - beta2^count.
    rests: [Value; 2],
}

impl Step {
    fn new(b: &mut Builder, rule: &AdamW, norm: Value, rate: Value, before: Value) -> Step {
        let ty = b.ty(norm);
        let (clip, one, most) = (b.splat(rule.clip, ty), b.splat(1.0, ty), b.splat(f64::from(f32::MAX), ty));
        let bounded = b.binary_scalar("add", norm, 1e-6);
        let scale = b.binary("div", clip, bounded);
        let scale = b.binary("min", scale, one);
        let sound = b.compare("le", norm, most);
        let next = b.binary("add", before, one);
        let count = b.select(sound, next, before);
        // 1 - beta^count, where that is close to 0.
        let rest = |b: &mut Builder, beta: f64| {
            let power = b.binary_scalar("mul", next, beta.ln());
            let power = b.unary("expm1", power);
            b.unary("neg", power)
        };
        let (first, second) = (rest(b, rule.beta1), rest(b, rule.beta2));
        let root = b.unary("sqrt", second);
        Step { scale, count, rate, sound, rests: [first, root] }
    }

    /// The new values of a parameter, its mean and its mean square.
    fn update(&self, b: &mut Builder, rule: &AdamW, before: [Value; 3], gradient: Value) -> [Value; 3] {
        let [parameter, mean, square] = before;
        let shape = b.ty(parameter).shape();
        let all = |b: &mut Builder, x: Value| b.broadcast(x, &shape, &[]);
        let scale = all(b, self.scale);
        let gradient = b.binary("mul", gradient, scale);
        let mean = mixed(b, mean, gradient, rule.beta1);
        let squared = b.binary("mul", gradient, gradient);
        let square = mixed(b, square, squared, rule.beta2);
        let [first, root] = self.rests.map(|x| all(b, x));
        let deviation = b.unary("sqrt", square);
        let deviation = b.binary("div", deviation, root);
        let deviation = b.binary_scalar("add", deviation, rule.epsilon);
        let direction = b.binary("div", mean, first);
        let direction = b.binary("div", direction, deviation);
        let rate = all(b, self.rate);
        let change = b.binary("mul", direction, rate);
        let kept = match shape.len() {
            0 | 1 => parameter,
            _ => {
                let share = b.binary_scalar("mul", rate, rule.decay);
                let lost = b.binary("mul", parameter, share);
                b.binary("sub", parameter, lost)
            }
        };
        let new = [b.binary("sub", kept, change), mean, square];
        let sound = all(b, self.sound);
        [0, 1, 2].map(|i| b.select(sound, new[i], before[i]))
    }
}

/// `x + (1 - beta) (y - x)`.
fn mixed(b: &mut Builder, x: Value, y: Value, beta: f64) -> Value {
    let difference = b.binary("sub", y, x);
    let part = b.binary_scalar("mul", difference, 1.0 - beta);
    b.binary("add", x, part)
}
