//! Pipelines in text: `fuse{max-ops=64},func.func(cse),lower-cuda{arch=sm_90a}`.
//!
//! Passes are separated by commas and run in order. Options stand in braces, separated by spaces or commas; a
//! boolean's name alone turns it on. `func.func(…)` runs symbol passes on operations of that name only, and
//! `builtin.module(…)` may stand around the whole.

use pest::Parser;
use pest::iterators::Pair;
use rc_ir::diag::Diagnostic;
use rc_ir::loc::{Loc, Source};
use rc_ir::op_def::{OpName, Traits, resolve_pretty};
use rc_ir::pass::{OptionPart, Options, PassDef, PassInstance, PassKind, find, registered};
use rc_ir::suggest::did_you_mean;
use std::sync::Arc;

#[derive(pest_derive::Parser)]
#[grammar = "pipeline.pest"]
struct Grammar;

/// The passes of a pipeline; `source_name` is what diagnostics call the text.
///
/// Errors: all unknown passes, anchors, options and values, with carets inside the text.
pub fn parse_pipeline(source_name: &str, text: &str) -> Result<Vec<PassInstance>, Vec<Diagnostic>> {
    let source = Source::register(source_name, text.to_string());
    let pairs = Grammar::parse(Rule::pipeline, text).map_err(|e| vec![*syntax_error(&source, &e)])?;
    let mut reader = Reader { source, passes: Vec::new(), errors: Vec::new() };
    for pair in pairs {
        match pair.as_rule() {
            Rule::pass => reader.pass(pair, None),
            Rule::group => reader.group(pair),
            _ => {}
        }
    }
    if reader.errors.is_empty() { Ok(reader.passes) } else { Err(reader.errors) }
}

struct Reader {
    source: Arc<Source>,
    passes: Vec<PassInstance>,
    errors: Vec<Diagnostic>,
}

impl Reader {
    fn error(&mut self, at: &Pair<Rule>, message: String, help: Option<String>) {
        let span = at.as_span();
        let error = Diagnostic::error(self.source.loc(span.start()), message).with_len(span.end() - span.start());
        self.errors.push(*match help {
            Some(help) => error.help(help),
            None => error,
        });
    }

    fn group(&mut self, pair: Pair<Rule>) {
        let mut inner = pair.into_inner();
        let Some(anchor) = inner.next() else { return };
        let word = anchor.as_str();
        let name = resolve_pretty(word);
        if find(word).is_some() {
            let help =
                format!("write options in braces, {word}{{…}}; only operations hold passes, as in func.func({word})");
            self.error(&anchor, format!("'{word}' is a pass, and holds no passes"), Some(help));
        } else if !name.def().is_some_and(|d| d.has(Traits::SYMBOL)) {
            let symbols: Vec<&str> = symbols().map(|n| n.pretty()).collect();
            let hint = did_you_mean(word, symbols.iter().copied());
            let help = format!("passes run on {}", symbols.join(", "));
            self.error(&anchor, format!("'{word}' is no top-level operation{hint}"), Some(help));
        }
        inner.filter(|p| p.as_rule() == Rule::pass).for_each(|pass| self.pass(pass, Some(name)));
    }

    fn pass(&mut self, pair: Pair<Rule>, anchor: Option<OpName>) {
        let mut inner = pair.into_inner();
        let Some(name) = inner.next() else { return };
        let Some(def) = find(name.as_str()) else {
            let names: Vec<&str> = registered().iter().map(|d| d.name).collect();
            let hint = did_you_mean(name.as_str(), names.iter().copied());
            let help = hint.is_empty().then(|| format!("the passes are {}", names.join(", ")));
            return self.error(&name, format!("unknown pass '{}'{hint}", name.as_str()), help);
        };
        let errors = self.errors.len();
        let mut options = Options::defaults(def);
        inner.filter(|p| p.as_rule() == Rule::setting).for_each(|setting| self.setting(def, &mut options, setting));
        if self.errors.len() > errors {
            return;
        }
        match (PassInstance::with_options(def, options), anchor) {
            // What is wrong may stand in a file that an option names.
            (Err(e), _) if e.loc.source().is_some() => self.errors.push(*e),
            (Err(e), _) => self.error(&name, e.message, e.help),
            (Ok(PassInstance { kind: PassKind::Module(_), .. }), Some(anchor)) => {
                let help = format!("write it outside of {}(…)", anchor.pretty());
                self.error(&name, format!("'{}' works on the whole module", def.name), Some(help));
            }
            (Ok(pass), Some(anchor)) => self.passes.push(pass.anchored(anchor)),
            (Ok(pass), None) => self.passes.push(pass),
        }
    }

    fn setting(&mut self, def: &'static PassDef, options: &mut Options, pair: Pair<Rule>) {
        let mut inner = pair.into_inner();
        let Some(key) = inner.next() else { return };
        let value = inner.next();
        let text = value.as_ref().map(value_text);
        if let Err(e) = options.set(def, key.as_str(), text.as_deref()) {
            let at = match (e.part, &value) {
                (OptionPart::Value, Some(value)) => value,
                _ => &key,
            };
            self.error(at, e.message, e.help);
        }
    }
}

/// A value without its quotes and escapes.
fn value_text(value: &Pair<Rule>) -> String {
    let Some(inner) = value.clone().into_inner().next() else { return String::new() };
    if inner.as_rule() == Rule::bare {
        return inner.as_str().to_string();
    }
    let quoted = inner.into_inner().next().map_or("", |t| t.as_str());
    let mut out = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

/// The operations that symbol passes can be anchored on.
fn symbols() -> impl Iterator<Item = OpName> {
    rc_ir::op_def::registered().into_iter().filter(|d| d.has(Traits::SYMBOL)).map(|d| OpName::new(d.name))
}

fn syntax_error(source: &Source, error: &pest::error::Error<Rule>) -> Box<Diagnostic> {
    use pest::error::{ErrorVariant, InputLocation};
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let mut expected: Vec<&str> = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.iter().filter_map(|&r| describe(r)).collect(),
        ErrorVariant::CustomError { .. } => Vec::new(),
    };
    expected.sort_unstable();
    expected.dedup();
    let next = source.text[at..].chars().next();
    let found = next.map_or("the end".to_string(), |c| format!("'{c}'"));
    let expected = if expected.is_empty() { "something else".to_string() } else { expected.join(" or ") };
    let loc: Loc = source.loc(at);
    Diagnostic::error(loc, format!("expected {expected}, found {found}"))
        .with_len(next.map_or(0, char::len_utf8))
        .help("a pipeline looks like fuse{max-ops=64},func.func(cse)")
}

fn describe(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::pass | Rule::name | Rule::group | Rule::anchor | Rule::word => "a pass",
        Rule::setting | Rule::key => "an option",
        Rule::comma => "','",
        Rule::end_group => "')'",
        Rule::end_options => "'}'",
        Rule::value | Rule::bare | Rule::quoted => "a value",
        Rule::text | Rule::close => "a closing quote",
        Rule::EOI => "the end of the pipeline",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::op_def::{OpDef, Regions};
    use rc_ir::pass::{OptionDef, OptionKind, PassContext, SymbolContext, option, pipeline_text, register};
    use rc_ir::{Body, Module};

    static FUNC: OpDef = OpDef { regions: Regions::Exactly(1), traits: Traits::SYMBOL, ..OpDef::new("rc.pl.func") };
    static OPTIONS: [OptionDef; 4] = [
        option("max-ops", OptionKind::Int { min: 1, max: 4096 }, "64", ""),
        option("arch", OptionKind::Enum(&["sm_80", "sm_90a"]), "sm_90a", ""),
        option("only", OptionKind::Str, "", ""),
        option("eager", OptionKind::Bool, "false", ""),
    ];
    static SYMBOL: PassDef = PassDef {
        options: &OPTIONS,
        ..PassDef::new("pl-fuse", |_| Ok(PassKind::symbol(|_: &mut Body, _: &mut SymbolContext| Ok(()))))
    };
    static MODULE: PassDef =
        PassDef::new("pl-plan", |_| Ok(PassKind::module(|_: &mut Module, _: &mut PassContext| Ok(()))));

    fn parse(text: &str) -> Result<String, Vec<Diagnostic>> {
        rc_ir::op_def::register(&[&FUNC]);
        register(&[&SYMBOL, &MODULE]);
        parse_pipeline("pipeline", text).map(|p| pipeline_text(&p))
    }
    /// The message, and the text under the caret.
    #[track_caller]
    fn error(text: &str) -> (String, String) {
        let errors = parse(text).unwrap_err();
        assert!(errors[0].render().contains("error: "));
        assert_eq!(errors.len(), 1, "{errors:?}");
        let (source, at) = errors[0].loc.source().unwrap();
        let end = (at + errors[0].len as usize).min(text.len());
        (errors[0].message.clone(), source.text[at..end].to_string())
    }

    #[test]
    fn reads_and_prints_back() {
        for text in [
            "",
            "pl-plan",
            "pl-fuse{max-ops=8},pl-plan",
            "pl.func(pl-fuse{arch=sm_80 eager=true}),pl-fuse",
            "pl-fuse{only=\"a \\\"b\\\\\"}",
        ] {
            assert_eq!(parse(text).unwrap(), text);
        }
        let loose = " builtin.module( pl-fuse{ max-ops = 8, eager },\n pl.func(pl-fuse, pl-fuse) , pl-plan ) ";
        assert_eq!(parse(loose).unwrap(), "pl-fuse{max-ops=8 eager=true},pl.func(pl-fuse),pl.func(pl-fuse),pl-plan");
        assert_eq!(parse("pl.func()").unwrap(), "");
    }

    #[test]
    fn carets_stand_under_the_mistake() {
        let is = |text, message: &str, caret: &str| {
            let (m, c) = error(text);
            assert!(m.contains(message) && c == caret, "{text}: {m:?} at {c:?}");
        };
        is("pl-plan,pl-fues", "unknown pass 'pl-fues'; did you mean 'pl-fuse'?", "pl-fues");
        is("pl-fuse{max-op=3}", "has no option 'max-op'; did you mean 'max-ops'?", "max-op");
        is("pl-fuse{max-ops=none}", "an integer from 1 to 4096, got 'none'", "none");
        is("pl-fuse{arch=sm_90}", "got 'sm_90'; did you mean 'sm_90a'?", "sm_90");
        is("pl-fuse{max-ops}", "needs a value: max-ops=<int>", "max-ops");
        is("pl.fnuc(pl-fuse)", "'pl.fnuc' is no top-level operation; did you mean 'pl.func'?", "pl.fnuc");
        is("pl.func(pl-plan)", "'pl-plan' works on the whole module", "pl-plan");
        is("pl-fuse(pl-fuse)", "'pl-fuse' is a pass", "pl-fuse");
        is("pl-fuse,", "expected a pass, found the end", "");
        is("pl-fuse pl-plan", "expected ',' or the end of the pipeline, found 'p'", "p");
        is("pl-fuse{max-ops=}", "expected a value, found '}'", "}");
        is("pl-fuse{only=\"a}", "expected a closing quote, found the end", "");
        is("pl-fuse{max-ops=3", "expected '}' or an option, found the end", "");
        is("pl.func(pl-fuse", "expected ')' or ',', found the end", "");
        is("é", "expected a pass", "é");
        is("pl-fuse{é}", "expected '}' or an option", "é");
        is(&"a(".repeat(100_000), "expected", "(");
    }

    #[test]
    fn several_errors_at_once() {
        let errors = parse("pl-fuse{max-ops=0 eager=no},nothing").unwrap_err();
        assert_eq!(errors.len(), 3);
        let text = errors[0].render();
        assert!(text.contains("pl-fuse{max-ops=0 eager=no},nothing") && text.contains('^'), "{text}");
    }
}
