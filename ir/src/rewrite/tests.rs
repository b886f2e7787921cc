use super::*;
use crate::attr::Attr;
use crate::body::Body;
use crate::builder::Builder;
use crate::op_def::constant_of;
use crate::test_dialect::*;
use crate::types::Type;
use crate::verify::verify_body;

fn names(body: &Body) -> Vec<&'static str> {
    let ops = body.ops(body.entry().unwrap());
    ops.map(|op| body.name(op).pretty().trim_start_matches("test.")).collect()
}
#[track_caller]
fn run(body: &mut Body, patterns: &PatternSet) -> Outcome {
    let outcome = apply_patterns(body, patterns, &RewriteConfig::default()).unwrap();
    let errors = verify_body(body);
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(apply_patterns(body, patterns, &RewriteConfig::default()).unwrap().rewrites(), 0, "not a fixed point");
    outcome
}

#[test]
fn folds_to_constants_and_erases_what_is_dead() {
    let mut f = func("f", &[Type::i64()]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let (one, two) = (constant(&mut b, 1), constant(&mut b, 2));
    let three = add(&mut b, one, two);
    let six = add(&mut b, three, three);
    add(&mut b, six, f.args[0]);
    let last = ret(&mut b, &[six]);
    let outcome = run(&mut f.body, &PatternSet::new());
    assert_eq!(names(&f.body), ["constant", "return"]);
    assert_eq!(constant_of(&f.body, f.body.operand(last, 0)), Some(Attr::i64(6)));
    assert_eq!(outcome.folded, 2);
}

#[test]
fn constants_move_right_and_identities_fold() {
    let mut f = func("f", &[Type::i64()]);
    let x = f.args[0];
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let (zero, five) = (constant(&mut b, 0), constant(&mut b, 5));
    let same = add(&mut b, zero, x);
    let more = add(&mut b, five, same);
    let last = ret(&mut b, &[more]);
    run(&mut f.body, &PatternSet::new());
    assert_eq!(names(&f.body), ["constant", "add", "return"]);
    let sum = f.body.defining_op(f.body.operand(last, 0)).unwrap();
    assert_eq!(f.body.operands(sum).collect::<Vec<_>>(), [x, five]);
}

#[test]
fn effects_keep_ops_and_emptied_regions_die() {
    let mut f = func("f", &[Type::i64(), Type::index()]);
    let (x, memory) = (f.args[0], f.args[1]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    b.op("rc.test.load").operand(memory).result(Type::i64()).build();
    let (_, kept) = region_op(&mut b, "rc.test.loop");
    b.within(kept, |b| {
        b.op("rc.test.store").operands(&[x]).operands(&[memory]).build();
        ret(b, &[]);
    });
    let (_, dropped) = region_op(&mut b, "rc.test.loop");
    b.within(dropped, |b| {
        b.op("rc.test.groups").operand(x).attr("mode", Attr::str("near")).build();
        add(b, x, x);
        ret(b, &[]);
    });
    b.op("other.unknown").operand(x).results(&[]).build();
    ret(&mut b, &[]);
    let mut patterns = PatternSet::new();
    patterns.add_fn("drop-groups", Anchor::Op("rc.test.groups".into()), |op, rw| {
        rw.erase(op);
        Ok(true)
    });
    assert_eq!(run(&mut f.body, &patterns).applied, [1]);
    assert_eq!(names(&f.body), ["loop", "other.unknown", "return"]);
}

#[test]
fn benefit_then_order_decides() {
    struct Rename(&'static str, u32);
    impl Pattern for Rename {
        fn name(&self) -> &str {
            self.0
        }
        fn anchor(&self) -> Anchor {
            Anchor::Def(|def| def.has(crate::op_def::Traits::ELEMENTWISE))
        }
        fn benefit(&self) -> u32 {
            self.1
        }
        fn rewrite(&self, op: Op, rw: &mut Rewriter) -> Result<bool> {
            let (x, y) = (rw.body.operand(op, 0), rw.body.operand(op, 1));
            let new = rw.before(op).op(self.0).operands(&[x, y]).result(Type::i64()).build();
            rw.replace_with(op, new);
            Ok(true)
        }
    }
    let mut f = func("f", &[Type::i64()]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let sum = add(&mut b, f.args[0], f.args[0]);
    ret(&mut b, &[sum]);
    let mut patterns = PatternSet::new();
    patterns.add(Rename("x.low", 1)).add(Rename("x.first", 2)).add(Rename("x.second", 2));
    assert_eq!(run(&mut f.body, &patterns).applied, [0, 1, 0]);
    assert_eq!(f.body.name(f.body.first_op(f.entry).unwrap()), "x.first");
}

#[test]
fn inlines_a_region() {
    let mut f = func("f", &[Type::i64()]);
    let x = f.args[0];
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let op = b.op("rc.test.loop").operand(x).regions(1).result(Type::i64()).build();
    let region = b.body.regions(op)[0];
    let block = b.body.add_block(region, &[Type::i64()]);
    let arg = b.body.block_arg(block, 0);
    b.within(block, |b| {
        let v = add(b, arg, x);
        ret(b, &[v]);
    });
    let result = b.body.result(op, 0);
    let last = ret(&mut b, &[result]);
    let mut patterns = PatternSet::new();
    patterns.add_fn("inline", Anchor::Op("rc.test.loop".into()), move |op, rw| {
        let block = rw.body.op_ref(op).entry(0).unwrap();
        let inits: Vec<_> = rw.body.operands(op).collect();
        let yielded = rw.inline_before(block, op, &inits);
        rw.replace(op, &yielded);
        Ok(true)
    });
    run(&mut f.body, &patterns);
    assert_eq!(names(&f.body), ["add", "return"]);
    let sum = f.body.defining_op(f.body.operand(last, 0)).unwrap();
    assert_eq!(f.body.operands(sum).collect::<Vec<_>>(), [x, x]);
}

#[test]
fn patterns_that_undo_each_other_are_reported() {
    let mut f = func("f", &[Type::i64()]);
    let mut b = Builder::at_end(&mut f.body, f.entry);
    let sum = add(&mut b, f.args[0], f.args[0]);
    ret(&mut b, &[sum]);
    let mut patterns = PatternSet::new();
    patterns.add_fn("flip", Anchor::Op("rc.test.add".into()), |op, rw| {
        rw.set_attr(op, "n", Attr::i64(rw.body.op_ref(op).int("n").unwrap_or(1) + 2));
        Ok(true)
    });
    let config = RewriteConfig { max_rewrites: Some(50), ..RewriteConfig::default() };
    let error = apply_patterns(&mut f.body, &patterns, &config).unwrap_err();
    assert!(error.message.contains("does not come to an end: 50 rewrites, most by flip (51 times)"), "{error}");
}

#[test]
fn a_constant_is_of_the_dialect_of_what_it_replaces() {
    register();
    let constants = Constants::new();
    let find = |ty| constants.find("rc.test.add".into(), Attr::int(1, ty), ty).map(|d| d.name);
    assert_eq!(find(Type::i32()), Some("rc.test.constant"));
    assert!(constants.find("rc.test.add".into(), Attr::str("x"), Type::i32()).is_none());
}

#[test]
fn a_limit_stops_after_so_many_rewrites() {
    let build = || {
        let mut f = func("f", &[Type::i64()]);
        let mut b = Builder::at_end(&mut f.body, f.entry);
        let zero = constant(&mut b, 0);
        let mut x = f.args[0];
        for _ in 0..5 {
            x = add(&mut b, zero, x);
        }
        ret(&mut b, &[x]);
        f.body
    };
    let run = |most: usize| {
        let mut body = build();
        let ((), made) = limit::with_limit(most, || {
            apply_patterns(&mut body, &PatternSet::new(), &RewriteConfig::default()).unwrap();
        });
        (names(&body).len(), made)
    };
    let (all, free) = run(usize::MAX);
    let (some, made) = run(2);
    assert_eq!((all, free.count), (1, 6), "{free:?}");
    assert_eq!((some, made.count, made.kind.as_str()), (5, 2, "folding"));
    assert!(made.op.contains("test.add"), "{made:?}");
    // Outside there is no limit.
    assert_eq!(apply_patterns(&mut build(), &PatternSet::new(), &RewriteConfig::default()).unwrap().rewrites(), 6);
}
