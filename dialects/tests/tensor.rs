//! Operations of `tensor` against formulas written out here, on the interpreter, at odd shapes.

use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{DType, Tensor};

fn run(text: &str, args: &[Tensor]) -> Vec<Tensor> {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module("test", text);
    let module = module.unwrap_or_else(|| panic!("{}", errors[0].render()));
    let errors = rc_ir::verify_module(&module);
    assert!(errors.is_empty(), "{}", errors[0].render());
    Interpreter::new(&module, Mode::Typed).run("f", args).unwrap_or_else(|d| panic!("{}", d.render()))
}

fn error(text: &str) -> String {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module("test", text);
    let mut messages: Vec<String> = errors.iter().map(|d| d.message.clone()).collect();
    messages.extend(module.iter().flat_map(rc_ir::verify_module).map(|d| d.message.clone()));
    messages.join("\n")
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::random_input(DType::F32, shape, seed, 0).unwrap()
}

fn close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!(
            (g - e).abs() <= 1e-5 * (1.0 + e.abs()) || (g.is_nan() && e.is_nan()),
            "element {i}: {g}, expected {e}"
        );
    }
}

#[test]
fn reductions_along_dimensions() {
    let x = random(&[3, 7, 5], 1);
    let out = run(
        "func.func @f(%x: tensor<3x7x5xf32>) -> (tensor<3x1x5xf32>, tensor<7xf32>, tensor<f32>) {
  %a = tensor.mean %x {dims = [-2], keepdim = true} : tensor<3x1x5xf32>
  %b = tensor.amax %x {dims = [2, 0]} : tensor<7xf32>
  %c = tensor.sum %x : tensor<f32>
  func.return %a, %b, %c
}",
        std::slice::from_ref(&x),
    );
    let x = x.to_f64();
    let at = |i: usize, j: usize, k: usize| x[(i * 7 + j) * 5 + k];
    let mean: Vec<f64> = (0..15).map(|n| (0..7).map(|j| at(n / 5, j, n % 5)).sum::<f64>() / 7.0).collect();
    let max: Vec<f64> = (0..7).map(|j| (0..15).map(|n| at(n / 5, j, n % 5)).fold(f64::MIN, f64::max)).collect();
    close(&out[0].to_f64(), &mean);
    close(&out[1].to_f64(), &max);
    close(&out[2].to_f64(), &[x.iter().sum()]);
}

#[test]
fn a_mean_of_symbolic_size_or_of_nothing() {
    let text =
        "func.func @f(%x: tensor<s x 3 x f32>) -> tensor<3xf32> attributes {rc.symbols = #rc.symbols<s = [0, 64, 1]>} {
  %y = tensor.mean %x {dims = [0]} : tensor<3xf32>
  func.return %y
}";
    let x = random(&[11, 3], 2);
    let values = x.to_f64();
    let mean: Vec<f64> = (0..3).map(|k| (0..11).map(|i| values[i * 3 + k]).sum::<f64>() / 11.0).collect();
    close(&run(text, &[x])[0].to_f64(), &mean);
    close(&run(text, &[random(&[0, 3], 2)])[0].to_f64(), &[f64::NAN; 3]);
}

#[test]
fn cross_entropy_leaves_out_ignored_rows() {
    let logits = random(&[4, 7], 3);
    let target = Tensor::from_slice(&[4], &[6i64, -100, 0, 3]).unwrap();
    let text = "func.func @f(%x: tensor<4x7xf32>, %t: tensor<4xi64>) -> tensor<f32> {
  %y = tensor.cross_entropy %x, %t : tensor<f32>
  func.return %y
}";
    let out = run(text, &[logits.clone(), target]);
    let x = logits.to_f64();
    let loss = |row: usize, class: usize| {
        let row = &x[row * 7..][..7];
        row.iter().map(|v| v.exp()).sum::<f64>().ln() - row[class]
    };
    close(&out[0].to_f64(), &[(loss(0, 6) + loss(2, 0) + loss(3, 3)) / 3.0]);
    let none = Tensor::from_slice(&[4], &[-100i64; 4]).unwrap();
    close(&run(text, &[logits, none])[0].to_f64(), &[f64::NAN]);
}

#[test]
fn parts_and_shapes() {
    let x = random(&[2, 7], 4);
    let out = run(
        "func.func @f(%x: tensor<2x7xf32>) -> (tensor<2x7xf32>, tensor<7x2x1xf32>) {
  %a, %b, %c = tensor.split %x {sizes = [2, 0, 5], dim = -1} : tensor<2x2xf32>, tensor<2x0xf32>, tensor<2x5xf32>
  %back = tensor.cat %c, %b, %a {dim = 1} : tensor<2x7xf32>
  %t = tensor.permute %x {dims = [-1, 0]} : tensor<7x2xf32>
  %r = tensor.reshape %t {shape = [7, -1, 1]} : tensor<7x2x1xf32>
  func.return %back, %r
}",
        std::slice::from_ref(&x),
    );
    let x = x.to_f64();
    let rotated: Vec<f64> = (0..14).map(|n| x[n / 7 * 7 + (n % 7 + 2) % 7]).collect();
    let turned: Vec<f64> = (0..14).map(|n| x[n % 2 * 7 + n / 2]).collect();
    close(&out[0].to_f64(), &rotated);
    close(&out[1].to_f64(), &turned);
}

#[test]
fn where_broadcasts_and_keeps_nan_out() {
    let cond = Tensor::from_bytes(DType::Bool, &[2, 1], &[1, 0]).unwrap();
    let a = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let b = Tensor::from_slice(&[1], &[f32::NAN]).unwrap();
    let out = run(
        "func.func @f(%c: tensor<2x1xi1>, %a: tensor<3xf32>, %b: tensor<1xf32>) -> tensor<2x3xf32> {
  %y = tensor.where %c, %a, %b : tensor<2x3xf32>
  func.return %y
}",
        &[cond, a, b],
    );
    close(&out[0].to_f64(), &[1.0, 2.0, 3.0, f64::NAN, f64::NAN, f64::NAN]);
}

#[test]
fn symbolic_reshapes_divide_symbols_out() {
    let ok = "func.func @f(%x: tensor<s x 12 x f32>) -> tensor<6 x s x 2 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %y = tensor.reshape %x {shape = [-1, s, 2]} : tensor<6 x s x 2 x f32>
  func.return %y
}";
    assert_eq!(error(ok), "");
    let bad = error(&ok.replace("[-1, s, 2]", "[-1, s, 5]"));
    assert!(bad.contains("cannot divide 12 * s elements by 5 * s"), "{bad}");
}

#[test]
fn what_does_not_fit_is_said() {
    let wrong = |op: &str| {
        error(&format!(
            "func.func @f(%x: tensor<3x5xf32>, %y: tensor<3x4xf32>, %n: tensor<3xi64>) {{\n  {op}\n  func.return\n}}"
        ))
    };
    for (op, message) in [
        ("%a = tensor.sum %x {dims = [2]} : tensor<3xf32>", "has dimension 2 in 'dims'"),
        ("%a = tensor.mean %x {dims = [1, -1]} : tensor<3xf32>", "twice or outside of rank 2"),
        ("%a = tensor.add %x, %y : tensor<3x5xf32>", "cannot broadcast the sizes 5 and 4"),
        ("%a = tensor.pow %n, %n : tensor<3xi64>", "a tensor of floats"),
        ("%a = tensor.cat %x, %y {dim = 0} : tensor<6x5xf32>", "other sizes differ"),
        ("%a = tensor.split %x {sizes = [2, 2], dim = 1} : tensor<3x2xf32>", "has parts of 4 in all"),
        ("%a = tensor.permute %x {dims = [0]} : tensor<3xf32>", "has 1 entries in 'dims'"),
        ("%a = tensor.cross_entropy %x, %x : tensor<f32>", "a tensor of integers"),
    ] {
        let said = wrong(op);
        assert!(said.contains(message), "{op}\n{said}");
    }
}

#[test]
fn normalized_over_chosen_dimensions() {
    let (x, w, b) = (random(&[3, 7, 5], 1), random(&[1, 7, 1], 2), random(&[1, 7, 1], 3));
    let out = run(
        "func.func @f(%x: tensor<3x7x5xf32>, %w: tensor<1x7x1xf32>, %b: tensor<1x7x1xf32>) -> (tensor<3x7x5xf32>, tensor<7xf32>, tensor<7xf32>) {
  %y, %mean, %variance = tensor.normalize %x weight(%w) bias(%b) {dims = [0, -1], eps = 0.1} : tensor<3x7x5xf32>, tensor<7xf32>, tensor<7xf32>
  func.return %y, %mean, %variance
}",
        &[x.clone(), w.clone(), b.clone()],
    );
    let (x, w, b) = (x.to_f64(), w.to_f64(), b.to_f64());
    let of = |c: usize| (0..15).map(move |i| (i / 5 * 7 + c) * 5 + i % 5);
    let mean: Vec<f64> = (0..7).map(|c| of(c).map(|i| x[i]).sum::<f64>() / 15.0).collect();
    let variance: Vec<f64> = (0..7).map(|c| of(c).map(|i| (x[i] - mean[c]).powi(2)).sum::<f64>() / 15.0).collect();
    let normal = |(i, x): (usize, &f64)| {
        let c = i / 5 % 7;
        (x - mean[c]) / (variance[c] + 0.1).sqrt() * w[c] + b[c]
    };
    let y: Vec<f64> = x.iter().enumerate().map(normal).collect();
    close(&out[0].to_f64(), &y);
    close(&out[1].to_f64(), &mean);
    close(&out[2].to_f64(), &variance);
}

#[test]
fn normalized_over_nothing_or_over_one() {
    let text = "func.func @f(%x: tensor<0x3xf32>, %z: tensor<1x3xf32>) -> (tensor<0x3xf32>, tensor<3xf32>, tensor<1x3xf32>, tensor<3xf32>) {
  %y, %mean, %v = tensor.normalize %x {dims = [0]} : tensor<0x3xf32>, tensor<3xf32>, tensor<3xf32>
  %u, %m, %zero = tensor.normalize %z {dims = [0]} : tensor<1x3xf32>, tensor<3xf32>, tensor<3xf32>
  func.return %y, %mean, %u, %zero
}";
    let out = run(text, &[random(&[0, 3], 1), random(&[1, 3], 2)]);
    assert!(out[0].to_f64().is_empty() && out[1].to_f64().iter().all(|x| x.is_nan()));
    close(&out[2].to_f64(), &[0.0; 3]);
    close(&out[3].to_f64(), &[0.0; 3]);
}

#[test]
fn normalize_refuses_what_does_not_fit() {
    let with = |row: &str, other: &str, dims: &str| {
        error(&format!(
            "func.func @f(%x: tensor<3x4xf32>, %w: tensor<{row}xf32>, %b: tensor<{other}xf32>) -> tensor<3x4xf32> {{
  %y, %m, %v = tensor.normalize %x weight(%w) bias(%b) {{dims = [{dims}]}} : tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>
  func.return %y
}}"
        ))
    };
    assert_eq!(with("1x4", "1x4", "1"), "");
    assert!(with("4", "4", "1").contains("needs the sizes of tensor<3x4xf32>, or 1"), "{}", with("4", "4", "1"));
    assert!(with("1x4", "3x4", "1").contains("but a bias of type"), "{}", with("1x4", "3x4", "1"));
    assert!(with("1x4", "1x4", "2").contains("outside of rank 2"), "{}", with("1x4", "1x4", "2"));
    assert!(with("1x4", "1x4", "1, -1").contains("twice"), "{}", with("1x4", "1x4", "1, -1"));
}
