//! Functions for the CPU: built, compiled, loaded and run.

use libloading::Library;
use rc_lowering::{
    backend::{Error, Options, Pipeline, Processor, Session},
    emit::{Access, Builder, FastMath, Function, Horizontal, ICmp, ModuleBuilder, Parameter, Types, Unroll},
};
use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// Object code as a shared library, since the loader is the runtime's affair.
fn load(object: &[u8]) -> Library {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("rc-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (input, output) = (std::env::temp_dir().join(format!("{name}.o")), std::env::temp_dir().join(name + ".so"));
    std::fs::write(&input, object).unwrap();
    let status = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&output).arg(&input).status().unwrap();
    assert!(status.success());
    let library = unsafe { Library::new(&output) }.unwrap();
    std::fs::remove_file(input).unwrap();
    std::fs::remove_file(output).unwrap();
    library
}

fn compile(
    parameters: impl Fn(Types<'_>) -> Vec<Parameter<'_>>,
    build: impl Fn(&Builder<'_>),
) -> Result<Library, Error> {
    compile_with(Pipeline::Light, parameters, build)
}

fn compile_with(
    pipeline: Pipeline,
    parameters: impl Fn(Types<'_>) -> Vec<Parameter<'_>>,
    build: impl Fn(&Builder<'_>),
) -> Result<Library, Error> {
    let session = Session::new();
    let target = Processor::host()?;
    let module = ModuleBuilder::new(&session, &target)?;
    let parameters = parameters(module.types());
    let builder = module.function(&Function::new("f", &parameters));
    build(&builder);
    let module = module.finish();
    let llvm = session.compile(&module, &target, &Options { pipeline })?;
    Ok(load(llvm.object()?.bytes()))
}

fn pointers(count: usize) -> impl Fn(Types<'_>) -> Vec<Parameter<'_>> {
    move |types| {
        let mut parameters = vec![Parameter { noalias: true, ..Parameter::new(types.ptr) }; count];
        parameters.push(Parameter::new(types.i64));
        parameters
    }
}

/// `c[i] = a[i] + b[i]`, eight lanes at a time and then the rest one by one.
fn vector_add(b: &Builder<'_>) {
    let (x, y, z, n) = (b.arg(0), b.arg(1), b.arg(2), b.arg(3));
    let access = Access::aligned(4);
    let whole = b.and(n, b.i64(-8));
    for (bounds, r#type) in [((b.i64(0), whole, b.i64(8)), b.ty.vector(8, b.ty.f32)), ((whole, n, b.i64(1)), b.ty.f32)]
    {
        b.for_loop(bounds, &[], Unroll::No, |i, _| {
            let at = |base| b.gep(b.ty.f32, base, i);
            let sum = b.fadd(b.load(r#type, at(x), access), b.load(r#type, at(y), access));
            b.store(sum, at(z), access);
            vec![]
        });
    }
    b.ret(None);
}

#[test]
fn vector_add_at_odd_sizes() {
    for pipeline in
        [Pipeline::None, Pipeline::Light, Pipeline::O2, Pipeline::O3, Pipeline::Text("function(sroa)".into())]
    {
        check_vector_add(&compile_with(pipeline, pointers(3), vector_add).unwrap());
    }
}

fn check_vector_add(library: &Library) {
    let add = unsafe { library.get::<extern "C" fn(*const f32, *const f32, *mut f32, i64)>(b"f") }.unwrap();
    for n in [0, 1, 7, 8, 9, 1009] {
        let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 3.0).collect();
        let b: Vec<f32> = (0..n).map(|i| 1.0 / (i as f32 + 0.5)).collect();
        let mut c = vec![f32::NAN; n + 1];
        add(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), n as i64);
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(c[..n], expected);
        assert!(c[n].is_nan(), "wrote past the end at n = {n}");
    }
}

#[test]
fn bf16_conversions_round_to_even_and_keep_nan() {
    // The value, then its bf16 bits: halves to even, NaN quiet, infinity and overflow.
    let cases: [(u32, u16); 8] = [
        (0x3f80_0000, 0x3f80),
        (0x3f80_8000, 0x3f80),
        (0x3f81_8000, 0x3f82),
        (0x3f80_8001, 0x3f81),
        (0x7f80_0000, 0x7f80),
        (0x7f7f_ffff, 0x7f80),
        (0x7f80_0001, 0x7fc0),
        (0xffff_ffff, 0xffff),
    ];
    let library = compile(pointers(2), |b| {
        let access = Access::aligned(2);
        let wide = b.load(b.ty.vector(8, b.ty.f32), b.arg(0), access);
        let narrow = b.f32_to_bf16(wide);
        b.store(narrow, b.arg(1), access);
        b.store(b.bf16_to_f32(narrow), b.arg(0), access);
        b.ret(None);
    })
    .unwrap();
    let convert = unsafe { library.get::<extern "C" fn(*mut u32, *mut u16, i64)>(b"f") }.unwrap();
    let mut wide = cases.map(|(wide, _)| wide);
    let mut narrow = [0u16; 8];
    convert(wide.as_mut_ptr(), narrow.as_mut_ptr(), 8);
    assert_eq!(narrow, cases.map(|(_, narrow)| narrow));
    assert_eq!(wide, cases.map(|(_, narrow)| u32::from(narrow) << 16));
}

#[test]
fn a_table_entry_is_called_through_its_pointer() {
    extern "C" fn twice(x: f32) -> f32 {
        2.0 * x
    }
    let library = compile(pointers(2), |b| {
        let function = b.load(b.ty.ptr, b.arg(0), Access::aligned(8));
        let x = b.load(b.ty.f32, b.arg(1), Access::aligned(4));
        let y = b.call_pointer(function, &[x], Some(b.ty.f32)).unwrap();
        b.store(y, b.arg(1), Access::aligned(4));
        b.ret(None);
    })
    .unwrap();
    let f = unsafe { library.get::<extern "C" fn(*const extern "C" fn(f32) -> f32, *mut f32, i64)>(b"f") }.unwrap();
    let mut x = 21.0;
    f(&(twice as extern "C" fn(f32) -> f32), &mut x, 0);
    assert_eq!(x, 42.0);
}

#[test]
fn structured_control_flow() {
    // The number of steps of the Collatz sequence, odd ones counted twice.
    let library = compile(pointers(1), |b| {
        let ends = b.while_loop(
            &[b.arg(1), b.i64(0)],
            |carried| b.icmp(ICmp::Sgt, carried[0], b.i64(1)),
            |carried| {
                let (n, count) = (carried[0], carried[1]);
                let odd = b.trunc(n, b.ty.i1);
                let types = [b.ty.i64, b.ty.i64];
                b.if_else(
                    odd,
                    &types,
                    || vec![b.add(b.mul(n, b.i64(3)), b.i64(1)), b.add(count, b.i64(2))],
                    || vec![b.lshr(n, b.i64(1)), b.add(count, b.i64(1))],
                )
            },
        );
        b.if_then(b.icmp(ICmp::Ne, ends[1], b.i64(0)), || b.store(ends[1], b.arg(0), Access::aligned(8)));
        b.ret(None);
    })
    .unwrap();
    let f = unsafe { library.get::<extern "C" fn(*mut i64, i64)>(b"f") }.unwrap();
    for (n, expected) in [(1, -1), (2, 1), (3, 9), (27, 152)] {
        let mut count = -1;
        f(&mut count, n);
        assert_eq!(count, expected, "from {n}");
    }
}

#[test]
fn masks_reductions_and_lanes() {
    // The sum and the largest of n <= 8 numbers.
    let library = compile(pointers(2), |b| {
        let wide = b.ty.vector(8, b.ty.f32);
        let limit = b.splat(b.trunc(b.arg(2), b.ty.i32), 8);
        let mask = b.icmp(ICmp::Slt, b.lane_numbers(8, b.ty.i32), limit);
        let numbers = |other| b.masked_load(b.arg(0), mask, b.float(wide, other), 4);
        let sum = b.with_fast_math(FastMath::REDUCE, || b.reduce(Horizontal::FAdd, numbers(0.0)));
        let largest = b.reduce(Horizontal::FMaximum, numbers(f64::NEG_INFINITY));
        b.store(b.vector(&[sum, largest]), b.arg(1), Access::aligned(4));
        b.ret(None);
    })
    .unwrap();
    let f = unsafe { library.get::<extern "C" fn(*const f32, *mut [f32; 2], i64)>(b"f") }.unwrap();
    let run = |numbers: &[f32]| {
        let mut result = [0.0; 2];
        f(numbers.as_ptr(), &mut result, numbers.len() as i64);
        result
    };
    assert_eq!(run(&[]), [0.0, f32::NEG_INFINITY]);
    assert_eq!(run(&[-3.0, -5.0, -1.0]), [-9.0, -1.0]);
    assert_eq!(run(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), [36.0, 8.0]);
    assert!(run(&[1.0, f32::NAN]).iter().all(|x| x.is_nan()));
}

#[test]
fn what_would_call_a_library_is_refused_by_name() {
    let clear = |b: &Builder<'_>| {
        // A loop that LLVM turns into memset, were it allowed to.
        b.for_loop((b.i64(0), b.arg(1), b.i64(1)), &[], Unroll::No, |i, _| {
            b.store(b.int(b.ty.i8, 0), b.gep(b.ty.i8, b.arg(0), i), Access::aligned(1));
            vec![]
        });
        b.ret(None);
    };
    assert_eq!(compile_with(Pipeline::O3, pointers(1), clear).err(), None);
    let exp = compile(pointers(1), |b| {
        let x = b.load(b.ty.f32, b.arg(0), Access::aligned(4));
        b.store(b.op1("llvm.intr.exp", &[x], b.ty.f32, &[]), b.arg(0), Access::aligned(4));
        b.ret(None);
    });
    assert_eq!(exp.err(), Some(Error::UndefinedSymbols(vec!["expf".into()])));
}

#[test]
fn wrong_types_are_an_error() {
    let result = compile(pointers(1), |b| {
        b.add(b.i32(1), b.i64(1));
        b.ret(None);
    });
    assert!(matches!(result, Err(Error::InvalidModule(message)) if message.contains("llvm.add")));
}
