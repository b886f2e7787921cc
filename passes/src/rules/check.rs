//! What can be said of rules by trying them on a few programs: replacements that do not fit, and rules that go round in circles.

use super::draw::Instance;
use super::random::Random;
use super::rule::Rule;
use rc_ir::rewrite::{PatternSet, RewriteConfig, apply_patterns};
use rc_ir::{Body, Diagnostic, Loc};
use std::sync::Arc;

/// Programs on which a rule is tried, and draws to come to them.
const PROGRAMS: usize = 8;
const DRAWS: usize = 600;
/// Rewrites of such a program, after which there is no end.
const ENDLESS: usize = 100;

/// What is wrong with rules that are right by themselves.
pub fn check(rules: &[Arc<Rule>]) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    let mut tried: Vec<Vec<Instance>> = Vec::new();
    for rule in rules {
        let programs = programs(rule);
        let error = programs.iter().find_map(|p| fits(rule, p).or_else(|| ends(rule, p)));
        tried.push(if error.is_some() { Vec::new() } else { programs });
        errors.extend(error.map(|e| *e));
    }
    if errors.is_empty() {
        errors.extend(circle(rules, &tried).map(|e| *e));
    }
    errors
}

fn programs(rule: &Rule) -> Vec<Instance> {
    let mut random = Random(1);
    (0..DRAWS).filter_map(|_| rule.draw(&mut random)).take(PROGRAMS).collect()
}

/// The types of a program's arguments: `%x: tensor<4xf32>`.
pub fn arguments(body: &Body) -> String {
    let args = body.entry().into_iter().flat_map(|entry| body.block_args(entry).collect::<Vec<_>>());
    let args: Vec<String> = args.map(|v| format!("%{}: {}", body.value_name(v), body.ty(v))).collect();
    if args.is_empty() { "no arguments".into() } else { args.join(", ") }
}

/// Whether the replacement can be made.
fn fits(rule: &Rule, program: &Instance) -> Option<Box<Diagnostic>> {
    let error = rule.replaced(program).err()?;
    let loc = error.notes.first().map_or(rule.loc, |note| note.0);
    let mut out = Diagnostic::error(loc, error.message)
        .help(error.help.unwrap_or_else(|| "the types on both sides are to be the same".into()));
    out.len = word_at(loc);
    Some(out.note(Loc::UNKNOWN, format!("for example with {}", arguments(&program.body))))
}

/// The bytes of the name at a place in a file of rules.
fn word_at(loc: Loc) -> u32 {
    let Some((source, at)) = loc.source() else { return 0 };
    let word = source.text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c));
    word.count() as u32
}

fn runs_on(rules: &[&Arc<Rule>], program: &Instance) -> bool {
    let mut set = PatternSet::new();
    rules.iter().for_each(|rule| {
        set.add_shared((*rule).clone());
    });
    let config = RewriteConfig { max_rewrites: Some(ENDLESS), ..RewriteConfig::patterns_only() };
    apply_patterns(&mut program.body.clone(), &set, &RewriteConfig { erase_dead: true, ..config }).is_err()
}

/// Whether the rule comes to an end by itself.
fn ends(rule: &Arc<Rule>, program: &Instance) -> Option<Box<Diagnostic>> {
    runs_on(&[rule], program).then(|| {
        let what = format!("the rule '{}' applies to what it makes, and comes to no end", rule.name);
        let error = Diagnostic::error(rule.loc, what).with_len(rule.name.len());
        let error = error.help("add a condition that its result does not meet");
        error.note(Loc::UNKNOWN, format!("for example with {}", arguments(&program.body)))
    })
}

/// The first rules that undo one another.
fn circle(rules: &[Arc<Rule>], tried: &[Vec<Instance>]) -> Option<Box<Diagnostic>> {
    let all: Vec<&Arc<Rule>> = rules.iter().collect();
    let mut pairs = rules.iter().zip(tried).flat_map(|(rule, programs)| programs.iter().map(move |p| (rule, p)));
    let (rule, program) = pairs.find(|(_, program)| runs_on(&all, program))?;
    let other = rules.iter().find(|other| !Arc::ptr_eq(rule, other) && runs_on(&[rule, other], program));
    let example = format!("for example with {}", arguments(&program.body));
    let error = match other {
        Some(other) => {
            let what = format!("the rules '{}' and '{}' undo each other", rule.name, other.name);
            let error = Diagnostic::error(rule.loc, what).with_len(rule.name.len());
            error.note(other.loc, "the other rule").note(Loc::UNKNOWN, example)
        }
        None => {
            let what = format!("with the rules of this file what '{}' matches comes to no end", rule.name);
            Diagnostic::error(rule.loc, what).with_len(rule.name.len()).note(Loc::UNKNOWN, example)
        }
    };
    Some(error.help("add a condition to one, so that its result stays as it is"))
}
