//! The program of the frontend author's guide, which `docs/frontend-guide.md` shows.

use rc_dialects::func::{SymbolDecl, set_symbols};
use rc_dialects::{CoreBuilder, TensorBuilder};
use rc_ir::{Attr, Builder, Dim, Loc, Module, Name, Type, builder::new_function};
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};

fn classifier() -> Module {
    rc::register();
    let n = Dim::symbol("n");
    let x = Type::tensor(&[n, Dim::Static(64)], Type::f32());
    let w = Type::tensor_of(&[10, 64], Type::f32());
    let y = Type::tensor(&[n, Dim::Static(10)], Type::f32());

    let mut func = new_function("func.func", "main", &[x, w], &[y], Loc::UNKNOWN);
    set_symbols(&mut func.body, &[SymbolDecl::new("n", 1, 1024)]);
    let names = ["x", "classifier.weight"].map(|name| Attr::dict([(Name::new("rc.name"), Attr::str(name))]));
    func.body.set_attr(func.body.root(), "arg_attrs", Attr::array(&names));

    let mut b = Builder::at_end(&mut func.body, func.entry);
    let z = b.linear(func.args[0], func.args[1], None);
    let scaled = b.binary_scalar("mul", z, 0.5);
    let p = b.op("rc.tensor.softmax").operand(scaled).attr("dim", Attr::i64(1)).value();
    b.op("func.return").operand(p).build();

    let mut module = Module::new();
    module.push(func.body);
    assert!(rc::verify(&module).is_empty());
    module
}

#[test]
fn the_guides_program_runs() -> Result<(), Box<dyn std::error::Error>> {
    let graph = classifier();
    let mut module = graph.clone();
    let report = rc::compile(&mut module, &rc::Target::host());
    assert!(report.succeeded(), "{:?}", report.errors);

    let program = rc::Executable::load(&module, None, rc::Machine::Cpu)?;
    let x = Tensor::from_slice(&[3, 64], &[0.25f32; 3 * 64])?;
    let w = Tensor::from_slice(&[10, 64], &[1.0f32; 10 * 64])?;
    let results = program.run(&[x.clone(), w.clone()])?;
    assert_eq!(results[0].shape(), [3, 10]);

    let reference = Interpreter::new(&graph, Mode::Float64).run("main", &[x, w]).map_err(|e| e.render())?;
    assert!(rc_runtime::tensor::max_abs_diff(&results[0], &reference[0])? < 1e-6);
    Ok(())
}
