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

#[test]
fn pooling_with_padding() {
    let along = Along { size: 11, window: 3, stride: 2, padding: 1, dilation: 1 };
    let x = random(&[4, 11], 3);
    let attrs = "window = [3], strides = [2], padding = [1]";
    let text = format!(
        "func.func @f(%x: tensor<4x11xf32>) -> (tensor<4x6xf32>, tensor<4x6xi64>, tensor<4x6xf32>, tensor<4x11xf32>, tensor<4x11xf32>) {{
  %m, %at = tensor.max_pool %x {{{attrs}}} : tensor<4x6xf32>, tensor<4x6xi64>
  %a = tensor.avg_pool %x {{{attrs}, count_padding = false}} : tensor<4x6xf32>
  %mg = tensor.max_pool_grad %m, %at {{sizes = [11], {attrs}}} : tensor<4x11xf32>
  %ag = tensor.avg_pool_grad %m {{sizes = [11], {attrs}, count_padding = false}} : tensor<4x11xf32>
  func.return %m, %at, %a, %mg, %ag
}}"
    );
    let out = run(&text, std::slice::from_ref(&x));
    let x = x.to_f64();
    let (mut max, mut index, mut mean) = (Vec::new(), Vec::new(), Vec::new());
    let (mut max_grad, mut mean_grad) = (vec![0.0f64; 44], vec![0.0f64; 44]);
    for row in 0..4 {
        for o in 0..6 {
            let inside: Vec<usize> = (0..3).filter_map(|k| along.at(o, k)).collect();
            let best =
                inside.iter().copied().reduce(|a, b| if x[row * 11 + b] > x[row * 11 + a] { b } else { a }).unwrap();
            let greatest = x[row * 11 + best];
            max.push(greatest);
            index.push(best as f64);
            mean.push(inside.iter().map(|i| x[row * 11 + i]).sum::<f64>() / inside.len() as f64);
            max_grad[row * 11 + best] += greatest;
            inside.iter().for_each(|i| mean_grad[row * 11 + i] += greatest / inside.len() as f64);
        }
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
