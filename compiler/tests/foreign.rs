//! Functions of the process in the middle of programs: interpreted, compiled and packed alike; what fails is named and changes nothing.

use rc::{Executable, Machine, Target};
use rc_ir::{Module, Severity};
use rc_runtime::foreign::{Call, register};
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::{Model, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};

fn parse(text: &str) -> Module {
    rc::register();
    let (module, errors) = rc_parser::parse_module("test", text);
    assert!(errors.is_empty(), "{:?}", errors.iter().map(|e| e.render()).collect::<Vec<_>>());
    let module = module.expect("a module");
    let errors = rc::verify(&module);
    assert!(errors.is_empty(), "{:?}", errors[0].render());
    module
}

fn compiled(text: &str) -> Module {
    let mut module = parse(text);
    let report = rc::compile(&mut module, &Target::host());
    assert!(report.succeeded(), "{}", report.errors[0].render());
    module
}

fn load(text: &str) -> Executable {
    Executable::load(&compiled(text), None, Machine::Cpu).expect("a program")
}

fn column(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

/// y = x * sizes[0] + the number in the text.
fn scale(call: &Call) -> Result<(), rc_runtime::foreign::Failure> {
    let plus: f32 = call.config.parse()?;
    // SAFETY: one f32 argument and a result of its shape, on the CPU.
    let (x, y) = unsafe { (call.args[0].elements::<f32>(), call.results[0].elements_mut::<f32>()) };
    assert_eq!(call.args[0].shape, call.results[0].shape);
    x.iter().zip(y).for_each(|(x, y)| *y = x * call.sizes[0] as f32 + plus);
    Ok(())
}

const SCALED: &str =
    "func.func @main(%x: tensor<s x f32>) -> tensor<s x f32> attributes {rc.symbols = #rc.symbols<s = [0, 64, 1]>} {
  %h = core.neg %x : tensor<s x f32>
  %y = core.foreign %h {function = \"test.scale\", config = \"0.5\", sizes = [s], effects = none} : tensor<s x f32>
  %z = core.add %y, %x : tensor<s x f32>
  func.return %z
}";

#[test]
fn a_program_calls_a_function_of_the_process() {
    register("test.scale", scale);
    let (module, executable) = (parse(SCALED), load(SCALED));
    let interpreter = Interpreter::new(&module, Mode::Typed);
    for values in [&[1.0f32, -2.0, 3.5][..], &[f32::NAN, f32::INFINITY], &[7.0], &[]] {
        let n = values.len() as f32;
        let expected: Vec<u32> = values.iter().map(|x| (-x * n + 0.5 + x).to_bits()).collect();
        let bits = |tensor: &Tensor| tensor.as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let nan = |bits: Vec<u32>| {
            bits.into_iter().map(|b| if f32::from_bits(b).is_nan() { 0 } else { b }).collect::<Vec<_>>()
        };
        let expected = nan(expected);
        assert_eq!(nan(bits(&executable.run(&[column(values)]).unwrap()[0])), expected);
        assert_eq!(nan(bits(&interpreter.run("main", &[column(values)]).unwrap()[0])), expected);
    }
    // Every stage is a program, the planned one too.
    let mut planned = parse(SCALED);
    let passes = rc_parser::pipeline::parse_pipeline("test", "plan-buffers").unwrap();
    assert!(rc_ir::pass::PassManager::new(passes).run(&mut planned).succeeded());
    assert!(planned.to_string().contains("host.foreign args("), "{planned}");
    let results = Interpreter::new(&planned, Mode::Typed).run("main", &[column(&[1.0, 2.0])]).unwrap();
    assert_eq!(results[0].as_slice::<f32>().unwrap(), [-0.5, -1.5]);
}

#[test]
fn effects_say_what_may_go() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    register("test.count", |call: &Call| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        scale(call)
    });
    let calls = |effects: &str| {
        let text = SCALED.replace("test.scale", "test.count").replace("effects = none", effects);
        // Twice the same, and once for nothing.
        let line = text.lines().find(|line| line.contains("core.foreign")).unwrap().to_string();
        let (again, unused) = (line.replace("%y =", "%again ="), line.replace("%y =", "%unused ="));
        let text = text.replace(&line, &format!("{line}\n{again}\n{unused}")).replace("%y, %x", "%y, %again");
        let executable = load(&text);
        let before = CALLS.load(Ordering::Relaxed);
        assert_eq!(executable.run(&[column(&[2.0])]).unwrap()[0].as_slice::<f32>().unwrap(), [-3.0]);
        CALLS.load(Ordering::Relaxed) - before
    };
    assert_eq!((calls("effects = none"), calls("effects = ordered")), (1, 3));
}

#[test]
fn results_that_begin_as_operands() {
    register("test.first", |call: &Call| {
        // SAFETY: as above; what is not written is what the operand was.
        let (x, y) = unsafe { (call.args[1].elements::<f32>(), call.results[0].elements_mut::<f32>()) };
        y[0] += x[0];
        Ok(())
    });
    let text = "func.func @main(%x: tensor<3xf32>, %by: tensor<1xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %h = core.add %x, %x : tensor<3xf32>
  %y = core.foreign %h, %by {function = \"test.first\", updates = [0, 0]} : tensor<3xf32>
  %z = core.sub %y, %h : tensor<3xf32>
  func.return %y, %z
}";
    let (module, executable, args) = (parse(text), load(text), [column(&[1.0, 2.0, 3.0]), column(&[10.0])]);
    for results in [executable.run(&args).unwrap(), Interpreter::new(&module, Mode::Typed).run("main", &args).unwrap()]
    {
        assert_eq!(results[0].as_slice::<f32>().unwrap(), [12.0, 4.0, 6.0]);
        assert_eq!(results[1].as_slice::<f32>().unwrap(), [10.0, 0.0, 0.0]);
    }
}

#[test]
fn a_function_that_fails_is_named_and_changes_nothing() {
    register("test.fails", |call: &Call| {
        // SAFETY: as above.
        let x = unsafe { call.args[0].elements::<f32>() };
        unsafe { call.results[0].elements_mut::<f32>() }.copy_from_slice(x);
        assert!(x[0] != 5.0, "five is right out");
        if x[0] < 0.0 { Err("a negative number".into()) } else { Ok(()) }
    });
    // The argument is written to in place, but for the call that may fail after it.
    let text = "func.func @main(%x: tensor<4xf32>, %state: tensor<4xf32> {rc.donated = true}) -> (tensor<4xf32>, tensor<4xf32> {rc.updates = 1}) {
  %next = core.add %state, %x : tensor<4xf32>
  %h = core.foreign %x {function = \"test.fails\"} : tensor<4xf32>
  %y = core.add %h, %next : tensor<4xf32>
  func.return %y, %next
}";
    let module = compiled(text);
    let program = rc_runtime::program::Program::load(&module, None).unwrap();
    let program = rc_runtime::program::CpuProgram::new(program).unwrap();
    let mut state = [1.0f32, 2.0, 3.0, 4.0];
    let mut run = |first: f32| {
        let (x, mut y) = ([first, 0.0, 0.0, 1.0], [0.0f32; 4]);
        let inputs = [x.as_ptr().cast::<u8>(), state.as_mut_ptr().cast::<u8>().cast_const()];
        let outputs = [y.as_mut_ptr().cast::<u8>(), state.as_mut_ptr().cast::<u8>()];
        // SAFETY: memory of the arguments' and results' sizes.
        let done = unsafe { program.run_at(&rc_runtime::program::Bindings::default(), &inputs, &outputs) };
        (done.map_err(|e| e.to_string()), y, state)
    };
    let before = [1.0, 2.0, 3.0, 4.0];
    let (done, _, state) = run(-1.0);
    assert_eq!(
        (done.unwrap_err().as_str(), state),
        ("the foreign function 'test.fails' failed: a negative number", before)
    );
    let (done, _, state) = run(5.0);
    assert!(done.unwrap_err().contains("five is right out") && state == before);
    let (done, y, state) = run(2.0);
    assert_eq!((done, y, state), (Ok(()), [5.0, 2.0, 3.0, 6.0], [3.0, 2.0, 3.0, 5.0]));
}

#[test]
fn packages_name_the_functions_that_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.rcp");
    let write = |function: &str| {
        let module = compiled(&SCALED.replace("test.scale", function));
        let contents = rc_runtime::package::Contents { modules: vec![&module], ..Default::default() };
        rc_runtime::package::write(&path, &contents).unwrap();
    };
    write("test.nobody");
    let error = Model::load(&path).err().expect("an error").to_string();
    assert!(error.contains("the foreign function 'test.nobody', which is not registered"), "{error}");
    // A name before a colon stands for a family.
    register("test", |call: &Call| if call.function == "test:scale" { scale(call) } else { Err("another".into()) });
    write("test:scale");
    let results = Model::load(&path).unwrap().run(&[column(&[1.0, 2.0])]).unwrap();
    assert_eq!(results[0].as_slice::<f32>().unwrap(), [-0.5, -1.5]);
}

#[test]
fn what_is_malformed_is_an_error() {
    rc::register();
    let errors = |attrs: &str| {
        let text = format!(
            "func.func @main(%x: tensor<3xf32>) -> tensor<4xf32> {{
  %y = core.foreign %x {{{attrs}}} : tensor<4xf32>
  func.return %y
}}"
        );
        let (module, errors) = rc_parser::parse_module("test", &text);
        let all: Vec<_> = errors.into_iter().chain(module.iter().flat_map(rc::verify)).collect();
        all.iter().filter(|d| d.severity == Severity::Error).map(|d| d.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(errors("function = \"\"").contains("names no function"));
    assert!(errors("config = \"\"").contains("function"));
    assert!(!errors("function = \"f\", effects = some").is_empty());
    assert!(errors("function = \"f\", updates = [0]").contains("no pairs"));
    assert!(
        errors("function = \"f\", updates = [0, 0]")
            .contains("of type tensor<4xf32> that begins as an operand of type tensor<3xf32>")
    );
    assert!(errors("function = \"f\", updates = [0, 1]").contains("no result 0 and operand 1"));
    assert!(errors("function = \"f\", updates = [-1, 0]").contains("no result -1"));
}
