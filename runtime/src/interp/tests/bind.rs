use super::*;
use rc_dialects::func::{SymbolDecl, set_symbols};
use rc_ir::{Attr, Dim};

fn module() -> Module {
    rc_dialects::register();
    let (s, t) = (Dim::symbol("s"), Dim::symbol("t"));
    let x = Type::tensor(&[s, Dim::Static(2)], Type::f32());
    let y = Type::tensor(&[t * 2.into() + 1.into()], Type::f32());
    let mut module = module_of(&[x, y], |b, a| {
        let n = b.op(op::core::DIM).operands(&a[1..]).attr("dim", Attr::i64(0)).value();
        vec![b.op(op::core::NEG).operands(&a[..1]).value(), n]
    });
    set_symbols(&mut module.bodies[0], &[SymbolDecl::new("s", 1, 1024).multiple_of(2), SymbolDecl::new("t", 0, 9)]);
    let root = module.bodies[0].root();
    module.bodies[0].set_attr(
        root,
        "arg_attrs",
        Attr::array(&[Attr::dict([(rc_ir::Name::new("rc.name"), Attr::str("x"))]), Attr::empty_dict()]),
    );
    module
}

#[test]
fn symbols_come_from_shapes() {
    let module = module();
    let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape).unwrap();
    let results = run(&module, Mode::Typed, &[zeros(&[4, 2]), zeros(&[7])]).unwrap();
    assert_eq!((results[0].shape(), results[1].to_i64()), (&[4usize, 2][..], vec![7]));
    let error = |args: &[Tensor]| run(&module, Mode::Typed, args).unwrap_err();
    assert_eq!(error(&[zeros(&[2000, 2]), zeros(&[1])]), "symbol s = 2000 is outside 1..1024");
    assert_eq!(error(&[zeros(&[3, 2]), zeros(&[1])]), "symbol s = 3 is not a multiple of 2");
    assert_eq!(error(&[zeros(&[4, 2]), zeros(&[6])]), "nothing says what the symbol t is");
    assert_eq!(error(&[zeros(&[4, 2])]), "@f takes 2 arguments, and 1 were given");
    let wrong = error(&[zeros(&[4, 3]), zeros(&[1])]);
    assert!(wrong.starts_with("argument 0 'x' of @f has 3 along dimension 1") && wrong.ends_with("says 2"), "{wrong}");
    let wrong = error(&[Tensor::zeros(DType::I32, &[4, 2]).unwrap(), zeros(&[1])]);
    assert!(wrong.starts_with("argument 0 'x' of @f has the dtype i32"), "{wrong}");
}

#[test]
fn float64_mode_takes_f64_inputs() {
    let module = module();
    let x = Tensor::full(DType::F64, &[2, 2], 0.1).unwrap();
    let args = [x, Tensor::zeros(DType::F32, &[1]).unwrap()];
    assert_eq!(run(&module, Mode::Float64, &args).unwrap()[0].get_f64(0), -0.1);
    assert!(run(&module, Mode::Typed, &args).is_err());
}

#[test]
fn unknown_functions_and_invalid_modules() {
    let module = module();
    let error = Interpreter::new(&module, Mode::Typed).run("g", &[]).unwrap_err();
    assert!(error.message.contains("no function '@g'") && error.help.unwrap().contains("@f"));
    let ty = tensor(&[2], Type::f32());
    let mut broken = module_of(&[ty], |b, a| vec![b.op(op::core::NEG).operands(a).value()]);
    let body = &mut broken.bodies[0];
    let neg = body.walk()[1];
    body.set_ty(body.result(neg, 0), tensor(&[3], Type::f32()));
    assert!(run(&broken, Mode::Typed, &[f32s(&[2], &[1.0, 2.0])]).is_err());
}
