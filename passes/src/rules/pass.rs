//! `rewrite`: a file of rules, applied.

use super::{RuleSet, read_file};
use rc_ir::pass::{OptionDef, OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::rewrite::{RewriteConfig, apply_patterns};
use rc_ir::{Body, Diagnostic, Loc, Result};

static OPTIONS: [OptionDef; 2] = [
    option("rules", OptionKind::Str, "", "The file of rules; as a flag, --rewrite=FILE is enough."),
    option(
        "max-rewrites",
        OptionKind::Int { min: 0, max: i64::MAX },
        "0",
        "Rewrites of a function after which rules count as not coming to an end; 0: a hundred for each operation.",
    ),
];

pub static REWRITE: PassDef = PassDef {
    summary: "Applies the rewrite rules of a file.",
    doc: "The rules are checked when they are read. They are tried on the operations in program order, and again on what they change and make, \
          until none applies; what nothing reads then goes. With --statistics each rule says how often it was applied.",
    options: &OPTIONS,
    ..PassDef::new("rewrite", |options| {
        if options.str("rules").is_empty() {
            let error = Diagnostic::error(Loc::UNKNOWN, "'rewrite' needs a file of rules");
            return Err(error.help("write --rewrite=my.rules, or rewrite{rules=my.rules} in a pipeline"));
        }
        let rules = read_file(options.str("rules")).map_err(together)?;
        let most = usize::try_from(options.int("max-rewrites")).ok().filter(|&n| n > 0);
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| run(body, &rules, most, cx)))
    })
};

fn run(body: &mut Body, rules: &RuleSet, most: Option<usize>, cx: &mut SymbolContext) -> Result {
    let config = RewriteConfig { fold: false, erase_dead: true, max_rewrites: most };
    let outcome = apply_patterns(body, &rules.patterns(), &config)?;
    rules.count(&outcome.applied, cx);
    outcome.remarks.into_iter().for_each(|(loc, text)| cx.remark(loc, text));
    Ok(())
}

/// The first of several errors, with the others as notes: a pass is refused with one.
fn together(errors: Vec<Diagnostic>) -> Box<Diagnostic> {
    let mut errors = errors.into_iter();
    let mut first = Box::new(errors.next().expect("an error"));
    for error in errors {
        first = first.note(error.loc, error.message);
    }
    first
}
