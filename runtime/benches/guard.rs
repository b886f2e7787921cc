//! The check of a call's arguments: `cargo bench -p rc-runtime --bench guard`.
//!
//! Prints the median time for 150 arguments with the shapes of a transformer's weights, and a few symbolic sizes.

use rc_dialects::func::SymbolDecl;
use rc_ir::Name;
use rc_runtime::DType;
use rc_runtime::program::{Guard, Signature, TensorSpec};
use std::hint::black_box;
use std::time::Instant;

const ARGUMENTS: usize = 150;
const CALLS: usize = 1000;

fn main() {
    let s = SymbolDecl::new("s", 1, 1024);
    let spec = |i: usize| {
        let shape = match i % 5 {
            0 => vec![768.into(), 3072.into()],
            1 => vec![768.into()],
            2 => vec![3072.into()],
            3 => vec![s.dim(), 768.into()],
            _ => vec![1.into(), 12.into(), s.dim(), 64.into()],
        };
        TensorSpec { name: Name::new(&format!("x{i}")), dtype: DType::F32, shape }
    };
    let inputs: Vec<TensorSpec> = (0..ARGUMENTS).map(spec).collect();
    let bindings = [(Name::new("s"), 128)].into_iter().collect();
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|spec| spec.sizes(&bindings).expect("sizes")).collect();
    let guard = Guard::new(&Signature { inputs, outputs: Vec::new(), symbols: vec![s] }, ARGUMENTS);
    let check = || guard.bind(|i| (DType::F32, black_box(&shapes)[i].as_slice()), ARGUMENTS);
    assert_eq!(check().expect("arguments that fit"), bindings);
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                black_box(check()).expect("arguments that fit");
            }
            1e6 * start.elapsed().as_secs_f64() / CALLS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("the guard of {ARGUMENTS} arguments: {:.2} us", times[times.len() / 2]);
}
