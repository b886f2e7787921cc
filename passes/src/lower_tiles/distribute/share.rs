//! Reads that a thread has made already: windows of neighbouring results share elements.

use rc_dialects::constraints::memory_space;
use rc_dialects::op;
use rc_ir::{Attr, Block, Body, Op, OpRef, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Makes one read of those of one block that read the same elements of memory which the kernel does not write.
pub fn share_reads(body: &mut Body) {
    let written = written(body);
    let mut numbers = Numbers::default();
    let mut reads: FxHashMap<(Option<Block>, Vec<Number>, Type, Attr), Value> = FxHashMap::default();
    for op in body.walk() {
        let at = body.op_ref(op);
        if !at.is(op::kernel::READ) {
            numbers.number(at);
            continue;
        }
        if written.contains(&body.operand(op, 0)) {
            continue;
        }
        let (place, result) = (numbers.of_all(at), body.result(op, 0));
        let read = (body.parent(op), place, body.ty(result), body.attrs(op));
        let first = *reads.entry(read).or_insert(result);
        if first != result {
            numbers.same(result, first);
            body.replace_all_uses(result, first);
            body.erase(op);
        }
    }
}

/// What stands for a value: equal values of a thread have the same, as far as constants are added and multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Number {
    /// The number of what is not constant in it; 0 where all is.
    base: usize,
    plus: i64,
}

#[derive(Default)]
struct Numbers {
    of_values: FxHashMap<Value, Number>,
    of_forms: FxHashMap<(&'static str, Vec<Number>, Type, Attr), usize>,
    last: usize,
}

impl Numbers {
    fn fresh(&mut self) -> usize {
        self.last += 1;
        self.last
    }
    fn of(&mut self, value: Value) -> Number {
        if let Some(&known) = self.of_values.get(&value) {
            return known;
        }
        let number = Number { base: self.fresh(), plus: 0 };
        self.of_values.insert(value, number);
        number
    }
    fn of_all(&mut self, op: OpRef) -> Vec<Number> {
        let operands: Vec<Value> = op.operands().collect();
        operands.into_iter().map(|v| self.of(v)).collect()
    }
    fn same(&mut self, value: Value, first: Value) {
        let number = self.of(first);
        self.of_values.insert(value, number);
    }
    /// The number of what an operation makes of numbers.
    fn made(&mut self, op: OpRef, of: Vec<Number>, plus: i64) -> Number {
        let form = (op.name().as_str(), of, op.result_types()[0], op.body.attrs(op.op));
        let known = self.of_forms.get(&form).copied();
        let base = known.unwrap_or_else(|| self.fresh());
        self.of_forms.insert(form, base);
        Number { base, plus }
    }
    fn number(&mut self, op: OpRef) {
        let pure = op.has(Traits::ELEMENTWISE) && op.body.regions(op.op).is_empty();
        if op.body.results(op.op).len() != 1 || !(pure || op.is(op::core::CONSTANT)) {
            return;
        }
        let number = match op.result_types()[0] == Type::index() {
            true => self.index(op),
            false => {
                let of = self.of_all(op);
                self.made(op, of, 0)
            }
        };
        self.of_values.insert(op.result(0), number);
    }
    /// Of an index, constants apart.
    fn index(&mut self, op: OpRef) -> Number {
        if let Some(plus) = op.int("value").filter(|_| op.is(op::core::CONSTANT)) {
            return Number { base: 0, plus };
        }
        let of = self.of_all(op);
        let bare = |n: Number| Number { plus: 0, ..n };
        match (op.name().as_str(), &of[..]) {
            (op::core::ADD, &[a, Number { base: 0, plus }] | &[Number { base: 0, plus }, a]) => {
                Number { plus: a.plus.wrapping_add(plus), ..a }
            }
            (op::core::SUB, &[a, Number { base: 0, plus }]) => Number { plus: a.plus.wrapping_sub(plus), ..a },
            (op::core::ADD, &[a, b]) => self.made(op, vec![bare(a), bare(b)], a.plus.wrapping_add(b.plus)),
            (op::core::MUL, &[a, by @ Number { base: 0, .. }] | &[by @ Number { base: 0, .. }, a]) => match a.base {
                0 => Number { base: 0, plus: a.plus.wrapping_mul(by.plus) },
                _ => self.made(op, vec![bare(a), by], a.plus.wrapping_mul(by.plus)),
            },
            (op::core::DIV, &[Number { base: 0, plus: a }, Number { base: 0, plus: b }]) if a >= 0 && b > 0 => {
                Number { base: 0, plus: a / b }
            }
            (op::core::REM, &[Number { base: 0, plus: a }, Number { base: 0, plus: b }]) if a >= 0 && b > 0 => {
                Number { base: 0, plus: a % b }
            }
            _ => self.made(op, of, 0),
        }
    }
}

/// Memory that is no argument's, or that something else than reads uses.
fn written(body: &Body) -> FxHashSet<Value> {
    let reads = |op: Op| [op::kernel::READ, op::kernel::VIEW].iter().any(|name| body.name(op) == *name);
    let mut out = FxHashSet::default();
    for op in body.walk() {
        let views = body.name(op) == op::kernel::VIEW;
        let own = body.results(op).filter(|&v| body.ty(v).is_memref());
        out.extend(own.filter(|&v| !views || memory_space(body.ty(v)) != 0));
        if !reads(op) {
            out.extend(body.operands(op).filter(|&v| body.ty(v).is_memref()));
        }
    }
    // What is written through a view is written, and through its source.
    for op in body.walk().into_iter().filter(|&op| body.name(op) == op::kernel::VIEW) {
        let (source, view) = (body.operand(op, 0), body.result(op, 0));
        if out.contains(&source) || out.contains(&view) {
            out.extend([source, view]);
        }
    }
    out
}
