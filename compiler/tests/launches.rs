//! What a compiled program's launches wait for.

use rc::Target;
use rc_runtime::program::{Program, Step};

/// A product and a sum that have nothing to do with one another, in a function that another one calls with what it has just computed.
const CALLED: &str = "func.func @f(%x: tensor<64x48xf32>, %a: tensor<48x100xf32>, %y: tensor<30x20xf32>) -> (tensor<64x100xf32>, tensor<20xf32>) {
  %0 = core.dot %x, %a {lhs_contract = [1], rhs_contract = [0]} : tensor<64x100xf32>
  %1 = core.reduce %y {dims = [0], kind = add} : tensor<20xf32>
  func.return %0, %1
}
func.func @main(%x: tensor<64x48xf32>, %a: tensor<48x100xf32>, %y: tensor<30x20xf32>) -> (tensor<64x100xf32>, tensor<20xf32>) {
  %e = core.exp %x : tensor<64x48xf32>
  %z = core.exp %y : tensor<30x20xf32>
  %0, %1 = func.call %e, %a, %z {callee = @f} : tensor<64x100xf32>, tensor<20xf32>
  func.return %0, %1
}";

#[test]
fn what_is_called_waits_for_all_before_the_call() {
    rc::register();
    let mut module = rc_parser::parse_module("test", CALLED.to_string()).0.expect("a module");
    assert!(rc::compile(&mut module, &Target::cuda("sm_90a").expect("a target")).succeeded());
    let last = |entry: &str| match Program::load(&module, Some(entry)).expect("a program").steps.pop() {
        Some(Step::Launch { after, .. }) => after.map(|after| after.to_vec()),
        _ => panic!("@{entry} ends with no launch"),
    };
    assert_eq!(last("f"), Some(vec![]));
    assert_eq!(last("main"), None);
}
