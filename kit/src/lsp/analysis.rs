//! What is wrong with a text, and what can be told of what is not.

use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Loc, Module, Severity, Type};
use rc_parser::{ParseOptions, parse_readable, tokens};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A diagnostic with its bytes.
#[derive(Clone, Debug)]
pub struct Problem {
    pub range: Range<usize>,
    pub severity: Severity,
    /// With the help, if there is any.
    pub message: String,
    pub notes: Vec<(Range<usize>, String)>,
}

/// What parser and verifier say.
pub struct Analysis {
    pub problems: Vec<Problem>,
    /// By the offset of an operation's name: the types of its results.
    pub types: FxHashMap<usize, Vec<Type>>,
}

impl Analysis {
    /// Parses and verifies; operations without errors are told of where others have some.
    pub fn of(name: &str, text: &str) -> Analysis {
        let source = Source::register(name, text.to_string());
        let (module, mut diagnostics) = parse_readable(&source, &ParseOptions::default());
        if diagnostics.is_empty() {
            diagnostics = rc_dialects::verify(&module);
        } else {
            // Calls of functions that do not parse are no mistakes.
            diagnostics.extend(rc_ir::verify_module(&module));
        }
        let problems = diagnostics.iter().map(|d| problem(d, &source)).collect();
        let types = types(&module, &source);
        drop((module, diagnostics));
        source.release();
        Analysis { problems, types }
    }
}

fn types(module: &Module, source: &Source) -> FxHashMap<usize, Vec<Type>> {
    let mut types = FxHashMap::default();
    for body in &module.bodies {
        for op in body.walk() {
            let results = body.op_ref(op).result_types();
            if let (false, Some(at)) = (results.is_empty(), offset(body.loc(op), source)) {
                types.insert(at, results.to_vec());
            }
        }
    }
    types
}

/// The offset in this text.
fn offset(loc: Loc, source: &Source) -> Option<usize> {
    loc.source().filter(|(other, _)| std::ptr::eq(&**other, source)).map(|(_, at)| at)
}

fn problem(diagnostic: &Diagnostic, source: &Source) -> Problem {
    let range = |loc: Loc, len: usize| {
        let at = offset(loc, source).unwrap_or(0).min(source.text.len());
        at..if len > 0 { (at + len).min(source.text.len()) } else { end_of_token(&source.text, at) }
    };
    let message = match &diagnostic.help {
        Some(help) => format!("{}\nhelp: {help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    Problem {
        range: range(diagnostic.loc, diagnostic.len as usize),
        severity: diagnostic.severity,
        message,
        notes: diagnostic.notes.iter().map(|(loc, text)| (range(*loc, 0), text.clone())).collect(),
    }
}

/// Where the token at an offset ends.
fn end_of_token(text: &str, at: usize) -> usize {
    let line = text[at..].find('\n').map_or(text.len(), |n| at + n);
    tokens(&text[at..line]).first().map_or(at, |t| at + t.1.end)
}
