//! Rewrite rules in text, as `docs/rewrite-rules.md` describes them: read and checked here, applied as patterns of the rewriting driver.
//!
//! | file | what it does |
//! |---|---|
//! | `resolve` | names, kinds, declarations: from what is written to a [`Rule`] |
//! | `val`, `functions`, `code` | what expressions hold, the functions in them, their values |
//! | `gate` | what is asked of the root before anything else |
//! | `matcher`, `build` | finds a pattern, makes its replacement |
//! | `draw`, `check` | random programs that a rule matches, and what they show about it |
//! | `pass` | `rewrite`, which applies a file |

mod build;
mod check;
mod code;
mod draw;
mod functions;
mod gate;
mod matcher;
mod pass;
mod random;
mod resolve;
mod rule;
mod val;

pub use check::arguments;
pub use draw::Instance;
pub use functions::{FUNCTIONS, Function};
pub use pass::REWRITE;
pub use random::Random;
pub use rule::{Assuming, Rule};

use rc_ir::loc::Source;
use rc_ir::pass::SymbolContext;
use rc_ir::rewrite::PatternSet;
use rc_ir::{Diagnostic, Loc};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Rules that are applied together.
#[derive(Clone)]
pub struct RuleSet {
    pub rules: Vec<Arc<Rule>>,
}

impl RuleSet {
    /// The rules as patterns, in their order.
    pub fn patterns(&self) -> PatternSet {
        let mut set = PatternSet::new();
        self.add_to(&mut set);
        set
    }
    /// Adds the rules, after the patterns that are there.
    pub fn add_to(&self, set: &mut PatternSet) {
        self.rules.iter().for_each(|rule| {
            set.add_shared(rule.clone());
        });
    }
    /// Counts how often each rule was applied.
    pub fn count(&self, applied: &[usize], cx: &mut SymbolContext) {
        for (rule, &n) in self.rules.iter().zip(applied).filter(|a| *a.1 > 0) {
            cx.count(rule.statistic, n as u64);
        }
    }
}

/// The rules that `canonicalize` applies: a test checks and proves them.
pub fn canonicalizations() -> &'static RuleSet {
    static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
        rc_dialects::register();
        let text = include_str!("../../rules/canonicalize.rules");
        resolved(&Source::register("canonicalize.rules", text.into()))
            .unwrap_or_else(|errors| panic!("{}", errors[0].render()))
    });
    &RULES
}

/// The rules of a file, checked.
///
/// # Errors
/// As [`read`]; the file cannot be read.
pub fn read_file(path: &str) -> Result<RuleSet, Vec<Diagnostic>> {
    let bytes =
        std::fs::read(Path::new(path)).map_err(|e| vec![*Diagnostic::error(Loc::UNKNOWN, format!("{path}: {e}"))])?;
    match String::from_utf8(bytes) {
        Ok(text) => read(&Source::register(path, text)),
        Err(error) => Err(vec![*rc_parser::not_utf8(path, error)]),
    }
}

/// The rules of a source, checked.
///
/// # Errors
/// Everything that is wrong with them.
pub fn read(source: &Source) -> Result<RuleSet, Vec<Diagnostic>> {
    rc_dialects::register();
    let rules = resolved(source)?;
    let errors = check::check(&rules.rules);
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The rules of a source, not tried on any program: for rules that a test has checked.
///
/// # Errors
/// Names, kinds and declarations that do not fit.
pub fn resolved(source: &Source) -> Result<RuleSet, Vec<Diagnostic>> {
    let written = rc_parser::rules::parse(source).map_err(|error| vec![*error])?;
    let mut errors = Vec::new();
    let rules = written.iter().filter_map(|rule| resolve::resolve(source, rule, &mut errors)).map(Arc::new).collect();
    for (i, rule) in written.iter().enumerate() {
        if let Some(first) = written[..i].iter().find(|r| r.name.node == rule.name.node) {
            let message = format!("two rules are named '{}'", rule.name.node);
            let error = Diagnostic::error(source.loc(rule.name.span.start), message).with_len(rule.name.span.len());
            let error = error.note(source.loc(first.name.span.start), "the first");
            errors.push(*error.help("statistics and errors speak of rules by their names"));
        }
    }
    if errors.is_empty() { Ok(RuleSet { rules }) } else { Err(errors) }
}
