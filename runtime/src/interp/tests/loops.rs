use super::*;

/// A kernel of one nest as `@f`.
fn kernel(signature: &str, nest: &str) -> String {
    let symbols = if signature.contains("s x") { " attributes {rc.symbols = #rc.symbols<s = [0, 99, 1]>}" } else { "" };
    format!("loop.kernel @f{signature}{symbols} {{\n  %r = {nest}\n  loop.return %r\n}}\n")
}

#[test]
fn elementwise_with_maps() {
    let text = kernel(
        "(%x: tensor<s x 3 x f32>, %y: tensor<3xf32>) -> tensor<3 x s x f32>",
        "loop.nest %x[i, j], %y[2 - j] {iters = [j, i], kinds = [parallel, parallel], extents = [3, s], out_maps = [[j, i]], combiner = [none]} ((%a: f32, %b: f32) {
    %n = loop.index {expr = [10 * i + j]} : index
    %m = core.convert %n : f32
    %c = core.add %a, %b : f32
    %d = core.add %c, %m : f32
    loop.yield %d
  }) : tensor<3 x s x f32>",
    );
    let x = f32s(&[2, 3], &[0.5, 1.5, 2.5, 3.5, 4.5, 5.5]);
    let y = f32s(&[3], &[100.0, 200.0, 300.0]);
    let got = values(&text, &[x, y.clone()]).unwrap();
    assert_eq!(got[0], [300.5, 313.5, 202.5, 215.5, 104.5, 117.5]);
    assert!(values(&text, &[f32s(&[0, 3], &[]), y]).unwrap()[0].is_empty());
}

#[test]
fn splits_by_floordiv_and_mod() {
    let text = kernel(
        "(%x: tensor<6xi64>) -> tensor<6xi64>",
        "loop.nest %x[(i floordiv 3) + 2 * (i mod 3)] {iters = [i], kinds = [parallel], extents = [6], out_maps = [[i]], combiner = [none]} ((%a: i64) {
    loop.yield %a
  }) : tensor<6xi64>",
    );
    assert_eq!(values(&text, &[i64s(&[6], &[0, 1, 2, 3, 4, 5])]).unwrap()[0], [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

#[test]
fn combiners() {
    let x = f32s(&[2, 3], &[1.0, 5.0, 2.0, -3.0, f32::NAN, 4.0]);
    let nest = |combiner: &str, result: &str| {
        kernel(
            &format!("(%x: tensor<2x3xf32>) -> tensor<2x{result}>"),
            &format!("loop.nest %x[i, k] {{iters = [k, i], kinds = [reduce, parallel], extents = [3, 2], out_maps = [[i]], combiner = [{combiner}]}} ((%a: f32) {{
    loop.yield %a
  }}) : tensor<2x{result}>"),
        )
    };
    for (combiner, result, first) in [
        ("add", "f32", 8.0),
        ("mul", "f32", 10.0),
        ("max", "f32", 5.0),
        ("min", "f32", 1.0),
        ("argmax", "i64", 1.0),
        ("argmin", "i64", 0.0),
    ] {
        let got = values(&nest(combiner, result), std::slice::from_ref(&x)).unwrap().remove(0);
        assert_eq!(got[0], first, "{combiner}");
        assert!(if result == "i64" { got[1] == 1.0 } else { got[1].is_nan() }, "{combiner}: {got:?}");
    }
}

#[test]
fn several_results_of_one_nest() {
    let text = "loop.kernel @f(%x: tensor<5xf32>) -> (tensor<f32>, tensor<f32>) {
  %s, %m = loop.nest %x[k] {iters = [k], kinds = [reduce], extents = [5], out_maps = [[], []], combiner = [add, max]} ((%a: f32) {
    %b = core.mul %a, %a : f32
    loop.yield %b, %a
  }) : tensor<f32>, tensor<f32>
  loop.return %s, %m
}";
    let got = values(text, &[f32s(&[5], &[1.0, -2.0, 3.0, 0.0, 2.0])]).unwrap();
    assert_eq!(got, [[18.0], [3.0]]);
}

#[test]
fn contractions_are_products() {
    // Batched, with a prologue on one factor, the result transposed, all iterators in an odd order.
    let text = kernel(
        "(%a: tensor<2 x s x 5 x bf16>, %b: tensor<7x5xbf16>) -> tensor<7 x 2 x s x f32>",
        "loop.nest %a[b, m, k], %b[n, k] {iters = [k, m, b, n], kinds = [reduce, parallel, parallel, parallel], extents = [5, s, 2, 7], out_maps = [[n, b, m]], combiner = [contract], acc = f32} ((%x: bf16, %y: bf16) {
    %z = core.neg %x : bf16
    loop.yield %z, %y
  }) : tensor<7 x 2 x s x f32>",
    );
    let (a, b) = (random(DType::Bf16, &[2, 3, 5], 1), random(DType::Bf16, &[7, 5], 2));
    let (x, y) = (a.to_f64(), b.to_f64());
    let want = (0..42).map(|i| {
        let (n, b, m) = (i / 6, i / 3 % 2, i % 3);
        (0..5).map(|k| -x[(b * 3 + m) * 5 + k] * y[n * 5 + k]).sum::<f64>()
    });
    assert_close(&values(&text, &[a, b]).unwrap()[0], &want.collect::<Vec<_>>(), 1e-6);
}

#[test]
fn convolutions() {
    let text = kernel(
        "(%x: tensor<1x2x7xf64>, %w: tensor<3x2x3xf64>) -> tensor<1x3x3xf64>",
        "loop.nest %x[n, c, 2 * h + r], %w[o, c, r] {iters = [n, o, h, c, r], kinds = [parallel, parallel, parallel, reduce, reduce], extents = [1, 3, 3, 2, 3], out_maps = [[n, o, h]], combiner = [contract]} ((%a: f64, %b: f64) {
    loop.yield %a, %b
  }) : tensor<1x3x3xf64>",
    );
    let (x, w) = (random(DType::F64, &[1, 2, 7], 1), random(DType::F64, &[3, 2, 3], 2));
    let (a, b) = (x.to_f64(), w.to_f64());
    let want = (0..9).map(|i| {
        let (o, h) = (i / 3, i % 3);
        (0..6).map(|j| a[(j / 3) * 7 + 2 * h + j % 3] * b[o * 6 + j]).sum::<f64>()
    });
    assert_close(&values(&text, &[x, w]).unwrap()[0], &want.collect::<Vec<_>>(), 1e-15);
}

#[test]
fn scans_sum_prefixes() {
    let text = kernel(
        "(%x: tensor<2x3xi64>) -> tensor<2x3xi64>",
        "loop.nest %x[i, j] {iters = [j, i], kinds = [scan, parallel], extents = [3, 2], out_maps = [[i, j]], combiner = [add]} ((%a: i64) {
    loop.yield %a
  }) : tensor<2x3xi64>",
    );
    assert_eq!(values(&text, &[i64s(&[2, 3], &[1, 2, 3, 4, 5, 6])]).unwrap()[0], [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
}

#[test]
fn gathers_and_their_bounds() {
    let text = kernel(
        "(%t: tensor<4x2xf32>, %ids: tensor<s x i64>) -> tensor<s x 2 x f32>",
        "loop.nest %ids[i] {iters = [i, j], kinds = [parallel, parallel], extents = [s, 2], out_maps = [[i, j]], combiner = [none]} ((%id: i64) {
    %e = loop.gather %t, %id {at = [_0, j]} : f32
    loop.yield %e
  }) : tensor<s x 2 x f32>",
    );
    let t = f32s(&[4, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(values(&text, &[t.clone(), i64s(&[2], &[3, 1])]).unwrap()[0], [6.0, 7.0, 2.0, 3.0]);
    let error = values(&text, &[t, i64s(&[3], &[0, 4, 1])]).unwrap_err();
    assert!(
        error.contains("index 4 (_0) is outside of dimension 0, which has 4") && error.contains("i = 1"),
        "{error}"
    );
}

#[test]
fn reads_out_of_bounds_are_reported() {
    let text = kernel(
        "(%x: tensor<s x f32>) -> tensor<s x f32>",
        "loop.nest %x[i + 1] {iters = [i], kinds = [parallel], extents = [s], out_maps = [[i]], combiner = [none]} ((%a: f32) {
    loop.yield %a
  }) : tensor<s x f32>",
    );
    let error = values(&text, &[f32s(&[3], &[1.0, 2.0, 3.0])]).unwrap_err();
    assert!(error.contains("index 3 (i + 1) is outside of dimension 0, which has 3, at i = 2"), "{error}");
}

#[test]
fn elements_written_twice_are_reported() {
    let text = kernel(
        "(%x: tensor<2x2xf32>) -> tensor<4xf32>",
        "loop.nest %x[i, j] {iters = [i, j], kinds = [parallel, parallel], extents = [2, 2], out_maps = [[i + j]], combiner = [none]} ((%a: f32) {
    loop.yield %a
  }) : tensor<4xf32>",
    );
    assert!(values(&text, &[f32s(&[2, 2], &[1.0; 4])]).unwrap_err().contains("writes element 1 of a result twice"));
}

#[test]
fn launches_bind_symbols() {
    let kernel = kernel(
        "(%x: tensor<s x f32>) -> tensor<s x f32>",
        "loop.nest %x[s - 1 - i] {iters = [i], kinds = [parallel], extents = [s], out_maps = [[i]], combiner = [none]} ((%a: f32) {
    loop.yield %a
  }) : tensor<s x f32>",
    );
    let text = kernel.replace("@f", "@reversed")
        + "func.func @f(%x: tensor<(2 * t) x f32>) -> tensor<(2 * t) x f32> attributes {rc.symbols = #rc.symbols<t = [1, 9, 1]>} {
  %y = loop.launch %x {callee = \"reversed\", bind = <s = #rc.shape<[2 * t]>>} : tensor<(2 * t) x f32>
  func.return %y
}";
    assert_eq!(values(&text, &[f32s(&[4], &[1.0, 2.0, 3.0, 4.0])]).unwrap()[0], [4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn attention_with_interleaved_heads() {
    // q, k and v are parts of one tensor [m, 3, h, d]; the result is [m, h, e].
    let text = "func.func @f(%qkv: tensor<5x3x2x4xf64>) -> tensor<5x2x4xf64> {
  %r = loop.attention %qkv[m, 0, h, d], %qkv[n, 1, h, d], %qkv[n, 2, h, e] {iters = [b, h, m, n, d, e], extents = [1, 2, 5, 5, 4, 4], out_maps = [[m, h, e]], scale = 0.5, causal = true} : tensor<5x2x4xf64>
  func.return %r
}";
    let x = random(DType::F64, &[5, 3, 2, 4], 1);
    let at = x.to_f64();
    let get = |row: usize, part: usize, h: usize, d: usize| at[((row * 3 + part) * 2 + h) * 4 + d];
    let mut want = Vec::new();
    for i in 0..40 {
        let (m, h, e) = (i / 8, i / 4 % 2, i % 4);
        let weight = |n: usize| (0..4).map(|d| get(m, 0, h, d) * get(n, 1, h, d) * 0.5).sum::<f64>().exp();
        let sum: f64 = (0..=m).map(weight).sum();
        want.push((0..=m).map(|n| weight(n) * get(n, 2, h, e)).sum::<f64>() / sum);
    }
    assert_close(&values(text, &[x]).unwrap()[0], &want, 1e-14);
}
