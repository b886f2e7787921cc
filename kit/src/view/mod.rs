//! `--view`: one page that shows a compilation.
//!
//! | file | what it shows |
//! |---|---|
//! | `record` | the module after each pass, as it goes |
//! | `graph` | operations and fusions, in layers |
//! | `buffers` | what is in memory at each launch |
//! | `kernels` | kernels with their schedules and predicted times |
//! | `page.html` | the page around them: it needs no server, and says so where scripts are off |

mod buffers;
mod graph;
mod kernels;
mod record;

use rc_ir::{Diagnostic, Loc, Severity};
pub use record::Recorder;
use serde_json::{Value, json};

const PAGE: &str = include_str!("page.html");

/// How long the launches of a kernel took, microseconds for each.
pub struct Measured {
    pub kernel: String,
    pub us: f64,
}

/// The page of a compilation: what a recorder saw, what was said, and what was measured.
pub fn page(title: &str, recorder: &Recorder, said: &[Diagnostic], measured: &[Measured]) -> String {
    let mut data = recorder.data(said);
    data["measured"] = measured.iter().map(|m| (m.kernel.clone(), json!(m.us))).collect();
    data["title"] = json!(title);
    data["remarks"] = said.iter().map(remark).collect();
    // Nothing in it may end the element that holds it.
    let text = data.to_string().replace("</", "<\\/").replace("<!", "\\u003c!").replace("<s", "\\u003cs");
    PAGE.replace("{{title}}", &escaped(title)).replacen("{{data}}", &text, 1)
}

fn remark(diagnostic: &Diagnostic) -> Value {
    let kind = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Remark => "remark",
    };
    let notes: Vec<&String> = diagnostic.notes.iter().map(|n| &n.1).chain(&diagnostic.help).collect();
    json!({ "kind": kind, "message": diagnostic.message, "at": place(diagnostic.loc), "notes": notes })
}

/// A location as a person reads it; empty for none.
fn place(loc: Loc) -> String {
    if loc == Loc::UNKNOWN { String::new() } else { loc.to_string() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
