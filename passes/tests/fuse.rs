//! Fusion and lowering to loops, seen on the text of small functions.

fn lower(text: &str) -> String {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module("test.ir", text);
    let mut module = module.unwrap_or_else(|| panic!("{}", diagnostics[0].render()));
    for body in &mut module.bodies {
        rc_passes::fuse::fuse(body, &rc_passes::fuse::FuseOptions::default());
    }
    assert!(rc_ir::verify::verify_module(&module).is_empty(), "{module}");
    rc_passes::lower_loops::lower_loops(&mut module).unwrap_or_else(|d| panic!("{}", d.render()));
    let errors = rc_ir::verify::verify_module(&module);
    assert!(errors.is_empty(), "{}\n{module}", errors[0].render());
    let text = module.to_string();
    println!("{text}");
    text
}

#[test]
fn softmax_is_one_kernel() {
    let text = lower(
        r#"
func.func @softmax(%x: tensor<s x 64 x f32>) -> tensor<s x 64 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 1024, 1]>} {
  %m = core.reduce %x {dims = [1], kind = max} : tensor<s x f32>
  %mb = core.broadcast %m {dims = [0]} : tensor<s x 64 x f32>
  %d = core.sub %x, %mb : tensor<s x 64 x f32>
  %e = core.exp %d : tensor<s x 64 x f32>
  %t = core.reduce %e {dims = [1], kind = add} : tensor<s x f32>
  %tb = core.broadcast %t {dims = [0]} : tensor<s x 64 x f32>
  %r = core.div %e, %tb : tensor<s x 64 x f32>
  func.return %r
}
"#,
    );
    assert_eq!(text.matches("loop.kernel").count(), 1);
    assert_eq!(text.matches("loop.nest").count(), 3);
}

#[test]
fn products_take_epilogues_and_attention_its_index_maps() {
    let text = lower(
        r#"
func.func @block(%x: tensor<1 x s x 768 x f32>, %w: tensor<768x2304xf32>, %b: tensor<2304xf32>, %p: tensor<768x768xf32>) -> tensor<1 x s x 768 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 1024, 1]>} {
  %y = core.dot %x, %w {lhs_contract = [2], rhs_contract = [0]} : tensor<1 x s x 2304 x f32>
  %bb = core.broadcast %b {dims = [2]} : tensor<1 x s x 2304 x f32>
  %qkv = core.add %y, %bb : tensor<1 x s x 2304 x f32>
  %q = core.slice %qkv {starts = [0, 0, 0], sizes = [1, s, 768]} : tensor<1 x s x 768 x f32>
  %k = core.slice %qkv {starts = [0, 0, 768], sizes = [1, s, 768]} : tensor<1 x s x 768 x f32>
  %v = core.slice %qkv {starts = [0, 0, 1536], sizes = [1, s, 768]} : tensor<1 x s x 768 x f32>
  %q1 = core.reshape %q : tensor<1 x s x 12 x 64 x f32>
  %k1 = core.reshape %k : tensor<1 x s x 12 x 64 x f32>
  %v1 = core.reshape %v : tensor<1 x s x 12 x 64 x f32>
  %q2 = core.transpose %q1 {perm = [0, 2, 1, 3]} : tensor<1 x 12 x s x 64 x f32>
  %k2 = core.transpose %k1 {perm = [0, 2, 1, 3]} : tensor<1 x 12 x s x 64 x f32>
  %v2 = core.transpose %v1 {perm = [0, 2, 1, 3]} : tensor<1 x 12 x s x 64 x f32>
  %a = core.attention %q2, %k2, %v2 {causal = true} : tensor<1 x 12 x s x 64 x f32>
  %a1 = core.transpose %a {perm = [0, 2, 1, 3]} : tensor<1 x s x 12 x 64 x f32>
  %a2 = core.reshape %a1 : tensor<1 x s x 768 x f32>
  %o = core.dot %a2, %p {lhs_contract = [2], rhs_contract = [0]} : tensor<1 x s x 768 x f32>
  %r = core.add %o, %x : tensor<1 x s x 768 x f32>
  func.return %r
}
"#,
    );
    assert_eq!(text.matches("loop.kernel").count(), 3);
    assert_eq!(text.matches("loop.launch").count(), 3);
}
