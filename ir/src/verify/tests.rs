use super::*;
use crate::attr::Attr;
use crate::builder::Builder;
use crate::test_dialect::*;
use crate::types::Type;

fn i64s(n: usize) -> Vec<Type> {
    vec![Type::i64(); n]
}
/// The one message of an invalid body.
#[track_caller]
fn one(body: &Body) -> String {
    let errors = verify_body(body);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors[0].message.clone()
}
#[track_caller]
fn expect(body: &Body, parts: &[&str]) {
    let message = one(body);
    assert!(parts.iter().all(|p| message.contains(p)), "{message}");
}

#[test]
fn a_valid_function() {
    let mut f = func("f", &i64s(2));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let sum = add(&mut b, f.args[0], f.args[1]);
    let (_, inner) = region_op(&mut b, "rc.test.loop");
    b.within(inner, |b| {
        let again = add(b, sum, sum);
        ret(b, &[again]);
    });
    ret(&mut b, &[sum]);
    assert!(verify_body(&f.body).is_empty(), "{:?}", verify_body(&f.body));
}

#[test]
fn use_before_definition() {
    let mut f = func("f", &i64s(1));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let first = add(&mut b, f.args[0], f.args[0]);
    let second = add(&mut b, f.args[0], f.args[0]);
    ret(&mut b, &[]);
    let op = f.body.defining_op(first).unwrap();
    f.body.set_operand(op, 1, second);
    expect(&f.body, &["'test.add' op uses as operand 1", "not defined before it"]);
    f.body.set_operand(op, 1, first);
    expect(&f.body, &["operand 1"]);
}

#[test]
fn a_region_hides_its_values_and_an_isolated_one_sees_none() {
    let mut f = func("f", &i64s(1));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let (_, inner) = region_op(&mut b, "rc.test.loop");
    let hidden = b.within(inner, |b| {
        let v = add(b, f.args[0], f.args[0]);
        ret(b, &[]);
        v
    });
    let last = ret(&mut b, &[f.args[0]]);
    assert!(verify_body(&f.body).is_empty());
    f.body.set_operand(last, 0, hidden);
    expect(&f.body, &["'test.return' op uses as operand 0"]);
    f.body.set_operand(last, 0, f.args[0]);

    let mut b = Builder::before(&mut f.body, last);
    let (_, inner) = region_op(&mut b, "rc.test.isolated");
    b.within(inner, |b| add(b, f.args[0], f.args[0]));
    let errors = verify_body(&f.body);
    assert_eq!(errors.len(), 2);
    assert!(errors[0].notes[0].1.contains("'test.isolated' sees no values from outside"), "{errors:?}");
}

#[test]
fn an_op_cannot_use_its_own_region_owner() {
    let mut f = func("f", &[]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let op = b.op("rc.test.loop").regions(1).result(Type::i64()).build();
    let region = b.body.regions(op)[0];
    let block = b.body.add_block(region, &[]);
    let own = b.body.result(op, 0);
    b.within(block, |b| ret(b, &[own]));
    ret(&mut b, &[]);
    expect(&f.body, &["'test.return' op uses as operand 0"]);
}

#[test]
fn graph_regions_have_no_order() {
    let mut f = func("f", &i64s(1));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let (_, inner) = region_op(&mut b, "rc.test.graph");
    b.within(inner, |b| {
        let first = add(b, f.args[0], f.args[0]);
        let second = add(b, first, first);
        let op = b.body.defining_op(first).unwrap();
        b.body.set_operand(op, 0, second);
    });
    ret(&mut b, &[]);
    assert!(verify_body(&f.body).is_empty());
}

/// entry -> a, b; a -> c; b -> c.
fn diamond() -> (NewFuncBlocks, Value) {
    let mut f = func("f", &i64s(1));
    let blocks: Vec<Block> = (0..3).map(|_| f.body.add_block(f.region, &[])).collect();
    let mut b = Builder::at_end(&mut f.body, f.entry);
    b.op("rc.test.cond_br").operand(f.args[0]).successors(&blocks[..2]).build();
    let in_a = b.within(blocks[0], |b| {
        let v = add(b, f.args[0], f.args[0]);
        b.op("rc.test.br").successors(&blocks[2..]).build();
        v
    });
    b.within(blocks[1], |b| b.op("rc.test.br").successors(&blocks[2..]).build());
    (NewFuncBlocks { body: f.body, entry: f.entry, blocks, arg: f.args[0] }, in_a)
}
struct NewFuncBlocks {
    body: Body,
    entry: Block,
    blocks: Vec<Block>,
    arg: Value,
}

#[test]
fn dominance_across_blocks() {
    let (mut f, in_a) = diamond();
    let mut b = Builder::at_end(&mut f.body, f.blocks[2]);
    let last = ret(&mut b, &[f.arg]);
    assert!(verify_body(&f.body).is_empty(), "{:?}", verify_body(&f.body));
    f.body.set_operand(last, 0, in_a);
    expect(&f.body, &["'test.return' op uses as operand 0"]);
}

#[test]
fn terminators_and_successors() {
    let (mut f, _) = diamond();
    assert!(one(&f.body).contains("has an empty block"));
    let mut b = Builder::at_end(&mut f.body, f.blocks[2]);
    add(&mut b, f.arg, f.arg);
    expect(&f.body, &["'test.add' op ends a block", "no terminator"]);
    let mut b = Builder::at_end(&mut f.body, f.blocks[2]);
    b.op("rc.test.br").successors(&[f.entry]).build();
    expect(&f.body, &["branches to the entry block"]);

    let mut f = func("f", &i64s(1));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    ret(&mut b, &[]);
    ret(&mut b, &[]);
    expect(&f.body, &["must be the last"]);
}

#[test]
fn counts_types_and_inference() {
    let mut f = func("f", &[Type::i64(), Type::i32(), Type::f32()]);
    let (x, y, z) = (f.args[0], f.args[1], f.args[2]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let op = b.op("rc.test.add").operands(&[x, x]).result(Type::i32()).build();
    ret(&mut b, &[]);
    expect(&f.body, &["result type i32", "give i64"]);
    f.body.set_operands(op, &[x, y]);
    expect(&f.body, &["'test.add' op expects operands of one type, got i64 and i32"]);
    f.body.set_operands(op, &[x]);
    expect(&f.body, &["expects 2 operands, got 1"]);
    f.body.set_operands(op, &[x, z]);
    expect(&f.body, &["expects operand 1 ('y') to be an integer, got f32"]);
    f.body.set_operands(op, &[y, y]);
    assert!(verify_body(&f.body).is_empty());
    f.body.set_attr(op, "n", Attr::i64(4));
    expect(&f.body, &["expects an odd 'n', got 4"]);
    f.body.add_region(op);
    let messages: Vec<String> = verify_body(&f.body).iter().map(|e| e.message.clone()).collect();
    assert!(messages[0].contains("expects 0 regions, got 1"), "{messages:?}");
}

#[test]
fn attributes() {
    let mut f = func("f", &i64s(1));
    let x = f.args[0];
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let op =
        b.op("rc.test.groups").operands(&[x]).operands(&[]).operands(&[x, x]).attr("mode", Attr::str("far")).build();
    ret(&mut b, &[]);
    assert!(verify_body(&f.body).is_empty(), "{:?}", verify_body(&f.body));
    f.body.set_attr(op, "mode", Attr::str("fra"));
    expect(&f.body, &["expects the attribute 'mode' to be", "near", "got \"fra\""]);
    f.body.remove_attr(op, "mode");
    expect(&f.body, &["expects the attribute 'mode'"]);
    f.body.set_attr(op, "mode", Attr::str("near"));
    f.body.set_attr(op, "mine.note", Attr::unit());
    assert!(verify_body(&f.body).is_empty());
    f.body.set_attr(op, "cuont", Attr::i64(1));
    expect(&f.body, &["has no attribute 'cuont'; did you mean 'count'?"]);
    f.body.remove_attr(op, "cuont");
    f.body.set_attr(op, "operandSegmentSizes", Attr::i32s(&[1, 2, 0]));
    expect(&f.body, &["expects at most one 'bias' operand, got 2"]);
    f.body.set_attr(op, "operandSegmentSizes", Attr::i32s(&[1, 1, 0]));
    expect(&f.body, &["'operandSegmentSizes' = [1, 1, 0]", "3 operands"]);
    f.body.remove_attr(op, "operandSegmentSizes");
    expect(&f.body, &["expects the attribute 'operandSegmentSizes'"]);
}

#[test]
fn symbols_are_unique() {
    let mut module = Module::new();
    for name in ["f", "g", "f"] {
        let mut f = func(name, &[]);
        ret(&mut Builder::at_end(&mut f.body, f.entry), &[]);
        module.push(f.body);
    }
    let errors = verify_module(&module);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("'@f' is defined more than once"));
}

#[test]
fn a_result_of_a_detached_op() {
    let mut f = func("f", &i64s(1));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let sum = add(&mut b, f.args[0], f.args[0]);
    ret(&mut b, &[sum]);
    let op = f.body.defining_op(sum).unwrap();
    f.body.detach(op);
    expect(&f.body, &["a result of 'test.add', which is nowhere in the program"]);
}

/// Run with `cargo test --release -- --ignored --nocapture verifies_fast`.
#[test]
#[ignore = "a measurement"]
fn verifies_fast() {
    let mut f = func("f", &i64s(2));
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let (mut x, mut y) = (f.args[0], f.args[1]);
    for i in 0..200_000i64 {
        let ty = b.ty(x);
        let sum = b.op("rc.test.add").operands(&[x, y]).attr("n", Attr::i64(2 * (i % 7) + 1)).result(ty).value();
        (x, y) = (y, sum);
    }
    ret(&mut b, &[y]);
    for _ in 0..5 {
        let start = std::time::Instant::now();
        assert!(verify_body(&f.body).is_empty());
        println!("{:?}", start.elapsed());
    }
}
