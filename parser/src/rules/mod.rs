//! Rewrite rules in text: a graph to match, conditions, a replacement, in IR syntax.
//!
//! ```text
//! rule transpose-of-transpose(%x) {
//!   %y = core.transpose %x {perm = $p}
//!   %z = core.transpose %y {perm = $q}
//! } => {
//!   %z = core.transpose %x {perm = $p[$q]}
//! }
//! ```
//!
//! Here is the grammar alone; `rc_passes::rules` says what the words mean, and checks them.

pub mod ast;
mod lexer;

lalrpop_util::lalrpop_mod!(
    #[allow(clippy::all, clippy::pedantic, unused, elided_lifetimes_in_paths, mismatched_lifetime_syntaxes)]
    grammar,
    "/rules/grammar.rs"
);

use lalrpop_util::ParseError;
use lexer::Token;
use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Result};

/// Rules nest this many brackets and signs at most.
const DEPTH_LIMIT: usize = 100;

/// The rules of a source, and the forms that they use.
///
/// # Errors
/// The first thing that does not fit the grammar.
pub fn parse(source: &Source) -> Result<ast::File<'_>> {
    let text = source.text.as_str();
    check_depth(source)?;
    let tokens = lexer::tokens(text).map(|(token, span)| match token {
        Ok(token) => Ok((span.start, token, span.end)),
        Err(()) => Err(span.start),
    });
    grammar::FileParser::new().parse(tokens).map_err(|error| syntax_error(source, error))
}

/// What is built of a text nests as its brackets and signs do, and whoever walks it must not run out of stack.
fn check_depth(source: &Source) -> Result {
    let (mut depth, mut signs) = (0usize, 0usize);
    for (token, span) in lexer::tokens(&source.text) {
        match token {
            Ok(Token::ParenOpen | Token::BraceOpen | Token::BracketOpen) => depth += 1,
            Ok(Token::ParenClose | Token::BraceClose | Token::BracketClose) => depth = depth.saturating_sub(1),
            Ok(Token::Rule | Token::Comma | Token::Equal) => signs = 0,
            Ok(Token::Minus | Token::Not | Token::Plus | Token::Star | Token::And | Token::Or) => signs += 1,
            Ok(Token::Mod | Token::FloorDiv | Token::CeilDiv) => signs += 1,
            _ => {}
        }
        if depth > DEPTH_LIMIT || signs > DEPTH_LIMIT {
            let error =
                Diagnostic::error(source.loc(span.start), "not supported: an expression of more than 100 parts");
            return Err(error.with_len(span.len()).help("give a part a name with 'let $name = …'"));
        }
    }
    Ok(())
}

fn syntax_error(source: &Source, error: ParseError<usize, Token<'_>, usize>) -> Box<Diagnostic> {
    let text = source.text.as_str();
    let (span, expected) = match error {
        ParseError::User { error: at } => {
            let found = text[at..].chars().next().unwrap_or(' ');
            let what = if found.is_ascii_digit() {
                "a number that does not fit 64 bits".to_string()
            } else {
                format!("'{found}' starts nothing that rules have")
            };
            return Diagnostic::error(source.loc(at), what).with_len(found.len_utf8());
        }
        ParseError::UnrecognizedToken { token: (start, _, end), expected } => (start..end, expected),
        ParseError::ExtraToken { token: (start, _, end) } => (start..end, Vec::new()),
        ParseError::UnrecognizedEof { location, expected } => (location..location, expected),
        ParseError::InvalidToken { location } => (location..location, Vec::new()),
    };
    let found = if span.is_empty() { "the end of the file".into() } else { format!("'{}'", &text[span.clone()]) };
    let error = Diagnostic::error(source.loc(span.start), format!("expected {}, found {found}", listed(&expected)));
    error.with_len(span.len()).help("a rule looks like rule name(%x) { %y = core.neg %x } where … => { %y = … }")
}

/// The first few of what may come: punctuation first, which says more than what may start an expression.
fn listed(expected: &[String]) -> String {
    let mut words: Vec<String> = expected
        .iter()
        .map(|e| e.trim_matches('"'))
        .map(|e| if e.contains(' ') { e.into() } else { format!("'{e}'") })
        .collect();
    words.sort_by_key(|word| {
        (word.starts_with('\'') && word[1..].starts_with(char::is_alphabetic), !word.starts_with('\''), word.clone())
    });
    words.truncate(4);
    match words.split_last() {
        None => "nothing more".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::ast::*;
    use super::*;

    fn error(text: &str) -> String {
        let source = Source::register("t.rules", text.to_string());
        let error = parse(&source).expect_err("a wrong rule");
        let (_, at) = error.loc.source().expect("a position");
        format!("{at}: {}", error.message)
    }

    #[test]
    fn reads_every_part() {
        let text = "
            // Words of a comment.
            rule a-b(%x: tensor<$s... x 4x5x$e>, %y, %zs...) assuming finite {
              %a = core.add %x, %y {k = add, l = [1, ..$p, -2], m = none, n = 1 else 2} : tensor<$m x (2 * $n) x f32>
              %b, %c = t.op %a, %zs... mask(%y) {} : (f32, $t)
            } where $p[0] mod 8 == 0, not sorted($p) or 1.5 < $q and true, let $n = -$p floordiv 2 => {
              %b = %x
              %c = t.op {..%a, k = \"s\"} : type(%c)
            }";
        let source = Source::register("t.rules", text.to_string());
        let file = parse(&source).unwrap_or_else(|e| panic!("{}", e.render()));
        let [rule] = file.rules.as_slice() else { panic!("one rule") };
        assert_eq!((rule.name.node, rule.holes.len(), rule.assuming[0].node), ("a-b", 3, "finite"));
        let Some(At { node: Expr::Tensor(dims, _), .. }) = &rule.holes[0].ty else { panic!("a tensor") };
        assert_eq!(dims.iter().map(|d| d.many).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((rule.pattern.len(), rule.conditions.len(), rule.replacement.len()), (2, 3, 2));
        let Condition::Holds(At { node: Expr::Binary(Binary::Or, _, right), .. }, _) = &rule.conditions[1] else {
            panic!("or binds loosest")
        };
        assert!(matches!(right.node, Expr::Binary(Binary::And, ..)));
        assert_eq!(&text[rule.pattern[0].span.clone()][..13], "%a = core.add");
    }

    #[test]
    fn carets_stand_under_the_mistake() {
        assert_eq!(error("rule a(%x) { %y = core.neg %x } = { %y = %x }"), "32: expected '=>' or 'where', found '='");
        assert_eq!(error("rule a(%x) { %y core.neg %x }"), "16: expected ',' or '=', found 'core.neg'");
        assert_eq!(error("rul a"), "0: expected 'form' or 'rule', found 'rul'");
        assert_eq!(error("rule a(%x)"), "10: expected '{' or 'assuming', found the end of the file");
        assert_eq!(error("rule a(%x) { %y = \u{e9} }"), "18: '\u{e9}' starts nothing that rules have");
        assert!(error(&format!("rule a() {{}} where {} => {{}}", "(".repeat(100_000))).contains("more than 100 parts"));
        assert!(
            error(&format!("rule a() {{}} where {} 1 => {{}}", "-".repeat(100_000))).contains("more than 100 parts")
        );
        assert!(error("rule a() {} where 99999999999999999999 == 1 => {}").contains("does not fit 64 bits"));
    }
}
