//! Convolutions, pooling, order and random numbers of `tensor` against formulas written out here, on the interpreter.

use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{DType, Tensor};

fn run(text: &str, args: &[Tensor]) -> Vec<Tensor> {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module("test", text);
    let module = module.unwrap_or_else(|| panic!("{}\n{text}", errors[0].render()));
    let errors = rc_ir::verify_module(&module);
    assert!(errors.is_empty(), "{}", errors[0].render());
    Interpreter::new(&module, Mode::Typed).run("f", args).unwrap_or_else(|d| panic!("{}", d.render()))
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::random_input(DType::F32, shape, seed, 0).unwrap()
}

fn close(got: &Tensor, expected: &[f64]) {
    let got = got.to_f64();
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= 1e-5 * (1.0 + e.abs()), "element {i}: {g}, expected {e}");
    }
}

/// One spatial dimension of a convolution or pooling.
#[derive(Clone, Copy)]
struct Along {
    size: usize,
    window: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Along {
    fn places(&self) -> usize {
        (self.size + 2 * self.padding - self.dilation * (self.window - 1) - 1) / self.stride + 1
    }
    /// The element that window `o` has at `k`, if it lies inside.
    fn at(&self, o: usize, k: usize) -> Option<usize> {
        (o * self.stride + k * self.dilation).checked_sub(self.padding).filter(|&i| i < self.size)
    }
}

struct Conv {
    groups: usize,
    /// Channels and results of each group.
    c: usize,
    o: usize,
    y: Along,
    x: Along,
}

impl Conv {
    /// Calls `f` with the places in x, in the weights and in the result of every product.
    fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (ys, xs) = (self.y, self.x);
        let (channels, results) = (self.groups * self.c, self.groups * self.o);
        for n in 0..2 {
            for o in 0..results {
                for (py, px) in (0..ys.places()).flat_map(|a| (0..xs.places()).map(move |b| (a, b))) {
                    for c in 0..self.c {
                        for (ky, kx) in (0..ys.window).flat_map(|a| (0..xs.window).map(move |b| (a, b))) {
                            let (Some(iy), Some(ix)) = (ys.at(py, ky), xs.at(px, kx)) else { continue };
                            let channel = o / self.o * self.c + c;
                            let from = ((n * channels + channel) * ys.size + iy) * xs.size + ix;
                            let weight = ((o * self.c + c) * ys.window + ky) * xs.window + kx;
                            f(from, weight, ((n * results + o) * ys.places() + py) * xs.places() + px);
                        }
                    }
                }
            }
        }
    }
    fn shapes(&self) -> [Vec<usize>; 3] {
        let x = vec![2, self.groups * self.c, self.y.size, self.x.size];
        let w = vec![self.groups * self.o, self.c, self.y.window, self.x.window];
        let y = vec![2, self.groups * self.o, self.y.places(), self.x.places()];
        [x, w, y]
    }
    fn attrs(&self) -> String {
        let (y, x) = (self.y, self.x);
        format!(
            "strides = [{}, {}], padding = [{}, {}], dilations = [{}, {}], groups = {}",
            y.stride, x.stride, y.padding, x.padding, y.dilation, x.dilation, self.groups
        )
    }
}

fn ty(shape: &[usize]) -> String {
    let sizes: String = shape.iter().map(|n| format!("{n}x")).collect();
    format!("tensor<{sizes}f32>")
}

#[test]
fn convolutions_and_their_gradients() {
    let along = |size, window, stride, padding, dilation| Along { size, window, stride, padding, dilation };
    let cases = [
        Conv { groups: 1, c: 3, o: 2, y: along(7, 3, 1, 1, 1), x: along(5, 3, 1, 1, 1) },
        Conv { groups: 2, c: 2, o: 3, y: along(9, 3, 2, 1, 1), x: along(8, 2, 3, 0, 2) },
        Conv { groups: 3, c: 1, o: 2, y: along(6, 3, 1, 2, 2), x: along(7, 1, 2, 0, 1) },
        Conv { groups: 1, c: 1, o: 1, y: along(1, 1, 1, 0, 1), x: along(4, 2, 1, 1, 1) },
        Conv { groups: 3, c: 1, o: 2, y: along(6, 3, 2, 1, 1), x: along(9, 5, 3, 2, 1) },
        Conv { groups: 5, c: 1, o: 1, y: along(8, 7, 2, 3, 1), x: along(7, 2, 1, 0, 3) },
    ];
    for (seed, conv) in cases.iter().enumerate() {
        let [xs, ws, ys] = conv.shapes();
        let (x, w, y) = (random(&xs, seed as u64), random(&ws, 100 + seed as u64), random(&ys, 200 + seed as u64));
        let (xt, wt, yt, attrs) = (ty(&xs), ty(&ws), ty(&ys), conv.attrs());
        let text = format!(
            "func.func @f(%x: {xt}, %w: {wt}, %y: {yt}) -> ({yt}, {xt}, {wt}) {{
  %a = tensor.conv %x, %w {{{attrs}}} : {yt}
  %b = tensor.conv_transpose %y, %w {{sizes = [{}, {}], {attrs}}} : {xt}
  %c = tensor.conv_weight_grad %x, %y {{window = [{}, {}], {attrs}}} : {wt}
  func.return %a, %b, %c
}}",
            conv.y.size, conv.x.size, conv.y.window, conv.x.window
        );
        let out = run(&text, &[x.clone(), w.clone(), y.clone()]);
        let (x, w, y) = (x.to_f64(), w.to_f64(), y.to_f64());
        let (mut a, mut b, mut c) = (vec![0.0; y.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
        conv.products(|i, k, o| {
            a[o] += x[i] * w[k];
            b[i] += y[o] * w[k];
            c[k] += x[i] * y[o];
        });
        close(&out[0], &a);
        close(&out[1], &b);
        close(&out[2], &c);
    }
}

/// Steps and dilations that have factors in common or not, windows that are shorter than steps: remainders without any window, too.
#[test]
fn gradients_of_convolutions_with_channels_last() {
    let along = |size, window, stride, padding, dilation| Along { size, window, stride, padding, dilation };
    let dense = |[y, x]: [Along; 2]| Conv { groups: 1, c: 3, o: 2, y, x };
    let by_channel = |o, y, x| Conv { groups: 3, c: 1, o, y, x };
    let cases = [
        [along(9, 3, 2, 2, 2), along(11, 5, 2, 4, 2)],
        [along(8, 1, 2, 0, 1), along(9, 1, 3, 0, 2)],
        [along(13, 3, 4, 1, 2), along(12, 2, 2, 3, 4)],
        [along(10, 2, 3, 0, 1), along(7, 3, 1, 2, 2)],
        [along(7, 7, 2, 3, 1), along(12, 4, 2, 1, 1)],
    ]
    .map(dense)
    .into_iter()
    .chain([
        by_channel(1, along(7, 3, 2, 1, 1), along(8, 5, 1, 2, 1)),
        by_channel(2, along(6, 3, 2, 1, 1), along(9, 7, 3, 3, 1)),
        by_channel(4, along(6, 3, 1, 1, 2), along(9, 2, 2, 0, 1)),
    ]);
    for (seed, conv) in cases.enumerate() {
        let [xs, ws, ys] = conv.shapes();
        let (x, w, y) = (random(&xs, seed as u64), random(&ws, 100 + seed as u64), random(&ys, 200 + seed as u64));
        let bias = random(&[3], 300 + seed as u64);
        let (xt, wt, yt, attrs) = (ty(&xs), ty(&ws), ty(&ys), format!("order = channels_last, {}", conv.attrs()));
        let text = format!(
            "func.func @f(%x: {xt}, %w: {wt}, %y: {yt}, %bias: tensor<3xf32>) -> ({xt}, {xt}, {wt}) {{
  %a = tensor.conv_transpose %y, %w {{sizes = [{0}, {1}], {attrs}}} : {xt}
  %b = tensor.conv_transpose %y, %w bias(%bias) {{sizes = [{0}, {1}], {attrs}}} : {xt}
  %c = tensor.conv_weight_grad %x, %y {{window = [{2}, {3}], {attrs}}} : {wt}
  func.return %a, %b, %c
}}",
            conv.y.size, conv.x.size, conv.y.window, conv.x.window
        );
        let out = run(&text, &[x.clone(), w.clone(), y.clone(), bias.clone()]);
        let (x, w, y, bias) = (x.to_f64(), w.to_f64(), y.to_f64(), bias.to_f64());
        let (mut a, mut c) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        conv.products(|i, k, o| {
            a[i] += y[o] * w[k];
            c[k] += x[i] * y[o];
        });
        let plane = conv.y.size * conv.x.size;
        let b: Vec<f64> = a.iter().enumerate().map(|(i, v)| v + bias[i / plane % 3]).collect();
        close(&out[0], &a);
        close(&out[1], &b);
        close(&out[2], &c);
    }
}

#[test]
fn pooling_with_padding() {
    let along = |size, window, stride, padding, dilation| Along { size, window, stride, padding, dilation };
    for (seed, (along, ceil)) in [
        (along(11, 3, 2, 1, 1), false),
        (along(12, 3, 1, 1, 1), false),
        (along(13, 2, 3, 1, 1), false),
        (along(17, 4, 2, 2, 1), false),
        (along(9, 1, 2, 0, 1), false),
        (along(10, 3, 3, 1, 1), true),
        (along(14, 3, 2, 1, 2), false),
        (along(16, 3, 3, 1, 2), false),
        (along(15, 2, 2, 1, 4), false),
    ]
    .into_iter()
    .enumerate()
    {
        pool(along, ceil, seed as u64);
    }
}

fn pool(along: Along, ceil: bool, seed: u64) {
    let Along { size, window, stride, padding, dilation } = along;
    let room = size + 2 * padding - dilation * (window - 1) - 1;
    let places = if ceil { room.div_ceil(stride) + 1 } else { along.places() };
    let x = random(&[4, size], 3 + seed);
    let (xt, yt) = (format!("tensor<4x{size}xf32>"), format!("tensor<4x{places}xf32>"));
    let attrs = format!("window = [{window}], strides = [{stride}], padding = [{padding}], ceil = {ceil}");
    // Averages have no dilation.
    let mean = if dilation == 1 {
        format!("tensor.avg_pool %x {{{attrs}, count_padding = false}}")
    } else {
        "core.neg %m".into()
    };
    let mean_grad = match dilation {
        1 => format!("tensor.avg_pool_grad %m {{sizes = [{size}], {attrs}, count_padding = false}}"),
        _ => "core.neg %x".into(),
    };
    let attrs = format!("{attrs}, dilations = [{dilation}]");
    let text = format!(
        "func.func @f(%x: {xt}) -> ({yt}, tensor<4x{places}xi64>, {yt}, {xt}, {xt}) {{
  %m, %at = tensor.max_pool %x {{{attrs}}} : {yt}, tensor<4x{places}xi64>
  %a = {mean} : {yt}
  %mg = tensor.max_pool_grad %m, %at {{sizes = [{size}], {attrs}}} : {xt}
  %ag = {mean_grad} : {xt}
  func.return %m, %at, %a, %mg, %ag
}}"
    );
    let out = run(&text, std::slice::from_ref(&x));
    let x = x.to_f64();
    let (mut max, mut index, mut mean) = (Vec::new(), Vec::new(), Vec::new());
    let (mut max_grad, mut mean_grad) = (vec![0.0f64; 4 * size], vec![0.0f64; 4 * size]);
    for row in 0..4 {
        for o in 0..places {
            let inside: Vec<usize> = (0..window).filter_map(|k| along.at(o, k)).collect();
            let best = inside.iter().copied().reduce(|a, b| if x[row * size + b] > x[row * size + a] { b } else { a });
            let best = best.expect("a window with an element");
            let greatest = x[row * size + best];
            max.push(greatest);
            index.push(best as f64);
            mean.push(inside.iter().map(|i| x[row * size + i]).sum::<f64>() / inside.len() as f64);
            max_grad[row * size + best] += greatest;
            inside.iter().for_each(|i| mean_grad[row * size + i] += greatest / inside.len() as f64);
        }
    }
    if dilation != 1 {
        (mean, mean_grad) = (max.iter().map(|m| -m).collect(), x.iter().map(|x| -x).collect());
    }
    for (got, want) in out.iter().zip([max, index, mean, max_grad, mean_grad]) {
        close(got, &want);
    }
}

#[test]
fn order_of_numbers_and_of_none() {
    let x = Tensor::from_f64(DType::F32, &[7], &[2.0, f64::NAN, -0.0, f64::INFINITY, 0.0, -3.5, f64::NEG_INFINITY])
        .unwrap();
    let text = "func.func @f(%x: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xi64>, tensor<7xi64>, tensor<3xi64>) {
  %a, %at = tensor.sort %x {dim = 0} : tensor<7xf32>, tensor<7xi64>
  %b, %down = tensor.sort %x {dim = 0, descending = true} : tensor<7xf32>, tensor<7xi64>
  %c, %least = tensor.topk %x {dim = -1, k = 3, largest = false} : tensor<3xf32>, tensor<3xi64>
  func.return %a, %at, %down, %least
}";
    let out = run(text, &[x]);
    assert_eq!(out[1].to_i64(), [6, 5, 2, 4, 0, 3, 1]);
    assert!(out[0].to_f64()[6].is_nan() && out[0].to_f64()[0] == f64::NEG_INFINITY);
    // Equal zeros stay in their order, whichever way.
    assert_eq!(out[2].to_i64(), [1, 3, 0, 2, 4, 5, 6]);
    assert_eq!(out[3].to_i64(), [6, 5, 2]);
}

#[test]
fn long_rows_in_order() {
    // Few values, so that many are equal, and lengths that leave short runs and single ones.
    for (n, dtype, elem) in [(129, DType::F32, "f32"), (1025, DType::I64, "i64"), (1500, DType::F32, "f32")] {
        let mut state = n as u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % 400
        };
        let rows: Vec<f64> = (0..2 * n).map(|_| next() as f64 - 200.0).collect();
        let k = 50.min(n);
        let text = format!(
            "func.func @f(%x: tensor<2x{n}x{elem}>) -> (tensor<2x{n}x{elem}>, tensor<2x{n}xi64>, tensor<2x{k}xi64>, tensor<2x100xi64>) {{
  %a, %at = tensor.sort %x {{dim = 1}} : tensor<2x{n}x{elem}>, tensor<2x{n}xi64>
  %b, %most = tensor.topk %x {{dim = 1, k = {k}}} : tensor<2x{k}x{elem}>, tensor<2x{k}xi64>
  %c, %many = tensor.topk %x {{dim = 1, k = 100}} : tensor<2x100x{elem}>, tensor<2x100xi64>
  func.return %a, %at, %most, %many
}}"
        );
        let out = run(&text, &[Tensor::from_f64(dtype, &[2, n], &rows).unwrap()]);
        for row in 0..2 {
            let x = &rows[row * n..][..n];
            let mut up: Vec<usize> = (0..n).collect();
            up.sort_by(|&i, &j| x[i].total_cmp(&x[j]));
            let mut down: Vec<usize> = (0..n).collect();
            down.sort_by(|&i, &j| x[j].total_cmp(&x[i]));
            let places = |v: &[usize]| v.iter().map(|&i| i as i64).collect::<Vec<_>>();
            assert_eq!(out[1].to_i64()[row * n..][..n], places(&up), "{n}");
            assert_eq!(out[0].to_f64()[row * n..][..n], up.iter().map(|&i| x[i]).collect::<Vec<_>>());
            // Any of equal elements may be among the greatest.
            for (out, k) in [(&out[2], k), (&out[3], 100)] {
                let mut found: Vec<usize> = out.to_i64()[row * k..][..k].iter().map(|&i| i as usize).collect();
                let values = |v: &[usize]| v.iter().map(|&i| x[i]).collect::<Vec<_>>();
                assert_eq!(values(&found), values(&down[..k]));
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), k);
            }
        }
    }
}

#[test]
fn random_numbers_have_their_distribution() {
    let scalar = |n: i64| Tensor::from_i64(DType::I64, &[], &[n]).unwrap();
    let text = "func.func @f(%seed: tensor<i64>, %offset: tensor<i64>) -> (tensor<100x100xf32>, tensor<100x100xf32>, tensor<100x100xi64>) {
  %u = tensor.rand_uniform %seed, %offset {shape = [100, 100], elem = f32} : tensor<100x100xf32>
  %n = tensor.rand_normal %seed, %offset {shape = [100, 100], elem = f32} : tensor<100x100xf32>
  %i = tensor.rand_int %seed, %offset {shape = [100, 100], elem = i64, low = -2, high = 3} : tensor<100x100xi64>
  func.return %u, %n, %i
}";
    let out = run(text, &[scalar(42), scalar(0)]);
    let moments = |t: &Tensor| {
        let x = t.to_f64();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        (mean, x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64)
    };
    // Four standard deviations of 10,000 samples.
    for (t, mean, variance) in [(&out[0], 0.5, 1.0 / 12.0), (&out[1], 0.0, 1.0), (&out[2], 0.0, 2.0)] {
        let (m, v) = moments(t);
        assert!((m - mean).abs() < 0.04 * f64::sqrt(variance) && (v - variance).abs() < 0.06 * variance, "{m} {v}");
    }
    assert!(out[0].to_f64().iter().all(|u| (0.0..1.0).contains(u)));
    assert!((-2..3).all(|n| out[2].to_i64().contains(&n)) && out[2].to_i64().iter().all(|n| (-2..3).contains(n)));
    // An offset moves the counter on: the second row of one is the first of the other.
    let later = run(text, &[scalar(42), scalar(100)]);
    assert_eq!(out[0].to_f64()[100..200], later[0].to_f64()[..100]);
    assert_ne!(run(text, &[scalar(43), scalar(0)])[0].to_f64(), out[0].to_f64());
}

#[test]
fn heads_of_keys_are_shared_and_masks_hide() {
    let (q, k, v) = (random(&[1, 4, 3, 2], 1), random(&[1, 2, 5, 2], 2), random(&[1, 2, 5, 2], 3));
    let text = "func.func @f(%q: tensor<1x4x3x2xf32>, %k: tensor<1x2x5x2xf32>, %v: tensor<1x2x5x2xf32>) -> tensor<1x4x3x2xf32> {
  %m = core.constant {value = dense<[[[[true, true, false, true, false]]]]> : tensor<1x1x1x5xi1>} : tensor<1x1x1x5xi1>
  %y = tensor.sdpa %q, %k, %v mask(%m) : tensor<1x4x3x2xf32>
  func.return %y
}";
    let out = run(text, &[q.clone(), k.clone(), v.clone()]);
    let (q, k, v) = (q.to_f64(), k.to_f64(), v.to_f64());
    let mut want = Vec::new();
    for (h, i) in (0..4).flat_map(|h| (0..3).map(move |i| (h, i))) {
        let key = |j: usize, d: usize| ((h / 2) * 5 + j) * 2 + d;
        let seen = [0, 1, 3];
        let scores = seen.map(|j| (0..2).map(|d| q[(h * 3 + i) * 2 + d] * k[key(j, d)]).sum::<f64>() / 2f64.sqrt());
        let weights = scores.map(f64::exp);
        let sum: f64 = weights.iter().sum();
        want.extend((0..2).map(|d| seen.iter().zip(weights).map(|(&j, w)| w / sum * v[key(j, d)]).sum::<f64>()));
    }
    close(&out[0], &want);
}
