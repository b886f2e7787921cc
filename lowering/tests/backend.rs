use rc_lowering::backend::{Error, Options, Session, Target};

const ADD: &str = r#"
llvm.func @add(%a: !llvm.ptr, %b: !llvm.ptr) {
  %x = llvm.load %a : !llvm.ptr -> vector<8xf32>
  %y = llvm.load %b : !llvm.ptr -> vector<8xf32>
  %z = llvm.fadd %x, %y : vector<8xf32>
  llvm.store %z, %a : vector<8xf32>, !llvm.ptr
  llvm.return
}"#;

#[test]
fn text_to_object_code() {
    let t0 = std::time::Instant::now();
    let session = Session::new();
    eprintln!("session {:?}", t0.elapsed());
    let module = session.parse(ADD).unwrap();
    eprintln!("parse {:?}", t0.elapsed());
    let llvm = session.compile(&module, &Target::host().unwrap(), &Options::default()).unwrap();
    eprintln!("{:?}", llvm.timings());
    eprintln!("compile {:?}", t0.elapsed());
    let object = llvm.object().unwrap();
    eprintln!("object {:?}", t0.elapsed());
    assert!(object.bytes().starts_with(b"\x7fELF"));
    println!("{}", llvm.assembly().unwrap());
}

#[test]
fn an_unknown_function_is_an_undefined_symbol() {
    let session = Session::new();
    let source = "llvm.func @expf(f32) -> f32
      llvm.func @f(%x: f32) -> f32 { %y = llvm.call @expf(%x) : (f32) -> f32  llvm.return %y : f32 }";
    let module = session.parse(source).unwrap();
    let llvm = session.compile(&module, &Target::host().unwrap(), &Options::default()).unwrap();
    assert_eq!(llvm.object(), Err(Error::UndefinedSymbols(vec!["expf".into()])));
}
