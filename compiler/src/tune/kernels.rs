//! The kernels of a module, each in a module of its own.

use crate::pipeline::early;
use crate::{Machine, Target};
use rc_dialects::func::Initializer;
use rc_dialects::loop_::{KERNEL, LAUNCH};
use rc_ir::pass::PassManager;
use rc_ir::{Body, Diagnostic, Module, Name, Op};
use rc_parser::pipeline::parse_pipeline;
use rc_passes::schedule::{Candidate, candidates, nests, structure, write};
use std::collections::BTreeMap;

/// A `loop.kernel` to be measured.
pub struct Kernel {
    /// What it is known by in a tuning file.
    pub structure: String,
    /// The operations that it came from.
    pub origin: String,
    /// The kernel, and a function that launches it.
    module: Module,
    /// The nests of each group, and the ways to run them.
    pub groups: Vec<(Vec<Op>, Vec<Candidate>)>,
    /// Microseconds that all its launches take, by the model.
    predicted: f64,
}

/// The different kernels of a module, those first that take longest.
///
/// # Errors
/// What is wrong with the module.
pub fn of(module: &Module, target: &Target) -> Result<Vec<Kernel>, Vec<Diagnostic>> {
    let mut module = module.clone();
    target.set_on(&mut module);
    let passes = parse_pipeline("pipeline", &format!("{}lower-loops", early(target)))?;
    let report = PassManager::new(passes).run(&mut module);
    if !report.succeeded() {
        return Err(report.errors);
    }
    let launches = launches(&module);
    let mut kernels: BTreeMap<String, Kernel> = BTreeMap::new();
    for body in module.bodies.iter().filter(|b| b.name(b.root()) == &KERNEL) {
        let count = body.symbol().and_then(|name| launches.get(name.as_str()).copied()).unwrap_or(0);
        if count > 0 {
            let kernel = Kernel::new(&module, body, count, target).map_err(|d| vec![*d])?;
            let known = kernels.get(&kernel.structure).map_or(0.0, |k| k.predicted);
            kernels.insert(kernel.structure.clone(), Kernel { predicted: kernel.predicted + known, ..kernel });
        }
    }
    let mut kernels: Vec<Kernel> = kernels.into_values().collect();
    kernels.sort_by(|a, b| b.predicted.total_cmp(&a.predicted));
    Ok(kernels)
}

/// How often each kernel is launched, by functions other than those that run once.
fn launches(module: &Module) -> BTreeMap<String, usize> {
    let once: Vec<Name> =
        module.bodies.iter().filter_map(|b| Some(Initializer::of(b.op_ref(b.root()))?.function)).collect();
    let mut out = BTreeMap::new();
    for body in module.bodies.iter().filter(|b| b.symbol().is_none_or(|name| !once.contains(&name))) {
        let launches = body.walk().into_iter().filter(|&op| body.name(op) == &LAUNCH);
        for name in launches.filter_map(|op| body.op_ref(op).str("callee")) {
            *out.entry(name.to_string()).or_insert(0) += 1;
        }
    }
    out
}

impl Kernel {
    fn new(module: &Module, body: &Body, launches: usize, target: &Target) -> rc_ir::Result<Kernel> {
        let mut own = body.clone();
        nests(&own).into_iter().for_each(|op| own.remove_attr(op, "schedule"));
        let groups = candidates(&mut own, target)?;
        let root = own.op_ref(own.root());
        let origin = root.str("origin").map_or_else(|| own.symbol().unwrap_or_default().to_string(), String::from);
        let us: f64 = groups.iter().filter_map(|(_, ranked)| Some(ranked.first()?.cost?.us)).sum();
        let structure = structure(&own);
        let module = alone(module, own)?;
        Ok(Kernel { structure, origin, module, groups, predicted: us * launches as f64 })
    }

    /// How many measurements it takes.
    pub fn trials(&self, top: usize, doubt: f64) -> usize {
        (0..self.groups.len()).map(|group| self.others(group, top, doubt).len()).sum::<usize>() + 1
    }

    /// The candidates of a group that are measured beside the model's choice: of the first `top` those that take, by the model, no more than
    /// `doubt` times as long.
    pub fn others(&self, group: usize, top: usize, doubt: f64) -> Vec<usize> {
        let ranked = &self.groups[group].1;
        let us = |i: usize| ranked[i].cost.map_or(0.0, |cost| cost.us);
        (1..ranked.len().min(top)).filter(|&i| us(i) <= doubt * us(0)).collect()
    }

    /// The candidates of these numbers, in words.
    pub fn what(&self, choice: &[usize]) -> String {
        let chosen = self.groups.iter().zip(choice).map(|((_, ranked), &i)| ranked[i].what.as_str());
        chosen.collect::<Vec<_>>().join("; ")
    }

    /// The function that launches it.
    pub fn function(&self) -> &Body {
        &self.module.bodies[0]
    }

    /// The module with the candidate of this number for each group, compiled.
    ///
    /// # Errors
    /// What the compiler says, in words.
    pub fn compiled(&self, choice: &[usize], target: &Target) -> Result<Module, String> {
        let mut module = self.scheduled(choice);
        let last = if target.machine == Machine::Cpu { "lower-cpu" } else { "lower-cuda" };
        let errors = match parse_pipeline("pipeline", last) {
            Ok(passes) => PassManager::new(passes).run(&mut module).errors,
            Err(errors) => errors,
        };
        errors.first().map_or(Ok(module), |error| Err(error.message.clone()))
    }

    /// The module with the candidates' schedules on its nests.
    pub fn scheduled(&self, choice: &[usize]) -> Module {
        let mut module = self.module.clone();
        for (number, ((ops, ranked), &i)) in self.groups.iter().zip(choice).enumerate() {
            write(&mut module.bodies[1], ops, &ranked[i].schedules, number, self.groups.len());
        }
        module
    }
}

/// A module of a kernel and a function `@run` that launches it with its own arguments.
fn alone(from: &Module, kernel: Body) -> rc_ir::Result<Module> {
    let root = kernel.op_ref(kernel.root());
    let ty = root.attr("function_type").and_then(|t| t.as_type()?.as_function());
    let (inputs, results) = ty.ok_or_else(|| root.error("has no function type"))?;
    let list = |n: usize, word: &str| (0..n).map(|i| format!("%{word}{i}")).collect::<Vec<_>>().join(", ");
    let types = |all: &[rc_ir::Type]| all.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
    let args: Vec<String> = inputs.iter().enumerate().map(|(i, ty)| format!("%a{i}: {ty}")).collect();
    let symbols = rc_dialects::func::symbols(&kernel);
    let bind: Vec<String> = symbols.iter().map(|s| format!("{0} = #rc.shape<[{0}]>", s.name)).collect();
    let declared = root.attr("rc.symbols").map_or(String::new(), |s| format!(" attributes {{rc.symbols = {s}}}"));
    let text = format!(
        "func.func @run({}) -> ({}){declared} {{\n  {} = loop.launch {} {{callee = \"{}\", bind = <{}>}} : {}\n  func.return {}\n}}\n",
        args.join(", "),
        types(results),
        list(results.len(), "r"),
        list(inputs.len(), "a"),
        kernel.symbol().unwrap_or_default(),
        bind.join(", "),
        types(results),
        list(results.len(), "r"),
    );
    let (module, mut errors) = rc_parser::parse_module("tuning", text);
    let mut module = module.ok_or_else(|| Box::new(errors.remove(0)))?;
    module.attrs = from.attrs;
    module.resources = from.resources.clone();
    module.bodies.push(kernel);
    Ok(module)
}
