//! Text in MLIR's `llvm` dialect to machine code, and what cannot be compiled.

use rc_lowering::backend::{Error, LlvmModule, Options, Pipeline, Processor, Session};
use rc_machine::Target;

const ADD: &str = r#"
llvm.func @add(%a: !llvm.ptr, %b: !llvm.ptr) {
  %x = llvm.load %a {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
  %y = llvm.load %b {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
  %z = llvm.fadd %x, %y : vector<8xf32>
  llvm.store %z, %a {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
  llvm.return
}"#;

fn compile(source: &str, target: &Processor, pipeline: Pipeline) -> Result<LlvmModule, Error> {
    let session = Session::new();
    let module = session.parse(source)?;
    session.compile(&module, target, &Options { pipeline })
}

#[test]
fn every_kind_of_output() {
    let avx2 = Processor::of(&Target::find("cpu", Some("x86-64-v3")).unwrap()).unwrap();
    let llvm = compile(ADD, &avx2, Pipeline::Light).unwrap();
    assert!(llvm.llvm_ir().contains("fadd <8 x float>"));
    assert!(llvm.assembly().unwrap().contains("vaddps"));
    assert!(llvm.object().unwrap().bytes().starts_with(b"\x7fELF"));
    assert!(matches!(llvm.ptx(), Err(Error::Target(_))));
    let cuda = Processor::cuda("sm_90a").unwrap();
    let llvm = compile(ADD, &cuda, Pipeline::Light).unwrap();
    assert!(llvm.ptx().unwrap().contains(".target sm_90a"));
    assert!(matches!(llvm.object(), Err(Error::Target(_))));
}

#[test]
fn output_does_not_depend_on_the_session() {
    let target = Processor::host().unwrap();
    let object = || compile(ADD, &target, Pipeline::Light).unwrap().object().unwrap();
    let others: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(object)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = object();
    assert!(others.iter().all(|other| *other == first));
}

#[test]
fn an_unknown_function_is_an_undefined_symbol() {
    let source = "llvm.func @expf(f32) -> f32
      llvm.func @f(%x: f32) -> f32 { %y = llvm.call @expf(%x) : (f32) -> f32  llvm.return %y : f32 }";
    let llvm = compile(source, &Processor::host().unwrap(), Pipeline::Light).unwrap();
    assert_eq!(llvm.object(), Err(Error::UndefinedSymbols(vec!["expf".into()])));
}

#[test]
fn what_is_wrong_is_said() {
    let host = Processor::host().unwrap();
    let message = |source: &str, pipeline| compile(source, &host, pipeline).err().map(|error| error.to_string());
    let nonsense = message("llvm.func @f( {", Pipeline::Light).unwrap();
    assert!(nonsense.contains("invalid llvm-dialect module") && nonsense.contains(":1:"), "{nonsense}");
    let foreign = message("func.func @f() { return }", Pipeline::Light).unwrap();
    assert!(foreign.contains("'func.func'") || foreign.contains("func"), "{foreign}");
    let pipeline = message(ADD, Pipeline::Text("no-such-pass".into())).unwrap();
    assert!(pipeline.contains("no-such-pass"), "{pipeline}");
    let arch = Processor::cuda("sm_1").unwrap_err().to_string();
    assert!(arch.contains("sm_1") && arch.contains("sm_90a"), "{arch}");
}

#[test]
fn architectures_know_what_they_have() {
    let known = |arch: &str| match Processor::cuda(arch).unwrap() {
        Processor::Cuda(cuda) => (cuda.has_tma(), cuda.has_wgmma()),
        Processor::Cpu(_) => unreachable!("a CUDA name is a CUDA target"),
    };
    assert_eq!(known("sm_80"), (false, false));
    assert_eq!(known("sm_90a"), (true, true));
    assert_eq!(known("sm_120"), (true, false));
}

#[test]
fn what_a_warp_runs_together_stays_under_its_control_flow() {
    let source = r#"llvm.func @f(%x: i32, %p: !llvm.ptr<1>) attributes {nvvm.kernel} {
      %a = llvm.inline_asm "vote.sync.ballot.b32 $0, 1, $1;", "=r,r" %x : (i32) -> i32
      %b = llvm.inline_asm "popc.b32 $0, $1;", "=r,r" %a : (i32) -> i32
      llvm.inline_asm has_side_effects "st.global.b32 [$0], $1;", "l,r,~{memory}" %p, %b : (!llvm.ptr<1>, i32) -> ()
      llvm.return
    }"#;
    let llvm = compile(source, &Processor::cuda("sm_80").unwrap(), Pipeline::None).unwrap().llvm_ir();
    let group = |line: &str| {
        let line = llvm.lines().find(|candidate| candidate.contains(line)).unwrap();
        line.rsplit_once('#').map(|(_, number)| number.to_owned())
    };
    let convergent = group("vote.sync").unwrap();
    assert_eq!(group("st.global"), Some(convergent.clone()));
    assert_eq!(group("popc"), None);
    let attributes = llvm.lines().find(|line| line.starts_with(&format!("attributes #{convergent} "))).unwrap();
    assert!(attributes.contains("convergent"), "{llvm}");
}
