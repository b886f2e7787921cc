use super::*;
use crate::attr::Attr;
use crate::body::Body;
use crate::builder::Builder;
use crate::diag::{Diagnostic, Severity};
use crate::module::Module;
use crate::test_dialect::{add, func, ret};
use crate::types::Type;
use std::sync::{Arc, Mutex};

fn module(names: &[&str]) -> Module {
    let mut module = Module::new();
    for name in names {
        let mut f = func(name, &[Type::i64()]);
        let mut b = Builder::at_end(&mut f.body, f.entry);
        let sum = add(&mut b, f.args[0], f.args[0]);
        ret(&mut b, &[sum]);
        module.push(f.body);
    }
    module
}
fn instance(def: &'static PassDef, options: &[(&str, Option<&str>)]) -> PassInstance {
    let mut o = Options::defaults(def);
    options.iter().for_each(|&(k, v)| o.set(def, k, v).unwrap());
    PassInstance::with_options(def, o).unwrap()
}

static TALK: PassDef = PassDef {
    options: &[
        option("times", OptionKind::Int { min: 1, max: 9 }, "1", ""),
        option("mode", OptionKind::Enum(&["plain", "loud"]), "plain", ""),
        option("tile", OptionKind::Sizes, "", ""),
        option("quiet", OptionKind::Bool, "false", ""),
        option("name", OptionKind::Str, "", ""),
    ],
    ..PassDef::new("test-talk", |_| Ok(PassKind::symbol(talk)))
};
fn talk(body: &mut Body, cx: &mut SymbolContext) -> crate::diag::Result {
    // Finish out of order, if threads allow.
    std::thread::sleep(std::time::Duration::from_millis(if body.symbol().unwrap() == "a" { 20 } else { 0 }));
    for _ in 0..cx.options.int("times") {
        cx.remark(body.loc(body.root()), format!("saw @{}", body.symbol().unwrap()));
    }
    cx.count("seen", 1);
    let name = cx.fresh_symbol("part");
    let mut f = func(name.as_str(), &[]);
    ret(&mut Builder::at_end(&mut f.body, f.entry), &[]);
    cx.add_symbol(f.body);
    Ok(())
}

#[test]
fn symbol_passes_merge_in_program_order() {
    let mut m = module(&["a", "b", "b_part", "c"]);
    let report = PassManager::new(vec![instance(&TALK, &[("times", Some("2"))])]).run(&mut m);
    assert!(report.succeeded(), "{:?}", report.errors);
    let said: Vec<&str> = report.diagnostics.iter().map(|d| &*d.message).collect();
    assert_eq!(said, ["saw @a", "saw @a", "saw @b", "saw @b", "saw @b_part", "saw @b_part", "saw @c", "saw @c"]);
    assert!(report.diagnostics.iter().all(|d| d.severity == Severity::Remark));
    let symbols: Vec<_> = m.bodies.iter().map(|b| b.symbol().unwrap().as_str()).collect();
    assert_eq!(symbols, ["a", "b", "b_part", "c", "a_part", "b_part_0", "b_part_part", "c_part"]);
    assert_eq!((report.statistics[0].name, report.statistics[0].value), ("seen", 4));
    assert!(report.statistics_text().contains("(S)        4 seen"));
}

#[test]
fn options_are_typed_and_print_back() {
    let set = |key: &str, value: Option<&str>| {
        let mut o = Options::defaults(&TALK);
        o.set(&TALK, key, value).map(|()| o.to_string()).map_err(|e| (e.part, e.message))
    };
    assert_eq!(set("times", Some("1")).unwrap(), "");
    assert_eq!(set("times", Some("3")).unwrap(), "{times=3}");
    assert_eq!(set("quiet", None).unwrap(), "{quiet=true}");
    assert_eq!(set("tile", Some("64x32")).unwrap(), "{tile=64x32}");
    assert_eq!(set("name", Some("a b")).unwrap(), "{name=\"a b\"}");
    let error = |key, value| set(key, value).unwrap_err();
    assert_eq!(error("tmies", None).1, "'test-talk' has no option 'tmies'; did you mean 'times'?");
    assert_eq!(error("times", Some("0")).1, "the option 'times' expects an integer from 1 to 9, got '0'");
    assert_eq!(
        error("mode", Some("lout")).1,
        "the option 'mode' expects one of plain, loud, got 'lout'; did you mean 'loud'?"
    );
    assert_eq!(error("mode", None).0, OptionPart::Key);
    assert_eq!(error("tile", Some("4xx")).0, OptionPart::Value);
    assert_eq!(error("quiet", Some("yes")).0, OptionPart::Value);
}

#[test]
fn anchors_choose_top_level_ops() {
    let mut m = module(&["a", "b"]);
    let other = m.bodies[1].root();
    m.bodies[1].set_name_of_op(other, "other.func".into());
    let mut manager = PassManager::new(vec![instance(&TALK, &[]).anchored("rc.test.func".into())]);
    assert_eq!(pipeline_text(&manager.passes), "test.func(test-talk)");
    let report = manager.run(&mut m);
    assert_eq!(report.diagnostics.len(), 1);
}

static BREAK: PassDef = PassDef::new("test-break", |_| {
    Ok(PassKind::module(|module: &mut Module, _: &mut PassContext| {
        let body = &mut module.bodies[0];
        let op = body.first_op(body.entry().unwrap()).unwrap();
        body.set_attr(op, "n", Attr::i64(2));
        Ok(())
    }))
});

#[test]
fn a_verifier_failure_names_the_pass() {
    let mut manager = PassManager::new(vec![instance(&TALK, &[]), instance(&BREAK, &[]), instance(&TALK, &[])]);
    let report = manager.run(&mut module(&["a"]));
    assert!(report.errors[0].message.contains("the pass 'test-break' left a module that does not verify (1 error)"));
    assert!(report.errors[1].message.contains("expects an odd 'n'"));
    assert_eq!(report.diagnostics.len(), 1, "the third pass did not run");
    manager.verify_each = false;
    assert!(manager.run(&mut module(&["a"])).succeeded());
}

static PANIC: PassDef = PassDef::new("test-panic", |_| {
    Ok(PassKind::symbol(|body: &mut Body, _: &mut SymbolContext| {
        if body.symbol().unwrap() == "b" {
            Err(Diagnostic::error(body.loc(body.root()), "no"))
        } else {
            let index = body.op_capacity();
            panic!("index {index}")
        }
    }))
});

#[test]
fn failures_and_panics_are_errors() {
    let run = |names: &[&str]| PassManager::new(vec![instance(&PANIC, &[])]).run(&mut module(names));
    assert_eq!(run(&["b"]).errors[0].message, "no");
    assert!(run(&["a"]).errors[0].message.contains("'test-panic' failed on an internal check: index 3"));
}

fn has_adds(module: &Module) -> bool {
    has_op(module, |name| name == "rc.test.add")
}
/// Replaces `from` by `to`, and writes its own name into the module.
fn rename(module: &mut Module, from: &str, to: &str) {
    for body in &mut module.bodies {
        for op in body.walk() {
            if body.name(op) == from {
                body.set_name_of_op(op, to.into());
            }
        }
    }
}
static STEP1: PassDef = PassDef {
    pending: Some(has_adds),
    ..PassDef::new("test-step1", |_| {
        Ok(PassKind::module(|m: &mut Module, _: &mut PassContext| {
            rename(m, "rc.test.add", "low1.add");
            Ok(())
        }))
    })
};
static STEP2: PassDef = PassDef {
    requires: &["test-step1"],
    pending: Some(|m| has_dialect(m, "low1")),
    ..PassDef::new("test-step2", |_| {
        Ok(PassKind::module(|m: &mut Module, _: &mut PassContext| {
            rename(m, "low1.add", "low2.add");
            Ok(())
        }))
    })
};
static STEP3: PassDef = PassDef {
    requires: &["test-step2"],
    ..PassDef::new("test-step3", |_| Ok(PassKind::module(|_: &mut Module, _: &mut PassContext| Ok(()))))
};
static LOST: PassDef = PassDef { requires: &["test-nowhere"], ..PassDef::new("test-lost", STEP3.make) };

#[test]
fn missing_phases_run_first() {
    super::register(&[&STEP1, &STEP2, &STEP3]);
    let run = |m: &mut Module| {
        let report = PassManager::new(vec![instance(&STEP3, &[])]).run(m);
        assert!(report.succeeded(), "{:?}", report.errors);
        report.timing.parts[0].parts.iter().map(|p| p.name.clone()).collect::<Vec<_>>()
    };
    let mut m = module(&["a"]);
    assert_eq!(run(&mut m), ["test-step1", "test-step2", "(V) verifier"]);
    assert_eq!(run(&mut m), ["(V) verifier"]);
    let mut m = module(&["a"]);
    rename(&mut m, "rc.test.add", "low1.add");
    assert_eq!(run(&mut m), ["test-step2", "(V) verifier"]);
    let report = PassManager::new(vec![instance(&LOST, &[])]).run(&mut m);
    assert_eq!(report.errors[0].message, "the pass 'test-lost' requires 'test-nowhere', which is not registered");
}

#[test]
fn a_pipeline_stops_before_its_last_pass() {
    super::register(&[&STEP1, &STEP2]);
    let mut m = module(&["a"]);
    let report = PassManager::new(vec![instance(&STEP1, &[]), instance(&STEP2, &[])]).run_before_last(&mut m);
    assert!(report.succeeded() && has_dialect(&m, "low1"), "{:?}", report.errors);
    let mut m = module(&["a"]);
    let report = PassManager::new(vec![instance(&STEP2, &[])]).run_before_last(&mut m);
    assert!(report.succeeded() && has_dialect(&m, "low1"), "its prerequisites are run: {:?}", report.errors);
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);
impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn prints_changes_as_a_diff() {
    super::register(&[&STEP1]);
    let buffer = Buffer::default();
    let mut manager = PassManager::new(vec![instance(&STEP1, &[]), instance(&STEP1, &[])]);
    manager.instrument(PrintIr::new(PrintWhen::OnChange, buffer.clone()));
    assert!(manager.run(&mut module(&["a"])).succeeded());
    let text = buffer.text();
    assert_eq!(text.matches("IR Change After test-step1").count(), 1, "{text}");
    assert!(text.lines().any(|l| l.starts_with('-') && l.contains("test.add")), "{text}");
    assert!(text.lines().any(|l| l.starts_with('+') && l.contains("low1.add")), "{text}");
}

#[test]
fn instrumentation_stops_the_pipeline() {
    struct Stop(u32);
    impl PassInstrumentation for Stop {
        fn after_pass(&mut self, pass: &PassInstance, _: &Module) -> std::result::Result<(), Vec<Diagnostic>> {
            self.0 -= 1;
            match self.0 {
                0 => Err(vec![*Diagnostic::error(crate::loc::Loc::UNKNOWN, format!("stop after {pass}"))]),
                _ => Ok(()),
            }
        }
    }
    let mut manager = PassManager::new(vec![instance(&TALK, &[]), instance(&STEP1, &[]), instance(&TALK, &[])]);
    manager.instrument(Stop(2));
    let report = manager.run(&mut module(&["a"]));
    assert_eq!(report.errors[0].message, "stop after test-step1");
    let text = report.timing.to_string();
    assert!(text.contains("test-talk") && text.contains("Total Execution Time") && text.contains("100.0%"), "{text}");
}
