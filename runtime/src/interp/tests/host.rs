use super::*;

/// Doubles a vector of s elements.
const KERNEL: &str = "kernel.func @double(%x: memref<s x f32>, %y: memref<s x f32>) attributes {phase = tile, target = cpu, grid = [s, 1, 1], rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %i = kernel.program_id {axis = 0} : index
  %a = kernel.load %x[%i] {dims = [0]} : !rc.tile<1xf32>
  %b = core.add %a, %a : !rc.tile<1xf32>
  kernel.store %b, %y[%i] {dims = [0]}
  kernel.return
}
";

fn planned(second: i64) -> String {
    format!("{KERNEL}host.func @f(%x: memref<t x f32>, %r: memref<t x f32>, %arena: memref<? x i8>) attributes {{inputs = 1, arena = [512], rc.symbols = #rc.symbols<t = [1, 64, 1]>}} {{
  %u = host.view %arena {{offset = [0]}} : memref<t x f32>
  %v = host.view %arena {{offset = [{second}]}} : memref<t x f32>
  host.launch %x, %u {{callee = \"double\", bind = <s = #rc.shape<[t]>>}}
  host.launch %u, %v {{callee = \"double\", bind = <s = #rc.shape<[t]>>}}
  host.launch %v, %r {{callee = \"double\", bind = <s = #rc.shape<[t]>>}}
  host.return
}}
")
}

#[test]
fn buffers_in_an_arena() {
    let x = f32s(&[3], &[1.0, 2.0, 3.0]);
    for mode in [Mode::Typed, Mode::Float64] {
        let results = run(&parse(&planned(256)), mode, std::slice::from_ref(&x)).unwrap();
        assert_eq!(results[0].to_f64(), [8.0, 16.0, 24.0]);
        // In place: one view of the bytes.
        let results = run(&parse(&planned(0)), mode, std::slice::from_ref(&x)).unwrap();
        assert_eq!(results[0].to_f64(), [8.0, 16.0, 24.0]);
    }
    let error = run(&parse(&planned(4)), Mode::Typed, std::slice::from_ref(&x)).unwrap_err();
    assert!(error.contains("overlap in the arena"), "{error}");
    let error = run(&parse(&planned(512)), Mode::Typed, &[x]).unwrap_err();
    assert!(error.contains("views 12 bytes from 512"), "{error}");
}

#[test]
fn memory_reused_too_early_is_found() {
    // The second buffer overlaps the first, which is read once more afterwards.
    let text = format!("{KERNEL}host.func @f(%x: memref<4xf32>, %r: memref<4xf32>, %arena: memref<? x i8>) attributes {{inputs = 1, arena = [64]}} {{
  %u = host.view %arena {{offset = [0]}} : memref<4xf32>
  %v = host.view %arena {{offset = [8]}} : memref<4xf32>
  host.launch %x, %u {{callee = \"double\", bind = <s = #rc.shape<[4]>>}}
  host.launch %x, %v {{callee = \"double\", bind = <s = #rc.shape<[4]>>}}
  host.launch %u, %r {{callee = \"double\", bind = <s = #rc.shape<[4]>>}}
  host.return
}}
");
    let error = run(&parse(&text), Mode::Typed, &[f32s(&[4], &[1.0; 4])]).unwrap_err();
    assert!(error.contains("reads element 2 of the arena's bytes 0 to 16, which nothing has written"), "{error}");
}

#[test]
fn launches_that_wait_for_too_little_are_found() {
    let text = |after: &str| {
        format!("{KERNEL}host.func @f(%x: memref<4xf32>, %r: memref<4xf32>, %s: memref<4xf32>, %arena: memref<? x i8>) attributes {{inputs = 1, arena = [64]}} {{
  %u = host.view %arena {{offset = [0]}} : memref<4xf32>
  host.launch %x, %u {{callee = \"double\", bind = <s = #rc.shape<[4]>>}}
  host.launch %x, %s {{callee = \"double\", bind = <s = #rc.shape<[4]>>, after = []}}
  host.launch %u, %r {{callee = \"double\", bind = <s = #rc.shape<[4]>>, after = [{after}]}}
  host.return
}}
")
    };
    let x = [f32s(&[4], &[1.0; 4])];
    let results = run(&parse(&text("2")), Mode::Typed, &x).unwrap();
    assert_eq!((results[0].to_f64(), results[1].to_f64()), (vec![4.0; 4], vec![2.0; 4]));
    for wrong in ["", "1"] {
        let error = run(&parse(&text(wrong)), Mode::Typed, &x).unwrap_err();
        assert!(error.contains("reads element 0 of the arena's bytes 0 to 16, which nothing has written"), "{error}");
    }
}

#[test]
fn launches_on_tensors_bind_symbols() {
    let text = format!("{KERNEL}func.func @f(%x: tensor<t x f32>) -> tensor<t x f32> attributes {{rc.symbols = #rc.symbols<t = [1, 99, 1]>}} {{
  %y = host.launch %x {{callee = \"double\", bind = <s = #rc.shape<[t]>>}} : tensor<t x f32>
  func.return %y
}}
");
    let x = random(DType::F32, &[17], 1);
    let got = run(&parse(&text), Mode::Typed, std::slice::from_ref(&x)).unwrap();
    assert_eq!(got[0].to_f64(), x.to_f64().iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    let error = run(&parse(&text), Mode::Typed, &[random(DType::F32, &[65], 1)]).unwrap_err();
    assert_eq!(error, "symbol s = 65 is outside 1..64");
}

#[test]
fn constants_and_copies() {
    let text = "host.func @f(%r: memref<3xi32>, %arena: memref<? x i8>) attributes {inputs = 0, arena = [0]} {
  %c = host.constant {value = dense<[7, 8, 9]> : tensor<3xi32>} : memref<3xi32>
  host.copy %c, %r
  host.return
}
";
    assert_eq!(run(&parse(text), Mode::Typed, &[]).unwrap()[0].to_i64(), [7, 8, 9]);
}
