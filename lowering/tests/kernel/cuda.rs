//! Kernels for CUDA: compiled, assembled without spills and without serialized `wgmma`.

use super::{compile, kernel_file};
use rc_lowering::{backend::Processor, kernel::Code, ptxas};

/// The PTX of a file of `test/kernels`, which `ptxas` accepts.
fn ptx(name: &str, arch: &str) -> String {
    let kernel = compile(&kernel_file(name), &Processor::cuda(arch).unwrap());
    let Code::Ptx(ptx) = kernel.code else { panic!("no PTX") };
    if let Ok(folder) = std::env::var("RC_DUMP") {
        std::fs::write(format!("{folder}/{name}.ptx"), &ptx).unwrap();
    }
    match ptxas::check(&ptx, arch) {
        Ok(report) => eprintln!("{name}: {}", report.log),
        Err(error) => panic!("{error}"),
    }
    ptx
}

#[test]
fn add() {
    for arch in ["sm_80", "sm_90a"] {
        let ptx = ptx("add-cuda.ir", arch);
        assert_eq!(ptx.matches("ld.global.nc.v4").count(), 4, "{ptx}");
    }
}

#[test]
fn matmul() {
    let ptx = ptx("matmul-hopper.ir", "sm_90a");
    assert_eq!(ptx.matches("wgmma.mma_async").count(), 4);
}

#[test]
fn softmax() {
    for arch in ["sm_80", "sm_90a"] {
        let ptx = ptx("softmax-cuda.ir", arch);
        assert_eq!(ptx.matches("ld.global.L1::no_allocate.v4").count(), 4, "{ptx}");
        assert_eq!(ptx.matches("st.global.v4").count(), 4, "{ptx}");
    }
}

#[test]
fn attention() {
    let ptx = ptx("attention-hopper.ir", "sm_90a");
    assert_eq!(ptx.matches("wgmma.mma_async").count(), 32);
}
