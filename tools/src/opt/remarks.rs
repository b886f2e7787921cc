//! `--remarks-file`: diagnostics as JSON, one on each line.

use rc_ir::{Diagnostic, Loc, Severity};
use serde_json::{Value, json};

/// The lines of the file.
pub fn json_lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|d| format!("{}\n", json_of(d))).collect()
}

fn json_of(diagnostic: &Diagnostic) -> Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Remark => "remark",
    };
    let notes: Vec<Value> =
        diagnostic.notes.iter().map(|(loc, message)| json!({ "message": message, "at": place(*loc) })).collect();
    json!({
        "severity": severity,
        "message": diagnostic.message,
        "at": place(diagnostic.loc),
        "notes": notes,
        "help": diagnostic.help,
    })
}

/// File, line and column, both from 1; of a location that is no position in a file, its text; null for none.
fn place(loc: Loc) -> Value {
    match loc.source() {
        _ if loc == Loc::UNKNOWN => Value::Null,
        Some((source, offset)) => {
            let (line, column) = source.line_col(offset);
            json!({ "file": source.name, "line": line, "column": column })
        }
        None => json!({ "text": loc.to_string() }),
    }
}
