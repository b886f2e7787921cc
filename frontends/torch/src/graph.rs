//! A function under construction.

use crate::attrs::{attribute, element};
use crate::dim::{AnyDim, dims, to_python};
use crate::errors::{error, plain};
use crate::module::PyModule;
use crate::threads::on_team;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rc::RECOMPUTE;
use rc_dialects::core::scalar::{Scalar, splat_attr};
use rc_dialects::func::{SymbolDecl, return_op, set_constant_args, set_donated_args, set_symbols, set_updates};
use rc_dialects::op;
use rc_ir::builder::{NewFunc, OpBuilder, new_function};
use rc_ir::{Attr, Builder, Loc, Module, Name, OpName, Type, Value};
use std::sync::Mutex;

/// A value of the graph that made it.
#[pyclass(name = "Value", frozen, eq, hash, from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyValue(Value);

/// A function under construction, and the location of the next operation.
#[pyclass(name = "Graph", frozen)]
pub struct PyGraph(Mutex<Option<State>>);

struct State {
    func: NewFunc,
    inputs: Vec<Type>,
    loc: Loc,
    /// Whether what is built next is computed again for the derivative.
    again: bool,
}

/// The result types of an op that does not infer them: of its one result, or of all of them.
#[derive(FromPyObject)]
enum Results {
    One(ResultType),
    All(Vec<ResultType>),
}

/// A result type as Python gives it: an element type and a shape; no shape for a scalar.
type ResultType = (String, Option<Vec<AnyDim>>);

#[pymethods]
impl PyGraph {
    /// `args`: (name, element type, shape). `constants` are those that are the same at most calls, by their numbers: what follows from them alone
    /// is kept. `donated` are those whose memory the function may write to.
    #[new]
    #[pyo3(signature = (name, args, constants=Vec::new(), donated=Vec::new()))]
    fn new(
        name: &str,
        args: Vec<(String, String, Vec<AnyDim>)>,
        constants: Vec<usize>,
        donated: Vec<usize>,
    ) -> PyResult<PyGraph> {
        let ty = |(_, elem, shape): &(String, String, Vec<AnyDim>)| Ok(Type::tensor(&dims(shape), element(elem)?));
        let inputs = args.iter().map(ty).collect::<PyResult<Vec<Type>>>()?;
        let mut func = new_function(op::func::FUNC, name, &inputs, &[], Loc::UNKNOWN);
        for (&value, (name, ..)) in func.args.iter().zip(&args) {
            func.body.set_value_name(value, Name::new(name));
        }
        let names = args.iter().map(|(name, ..)| Attr::dict([(Name::new("rc.name"), Attr::str(name))]));
        let root = func.body.root();
        func.body.set_attr(root, "arg_attrs", Attr::array(&names.collect::<Vec<_>>()));
        set_constant_args(&mut func.body, constants);
        set_donated_args(&mut func.body, donated);
        Ok(PyGraph(Mutex::new(Some(State { func, inputs, loc: Loc::UNKNOWN, again: false }))))
    }

    /// The arguments' values.
    fn args(&self, py: Python<'_>) -> PyResult<Vec<PyValue>> {
        self.with(py, |state| Ok(state.func.args.iter().map(|&v| PyValue(v)).collect()))
    }

    /// The location of what is built next: a name, and a line of Python where it is known. `again`: that is not kept for the derivative, but computed again.
    #[pyo3(signature = (name, file=None, line=0, again=false))]
    fn at(&self, py: Python<'_>, name: &str, file: Option<&str>, line: u32, again: bool) -> PyResult<()> {
        self.with(py, |state| {
            state.again = again;
            state.loc = Loc::named(name, file.map_or(Loc::UNKNOWN, |file| Loc::file(file, line, 1)));
            Ok(())
        })
    }

    /// Makes an operation. `groups` holds, for each group of operands that the op declares, a value, a list of values, or None;
    /// `result` is (element type, shape), or a list of them, for ops that do not infer it. Gives the result, or a list unless there is one.
    #[pyo3(signature = (name, groups, attrs=None, result=None))]
    fn op(
        &self,
        py: Python<'_>,
        name: &str,
        groups: &Bound<'_, PyAny>,
        attrs: Option<&Bound<'_, PyDict>>,
        result: Option<Results>,
    ) -> PyResult<Py<PyAny>> {
        let full = OpName::new(&format!("rc.{name}"));
        let Some(def) = full.def() else { return Err(PyTypeError::new_err(format!("there is no operation '{name}'"))) };
        let results = match result {
            Some(Results::One(one)) => Some(vec![result_type(one)?]),
            Some(Results::All(all)) => Some(all.into_iter().map(result_type).collect::<PyResult<_>>()?),
            None => None,
        };
        let built = self.with(py, |state| {
            let again = state.again;
            let mut builder = state.builder();
            let mut op: OpBuilder = builder.op(full);
            for group in groups.try_iter()? {
                op = op.operands(&values(&group?)?);
            }
            for (key, value) in attrs.into_iter().flatten() {
                let key: String = key.extract()?;
                op = op.attr(&key, attribute(def, &key, &value)?);
            }
            let op = if let Some(types) = &results { op.results(types) } else { op };
            let op = if again { op.attr(RECOMPUTE, Attr::bool(true)) } else { op };
            let op = op.try_build().map_err(|d| error(py, &[*d]))?;
            Ok(state.func.body.results(op).map(PyValue).collect::<Vec<_>>())
        })?;
        match built.as_slice() {
            [one] => Ok(one.into_pyobject(py)?.into_any().unbind()),
            _ => Ok(PyList::new(py, built)?.into_any().unbind()),
        }
    }

    /// A constant with one number in every element: a scalar where there is no shape.
    fn splat(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        elem: &str,
        shape: Option<Vec<AnyDim>>,
    ) -> PyResult<PyValue> {
        let elem = element(elem)?;
        let scalar = if elem.is_float() { Scalar::Float(value.extract()?) } else { Scalar::Int(value.extract()?) };
        let shape = shape.map(|s| dims(&s));
        let fixed = shape.as_ref().is_none_or(|s| s.iter().all(|d| d.is_static()));
        let ty = match &shape {
            Some(shape) if fixed => Type::tensor(shape, elem),
            _ => elem,
        };
        self.with(py, |state| {
            let attr = splat_attr(ty, scalar).ok_or_else(|| plain(py, format!("{value} is no {elem}")))?;
            let mut b = state.builder();
            let constant = b.op(op::core::CONSTANT).attr("value", attr).result(ty).value();
            match &shape {
                Some(shape) if !fixed => {
                    let op = b.op(op::core::BROADCAST).operand(constant).attr("dims", Attr::i64s(&[]));
                    Ok(PyValue(op.result(Type::tensor(shape, elem)).value()))
                }
                _ => Ok(PyValue(constant)),
            }
        })
    }

    /// A constant tensor of these bytes, row-major.
    fn dense(&self, py: Python<'_>, bytes: &[u8], elem: &str, shape: Vec<i64>) -> PyResult<PyValue> {
        let ty = Type::tensor_of(&shape, element(elem)?);
        let expected = ty.num_elements().as_static().zip(ty.elem().byte_width()).map(|(n, size)| n as u64 * size);
        if expected != Some(bytes.len() as u64) {
            return Err(PyTypeError::new_err(format!("{} bytes for a constant of type {ty}", bytes.len())));
        }
        self.with(py, |state| {
            Ok(PyValue(state.builder().op(op::core::CONSTANT).attr("value", Attr::dense(ty, bytes)).result(ty).value()))
        })
    }

    /// The element type of a value.
    fn dtype(&self, py: Python<'_>, value: PyValue) -> PyResult<String> {
        self.with(py, |state| Ok(state.func.body.ty(value.0).elem().to_string()))
    }

    /// The shape of a value: integers and `Dim`s.
    fn shape(&self, py: Python<'_>, value: PyValue) -> PyResult<Vec<Py<PyAny>>> {
        let shape = self.with(py, |state| Ok(state.func.body.ty(value.0).shape()))?;
        shape.into_iter().map(|d| to_python(py, d)).collect()
    }

    /// Names a value in the text.
    fn name(&self, py: Python<'_>, value: PyValue, name: &str) -> PyResult<()> {
        self.with(py, |state| {
            state.func.body.set_value_name(value.0, Name::new(name));
            Ok(())
        })
    }

    /// Returns these values, declares the symbols (name, least, greatest, divisor), and gives the module, with `functions`, modules of functions
    /// that this one calls, as private ones; the graph is used up. `updates`: (result, argument) of results that are left in arguments' memory.
    #[pyo3(signature = (results, symbols, functions=Vec::new(), updates=Vec::new()))]
    fn finish(
        &self,
        py: Python<'_>,
        results: Vec<PyValue>,
        symbols: Vec<(String, i64, i64, i64)>,
        functions: Vec<PyRef<'_, PyModule>>,
        updates: Vec<(usize, usize)>,
    ) -> PyResult<PyModule> {
        let taken = self.lock().take();
        let mut state = taken.ok_or_else(used_up)?;
        let results: Vec<Value> = results.iter().map(|v| v.0).collect();
        let types: Vec<Type> = results.iter().map(|&v| state.func.body.ty(v)).collect();
        state.loc = Loc::UNKNOWN;
        return_op(&mut state.builder(), &results);
        let mut body = state.func.body;
        let root = body.root();
        body.set_attr(root, "function_type", Attr::ty(Type::function(&state.inputs, &types)));
        set_updates(&mut body, &updates);
        if !symbols.is_empty() {
            let decls =
                symbols.iter().map(|(name, min, max, divisor)| SymbolDecl::new(name, *min, *max).multiple_of(*divisor));
            set_symbols(&mut body, &decls.collect::<Vec<_>>());
        }
        let mut module = Module::default();
        module.push(body);
        for mut function in functions.iter().flat_map(|m| m.0.bodies.iter().cloned()) {
            let root = function.root();
            function.set_attr(root, "sym_visibility", Attr::str("private"));
            module.push(function);
        }
        let errors: Vec<_> = on_team(py, || rc::verify(&module))?;
        if !errors.is_empty() {
            return Err(error(py, &errors));
        }
        Ok(PyModule(module))
    }
}

impl PyGraph {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<State>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
    fn with<T>(&self, _: Python<'_>, f: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
        f(self.lock().as_mut().ok_or_else(used_up)?)
    }
}

impl State {
    fn builder(&mut self) -> Builder<'_> {
        let mut b = Builder::at_end(&mut self.func.body, self.func.entry);
        b.loc = self.loc;
        b
    }
}

fn used_up() -> PyErr {
    PyTypeError::new_err("the graph is finished")
}

fn result_type((elem, shape): ResultType) -> PyResult<Type> {
    let elem = element(&elem)?;
    Ok(shape.map_or(elem, |shape| Type::tensor(&dims(&shape), elem)))
}

/// One group of operands.
fn values(group: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    if group.is_none() {
        return Ok(Vec::new());
    }
    if let Ok(value) = group.cast::<PyValue>() {
        return Ok(vec![value.get().0]);
    }
    group.try_iter()?.map(|v| Ok(v?.extract::<PyValue>()?.0)).collect()
}
