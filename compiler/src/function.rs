//! Functions that are compiled where they run.

use crate::variants::{Found, News, Policy, Variants, filled, narrowed, settle};
use crate::{Compiled, Target, compile_cached, is_compiled};
use rc_ir::{Diagnostic, Module, Name};
use rc_runtime::{Allocator, DType, Model, Place, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// A module's first function, compiled for all sizes that it takes, and again for those that calls come back to.
///
/// Each of its programs takes what is declared constant (`rc.constant`) from the first call that it serves, so every call has to give it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (module, x): (rc_ir::Module, rc_runtime::Tensor) = unimplemented!();
/// use rc::variants::Policy;
/// use rc::{Function, Target};
/// use rc_runtime::Place;
/// let f = Function::compile(&module, &Target::host(), Place::Cpu, Policy::default()).map_err(|e| e[0].to_string())?;
/// let y = f.run(&[x])?;
/// f.explain().iter().for_each(|line| println!("{line}"));
/// # Ok(()) }
/// ```
pub struct Function {
    general: Arc<Model>,
    /// None of a function without symbols, or that came compiled.
    variants: Option<Variants<Model>>,
    source: Arc<Source>,
    allocator: Option<Arc<dyn Allocator>>,
    news: Mutex<Vec<News>>,
}

/// What programs are compiled from.
struct Source {
    module: Module,
    target: Target,
    place: Place,
    /// The symbols whose sizes are filled up.
    filled: Vec<Name>,
}

impl Function {
    /// Compiles the function for a processor of this machine, or takes it from the cache. What the compiler warns of is news.
    ///
    /// # Errors
    /// The compiler's; code that cannot be loaded here.
    pub fn compile(
        module: &Module,
        target: &Target,
        place: Place,
        policy: Policy,
    ) -> Result<Function, Vec<Diagnostic>> {
        let (general, warnings) = match is_compiled(module) {
            true => (Model::of_module(module, None, place).map_err(|d| vec![*d])?, Vec::new()),
            false => compiled(module, target, place)?,
        };
        let symbols = general.signature().symbols.clone();
        let varies = !is_compiled(module) && policy.limit > 0 && !symbols.is_empty();
        let at_once = policy.at_once || module.attr("rc.deterministic").is_some();
        let (filled, refused) = if varies { filled(module, target, &policy) } else { Default::default() };
        let variants = varies.then(|| Variants::new(symbols, Policy { at_once, ..policy }, filled.clone()));
        let warnings = warnings.iter().map(|d| News::Warning(d.render()));
        Ok(Function {
            general: Arc::new(general),
            variants,
            source: Arc::new(Source { module: module.clone(), target: target.clone(), place, filled }),
            allocator: None,
            news: Mutex::new(warnings.chain(refused).collect()),
        })
    }

    /// Has runs take what memory they need of the caller, as [`Model::with_allocator`] says.
    ///
    /// # Panics
    /// Once it has run.
    pub fn with_allocator(mut self, allocator: Arc<dyn Allocator>) -> Function {
        let general = Arc::into_inner(self.general).expect("nobody else has the program yet");
        self.general = Arc::new(general.with_allocator(allocator.clone()));
        self.allocator = Some(allocator);
        self
    }

    /// The program that serves all sizes; its signature is the function's.
    pub fn general(&self) -> &Arc<Model> {
        &self.general
    }

    /// The program for a call with arguments of these dtypes and shapes, compiled here if one is due. Where this is no time to compile (`may_make`),
    /// since a stream is being captured, a later call does it.
    pub fn program(&self, args: &[(DType, &[usize])], may_make: impl FnOnce() -> bool) -> Arc<Model> {
        let Some(variants) = &self.variants else { return self.general.clone() };
        // What does not fit is said by the program that serves all.
        let Ok(sizes) = self.general.sizes(args) else { return self.general.clone() };
        let (source, allocator) = (self.source.clone(), self.allocator.clone());
        let Found { program, news } = variants.find(&sizes, may_make, move |ranges| {
            let module = narrowed(&source.module, ranges, &source.filled);
            let made = compiled(&module, &source.target, source.place);
            let (model, _) = made.map_err(|errors| errors.first().map(|e| e.message.clone()).unwrap_or_default())?;
            Ok(match allocator {
                Some(allocator) => model.with_allocator(allocator),
                None => model,
            })
        });
        if !news.is_empty() {
            self.news.lock().unwrap_or_else(PoisonError::into_inner).extend(news);
        }
        program.unwrap_or_else(|| self.general.clone())
    }

    /// Runs the function, as [`Model::run`] does.
    ///
    /// # Errors
    /// As there.
    pub fn run(&self, args: &[Tensor]) -> rc_runtime::Result<Vec<Tensor>> {
        let kinds: Vec<_> = args.iter().map(|arg| (arg.dtype(), arg.shape())).collect();
        self.program(&kinds, || true).run(args)
    }

    /// What happened since this was called last: programs that were made, and warnings.
    pub fn news(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The programs that there are, a line each: for which sizes, the calls that they served, and why they were made.
    pub fn explain(&self) -> Vec<String> {
        self.variants.as_ref().map(Variants::explain).unwrap_or_default()
    }

    /// Waits until nothing is being compiled behind, by any function.
    pub fn settle() {
        settle();
    }
}

fn compiled(module: &Module, target: &Target, place: Place) -> Result<(Model, Vec<Diagnostic>), Vec<Diagnostic>> {
    let Compiled { module, report, .. } = compile_cached(module, target);
    if !report.succeeded() {
        return Err(report.errors);
    }
    let model = Model::of_module(&module, None, place).map_err(|d| vec![*d])?;
    let is_warning = |d: &Diagnostic| d.severity == rc_ir::Severity::Warning;
    Ok((model, report.diagnostics.into_iter().filter(is_warning).collect()))
}
