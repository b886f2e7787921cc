use super::*;
use rc_ir::Attr;

fn unary(name: &str, elem: Type, x: Tensor) -> Tensor {
    let shape: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    run_op(&[tensor(&shape, elem)], &[x], |b, a| b.op(name).operands(a).value()).unwrap()
}

fn binary(name: &str, elem: Type, x: Tensor, y: Tensor) -> Result<Tensor, String> {
    let shape: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    let ty = tensor(&shape, elem);
    run_op(&[ty, ty], &[x, y], |b, a| b.op(name).operands(a).value())
}

#[test]
fn floats_round_once_to_their_type() {
    let x = random(DType::F32, &[7, 13], 1);
    let y = random(DType::F32, &[7, 13], 2);
    let (a, b) = (x.as_slice::<f32>().unwrap().to_vec(), y.as_slice::<f32>().unwrap().to_vec());
    for (name, f) in [
        (op::core::ADD, (|a, b| a + b) as fn(f32, f32) -> f32),
        (op::core::SUB, |a, b| a - b),
        (op::core::MUL, |a, b| a * b),
        (op::core::DIV, |a, b| a / b),
    ] {
        let z = binary(name, Type::f32(), x.clone(), y.clone()).unwrap();
        let expected: Vec<f32> = a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect();
        assert_eq!(z.as_slice::<f32>().unwrap(), expected, "{name}");
    }
}

#[test]
fn narrow_floats_round_and_float64_does_not() {
    let one = Tensor::full(DType::Bf16, &[1], 1.0).unwrap();
    let small = Tensor::full(DType::Bf16, &[1], 0.001953125).unwrap();
    let ty = tensor(&[1], Type::bf16());
    let module = module_of(&[ty, ty], |b, a| vec![b.op(op::core::ADD).operands(a).value()]);
    let args = [one, small];
    // 1 + 2^-9 is below half a unit in the last place of bf16 (2^-8).
    assert_eq!(run(&module, Mode::Typed, &args).unwrap()[0].get_f64(0), 1.0);
    let exact = &run(&module, Mode::Float64, &args).unwrap()[0];
    assert_eq!((exact.dtype(), exact.get_f64(0)), (DType::F64, 1.001953125));
}

#[test]
fn extrema_and_comparisons_follow_ieee() {
    let x = f32s(&[5], &[f32::NAN, -0.0, 0.0, 1.0, f32::NEG_INFINITY]);
    let y = f32s(&[5], &[1.0, 0.0, -0.0, f32::NAN, f32::INFINITY]);
    let max = binary(op::core::MAX, Type::f32(), x.clone(), y.clone()).unwrap().to_f64();
    assert!(max[0].is_nan() && max[3].is_nan() && max[4] == f64::INFINITY);
    assert!(max[1].is_sign_positive() && max[2].is_sign_positive());
    let ty = tensor(&[5], Type::f32());
    let expected: [(&str, [i64; 5]); 6] = [
        ("eq", [0, 1, 1, 0, 0]),
        ("ne", [1, 0, 0, 1, 1]),
        ("lt", [0, 0, 0, 0, 1]),
        ("le", [0, 1, 1, 0, 1]),
        ("gt", [0, 0, 0, 0, 0]),
        ("ge", [0, 1, 1, 0, 0]),
    ];
    for (kind, expected) in expected {
        let got = run_op(&[ty, ty], &[x.clone(), y.clone()], |b, a| {
            b.op(op::core::COMPARE).operands(a).attr("kind", Attr::str(kind)).value()
        });
        assert_eq!(got.unwrap().to_i64(), expected, "{kind}");
    }
}

#[test]
fn integers_wrap_and_division_by_zero_is_an_error() {
    let x = Tensor::from_slice(&[3], &[i8::MAX, i8::MIN, -7]).unwrap();
    let y = Tensor::from_slice(&[3], &[1i8, -1, 2]).unwrap();
    let go = |name: &str| binary(name, Type::i8(), x.clone(), y.clone()).unwrap().to_i64();
    assert_eq!(go(op::core::ADD), [-128, 127, -5]);
    assert_eq!(go(op::core::DIV), [127, -128, -3]);
    assert_eq!(go(op::core::REM), [0, 0, -1]);
    let zero = Tensor::from_slice(&[3], &[1i8, 0, 2]).unwrap();
    assert!(binary(op::core::DIV, Type::i8(), x, zero).unwrap_err().contains("divides an integer by zero"));
}

#[test]
fn unsigned_bytes_are_unsigned() {
    let x = Tensor::from_slice(&[2], &[250u8, 3]).unwrap();
    let y = Tensor::from_slice(&[2], &[10u8, 5]).unwrap();
    let go = |name: &str| binary(name, Type::unsigned(8), x.clone(), y.clone()).unwrap().to_i64();
    assert_eq!((go(op::core::ADD), go(op::core::SUB), go(op::core::MAX)), (vec![4, 8], vec![240, 254], vec![250, 5]));
    assert_eq!(go(op::core::SHR), [0, 0]);
}

#[test]
fn conversions_saturate_truncate_and_extend() {
    let x = f32s(&[6], &[1.9, -1.9, 300.0, f32::NAN, f32::INFINITY, -1e9]);
    let to = |x: &Tensor, from: Type, to: Type| {
        let n = x.len() as i64;
        run_op(&[tensor(&[n], from)], std::slice::from_ref(x), |b, a| {
            b.op(op::core::CONVERT).operands(a).result(tensor(&[n], to)).value()
        })
        .unwrap()
    };
    assert_eq!(to(&x, Type::f32(), Type::i8()).to_i64(), [1, -1, 127, 0, 127, -128]);
    assert_eq!(to(&x, Type::f32(), Type::i1()).to_i64(), [1; 6]);
    let n = Tensor::from_slice(&[2], &[i64::MAX, 16777217]).unwrap();
    assert_eq!(to(&n, Type::i64(), Type::f32()).to_f64(), [9.223372036854776e18, 16777216.0]);
    assert_eq!(to(&n, Type::i64(), Type::i8()).to_i64(), [-1, 1]);
    let b = Tensor::from_bytes(DType::Bool, &[2], &[1, 0]).unwrap();
    assert_eq!(to(&b, Type::i1(), Type::i64()).to_i64(), [1, 0]);
}

#[test]
fn bitcast_keeps_bits() {
    let x = f32s(&[3], &[1.0, -0.0, f32::INFINITY]);
    let bits = run_op(&[tensor(&[3], Type::f32())], &[x], |b, a| {
        b.op(op::core::BITCAST).operands(a).result(tensor(&[3], Type::i32())).value()
    });
    assert_eq!(bits.unwrap().to_i64(), [0x3f800000, i64::from(i32::MIN), 0x7f800000]);
}

#[test]
fn fma_rounds_once() {
    let a = f32s(&[1], &[1.0 + f32::EPSILON]);
    let b = f32s(&[1], &[1.0 - f32::EPSILON]);
    let c = f32s(&[1], &[-1.0]);
    let ty = tensor(&[1], Type::f32());
    let got = run_op(&[ty, ty, ty], &[a, b, c], |b, a| b.op(op::core::FMA).operands(a).value()).unwrap();
    assert_eq!(got.get_f64(0), -(f64::from(f32::EPSILON).powi(2)));
}

#[test]
fn empty_and_large_arrays() {
    assert_eq!(unary(op::core::EXP, Type::f32(), f32s(&[0, 3], &[])).shape(), [0, 3]);
    let x = random(DType::F32, &[40_009], 3);
    let y = unary(op::core::TANH, Type::f32(), x.clone());
    for i in [0, 17, 40_008] {
        assert_eq!(y.get_f64(i), f64::from(x.get_f64(i).tanh() as f32));
    }
}
