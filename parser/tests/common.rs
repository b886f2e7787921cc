//! A dialect that uses all of the grammar, and how texts are compared.

use rc_ir::op_def::*;
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Module, OpDef};
use rc_parser::{ParseOptions, parse_module_with};

static FUNC: OpDef = OpDef {
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED),
    ..OpDef::new("func.func")
};
static RETURN: OpDef =
    OpDef { operands: &[variadic("values", ANY)], traits: Traits::TERMINATOR, ..OpDef::new("func.return") };
static GLOBAL: OpDef =
    OpDef { attrs: &[attr("value", AttrKind::Elements, "")], traits: Traits::SYMBOL, ..OpDef::new("rc.t.global") };
pub static ADD: OpDef = OpDef {
    operands: &[operand("lhs", ANY), operand("rhs", ANY)],
    results: &[result("sum", ANY)],
    traits: Traits::ELEMENTWISE,
    infer: Some(infer_same),
    ..OpDef::new("rc.t.add")
};
static CONSTANT: OpDef = OpDef {
    results: &[result("result", ANY)],
    attrs: &[attr("value", AttrKind::Elements, "")],
    traits: Traits::CONSTANT,
    ..OpDef::new("rc.t.constant")
};
static KINDS: OpDef = OpDef {
    attrs: &[
        attr("any", AttrKind::Any, "").optional(),
        attr("unit", AttrKind::Unit, "").optional(),
        attr("flag", AttrKind::Bool, "").default(AttrDefault::Bool(false)),
        attr("n", AttrKind::I64, "").default(AttrDefault::Int(1)),
        attr("small", AttrKind::I32, "").optional(),
        attr("eps", AttrKind::F32, "").optional(),
        attr("wide", AttrKind::F64, "").optional(),
        attr("text", AttrKind::Str, "").optional(),
        attr("mode", AttrKind::Enum(&["add", "mul", "f32"]), "").optional(),
        attr("dims", AttrKind::I64Array, "").optional(),
        attr("dims32", AttrKind::I32Array, "").optional(),
        attr("items", AttrKind::Array, "").optional(),
        attr("iterators", AttrKind::StrArray, "").optional(),
        attr("dict", AttrKind::Dict, "").optional(),
        attr("ty", AttrKind::Type, "").optional(),
        attr("callee", AttrKind::Symbol, "").optional(),
        attr("shape", AttrKind::Shape, "").optional(),
        attr("shapes", AttrKind::ShapeArray, "").optional(),
        attr("elements", AttrKind::Elements, "").optional(),
        attr("schedule", AttrKind::Dialect("sched"), "").optional(),
    ],
    ..OpDef::new("rc.t.kinds")
};
static LAUNCH: OpDef = OpDef {
    operands: &[
        operand("kernel", ANY),
        variadic("grid", ANY).named(),
        optional("stream", ANY),
        variadic("args", ANY).named(),
    ],
    results: &[variadic_result("results", ANY)],
    attrs: &[attr("n", AttrKind::I64, "").optional()],
    ..OpDef::new("rc.t.launch")
};
static STORE: OpDef = OpDef {
    operands: &[operand("value", ANY), operand("to", ANY), variadic("indices", ANY).bracketed(), optional("mask", ANY)],
    ..OpDef::new("rc.t.store")
};
static LOAD: OpDef = OpDef {
    operands: &[operand("from", ANY), variadic("indices", ANY).bracketed()],
    results: &[result("value", ANY)],
    ..OpDef::new("rc.t.load")
};
static FOR: OpDef = OpDef {
    operands: &[operand("lower", ANY), operand("upper", ANY), variadic("inits", ANY).iter()],
    results: &[variadic_result("results", ANY)],
    regions: Regions::Exactly(1),
    traits: Traits::SINGLE_BLOCK.union(Traits::IMPLICIT_TERMINATOR),
    ..OpDef::new("rc.t.for")
};
static YIELD: OpDef =
    OpDef { operands: &[variadic("values", ANY)], traits: Traits::TERMINATOR, ..OpDef::new("rc.t.yield") };
static NEST: OpDef = OpDef {
    operands: &[variadic("inputs", ANY)],
    results: &[variadic_result("results", ANY)],
    attrs: &[attr("maps", AttrKind::ShapeArray, ""), attr("iterators", AttrKind::StrArray, "").optional()],
    regions: Regions::Exactly(1),
    traits: Traits::INDEXED.union(Traits::SINGLE_BLOCK),
    ..OpDef::new("rc.t.nest")
};
static ISOLATED: OpDef = OpDef { regions: Regions::Any, traits: Traits::ISOLATED, ..OpDef::new("rc.t.isolated") };
static BR: OpDef =
    OpDef { successors: 1, operands: &[variadic("args", ANY)], traits: Traits::TERMINATOR, ..OpDef::new("rc.t.br") };
static COND_BR: OpDef =
    OpDef { successors: 2, operands: &[operand("if", ANY)], traits: Traits::TERMINATOR, ..OpDef::new("rc.t.cond_br") };

pub fn register() {
    rc_ir::op_def::register(&[
        &FUNC, &RETURN, &GLOBAL, &ADD, &CONSTANT, &KINDS, &LAUNCH, &STORE, &LOAD, &FOR, &YIELD, &NEST, &ISOLATED, &BR,
        &COND_BR,
    ]);
}

pub const ANY_OP: ParseOptions = ParseOptions { allow_unregistered: true };

/// The module that a text stands for.
///
/// # Panics
/// With the first diagnostic, if there is any.
#[track_caller]
pub fn parse(text: &str) -> Module {
    register();
    let (module, diagnostics) = parse_module_with("test.ir", text, &ANY_OP);
    module.unwrap_or_else(|| panic!("{}\nin\n{text}", diagnostics[0].render()))
}

pub fn pretty(module: &Module) -> String {
    print_module(module, &PrintOptions::PRETTY)
}
pub fn generic(module: &Module) -> String {
    print_module(module, &PrintOptions::GENERIC)
}

/// Checks that a module's text reads back as the same module, in both forms and from one to the other.
#[track_caller]
pub fn check_round_trip(module: &Module) {
    let (pretty_text, generic_text) = (pretty(module), generic(module));
    let (from_pretty, from_generic) = (parse(&pretty_text), parse(&generic_text));
    assert_same(&pretty(&from_pretty), &pretty_text, "pretty, read and printed");
    assert_same(&generic(&from_generic), &generic_text, "generic, read and printed");
    assert_same(&generic(&from_pretty), &generic_text, "pretty, read, and generic");
    assert_same(&pretty(&from_generic), &pretty_text, "generic, read, and pretty");
    rc_ir::verify::verify_module(module).is_empty().then(|| {
        assert!(rc_ir::verify::verify_module(&from_pretty).is_empty());
    });
}

#[track_caller]
pub fn assert_same(found: &str, expected: &str, what: &str) {
    if found != expected {
        let line = found.lines().zip(expected.lines()).position(|(a, b)| a != b);
        let at = line.unwrap_or(found.lines().count().min(expected.lines().count()));
        let show = |t: &str| t.lines().skip(at.saturating_sub(2)).take(5).collect::<Vec<_>>().join("\n");
        panic!("{what}: differs in line {}\nfound:\n{}\nexpected:\n{}", at + 1, show(found), show(expected));
    }
}
