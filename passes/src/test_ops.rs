//! A few ops for this crate's unit tests, and a short way to build, run and read functions of them.

use rc_ir::attr::Attr;
use rc_ir::body::{Block, Body, Op, Region, Value};
use rc_ir::builder::{Builder, new_function};
use rc_ir::loc::Loc;
use rc_ir::module::Module;
use rc_ir::op_def::*;
use rc_ir::pass::{PassDef, PassInstance, PassManager};
use rc_ir::rewrite::{Canonicalize, Rewriter};
use rc_ir::types::Type;
use smallvec::SmallVec;

static FUNC: OpDef = OpDef {
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED).union(Traits::IMPLICIT_TERMINATOR),
    ..OpDef::new("rc.ptest.func")
};
static ADD: OpDef = OpDef {
    operands: &[operand("x", ANY), operand("y", ANY)],
    results: &[result("sum", ANY)],
    traits: Traits::COMMUTATIVE,
    effects: Effects::Pure,
    infer: Some(infer_same),
    fold: Some(|args| match args.constants {
        [Some(a), Some(b)] => Some(Fold::Attr(Attr::i64(a.as_int()?.wrapping_add(b.as_int()?)))),
        _ => None,
    }),
    ..OpDef::new("rc.ptest.add")
};
fn sub_self(op: Op, rw: &mut Rewriter) -> rc_ir::diag::Result<bool> {
    if rw.body.operand(op, 0) != rw.body.operand(op, 1) {
        return Ok(false);
    }
    let zero = rw.constant(op, Attr::i64(0), Type::i64())?;
    rw.replace(op, &[zero]);
    Ok(true)
}
/// A difference that does not fold, but has a pattern.
static SUB: OpDef = OpDef {
    operands: &[operand("x", ANY), operand("y", ANY)],
    results: &[result("difference", ANY)],
    effects: Effects::Pure,
    infer: Some(infer_same),
    interfaces: &[&Canonicalize(&[("sub-self", sub_self)])],
    ..OpDef::new("rc.ptest.opaque_sub")
};
static CONSTANT: OpDef = OpDef {
    results: &[result("result", ANY)],
    attrs: &[attr("value", AttrKind::Elements, "")],
    traits: Traits::CONSTANT,
    effects: Effects::Pure,
    infer: Some(|args| {
        args.attr("value").and_then(|v| v.type_of()).map(|t| SmallVec::from_iter([t])).ok_or("no type".into())
    }),
    ..OpDef::new("rc.ptest.constant")
};
static LOOP: OpDef = OpDef {
    results: &[variadic_result("results", ANY)],
    regions: Regions::Exactly(1),
    traits: Traits::SINGLE_BLOCK.union(Traits::IMPLICIT_TERMINATOR),
    effects: Effects::Recursive,
    ..OpDef::new("rc.ptest.loop")
};
static YIELD: OpDef = OpDef {
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.ptest.yield")
};
static READ: OpDef = OpDef {
    operands: &[operand("memory", ANY)],
    results: &[result("value", ANY)],
    effects: Effects::Read,
    infer: Some(infer_same),
    ..OpDef::new("rc.ptest.read")
};
static KEEP: OpDef =
    OpDef { operands: &[variadic("values", ANY)], effects: Effects::Write, ..OpDef::new("rc.ptest.keep") };

/// A function under test.
pub struct Func {
    pub body: Body,
    pub region: Region,
    pub args: Vec<Value>,
    entry: Block,
}

/// A function of `inputs` arguments of type i64.
pub fn func(name: &str, inputs: usize) -> Func {
    register(&[&FUNC, &ADD, &SUB, &CONSTANT, &LOOP, &YIELD, &READ, &KEEP]);
    let f = new_function("rc.ptest.func", name, &vec![Type::i64(); inputs], &[], Loc::UNKNOWN);
    Func { body: f.body, region: f.region, args: f.args, entry: f.entry }
}
pub fn constant(b: &mut Builder, n: i64) -> Value {
    b.op("rc.ptest.constant").attr("value", Attr::i64(n)).value()
}
pub fn binary(b: &mut Builder, name: &str, x: Value, y: Value) -> Value {
    b.op(name).operands(&[x, y]).value()
}
/// An op that may write, and so stays.
pub fn keep(b: &mut Builder, values: &[Value]) {
    b.op("rc.ptest.keep").operands(values).build();
}
pub fn read(b: &mut Builder, memory: Value) -> Value {
    b.op("rc.ptest.read").operand(memory).value()
}
/// An op with a region and no results.
pub fn region(b: &mut Builder, name: &str, fill: impl FnOnce(&mut Builder)) {
    let op = b.op(name).regions(1).results(&[]).build();
    let region = b.body.regions(op)[0];
    let block = b.body.add_block(region, &[]);
    b.within(block, |b| fill(b));
}
/// The result of a region that yields what `fill` gives.
pub fn yielding(b: &mut Builder, fill: impl FnOnce(&mut Builder) -> Value) -> Value {
    let op = b.op("rc.ptest.loop").regions(1).result(Type::i64()).build();
    let region = b.body.regions(op)[0];
    let block = b.body.add_block(region, &[]);
    b.within(block, |b| {
        let value = fill(b);
        b.op("rc.ptest.yield").operand(value).build();
    });
    b.body.result(op, 0)
}

impl Func {
    pub fn builder(&mut self) -> Builder<'_> {
        Builder::at_end(&mut self.body, self.entry)
    }
    /// Runs passes, verifying after each.
    #[track_caller]
    pub fn run(&mut self, passes: &[&'static PassDef]) {
        let mut module = Module::new();
        module.push(self.body.clone());
        let passes = passes.iter().map(|p| PassInstance::new(p).unwrap()).collect();
        let report = PassManager::new(passes).run(&mut module);
        assert!(report.succeeded(), "{:#?}", report.errors);
        self.body = module.bodies.remove(0);
    }
    #[track_caller]
    pub fn run_changes_nothing(&mut self, passes: &[&'static PassDef]) {
        let before = self.text();
        self.run(passes);
        assert_eq!(self.text(), before);
    }
    /// The function's ops, one after the other, values numbered in order.
    pub fn text(&self) -> String {
        let mut numbers = rustc_hash::FxHashMap::default();
        for &arg in &self.args {
            numbers.insert(arg, numbers.len());
        }
        self.region_text(self.region, &mut numbers)
    }
    fn region_text(&self, region: Region, numbers: &mut rustc_hash::FxHashMap<Value, usize>) -> String {
        let block = |b: Block| self.body.ops(b).map(|op| self.op_text(op, numbers)).collect::<Vec<_>>().join("; ");
        self.body.blocks(region).map(block).collect::<Vec<_>>().join(" | ")
    }
    fn op_text(&self, op: Op, numbers: &mut rustc_hash::FxHashMap<Value, usize>) -> String {
        let mut out = String::new();
        for result in self.body.results(op) {
            let n = numbers.len();
            numbers.insert(result, n);
            out += &format!("%{n} = ");
        }
        out += self.body.name(op).pretty().trim_start_matches("ptest.");
        if let Some(value) = self.body.attr(op, "value").and_then(|v| v.as_int()) {
            out += &format!(" {value}");
        }
        for operand in self.body.operands(op) {
            out += &format!(" %{}", numbers[&operand]);
        }
        for region in self.body.regions(op) {
            out += &format!(" {{ {} }}", self.region_text(region, numbers));
        }
        out
    }
}
