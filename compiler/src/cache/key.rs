//! What a compiled module depends on.

use crate::{Target, pipeline};
use rc_ir::Module;
use rc_ir::print::{PrintOptions, print_module};
use std::collections::BTreeMap;

/// What a compiled module depends on, by parts: two keys are the same module's if all their parts are equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    parts: BTreeMap<String, String>,
}

/// The parts, and what `rc-cache why` calls them.
const PARTS: [(&str, &str); 6] = [
    ("build", "rc itself"),
    ("target", "the processor, or what is known of it"),
    ("pipeline", "the passes and their options"),
    ("module", "the module's text"),
    ("resources", "the bytes of its constants"),
    ("graph", "the graph that a frontend captured"),
];

impl Key {
    /// The key of a module that is to be compiled for a target. Locations are no part of it.
    pub fn new(module: &Module, target: &Target) -> Key {
        let text = print_module(module, &PrintOptions { resources: false, ..PrintOptions::PRETTY });
        let mut resources = blake3::Hasher::new();
        for (name, blob) in &module.resources {
            let name = name.as_str().as_bytes();
            resources.update(&(name.len() as u64).to_le_bytes()).update(name);
            resources.update(&(blob.bytes().len() as u64).to_le_bytes()).update_rayon(blob.bytes());
        }
        let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
        let parts = [
            ("build", build()),
            ("target", hash(&target.to_attr().to_string())),
            ("pipeline", pipeline(target)),
            ("module", hash(&text)),
            ("resources", resources.finalize().to_hex().to_string()),
        ];
        Key { parts: parts.into_iter().map(|(name, value)| (name.into(), value)).collect() }
    }

    /// The key of what is compiled for a target of a graph that a frontend knows by this text, which says all that the module follows from.
    pub fn of_graph(graph: &str, target: &Target) -> Key {
        let target = blake3::hash(target.to_attr().to_string().as_bytes()).to_hex().to_string();
        let parts = [("build", build()), ("target", target), ("graph", graph.to_string())];
        Key { parts: parts.into_iter().map(|(name, value)| (name.into(), value)).collect() }
    }

    /// The key that an entry's notes hold.
    pub(super) fn of(notes: &BTreeMap<String, String>) -> Key {
        let ours = |(name, value): (&String, &String)| Some((name.strip_prefix("key.")?.to_string(), value.clone()));
        Key { parts: notes.iter().filter_map(ours).collect() }
    }

    pub(super) fn notes(&self) -> BTreeMap<String, String> {
        self.parts.iter().map(|(name, value)| (format!("key.{name}"), value.clone())).collect()
    }

    /// The name of its entry.
    pub fn id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for text in self.parts.iter().flat_map(|(name, value)| [name, value]) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.finalize().to_hex()[..40].to_string()
    }

    /// The parts in which another key differs, in words.
    pub fn differences(&self, other: &Key) -> Vec<&'static str> {
        let differs = |name: &&(&str, &str)| self.parts.get(name.0) != other.parts.get(name.0);
        PARTS.iter().filter(differs).map(|(_, words)| *words).collect()
    }
}

/// rc's version, the build of it, and LLVM's version.
pub fn build() -> String {
    let llvm = rc_lowering::backend::llvm_version();
    format!("{} {} LLVM {llvm}", env!("CARGO_PKG_VERSION"), env!("RC_BUILD"))
}
