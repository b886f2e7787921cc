//! Kernels: how often they are launched, how they are scheduled, what time was predicted.

use rc_dialects::op;
use rc_ir::{Diagnostic, Dim, Loc, Module};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What is known of kernels, by name.
#[derive(Default)]
pub struct Kernels {
    /// Where the nests of a scheduled kernel are from.
    nests: BTreeMap<String, Vec<Loc>>,
    kernels: BTreeMap<String, Kernel>,
}

#[derive(Default)]
struct Kernel {
    grid: String,
    threads: i64,
    ops: usize,
    launches: usize,
}

impl Kernels {
    pub fn look(&mut self, module: &Module) {
        let mut latest: BTreeMap<String, Kernel> = BTreeMap::new();
        for body in &module.bodies {
            let (root, Some(symbol)) = (body.op_ref(body.root()), body.symbol()) else { continue };
            let ops = body.walk();
            match root.name().as_str() {
                op::loop_::KERNEL => {
                    let scheduled = ops.iter().filter(|&&op| body.attr(op, "schedule").is_some());
                    let locs: Vec<Loc> = scheduled.map(|&op| body.loc(op)).collect();
                    if !locs.is_empty() {
                        self.nests.insert(symbol.to_string(), locs);
                    }
                }
                op::kernel::FUNC => {
                    let kernel = latest.entry(symbol.to_string()).or_default();
                    let grid = root.attr("grid").and_then(|a| a.as_shape()).unwrap_or_default();
                    kernel.grid = grid.iter().map(Dim::to_string).collect::<Vec<_>>().join(" × ");
                    kernel.threads = root.int("threads").unwrap_or(1);
                    kernel.ops = ops.len();
                }
                _ => {}
            }
        }
        if latest.is_empty() {
            return;
        }
        for body in &module.bodies {
            for op in body.walk() {
                let callee = body.op_ref(op).str("callee").filter(|_| body.name(op) == op::host::LAUNCH);
                if let Some(kernel) = callee.and_then(|name| latest.get_mut(name)) {
                    kernel.launches += 1;
                }
            }
        }
        self.kernels = latest;
    }

    /// A row for each kernel, with the remark on its schedule among what was `said`.
    pub fn data(&self, said: &[Diagnostic]) -> Value {
        let row = |(name, kernel): (&String, &Kernel)| {
            let schedule = self.schedule(name, said);
            let rivals: Vec<&String> = schedule.iter().flat_map(|d| d.notes.iter().map(|n| &n.1)).collect();
            let text = schedule.map(|d| d.message.clone()).unwrap_or_default();
            let predicted = predicted_us(&text);
            json!({
                "name": name, "grid": kernel.grid, "threads": kernel.threads, "ops": kernel.ops, "launches": kernel.launches,
                "schedule": text, "rivals": rivals, "us": predicted,
            })
        };
        self.kernels.iter().map(row).collect()
    }

    fn schedule<'d>(&self, kernel: &str, said: &'d [Diagnostic]) -> Option<&'d Diagnostic> {
        // A kernel that was cut in parts has their numbers behind its name.
        let nests =
            self.nests.iter().filter(|(name, _)| kernel.starts_with(name.as_str())).max_by_key(|n| n.0.len())?.1;
        said.iter().find(|d| d.message.contains(" schedule for ") && nests.contains(&d.loc))
    }
}

/// The time that a remark predicts, microseconds.
fn predicted_us(text: &str) -> Option<f64> {
    static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"([0-9.]+) us").expect("a regular expression"));
    TIME.captures(text)?.get(1)?.as_str().parse().ok()
}
