//! Every expansion, evaluated operation by operation as typed, against f64 (for f64: the same with an allowance for the
//! reference's own error), over dense and special inputs.

use super::emit::{Constants, Math};
use super::{expand_math, expands};
use rc_dialects::core::scalar::{self, Scalar};
use rc_dialects::core::special;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Block, Body, OpRef, Type, Value};
use std::collections::HashMap;
use std::f64::consts::{FRAC_PI_2, PI};

/// A kernel that computes `op` of its arguments.
fn kernel(op: &str, arity: usize, elem: &str, target: &str) -> Body {
    let names: Vec<String> = (0..arity).map(|i| format!("%x{i}")).collect();
    kernel_of(&format!("  %y = core.{op} {} : {elem}", names.join(", ")), arity, [elem, elem], target)
}

/// A kernel that computes %y, of the second type, of arguments %x0, %x1, … of the first.
fn kernel_of(lines: &str, arity: usize, [elem, out]: [&str; 2], target: &str) -> Body {
    rc_dialects::register();
    let args: Vec<String> = (0..arity).map(|i| format!("%m{i}: memref<1x{elem}>")).collect();
    let reads: String = (0..arity).map(|i| format!("  %x{i} = kernel.read %m{i}[%zero] : {elem}\n")).collect();
    let text = format!(
        "kernel.func @f({}, %out: memref<1x{out}>) attributes {{phase = thread, target = {target}, grid = [1, 1, 1]}} {{
  %zero = core.constant {{value = 0 : index}} : index
{reads}{lines}
  kernel.write %y, %out[%zero]
  kernel.return
}}
",
        args.join(", ")
    );
    let (module, diagnostics) = rc_parser::parse_module("test.ir", text.as_str());
    let errors: Vec<String> = diagnostics.iter().map(|d| d.render()).collect();
    let body = module.unwrap_or_else(|| panic!("{}", errors.join("\n"))).bodies.swap_remove(0);
    let out = expand_math(&body).unwrap_or_else(|d| panic!("{}", d.render()));
    assert!(out.walk().iter().all(|&op| !expands(out.op_ref(op))));
    let problems: Vec<String> = rc_ir::verify_body(&out).iter().map(|d| d.render()).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    out
}

/// The value that the kernel writes.
fn evaluate(body: &Body, args: &[f64], elem: Type) -> f64 {
    run(body, body.entry().unwrap(), &mut HashMap::new(), &mut args.iter(), elem)[0].float()
}

/// What a block ends with: the values that it yields, or the one that it writes.
fn run(
    body: &Body,
    block: Block,
    values: &mut HashMap<Value, Scalar>,
    inputs: &mut std::slice::Iter<f64>,
    elem: Type,
) -> Vec<Scalar> {
    for op in body.ops(block) {
        let op = body.op_ref(op);
        let results = match op.name().as_str() {
            op::kernel::READ => vec![Scalar::Float(*inputs.next().unwrap()).convert(elem).unwrap()],
            op::kernel::WRITE => return vec![values[&op.operand(0)]],
            op::kernel::YIELD => return op.operands().map(|v| values[&v]).collect(),
            op::kernel::IF => {
                let otherwise = usize::from(!values[&op.operand(0)].is_true());
                run(body, op.entry(otherwise).unwrap(), values, inputs, elem)
            }
            op::core::CONSTANT => vec![scalar::splat_of(constant_of(body, op.result(0)).unwrap()).unwrap()],
            // Lanes are alike.
            op::kernel::SPLAT | op::kernel::EXTRACT => vec![values[&op.operand(0)]],
            op::kernel::APPROX => vec![approximate(op.str("fn").unwrap(), values[&op.operand(0)].float())],
            _ => {
                let args: Vec<Scalar> = op.operands().map(|v| values[&v]).collect();
                let last = body.ty(op.operands().next_back().unwrap()).elem();
                let to = body.ty(op.result(0)).elem();
                vec![scalar::eval(op.def().unwrap(), body.attrs(op.op), last, to, &args).unwrap()]
            }
        };
        values.extend(op.results().zip(results));
    }
    panic!("nothing is written");
}

/// The hardware's functions, wrong by a unit in the last place (`ex2` of arguments beyond [-1, 1] by two), with subnormal numbers flushed, but by
/// `lg2` and `rsqrt`.
fn approximate(function: &str, x: f64) -> Scalar {
    let flush = |x: f64| if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0f64.copysign(x) } else { x };
    let x = if matches!(function, "lg2" | "rsqrt") { x } else { flush(x) };
    let exact = match function {
        "ex2" => x.exp2(),
        "rcp" => return Scalar::Float(flush(f64::from((1.0 / x) as f32))),
        "rsqrt" => 1.0 / x.sqrt(),
        // Near 1 the absolute error is bounded.
        "lg2" if (0.5..2.0).contains(&x) && x != 1.0 => {
            return Scalar::Float(f64::from((x.log2() + 2f64.powi(-22)) as f32));
        }
        "lg2" => x.log2(),
        _ => panic!("{function}"),
    };
    let units = if function == "ex2" && x.abs() > 1.0 { 2.0 } else { 1.0 };
    let ulp = units * 2f64.powf(exact.abs().log2().floor() - 23.0);
    let off =
        if exact.is_finite() && exact != 0.0 { ulp * if (x * 1e6) as i64 % 2 == 0 { 1.0 } else { -1.0 } } else { 0.0 };
    // Powers of two are exact.
    let off = if exact.log2().fract() == 0.0 { 0.0 } else { off };
    Scalar::Float(flush(f64::from((exact + off) as f32)))
}

/// The distance in units in the last place of the exact value's binade.
fn ulps(got: f64, want: f64, elem: Type) -> f64 {
    let (digits, least) =
        if elem == Type::f64() { (52, f64::MIN_POSITIVE) } else { (23, f64::from(f32::MIN_POSITIVE)) };
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let exponent = want.abs().max(least).log2().floor();
    (got - want).abs() / 2f64.powf(exponent - f64::from(digits))
}

/// More is allowed where the hardware's `ex2` is used, and in f64 where the reference is not better.
fn bound(case: &Case, elem: &str, target: &str) -> f64 {
    match (case.op, target) {
        ("exp" | "exp2", "cuda") => 3.0,
        ("logistic", "cuda") => 8.0,
        _ if elem == "f32" => case.bound.min(8.0),
        _ => case.bound,
    }
}

struct Case {
    op: &'static str,
    exact: fn(f64) -> f64,
    bound: f64,
    /// Where dense inputs lie.
    ranges: &'static [(f64, f64)],
}

const CASES: &[Case] = &[
    Case {
        op: "exp",
        exact: f64::exp,
        bound: 2.0,
        ranges: &[(-88.0, 89.0), (-1.0, 1.0), (-1e-3, 1e-3), (-110.0, -86.0), (88.0, 89.0)],
    },
    Case {
        op: "exp2",
        exact: f64::exp2,
        bound: 2.0,
        ranges: &[(-127.0, 129.0), (-1.0, 1.0), (-151.0, -125.0), (127.0, 128.5), (-1080.0, -1020.0)],
    },
    Case {
        op: "expm1",
        exact: f64::exp_m1,
        bound: 4.0,
        ranges: &[(-20.0, 89.0), (-1.0, 1.0), (-1e-4, 1e-4), (88.0, 89.0)],
    },
    Case {
        op: "logistic",
        exact: |x| 1.0 / (1.0 + (-x).exp()),
        bound: 4.0,
        ranges: &[(-86.0, 90.0), (-2.0, 2.0), (-20.0, 20.0)],
    },
    Case {
        op: "tanh",
        exact: f64::tanh,
        bound: 4.0,
        ranges: &[(-12.0, 12.0), (-1.0, 1.0), (-1e-3, 1e-3), (-1e-37, 1e-37)],
    },
    Case {
        op: "log",
        exact: f64::ln,
        bound: 2.0,
        ranges: &[(0.0, 4.0), (0.6, 1.4), (0.999, 1.001), (0.0, 1e-37), (1.0, 1e30)],
    },
    Case {
        op: "log1p",
        exact: f64::ln_1p,
        bound: 4.0,
        ranges: &[(-1.0, 4.0), (-0.5, 0.5), (-1e-5, 1e-5), (1.0, 1e10), (1e30, 3e38)],
    },
    Case { op: "rsqrt", exact: |x| 1.0 / x.sqrt(), bound: 2.0, ranges: &[(0.0, 4.0), (0.0, 1e-37), (1.0, 1e30)] },
    Case {
        op: "erf",
        exact: libm::erf,
        bound: 4.0,
        ranges: &[(-4.5, 4.5), (-0.1, 0.1), (0.85, 0.9), (3.8, 4.1), (-1e-37, 1e-37)],
    },
    Case {
        op: "sin",
        exact: f64::sin,
        bound: 4.0,
        ranges: &[(-7.0, 7.0), (-1e5, 1e5), (PI - 1e-5, PI + 1e-5), (1e9, 1e12), (1e30, 3e38), (-1e-37, 1e-37)],
    },
    Case {
        op: "cos",
        exact: f64::cos,
        bound: 4.0,
        ranges: &[(-7.0, 7.0), (-1e5, 1e5), (FRAC_PI_2 - 1e-5, FRAC_PI_2 + 1e-5), (1e9, 1e12), (1e30, 3e38)],
    },
    Case {
        op: "tan",
        exact: f64::tan,
        bound: 8.0,
        ranges: &[(-7.0, 7.0), (-1e5, 1e5), (FRAC_PI_2 - 1e-5, FRAC_PI_2 + 1e-5), (-1e-37, 1e-37)],
    },
    Case { op: "asin", exact: f64::asin, bound: 8.0, ranges: &[(-1.1, 1.1), (0.99, 1.0), (-1e-3, 1e-3)] },
    Case { op: "acos", exact: f64::acos, bound: 8.0, ranges: &[(-1.1, 1.1), (0.99, 1.0), (-1e-3, 1e-3)] },
    Case { op: "atan", exact: f64::atan, bound: 8.0, ranges: &[(-9.0, 9.0), (-1e-3, 1e-3), (1e3, 1e9)] },
    Case {
        op: "sinh",
        exact: f64::sinh,
        bound: 8.0,
        ranges: &[(-3.0, 3.0), (-90.0, 90.0), (-1e-3, 1e-3), (88.0, 90.0)],
    },
    Case {
        op: "cosh",
        exact: f64::cosh,
        bound: 8.0,
        ranges: &[(-3.0, 3.0), (-90.0, 90.0), (-1e-3, 1e-3), (88.0, 90.0)],
    },
    Case {
        op: "asinh",
        exact: libm::asinh,
        bound: 8.0,
        ranges: &[(-3.0, 3.0), (-1e-3, 1e-3), (1e3, 1e6), (1e30, 3e38)],
    },
    Case {
        op: "acosh",
        exact: |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) },
        bound: 8.0,
        ranges: &[(0.9, 3.0), (1.0, 1.001), (1e3, 1e6), (1e30, 3e38)],
    },
    Case { op: "atanh", exact: libm::atanh, bound: 8.0, ranges: &[(-1.1, 1.1), (0.99, 1.0), (-1e-3, 1e-3)] },
    Case { op: "log2", exact: f64::log2, bound: 2.0, ranges: &[(0.0, 4.0), (0.9, 1.1), (0.0, 1e-37), (1.0, 1e30)] },
    Case { op: "log10", exact: f64::log10, bound: 2.0, ranges: &[(0.0, 4.0), (0.9, 1.1), (0.0, 1e-37), (1.0, 1e30)] },
    Case { op: "erfc", exact: libm::erfc, bound: 8.0, ranges: &[(-4.0, 4.0), (-0.1, 0.1), (4.0, 30.0)] },
    Case { op: "erfinv", exact: special::erfinv, bound: 8.0, ranges: &[(-1.1, 1.1), (0.99, 1.0), (-1e-3, 1e-3)] },
    Case {
        op: "lgamma",
        exact: libm::lgamma,
        bound: 64.0,
        ranges: &[(-6.0, 6.0), (0.0, 1e-3), (5.0, 100.0), (1e30, 3e38)],
    },
    Case {
        op: "digamma",
        exact: special::digamma,
        bound: 64.0,
        ranges: &[(-6.0, 6.0), (0.0, 1e-3), (5.0, 100.0), (1e30, 3e38)],
    },
];

const SPECIAL: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    100.0,
    -100.0,
    1000.0,
    -1000.0,
    1e30,
    -1e30,
    3.4028234663852886e38,
    -3.4028234663852886e38,
    1e-40,
    -1e-40,
    1.1754943508222875e-38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    88.72283,
    88.72284,
    -87.33654,
    -87.33655,
    -103.9,
    128.0,
    127.99999,
    -126.0,
    -126.00001,
    -149.0,
];

fn points(case: &Case, n: usize) -> Vec<f64> {
    let dense = case.ranges.iter().flat_map(|&(a, b)| (0..n).map(move |i| a + (b - a) * (i as f64 + 0.37) / n as f64));
    SPECIAL.iter().copied().chain(dense).collect()
}

/// Whether a result may be zero because the exact one is subnormal.
fn flushed(case: &Case, got: f64, want: f64, elem: Type) -> bool {
    let least = if elem == Type::f64() { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    case.op != "exp2" && got == 0.0 && want.abs() < least
}

fn check(case: &Case, elem: &str, target: &str, n: usize) {
    let body = kernel(case.op, 1, elem, target);
    let ty = if elem == "f64" { Type::f64() } else { Type::f32() };
    let mut worst = (0.0, 0.0);
    for x in points(case, n) {
        let x = if elem == "f64" { x } else { f64::from(x as f32) };
        let (got, exact) = (evaluate(&body, &[x], ty), (case.exact)(x));
        let want = if elem == "f64" || exact.abs() <= f64::from(f32::MAX) { exact } else { f64::from(exact as f32) };
        // The roots of these two are found only as well as the numbers around 1, in f32 those of positive numbers exactly.
        let has_roots = ["lgamma", "digamma"].contains(&case.op) && (elem == "f64" || x < 0.0);
        let floor = if has_roots { 1.0 } else { 0.0 };
        let scale = want.abs().max(floor);
        let off = if scale > want.abs() { ulps(scale + (got - want), scale, ty) } else { ulps(got, want, ty) };
        let allowed = if flushed(case, got, want, ty) { 0.0 } else { off };
        assert!(
            allowed <= bound(case, elem, target) + if elem == "f64" { 1.0 } else { 0.0 },
            "{} {elem} {target} of {x:e}: {got:e} for {want:e}",
            case.op
        );
        assert!(
            want != 0.0 || x != 0.0 || got.is_sign_negative() == want.is_sign_negative(),
            "{} of {x}: the sign of zero",
            case.op
        );
        if allowed > worst.0 {
            worst = (allowed, x);
        }
    }
    println!("{:10} {elem} {target:4}: {:.2} ulp at {:e}", case.op, worst.0, worst.1);
}

#[test]
fn f32_within_the_bounds() {
    CASES.iter().for_each(|case| check(case, "f32", "cpu", 5_000));
}

#[test]
fn f32_within_the_bounds_with_hardware_approximations() {
    CASES.iter().for_each(|case| check(case, "f32", "cuda", 2_000));
}

#[test]
fn f64_within_the_bounds() {
    CASES.iter().for_each(|case| check(case, "f64", "cpu", 2_000));
}

#[test]
fn logarithms_of_subnormal_numbers() {
    let body = kernel("log", 1, "bf16", "cuda");
    for n in -133..-126 {
        let (got, want) =
            (evaluate(&body, &[f64::from(n).exp2()], Type::bf16()), f64::from(n) * std::f64::consts::LN_2);
        assert!((got - want).abs() <= 0.25, "2^{n}: {got}");
    }
}

#[test]
fn whole_powers_have_exact_logarithms() {
    for target in ["cpu", "cuda"] {
        let [two, ten] = ["log2", "log10"].map(|op| kernel(op, 1, "f32", target));
        for n in -149..128 {
            let x = f64::from(n).exp2();
            assert_eq!(evaluate(&two, &[x], Type::f32()), f64::from(n), "{target} {n}");
        }
        for n in -37..39 {
            let x = f64::from(10f64.powi(n) as f32);
            assert_eq!(evaluate(&ten, &[x], Type::f32()), f64::from(n), "{target} {n}");
        }
    }
}

#[test]
fn subnormal_powers_of_two() {
    for target in ["cpu", "cuda"] {
        let power = |attrs: &str| kernel_of(&format!("  %y = core.exp2 %x0{attrs} : f32"), 1, ["f32", "f32"], target);
        let (whole, flushing) = (power(""), power(" {flush = true}"));
        for n in -149..-126 {
            let x = f64::from(n);
            assert_eq!(evaluate(&whole, &[x], Type::f32()), x.exp2(), "{target} {n}");
            assert_eq!(evaluate(&flushing, &[x], Type::f32()), 0.0, "{target} {n}");
        }
        assert!(flushing.walk().len() + 5 <= whole.walk().len());
        assert_eq!(evaluate(&whole, &[f64::NEG_INFINITY], Type::f32()), 0.0);
        assert!(evaluate(&whole, &[f64::NAN], Type::f32()).is_nan());
    }
}

#[test]
fn narrow_floats_round_once_from_f32() {
    for (elem, ty) in [("bf16", Type::bf16()), ("f16", Type::f16())] {
        for case in CASES {
            let body = kernel(case.op, 1, elem, "cpu");
            for x in points(case, 200) {
                let x = Scalar::Float(x).convert(ty).unwrap().float();
                let (got, exact) = (evaluate(&body, &[x], ty), (case.exact)(x));
                let want = Scalar::Float(exact).convert(ty).unwrap().float();
                // Rounding a value that is off by a few f32 ulps gives the nearest number or a neighbour.
                let digits = if elem == "bf16" { 7 } else { 10 };
                let least = if elem == "bf16" { -126.0 } else { -14.0 };
                let ulp = 2f64.powf(want.abs().log2().floor().max(least) - f64::from(digits));
                let close = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= ulp;
                assert!(
                    close || flushed(case, got, exact, Type::f32()),
                    "{} {elem} of {x:e}: {got:e} for {want:e}",
                    case.op
                );
            }
        }
    }
}

#[test]
fn bf16_numbers_on_a_gpu() {
    let ty = Type::bf16();
    for case in CASES {
        let body = kernel(case.op, 1, "bf16", "cuda");
        for bits in (0..=u16::MAX).step_by(7) {
            let x = f64::from(f32::from_bits(u32::from(bits) << 16));
            let (got, exact) = (evaluate(&body, &[x], ty), (case.exact)(x));
            let want = Scalar::Float(exact).convert(ty).unwrap().float();
            let has_roots = ["lgamma", "digamma"].contains(&case.op) && x < 0.0;
            let size = exact.abs().max(if has_roots { 1.0 } else { 0.0 });
            let ulp = 2f64.powf(size.log2().floor().max(-126.0) - 7.0);
            // Half a unit from the rounding, and little from the function.
            let close = got == want || got.is_nan() && want.is_nan() || (got - exact).abs() <= 0.52 * ulp;
            assert!(close || flushed(case, got, exact, Type::f32()), "{} of {x:e}: {got:e} for {want:e}", case.op);
        }
    }
}

/// Functions that are rounded to 16 bits soon: the lines that compute `%r` from `%x0`, the function, and its errors: relative, and absolute.
const NARROW: &[(&str, fn(f64) -> f64, f64, f64)] = &[
    ("  %r = core.log %x0 : f32", f64::ln, -16.0, -149.0),
    ("  %r = core.log1p %x0 : f32", f64::ln_1p, -16.0, -149.0),
    ("  %r = core.sin %x0 : f32", f64::sin, -16.0, -149.0),
    ("  %r = core.cos %x0 : f32", f64::cos, -16.0, -149.0),
    ("  %r = core.tan %x0 : f32", f64::tan, -16.0, -149.0),
    ("  %r = core.asin %x0 : f32", f64::asin, -16.0, -149.0),
    ("  %r = core.acos %x0 : f32", f64::acos, -16.0, -149.0),
    ("  %r = core.atan %x0 : f32", f64::atan, -16.0, -149.0),
    ("  %r = core.asinh %x0 : f32", libm::asinh, -16.0, -149.0),
    ("  %r = core.acosh %x0 : f32", libm::acosh, -16.0, -149.0),
    ("  %r = core.atanh %x0 : f32", libm::atanh, -16.0, -149.0),
    ("  %r = core.erfinv %x0 : f32", special::erfinv, -15.0, -149.0),
    ("  %r = core.erfc %x0 : f32", libm::erfc, -15.0, -126.0),
    // Those that have roots at negative numbers.
    ("  %r = core.lgamma %x0 : f32", libm::lgamma, -16.0, -16.0),
    ("  %r = core.digamma %x0 : f32", special::digamma, -16.0, -16.0),
    ("  %r = core.exp %x0 : f32", f64::exp, -16.0, -126.0),
    ("  %r = core.logistic %x0 : f32", |x| 1.0 / (1.0 + (-x).exp()), -16.0, -126.0),
    ("  %r = core.tanh %x0 : f32", f64::tanh, -16.0, -149.0),
    ("  %r = core.sinh %x0 : f32", f64::sinh, -16.0, -149.0),
    ("  %r = core.cosh %x0 : f32", f64::cosh, -16.0, -149.0),
    ("  %a = core.max %x0, %one : f32\n  %r = core.log2 %a : f32", |x| at_least_one(x).log2(), -16.0, -149.0),
    ("  %a = core.max %x0, %one : f32\n  %r = core.log10 %a : f32", |x| at_least_one(x).log10(), -16.0, -149.0),
    ("  %e = core.tanh %x0 : f32\n  %r = core.add %e, %one : f32", |x| 2.0 / (1.0 + (-2.0 * x).exp()), -16.0, -125.0),
    ("  %e = core.erf %x0 : f32\n  %r = core.add %one, %e : f32", |x| libm::erfc(-x), -14.0, -25.0),
];

fn at_least_one(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(1.0) }
}

#[test]
fn what_is_rounded_to_16_bits_soon_is_as_exact_as_that_needs() {
    let one = "  %one = core.constant {value = 1.0 : f32} : f32\n";
    // As f32, the short form's error shows; it is read from the value that is rounded.
    let before = |lines: &str| format!("{one}{lines}\n  %s = core.mul %r, %one : f32\n  %y = core.convert %s : bf16");
    for &(lines, exact, relative, absolute) in NARROW {
        let body = kernel_of(&before(lines), 1, ["f32", "bf16"], "cuda");
        let rounds = |op: OpRef| op.is(op::core::CONVERT) && op.result_types()[0].elem() == Type::bf16();
        let converted = body.walk().into_iter().find(|&op| rounds(body.op_ref(op))).unwrap();
        let mut wide = body.clone();
        let sum = wide.operand(converted, 0);
        let write = wide.walk().into_iter().find(|&op| wide.op_ref(op).is(op::kernel::WRITE)).unwrap();
        wide.set_operand(write, 0, sum);
        for i in 0..60_000 {
            // Numbers up to 100, and up to 1.5.
            let scale = if i < 40_000 { 0.5 } else { 0.0075 };
            let x = f64::from((f64::from(i % 40_000) * 0.01 - 200.0) as f32 * scale);
            let (got, want) = (evaluate(&wide, &[x], Type::f32()), exact(x));
            let allowed = want.abs() * 2f64.powf(relative) + 2f64.powf(absolute);
            assert!(
                (got - want).abs() <= allowed || want.abs() > f64::from(f32::MAX) || got.is_nan() && want.is_nan(),
                "{lines} of {x:e}: {got:e} for {want:e}"
            );
        }
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 1.0, -1.0] {
            let (got, want) = (evaluate(&wide, &[x], Type::f32()), exact(x));
            let some = want.is_finite() && want != 0.0;
            let close = got == want || some && (got - want).abs() <= want.abs() * 2f64.powf(relative);
            assert!(close || got.is_nan() && want.is_nan(), "{lines} of {x}: {got} for {want}");
        }
        // The same, used as f32 too, is as exact as ever.
        let kept = format!("{}\n  %w = core.convert %y : f32\n  %z = core.max %w, %r : f32", before(lines));
        let body = kernel_of(&kept.replace("%y", "%n").replace("%z", "%y"), 1, ["f32", "f32"], "cuda");
        let plain = kernel_of(&format!("{one}{}", lines.replace("%r", "%y")), 1, ["f32", "f32"], "cuda");
        assert_eq!(body.walk().len(), plain.walk().len() + 4, "{lines}");
    }
}

#[test]
fn powers_that_are_rounded_to_16_bits() {
    for (elem, ty, digits, least) in [("bf16", Type::bf16(), 7, -126.0), ("f16", Type::f16(), 10, -14.0)] {
        let body = kernel("pow", 2, elem, "cuda");
        let numbers: Vec<f64> =
            (0..60).map(|i| (f64::from(i) - 30.0).exp2() * (1.0 + f64::from(i % 7) / 7.0)).collect();
        let near_one = (0..40).map(|i| 1.0 + f64::from(i - 20) / 128.0);
        let values: Vec<f64> = SPECIAL.iter().copied().chain(numbers).chain(near_one).collect();
        for (&x, &y) in values.iter().flat_map(|x| values.iter().flat_map(move |y| [(x, y)])) {
            let [x, y] = [x, y].map(|v| Scalar::Float(v).convert(ty).unwrap().float());
            let (got, exact) = (evaluate(&body, &[x, y], ty), x.powf(y));
            let want = Scalar::Float(exact).convert(ty).unwrap().float();
            let ulp = 2f64.powf(exact.abs().log2().floor().max(least) - f64::from(digits));
            // Half a unit from the rounding, and little from the function.
            let close = got == want || got.is_nan() && want.is_nan() || (got - exact).abs() <= 0.52 * ulp;
            let flushed = got == 0.0 && exact.abs() < f64::from(f32::MIN_POSITIVE);
            assert!(close || flushed, "{elem} {x:e} ^ {y:e}: {got:e} for {want:e}");
        }
    }
}

#[test]
fn sums_before_the_rounding_ask_for_more() {
    let lines = "  %one = core.constant {value = 1.0 : f32} : f32
  %e = core.erf %x0 : f32
  %r = core.add %e, %one : f32
  %s = core.add %r, %x1 : f32
  %y = core.convert %s : bf16";
    let body = kernel_of(lines, 2, ["f32", "bf16"], "cuda");
    let sum = |op: &rc_ir::Op| body.op_ref(*op).is(op::core::CONVERT);
    let sum = body.operand(body.walk().into_iter().find(sum).unwrap(), 0);
    let mut wide = body.clone();
    let write = wide.walk().into_iter().find(|&op| wide.op_ref(op).is(op::kernel::WRITE)).unwrap();
    wide.set_operand(write, 0, sum);
    for i in 0..20_000 {
        let x = f64::from(f64::from(i) as f32 * 0.001 - 10.0);
        let (got, want) = (evaluate(&wide, &[x, 0.0], Type::f32()), libm::erfc(-x));
        assert!((got - want).abs() <= want * 2f64.powf(-19.0) + 2f64.powf(-25.0), "{x:e}: {got:e} for {want:e}");
    }
}

#[test]
fn functions_of_two_numbers() {
    let values: Vec<f64> = SPECIAL
        .iter()
        .copied()
        .chain((0..60).map(|i| f64::from((i * i * i) as f32 * 0.37 - 9000.5)))
        .chain([3.0, -3.0, 7.5, -7.5, 1.5, 0.1])
        .collect();
    let functions: [(_, fn(f64, f64) -> f64, _); 3] =
        [("pow", f64::powf, 8.0), ("atan2", f64::atan2, 4.0), ("rem", |x, y| x % y, 0.0)];
    for (op, exact, bound) in functions {
        for (target, elem) in [("cpu", "f32"), ("cuda", "f32"), ("cpu", "f64")] {
            let ty = if elem == "f32" { Type::f32() } else { Type::f64() };
            let body = kernel(op, 2, elem, target);
            let mut worst = 0.0f64;
            for &x in &values {
                for &y in &values {
                    let round = |x: f64| if elem == "f32" { f64::from(x as f32) } else { x };
                    let (x, y) = (round(x), round(y));
                    let (got, exact) = (evaluate(&body, &[x, y], ty), exact(x, y));
                    let want = if exact.abs() <= f64::from(f32::MAX) { exact } else { round(exact) };
                    let off = ulps(got, want, ty);
                    assert!(off <= bound, "{op}({x:e}, {y:e}): {got:e} for {want:e}");
                    assert!(
                        want != 0.0 || got.is_sign_negative() == want.is_sign_negative(),
                        "{op}({x:e}, {y:e}): the sign of zero"
                    );
                    worst = worst.max(off);
                }
            }
            println!("{op:10} {elem} {target:4}: {worst:.2} ulp");
        }
    }
}

#[test]
fn quotients_without_a_call() {
    let values: Vec<f64> =
        SPECIAL.iter().copied().chain((0..80).map(|i| (f64::from(i) - 40.0).exp2() * 1.37)).collect();
    let mut body = kernel("div", 2, "f32", "cuda");
    let op = body.walk().into_iter().find(|&op| body.name(op) == op::core::DIV).unwrap();
    let (a, b, ty) = (body.operand(op, 0), body.operand(op, 1), Type::f32());
    let constants = &mut Constants::default();
    let value = Math { body: &mut body, constants, before: op, ty, approx: true, rounded: false }.quotient(a, b);
    body.replace_op(op, &[value]);
    for (&x, &y) in values.iter().flat_map(|x| values.iter().map(move |y| (x, y))) {
        let (x, y) = (f64::from(x as f32), f64::from(y as f32));
        let (got, exact) = (evaluate(&body, &[x, y], ty), x / y);
        let want = if exact.abs() <= f64::from(f32::MAX) { exact } else { f64::from(exact as f32) };
        assert!(ulps(got, want, ty) <= 4.0, "{x:e} / {y:e}: {got:e} for {want:e}");
    }
}

#[test]
fn quotients_by_one_number() {
    let lines = "  %a = kernel.splat %x0 : vector<4xf32>
  %b = kernel.splat %x1 : vector<4xf32>
  %q = core.div %a, %b : vector<4xf32>
  %y = kernel.extract %q {lane = 2} : f32";
    let body = kernel_of(lines, 2, ["f32"; 2], "cuda");
    let divisions = body.walk().into_iter().filter(|&op| body.name(op) == op::core::DIV);
    assert_eq!(divisions.map(|op| body.ty(body.result(op, 0))).collect::<Vec<_>>(), [Type::f32()]);
    let values: Vec<f64> = SPECIAL
        .iter()
        .copied()
        .chain((-149..128).flat_map(|e| [1.0, 1.37, 1.999_999_9, -1.000_000_1].map(|x| f64::from(e).exp2() * x)))
        .collect();
    for (&x, &y) in values.iter().flat_map(|x| values.iter().map(move |y| (x, y))) {
        let (x, y) = (x as f32, y as f32);
        let (got, want) = (evaluate(&body, &[x.into(), y.into()], Type::f32()), x / y);
        let normal = want.abs() > 2f32.powi(-100) || want == 0.0 || want.is_nan();
        let bound = if normal && x.abs() > 2f32.powi(-100) { 0.0 } else { 1.0 };
        assert!(ulps(got, want.into(), Type::f32()) <= bound, "{x:e} / {y:e}: {got:e} for {want:e}");
    }
}

#[test]
fn unsupported_types_are_named() {
    rc_dialects::register();
    let text = "kernel.func @f(%m: memref<1xtf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %x = kernel.read %m[%zero] : tf32
  %y = core.erf %x : tf32
  kernel.write %y, %m[%zero]
  kernel.return
}
";
    let body = rc_parser::parse_module("test.ir", text).0.unwrap().bodies.swap_remove(0);
    let error = expand_math(&body).unwrap_err();
    assert!(error.message.contains("not supported: 'core.erf' on tf32"), "{}", error.message);
}

#[test]
fn whole_numbers_are_divided_as_such_of_32_bits() {
    let numbers =
        [0, 1, -1, 7, -7, 1 << 20, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 31, (1 << 40) + 3, -(1 << 52)];
    for name in ["div", "rem"] {
        let body = kernel(name, 2, "i64", "cuda");
        let branches = body.walk().iter().filter(|&&op| body.name(op) == op::kernel::IF).count();
        assert_eq!(branches, 1, "{name}");
        for (a, b) in numbers.iter().flat_map(|&a| numbers.map(|b| (a, b))).filter(|pair| pair.1 != 0) {
            let want = if name == "div" { a / b } else { a % b };
            assert_eq!(evaluate(&body, &[a as f64, b as f64], Type::i64()), want as f64, "{name} {a} {b}");
        }
    }
}
