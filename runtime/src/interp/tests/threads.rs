use super::*;

/// Constants `%c0`, `%c1`, … used in bodies.
fn constants(values: &[i64]) -> String {
    values.iter().map(|n| format!("  %c{n} = core.constant {{value = {n} : index}} : index\n")).collect()
}

/// Each thread writes its number to shared memory and reads its neighbour's.
fn neighbours(barrier: &str) -> String {
    let body = constants(&[1, 64])
        + &format!(
            "  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<64xf32, 3>
  %v = kernel.read %x0[%t] : f32
  kernel.write %v, %m[%t]
  {barrier}
  %u = core.add %t, %c1 : index
  %n = core.rem %u, %c64 : index
  %w = kernel.read %m[%n] : f32
  kernel.write %w, %y[%t]"
        );
    launched("phase = thread, grid = [1, 1, 1], threads = 64", &["64xf32"], "64xf32", &body)
}

fn ramp(n: usize) -> Tensor {
    f32s(&[n], &(0..n).map(|i| i as f32).collect::<Vec<_>>())
}

#[test]
fn barriers_order_threads() {
    let want: Vec<f64> = (0..64).map(|i| f64::from((i + 1) % 64)).collect();
    assert_eq!(launch(&neighbours(op::kernel::BARRIER), &[ramp(64)]).unwrap(), want);
}

#[test]
fn a_missing_barrier_is_found() {
    let error = launch(&neighbours(""), &[ramp(64)]).unwrap_err();
    assert!(error.contains("race: ") || error.contains("nothing has written"), "{error}");
    let module = parse(&neighbours(""));
    let error = Interpreter::new(&module, Mode::Typed).shuffled(5).run("f", &[ramp(64)]).unwrap_err();
    assert!(error.loc != Loc::UNKNOWN);
}

#[test]
fn reads_before_overwriting_need_a_barrier() {
    // Everyone reads element 0; then thread 0 overwrites it.
    let body = |barrier: &str| {
        let body = constants(&[0])
            + &format!(
                "  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<1xf32, 3>
  %first = core.compare %t, %c0 {{kind = eq}} : i1
  %v = kernel.read %x0[%t] : f32
  kernel.write %v, %m[%c0] pred(%first)
  kernel.barrier
  %w = kernel.read %m[%c0] : f32
  {barrier}
  kernel.write %w, %m[%c0] pred(%first)
  %two = core.add %w, %v : f32
  kernel.if %first ({{
    kernel.write %two, %m[%c0]
  }})
  kernel.write %two, %y[%t]"
            );
        launched("phase = thread, grid = [1, 1, 1], threads = 32", &["32xf32"], "32xf32", &body)
    };
    assert!(launch(&body(op::kernel::BARRIER), &[ramp(32)]).is_ok());
    let error = launch(&body(""), &[ramp(32)]).unwrap_err();
    assert!(error.starts_with("race: "), "{error}");
}

#[test]
fn deadlocks_name_who_waits_where() {
    let body = constants(&[5])
        + "  %t = kernel.thread_id : index
  %p = core.compare %t, %c5 {kind = lt} : i1
  kernel.if %p ({
    kernel.barrier
  })
  %v = kernel.read %x0[%t] : f32
  kernel.write %v, %y[%t]";
    let text = launched("phase = thread, grid = [1, 1, 1], threads = 32", &["32xf32"], "32xf32", &body);
    let module = parse(&text);
    let error = Interpreter::new(&module, Mode::Typed).run("f", &[ramp(32)]).unwrap_err();
    assert!(error.message.contains("deadlock in program 0: 5 of 32 threads wait"), "{}", error.message);
    assert!(
        error.notes[0].1.contains("each of the threads 0 to 4 waits here at 'kernel.barrier'"),
        "{:?}",
        error.notes
    );
}

#[test]
fn vectors_with_bounds() {
    let body = constants(&[0, 4, 7])
        + "  %left = core.sub %c7, %c4 : index
  %a = kernel.read %x0[%c0] : vector<4xf32>
  %b = kernel.read %x0[%c4] valid(%left) : vector<4xf32>
  %all = kernel.concat %a, %b : vector<8xf32>
  %hi = kernel.slice %all {start = 4} : vector<4xf32>
  %s = kernel.vector_reduce %all {kind = add} : f32
  %v = kernel.splat %s : vector<4xf32>
  %w = core.add %hi, %v : vector<4xf32>
  %e = kernel.extract %w {lane = 0} : f32
  %z = kernel.insert %e, %a {lane = 3} : vector<4xf32>
  kernel.write %z, %y[%c0]
  kernel.write %w, %y[%c4] valid(%left)";
    let text = launched("phase = thread, grid = [1, 1, 1]", &["7xf32"], "7xf32", &body);
    assert_eq!(launch(&text, &[ramp(7)]).unwrap(), [0.0, 1.0, 2.0, 25.0, 25.0, 26.0, 27.0]);
    let outside = text.replace(" valid(%left) : vector", " : vector");
    let error = launch(&outside, &[ramp(7)]).unwrap_err();
    assert!(error.contains("reads index 7 along dimension 0, which has 7"), "{error}");
}

#[test]
fn vectors_that_begin_before_memory() {
    let body = constants(&[0, 2, 3])
        + "  %before = core.sub %c0, %c2 : index
  %v = kernel.read %x0[%before] valid(%c3) skip(%c2) : vector<4xf32>
  kernel.write %v, %y[%c0]";
    let text = launched("phase = thread, grid = [1, 1, 1]", &["7xf32"], "4xf32", &body);
    let x = || f32s(&[7], &[5.0; 7]);
    assert_eq!(launch(&text, &[x()]).unwrap(), [0.0, 0.0, 5.0, 0.0]);
    let error = launch(&text.replace(" skip(%c2)", ""), &[x()]).unwrap_err();
    assert!(error.contains("reads index -2 along dimension 0, which has 7"), "{error}");
}

#[test]
fn memory_that_nothing_wrote_is_reported() {
    let body = constants(&[0])
        + "  %m = kernel.alloc : memref<4xf32, 5>
  %v = kernel.read %m[%c0] : f32
  kernel.write %v, %y[%c0]";
    let text = launched("phase = thread, grid = [1, 1, 1]", &[], "1xf32", &body);
    let error = launch(&text, &[]).unwrap_err();
    assert!(error.contains("reads element 0 of the memory %m of thread 0, which nothing has written"), "{error}");
}

#[test]
fn shuffles_move_values_between_lanes() {
    for (how, from) in [
        ("{mode = xor, by = 5}", (|i| i ^ 5) as fn(usize) -> usize),
        ("{mode = up, by = 3}", |i| if i < 3 { i } else { i - 3 }),
        ("{mode = down, by = 3}", |i| if i + 3 < 32 { i + 3 } else { i }),
        ("lane(%c7) {mode = index}", |_| 7),
    ] {
        let body = constants(&[7])
            + &format!(
                "  %t = kernel.thread_id : index
  %v = kernel.read %x0[%t] : f32
  %w = kernel.shuffle %v {how} : f32
  kernel.write %w, %y[%t]"
            );
        let text = launched("phase = thread, grid = [1, 1, 1], threads = 64", &["64xf32"], "64xf32", &body);
        let want: Vec<f64> = (0..64).map(|i| (i / 32 * 32 + from(i % 32)) as f64).collect();
        assert_eq!(launch(&text, &[ramp(64)]).unwrap(), want, "{how}");
    }
}

/// cp.async of 4 floats a thread, from global to shared memory and on.
fn copied(wait: &str) -> String {
    let body = constants(&[0, 4])
        + &format!(
            "  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<32x4xf32, 3>
  kernel.async_copy %m[%t, %c0], %x0[%t, %c0] {{bytes = 16}}
  kernel.async_commit
  {wait}
  %v = kernel.read %m[%t, %c0] : vector<4xf32>
  kernel.write %v, %y[%t, %c0]"
        );
    launched("phase = thread, grid = [1, 1, 1], threads = 32", &["32x4xf32"], "32x4xf32", &body)
}

#[test]
fn asynchronous_copies_arrive_when_waited_for() {
    let x = random(DType::F32, &[32, 4], 1);
    assert_eq!(launch(&copied("kernel.async_wait {pending = 0}"), std::slice::from_ref(&x)).unwrap(), x.to_f64());
    let error = launch(&copied("kernel.async_wait {pending = 1}"), &[x]).unwrap_err();
    assert!(error.contains("before the copy to it is waited for"), "{error}");
}

#[test]
fn atomics_do_not_race() {
    let body = constants(&[0])
        + "  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<1xf32, 3>
  %first = core.compare %t, %c0 {kind = eq} : i1
  %zero = core.constant {value = 0.0 : f32} : f32
  kernel.write %zero, %m[%c0] pred(%first)
  kernel.barrier
  %v = kernel.read %x0[%t] : f32
  %old = kernel.atomic %v, %m[%c0] {kind = add} : f32
  kernel.barrier
  %s = kernel.read %m[%c0] : f32
  kernel.write %s, %y[%t]";
    let text = launched("phase = thread, grid = [1, 1, 1], threads = 32", &["32xf32"], "32xf32", &body);
    assert_eq!(launch(&text, &[ramp(32)]).unwrap(), [496.0; 32]);
}
