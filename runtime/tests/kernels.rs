//! The hand-written kernels of `test/kernels` in the interpreter, block by block and thread by thread in a shuffled order, against what they
//! are to compute: at sizes that fill no tile, and with several programs.

use rc_ir::Module;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::tensor::{Distribution, Tolerance, compare};
use rc_runtime::{DType, Tensor};

/// A kernel's file, its launch and its reference in text.
struct Case<'a> {
    file: &'a str,
    /// What `@main` takes and gives.
    types: &'a str,
    launch: &'a str,
    /// The value `%r` of the same arguments.
    reference: &'a str,
    inputs: &'a [(DType, &'a [usize])],
    tolerance: f64,
}

impl Case<'_> {
    fn module(&self) -> Module {
        let path = format!("{}/../test/kernels/{}", env!("CARGO_MANIFEST_DIR"), self.file);
        let kernel = std::fs::read_to_string(&path).unwrap();
        let launch = self.launch;
        let functions = [("main", format!("%r = host.launch {launch}")), ("reference", self.reference.to_string())];
        let functions = functions
            .map(|(name, code)| format!("func.func @{name}{} {{\n  {code}\n  func.return %r\n}}\n", self.types));
        rc_dialects::register();
        let (module, diagnostics) = rc_parser::parse_module(&path, kernel + &functions.concat());
        assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render()).collect::<String>());
        module.unwrap()
    }

    #[track_caller]
    fn check(&self) {
        let module = self.module();
        let random = |(i, &(dtype, shape)): (usize, &(DType, &[usize]))| {
            Tensor::random(dtype, shape, 7, i as u32, Distribution::Normal(0.0, 1.0)).unwrap()
        };
        let inputs: Vec<Tensor> = self.inputs.iter().enumerate().map(random).collect();
        let expected = Interpreter::new(&module, Mode::Float64)
            .run("reference", &inputs)
            .unwrap_or_else(|d| panic!("{}", d.render()));
        for seed in [1, 2] {
            let interpreter = Interpreter::new(&module, Mode::Typed).shuffled(seed);
            let actual = interpreter.run("main", &inputs).unwrap_or_else(|d| panic!("{}: {}", self.file, d.render()));
            let comparison = compare(&actual[0], &expected[0], Tolerance::of_max(self.tolerance)).unwrap();
            assert!(comparison.passed(), "{}: {comparison}", self.file);
        }
    }
}

/// A result in bf16, of a sum in f32.
const BF16: f64 = 1.0 / 256.0;
const F32: f64 = 1e-5;

#[test]
fn add() {
    for (file, n) in [("add-cpu.ir", 2000), ("add-cuda.ir", 1025)] {
        Case {
            file,
            types: &format!("(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> tensor<{n}xf32>"),
            launch: &format!("%x, %y {{callee = \"add\", bind = <n = #rc.shape<[{n}]>>}} : tensor<{n}xf32>"),
            reference: &format!("%r = core.add %x, %y : tensor<{n}xf32>"),
            inputs: &[(DType::F32, &[n]), (DType::F32, &[n])],
            tolerance: F32,
        }
        .check();
    }
}

#[test]
fn softmax() {
    for n in [8, 1000] {
        Case {
            file: "softmax-cuda.ir",
            types: &format!("(%x: tensor<3x{n}xbf16>) -> tensor<3x{n}xbf16>"),
            launch: &format!(
                "%x {{callee = \"softmax\", bind = <m = #rc.shape<[3]>, n = #rc.shape<[{n}]>>}} : tensor<3x{n}xbf16>"
            ),
            reference: &format!("%r = tensor.softmax %x {{dim = 1}} : tensor<3x{n}xbf16>"),
            inputs: &[(DType::Bf16, &[3, n])],
            tolerance: BF16,
        }
        .check();
    }
}

#[test]
fn sgemm() {
    for file in ["sgemm-cpu.ir", "sgemm-cpu512.ir"] {
        for [m, n, k] in [[1, 1, 1], [17, 19, 5], [197, 258, 3]] {
            Case {
                file,
                types: &format!("(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>"),
                launch: &format!(
                    "%a, %b {{callee = \"sgemm\", bind = <m = #rc.shape<[{m}]>, n = #rc.shape<[{n}]>, k = #rc.shape<[{k}]>>}} : tensor<{m}x{n}xf32>"
                ),
                reference: &format!("%r = core.dot %a, %b {{lhs_contract = [1], rhs_contract = [0]}} : tensor<{m}x{n}xf32>"),
                inputs: &[(DType::F32, &[m, k]), (DType::F32, &[k, n])],
                tolerance: F32,
            }
            .check();
        }
    }
}

/// Several tiles on fewer programs, of which each goes through more than one.
#[test]
fn matmul_hopper() {
    for [m, n, k, sms] in [[127, 136, 128, 1], [130, 264, 72, 3], [1, 8, 8, 132]] {
        let bind =
            format!("m = #rc.shape<[{m}]>, n = #rc.shape<[{n}]>, k = #rc.shape<[{k}]>, sms = #rc.shape<[{sms}]>");
        Case {
            file: "matmul-hopper.ir",
            types: &format!("(%a: tensor<{m}x{k}xbf16>, %b: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}xbf16>"),
            launch: &format!("%a, %b {{callee = \"matmul\", bind = <{bind}>}} : tensor<{m}x{n}xbf16>"),
            reference: &format!(
                "%r = core.dot %a, %b {{lhs_contract = [1], rhs_contract = [1]}} : tensor<{m}x{n}xbf16>"
            ),
            inputs: &[(DType::Bf16, &[m, k]), (DType::Bf16, &[n, k])],
            tolerance: BF16,
        }
        .check();
    }
}

#[test]
fn attention_hopper() {
    for [b, s] in [[2, 65], [1, 257]] {
        let three = format!("tensor<{b}x{s}x128xbf16>");
        let shape: &[usize] = &[b, s, 128];
        Case {
            file: "attention-hopper.ir",
            types: &format!("(%q: {three}, %k: {three}, %v: {three}) -> {three}"),
            launch: &format!(
                "%q, %k, %v {{callee = \"attention\", bind = <b = #rc.shape<[{b}]>, s = #rc.shape<[{s}]>>}} : {three}"
            ),
            reference: &format!("%r = core.attention %q, %k, %v {{causal = true}} : {three}"),
            inputs: &[(DType::Bf16, shape), (DType::Bf16, shape), (DType::Bf16, shape)],
            // The weights are rounded to bf16 before the second product.
            tolerance: 2.0 * BF16,
        }
        .check();
    }
}
