//! Programs for ranges of a graph's symbolic sizes, compiled when calls come back to them.

use super::tensors::Turns;
use super::{Call, Loaded, PyProgram};
use pyo3::prelude::*;
use rc::Target;
use rc::variants::{Found, News, Policy, Variants, narrowed};
use rc_dialects::func::SymbolDecl;
use rc_ir::{Module, Name};
use rc_runtime::cuda::{Device, Stream};
use rc_runtime::program::Bindings;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What programs for ranges of sizes are compiled from.
pub struct Fits {
    variants: Variants<Fitted>,
    source: Arc<Source>,
    /// Why sizes are not filled up, until it is said.
    refused: Mutex<Option<News>>,
}

struct Source {
    module: Module,
    target: Target,
    gpu: Option<Arc<Device>>,
    filled: Vec<Name>,
}

/// A program for a range of sizes, and what happens between its steps.
pub struct Fitted {
    pub(super) loaded: Loaded,
    turns: OnceLock<Turns>,
}

impl Fitted {
    pub(super) fn turns(&self, call: &Call) -> &Turns {
        self.turns.get_or_init(|| {
            let args: Vec<usize> = call.inputs.iter().map(|input| input.arg).collect();
            Turns::new(self.loaded.program(), &args, &call.returns)
        })
    }
}

impl Fits {
    /// Of a module whose first function has these symbols.
    pub fn new(
        module: &Module,
        symbols: &[SymbolDecl],
        target: Target,
        gpu: Option<Arc<Device>>,
        policy: Policy,
    ) -> Fits {
        let at_once = policy.at_once || module.attr("rc.deterministic").is_some();
        let (filled, refused) = rc::variants::filled(module, &target, &policy);
        let variants = Variants::new(symbols.to_vec(), Policy { at_once, ..policy }, filled.clone());
        let source = Arc::new(Source { module: module.clone(), target, gpu, filled });
        Fits { variants, source, refused: Mutex::new(refused) }
    }
}

impl Source {
    fn compile(&self, ranges: &[SymbolDecl]) -> Result<Loaded, String> {
        // Another thread may be capturing a stream, which loading code here is no part of.
        let _relaxed = self.gpu.as_ref().map(|gpu| gpu.relaxed());
        let narrowed = narrowed(&self.module, ranges, &self.filled);
        let rc::Compiled { module, report, .. } = rc::compile_cached(&narrowed, &self.target);
        if let Some(error) = report.errors.into_iter().next() {
            return Err(error.message);
        }
        Loaded::of(&module, self.gpu.as_ref()).map_err(|e| e.message)
    }

    /// Whether PyTorch captures its current stream. The default one has an error to tell while another one is captured.
    fn is_captured(&self, stream: usize) -> bool {
        let Some(gpu) = &self.gpu else { return false };
        // SAFETY: PyTorch's current stream is one of the device.
        unsafe { Stream::borrow(gpu, stream as *mut std::ffi::c_void) }.is_capturing().unwrap_or(true)
    }
}

impl PyProgram {
    /// The program for these sizes, where there is one beside that for all. One that cannot be compiled is a warning, and while PyTorch captures a graph
    /// nothing is compiled: a later call does it.
    pub(super) fn fitted(&self, py: Python<'_>, call: &Call, sizes: &Bindings) -> PyResult<Option<Arc<Fitted>>> {
        let Some(fits) = self.fits.get() else { return Ok(None) };
        let source = fits.source.clone();
        let stream = if source.gpu.is_some() { call.exchange.stream(py, self.device)? as usize } else { 0 };
        let captured = || fits.source.is_captured(stream);
        let graphs = call.graphs;
        let make = move |ranges: &[SymbolDecl]| -> Result<Fitted, String> {
            let loaded = rc_runtime::threads::on_team(|| source.compile(ranges)).map_err(|e| e.to_string())??;
            loaded.set_graphs(graphs);
            Ok(Fitted { loaded, turns: OnceLock::new() })
        };
        let Found { program, news } = py.detach(|| fits.variants.find(sizes, || !captured(), make));
        let refused = fits.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        for what in refused.into_iter().chain(news) {
            match what {
                News::Made(what) => say(py, "say", ("time", what))?,
                News::Warning(why) => say(py, "warn", (why,))?,
            }
        }
        Ok(program)
    }

    /// The programs for ranges of sizes, a line each.
    pub(super) fn explained(&self) -> Vec<String> {
        self.fits.get().map_or(Vec::new(), |fits| fits.variants.explain())
    }

    /// What became of their launches on a GPU.
    pub(super) fn explained_graphs(&self) -> Vec<String> {
        let made = self.fits.get().map_or(Vec::new(), |fits| fits.variants.made());
        let lines = |(sizes, fitted): (String, Arc<Fitted>)| {
            fitted.loaded.explain_graphs().into_iter().map(move |line| format!("{sizes}: {line}"))
        };
        made.into_iter().flat_map(lines).collect()
    }
}

fn say<'py>(py: Python<'py>, how: &str, what: impl pyo3::call::PyCallArgs<'py>) -> PyResult<()> {
    py.import("rc.torch.logs")?.call_method1(how, what).map(drop)
}
