use super::*;
use rc_ir::Attr;

/// [b, m, k] x [b, n, k] in plain loops, in f64.
fn expected(a: &Tensor, w: &Tensor, (b, m, n, k): (usize, usize, usize, usize)) -> Vec<f64> {
    let (a, w) = (a.to_f64(), w.to_f64());
    let mut out = Vec::new();
    for i in 0..b * m * n {
        let (batch, row, col) = (i / (m * n), i / n % m, i % n);
        out.push((0..k).map(|j| a[(batch * m + row) * k + j] * w[(batch * n + col) * k + j]).sum());
    }
    out
}

#[test]
fn products_in_every_layout() {
    for (b, m, n, k) in [(2, 3, 5, 7), (1, 1, 1, 1), (3, 17, 1, 13), (1, 65, 33, 129), (2, 0, 3, 4), (1, 2, 3, 0)] {
        let (a, w) = (random(DType::F64, &[b, m, k], 1), random(DType::F64, &[b, n, k], 2));
        let want = expected(&a, &w, (b, m, n, k));
        let shape = |s: &[usize]| tensor(&s.iter().map(|&n| n as i64).collect::<Vec<_>>(), Type::f64());
        let result = shape(&[b, m, n]);
        // Operands as given, and transposed before the product.
        for (lp, rp) in [([0, 1, 2], [0, 1, 2]), ([0, 2, 1], [2, 0, 1]), ([2, 1, 0], [1, 0, 2])] {
            let at = |perm: [i64; 3], d: i64| perm.iter().position(|&p| p == d).unwrap() as i64;
            let got = run_op(&[shape(&[b, m, k]), shape(&[b, n, k])], &[a.clone(), w.clone()], |bld, args| {
                let l = bld.op(op::core::TRANSPOSE).operands(&args[..1]).attr("perm", Attr::i64s(&lp)).value();
                let r = bld.op(op::core::TRANSPOSE).operands(&args[1..]).attr("perm", Attr::i64s(&rp)).value();
                let dot = bld.op(op::core::DOT).operands(&[l, r]).result(result);
                let dot = dot.attr("lhs_batch", Attr::i64s(&[at(lp, 0)])).attr("rhs_batch", Attr::i64s(&[at(rp, 0)]));
                dot.attr("lhs_contract", Attr::i64s(&[at(lp, 2)]))
                    .attr("rhs_contract", Attr::i64s(&[at(rp, 2)]))
                    .value()
            });
            assert_close(&got.unwrap().to_f64(), &want, 1e-14 * k.max(1) as f64);
        }
    }
}

#[test]
fn narrow_products_round_once() {
    let (a, w) = (random(DType::Bf16, &[1, 5, 64], 3), random(DType::Bf16, &[1, 7, 64], 4));
    let want = expected(&a, &w, (1, 5, 7, 64));
    let got = run_op(&[tensor(&[1, 5, 64], Type::bf16()), tensor(&[1, 7, 64], Type::bf16())], &[a, w], |b, args| {
        let dot = b.op(op::core::DOT).operands(args).result(tensor(&[1, 5, 7], Type::bf16()));
        let dot = dot.attr("lhs_batch", Attr::i64s(&[0])).attr("rhs_batch", Attr::i64s(&[0]));
        dot.attr("lhs_contract", Attr::i64s(&[2])).attr("rhs_contract", Attr::i64s(&[2])).value()
    });
    for (g, w) in got.unwrap().to_f64().iter().zip(want) {
        assert_eq!(*g, crate::tensor::f64_to_bf16(f64::from(w as f32)).to_f64());
    }
}

#[test]
fn integer_products_wrap() {
    let a = Tensor::from_slice(&[1, 2], &[100i8, 100]).unwrap();
    let w = Tensor::from_slice(&[2, 1], &[3i8, 1]).unwrap();
    for (result, value) in [(Type::i8(), i64::from(400i64 as i8)), (Type::i32(), 400)] {
        let got =
            run_op(&[tensor(&[1, 2], Type::i8()), tensor(&[2, 1], Type::i8())], &[a.clone(), w.clone()], |b, args| {
                let dot = b.op(op::core::DOT).operands(args).result(tensor(&[1, 1], result));
                dot.attr("lhs_contract", Attr::i64s(&[1])).attr("rhs_contract", Attr::i64s(&[0])).value()
            });
        assert_eq!(got.unwrap().to_i64(), [value]);
    }
}

#[test]
fn attention_is_softmax_of_scores_times_values() {
    let (b, h, s, t, d, e) = (2usize, 3usize, 5usize, 7usize, 4usize, 3usize);
    let (q, k, v) = (
        random(DType::F64, &[b, h, s, d], 1),
        random(DType::F64, &[b, h, t, d], 2),
        random(DType::F64, &[b, h, t, e], 3),
    );
    let ty = |s: &[usize]| tensor(&s.iter().map(|&n| n as i64).collect::<Vec<_>>(), Type::f64());
    let mask: Vec<f64> =
        (0..s * t).map(|i| if i % 3 != 0 && i / t != 2 { i as f64 / 40.0 } else { f64::NEG_INFINITY }).collect();
    let mask_tensor = Tensor::from_f64(DType::F64, &[1, 1, s, t], &mask).unwrap();
    for causal in [false, true] {
        let types = [ty(&[b, h, s, d]), ty(&[b, h, t, d]), ty(&[b, h, t, e]), ty(&[1, 1, s, t])];
        let got = run_op(&types, &[q.clone(), k.clone(), v.clone(), mask_tensor.clone()], |bld, a| {
            let op =
                bld.op(op::core::ATTENTION).operands(&a[..1]).operands(&a[1..2]).operands(&a[2..3]).operands(&a[3..]);
            op.attr("causal", Attr::bool(causal)).value()
        });
        let (q, k, v) = (q.to_f64(), k.to_f64(), v.to_f64());
        let mut want = Vec::new();
        for bh in 0..b * h {
            for i in 0..s {
                let weight = |j: usize| {
                    let seen = !causal || j <= i;
                    let score: f64 = (0..d).map(|x| q[(bh * s + i) * d + x] * k[(bh * t + j) * d + x]).sum();
                    if seen { (score / (d as f64).sqrt() + mask[i * t + j]).exp() } else { 0.0 }
                };
                let sum: f64 = (0..t).map(weight).sum();
                for x in 0..e {
                    let total: f64 = (0..t).map(|j| weight(j) * v[(bh * t + j) * e + x]).sum();
                    want.push(if sum == 0.0 { 0.0 } else { total / sum });
                }
            }
        }
        assert_close(&got.unwrap().to_f64(), &want, 1e-14);
    }
}

/// The sum of the result times `grad`, of attention in f64, whose derivative is what is tested.
fn attended(
    x: &[Vec<f64>; 3],
    grad: &[f64],
    mask: &[f64],
    causal: bool,
    sizes: [usize; 5],
) -> (f64, Vec<f64>, Vec<f64>) {
    let [b, s, t, d, e] = sizes;
    let (mut total, mut sums, mut delta) = (0.0, Vec::new(), Vec::new());
    for row in 0..b * s {
        let (batch, i) = (row / s, row % s);
        let weight = |j: usize| {
            let score: f64 = (0..d).map(|c| x[0][row * d + c] * x[1][(batch * t + j) * d + c]).sum();
            if causal && j > i { 0.0 } else { (score * 0.4 + mask[i * t + j]).exp() }
        };
        let sum: f64 = (0..t).map(weight).sum();
        let value = |c: usize| (0..t).map(|j| weight(j) * x[2][(batch * t + j) * e + c]).sum::<f64>() / sum;
        let dot = if sum == 0.0 { 0.0 } else { (0..e).map(|c| value(c) * grad[row * e + c]).sum() };
        total += dot;
        sums.push(sum.ln());
        delta.push(dot);
    }
    (total, sums, delta)
}

#[test]
fn attention_backward_is_the_derivative() {
    let [b, s, t, d, e] = [2usize, 5, 4, 3, 2];
    let x = [[b, s, d], [b, t, d], [b, t, e], [b, s, e]].map(|shape| random(DType::F64, &shape, shape[2] as u64 + 7));
    let [q, k, v, grad] = x.each_ref().map(|x| x.to_f64());
    // Query 2 sees no key.
    let mask: Vec<f64> = (0..s * t).map(|i| if i / t == 2 { f64::NEG_INFINITY } else { i as f64 / 40.0 }).collect();
    for causal in [false, true] {
        let at = [q.clone(), k.clone(), v.clone()];
        let (_, sums, delta) = attended(&at, &grad, &mask, causal, [b, s, t, d, e]);
        let f64s = |shape: &[usize], values: &[f64]| Tensor::from_f64(DType::F64, shape, values).unwrap();
        let mut args = x.to_vec();
        args.extend([f64s(&[b, s], &sums), f64s(&[b, s], &delta), f64s(&[1, s, t], &mask)]);
        let ty = |t: &Tensor| tensor(&t.shape().iter().map(|&n| n as i64).collect::<Vec<_>>(), Type::f64());
        let types: Vec<Type> = args.iter().map(ty).collect();
        for which in 0..3 {
            let got = run_op(&types, &args, |bld, a| {
                let op = bld.op(op::core::ATTENTION_BACKWARD);
                let op = (0..7).fold(op, |op, i| op.operands(&a[i..i + 1]));
                let op = op.attr("causal", Attr::bool(causal)).attr("scale", Attr::float(0.4, Type::f64())).build();
                bld.body.result(op, which)
            });
            let slope = |i: usize| {
                let moved = |by: f64| {
                    let mut at = at.clone();
                    at[which][i] += by;
                    attended(&at, &grad, &mask, causal, [b, s, t, d, e]).0
                };
                (moved(1e-5) - moved(-1e-5)) / 2e-5
            };
            let want: Vec<f64> = (0..at[which].len()).map(slope).collect();
            assert_close(&got.unwrap().to_f64(), &want, 1e-8);
        }
    }
}
