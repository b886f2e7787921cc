//! Reference pages in Markdown, made from the declarations of operations and passes.

use crate::op_def::{Arity, AttrDef, AttrDefault, Effects, GroupSyntax, OpDef, OperandDef, Traits};
use crate::pass::PassDef;
use std::fmt::Write;

/// What stands at the top of every generated page.
pub const NOTICE: &str = "<!-- Made from the declarations by `make docs`; edit those. -->";

/// The page of a dialect: its operations, in the order given.
pub fn dialect_page(dialect: &str, ops: &[&OpDef]) -> String {
    let mut out = format!("{NOTICE}\n\n# The `{dialect}` dialect\n");
    let mut shown = "";
    for op in ops {
        // An example that several operations share is shown at the first.
        let example = if op.example == shown { "" } else { op.example };
        write_op(&mut out, op, example);
        shown = op.example;
    }
    out
}

/// The section of one operation, with its example.
pub fn op_section(op: &OpDef) -> String {
    let mut out = String::new();
    write_op(&mut out, op, op.example);
    out.trim_start().to_string()
}

fn write_op(out: &mut String, op: &OpDef, example: &str) {
    let pretty = op.name.strip_prefix("rc.").unwrap_or(op.name);
    let _ = writeln!(out, "\n## `{pretty}`\n\n{}", one_line(op.summary));
    if !op.doc.is_empty() {
        let _ = writeln!(out, "\n{}", paragraphs(op.doc));
    }
    if !op.operands.is_empty() {
        out.push_str("\n| operand | written | type |\n|---|---|---|\n");
        for operand in op.operands {
            let _ =
                writeln!(out, "| `{}` | `{}` | {} |", operand.name, written(operand), cell(operand.constraint.desc));
        }
    }
    if !op.results.is_empty() {
        out.push_str("\n| result | type |\n|---|---|\n");
        for result in op.results {
            let _ = writeln!(out, "| `{}`{} | {} |", result.name, how_many(result.arity), cell(result.constraint.desc));
        }
    }
    if !op.attrs.is_empty() {
        out.push_str("\n| attribute | kind | default | |\n|---|---|---|---|\n");
        for attr in op.attrs {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                attr.name,
                cell(&attr.kind.desc()),
                default_of(attr),
                cell(attr.doc)
            );
        }
    }
    let _ = writeln!(out, "\nEffects: {}.{}", effects(op.effects), traits(op.traits));
    if !example.trim().is_empty() {
        let _ = writeln!(out, "\n```mlir\n{}\n```", example.trim());
    }
}

fn written(operand: &OperandDef) -> String {
    let name = operand.name;
    let (one, all) = match operand.arity {
        Arity::One | Arity::Optional => (format!("%{name}"), format!("%{name}")),
        Arity::Variadic => (format!("%{name}"), format!("%{name}, …")),
    };
    match operand.syntax {
        GroupSyntax::Plain => all,
        GroupSyntax::Named => format!("{name}({all})"),
        GroupSyntax::Bracketed => format!("[{all}]"),
        GroupSyntax::Iter => format!("iter(%arg = {one}, …)"),
    }
}

fn how_many(arity: Arity) -> &'static str {
    match arity {
        Arity::One => "",
        Arity::Optional => ", optional",
        Arity::Variadic => ", any number",
    }
}

fn default_of(attr: &AttrDef) -> String {
    match attr.default {
        AttrDefault::Required => "required".into(),
        AttrDefault::Optional => "may be absent".into(),
        AttrDefault::Int(n) => format!("`{n}`"),
        AttrDefault::Bool(b) => format!("`{b}`"),
        AttrDefault::Float(x) => format!("`{x:?}`"),
        AttrDefault::Str(s) => format!("`{s}`"),
    }
}

fn effects(effects: Effects) -> String {
    match effects {
        Effects::Pure => "none".into(),
        Effects::Read => "reads memory".into(),
        Effects::Write => "writes memory".into(),
        Effects::Channel(name) => format!("ordered on the channel `{name}`"),
        Effects::Recursive => "those of its regions".into(),
        Effects::Declared => "what `effects` says".into(),
        Effects::Unknown => "anything may happen".into(),
    }
}

fn traits(traits: Traits) -> String {
    let names: Vec<String> =
        traits.iter_names().map(|(name, _)| format!("`{}`", name.to_lowercase().replace('_', "-"))).collect();
    if names.is_empty() { String::new() } else { format!(" Traits: {}.", names.join(", ")) }
}

/// The page of all passes, in the order given.
pub fn pass_page(passes: &[&PassDef]) -> String {
    let mut out = format!("{NOTICE}\n\n# Passes\n\nEach is a flag of `rc-opt` and a name in `--pass-pipeline`.\n");
    for pass in passes {
        let _ = writeln!(out, "\n## `{}`\n\n{}", pass.name, one_line(pass.summary));
        if !pass.doc.is_empty() {
            let _ = writeln!(out, "\n{}", paragraphs(pass.doc));
        }
        if !pass.requires.is_empty() {
            let names: Vec<String> = pass.requires.iter().map(|name| format!("[`{name}`](#{name})")).collect();
            let _ = writeln!(out, "\nRuns first, where they are still pending: {}.", names.join(", "));
        }
        if !pass.options.is_empty() {
            out.push_str("\n| option | value | default | |\n|---|---|---|---|\n");
            for option in pass.options {
                let default = if option.default.is_empty() { String::new() } else { format!("`{}`", option.default) };
                let value = cell(&option.placeholder());
                let _ = writeln!(out, "| `{}` | `{value}` | {default} | {} |", option.name, cell(option.doc));
            }
        }
    }
    out
}

/// Text within a row of a table.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Documentation strings are continued over lines of source with odd spaces; blank lines part paragraphs.
fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(one_line).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op_def::{ANY, operand, result};

    #[test]
    fn a_page_says_what_is_declared() {
        static OP: OpDef = OpDef {
            summary: "Does  it.",
            operands: &[operand("x", ANY)],
            results: &[result("y", ANY)],
            effects: Effects::Pure,
            example: "%y = docs.op %x : f32",
            ..OpDef::new("rc.docs.op")
        };
        let page = dialect_page("docs", &[&OP]);
        for part in [
            "# The `docs` dialect",
            "## `docs.op`\n\nDoes it.",
            "| `x` | `%x` | any type |",
            "Effects: none.",
            "```mlir\n%y",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }
}
