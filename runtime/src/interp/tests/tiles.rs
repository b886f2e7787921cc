use super::*;

#[test]
fn loads_and_stores_clip() {
    let body = "  %i = kernel.program_id {axis = 0} : index
  %four = core.constant {value = 4 : index} : index
  %two = core.constant {value = 2 : index} : index
  %zero = core.constant {value = 0 : index} : index
  %m = core.mul %i, %two : index
  %a = kernel.load %x0[%m, %zero] {dims = [0, 1], other = 9.0} : !rc.tile<2x4xf32>
  %s = kernel.reduce %a {dims = [1], kind = add} : !rc.tile<2x1xf32>
  %b = kernel.broadcast %s : !rc.tile<2x4xf32>
  %c = core.add %a, %b : !rc.tile<2x4xf32>
  kernel.store %c, %y[%m, %zero] {dims = [0, 1]}";
    let text = launched("phase = tile, grid = [2, 1, 1]", &["3x3xf32"], "3x3xf32", body);
    let x: Vec<f32> = (0..9).map(|i| i as f32).collect();
    let got = launch(&text, &[f32s(&[3, 3], &x)]).unwrap();
    let want: Vec<f64> = (0..9).map(|i| f64::from(i) + f64::from(i / 3 * 9 + 3) + 9.0).collect();
    assert_eq!(got, want);
}

#[test]
fn products_by_tiles() {
    // y = a b^T in tiles of 4 x 4 over k in steps of 8; all sizes odd.
    let body = "  %i = kernel.program_id {axis = 0} : index
  %j = kernel.program_id {axis = 1} : index
  %zero = core.constant {value = 0 : index} : index
  %four = core.constant {value = 4 : index} : index
  %eight = core.constant {value = 8 : index} : index
  %depth = core.constant {value = 13 : index} : index
  %m = core.mul %i, %four : index
  %n = core.mul %j, %four : index
  %init = core.constant {value = dense<0.0> : !rc.tile<4x4xf32>} : !rc.tile<4x4xf32>
  %sum = kernel.for lower(%zero) upper(%depth) step(%eight) iter(%acc = %init) ((%k: index) {
    %a = kernel.load %x0[%m, %k] {dims = [0, 1]} : !rc.tile<4x8xbf16>
    %b = kernel.load %x1[%n, %k] {dims = [0, 1]} : !rc.tile<4x8xbf16>
    %next = kernel.dot %a, %b, %acc {b_t = true} : !rc.tile<4x4xf32>
    kernel.yield %next
  }) : !rc.tile<4x4xf32>
  kernel.store %sum, %y[%m, %n] {dims = [0, 1]}";
    let text = launched("phase = tile, grid = [2, 3, 1]", &["5x13xbf16", "9x13xbf16"], "5x9xf32", body);
    let (a, b) = (random(DType::Bf16, &[5, 13], 1), random(DType::Bf16, &[9, 13], 2));
    let (x, y) = (a.to_f64(), b.to_f64());
    let want: Vec<f64> = (0..45).map(|i| (0..13).map(|k| x[i / 9 * 13 + k] * y[i % 9 * 13 + k]).sum()).collect();
    assert_close(&launch(&text, &[a, b]).unwrap(), &want, 1e-6);
}

#[test]
fn gathered_rows() {
    let body = "  %zero = core.constant {value = 0 : index} : index
  %ids = kernel.load %x1[%zero] {dims = [0, -1]} : !rc.tile<4x1xi64>
  %t = kernel.gather %x0[%zero, %zero] where(%ids) {dims = [-1, 1], axis = 0} : !rc.tile<4x2xf32>
  kernel.store %t, %y[%zero, %zero] {dims = [0, 1]}";
    let text = launched("phase = tile, grid = [1, 1, 1]", &["3x2xf32", "4xi64"], "4x2xf32", body);
    let table = f32s(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(
        launch(&text, &[table.clone(), i64s(&[4], &[2, 0, 1, 2])]).unwrap(),
        [4.0, 5.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
    let error = launch(&text, &[table, i64s(&[4], &[2, 0, 3, 2])]).unwrap_err();
    assert!(error.contains("gathers index 3 along dimension 0, which has 3"), "{error}");
}

#[test]
fn programs_that_write_one_place_race() {
    let body = "  %i = kernel.program_id {axis = 0} : index
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x0[%i] {dims = [0]} : !rc.tile<1xf32>
  kernel.store %a, %y[%zero] {dims = [0]}";
    let text = launched("phase = tile, grid = [2, 1, 1]", &["2xf32"], "1xf32", body);
    let error = launch(&text, &[f32s(&[2], &[1.0, 2.0])]).unwrap_err();
    assert!(error.starts_with("race: ") && error.contains("of program 1 writes element 0 of output 0"), "{error}");
    // Equal values are no race.
    assert_eq!(launch(&text, &[f32s(&[2], &[1.0, 1.0])]).unwrap(), [1.0]);
}

#[test]
fn programs_that_read_what_others_write_race() {
    let body = "  %i = kernel.program_id {axis = 0} : index
  %one = core.constant {value = 1 : index} : index
  %j = core.sub %one, %i : index
  %a = kernel.load %x0[%i] {dims = [0]} : !rc.tile<1xf32>
  kernel.store %a, %y[%i] {dims = [0]}
  %b = kernel.load %y[%j] {dims = [0]} : !rc.tile<1xf32>
  kernel.store %b, %y[%i] {dims = [0]}";
    let text = launched("phase = tile, grid = [2, 1, 1]", &["2xf32"], "2xf32", body);
    assert!(launch(&text, &[f32s(&[2], &[1.0, 2.0])]).is_err());
}

#[test]
fn results_left_unwritten_are_reported() {
    let body = "  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x0[%zero] {dims = [0]} : !rc.tile<2xf32>
  kernel.store %a, %y[%zero] {dims = [0]}";
    let text = launched("phase = tile, grid = [1, 1, 1]", &["3xf32"], "3xf32", body);
    let error = launch(&text, &[f32s(&[3], &[1.0, 2.0, 3.0])]).unwrap_err();
    assert!(error.contains("element 2 of output 0 was never written"), "{error}");
}
