//! What has to stay true of a module while it gets smaller.

use rc_dialects::op;
use rc_ir::pass::PassManager;
use rc_ir::{Diagnostic, Module, Name, Severity};
use rc_parser::pipeline::parse_pipeline;
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::program::Bindings;
use rc_runtime::random::random_inputs;
use rc_runtime::tensor::{Tolerance, compare};
use regex::Regex;
use std::io::Write;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;
use wait_timeout::ChildExt;

/// A question about a module. Several threads ask at once, about different modules.
pub trait Test: Sync {
    fn holds(&self, module: &Module) -> bool;
}

/// A shell command that ends with exit code 0.
pub struct Command {
    /// `%s` in it is the file with the module; without one the file is the last argument.
    pub text: String,
    /// A command that takes longer is ended, and the test does not hold.
    pub limit: Duration,
    /// Give the command MLIR's generic form.
    pub generic: bool,
}

impl Test for Command {
    fn holds(&self, module: &Module) -> bool {
        self.run(module).unwrap_or(false)
    }
}

impl Command {
    fn run(&self, module: &Module) -> std::io::Result<bool> {
        use rc_ir::print::{PrintOptions, print_module};
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("module.ir");
        let form = if self.generic { PrintOptions::GENERIC } else { PrintOptions::PRETTY };
        std::fs::File::create(&path)?.write_all(print_module(module, &form).as_bytes())?;
        let file = path.display().to_string();
        let text = match self.text.contains("%s") {
            true => self.text.replace("%s", &file),
            false => format!("{} {file}", self.text),
        };
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &text]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own, so that all it started ends with it.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn()?;
        match child.wait_timeout(self.limit)? {
            Some(status) => Ok(status.success()),
            None => {
                // SAFETY: the group is that of our child, which was not waited for yet.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                child.wait()?;
                Ok(false)
            }
        }
    }
}

/// A pipeline that fails, with an error of this shape.
pub struct FailsWith {
    pub pipeline: String,
    pub shape: String,
}

impl Test for FailsWith {
    fn holds(&self, module: &Module) -> bool {
        error_of(module, &self.pipeline).is_some_and(|error| shape_of_error(&error.message) == self.shape)
    }
}

/// The first error of a pipeline on a module.
pub fn error_of(module: &Module, pipeline: &str) -> Option<Diagnostic> {
    let mut module = module.clone();
    let errors = match parse_pipeline("pipeline", pipeline) {
        Ok(passes) => PassManager::new(passes).run(&mut module).errors,
        Err(errors) => errors,
    };
    let first = errors.first()?;
    // The manager's word that a module does not verify comes before what is wrong with it.
    let said = errors.iter().find(|e| e.severity == Severity::Error && e.loc != rc_ir::Loc::UNKNOWN).unwrap_or(first);
    let mut error = said.clone();
    if !std::ptr::eq(said, first) {
        error.message = format!("{}: {}", first.message, said.message);
    }
    Some(error)
}

/// A message without what depends on the program: names, numbers, types.
pub fn shape_of_error(message: &str) -> String {
    static PARTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"[@%][\w$.-]+|(tensor|memref|vector|tile)<[^>]*>|\[[^\]]*\]|\b(bf|f|i)\d+(E\dM\d(FN)?)?\b|\d+")
            .expect("a regular expression")
    });
    PARTS.replace_all(message, "·").into_owned()
}

/// A pipeline after which a function gives other results than before, in the interpreter and beyond the rounding of the types.
pub struct ChangesResult {
    pub pipeline: String,
    pub seed: u64,
}

impl Test for ChangesResult {
    fn holds(&self, module: &Module) -> bool {
        self.changed(module).is_some()
    }
}

impl ChangesResult {
    /// Which function's result changes, and how. `None`: none does, or what is asked cannot be run.
    pub fn changed(&self, module: &Module) -> Option<String> {
        let mut after = module.clone();
        let passes = parse_pipeline("pipeline", &self.pipeline).ok()?;
        if !PassManager::new(passes).run(&mut after).succeeded() {
            return None;
        }
        let functions = module.bodies.iter().filter(|b| b.name(b.root()) == op::func::FUNC && !b.is_private());
        functions.filter_map(|b| Some((b, b.symbol()?))).find_map(|(body, name)| {
            let inputs = random_inputs(body, self.seed, &Bindings::default()).ok()?;
            let expected = run(module, name, &inputs)?;
            let actual = run(&after, name, &inputs)?;
            let what = expected
                .iter()
                .zip(&actual)
                .enumerate()
                .find_map(|(i, (e, a))| difference(a, e).map(|what| format!("result {i} of @{name}: {what}")));
            // Results that are not finite say nothing.
            what.filter(|_| expected.iter().all(is_finite))
        })
    }
}

fn run(module: &Module, function: Name, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    Interpreter::new(module, Mode::Typed).run(function.as_str(), inputs).ok()
}

fn is_finite(tensor: &Tensor) -> bool {
    compare(tensor, tensor, Tolerance::EXACT).is_ok_and(|c| c.passed() && c.scale.is_finite())
}

fn difference(actual: &Tensor, expected: &Tensor) -> Option<String> {
    let tolerance = match expected.dtype().is_float() {
        true => Tolerance::of_max(256.0 * expected.dtype().epsilon()).equal_nan(),
        false => Tolerance::EXACT,
    };
    match compare(actual, expected, tolerance) {
        Err(error) => Some(error.to_string()),
        Ok(c) if !c.passed() => Some(c.to_string()),
        Ok(_) => None,
    }
}
