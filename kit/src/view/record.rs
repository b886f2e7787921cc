//! The module after each pass.

use super::{buffers, graph, kernels};
use rc_ir::pass::{PassInstance, PassInstrumentation};
use rc_ir::{Diagnostic, Module};
use serde_json::{Value, json};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer lines are cut: machine code and large constants are no reading.
const LONGEST: usize = 400;
/// A diff that takes longer is coarser.
const PATIENCE: Duration = Duration::from_millis(50);

/// Keeps what a compilation looks like. Its copies record together.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    stages: Vec<Stage>,
    /// Every line once, and its number.
    lines: Vec<String>,
    numbers: HashMap<String, u32>,
    graph: Option<Value>,
    buffers: Option<Value>,
    kernels: kernels::Kernels,
}

struct Stage {
    pass: String,
    time: Duration,
    ops: usize,
    lines: Vec<u32>,
    failed: bool,
}

impl Recorder {
    /// The instrumentation that records; the module is known from the first pass on.
    pub fn hook(&self) -> impl PassInstrumentation + 'static {
        Hook { record: self.0.clone(), since: Instant::now() }
    }

    /// What the page shows.
    pub(super) fn data(&self, said: &[Diagnostic]) -> Value {
        let record = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut stages = Vec::new();
        let mut before: &[u32] = &[];
        for stage in &record.stages {
            let ops =
                capture_diff_slices_deadline(Algorithm::Myers, before, &stage.lines, Some(Instant::now() + PATIENCE));
            let changes: Vec<Value> = ops
                .iter()
                .filter(|op| op.tag() != DiffTag::Equal)
                .map(|op| json!([op.old_range().start, op.old_range().end, op.new_range().start, op.new_range().end]))
                .collect();
            stages.push(json!({
                "pass": stage.pass, "ms": 1e3 * stage.time.as_secs_f64(), "ops": stage.ops, "failed": stage.failed,
                // What a pass leaves as it was is not written twice.
                "lines": if changes.is_empty() && !stages.is_empty() { Value::Null } else { json!(stage.lines) },
                "changes": changes,
            }));
            before = &stage.lines;
        }
        json!({
            "version": 1, "lines": record.lines, "stages": stages, "graph": record.graph,
            "buffers": record.buffers, "kernels": record.kernels.data(said),
        })
    }
}

impl Record {
    fn add(&mut self, pass: String, time: Duration, module: &Module, failed: bool) {
        let text = module.to_string();
        let lines = text.lines().map(|line| self.number(line)).collect();
        let ops = module.bodies.iter().map(|body| body.walk().len()).sum();
        self.stages.push(Stage { pass, time, ops, lines, failed });
    }

    fn number(&mut self, line: &str) -> u32 {
        let line = match line.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{} … {} bytes more", &line[..at], line.len() - at),
            None => line.to_string(),
        };
        let new = self.lines.len() as u32;
        let number = *self.numbers.entry(line.clone()).or_insert(new);
        if number == new {
            self.lines.push(line);
        }
        number
    }

    /// Keeps the latest of what some passes leave.
    fn look(&mut self, module: &Module) {
        if let Some(graph) = graph::of(module) {
            self.graph = Some(graph);
        }
        if let Some(buffers) = buffers::of(module) {
            self.buffers = Some(buffers);
        }
        self.kernels.look(module);
    }
}

struct Hook {
    record: Arc<Mutex<Record>>,
    since: Instant,
}

impl Hook {
    fn add(&self, pass: &PassInstance, module: &Module, failed: bool) {
        let time = self.since.elapsed();
        if let Ok(mut record) = self.record.lock() {
            record.add(pass.to_string(), time, module, failed);
            record.look(module);
        }
    }
}

impl PassInstrumentation for Hook {
    fn before_pass(&mut self, _: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if let Ok(mut record) = self.record.lock()
            && record.stages.is_empty()
        {
            record.add("input".into(), Duration::ZERO, module, false);
            record.look(module);
        }
        self.since = Instant::now();
        Ok(())
    }
    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        self.add(pass, module, false);
        Ok(())
    }
    fn after_failure(&mut self, pass: &PassInstance, module: &Module) {
        self.add(pass, module, true);
    }
}
