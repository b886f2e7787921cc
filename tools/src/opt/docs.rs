//! `--print-docs`: reference pages of what is registered.

use rc_ir::docs::{dialect_page, pass_page};
use rc_ir::{OpDef, OpName, op_def, pass};

/// The page called `what`: `passes`, `schedule`, or a dialect. Errors: no such page; the message names those that there are.
pub fn docs(what: &str) -> Result<String, String> {
    if what == "passes" {
        return Ok(pass_page(&pass::registered()));
    }
    if what == "schedule" {
        return Ok(rc_passes::schedule::reference());
    }
    let all = op_def::registered();
    let dialect = |def: &OpDef| OpName::new(def.name).dialect();
    let ops: Vec<&OpDef> = all.iter().copied().filter(|&def| dialect(def) == what).collect();
    if !ops.is_empty() {
        return Ok(dialect_page(what, &ops));
    }
    let mut names: Vec<&str> = all.iter().map(|&def| dialect(def)).collect();
    names.dedup();
    Err(format!("there is no page '{what}'; there are passes, schedule, {}", names.join(", ")))
}
