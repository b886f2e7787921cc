//! A function's arguments: from files of weights by name, from arrays in order, the rest at random.

use super::{Failure, Options};
use crate::files::note_line;
use rc_dialects::func::{SymbolDecl, arg_names, given_inputs, symbols_of};
use rc_dialects::op;
use rc_ir::{Body, Module, Name};
use rc_runtime::package::Package;
use rc_runtime::program::{Bindings, TensorSpec};
use rc_runtime::safetensors::SafetensorsFile;
use rc_runtime::{Tensor, npy};

pub struct Inputs {
    pub function: String,
    pub tensors: Vec<Tensor>,
    /// The numbers of those that the weights gave: they are the same at every call.
    pub weights: Vec<usize>,
}

impl Inputs {
    /// Those that neither a package nor files of weights give are the arrays, in order.
    pub fn gather(module: &Module, options: &Options, package: Option<&Package>) -> Result<Inputs, Failure> {
        let body = function(module, options)?;
        let specs = specs(body)?;
        let weights = options.weights.iter().map(SafetensorsFile::open).collect::<rc_runtime::Result<Vec<_>>>()?;
        let mut arrays = options.inputs.iter();
        let mut found: Vec<Option<Tensor>> = Vec::new();
        let mut named = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            let name = spec.name.as_str();
            let file = weights.iter().find(|file| !name.is_empty() && file.contains(name));
            let packed =
                package.filter(|_| !name.is_empty()).map(|package| package.weight(name)).transpose()?.flatten();
            let weight = file.map(|file| file.tensor(name)).transpose()?.or(packed);
            named.extend(weight.as_ref().map(|_| i));
            found.push(match (weight, arrays.len()) {
                (Some(weight), _) => Some(weight),
                (None, 0) => None,
                (None, _) => arrays.next().map(npy::read).transpose()?,
            });
        }
        check_names(&weights, &specs, &found)?;
        if let Some(left) = arrays.next() {
            return Err(format!("'{}' is one array more than the function takes", left.display()).into());
        }
        let symbols = symbols_of(body.op_ref(body.root()))?;
        let bindings = bindings(&symbols, &specs, &found, options)?;
        let mut tensors = Vec::new();
        for (i, (spec, tensor)) in specs.iter().zip(found).enumerate() {
            tensors.push(match tensor {
                Some(tensor) => tensor,
                None => rc::random_input(spec.dtype, &spec.sizes(&bindings)?, options.seed, i)?,
            });
        }
        Ok(Inputs { function: body.symbol().unwrap_or_default().to_string(), tensors, weights: named })
    }
}

/// Says which arguments the weights leave random.
///
/// Errors: weights of which no argument has the name.
fn check_names(weights: &[SafetensorsFile], specs: &[TensorSpec], found: &[Option<Tensor>]) -> Result<(), Failure> {
    let some = |names: Vec<&str>| match names.len() {
        0 => "none".to_string(),
        n if n > 6 => format!("{} and {} more", names[..5].join(", "), n - 5),
        _ => names.join(", "),
    };
    let named = |spec: &&TensorSpec| !spec.name.is_empty();
    let unused = |file: &&SafetensorsFile| !specs.iter().any(|spec| file.contains(spec.name.as_str()));
    if let Some(file) = weights.iter().find(unused) {
        let arguments = some(specs.iter().filter(named).map(|spec| spec.name.as_str()).collect());
        let tensors = some(file.names().collect());
        let path = file.path().display();
        return Err(format!(
            "'{path}' names none of the function's arguments: it has {tensors}; the function has {arguments}"
        )
        .into());
    }
    let random: Vec<&str> =
        specs.iter().zip(found).filter(|(_, f)| f.is_none()).map(|(s, _)| s.name.as_str()).collect();
    if !weights.is_empty() && !random.is_empty() {
        note_line(format_args!("note: random, since no file names them: {}", some(random)));
    }
    Ok(())
}

fn function<'m>(module: &'m Module, options: &Options) -> Result<&'m Body, Failure> {
    let runnable =
        |b: &&Body| b.entry().is_some() && [op::func::FUNC, op::host::FUNC].contains(&b.name(b.root()).as_str());
    let functions: Vec<&Body> = module.bodies.iter().filter(runnable).collect();
    match &options.entry {
        None => functions
            .iter()
            .copied()
            .find(|b| !b.is_private())
            .ok_or_else(|| "the module has no function to run".to_string().into()),
        Some(name) => {
            functions.iter().copied().find(|b| b.symbol().is_some_and(|s| s == name.as_str())).ok_or_else(|| {
                let names: Vec<&str> = functions.iter().filter_map(|b| b.symbol()).map(|s| s.as_str()).collect();
                format!("the module has no function @{name}; it has {}", names.join(", ")).into()
            })
        }
    }
}

/// The inputs' names, dtypes and shapes.
fn specs(body: &Body) -> Result<Vec<TensorSpec>, Failure> {
    let root = body.op_ref(body.root());
    let entry = body.entry().ok_or_else(|| "the function has no body".to_string())?;
    let names: Vec<Name> = arg_names(body);
    let args = body.block_args(entry).enumerate().take(given_inputs(root));
    Ok(args
        .map(|(i, arg)| TensorSpec::new(names.get(i).copied().unwrap_or_default(), body.ty(arg)))
        .collect::<rc_runtime::Result<_>>()?)
}

/// What `--symbol` options say.
pub fn named_values(options: &[String]) -> Result<Vec<(Name, i64)>, Failure> {
    let one = |text: &String| {
        let parsed = text.split_once('=').and_then(|(name, value)| Some((Name::new(name), value.parse().ok()?)));
        parsed.ok_or_else(|| format!("--symbol takes NAME=VALUE with an integer, not '{text}'").into())
    };
    options.iter().map(one).collect()
}

/// Values of the symbols: as the options say, as the given arrays' shapes say, else a small one of the range.
fn bindings(
    symbols: &[SymbolDecl],
    specs: &[TensorSpec],
    found: &[Option<Tensor>],
    options: &Options,
) -> Result<Bindings, Failure> {
    let mut bindings = Bindings::default();
    for (name, value) in named_values(&options.symbols)? {
        let symbol =
            symbols.iter().find(|s| s.name == name).ok_or_else(|| format!("the function has no symbol '{name}'"))?;
        if !symbol.allows(value) {
            return Err(symbol.refuse(value).into());
        }
        bindings.insert(symbol.name, value);
    }
    for (spec, tensor) in specs.iter().zip(found) {
        let sizes = tensor.iter().flat_map(|t| t.shape());
        for (dim, &size) in spec.shape.iter().zip(sizes) {
            if let Some(name) = dim.as_symbol() {
                bindings.entry(name).or_insert(size as i64);
            }
        }
    }
    for symbol in symbols {
        bindings.entry(symbol.name).or_insert_with(|| rc::small_value(symbol));
    }
    Ok(bindings)
}
