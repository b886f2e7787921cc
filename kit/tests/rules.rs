//! Rewrite rules: what is wrong with them is said where it stands, what is right is applied, and what is not equal is found by running it.

use rc_ir::Diagnostic;
use rc_ir::loc::Source;
use rc_ir::pass::{PassInstance, PassManager};
use rc_ir::rewrite::{RewriteConfig, apply_patterns};
use rc_kit::prove::{Effort, prove};
use rc_passes::rules::{BUILT_IN, FUNCTIONS, RuleSet, read, resolved};

fn errors(text: &str) -> Vec<Diagnostic> {
    let source = Source::register("t.rules", text.into());
    read(&source).map(|_| Vec::new()).unwrap_or_else(|errors| errors)
}

fn rules(text: &str) -> RuleSet {
    let source = Source::register("t.rules", text.into());
    read(&source).unwrap_or_else(|e| panic!("{}", e.iter().map(Diagnostic::render).collect::<String>()))
}

/// The module's text after the rules, and how often each was applied.
fn rewritten(rules: &RuleSet, module: &str) -> (String, Vec<usize>) {
    rc_kit::register();
    let (module, problems) = rc_parser::parse_module("t.ir", module);
    let mut module = module.unwrap_or_else(|| panic!("{problems:?}"));
    let mut applied = Vec::new();
    for body in &mut module.bodies {
        let config = RewriteConfig { fold: false, ..RewriteConfig::default() };
        applied = apply_patterns(body, &rules.patterns(), &config).unwrap_or_else(|e| panic!("{}", e.render())).applied;
    }
    let wrong = rc_dialects::verify(&module);
    assert!(wrong.is_empty(), "{wrong:?}");
    (module.to_string(), applied)
}

#[track_caller]
fn body_is(rules: &RuleSet, signature: &str, body: &str, expected: &str) {
    let (text, _) = rewritten(rules, &format!("func.func @f{signature} {{\n{body}\n}}\n"));
    let found: Vec<&str> = text.lines().skip(1).map(str::trim).filter(|l| *l != "}").collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(found, expected, "{text}");
}

/// Each is a mistake: the rule, the text under the caret, part of the message, part of the hint.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("rule a(%x) { %y = core.neg %z } => { %y = %x }", "%z", "nothing defines '%z'", "declare it as a hole"),
    ("rule a(%x, %w) { %y = core.neg %x } => { %y = %w }", "%w", "the hole '%w' is not used", "take it out"),
    (
        "rule a(%x) { %y = core.neq %x } => { %y = %x }",
        "core.neq",
        "no operation 'core.neq'; did you mean 'core.neg'?",
        "--list-ops",
    ),
    (
        "rule a(%x) { %y = core.transpose %x {prem = $p} } => { %y = %x }",
        "prem",
        "no attribute 'prem'; did you mean 'perm'?",
        "it has perm",
    ),
    ("rule a(%x) { %y = core.add %x } => { %y = %x }", "core.add", "takes 2 operands, and has 1", "lhs, rhs"),
    ("rule a(%x) { %y, %z = core.neg %x } => { %y = %x }", "%y", "has 1 results, and 2 are named", ""),
    ("rule a(%x) { %y = core.neg %x } where $n == 1 => { %y = %x }", "$n", "nothing binds '$n'", "variables are bound"),
    (
        "rule a(%x) { %y = core.neg %x } where rank(%x) => { %y = %x }",
        "rank(%x)",
        "a condition is true or false, and this is an integer",
        "compare it",
    ),
    (
        "rule a(%x) { %y = core.neg %x } where rnk(%x) == 1 => { %y = %x }",
        "rnk",
        "no function 'rnk'; did you mean 'rank'?",
        "the functions are",
    ),
    (
        "rule a(%x) { %y = core.neg %x } where rank(%x, %x) == 1 => { %y = %x }",
        "rank",
        "takes one argument, and has 2",
        "The number of dimensions",
    ),
    (
        "rule a(%x) { %y = core.neg %x } where rank(1) == 1 => { %y = %x }",
        "1",
        "expected a value of the graph, found an integer",
        "",
    ),
    (
        "rule a(%x) { %y = core.neg %x } where shape(%x) == f32 => { %y = %x }",
        "shape(%x) == f32",
        "a list of integers and a type do not go together",
        "one kind",
    ),
    (
        "rule a(%x) { %y = core.compare %x, %x {kind = qe} } => { %y = %x }",
        "qe",
        "cannot be 'qe'; did you mean 'eq'?",
        "one of eq",
    ),
    (
        "rule a(%x) { %y = core.transpose %x {perm = 1.5} } => { %y = %x }",
        "1.5",
        "'perm' holds an array of 64-bit integers, `array<i64: …>`, and this is a number",
        "",
    ),
    (
        "rule a(%x: tensor<$n x f32>) { %y = core.transpose %x {perm = $n} } => { %y = %x }",
        "$n",
        "'$n' is an integer here, and a list of integers elsewhere",
        "another name",
    ),
    (
        "rule a(%x: tensor<$a... x $b... x f32>) { %y = core.neg %x } => { %y = %x }",
        "$b",
        "a second list of any length",
        "names",
    ),
    (
        "rule a(%x: tensr) { %y = core.neg %x } => { %y = %x }",
        "tensr",
        "there is no type 'tensr'; did you mean 'tensor'?",
        "a type is",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %z = %x }",
        "{ %z = %x }",
        "the replacement does not make '%y'",
        "end it with %y",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %y = core.neg %y }",
        "core.neg",
        "the replacement reads '%y', which it replaces",
        "use a hole",
    ),
    ("rule a(%x) { %y = core.neg %x } => { %y = %y }", "%y", "'%y' is what is replaced", "use a hole"),
    (
        "rule a(%x) { %y = core.neg %x } => { %y = core.transpose %x }",
        "core.transpose",
        "needs the attribute 'perm'",
        "it is an array",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %y = core.reshape %x }",
        "core.reshape",
        "the type of 'core.reshape' does not follow",
        ": type(%y)",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %y = core.neg %x {..%x} }",
        "%x",
        "'%x' is a hole, and has no attributes",
        "name a result",
    ),
    (
        "rule a(%x) { %a = core.neg %x %y = core.exp %a } => { %a = %x %y = %x }",
        "%a",
        "'%a' is a value of the pattern",
        "only %y is replaced",
    ),
    (
        "rule a(%x, %w) { %a = core.neg %w %y = core.exp %x } => { %y = %x }",
        "%a = core.neg %w",
        "does not depend on this one",
        "found from its last operation",
    ),
    ("rule a(%x, %x) { %y = core.neg %x } => { %y = %x }", "%x", "'%x' is defined twice", "a name of its own"),
    ("rule a(%x) { } => { }", "a", "the pattern is empty", "write the operations"),
    ("rule a(%x) { %y = %x } => { %y = %x }", "%y = %x", "no other names for values", ""),
    (
        "rule a(%x) assuming infinite { %y = core.neg %x } => { %y = %x }",
        "infinite",
        "can assume 'infinite'; did you mean 'finite'?",
        "the words are",
    ),
    ("rule a(%x...) { %y = core.neg %x } => { %y = core.neg %x }", "%x", "any number of values", "..."),
    (
        "rule a(%x) { %y = core.neg %x } where let $n = rank(%x), let $n = 1 => { %y = %x }",
        "$n",
        "stands for something already",
        "'=='",
    ),
    (
        "rule a(%c) { %y = core.fusion %c } => { %y = %c }",
        "core.fusion",
        "not supported: operations with regions",
        "docs/adding-a-pass.md",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %y = %x }\nrule a(%x) { %y = core.exp %x } => { %y = %x }",
        "a",
        "two rules are named 'a'",
        "by their names",
    ),
    (
        "rule a(%xs...) { %y = $op: elementwize %xs... } => { %y = $op %xs... : type(%y) }",
        "elementwize",
        "no class of operations 'elementwize'; did you mean 'elementwise'?",
        "$op: elementwise",
    ),
    (
        "rule a(%xs...) { %y = $op %xs... } => { %y = $op %xs... : type(%y) }",
        "$op",
        "which operations fit",
        "$op: elementwise",
    ),
    (
        "rule a(%xs...) { %y = $op: elementwise %xs... } => { %y = $other %xs... : type(%y) }",
        "$other",
        "nothing binds '$other'",
        "",
    ),
    (
        "rule a(%x) { %y = core.transpose %x {perm = $p} } => { %y = $p %x : type(%y) }",
        "$p",
        "expected the name of an operation, found a list",
        "",
    ),
    (
        "rule a(%xs...) { %y = $op: elementwise %xs... } => { %y = $op %xs... }",
        "$op",
        "does not follow from its operands",
        ": type(%y)",
    ),
    (
        "rule a(%xs..., %zs...) { %y = $op: elementwise %xs..., %zs... } => { %y = $op %xs... : type(%y) }",
        "$op",
        "lists of any length beside one another",
        "an operand between two",
    ),
    (
        "rule a(%xs...) { %y = $op: elementwise %xs... } where $op in {core.add, core.mull} => { %y = $op %xs... : type(%y) }",
        "core.mull",
        "no operation 'core.mull'; did you mean 'core.mul'?",
        "",
    ),
    (
        "rule a(%x) { %y = core.transpose %x {perm = $p} } where $p in {add, 1} => { %y = %x }",
        "$p in {add",
        "do not go together",
        "one kind",
    ),
    (
        "form f(%v) -> %w { a(%x) { %v = core.neg %x } => { %w = %x } }\n\
         rule a(%x) { %y = core.exp %x } where let %z = g(%x) => { %y = core.exp %z }",
        "g",
        "there is no form 'g'",
        "stand before",
    ),
    (
        "form f(%v, $n: int) -> %w { a(%x) { %v = core.neg %x } => { %w = %x } }\n\
         rule a(%x) { %y = core.exp %x } where let %z = f(%x) => { %y = core.exp %z }",
        "f",
        "'f' takes a value and one argument, and gives one and nothing",
        "",
    ),
    (
        "form f(%v, $n: int) -> %w { a(%x) { %v = core.neg %x } => { %w = %x } }\n\
         rule a(%x) { %y = core.exp %x } where let %z = f(%x, shape(%x)) => { %y = core.exp %z }",
        "shape(%x)",
        "expected an integer, found a list",
        "",
    ),
    ("form f(%v, $n: itn) -> %w { a(%x) { %v = core.neg %x } => { %w = %x } }", "itn", "did you mean 'int'?", "ints"),
    ("form f(%v) -> %w { }", "f", "the form has no cases", "write one"),
    ("form f(%v) -> %w { a(%x) { %u = core.neg %x } => { %w = %x } }", "%u", "does not make '%v'", "end the pattern"),
    (
        "form f(%v) -> %w { a(%x) { %v = core.neg %x } => { %u = %x } }",
        "{ %u = %x }",
        "does not make '%w'",
        "end it with",
    ),
    (
        "form f(%v) -> %w, $n: int { a(%x) { %v = core.neg %x } => { %w = %x } }",
        "a",
        "does not give '$n'",
        "'let $n = …'",
    ),
    (
        "form f(%v) -> %w { a(%x) { %v = core.neg %x } => { %w = %x } }\n\
         rule a(%xs...) { %y = core.concat %xs... {dim = 0} } where let %z = f(%xs...) => { %y = core.exp %z }",
        "%z",
        "one value and several do not go together",
        "let %w... = form(%v...)",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %z = core.exp %x %y = core.log %z } remark %z (\"said\")",
        "%z",
        "the pattern has no '%z'",
        "",
    ),
    // By trying them.
    (
        "rule a(%x: tensor<$m x $n x f32>) { %y = core.transpose %x {perm = [1, 0]} } => { %y = %x }",
        "a",
        "replaces a value of type",
        "types on both sides",
    ),
    (
        "rule a(%x: tensor<$n x f32>) { %y = core.neg %x } => { %y = core.transpose %x {perm = [1, 0]} }",
        "core.transpose",
        "an operation that is refused",
        "condition",
    ),
    (
        "rule a(%x, %z) { %y = core.add %x, %z } => { %y = core.add %z, %x }",
        "a",
        "applies to what it makes, and comes to no end",
        "add a condition",
    ),
    (
        "rule a(%x) { %y = core.neg %x } => { %z = core.exp %x %y = core.log %z }\n\
         rule b(%x) { %z = core.exp %x %y = core.log %z } => { %y = core.neg %x }",
        "a",
        "the rules 'a' and 'b' undo each other",
        "add a condition to one",
    ),
];

#[test]
fn mistakes_have_a_caret_and_a_hint() {
    for &(text, caret, message, hint) in MISTAKES {
        let errors = errors(text);
        let Some(error) = errors.first() else { panic!("no error in {text}") };
        let (_, at) = error.loc.source().unwrap_or_else(|| panic!("{text}: no position: {error:?}"));
        let under = &text[at..at + error.len as usize];
        assert!(error.message.contains(message), "{text}\n{}", error.render());
        assert_eq!(under, caret, "{text}\n{}", error.render());
        assert!(error.help.as_deref().unwrap_or_default().contains(hint), "{text}\n{}", error.render());
        assert!(error.render().contains('^'), "{}", error.render());
    }
}

#[test]
fn several_mistakes_at_once() {
    let found = errors("rule a(%x, %w) { %y = core.neg %x {k = 1} } where $n == 1 => { %y = core.neg %v }");
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn permutations_compose() {
    let set = rules(
        "rule twice(%x) { %y = core.transpose %x {perm = $p} %z = core.transpose %y {perm = $q} } => \
         { %z = core.transpose %x {perm = $p[$q]} }",
    );
    body_is(
        &set,
        "(%x: tensor<2x3x5xf32>) -> tensor<3x2x5xf32>",
        "%a = core.transpose %x {perm = [2, 0, 1]} : tensor<5x2x3xf32>
         %b = core.transpose %a {perm = [2, 1, 0]} : tensor<3x2x5xf32>
         func.return %b",
        "%b = core.transpose %x {perm = [1, 0, 2]} : tensor<3x2x5xf32>
         func.return %b",
    );
}

#[test]
fn operands_that_commute_match_in_either_order() {
    let set = rules(
        "rule factor(%a, %b, %c) { %x = core.mul %a, %c %y = core.mul %b, %c %z = core.add %x, %y } where one_use(%x), one_use(%y) => { %s = core.add %a, %b %z = core.mul %s, %c }",
    );
    body_is(
        &set,
        "(%a: f32, %b: f32, %c: f32) -> f32",
        "%x = core.mul %c, %a : f32\n%y = core.mul %b, %c : f32\n%z = core.add %y, %x : f32\nfunc.return %z",
        "%0 = core.add %b, %a : f32\n%z = core.mul %0, %c : f32\nfunc.return %z",
    );
    // A second use of a product keeps it, and the rule away.
    let body = "%x = core.mul %c, %a : f32\n%y = core.mul %b, %c : f32\n%z = core.add %y, %x : f32\nfunc.return %z, %x";
    body_is(&set, "(%a: f32, %b: f32, %c: f32) -> (f32, f32)", body, body);
}

#[test]
fn symbols_are_compared_and_not_guessed() {
    let set = rules(
        "rule whole(%x: tensor<$n x $e>) { %y = core.slice %x {starts = [0], sizes = [$m], strides = none} } where $n == $m => { %y = %x }",
    );
    let (text, applied) = rewritten(
        &set,
        "func.func @f(%x: tensor<s x f32>) -> (tensor<s x f32>, tensor<4 x f32>) attributes {rc.symbols = #rc.symbols<s = [4, 64, 1]>} {
           %y = core.slice %x {starts = [0], sizes = [s]} : tensor<s x f32>
           %z = core.slice %x {starts = [0], sizes = [4]} : tensor<4 x f32>
           func.return %y, %z
         }",
    );
    assert!(text.contains("func.return %x, %z") && applied == [1], "{text}");
}

#[test]
fn divisibility_and_ranges_choose() {
    let set = rules(
        "rule split(%x: tensor<$n x $e>) { %y = core.neg %x } where $n mod 4 == 0, $n > 4 => {
           %a = core.reshape %x : tensor<4 x ($n floordiv 4) x $e>
           %b = core.neg %a
           %y = core.reshape %b : tensor<$n x $e>
         }",
    );
    let apply = |n: i64| {
        let text = format!(
            "func.func @f(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{\n%y = core.neg %x : tensor<{n}xf32>\nfunc.return %y\n}}"
        );
        rewritten(&set, &text).1[0]
    };
    assert_eq!([8, 6, 4, 0].map(apply), [1, 0, 0, 0]);
}

#[test]
fn rests_of_operands_and_other_attributes_are_kept() {
    let set = rules(
        "rule flat(%firsts..., %last) { %a = core.concat %firsts... {dim = $d} %y = core.concat %a, %last {dim = $d} } => \
         { %y = core.concat %firsts..., %last {..%y} }",
    );
    body_is(
        &set,
        "(%a: tensor<1xf32>, %b: tensor<2xf32>, %c: tensor<3xf32>) -> tensor<6xf32>",
        "%x = core.concat %a, %b {dim = 0} : tensor<3xf32>\n%y = core.concat %x, %c {dim = 0} : tensor<6xf32>\nfunc.return %y",
        "%y = core.concat %a, %b, %c {dim = 0} : tensor<6xf32>\nfunc.return %y",
    );
}

#[test]
fn right_rules_are_proved_and_wrong_ones_are_not() {
    let proof = |text: &str| {
        let set = rules(text);
        let effort = Effort { programs: 40, ..Effort::default() };
        set.rules.iter().map(|rule| prove(rule, effort)).next().expect("a rule")
    };
    let right = |text: &str| {
        let proved = proof(text).unwrap_or_else(|e| panic!("{}", e.render()));
        assert!(proved.programs == 40 && proved.runs > 0, "{proved}");
        assert!([0, 1, 3, 5].iter().all(|n| proved.sizes.contains(n)), "{proved}");
    };
    let wrong = |text: &str, what: &str| {
        let error = proof(text).err().unwrap_or_else(|| panic!("proved: {text}"));
        assert!(error.message.contains(what), "{}", error.render());
        let all = error.render();
        assert!(all.contains("with %") && all.contains("before:") && all.contains("after:"), "{all}");
    };
    right("rule a(%x) { %y = core.neg %x %z = core.neg %y } => { %z = %x }");
    // 0.0 * x is not 0.0 of a NaN, and of -1 it is -0.0.
    let zero = "(%x: tensor<$s... x f32>, %c) assumed { %y = core.mul %x, %c } where splat(%c) == 0.0 => { %y = %c }";
    wrong(&format!("rule a{}", zero.replace("assumed", "")), "is wrong");
    wrong(&format!("rule a{}", zero.replace("assumed", "assuming finite")), "is -0.0 before and 0.0 after");
    right(&format!("rule a{}", zero.replace("assumed", "assuming finite, unsigned-zeros")));
    // The bits that bf16 does not have are lost, which float64 does not show.
    let through = "(%x: tensor<$s... x f32>) assumed { %y = core.convert %x : tensor<$s... x bf16> %z = core.convert %y : tensor<$s... x f32> } => { %z = %x }";
    wrong(&format!("rule a{}", through.replace("assumed", "")), "rounded as the types say");
    right(&format!("rule a{}", through.replace("assumed", "assuming rounding")));
    // Only of square matrices the types say nothing.
    wrong("rule a(%x: tensor<$n x $n x f32>) { %y = core.transpose %x {perm = [1, 0]} } => { %y = %x }", "element [");
    wrong(
        "rule a(%x: tensor<$s... x f32>) { %y = core.neg %x } => { %zero = core.constant {value = 0.0} : type(%x) %y = core.sub %zero, %x }",
        "is wrong",
    );
    let unmet = proof("rule a(%x) { %y = core.neg %x } where rank(%x) == 1, rank(%x) == 2 => { %y = %x }");
    assert!(unmet.expect_err("nothing to run").message.contains("is not proved: none of"), "");
}

#[test]
fn built_in_rules_are_checked_and_proved() {
    let effort = Effort { programs: 25, ..Effort::default() };
    for (name, text) in BUILT_IN {
        let set = rules(text);
        assert!(set.rules.len() >= 4, "{name}");
        for rule in &set.rules {
            let proved = prove(rule, effort).unwrap_or_else(|e| panic!("{}", e.render()));
            println!("{proved}");
            assert!(proved.programs > 0, "{proved}");
        }
    }
}

#[test]
fn the_limit_is_named() {
    rc_kit::register();
    // What grows by a rewrite each time is found when it is read; that a limit is met is said when it is applied.
    let source =
        Source::register("t.rules", "rule swap(%x, %z) { %y = core.add %x, %z } => { %y = core.add %z, %x }".into());
    let set = resolved(&source).expect("names are right");
    let (module, _) = rc_parser::parse_module(
        "t.ir",
        "func.func @f(%x: f32, %z: f32) -> f32 {\n%y = core.add %x, %z : f32\nfunc.return %y\n}",
    );
    let mut module = module.expect("a module");
    let config = RewriteConfig { max_rewrites: Some(50), ..RewriteConfig::patterns_only() };
    let error = apply_patterns(&mut module.bodies[0], &set.patterns(), &config).expect_err("no end");
    assert!(error.message.contains("50 rewrites, most by swap"), "{error:?}");
}

/// What this thread has taken of a processor: others may have most of it.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn a_large_body_takes_time_in_proportion() {
    let set = rules(
        "rule a(%a, %b, %c, %d) { %x = core.add %a, %b %y = core.add %x, %c %z = core.add %y, %d } where splat(%d) == 1.5 => { %z = %a }",
    );
    let run = |count: usize| {
        let mut text = String::from("func.func @f(%v0: f32) -> f32 {\n");
        (0..count).for_each(|i| text += &format!("%v{} = core.add %v{i}, %v0 : f32\n", i + 1));
        text += &format!("func.return %v{count}\n}}\n");
        let (module, _) = rc_parser::parse_module("t.ir", text);
        let mut module = module.expect("a module");
        let start = cpu_seconds();
        let config = RewriteConfig { fold: false, ..RewriteConfig::default() };
        apply_patterns(&mut module.bodies[0], &set.patterns(), &config).expect("an end");
        cpu_seconds() - start
    };
    let (few, many) = (run(2_000), run(40_000));
    // Twenty times the operations; a quadratic walk would take four hundred times as long.
    assert!(many < few * 150.0, "{few:?} and {many:?}");
}

#[test]
fn the_pass_is_refused_with_the_place_in_the_file() {
    rc_kit::register();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("my.rules");
    std::fs::write(&path, "rule a(%x) { %y = core.neg %z } => { %y = %x }").expect("a file");
    let pipeline = format!("rewrite{{rules=\"{}\"}}", path.display());
    let errors = rc_parser::pipeline::parse_pipeline("pipeline", &pipeline).err().expect("a wrong rule");
    assert!(errors[0].render().contains("my.rules:1:28"), "{}", errors[0].render());
    std::fs::write(&path, "rule a(%x) { %y = core.neg %x %z = core.neg %y } => { %z = %x }").expect("a file");
    let passes: Vec<PassInstance> = rc_parser::pipeline::parse_pipeline("pipeline", &pipeline).expect("a right rule");
    let (module, _) = rc_parser::parse_module(
        "t.ir",
        "func.func @f(%x: f32) -> f32 {\n%a = core.neg %x : f32\n%b = core.neg %a : f32\nfunc.return %b\n}",
    );
    let mut module = module.expect("a module");
    let report = PassManager::new(passes).run(&mut module);
    assert!(report.succeeded(), "{:?}", report.errors);
    assert!(report.statistics.iter().any(|s| s.name == "rule a" && s.value == 1), "{:?}", report.statistics);
    assert!(module.to_string().contains("func.return %x"), "{module}");
}

/// The fenced blocks of a language in the page on rules.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    page.split(&start).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_string).collect()
}

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rewrite-rules.md")).expect("the page")
}

#[test]
fn the_example_of_the_page_does_what_it_says() {
    let page = page();
    let (written, programs) = (blocks(&page, "rules"), blocks(&page, "mlir"));
    let [written, before, after] = [&written[0], &programs[0], &programs[1]];
    let set = rules(written);
    let (text, applied) = rewritten(&set, before);
    assert_eq!((text.as_str(), applied), (after.as_str(), vec![1, 1]));
    for rule in &set.rules {
        prove(rule, Effort { programs: 20, ..Effort::default() }).unwrap_or_else(|e| panic!("{}", e.render()));
    }
}

#[test]
fn the_page_lists_every_function() {
    let page = page();
    for function in FUNCTIONS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}(", function.name)));
        let row = row.unwrap_or_else(|| panic!("docs/rewrite-rules.md lacks the function '{}'", function.name));
        assert!(row.ends_with(&format!("| {} |", function.doc)), "{row}");
    }
}

#[test]
fn half_written_rules_are_diagnostics() {
    rc_kit::register();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../passes/rules/canonicalize.rules"))
        .expect("the rules");
    let start = text.find("rule slice-of-pad").expect("the rule");
    let rule = &text[start..start + text[start..].find("\nrule ").expect("another")];
    for cut in (0..rule.len()).filter(|&cut| rule.is_char_boundary(cut)) {
        let lost: String = rule.chars().enumerate().filter(|(at, _)| *at != cut).map(|c| c.1).collect();
        for half in [&rule[..cut], &rule[cut..], &lost] {
            for error in resolved(&Source::register("t.rules", half.into())).err().unwrap_or_default() {
                assert!(error.loc.source().is_some(), "{half}\n{error:?}");
            }
        }
    }
}
