//! What `--version` says.

use crate::{Machine, Target};
use std::sync::LazyLock;

/// rc's version.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The versions of what rc is made of, and the machines that it knows.
pub fn versions() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let is_named =
            move |t: &&Target, machine| t.machine == machine && (t.triple.is_empty() || t.triple.starts_with("x86_64"));
        let named = |machine| Target::all().iter().filter(move |t| is_named(t, machine)).map(|t| t.arch.as_str());
        let list = |machine| named(machine).collect::<Vec<_>>().join(", ");
        let host = Target::host();
        let lines = [
            format!("{} ({})", version(), crate::cache::build()),
            format!("this machine: {} with {} cores", host.arch, host.cores),
            format!("CPUs: {} and LLVM's other names of x86-64 processors", list(Machine::Cpu)),
            format!("GPUs: {} and newer", list(Machine::Cuda)),
        ];
        lines.join("\n")
    });
    &TEXT
}
