//! What `rc-opt` says of itself: help, lists, reference pages, completions for shells.

use super::docs;
use super::example::example_of;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rc_ir::pass::{PassDef, find, registered};
use rc_ir::suggest::did_you_mean;
use rc_ir::{OpDef, OpName, op_def};
use std::fmt::Write;

/// Adds the flags that print something and read no module.
pub fn augment(command: Command) -> Command {
    let heading = "What there is";
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).help_heading(heading);
    command
        .disable_help_flag(true)
        .arg(
            flag("help", "Print this; what a pass or an operation does, with an example")
                .short('h')
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .value_name("PASS|OP"),
        )
        .arg(flag("list-passes", "Print every pass").action(ArgAction::SetTrue))
        .arg(flag("list-dialects", "Print every dialect").action(ArgAction::SetTrue))
        .arg(
            flag("list-ops", "Print every operation, or those of a dialect")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .value_name("DIALECT"),
        )
        .arg(flag("list-phases", "Print the phases of --compile-to").action(ArgAction::SetTrue))
        .arg(flag("print-docs", "Print a reference page: passes, schedule, or a dialect").value_name("PAGE"))
        .arg(
            flag("print-target", "Print a file for --target-file: of this CPU, --target, --arch")
                .action(ArgAction::SetTrue),
        )
        .arg(flag("check-rules", "Prove a file of rewrite rules by running both sides of each").value_name("FILE"))
        .arg(
            flag("completions", "Print completions: bash, elvish, fish, powershell, zsh")
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .value_name("SHELL"),
        )
}

/// The text that the command line asks for instead of work on a module. Errors: what is asked about does not exist.
pub fn asked(matches: &ArgMatches, command: &Command) -> Option<Result<String, String>> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    if let Some(topic) = text("help") {
        return Some(if topic.is_empty() { Ok(short_help(command)) } else { help(topic) });
    }
    if let Some(page) = text("print-docs") {
        return Some(docs(page));
    }
    if let Some(&shell) = matches.get_one::<clap_complete::Shell>("completions") {
        return Some(Ok(completions(shell, command)));
    }
    if let Some(dialect) = text("list-ops") {
        return Some(ops(dialect));
    }
    let lists: [(&str, fn() -> String); 3] =
        [("list-passes", passes), ("list-dialects", dialects), ("list-phases", super::phases::list)];
    lists.iter().find(|(name, _)| matches.get_flag(name)).map(|(_, list)| Ok(list()))
}

/// Characters of a line of the screen.
const WIDTH: usize = 100;

/// One screen: the options, and the names of the passes.
fn short_help(command: &Command) -> String {
    // One line for each option: what values are possible, its help says.
    let mut options = command.clone().mut_args(one_line).next_line_help(false).term_width(WIDTH);
    let mut out = options.render_help().to_string();
    out += "\nPasses, run in the order of their flags (--fuse=max-ops=32); --help=PASS says more:\n";
    let mut line = String::from(" ");
    for pass in registered() {
        if line.len() + pass.name.len() >= WIDTH {
            let _ = writeln!(out, "{line}");
            line = String::from(" ");
        }
        let _ = write!(line, " {}", pass.name);
    }
    let _ = writeln!(out, "{line}");
    out
}

fn one_line(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values();
    if takes_value { arg.hide_possible_values(true) } else { arg }
}

fn completions(shell: clap_complete::Shell, command: &Command) -> String {
    let mut out = Vec::new();
    let mut command = command.clone().mut_args(|arg| arg.hide(false));
    let name = command.get_name().to_string();
    clap_complete::generate(shell, &mut command, name, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn help(topic: &str) -> Result<String, String> {
    if let Some(pass) = find(topic) {
        return Ok(pass_help(pass));
    }
    let name = op_def::resolve_pretty(topic);
    if let Some(op) = name.def() {
        return Ok(rc_ir::docs::op_section(op));
    }
    let names: Vec<&str> = registered().iter().map(|p| p.name).chain(op_names()).collect();
    let hint = did_you_mean(topic, names);
    Err(format!("there is no pass or operation '{topic}'{hint}; see --list-passes, --list-ops"))
}

fn op_names() -> impl Iterator<Item = &'static str> {
    op_def::registered().into_iter().map(|op| OpName::new(op.name).pretty())
}

fn pass_help(pass: &'static PassDef) -> String {
    let mut out = format!("--{}: {}\n", pass.name, pass.summary);
    for paragraph in [pass.doc].iter().filter(|doc| !doc.is_empty()) {
        let _ = write!(out, "\n{}", wrapped(paragraph));
    }
    if !pass.requires.is_empty() {
        let _ = writeln!(out, "\nRuns first, where they have something to do: {}.", pass.requires.join(", "));
    }
    if !pass.options.is_empty() {
        out += "\nOptions:\n";
    }
    for option in pass.options {
        let default = if option.default.is_empty() { String::new() } else { format!(" [{}]", option.default) };
        let _ = writeln!(out, "  {}={}{default}\n{}", option.name, option.placeholder(), indented(option.doc));
    }
    match example_of(pass) {
        Some(example) => out += &format!("\nExample:\n\n{example}"),
        None => out += &format!("\nExample: rc-opt --{} FILE\n", pass.name),
    }
    out
}

fn indented(text: &str) -> String {
    wrapped(text).trim_end().lines().map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

/// Text in lines of [`WIDTH`] characters at most.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.chars().count() > WIDTH {
            out.push('\n');
            width = 0;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += word.chars().count();
    }
    out + "\n"
}

fn passes() -> String {
    table(registered().iter().map(|pass| (pass.name, pass.summary)))
}

fn dialects() -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for op in op_def::registered() {
        let dialect = OpName::new(op.name).dialect();
        match counts.iter_mut().find(|c| c.0 == dialect) {
            Some(count) => count.1 += 1,
            None => counts.push((dialect, 1)),
        }
    }
    counts.sort();
    counts.iter().map(|(name, n)| format!("{name:8} {n} operations\n")).collect()
}

fn ops(dialect: &str) -> Result<String, String> {
    let all: Vec<&OpDef> = op_def::registered();
    let of = |op: &&OpDef| dialect.is_empty() || OpName::new(op.name).dialect() == dialect;
    let rows: Vec<_> = all.into_iter().filter(of).map(|op| (OpName::new(op.name).pretty(), op.summary)).collect();
    if rows.is_empty() {
        let names = op_names().map(|n| n.split('.').next().unwrap_or(n));
        return Err(format!("there is no dialect '{dialect}'{}; see --list-dialects", did_you_mean(dialect, names)));
    }
    Ok(table(rows.into_iter()))
}

fn table<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows: Vec<_> = rows.collect();
    let width = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
    rows.iter()
        .map(|(name, what)| format!("{name:width$}  {}\n", what.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}
