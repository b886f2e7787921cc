//! Folding and canonical forms of `core`: what becomes of a value, and that nothing inexact is folded.

use rc_ir::pass::{PassInstance, PassManager};
use rc_ir::{Attr, Body};

/// The body of `@f(%x: …)` after canonicalization.
fn canonical(arg: &str, ops: &str, result: &str) -> Body {
    rc_dialects::register();
    let text = format!("func.func @f(%x: {arg}) -> {result} {{\n{ops}\n  func.return %r\n}}");
    let (module, errors) = rc_parser::parse_module("test", &text);
    let mut module = module.unwrap_or_else(|| panic!("{}", errors[0].render()));
    let passes = vec![PassInstance::new(&rc_passes::canonicalize::CANONICALIZE).unwrap()];
    let report = PassManager::new(passes).run(&mut module);
    assert!(report.succeeded(), "{:?}", report.errors);
    module.bodies.remove(0)
}

/// The names of the ops that are left before the return.
fn left(arg: &str, ops: &str, result: &str) -> Vec<&'static str> {
    let body = canonical(arg, ops, result);
    let names: Vec<&str> = body.ops(body.entry().unwrap()).map(|op| body.name(op).pretty()).collect();
    names[..names.len() - 1].to_vec()
}

#[test]
fn a_transpose_and_back_is_nothing() {
    let ops = "%t = core.transpose %x {perm = [1, 2, 0]} : tensor<3x5x2xf32>\n%r = core.transpose %t {perm = [2, 0, 1]} : tensor<2x3x5xf32>";
    assert_eq!(left("tensor<2x3x5xf32>", ops, "tensor<2x3x5xf32>"), [""; 0]);
}

#[test]
fn two_transposes_are_one() {
    let ops = "%t = core.transpose %x {perm = [1, 2, 0]} : tensor<3x5x2xf32>\n%r = core.transpose %t {perm = [0, 2, 1]} : tensor<3x2x5xf32>";
    let body = canonical("tensor<2x3x5xf32>", ops, "tensor<3x2x5xf32>");
    let op = body.first_op(body.entry().unwrap()).unwrap();
    assert_eq!(body.attr(op, "perm"), Some(Attr::i64s(&[1, 0, 2])));
    assert_eq!(body.ops(body.entry().unwrap()).count(), 2);
}

#[test]
fn reshapes_merge() {
    let back = "%t = core.reshape %x : tensor<15xf32>\n%r = core.reshape %t : tensor<3x5xf32>";
    assert_eq!(left("tensor<3x5xf32>", back, "tensor<3x5xf32>"), [""; 0]);
    let on = "%t = core.reshape %x : tensor<15xf32>\n%r = core.reshape %t : tensor<5x3xf32>";
    assert_eq!(left("tensor<3x5xf32>", on, "tensor<5x3xf32>"), ["core.reshape"]);
}

#[test]
fn only_exact_conversions_fold() {
    let widened = "%t = core.convert %x : tensor<3xf32>\n%r = core.convert %t : tensor<3xbf16>";
    assert_eq!(left("tensor<3xbf16>", widened, "tensor<3xbf16>"), [""; 0]);
    let rounded = "%t = core.convert %x : tensor<3xbf16>\n%r = core.convert %t : tensor<3xf32>";
    assert_eq!(left("tensor<3xf32>", rounded, "tensor<3xf32>").len(), 2);
    let other = "%t = core.convert %x : tensor<3xbf16>\n%r = core.convert %t : tensor<3xf16>";
    assert_eq!(left("tensor<3xf16>", other, "tensor<3xf16>").len(), 2);
}

#[test]
fn identities_respect_signed_zeros() {
    let with = |op: &str, number: &str| {
        let ops = format!(
            "%c = core.constant {{value = dense<{number}> : tensor<3xf32>}} : tensor<3xf32>\n%r = core.{op} %x, %c : tensor<3xf32>"
        );
        left("tensor<3xf32>", &ops, "tensor<3xf32>").is_empty()
    };
    for (op, number, folds) in [
        ("add", "0.0", false),
        ("add", "-0.0", true),
        ("sub", "0.0", true),
        ("sub", "-0.0", false),
        ("mul", "1.0", true),
        ("mul", "0.0", false),
        ("div", "1.0", true),
        ("max", "0.0", false),
    ] {
        assert_eq!(with(op, number), folds, "x {op} {number}");
    }
}

#[test]
fn masks_of_attention_go_where_they_do_nothing() {
    let with = |value: &str, elem: &str| {
        let ty = format!("tensor<1x1x3x3x{elem}>");
        let ops = format!(
            "%m = core.constant {{value = dense<{value}> : {ty}}} : {ty}\n%r = core.attention %x, %x, %x mask(%m) : tensor<1x2x3x4xf32>"
        );
        left("tensor<1x2x3x4xf32>", &ops, "tensor<1x2x3x4xf32>").len()
    };
    assert_eq!([("true", "i1"), ("0.0", "f32"), ("-0.0", "f32")].map(|(value, elem)| with(value, elem)), [1, 1, 1]);
    // One hides every key, one changes every score.
    assert_eq!([("false", "i1"), ("1.0", "f32")].map(|(value, elem)| with(value, elem)), [2, 2]);
}
