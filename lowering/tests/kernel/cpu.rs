//! Whole kernels on the CPU.

use super::{compile, kernel_file, run};
use rc_lowering::backend::Target;

#[test]
fn add_at_odd_sizes() {
    let kernel = compile(&kernel_file("add-cpu.ir"), &Target::host().unwrap());
    for n in [0usize, 1, 15, 16, 17, 1023, 1024, 1025, 5000] {
        let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 3.0).collect();
        let y: Vec<f32> = (0..n).map(|i| 1.0 / (i as f32 + 0.5)).collect();
        let mut z = vec![f32::NAN; n + 1];
        run(&kernel, &[x.as_ptr().cast(), y.as_ptr().cast(), z.as_mut_ptr().cast()], &[n as i64]);
        let expected: Vec<f32> = x.iter().zip(&y).map(|(a, b)| a + b).collect();
        assert_eq!(z[..n], expected);
        assert!(z[n].is_nan(), "wrote past the end at n = {n}");
    }
}
