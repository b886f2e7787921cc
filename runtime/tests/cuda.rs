//! Tests of [`rc_runtime::cuda`] on a device; each is reported as ignored where there is none.

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use rc_runtime::cuda::{
    Arg, AssembleOptions, Buffer, Conditional, Conditions, CubinCache, Decides, Dependency, Device, Event, Function,
    Gate, Graph, KernelArgs, LaunchConfig, Module, Node, PinnedBuffer, Stream, Swizzle, TensorMap, TensorMapLayout,
    assemble, load_all,
};
use rc_runtime::{DType, Error, Result};

const PTX: &str = include_str!("kernels.ptx");

type Test = fn(&Fixture) -> Result<()>;

struct Fixture {
    device: Arc<Device>,
    stream: Stream,
    module: Arc<Module>,
}

fn main() {
    let mut arguments = Arguments::from_args();
    let tests: [(&str, Test); 20] = [
        ("device_info", device_info),
        ("copies", copies),
        ("gates", gates),
        ("launches", launches),
        ("bad_launches_are_errors", bad_launches_are_errors),
        ("bad_ptx_comes_with_the_log", bad_ptx_comes_with_the_log),
        ("cache", cache),
        ("assembles_in_parallel", assembles_in_parallel),
        ("registers_move_between_warps", registers_move_between_warps),
        ("dynamic_shared_memory", dynamic_shared_memory),
        ("clusters", clusters),
        ("programmatic_launches_keep_order", programmatic_launches_keep_order),
        ("graphs", graphs),
        ("graphs_fork_and_join", graphs_fork_and_join),
        ("graphs_are_patched_while_they_run", graphs_are_patched_while_they_run),
        ("graphs_choose", graphs_choose),
        ("graphs_repeat", graphs_repeat),
        ("what_launches_take", what_launches_take),
        ("what_early_starts_save", what_early_starts_save),
        ("tensor_maps", tensor_maps),
    ];
    let device = Device::open(0);
    if let Err(error) = &device {
        eprintln!("skipping: {error}");
        assert!(matches!(error, Error::NoGpu(_)), "{error}");
    }
    // One at a time: the tests share a stream.
    arguments.test_threads = Some(1);
    let fixture = device.ok().map(|device| {
        let module = Module::from_ptx(&device, PTX, &AssembleOptions::default(), None).expect("the tests' PTX");
        Arc::new(Fixture { stream: Stream::new(&device).expect("a stream"), device, module })
    });
    let trials = tests.map(|(name, test)| {
        let fixture = fixture.clone();
        let ignored = fixture.is_none();
        let run = move || match &fixture {
            Some(fixture) => test(fixture).map_err(|error| Failed::from(error.to_string())),
            None => Err("there is no CUDA GPU".into()),
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

impl Fixture {
    fn function(&self, name: &str) -> Result<Function> {
        self.module.function(name)
    }

    /// A device buffer with these words.
    fn buffer(&self, words: &[u32]) -> Result<Buffer> {
        let buffer = Buffer::new(&self.device, words.len() * 4)?;
        buffer.upload(&self.stream, 0, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())?;
        Ok(buffer)
    }

    fn words(&self, buffer: &Buffer) -> Result<Vec<u32>> {
        let mut bytes = vec![0; buffer.size()];
        buffer.download(&self.stream, 0, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}

fn device_info(f: &Fixture) -> Result<()> {
    let info = f.device.info();
    println!("{info:?}");
    assert!(info.multiprocessors > 0 && info.warp_size == 32 && info.shared_memory_per_block >= 48 << 10);
    let (free, total) = f.device.memory()?;
    assert!(free <= total && total as u64 <= info.memory);
    // More than there is.
    let error = Buffer::new(&f.device, usize::MAX / 4).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    Ok(())
}

fn copies(f: &Fixture) -> Result<()> {
    let a = f.buffer(&[1, 2, 3, 4, 5])?;
    let b = f.buffer(&[9; 7])?;
    b.copy_from(&f.stream, 8, &a, 4, 12)?;
    b.fill(&f.stream, 0, 3, 0xff)?;
    assert_eq!(f.words(&b)?, [0x00ff_ffff, 9, 2, 3, 4, 9, 9]);
    assert!(b.copy_from(&f.stream, 20, &a, 0, 12).is_err());
    assert!(b.fill(&f.stream, usize::MAX, 2, 0).is_err());
    assert!(b.upload(&f.stream, 25, &[0; 4]).is_err());
    Buffer::new(&f.device, 0)?.upload(&f.stream, 0, &[])?;
    let mut pinned = PinnedBuffer::new(&f.device, 20)?;
    // SAFETY: the buffer is not touched before the stream is synchronized.
    unsafe { a.download_async(&f.stream, 0, pinned.bytes_mut())? };
    f.stream.synchronize()?;
    assert_eq!(pinned.bytes()[16], 5);
    Ok(())
}

fn gates(f: &Fixture) -> Result<()> {
    let a = f.buffer(&[1, 2])?;
    let beside = Stream::new(&f.device)?;
    let seen = || -> Result<[u8; 8]> {
        let mut bytes = [0; 8];
        a.download(&beside, 0, &mut bytes)?;
        Ok(bytes)
    };
    f.stream.synchronize()?;
    let gate = Gate::new(&f.device)?;
    for turn in 0..3 {
        let before = seen()?;
        let closed = gate.close(&f.stream)?;
        a.fill(&f.stream, 0, 4, 7 + turn)?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(seen()?, before, "it waits");
        drop(closed);
        f.stream.synchronize()?;
        assert_eq!(seen()?[..4], [7 + turn; 4]);
    }
    Ok(())
}

fn launches(f: &Fixture) -> Result<()> {
    let n = 1000;
    let x = f.buffer(&(0..n).map(|i| (i as f32).to_bits()).collect::<Vec<_>>())?;
    let scale = f.function("scale")?;
    assert_eq!(scale.parameter_sizes(), [8, 8, 4]);
    let mut args = KernelArgs::new(&[Arg::Pointer(x.address()), Arg::I64(997), Arg::F32(3.0)]);
    let (start, end) = (Event::new(&f.device)?, Event::new(&f.device)?);
    start.record(&f.stream)?;
    // SAFETY: the kernel touches 997 of 1000 floats.
    unsafe { f.stream.launch(&scale, &LaunchConfig::new([4, 1, 1], [256, 1, 1]), &mut args)? };
    // An empty grid is no launch.
    // SAFETY: as above.
    unsafe { f.stream.launch(&scale, &LaunchConfig::new([0, 1, 1], [256, 1, 1]), &mut args)? };
    end.record(&f.stream)?;
    end.synchronize()?;
    let microseconds = end.microseconds_since(&start)?;
    assert!(microseconds > 0.0 && microseconds < 1e6, "{microseconds}");
    let expected: Vec<u32> = (0..n).map(|i| (i as f32 * if i < 997 { 3.0 } else { 1.0 }).to_bits()).collect();
    assert_eq!(f.words(&x)?, expected);
    Ok(())
}

fn bad_launches_are_errors(f: &Fixture) -> Result<()> {
    let scale = f.function("scale")?;
    let mut short = KernelArgs::new(&[Arg::Pointer(0), Arg::I64(0)]);
    let mut good = KernelArgs::new(&[Arg::Pointer(0), Arg::I64(0), Arg::F32(0.0)]);
    let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
    // SAFETY: with n = 0 the kernel touches nothing.
    unsafe {
        assert!(f.stream.launch(&scale, &config, &mut short).unwrap_err().to_string().contains("`scale`"));
        assert!(f.stream.launch(&scale, &config.shared_memory(1 << 20), &mut good).is_err());
        assert!(f.stream.launch(&scale, &LaunchConfig::new([1, 1, 1], [2048, 1, 1]), &mut good).is_err());
        f.stream.launch(&scale, &config, &mut good)?;
    }
    let mixed = f.function("mixed")?;
    // SAFETY: the kernel touches shared memory alone.
    let error = unsafe { f.stream.launch(&mixed, &config.shared_memory(64), &mut KernelArgs::default()) };
    assert!(error.unwrap_err().to_string().contains("one array"));
    f.stream.synchronize()?;
    let error = f.function("absent").unwrap_err().to_string();
    assert!(error.contains("`absent`") && error.contains("NOT_FOUND"), "{error}");
    assert!(Module::load(&f.device, b"no code").is_err());
    Ok(())
}

fn bad_ptx_comes_with_the_log(f: &Fixture) -> Result<()> {
    let bad = PTX.replace("mul.f32 %f2", "frobnicate.f32 %f2");
    let error = assemble(&f.device, &bad, &AssembleOptions::default(), None).unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("frobnicate") && error.contains("line"), "{error}");
    assert!(assemble(&f.device, "a\0b", &AssembleOptions::default(), None).is_err());
    assert!(assemble(&f.device, "", &AssembleOptions::default(), None).is_err());
    Ok(())
}

fn cache(f: &Fixture) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = CubinCache::at(folder.path());
    let options = AssembleOptions::default();
    let first = assemble(&f.device, PTX, &options, Some(&cache))?;
    println!("{}", first.log);
    assert!(!first.cached && first.log.contains("registers"), "{}", first.log);
    let second = assemble(&f.device, PTX, &options, Some(&cache))?;
    assert!(second.cached && second.bytes == first.bytes);
    let file = std::fs::read_dir(folder.path()).expect("the folder").next().expect("a file").expect("a file").path();
    let mut bytes = std::fs::read(&file).expect("the file");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&file, bytes).expect("the file");
    assert!(!assemble(&f.device, PTX, &options, Some(&cache))?.cached);
    assert!(assemble(&f.device, PTX, &options, Some(&cache))?.cached);
    Module::load(&f.device, &second.bytes)?.function("scale")?;
    Ok(())
}

fn assembles_in_parallel(f: &Fixture) -> Result<()> {
    let names: Vec<String> = (0..16).map(|i| format!("scale{i}")).collect();
    let sources: Vec<String> = names.iter().map(|name| PTX.replace("scale(", &format!("{name}("))).collect();
    let kernels: Vec<(&str, &str)> = names.iter().zip(&sources).map(|(n, s)| (n.as_str(), s.as_str())).collect();
    let options = AssembleOptions::default();
    let start = std::time::Instant::now();
    assemble(&f.device, &format!("{PTX}\n// once more"), &options, None)?;
    let one = start.elapsed();
    let start = std::time::Instant::now();
    let functions = load_all(&f.device, &kernels, &options, None)?;
    println!("one module {one:?}, {} modules {:?}", functions.len(), start.elapsed());
    assert!(functions.iter().map(|f| f.name()).eq(names.iter().map(String::as_str)));
    assert!(load_all(&f.device, &[("scale", PTX), ("bad", "bad")], &options, None).is_err());
    Ok(())
}

/// PTX in which two of three warpgroups take the third one's registers, and hold 200 values each.
fn takes_registers() -> String {
    let loads: String = (0..200).map(|i| format!("ld.volatile.global.b32 %r{i}, [%a+{}];\n", 4 * i)).collect();
    let stores: String = (0..200).map(|i| format!("st.volatile.global.b32 [%a+{}], %r{i};\n", 4 * i)).collect();
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry takes(.param .u64 place)\n.reqntid 384\n.minnctapersm 1\n{{\n\
         .reg .pred %p;\n.reg .b32 %t, %r<200>;\n.reg .b64 %a;\nmov.u32 %t, %tid.x;\nld.param.u64 %a, [place];\n\
         setp.lt.u32 %p, %t, 256;\n@%p bra TAKES;\nsetmaxnreg.dec.sync.aligned.u32 40;\nret;\n\
         TAKES:\nsetmaxnreg.inc.sync.aligned.u32 232;\n{loads}{stores}ret;\n}}\n"
    )
}

/// What the linker keeps in memory, because registers that warps give to one another do not count there, is assembled as a whole.
fn registers_move_between_warps(f: &Fixture) -> Result<()> {
    if f.device.info().arch() != "sm_90" {
        return Ok(());
    }
    let (options, ptx) = (AssembleOptions::default(), takes_registers());
    let linked = Module::load(&f.device, &assemble(&f.device, &ptx, &options, None)?.bytes)?.function("takes")?;
    let loaded = load_all(&f.device, &[("takes", &ptx)], &options, None)?;
    assert_eq!(loaded[0].info().local_memory, 0, "{} bytes where it is linked", linked.info().local_memory);
    assert!(Module::whole(&f.device, "bad", &options).is_err());
    Ok(())
}

fn dynamic_shared_memory(f: &Fixture) -> Result<()> {
    let reverse = f.function("reverse")?;
    for size in [1024, 48 << 10, f.device.info().shared_memory_per_block] {
        let x = f.buffer(&[u32::MAX; 256])?;
        let mut args = KernelArgs::new(&[Arg::Pointer(x.address()), Arg::I32(size as i32)]);
        let config = LaunchConfig::new([1, 1, 1], [256, 1, 1]).shared_memory(size);
        // SAFETY: the kernel writes a word for each thread.
        unsafe { f.stream.launch(&reverse, &config, &mut args)? };
        assert!(f.words(&x)?.into_iter().eq((0..256).rev()), "{size}");
    }
    Ok(())
}

fn clusters(f: &Fixture) -> Result<()> {
    let function = f.function("cluster_size")?;
    for cluster in [1, 2, 8, 16] {
        let x = f.buffer(&[u32::MAX; 16])?;
        let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
        let config = LaunchConfig::new([16, 1, 1], [32, 1, 1]).cluster([cluster, 1, 1]);
        // SAFETY: the kernel writes a word for each block.
        unsafe { f.stream.launch(&function, &config, &mut args)? };
        assert_eq!(f.words(&x)?, [cluster; 16]);
    }
    Ok(())
}

/// What `n` steps make of 0, 1, 2, …: 2^n x + 2^n - 1.
fn stepped(count: u32, n: u32) -> Vec<u32> {
    (0..count).map(|x| (x << n) + (1 << n) - 1).collect()
}

fn programmatic_launches_keep_order(f: &Fixture) -> Result<()> {
    let step = f.function("step")?;
    let count = 132 * 1024;
    for programmatic in [false, true] {
        let x = f.buffer(&(0..count).collect::<Vec<_>>())?;
        let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
        let config = LaunchConfig { programmatic, ..LaunchConfig::new([count / 256, 1, 1], [256, 1, 1]) };
        for _ in 0..10 {
            // SAFETY: the kernel touches a word for each thread.
            unsafe { f.stream.launch(&step, &config, &mut args)? };
        }
        assert!(f.words(&x)? == stepped(count, 10), "programmatic: {programmatic}");
    }
    Ok(())
}

fn graphs(f: &Fixture) -> Result<()> {
    let step = f.function("step")?;
    let count = 132 * 1024;
    let config = LaunchConfig::new([count / 256, 1, 1], [256, 1, 1]);
    let data: Vec<u32> = (0..count).collect();
    for programmatic in [false, true] {
        let (x, y) = (f.buffer(&data)?, f.buffer(&data)?);
        let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
        let mut graph = Graph::new(&f.device)?;
        let mut nodes = Vec::new();
        for _ in 0..5 {
            let last = nodes.last().copied();
            let dependency =
                last.map(|node| if programmatic { Dependency::Programmatic(node) } else { Dependency::Full(node) });
            // SAFETY: the kernel touches a word for each thread, here and below.
            nodes.push(unsafe { graph.add_kernel(&step, &config, &mut args, dependency.as_slice())? });
        }
        assert_eq!(graph.node_count()?, 5);
        let mut exec = graph.instantiate()?;
        unsafe {
            exec.launch(&f.stream)?;
            exec.launch(&f.stream)?;
        }
        assert!(f.words(&x)? == stepped(count, 10), "built, programmatic: {programmatic}");
        // The last two nodes now step the other buffer.
        args.set(0, &Arg::Pointer(y.address()))?;
        for node in &nodes[3..] {
            unsafe { exec.set_kernel(*node, &step, &config, &mut args)? };
        }
        unsafe { exec.launch(&f.stream)? };
        assert!(f.words(&x)? == stepped(count, 13) && f.words(&y)? == stepped(count, 2), "patched");
    }
    f.stream.synchronize()
}

/// All words step, then each half by a kernel of its own, then all again.
fn graphs_fork_and_join(f: &Fixture) -> Result<()> {
    let step = f.function("step")?;
    let count = 132 * 2048;
    for programmatic in [false, true] {
        let x = f.buffer(&(0..count).collect::<Vec<_>>())?;
        let wait = |node| if programmatic { Dependency::Programmatic(node) } else { Dependency::Full(node) };
        let mut graph = Graph::new(&f.device)?;
        let mut add = |first: u32, words: u32, after: &[Node]| {
            let mut args = KernelArgs::new(&[Arg::Pointer(x.address() + 4 * u64::from(first))]);
            let after: Vec<Dependency> = after.iter().map(|&node| wait(node)).collect();
            let config = LaunchConfig::new([words / 256, 1, 1], [256, 1, 1]);
            // SAFETY: the kernel touches a word for each thread.
            unsafe { graph.add_kernel(&step, &config, &mut args, &after) }
        };
        let mut last: Vec<Node> = Vec::new();
        for _ in 0..4 {
            let whole = add(0, count, &last)?;
            last = vec![add(0, count / 2, &[whole])?, add(count / 2, count / 2, &[whole])?];
        }
        let exec = graph.instantiate()?;
        // SAFETY: as above.
        unsafe { exec.launch(&f.stream)? };
        assert!(f.words(&x)? == stepped(count, 8), "programmatic: {programmatic}");
    }
    Ok(())
}

/// A copy between launches, patched too; an exec that is patched while its runs are queued.
fn graphs_are_patched_while_they_run(f: &Fixture) -> Result<()> {
    let step = f.function("step")?;
    let count = 132 * 1024;
    let config = LaunchConfig::new([count / 256, 1, 1], [256, 1, 1]);
    let data: Vec<u32> = (0..count).collect();
    let bytes = 4 * count as usize;
    let (x, copy) = (f.buffer(&data)?, f.buffer(&vec![0; count as usize])?);
    let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
    let mut graph = Graph::new(&f.device)?;
    // SAFETY: the kernel touches a word for each thread, and copies have the buffers' size, here and below.
    let (first, copied) = unsafe {
        let first = graph.add_kernel(&step, &config, &mut args, &[])?;
        let copied = graph.add_copy(copy.address(), x.address(), bytes, &[Dependency::Full(first)])?;
        graph.add_kernel(&step, &config, &mut args, &[Dependency::Full(copied)])?;
        (first, copied)
    };
    let mut exec = graph.instantiate()?;
    unsafe { exec.launch(&f.stream)? };
    assert!(f.words(&copy)? == stepped(count, 1) && f.words(&x)? == stepped(count, 2));
    // Sixty-four runs are queued; each steps a buffer of its own first, and copies it to another one.
    let all: Vec<(Buffer, Buffer)> =
        (0..64).map(|_| Ok((f.buffer(&data)?, f.buffer(&vec![0; count as usize])?))).collect::<Result<_>>()?;
    for (from, to) in &all {
        args.set(0, &Arg::Pointer(from.address()))?;
        unsafe {
            exec.set_kernel(first, &step, &config, &mut args)?;
            exec.set_copy(copied, to.address(), from.address(), bytes)?;
            exec.launch(&f.stream)?;
        }
    }
    for (from, to) in &all {
        assert!(f.words(from)? == stepped(count, 1) && f.words(to)? == stepped(count, 1));
    }
    Ok(())
}

/// A byte decides which of two branches steps its buffer; another byte after a patch.
fn graphs_choose(f: &Fixture) -> Result<()> {
    let (step, conditions) = (f.function("step")?, Conditions::load(&f.device)?);
    let config = LaunchConfig::new([1, 1, 1], [256, 1, 1]);
    let flags = f.buffer(&[0x0100])?;
    let branches = [f.buffer(&[0; 256])?, f.buffer(&[0; 256])?];
    let mut graph = Graph::new(&f.device)?;
    let handles = [graph.handle()?, graph.handle()?];
    let decides = Decides::Choice(handles);
    // SAFETY: the flags are in the buffer, and the kernel touches a word for each thread, here and below.
    let first = unsafe { conditions.add(&mut graph, flags.address(), decides, &[])? };
    let (mut last, mut stepped) = (first, Vec::new());
    for (handle, x) in handles.into_iter().zip(&branches) {
        last = graph.add_conditional(Conditional::If, handle, &[Dependency::Full(last)], |body| {
            let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
            stepped.push(unsafe { body.add_kernel(&step, &config, &mut args, &[])? });
            Ok(())
        })?;
    }
    let mut exec = graph.instantiate()?;
    unsafe { exec.launch(&f.stream)? };
    assert_eq!((f.words(&branches[0])?[0], f.words(&branches[1])?[255]), (0, 1));
    // The second byte is not 0; and the branch steps another buffer.
    let other = f.buffer(&[5; 256])?;
    unsafe {
        conditions.set(&mut exec, first, flags.address() + 1, decides)?;
        exec.set_kernel(stepped[0], &step, &config, &mut KernelArgs::new(&[Arg::Pointer(other.address())]))?;
        exec.launch(&f.stream)?;
    }
    assert_eq!((f.words(&branches[0])?[0], f.words(&other)?[0], f.words(&branches[1])?[255]), (0, 2 * 5 + 1, 1));
    Ok(())
}

/// A loop in a loop, whose words count down: the inner one begins anew in each turn of the outer one. What a turn takes is printed.
fn graphs_repeat(f: &Fixture) -> Result<()> {
    let (count_down, conditions) = (f.function("count_down")?, Conditions::load(&f.device)?);
    let config = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    let (outer, inner, start) = (f.buffer(&[3, 0])?, f.buffer(&[0, 0])?, f.buffer(&[5])?);
    let counting = |graph: &mut Graph, x: &Buffer, before: Option<Node>| {
        let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
        let before = before.map(Dependency::Full);
        // SAFETY: the kernel touches the two words of a buffer.
        unsafe { graph.add_kernel(&count_down, &config, &mut args, before.as_slice()) }
    };
    let turns = |graph: &mut Graph, x: &Buffer, before: Option<Node>, body: &dyn Fn(&mut Graph) -> Result<Node>| {
        let handle = graph.handle()?;
        let (decides, before) = (Decides::While(handle), before.map(Dependency::Full));
        // SAFETY: the flag is the first word's lowest byte, here and below.
        let first = unsafe { conditions.add(graph, x.address(), decides, before.as_slice())? };
        graph.add_conditional(Conditional::While, handle, &[Dependency::Full(first)], |graph| {
            let last = body(graph)?;
            unsafe { conditions.add(graph, x.address(), decides, &[Dependency::Full(last)]) }.map(drop)
        })
    };
    let mut graph = Graph::new(&f.device)?;
    turns(&mut graph, &outer, None, &|graph| {
        // SAFETY: both places have a word.
        let anew = unsafe { graph.add_copy(inner.address(), start.address(), 4, &[])? };
        let rest = turns(graph, &inner, Some(anew), &|graph| counting(graph, &inner, None))?;
        counting(graph, &outer, Some(rest))
    })?;
    let exec = graph.instantiate()?;
    // SAFETY: the buffers are there until the stream is done, here and below.
    unsafe { exec.launch(&f.stream)? };
    assert_eq!((f.words(&outer)?, f.words(&inner)?), (vec![0, 3], vec![0, 15]));
    let (begin, end) = (Event::new(&f.device)?, Event::new(&f.device)?);
    outer.upload(&f.stream, 0, &1u32.to_le_bytes())?;
    start.upload(&f.stream, 0, &200u32.to_le_bytes())?;
    begin.record(&f.stream)?;
    unsafe { exec.launch(&f.stream)? };
    end.record(&f.stream)?;
    end.synchronize()?;
    assert_eq!(f.words(&inner)?, [0, 215]);
    println!("a turn of a loop of one launch: {:.2} us", end.microseconds_since(&begin)? / 200.0);
    Ok(())
}

/// What 300 launches take on the device, that wait for the end of the one before or start early: printed.
fn what_early_starts_save(f: &Fixture) -> Result<()> {
    let step = f.function("step")?;
    let x = f.buffer(&vec![0; 132 * 256])?;
    let config = LaunchConfig::new([132, 1, 1], [256, 1, 1]);
    let mut args = KernelArgs::new(&[Arg::Pointer(x.address())]);
    let (start, end) = (Event::new(&f.device)?, Event::new(&f.device)?);
    let micros = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        work()?;
        start.record(&f.stream)?;
        (0..4).try_for_each(|_| work())?;
        end.record(&f.stream)?;
        end.synchronize()?;
        Ok(end.microseconds_since(&start)? / 1200.0)
    };
    for programmatic in [false, true] {
        let mut graph = Graph::new(&f.device)?;
        let mut before: Option<Dependency> = None;
        for _ in 0..300 {
            // SAFETY: the kernel touches a word for each thread, here and below.
            let node = unsafe { graph.add_kernel(&step, &config, &mut args, before.as_slice())? };
            before = Some(if programmatic { Dependency::Programmatic(node) } else { Dependency::Full(node) });
        }
        let exec = graph.instantiate()?;
        let graph = micros(&mut || unsafe { exec.launch(&f.stream) })?;
        let config = LaunchConfig { programmatic, ..config };
        let launches =
            micros(&mut || (0..300).try_for_each(|_| unsafe { f.stream.launch(&step, &config, &mut args) }))?;
        println!("early: {programmatic}: {graph:.2} us a kernel of a graph, {launches:.2} us one by one");
    }
    Ok(())
}

/// What the host takes for launches one by one, for a graph of them, and for patching it: printed, for the rule of `program/graphs.rs`.
fn what_launches_take(f: &Fixture) -> Result<()> {
    const LAUNCHES: usize = 300;
    let scale = f.function("scale")?;
    let x = f.buffer(&[0; 256])?;
    let config = LaunchConfig::new([1, 1, 1], [256, 1, 1]);
    let mut args = KernelArgs::new(&[Arg::Pointer(x.address()), Arg::I64(0), Arg::F32(1.0)]);
    let micros = |times: usize, work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..times {
            f.stream.synchronize()?;
            let start = std::time::Instant::now();
            work()?;
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
        }
        f.stream.synchronize()?;
        Ok(best)
    };
    let pooled = micros(20, &mut || Buffer::on_stream(&f.stream, 8 << 20, None).map(drop))?;
    println!("8 MiB of the pool: {pooled:.1} us");
    for launches in [3, 30, LAUNCHES] {
        // SAFETY: with n = 0 the kernel touches nothing, here and below.
        let one_by_one =
            micros(20, &mut || (0..launches).try_for_each(|_| unsafe { f.stream.launch(&scale, &config, &mut args) }))?;
        let (free, _) = f.device.memory()?;
        let start = std::time::Instant::now();
        let mut graph = Graph::new(&f.device)?;
        let mut nodes = Vec::new();
        for _ in 0..launches {
            let before: Vec<Dependency> =
                nodes.last().map(|&node| Dependency::Programmatic(node)).into_iter().collect();
            nodes.push(unsafe { graph.add_kernel(&scale, &config, &mut args, &before)? });
        }
        let added = start.elapsed().as_secs_f64() * 1e6;
        let mut exec = graph.instantiate()?;
        let made = start.elapsed().as_secs_f64() * 1e6;
        let first = micros(1, &mut || unsafe { exec.launch(&f.stream) })?;
        let again = micros(20, &mut || unsafe { exec.launch(&f.stream) })?;
        let taken = free.saturating_sub(f.device.memory()?.0);
        println!(
            "{launches} launches: {one_by_one:.1} us; nodes {added:.0} us, ready {made:.0} us, {taken} bytes; a run: first {first:.1} us, then {again:.1} us"
        );
        for share in [1, 4, 2] {
            let patched: Vec<_> = nodes.iter().copied().step_by(share).collect();
            let mut n = 1;
            let mut patch = 0.0;
            let both = micros(20, &mut || {
                n += 1;
                args.set(2, &Arg::F32(n as f32))?;
                let start = std::time::Instant::now();
                patched.iter().try_for_each(|&node| unsafe { exec.set_kernel(node, &scale, &config, &mut args) })?;
                patch = start.elapsed().as_secs_f64() * 1e6;
                unsafe { exec.launch(&f.stream) }
            })?;
            println!("  {} patched: {patch:.1} us, with the run {both:.1} us", patched.len());
        }
    }
    Ok(())
}

fn tensor_maps(f: &Fixture) -> Result<()> {
    let tile = f.function("tile")?;
    // 40 × 32 words; boxes of 8 × 16, one inside, one that hangs over the last row.
    let (rows, columns, box_rows, box_columns) = (40u32, 32u32, 8u32, 16u32);
    let x = f.buffer(&(0..rows * columns).collect::<Vec<_>>())?;
    let shape = [u64::from(rows), u64::from(columns)];
    let layout = TensorMapLayout::contiguous(DType::I32, &shape, &[box_rows, box_columns], Swizzle::None);
    let map = TensorMap::encode(x.address(), &layout)?;
    let words = box_rows * box_columns;
    for (row, column) in [(3, 8), (35, 16)] {
        let out = f.buffer(&vec![u32::MAX; words as usize])?;
        let mut args = KernelArgs::new(&[
            Arg::TensorMap(map),
            Arg::Pointer(out.address()),
            Arg::I32(row as i32),
            Arg::I32(column as i32),
            Arg::I32(words as i32 * 4),
        ]);
        let config = LaunchConfig::new([1, 1, 1], [words, 1, 1]).shared_memory(words * 4 + 8);
        // SAFETY: the kernel writes a word for each thread.
        unsafe { f.stream.launch(&tile, &config, &mut args)? };
        let expected: Vec<u32> = (0..words)
            .map(|i| (row + i / box_columns, column + i % box_columns))
            .map(|(r, c)| if r < rows { r * columns + c } else { 0 })
            .collect();
        assert_eq!(f.words(&out)?, expected, "box at {row}, {column}");
    }
    let swizzled = TensorMapLayout { swizzle: Swizzle::B64, ..layout.clone() };
    assert_ne!(TensorMap::encode(x.address(), &swizzled)?, map);
    assert!(TensorMap::encode(x.address() + 4, &layout).is_err());
    Ok(())
}
