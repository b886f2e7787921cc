use super::*;
use rc_ir::{Attr, Dim};

fn dims(values: &[i64]) -> Attr {
    Attr::shape(&values.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>())
}

#[test]
fn moving_elements() {
    let x = i64s(&[2, 3], &[0, 1, 2, 3, 4, 5]);
    let ty = tensor(&[2, 3], Type::i64());
    let go = |build: &dyn Fn(&mut Builder, &[Value]) -> Value| {
        let t = run_op(&[ty], std::slice::from_ref(&x), build).unwrap();
        (t.shape().to_vec(), t.to_i64())
    };
    let t = go(&|b, a| b.op(op::core::TRANSPOSE).operands(a).attr("perm", Attr::i64s(&[1, 0])).value());
    assert_eq!(t, (vec![3, 2], vec![0, 3, 1, 4, 2, 5]));
    let r = go(&|b, a| b.op(op::core::REVERSE).operands(a).attr("dims", Attr::i64s(&[1])).value());
    assert_eq!(r, (vec![2, 3], vec![2, 1, 0, 5, 4, 3]));
    let s = go(&|b, a| {
        let op = b.op(op::core::SLICE).operands(a).attr("starts", dims(&[1, 0])).attr("sizes", dims(&[1, 2]));
        op.attr("strides", Attr::i64s(&[1, 2])).value()
    });
    assert_eq!(s, (vec![1, 2], vec![3, 5]));
    let c = go(&|b, a| b.op(op::core::CONCAT).operands(&[a[0], a[0]]).attr("dim", Attr::i64(1)).value());
    assert_eq!(c, (vec![2, 6], vec![0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]));
    let w = go(&|b, a| {
        let result = tensor(&[2, 2, 3], Type::i64());
        b.op(op::core::BROADCAST).operands(a).attr("dims", Attr::i64s(&[0, 2])).result(result).value()
    });
    assert_eq!(w.1, [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    let p = go(&|b, a| {
        let v = b.op(op::core::CONSTANT).attr("value", Attr::i64(9)).value();
        b.op(op::core::PAD).operands(a).operands(&[v]).attr("low", dims(&[1, 0])).attr("high", dims(&[0, 1])).value()
    });
    assert_eq!(p, (vec![3, 4], vec![9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9]));
}

#[test]
fn slices_outside_are_reported() {
    rc_dialects::register();
    let types = ["s", "t"].map(|name| Type::tensor(&[Dim::symbol(name)], Type::i64()));
    let mut module = module_of(&types, |b, a| {
        let op = b.op(op::core::SLICE).operands(&a[..1]).attr("starts", dims(&[2]));
        vec![op.attr("sizes", Attr::shape(&[Dim::symbol("t")])).value()]
    });
    let symbols = ["s", "t"].map(|name| rc_dialects::func::SymbolDecl::new(name, 0, 9));
    rc_dialects::func::set_symbols(&mut module.bodies[0], &symbols);
    let x = i64s(&[3], &[1, 2, 3]);
    assert_eq!(run(&module, Mode::Typed, &[x.clone(), i64s(&[1], &[0])]).unwrap()[0].to_i64(), [3]);
    let error = run(&module, Mode::Typed, &[x.clone(), x]).unwrap_err();
    assert!(error.contains("3 elements from 2 by 1 of dimension 0, which has 3"), "{error}");
}

#[test]
fn gather_and_scatter() {
    let table = i64s(&[3, 2], &[10, 11, 20, 21, 30, 31]);
    let ids = i64s(&[2, 2], &[2, 0, 1, 2]);
    let (tt, ti) = (tensor(&[3, 2], Type::i64()), tensor(&[2, 2], Type::i64()));
    let axis = |n| Attr::i64(n);
    let g = run_op(&[tt, ti], &[table.clone(), ids.clone()], |b, a| {
        b.op(op::core::GATHER).operands(a).attr("axis", axis(0)).value()
    });
    assert_eq!(g.unwrap().to_i64(), [30, 31, 10, 11, 20, 21, 30, 31]);
    let col = i64s(&[3], &[1, 1, 0]);
    let g = run_op(&[tt, tensor(&[3], Type::i64())], &[table.clone(), col], |b, a| {
        b.op(op::core::GATHER).operands(a).attr("axis", axis(1)).value()
    });
    assert_eq!(g.unwrap().to_i64(), [11, 11, 10, 21, 21, 20, 31, 31, 30]);
    let bad = i64s(&[2, 2], &[0, 1, 3, 0]);
    let g = run_op(&[tt, ti], &[table.clone(), bad], |b, a| {
        b.op(op::core::GATHER).operands(a).attr("axis", axis(0)).value()
    });
    assert!(g.unwrap_err().contains("index 3 (number 2) is outside"));
    let updates = i64s(&[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]);
    for (kind, expected) in
        [("set", [3, 4, 5, 6, 7, 8]), ("add", [13, 15, 25, 27, 38, 41]), ("max", [10, 11, 20, 21, 30, 31])]
    {
        let tu = tensor(&[2, 2, 2], Type::i64());
        let s = run_op(&[tt, ti, tu], &[table.clone(), ids.clone(), updates.clone()], |b, a| {
            let scatter = b.op(op::core::SCATTER).operand(a[0]).operand(a[1]).operand(a[2]);
            scatter.attr("axis", axis(0)).attr("kind", Attr::str(kind)).value()
        });
        assert_eq!(s.unwrap().to_i64(), expected, "{kind}");
    }
}

fn reduce(x: &Tensor, elem: Type, by: &[i64], kind: &str) -> Result<Tensor, String> {
    let shape: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    run_op(&[tensor(&shape, elem)], std::slice::from_ref(x), |b, a| {
        b.op(op::core::REDUCE).operands(a).attr("dims", Attr::i64s(by)).attr("kind", Attr::str(kind)).value()
    })
}

#[test]
fn reductions() {
    let x = f32s(&[2, 3], &[1.0, f32::NAN, 3.0, -4.0, 5.0, 5.0]);
    assert_eq!(reduce(&x, Type::f32(), &[0], "add").unwrap().get_f64(0), -3.0);
    let max = reduce(&x, Type::f32(), &[1], "max").unwrap().to_f64();
    assert!(max[0].is_nan() && max[1] == 5.0);
    assert_eq!(reduce(&x, Type::f32(), &[1], "argmax").unwrap().to_i64(), [1, 1]);
    assert_eq!(reduce(&x, Type::f32(), &[1], "argmin").unwrap().to_i64(), [1, 0]);
    let empty = f32s(&[2, 0], &[]);
    for (kind, value) in [("add", 0.0), ("mul", 1.0), ("max", f64::NEG_INFINITY), ("min", f64::INFINITY)] {
        assert_eq!(reduce(&empty, Type::f32(), &[1], kind).unwrap().to_f64(), [value; 2], "{kind}");
    }
    assert!(reduce(&empty, Type::f32(), &[1], "argmax").unwrap_err().contains("of no elements"));
    let n = i64s(&[2, 2], &[6, 3, 12, 10]);
    assert_eq!(reduce(&n, Type::i64(), &[1], "and").unwrap().to_i64(), [2, 8]);
    assert_eq!(reduce(&n, Type::i64(), &[0, 1], "or").unwrap().to_i64(), [15]);
    // 4097 sums of bf16 ones: the accumulator is f32, the result is rounded once.
    let ones = Tensor::full(DType::Bf16, &[4097], 1.0).unwrap();
    assert_eq!(reduce(&ones, Type::bf16(), &[0], "add").unwrap().get_f64(0), 4096.0);
}

#[test]
fn scans() {
    let x = i64s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let go = |dim: i64, kind: &str, reverse: bool, exclusive: bool| {
        let t = run_op(&[tensor(&[2, 3], Type::i64())], std::slice::from_ref(&x), |b, a| {
            let op = b.op(op::core::SCAN).operands(a).attr("dim", Attr::i64(dim)).attr("kind", Attr::str(kind));
            op.attr("reverse", Attr::bool(reverse)).attr("exclusive", Attr::bool(exclusive)).value()
        });
        t.unwrap().to_i64()
    };
    assert_eq!(go(1, "add", false, false), [1, 3, 6, 4, 9, 15]);
    assert_eq!(go(1, "add", true, true), [5, 3, 0, 11, 6, 0]);
    assert_eq!(go(0, "mul", false, false), [1, 2, 3, 4, 10, 18]);
    assert_eq!(go(0, "max", false, true), [i64::MIN, i64::MIN, i64::MIN, 1, 2, 3]);
}

#[test]
fn constants_and_iota() {
    let ty = tensor(&[3], Type::i32());
    let module = module_of(&[], |b, _| {
        let bytes: Vec<u8> = [7i32, -1, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
        let dense = b.op(op::core::CONSTANT).attr("value", Attr::dense(ty, bytes)).value();
        let splat = b.op(op::core::CONSTANT).attr("value", Attr::splat(tensor(&[2], Type::bf16()), 1.1)).value();
        let iota = b.op(op::core::IOTA).attr("dim", Attr::i64(1)).result(tensor(&[2, 3], Type::f32())).value();
        vec![dense, splat, iota]
    });
    let r = run(&module, Mode::Typed, &[]).unwrap();
    assert_eq!(r[0].to_i64(), [7, -1, 3]);
    assert_eq!(r[1].to_f64(), [1.1015625; 2]);
    assert_eq!(r[2].to_f64(), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
}

#[test]
fn fusions_and_calls() {
    let ty = tensor(&[3], Type::f32());
    let mut module = module_of(&[ty], |b, a| {
        let op = b.op(op::core::FUSION).operands(a).results(&[ty]).regions(1).build();
        let region = b.body.regions(op)[0];
        let block = b.body.add_block(region, &[ty]);
        let x = b.body.block_arg(block, 0);
        b.within(block, |b| {
            let y = b.op(op::core::MUL).operands(&[x, x]).value();
            b.op(op::core::YIELD).operands(&[y]).build();
        });
        let y = b.body.result(op, 0);
        vec![b.op(op::func::CALL).operands(&[y]).attr("callee", Attr::symbol("g")).result(ty).value()]
    });
    let mut callee = module_of(&[ty], |b, a| vec![b.op(op::core::NEG).operands(a).value()]).bodies.remove(0);
    callee.set_attr(callee.root(), "sym_name", Attr::str("g"));
    module.push(callee);
    assert_eq!(run(&module, Mode::Typed, &[f32s(&[3], &[1.0, 2.0, 3.0])]).unwrap()[0].to_f64(), [-1.0, -4.0, -9.0]);
}
