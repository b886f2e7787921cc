//! A module: its text, and compiling it.

use crate::dim::to_python;
use crate::errors::error;
use crate::model::PyModel;
use crate::program::PyProgram;
use crate::threads::on_team;
use crate::view;
use pyo3::prelude::*;
use rc::cache::Key;
use rc::variants::Policy;
use rc::{Target, TuneOptions, Tuning};
use rc_ir::pass::Report;
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Diagnostic, Loc, Module, Severity, Type};
use rc_runtime::cuda::Device;
use rc_runtime::safetensors::SafetensorsFile;
use rc_runtime::threads;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program, the compiler's remarks and its warnings, the compiled module's text, the seconds of compiling and loading, and whether the module
/// is from the cache.
type Compiled = (PyProgram, Vec<String>, Vec<String>, Option<String>, (f64, f64), bool);

/// How many programs for ranges of symbolic sizes, whether behind, and buckets.
type Wanted = (usize, bool, Vec<i64>);

/// Two modules, what is kept between them, and remarks.
type Divided = (PyModule, PyModule, Vec<usize>, Vec<(String, Vec<Py<PyAny>>)>, Vec<String>);

/// A module of rc.
#[pyclass(name = "Module")]
pub struct PyModule(pub Module);

#[pymethods]
impl PyModule {
    /// The module that a text in either form says; `name` is what diagnostics call it.
    #[staticmethod]
    fn parse(py: Python<'_>, text: String, name: &str) -> PyResult<PyModule> {
        let done = on_team(py, || -> Result<Module, Vec<Diagnostic>> {
            let (module, diagnostics) = rc_parser::parse_module(name, text);
            let module = module.ok_or(diagnostics)?;
            let errors = rc::verify(&module);
            if errors.is_empty() { Ok(module) } else { Err(errors) }
        })?;
        done.map(PyModule).map_err(|errors| error(py, &errors))
    }

    /// The module as passes leave it, and what they said: remarks and warnings. `target`: the processor that they are for.
    #[pyo3(signature = (pipeline, target=None))]
    fn passes(&self, py: Python<'_>, pipeline: &str, target: Option<&str>) -> PyResult<(PyModule, Vec<String>)> {
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let mut module = self.0.clone();
            if let Some(target) = target {
                processor(target).map_err(|d| vec![*d])?.set_on(&mut module);
            }
            let passes = rc_parser::pipeline::parse_pipeline("pipeline", pipeline)?;
            let report = rc_ir::pass::PassManager::new(passes).run(&mut module);
            if report.succeeded() { Ok((module, report)) } else { Err(report.errors) }
        })?;
        let (module, report) = done.map_err(|errors| error(py, &errors))?;
        Ok((PyModule(module), report.diagnostics.iter().map(Diagnostic::render).collect()))
    }

    /// Machine code of the first function for a processor of this machine, `cpu` or `cuda:0`, ready to run; from the cache, where it has it. `variants`: how
    /// many programs for ranges of symbolic sizes may be made, whether behind the calls, and the buckets that sizes are
    /// filled up to.
    #[pyo3(signature = (device, variants=(0, false, Vec::new())))]
    fn model(&self, py: Python<'_>, device: &str, variants: Wanted) -> PyResult<PyModel> {
        let place = crate::model::place(py, device)?;
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let (target, _) = target(device).map_err(|e| vec![*e])?;
            rc::Function::compile(&self.0, &target, place, policy(variants))
        })?;
        PyModel::of(py, done.map_err(|errors| error(py, &errors))?)
    }

    /// What the module's functions are called.
    fn functions(&self) -> Vec<String> {
        let named = self.0.bodies.iter().filter_map(|body| body.attr(body.root(), "sym_name")?.as_str());
        named.map(str::to_string).collect()
    }

    /// Compiles the module for each processor and writes a package, with the arrays for the arguments of their names in it.
    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        targets: Vec<String>,
        weights: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let (mut tensors, mut held) = (Vec::new(), Vec::new());
        for (name, array) in weights {
            let argument = crate::array::read(&array, &|| format!("the weight '{name}'"))?;
            tensors.push((name, argument.tensor));
            held.push(argument.held);
        }
        let done = on_team(py, || -> Result<(), Vec<Diagnostic>> {
            let targets = targets.iter().map(|name| processor(name)).collect::<rc_ir::Result<_>>();
            let targets = targets.map_err(|d| vec![*d])?;
            rc::Packing { targets, weights: tensors, ..rc::Packing::default() }.write(&self.0, &path)
        })?;
        done.map_err(|errors| error(py, &errors))
    }

    /// The module as text.
    #[pyo3(signature = (locations=false))]
    fn text(&self, locations: bool) -> String {
        print_module(&self.0, &PrintOptions { debug_info: locations, ..PrintOptions::PRETTY })
    }

    /// From now on sums are formed in the same order at every run, also where another one is faster.
    fn set_deterministic(&mut self) {
        self.0.set_attr("rc.deterministic", rc_ir::Attr::bool(true));
    }

    /// From now on kernels may keep a float's precision between operations on 16 bits.
    fn set_excess_precision(&mut self) {
        self.0.set_attr("rc.excess_precision", rc_ir::Attr::bool(true));
    }

    /// From now on it is an error where the intermediate results of a function take more bytes.
    fn set_memory_limit(&mut self, bytes: i64) {
        self.0.set_attr("rc.memory_limit", rc_ir::Attr::i64(bytes));
    }

    /// Measures the schedules of the kernels that the file does not have for this machine, and adds what was found to it, also when a signal handler
    /// raises. Gives a line for each kernel, and why candidates were skipped.
    fn tune(&self, py: Python<'_>, device: &str, file: PathBuf) -> PyResult<(Vec<String>, Vec<String>)> {
        let stop = AtomicBool::new(false);
        let mut raised = None;
        let done = std::thread::scope(|scope| {
            let worker = scope.spawn(|| self.tune_on_team(device, &file, &|| stop.load(Ordering::Relaxed)));
            while !worker.is_finished() {
                py.detach(|| std::thread::sleep(Duration::from_millis(10)));
                if let Err(error) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    raised.get_or_insert(error);
                }
            }
            worker.join()
        });
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        raised.map_or_else(|| done.map_err(|errors| error(py, &errors)), Err)
    }

    /// The function with what it keeps for its derivative, and that, as modules; what the derivative takes first, by numbers of the function's arguments
    /// and, after them, results; the element types and sizes of what is kept besides the function's own results; and remarks. Differentiated are `results`
    /// for `arguments`; `budget` is the share of what would be kept without it.
    fn differentiate(
        &self,
        py: Python<'_>,
        device: &str,
        arguments: Vec<usize>,
        results: Vec<usize>,
        budget: f64,
    ) -> PyResult<Divided> {
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let (target, _) = target(device).map_err(|e| vec![*e])?;
            let own = types_of_results(&self.0).len();
            let divided = rc::divide(&self.0, arguments, results, budget, &target)?;
            let kept = types_of_results(&divided.forward)[own..].to_vec();
            Ok((divided, kept))
        })?;
        let (rc::Divided { forward, backward, saved, remarks }, kept) = done.map_err(|errors| error(py, &errors))?;
        let sizes = |ty: &Type| ty.shape().into_iter().map(|d| to_python(py, d)).collect::<PyResult<Vec<_>>>();
        let kept = kept.iter().map(|ty| Ok((ty.elem().to_string(), sizes(ty)?))).collect::<PyResult<Vec<_>>>()?;
        let remarks = remarks.iter().map(Diagnostic::render).collect();
        Ok((PyModule(forward), PyModule(backward), saved, kept, remarks))
    }

    /// A backward function's module without the gradients of results of these numbers, which are zero.
    fn without(&self, absent: Vec<usize>) -> PyModule {
        PyModule(rc::without(&self.0, &absent))
    }

    /// A backward function's module that gives a value once where several results of one kind are that value, and which of its results each is.
    fn give_once(&self, kinds: Vec<usize>) -> (PyModule, Vec<usize>) {
        let (module, numbers) = rc::give_once(&self.0, &kinds);
        (PyModule(module), numbers)
    }

    /// What the arguments of the module's first function are called.
    fn argument_names(&self) -> Vec<String> {
        let first = self.0.bodies.iter().find(|body| !body.is_private());
        first.map(rc_dialects::func::arg_names).unwrap_or_default().iter().map(|name| name.to_string()).collect()
    }

    /// Compiles the module for each architecture (`host`, `x86-64-v3`, `sm_90a`) and writes a package, with the tensors of a `.safetensors` file for
    /// the arguments of their names: inside of it, or where `beside` in that file, which is in the package's folder.
    fn package(&self, py: Python<'_>, path: &str, archs: Vec<String>, weights: &str, beside: bool) -> PyResult<()> {
        let done = on_team(py, || -> Result<(), Vec<Diagnostic>> {
            let fail = |why: String| vec![*Diagnostic::error(Loc::UNKNOWN, why)];
            let targets = archs.iter().map(|name| processor(name)).collect::<rc_ir::Result<_>>();
            let targets = targets.map_err(|d| vec![*d])?;
            let mut packing = rc::Packing { targets, ..rc::Packing::default() };
            let file = SafetensorsFile::open(weights).map_err(|e| fail(e.to_string()))?;
            let names = file.names().map(str::to_string);
            if beside {
                packing.beside = Some((Path::new(weights), names.collect()));
            } else {
                let tensor = |name: String| Ok((name.clone(), file.tensor(&name)?));
                let tensors = names.map(tensor).collect::<rc_runtime::Result<_>>();
                packing.weights = tensors.map_err(|e| fail(e.to_string()))?;
            }
            packing.write(&self.0, Path::new(path))
        })?;
        done.map_err(|errors| error(py, &errors))
    }

    /// Compiles for this machine's CPU (`cpu`), or for a GPU (`cuda:0`), to where all is known that rc cannot do: [`PyCompiling::finish`] does the rest. `text`: the
    /// compiled module's text is asked for; `anew`: it is not taken from the cache, and remarks are given. `tuning`: a file of measured
    /// schedules, which count before the planners'; what is compiled with it is not kept.
    #[pyo3(signature = (device, text, anew, tuning=None))]
    fn compile(
        &self,
        py: Python<'_>,
        device: &str,
        text: bool,
        anew: bool,
        tuning: Option<PathBuf>,
    ) -> PyResult<PyCompiling> {
        let module = &self.0;
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let (target, gpu) = target(device).map_err(|e| vec![*e])?;
            let start = Instant::now();
            let stage = match (&tuning, anew) {
                (Some(file), _) => {
                    let mut module = module.clone();
                    let report = rc::compile_tuned(&mut module, &target, file);
                    Stage::Whole(Box::new(rc::Compiled { module, report, cached: false }))
                }
                (None, _) if view::folder().is_some() => {
                    Stage::Whole(Box::new(view::compile(module, &target, view::folder().unwrap_or_default())))
                }
                (None, true) => Stage::Whole(Box::new(rc::compile_anew(module, &target))),
                (None, false) => Stage::Begun(Box::new(rc::Begun::new(module, &target))),
            };
            let errors = &stage.report().errors;
            if !errors.is_empty() {
                return Err(errors.clone());
            }
            Ok(PyCompiling { source: module.clone(), stage, target, gpu, text, anew, seconds: start.elapsed() })
        })?;
        done.map_err(|errors| error(py, &errors))
    }
}

/// A module that is being compiled.
#[pyclass(name = "Compiling", frozen)]
pub struct PyCompiling {
    source: Module,
    stage: Stage,
    target: Target,
    gpu: Option<Arc<Device>>,
    text: bool,
    anew: bool,
    /// What it took so far.
    seconds: Duration,
}

#[derive(Clone)]
enum Stage {
    Begun(Box<rc::Begun>),
    Whole(Box<rc::Compiled>),
}

impl Stage {
    fn report(&self) -> &Report {
        match self {
            Stage::Begun(begun) => begun.report(),
            Stage::Whole(compiled) => &compiled.report,
        }
    }

    fn finish(self) -> rc::Compiled {
        match self {
            Stage::Begun(begun) => begun.finish(),
            Stage::Whole(compiled) => *compiled,
        }
    }
}

#[pymethods]
impl PyCompiling {
    /// Machine code, which on a GPU is loaded behind the caller's back; the compiler's remarks and warnings; where it is asked for the compiled
    /// module's text; the seconds of compiling and of loading the code; and whether the code is from the cache, which has no remarks. `graph`
    /// and `mapping`: a key under which the cache keeps the code too, for [`cached_graph`], and what it then gives back with it.
    /// `variants`: how many programs for ranges of symbolic sizes may be made, whether behind the calls, and the buckets that sizes are
    /// filled up to.
    #[pyo3(signature = (graph=None, mapping=None, variants=(0, false, Vec::new())))]
    fn finish(
        &self,
        py: Python<'_>,
        graph: Option<&str>,
        mapping: Option<&str>,
        variants: Wanted,
    ) -> PyResult<Compiled> {
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let start = Instant::now();
            let rc::Compiled { module, report, cached } = self.stage.clone().finish();
            let compiled = self.seconds + start.elapsed();
            if !report.succeeded() {
                return Err(report.errors);
            }
            let start = Instant::now();
            let program = PyProgram::load(&module, self.gpu.clone()).map_err(|d| vec![*d])?;
            program.fit(&self.source, self.target.clone(), self.gpu.clone(), policy(variants));
            let load = start.elapsed();
            let (warnings, remarks): (Vec<_>, Vec<_>) =
                report.diagnostics.iter().partition(|d| d.severity == Severity::Warning);
            let rendered = |all: Vec<&Diagnostic>| all.into_iter().map(Diagnostic::render).collect();
            // Who asks for remarks compiles anew.
            let remarks = if self.anew { remarks } else { Vec::new() };
            let (mut warnings, remarks): (Vec<String>, Vec<String>) = (rendered(warnings), rendered(remarks));
            if let (Some(cache), Some(graph), Some(mapping)) = (rc::Cache::open(), graph, mapping) {
                let kept = cache.put(&Key::of_graph(graph, &self.target), &module, &[("mapping", mapping)]);
                warnings.extend(kept.err().filter(|_| warnings.is_empty()));
            }
            let text = self.text.then(|| print_module(&module, &PrintOptions::PRETTY));
            let seconds = (compiled.as_secs_f64(), load.as_secs_f64());
            Ok((program, remarks, warnings, text, seconds, cached))
        })?;
        done.map_err(|errors| error(py, &errors))
    }
}

/// The program that the cache keeps under the key of a graph, and the mapping that was given with it; warnings; the seconds that it took.
#[pyfunction]
pub fn cached_graph(
    py: Python<'_>,
    graph: &str,
    device: &str,
) -> PyResult<(Option<PyProgram>, String, Vec<String>, f64)> {
    let start = Instant::now();
    let done = py.detach(|| -> Result<_, Box<Diagnostic>> {
        let Some(cache) = rc::Cache::open() else { return Ok((None, String::new(), Vec::new())) };
        let (target, gpu) = target(device)?;
        match cache.get(&Key::of_graph(graph, &target)) {
            Ok(Some((module, mut notes))) => {
                let mapping = notes.remove("mapping").unwrap_or_default();
                Ok(match PyProgram::load(&module, gpu) {
                    Ok(program) => (Some(program), mapping, Vec::new()),
                    Err(d) => (None, mapping, vec![format!("the cache's entry is not used: {}", d.message)]),
                })
            }
            Ok(None) => Ok((None, String::new(), Vec::new())),
            Err(warning) => Ok((None, String::new(), vec![warning])),
        }
    });
    let (program, mapping, warnings) = done.map_err(|e| error(py, &[*e]))?;
    Ok((program, mapping, warnings, start.elapsed().as_secs_f64()))
}

/// A processor by its name: `host`, `x86-64-v3`, `sm_90a`.
fn processor(name: &str) -> rc_ir::Result<Target> {
    let machine = if name.starts_with("sm_") { "cuda" } else { "cpu" };
    Target::find(machine, Some(name)).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))
}

/// The pipeline from a module as a frontend writes it to a processor's machine code.
#[pyfunction]
pub fn pipeline(py: Python<'_>, target: &str) -> PyResult<String> {
    Ok(rc::pipeline(&processor(target).map_err(|e| error(py, &[*e]))?))
}

/// The versions of what rc is made of, and the processors that it knows.
#[pyfunction]
pub fn versions() -> &'static str {
    rc::versions()
}

fn policy((limit, behind, buckets): Wanted) -> Policy {
    Policy { limit, behind, buckets, ..Policy::default() }
}

/// The processor that PyTorch calls `device`, and the GPU that it is.
fn target(device: &str) -> rc_ir::Result<(Target, Option<Arc<Device>>)> {
    let fail = |why: String| Diagnostic::error(Loc::UNKNOWN, why);
    let Some(rest) = device.strip_prefix("cuda") else { return Ok((Target::host(), None)) };
    let gpu = Device::open(rest.trim_start_matches(':').parse().unwrap_or(0)).map_err(|e| fail(e.to_string()))?;
    Ok((Target::cuda(&gpu.info().arch()).map_err(fail)?, Some(gpu)))
}

/// The types of the results of a module's first function.
fn types_of_results(module: &Module) -> Vec<Type> {
    let first = module.bodies.iter().find(|body| !body.is_private());
    let ty = first.and_then(|body| body.attr(body.root(), "function_type")).and_then(|t| t.as_type());
    ty.and_then(Type::as_function).map(|(_, results)| results.to_vec()).unwrap_or_default()
}

impl PyModule {
    fn tune_on_team(
        &self,
        device: &str,
        file: &Path,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Vec<String>, Vec<String>), Vec<Diagnostic>> {
        let fail = |why: String| vec![*Diagnostic::error(Loc::UNKNOWN, why)];
        let work = || {
            let (target, _) = target(device).map_err(|e| vec![*e])?;
            let known = if file.exists() { Tuning::read(file).map_err(|d| vec![*d])? } else { Tuning::default() };
            let tuned = rc::tune(&self.0, &target, &known, &TuneOptions::default(), stop)?;
            let found: Vec<String> = tuned.found.entries().map(rc::describe).collect();
            if !found.is_empty() || !file.exists() {
                rc::update(file, tuned.found).map_err(|d| vec![*d])?;
            }
            Ok((found, tuned.skipped))
        };
        threads::on_team(work).unwrap_or_else(|e| Err(fail(e.to_string())))
    }
}
