//! Whole kernels on the CPU.

use super::{compile, kernel_file, parse, run};
use rc_lowering::{
    backend::{Options, Processor, Session},
    kernel::{lower_kernel, lower_kernels},
};

#[test]
fn add_at_odd_sizes() {
    let kernel = compile(&kernel_file("add-cpu.ir"), &Processor::host().unwrap());
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

/// A number in [-1, 1) for each index.
fn number(i: usize, seed: u64) -> f32 {
    let bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(seed | 1);
    (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

#[test]
fn product_at_odd_sizes() {
    for file in ["sgemm-cpu.ir", "sgemm-cpu512.ir"] {
        check_product(file);
    }
}

fn check_product(file: &str) {
    let kernel = compile(&kernel_file(file), &Processor::host().unwrap());
    assert!(kernel.info.scratch >= 256 * 256 * 4, "packed panels lie in scratch memory");
    for [m, n, k] in [[1usize, 1, 1], [6, 16, 256], [7, 17, 257], [193, 31, 5], [13, 258, 300], [200, 15, 513]] {
        let a: Vec<f32> = (0..m * k).map(|i| number(i, 0xabcd)).collect();
        let b: Vec<f32> = (0..k * n).map(|i| number(i, 0x1234567)).collect();
        let mut c = vec![f32::NAN; m * n + 1];
        run(&kernel, &[a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr().cast()], &[m as i64, n as i64, k as i64]);
        assert!(c[m * n].is_nan());
        for (at, &got) in c[..m * n].iter().enumerate() {
            let products = (0..k).map(|p| f64::from(a[at / n * k + p]) * f64::from(b[p * n + at % n]));
            let (value, size) = products.fold((0.0, 0.0), |(v, s), x| (v + x, s + f64::abs(x)));
            let allowed = size * k as f64 * f64::from(f32::EPSILON) / 2.0;
            assert!((f64::from(got) - value).abs() <= allowed, "{file} {m}x{n}x{k} at {at}: {got}, not {value}");
        }
    }
}

/// Three-dimensional grids, symbolic sizes in expressions, loops with carried values, branches with results, views and
/// own memory.
#[test]
fn grids_sizes_and_control_flow() {
    let text = "
kernel.func @f(%x: memref<a x b x c x i32>, %y: memref<a x b x i64>) attributes {phase = thread, target = cpu,
    grid = [a, b, ((c + 2) floordiv 3)], rc.symbols = #rc.symbols<a = [0, 9, 1], b = [1, 9, 1], c = [0, 99, 1]>} {
  %c0 = core.constant {value = 0 : index} : index
  %c1 = core.constant {value = 1 : index} : index
  %c2 = core.constant {value = 2 : index} : index
  %c3 = core.constant {value = 3 : index} : index
  %i = kernel.program_id {axis = 0} : index
  %j = kernel.program_id {axis = 1} : index
  %k = kernel.program_id {axis = 2} : index
  %c = kernel.extent {expr = [c]} : index
  %own = kernel.alloc : memref<2x3xi64, 5>
  %row = kernel.view %x[%i, %j] : memref<c x i32>
  %from = core.mul %k, %c3 : index
  %to = core.add %from, %c3 : index
  %end = core.min %to, %c : index
  %zero = core.constant {value = 0 : i64} : i64
  %last, %sum = kernel.for lower(%from) upper(%end) step(%c1) iter(%p = %c0, %acc = %zero) ((%e: index) {
    %v = kernel.read %row[%e] : i32
    %w = core.convert %v : i64
    %z = core.constant {value = 0 : i32} : i32
    %neg = core.compare %v, %z {kind = lt} : i1
    %s, %q = kernel.if %neg ({
      %t = core.sub %acc, %w : i64
      kernel.yield %t, %e
    }, {
      %t = core.add %acc, %w : i64
      kernel.yield %t, %p
    }) : i64, index
    kernel.yield %q, %s
  }) : index, i64
  kernel.write %sum, %own[%c1, %c2]
  %back = kernel.read %own[%c1, %c2] : i64
  %old = kernel.atomic %back, %y[%i, %j] {kind = add} : i64
  kernel.return
}
";
    let kernel = compile(&parse("f.ir", text), &Processor::host().unwrap());
    for [a, b, c] in [[0usize, 1, 5], [1, 1, 0], [2, 3, 7], [9, 9, 99]] {
        let x: Vec<i32> = (0..a * b * c).map(|i| (number(i, 77) * 1000.0) as i32).collect();
        let mut y = vec![0i64; a * b];
        run(&kernel, &[x.as_ptr().cast(), y.as_mut_ptr().cast()], &[a as i64, b as i64, c as i64]);
        for (at, &got) in y.iter().enumerate() {
            assert_eq!(got, x[at * c..(at + 1) * c].iter().map(|&v| i64::from(v.abs())).sum::<i64>());
        }
    }
}

#[test]
fn many_kernels_in_order() {
    let (target, options) = (Processor::host().unwrap(), Options::default());
    let module = kernel_file("add-cpu.ir");
    let bodies = vec![&module.bodies[0]; 5];
    let one = lower_kernel(&Session::new(), &module.bodies[0], &target, &options).unwrap();
    for kernel in lower_kernels(&bodies, &target, &options) {
        assert_eq!(kernel.unwrap().code, one.code);
    }
}

#[test]
fn what_is_not_supported_says_so() {
    let message = |attributes: &str, args: &str, ops: &str, target: &Processor| {
        let text =
            format!("kernel.func @f({args}) attributes {{grid = [1], {attributes}}} {{\n{ops}\n  kernel.return\n}}\n");
        let module = parse("f.ir", &text);
        let error = lower_kernel(&Session::new(), &module.bodies[0], target, &Options::default()).unwrap_err();
        error.render()
    };
    let cpu = Processor::host().unwrap();
    let on_cpu = "phase = thread, target = cpu";
    let exp = message(
        on_cpu,
        "%m: memref<1xf32>",
        "  %i = core.constant {value = 0 : index} : index
  %x = kernel.read %m[%i] : f32
  %y = core.exp %x : f32",
        &cpu,
    );
    assert!(
        exp.contains("not supported")
            && exp.contains("core.exp")
            && exp.contains("run expand-math")
            && exp.contains("f.ir:4"),
        "{exp}"
    );
    let tile = message("phase = tile, target = cpu", "", "", &cpu);
    assert!(tile.contains("tile phase") && tile.contains("lower-tiles"), "{tile}");
    let other = message("phase = thread, target = cuda", "", "", &cpu);
    assert!(other.contains("another target"), "{other}");
    let elect = message(on_cpu, "", "  %e = kernel.elect : i1", &cpu);
    assert!(elect.contains("not supported") && elect.contains("on the CPU"), "{elect}");
    let ampere =
        message("phase = thread, target = cuda", "", "  %e = kernel.elect : i1", &Processor::cuda("sm_80").unwrap());
    assert!(ampere.contains("sm_80") && ampere.contains("it needs sm_90"), "{ampere}");
    let symbol = message(on_cpu, "%m: memref<s x f32>", "  %e = kernel.extent {expr = [s]} : index", &cpu);
    assert!(symbol.contains("symbol 's'"), "{symbol}");
}
