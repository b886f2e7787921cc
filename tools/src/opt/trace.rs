//! `--trace`: when each pass ran, as Perfetto and Chrome's tracing read it.

use rc_ir::pass::{PassInstance, PassInstrumentation};
use rc_ir::{Diagnostic, Module};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The events of a run, shared by its managers.
#[derive(Clone)]
pub struct Trace {
    start: Instant,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Trace {
    pub fn new() -> Trace {
        Trace { start: Instant::now(), events: Arc::default() }
    }
    /// What records passes.
    pub fn hook(&self) -> impl PassInstrumentation + 'static {
        Hook { trace: self.clone(), since: Instant::now(), ops: 0 }
    }
    fn push(&self, name: &str, since: Instant, args: Value) {
        let micros = |t: Instant| t.duration_since(self.start).as_secs_f64() * 1e6;
        let event = json!({
            "name": name, "ph": "X", "pid": 1, "tid": 1, "cat": "pass",
            "ts": micros(since), "dur": since.elapsed().as_secs_f64() * 1e6, "args": args,
        });
        if let Ok(mut events) = self.events.lock() {
            events.push(event);
        }
    }
    /// The file's text.
    pub fn text(&self) -> String {
        let events = self.events.lock().map(|events| events.clone()).unwrap_or_default();
        json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
    }
}

struct Hook {
    trace: Trace,
    since: Instant,
    ops: usize,
}

impl Hook {
    fn record(&self, pass: &PassInstance, module: &Module, failed: bool) {
        let args = json!({ "operations before": self.ops, "operations after": ops(module), "failed": failed });
        self.trace.push(&pass.to_string(), self.since, args);
    }
}

fn ops(module: &Module) -> usize {
    module.bodies.iter().map(|body| body.walk().len()).sum()
}

impl PassInstrumentation for Hook {
    fn before_pass(&mut self, _: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        self.ops = ops(module);
        self.since = Instant::now();
        Ok(())
    }
    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        self.record(pass, module, false);
        Ok(())
    }
    fn after_failure(&mut self, pass: &PassInstance, module: &Module) {
        self.record(pass, module, true);
    }
}
