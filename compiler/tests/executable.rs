//! Compiled functions called again and again: results that a caller keeps, arguments that are the same at every call.

use rc::{Executable, Machine, Target};
use rc_runtime::Tensor;

fn load(text: &str) -> Executable {
    rc::register();
    let mut module = rc_parser::parse_module("test", text).0.expect("a module");
    let report = rc::compile(&mut module, &Target::host());
    assert!(report.succeeded(), "{:?}", report.errors);
    Executable::load(&module, None, Machine::Cpu).expect("a program")
}

fn column(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

#[test]
fn results_that_a_caller_keeps_stay() {
    let twice = load(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = core.add %x, %x : tensor<3xf32>
  func.return %y
}",
    );
    let first = twice.run(&[column(&[1.0, 2.0, 3.0])]).unwrap();
    let kept = first[0].clone();
    drop(first);
    let second = twice.run(&[column(&[5.0, 6.0, 7.0])]).unwrap();
    assert_eq!(kept.as_slice::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(second[0].as_slice::<f32>().unwrap(), [10.0, 12.0, 14.0]);
    // What nobody keeps is written again.
    let address = second[0].as_ptr();
    drop(second);
    let third = twice.run(&[column(&[0.0, 1.0, -1.0])]).unwrap();
    assert_eq!((third[0].as_ptr(), third[0].as_slice::<f32>().unwrap()), (address, [0.0, 2.0, -2.0].as_slice()));
}

#[test]
fn constant_arguments_are_taken_at_the_first_call() {
    let product = load(
        "func.func @main(%x: tensor<5x3xf32>, %w: tensor<3x9xf32> {rc.constant = true}) -> tensor<5x9xf32> {
  %y = core.dot %x, %w {lhs_contract = [1], rhs_contract = [0]} : tensor<5x9xf32>
  func.return %y
}",
    );
    let matrix = |rows: usize, columns: usize, of: fn(usize) -> f32| {
        let values: Vec<f32> = (0..rows * columns).map(of).collect();
        Tensor::from_slice(&[rows, columns], &values).unwrap()
    };
    let (x, w) = (matrix(5, 3, |i| i as f32 - 7.0), matrix(3, 9, |i| 0.5 * i as f32));
    let dot = |i: usize, j: usize| (0..3).map(|k| ((3 * i + k) as f32 - 7.0) * 0.5 * (9 * k + j) as f32).sum::<f32>();
    let expected: Vec<f32> = (0..45).map(|at| dot(at / 9, at % 9)).collect();
    product.initialize(&[x.clone(), w.clone()]).unwrap();
    let other = matrix(3, 9, |_| f32::NAN);
    for weights in [w, other] {
        let results = product.run(&[x.clone(), weights]).unwrap();
        assert_eq!(results[0].as_slice::<f32>().unwrap(), expected);
    }
    let error = product.run(&[x]).unwrap_err().to_string();
    assert!(error.contains("takes 2 arguments, 1 were given"), "{error}");
}

#[test]
fn arguments_that_stay_are_what_the_last_run_left() {
    let step = load(
        "func.func @main(%x: tensor<3xf32>, %sum: tensor<3xf32> {rc.donated = true}) -> (tensor<f32>, tensor<3xf32> {rc.updates = 1}) {
  %next = core.add %sum, %x : tensor<3xf32>
  %total = core.reduce %next {dims = [0], kind = add} : tensor<f32>
  func.return %total, %next
}",
    );
    assert_eq!(step.updates(), [None, Some(1)]);
    let start = column(&[1.0, 0.0, -1.0]);
    let mut resident = step.resident(vec![column(&[1.0, 2.0, 3.0]), start.clone()]).unwrap();
    let total = |results: Vec<Option<Tensor>>| {
        assert!(results[1].is_none());
        results[0].as_ref().unwrap().to_f64()
    };
    assert_eq!(total(resident.run().unwrap()), [6.0]);
    let before = resident.get(1).unwrap();
    resident.set(0, &column(&[10.0, 0.0, 0.0])).unwrap();
    assert_eq!(total(resident.run().unwrap()), [16.0]);
    assert_eq!(resident.get(1).unwrap().to_f64(), [12.0, 2.0, 2.0]);
    // What others have stays theirs: the caller's tensor, and what was read between two runs.
    assert_eq!((start.to_f64(), before.to_f64()), (vec![1.0, 0.0, -1.0], vec![2.0, 2.0, 2.0]));
    let error = resident.set(0, &column(&[1.0])).unwrap_err().to_string();
    assert!(error.contains("argument 0 of shape [3] and dtype f32 was given [1] of f32"), "{error}");
    let error = resident.get(2).err().unwrap().to_string();
    assert!(error.contains("has 2 arguments, and no number 2"), "{error}");
}
