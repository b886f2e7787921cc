//! Diagnostics as Python exceptions.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rc_ir::loc::LocData;
use rc_ir::{Diagnostic, Loc};

pyo3::create_exception!(
    rc,
    RcError,
    PyRuntimeError,
    "What rc could not do. `diagnostics` is a list of (message, rendered text, names of graph nodes)."
);

/// An exception of these diagnostics; its message is their rendered texts.
pub fn error(py: Python<'_>, diagnostics: &[Diagnostic]) -> PyErr {
    let text = match diagnostics {
        [d] if d.loc == Loc::UNKNOWN && d.notes.is_empty() && d.help.is_none() => d.message.clone(),
        _ => diagnostics.iter().map(Diagnostic::render).collect(),
    };
    let list: Vec<(String, String, Vec<String>)> = diagnostics.iter().map(entry).collect();
    let error = RcError::new_err(text.trim_end().to_string());
    match error.value(py).setattr("diagnostics", list) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// An exception without a position.
pub fn plain(py: Python<'_>, message: impl std::fmt::Display) -> PyErr {
    error(py, &[*Diagnostic::error(Loc::UNKNOWN, message.to_string())])
}

fn entry(d: &Diagnostic) -> (String, String, Vec<String>) {
    let mut names = Vec::new();
    node_names(d.loc, &mut names);
    d.notes.iter().for_each(|(loc, _)| node_names(*loc, &mut names));
    (d.message.clone(), d.render(), names)
}

/// The names that `Graph.at` gave locations.
fn node_names(loc: Loc, out: &mut Vec<String>) {
    match loc.data() {
        Some(LocData::Named { name, child }) => {
            if !out.iter().any(|n| n == name.as_str()) {
                out.push(name.as_str().to_string());
            }
            node_names(*child, out);
        }
        Some(LocData::Fused(parts)) => parts.iter().for_each(|l| node_names(*l, out)),
        Some(LocData::CallSite { callee, caller }) => {
            node_names(*callee, out);
            node_names(*caller, out);
        }
        Some(LocData::File { .. }) | None => {}
    }
}
