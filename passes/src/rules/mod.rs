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

pub use build::Applied;
pub use check::arguments;
pub use draw::Instance;
pub use functions::{FUNCTIONS, Function};
pub use pass::REWRITE;
pub use random::Random;
pub use rule::{Assuming, Rule};

use matcher::Match;
use rc_ir::loc::Source;
use rc_ir::pass::SymbolContext;
use rc_ir::rewrite::{PatternSet, Rewriter};
use rc_ir::{Body, Diagnostic, Loc, Op, OpName, Result, Value};
use rule::is_elementwise;
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Rules that are applied together.
#[derive(Clone)]
pub struct RuleSet {
    pub rules: Vec<Arc<Rule>>,
    /// The numbers of the rules by the operations that their roots are.
    roots: FxHashMap<OpName, Vec<usize>>,
    /// Those of rules of any elementwise operation.
    any: Vec<usize>,
}

impl RuleSet {
    fn new(rules: Vec<Arc<Rule>>) -> RuleSet {
        let (mut roots, mut any) = (FxHashMap::<OpName, Vec<usize>>::default(), Vec::new());
        for (number, rule) in rules.iter().enumerate() {
            match rule.ops[0].any {
                Some(_) => any.push(number),
                None => roots.entry(rule.ops[0].name).or_default().push(number),
            }
        }
        for (_, numbers) in roots.iter_mut().filter(|(name, _)| name.def().is_some_and(is_elementwise)) {
            numbers.extend(&any);
            numbers.sort_unstable();
        }
        RuleSet { rules, roots, any }
    }
    /// The numbers of the rules whose root an operation of this name may be, in order.
    fn of(&self, name: OpName) -> &[usize] {
        match self.roots.get(&name) {
            Some(numbers) => numbers,
            None if name.def().is_some_and(is_elementwise) => &self.any,
            None => &[],
        }
    }
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
    /// Applies the first rule that fits an operation. `chosen`: what the pass chose, where it chooses.
    ///
    /// # Errors
    /// An operation that a rule makes is refused by its declaration.
    pub fn apply_at(
        &self,
        body: &mut Body,
        op: Op,
        chosen: Option<&[Value]>,
        cx: &mut SymbolContext,
    ) -> Result<Option<Applied>> {
        let numbers = self.of(body.name(op));
        let mut rewriter = Rewriter::new(body);
        let mut applied = None;
        let mut found = Match { chosen: chosen.map(Into::into), ..Match::default() };
        for &number in numbers {
            let rule = &self.rules[number];
            if let Some(done) = rule.apply(op, &mut found, &mut rewriter)? {
                cx.count(rule.statistic, 1);
                applied = Some(Applied { rule: number, ..done });
                break;
            }
        }
        rewriter.remarks.into_iter().for_each(|(loc, text)| cx.remark(loc, text));
        Ok(applied)
    }
    /// The rules of these names.
    pub fn only(&self, names: &[&str]) -> RuleSet {
        RuleSet::new(self.rules.iter().filter(|rule| names.contains(&rule.name)).cloned().collect())
    }
    /// The operand that an operation gives as it is, by a rule for it alone: a reshape to the same shape is its operand.
    fn given_operand(&self, body: &Body, op: Op) -> Option<Value> {
        let mut found = Match::default();
        let plain = |rule: &&Rule| rule.ops.len() == 1 && rule.makes.is_empty() && rule.assuming == Assuming::default();
        let rules = self.of(body.name(op)).iter().map(|&number| &*self.rules[number]);
        let rule = rules.filter(plain).find(|rule| rule.may_match(body, op) && rule.matches(body, op, &mut found))?;
        found.values[rule.results[0]]
    }
    /// Counts how often each rule was applied.
    pub fn count(&self, applied: &[usize], cx: &mut SymbolContext) {
        for (rule, &n) in self.rules.iter().zip(applied).filter(|a| *a.1 > 0) {
            cx.count(rule.statistic, n as u64);
        }
    }
}

/// Files of rules that are part of rc: a test checks and proves each.
pub static BUILT_IN: [(&str, &str); 4] = [
    ("canonicalize.rules", include_str!("../../rules/canonicalize.rules")),
    ("layout.rules", include_str!("../../rules/layout.rules")),
    ("transposes.rules", include_str!("../../rules/transposes.rules")),
    ("attention.rules", include_str!("../../rules/attention.rules")),
];

/// One of them by its number, read when it is first asked for.
macro_rules! built_in {
    ($number:expr) => {{
        static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
            rc_dialects::register();
            let (name, text) = BUILT_IN[$number];
            resolved(&Source::register(name, text.into())).unwrap_or_else(|errors| panic!("{}", errors[0].render()))
        });
        &RULES
    }};
}

/// The rules that `canonicalize` applies.
pub fn canonicalizations() -> &'static RuleSet {
    built_in!(0)
}

/// The rules by which `layout` moves transposes and reshapes.
pub fn moves() -> &'static RuleSet {
    built_in!(1)
}

/// The rules by which what reads transposed values reads them as they are stored.
pub fn transposes() -> &'static RuleSet {
    built_in!(2)
}

/// The rules by which a softmax between two products is attention.
pub fn attentions() -> &'static RuleSet {
    built_in!(3)
}

/// The rules of a file, checked.
///
/// # Errors
/// As [`read`]; the file cannot be read.
pub fn read_file(path: &str) -> std::result::Result<RuleSet, Vec<Diagnostic>> {
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
pub fn read(source: &Source) -> std::result::Result<RuleSet, Vec<Diagnostic>> {
    rc_dialects::register();
    let rules = resolved(source)?;
    let errors = check::check(&rules.rules);
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The rules of a source, not tried on any program: for rules that a test has checked.
///
/// # Errors
/// Names, kinds and declarations that do not fit.
pub fn resolved(source: &Source) -> std::result::Result<RuleSet, Vec<Diagnostic>> {
    let file = rc_parser::rules::parse(source).map_err(|error| vec![*error])?;
    let mut errors = Vec::new();
    let mut forms = Vec::new();
    for form in &file.forms {
        forms.extend(resolve::form(source, form, &forms, &mut errors).map(Arc::new));
    }
    let written = &file.rules;
    let rules =
        (written.iter()).filter_map(|rule| resolve::resolve(source, rule, &forms, &mut errors)).map(Arc::new).collect();
    for (i, rule) in written.iter().enumerate() {
        if let Some(first) = written[..i].iter().find(|r| r.name.node == rule.name.node) {
            let message = format!("two rules are named '{}'", rule.name.node);
            let error = Diagnostic::error(source.loc(rule.name.span.start), message).with_len(rule.name.span.len());
            let error = error.note(source.loc(first.name.span.start), "the first");
            errors.push(*error.help("statistics and errors speak of rules by their names"));
        }
    }
    if errors.is_empty() { Ok(RuleSet::new(rules)) } else { Err(errors) }
}
