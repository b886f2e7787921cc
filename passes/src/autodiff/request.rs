//! What is to be differentiated.

use rc_dialects::func::{FUNC, arg_names};
use rc_ir::pass::Options;
use rc_ir::suggest::did_you_mean;
use rc_ir::{Body, Diagnostic, Module, Name, Result, Type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Of one number for arguments.
    Gradient,
    /// Gradients of arguments from those of results.
    Vjp,
    /// Tangents of results from those of arguments.
    Jvp,
}

/// A function, and which of its results are differentiated for which of its arguments.
#[derive(Clone, Debug)]
pub struct Request {
    pub function: Name,
    pub mode: Mode,
    pub arguments: Vec<usize>,
    pub results: Vec<usize>,
}

impl Request {
    /// Of the pass's options.
    pub(super) fn read(module: &Module, options: &Options) -> Result<Request> {
        let body = function(module, options.str("function"))?;
        let mode = match options.str("mode") {
            "vjp" => Mode::Vjp,
            "jvp" => Mode::Jvp,
            _ => Mode::Gradient,
        };
        let (inputs, outputs) = signature(body);
        let floats =
            |types: &[Type]| -> Vec<usize> { (0..types.len()).filter(|&i| types[i].elem().is_float()).collect() };
        let arguments = match options.str("arguments") {
            "" => floats(inputs),
            words => words.split_whitespace().map(|word| argument(body, word)).collect::<Result<_>>()?,
        };
        let results = match (options.str("results"), mode) {
            ("", Mode::Gradient) => vec![0],
            ("", _) => floats(outputs),
            (words, _) => {
                let number = |word: &str| {
                    let error = || at(body, format!("has no result number '{word}': it has {}", outputs.len()));
                    word.parse::<usize>().ok().filter(|&i| i < outputs.len()).ok_or_else(error)
                };
                words.split_whitespace().map(number).collect::<Result<_>>()?
            }
        };
        Ok(Request { function: body.symbol().unwrap_or_default(), mode, arguments, results })
    }

    /// Whether the function has these arguments and results, and they are floats.
    pub(super) fn check(&self, body: &Body) -> Result {
        if body.entry().is_none() {
            return Err(at(body, "cannot be differentiated: it has no body"));
        }
        let (inputs, outputs) = signature(body);
        for (what, numbers, types) in [("argument", &self.arguments, inputs), ("result", &self.results, outputs)] {
            for (k, &i) in numbers.iter().enumerate() {
                let Some(&ty) = types.get(i) else {
                    return Err(at(body, format!("has no {what} number {i}: it has {}", types.len())));
                };
                if !ty.is_tensor() || !ty.elem().is_float() {
                    return Err(at(body, format!("cannot be differentiated for {what} {i} of type {ty}"))
                        .help("derivatives are those of tensors of floats"));
                }
                if numbers[..k].contains(&i) {
                    return Err(at(body, format!("has {what} {i} chosen twice")));
                }
            }
        }
        if self.arguments.is_empty() {
            return Err(at(body, "has no argument to be differentiated for"));
        }
        match (self.mode, self.results.as_slice()) {
            (Mode::Gradient, &[i]) if outputs[i].rank() != 0 => {
                let error = at(body, format!("has no gradient: its result {i} is {}, not one number", outputs[i]));
                Err(error.help("differentiate a loss of type tensor<f32>, or take mode=vjp, which takes the result's gradient as an argument"))
            }
            (Mode::Gradient, &[_]) => Ok(()),
            (Mode::Gradient, _) => Err(at(body, "has a gradient for one result at a time")),
            (_, &[]) => Err(at(body, "has no result to be differentiated")),
            _ => Ok(()),
        }
    }
}

fn at(body: &Body, what: impl std::fmt::Display) -> Box<Diagnostic> {
    Diagnostic::error(body.loc(body.root()), format!("the function @{} {what}", body.symbol().unwrap_or_default()))
}

/// The types of a function's arguments and results.
pub(super) fn signature(body: &Body) -> (&'static [Type], &'static [Type]) {
    let ty = body.attr(body.root(), "function_type").and_then(|t| t.as_type());
    ty.and_then(Type::as_function).unwrap_or_default()
}

fn function<'m>(module: &'m Module, name: &str) -> Result<&'m Body> {
    let functions: Vec<&Body> = module.bodies.iter().filter(|b| b.name(b.root()) == &FUNC).collect();
    let names = || functions.iter().filter_map(|b| b.symbol()).map(|n| n.as_str());
    let public: Vec<&Body> = functions.iter().copied().filter(|b| !b.is_private()).collect();
    match (name, public.as_slice()) {
        ("", &[only]) => Ok(only),
        ("", _) => Err(Diagnostic::error(module.loc, format!("the module has {} public functions", public.len()))
            .help("say which one to differentiate: function=NAME")),
        (name, _) => functions.iter().copied().find(|b| b.symbol().is_some_and(|s| s == name)).ok_or_else(|| {
            let hint = did_you_mean(name, names());
            Diagnostic::error(module.loc, format!("the module has no function '@{name}'{hint}"))
        }),
    }
}

/// An argument by its name or its number.
fn argument(body: &Body, word: &str) -> Result<usize> {
    let names = arg_names(body);
    let found = names.iter().position(|n| *n == word).or_else(|| word.parse().ok());
    found.filter(|&i| i < names.len()).ok_or_else(|| {
        let hint = did_you_mean(word, names.iter().map(|n| n.as_str()));
        at(body, format!("has no argument '{word}'{hint}"))
    })
}
