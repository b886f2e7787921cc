//! The reference interpreter: runs a module at any stage, slowly and exactly.
//!
//! It defines what a program means. In [`Mode::Typed`] every op rounds to its type; in [`Mode::Float64`] all floats
//! are f64 and nothing is rounded, which is the reference that errors are measured against. Passes are checked by
//! running a module before and after.
//!
//! | file | runs |
//! |---|---|
//! | `exec` | bodies: values, symbols, calls, decomposition of `tensor` ops |
//! | `elementwise`, `shape`, `gather`, `reduce`, `dot`, `attention_backward`, `constant` | `core` |
//! | `space`, `region`, `nest` | `loop`: iteration spaces in blocks of points, every scalar of a region an array |
//! | `kernel` | `kernel`, in every phase; finds races, deadlocks, reads of what was not written, accesses out of bounds |
//! | `memory`, `host` | buffers; `host`, on tensors and on memory |
//! | `foreign` | functions of the process |
//! | `slopes` | derivatives against differences |

mod attention_backward;
mod bind;
mod constant;
mod control;
mod dot;
mod elementwise;
mod exec;
mod foreign;
mod gather;
mod host;
mod kernel;
mod memory;
mod nest;
mod reduce;
mod region;
mod shape;
pub mod slopes;
mod sort;
mod space;
#[cfg(test)]
mod tests;
mod value;

use rc_dialects::op;
use std::sync::OnceLock;

use rc_dialects::func::{Initializer, given_inputs};
use rc_ir::{Diagnostic, Loc, Module, Name, OpRef, Result, verify_module};

use crate::tensor::{DType, Tensor};
use exec::Frame;
pub(crate) use value::dtype_of;
use value::{Array, Value};

/// Whether floats are rounded to their types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every op rounds its result to the element type. Sums and products of `reduce`, `scan`, `dot` and `attention`
    /// are formed in f64 and rounded once to the accumulation type and once to the result's.
    Typed,
    /// All floats are f64. A kernel whose elementary functions are expanded to arithmetic on the bits of a narrower
    /// float has no such reference, and is an error. Inputs are taken as they are given (also as f64); results of float types are f64 tensors.
    Float64,
}

/// The interface of ops that the interpreter runs by a function: those of a dialect that it does not know. Floats come as f64 and go as f64,
/// to be rounded to the result's type once; integers as i64. Without it an op is run by its definition,
/// [`Decompose`](rc_dialects::interfaces::Decompose).
pub struct Interpret(pub fn(OpRef, &[Tensor]) -> Result<Vec<Tensor>>);

/// Runs the functions of a module.
///
/// ```
/// use rc_ir::{Builder, Module, Type, builder::new_function};
/// use rc_runtime::{Tensor, interp::{Interpreter, Mode}};
/// rc_dialects::register();
/// let ty = Type::tensor_of(&[3], Type::f32());
/// let mut func = new_function("func.func", "twice", &[ty], &[ty], rc_ir::Loc::UNKNOWN);
/// let mut b = Builder::at_end(&mut func.body, func.entry);
/// let sum = b.op("rc.core.add").operands(&[func.args[0], func.args[0]]).value();
/// b.op("func.return").operands(&[sum]).build();
/// let mut module = Module::default();
/// module.push(func.body);
/// let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
/// let results = Interpreter::new(&module, Mode::Typed).run("twice", &[x]).unwrap();
/// assert_eq!(results[0].as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0]);
/// ```
pub struct Interpreter<'m> {
    module: &'m Module,
    mode: Mode,
    /// The seed of a shuffled order of programs and threads.
    order: Option<u64>,
    verified: OnceLock<Result>,
}

impl<'m> Interpreter<'m> {
    /// An interpreter of `module`, which is verified when it first runs.
    pub fn new(module: &'m Module, mode: Mode) -> Interpreter<'m> {
        rc_dialects::register();
        Interpreter { module, mode, order: None, verified: OnceLock::new() }
    }

    /// Runs the programs of a grid, and the threads of a block, in an order shuffled by `seed` instead of ascending.
    pub fn shuffled(mut self, seed: u64) -> Interpreter<'m> {
        self.order = Some(seed);
        self
    }

    /// Calls the function `name`. The arguments' dtypes and shapes must be those of its type, where symbols are bound
    /// to what the shapes say and must be in their declared ranges. Those that the function's initializer computes may be left out: it runs first. Errors are diagnostics at the op that failed.
    pub fn run(&self, name: &str, args: &[Tensor]) -> Result<Vec<Tensor>> {
        self.verified
            .get_or_init(|| verify_module(self.module).into_iter().next().map_or(Ok(()), |d| Err(Box::new(d))))
            .clone()?;
        let body = self.module.symbol(Name::new(name)).ok_or_else(|| self.missing(name))?;
        let root = body.op_ref(body.root());
        if let Some(init) = Initializer::of(root).filter(|i| i.results > 0 && args.len() == given_inputs(root)) {
            let taken: Vec<Tensor> = init.args.iter().filter_map(|&i| args.get(i).cloned()).collect();
            let computed = self.run(init.function.as_str(), &taken)?;
            return self.run(name, &[args, &computed].concat());
        }
        let signature = bind::Signature::of(body)?;
        let symbols = signature.bind(args, self.mode)?;
        let mut frame = Frame::new(self, body, symbols, 0)?;
        let results = match root.name().as_str() {
            op::func::FUNC | op::loop_::KERNEL => {
                let inputs = args.iter().map(|t| Array::host(t.clone())).zip(&signature.inputs);
                let inputs = inputs.map(|(a, ty)| if ty.is_scalar() { a.element(0) } else { Value::Array(a) });
                let results = frame.run(inputs.collect())?;
                results.into_iter().zip(signature.results.iter().copied()).collect()
            }
            op::host::FUNC => {
                self.run_planned(&mut frame, &signature, args.iter().map(|t| Array::host(t.clone())).collect())?
            }
            _ => {
                return Err(root.unsupported("as an entry of the interpreter").help("run a function that launches it"));
            }
        };
        results.into_iter().map(|(v, ty)| self.to_tensor(root.loc(), v, ty)).collect()
    }

    fn to_tensor(&self, loc: Loc, value: Value, ty: rc_ir::Type) -> Result<Tensor> {
        let elem = ty.elem();
        let array = match value {
            Value::Array(array) => array,
            scalar => Array::splat(vec![], &scalar),
        };
        let dtype = if elem.is_float() && self.mode == Mode::Float64 { Some(DType::F64) } else { dtype_of(elem) };
        let dtype =
            dtype.ok_or_else(|| Diagnostic::unsupported(loc, format!("a result of type {ty} as a host tensor")))?;
        let tensor = if array.is_float() {
            Tensor::from_f64(dtype, &array.shape, &array.as_floats())
        } else {
            Tensor::from_i64(dtype, &array.shape, &array.as_ints())
        };
        tensor.map_err(|e| Diagnostic::error(loc, e.to_string()))
    }

    fn missing(&self, name: &str) -> Box<Diagnostic> {
        let known: Vec<&str> = self.module.bodies.iter().filter_map(|b| b.symbol()).map(Name::as_str).collect();
        let hint = rc_ir::suggest::did_you_mean(name, known.iter().copied());
        let error = Diagnostic::error(self.module.loc, format!("the module has no function '@{name}'{hint}"));
        if known.is_empty() { error } else { error.help(format!("it has @{}", known.join(", @"))) }
    }
}
