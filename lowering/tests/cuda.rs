//! Kernels for CUDA: built, compiled to PTX, assembled by ptxas without spills.

use rc_lowering::{
    backend::{Options, Processor, Session},
    emit::{
        Access, Builder, Function, ICmp, Kernel, ModuleBuilder, Parameter, Space, Types, Unroll, Value,
        ptx::{Axis, CacheHint, LoadCache, Major, Mma, StoreCache, Swizzle, Wgmma, WgmmaA, WgmmaElement},
    },
    ptxas,
};

fn kernel(threads: u32) -> Kernel {
    Kernel { threads: [threads, 1, 1], ..Kernel::default() }
}

/// Builds one kernel with shared memory `smem`, compiles it and has it assembled. The PTX.
fn compile(
    arch: &str,
    kernel: Kernel,
    parameters: impl Fn(Types<'_>) -> Vec<Parameter<'_>>,
    build: impl Fn(&Builder<'_>),
) -> String {
    let session = Session::new();
    let target = Processor::cuda(arch).unwrap();
    let module = ModuleBuilder::new(&session, &target).unwrap();
    module.dynamic_shared("smem", 1024);
    let parameters = parameters(module.types());
    build(&module.function(&Function { kernel: Some(kernel), ..Function::new("f", &parameters) }));
    let module = module.finish();
    let llvm = session.compile(&module, &target, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let ptx = llvm.ptx().unwrap();
    if let Err(error) = ptxas::check(&ptx, arch) {
        panic!("{error}\n{ptx}");
    }
    ptx
}

fn global_pointers(count: usize) -> impl Fn(Types<'_>) -> Vec<Parameter<'_>> {
    move |types| vec![Parameter::new(types.ptr_in(Space::Global)); count]
}

fn arrays_and_size(types: Types<'_>) -> Vec<Parameter<'_>> {
    let array = Parameter { noalias: true, ..Parameter::new(types.ptr_in(Space::Global)) };
    vec![array, array, array, Parameter::new(types.i32)]
}

fn maps_output_and_steps(types: Types<'_>) -> Vec<Parameter<'_>> {
    let map = Parameter::tensor_map(&types);
    vec![map, map, Parameter::new(types.ptr_in(Space::Global)), Parameter::new(types.i32)]
}

fn map_and_output(types: Types<'_>) -> Vec<Parameter<'_>> {
    vec![Parameter::tensor_map(&types), Parameter::new(types.ptr_in(Space::Global))]
}

fn count(ptx: &str, instruction: &str) -> usize {
    ptx.matches(instruction).count()
}

#[test]
fn vector_add() {
    for arch in ["sm_80", "sm_90a"] {
        let ptx = compile(arch, kernel(128), arrays_and_size, |b| {
            let p = b.ptx();
            let thread = b.add_nsw(b.mul_nsw(p.block_id(Axis::X), p.block_dim(Axis::X)), p.thread_id(Axis::X));
            let first = b.shl(thread, b.i32(2));
            let at = |array| b.gep(b.ty.f32, b.arg(array), first);
            b.if_then(b.icmp(ICmp::Slt, first, b.arg(3)), || {
                let quad = b.ty.vector(4, b.ty.f32);
                let x = b.load(quad, at(0), Access::invariant(16));
                let y = b.load(quad, at(1), Access::invariant(16));
                b.store(b.fadd(x, y), at(2), Access::aligned(16));
            });
            b.ret(None);
        });
        assert_eq!(count(&ptx, "ld.global.nc.v4"), 2, "{ptx}");
        assert_eq!(count(&ptx, "st.global.v4"), 1, "{ptx}");
        assert!(ptx.contains(".reqntid 128"), "{ptx}");
    }
}

/// `C += A B` of one warp over a depth of `depth`, tiles of 16 × 16 and 16 × 8 through shared memory.
fn mma_loop(b: &Builder<'_>) {
    let p = b.ptx();
    let (lane, smem) = (p.lane_id(), b.address_of("smem", Space::Shared));
    let offset = b.shl(lane, b.i32(4));
    let zero = b.f32(0.0);
    let sums = b.for_loop((b.i32(0), b.arg(3), b.i32(1)), &[zero; 4], Unroll::No, |_, sums| {
        for operand in 0..2 {
            let to = b.gep_bytes(b.gep_const(b.ty.i8, smem, operand * 512), offset);
            p.cp_async(16, to, b.gep_bytes(b.arg(operand as usize), offset), b.i32(16));
        }
        p.cp_async_commit();
        p.cp_async_wait(0);
        p.barrier();
        let a = p.ldmatrix(4, false, b.gep_bytes(smem, offset));
        let tile = p.ldmatrix(2, true, b.gep_bytes(b.gep_const(b.ty.i8, smem, 512), offset));
        p.barrier();
        let sums = [sums[0], sums[1], sums[2], sums[3]];
        p.mma(Mma::M16N8K16Bf16, [a[0], a[1], a[2], a[3]], [tile[0], tile[1]], sums).to_vec()
    });
    let to = b.gep(b.ty.f32, b.arg(2), b.shl(lane, b.i32(2)));
    b.store(b.vector(&sums), to, Access::aligned(16));
    b.ret(None);
}

#[test]
fn mma_on_ampere() {
    let ptx = compile("sm_80", kernel(32), arrays_and_size, mma_loop);
    assert_eq!(count(&ptx, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), 1, "{ptx}");
    assert_eq!(count(&ptx, "cp.async.cg.shared.global"), 2, "{ptx}");
}

const STAGES: i32 = 4;
const A_BYTES: i32 = 64 * 64 * 2;

/// One warp group's product of 64 × n tiles of bf16, K-major and swizzled by 128 bytes, four stages deep: one thread
/// copies through tensor maps, barriers tell when a stage is full.
fn wgmma_pipeline<'m>(b: &Builder<'m>, shape: Wgmma) {
    let p = b.ptx();
    let (a_map, b_map, output, steps) = (b.arg(0), b.arg(1), b.arg(2), b.arg(3));
    let thread = p.thread_id(Axis::X);
    let stage_bytes = A_BYTES + shape.n as i32 * 64 * 2;
    let smem = p.shared_address(b.address_of("smem", Space::Shared));
    let bars = b.add(smem, b.i32(STAGES * stage_bytes));
    let stage_of = |step| b.and(step, b.i32(STAGES - 1));
    let full = |stage| b.add(bars, b.shl(stage, b.i32(3)));
    let tile = |stage| b.add(smem, b.mul(stage, b.i32(stage_bytes)));
    let leader = b.icmp(ICmp::Eq, thread, b.i32(0));
    let fetch = |step: Value<'m>| {
        b.if_then(b.and(leader, b.icmp(ICmp::Slt, step, steps)), || {
            let stage = stage_of(step);
            let k = b.shl(step, b.i32(6));
            p.mbarrier_arrive_expect_tx(full(stage), b.i32(stage_bytes));
            p.tensor_load(tile(stage), a_map, &[k, p.block_id(Axis::Y)], full(stage), None, None);
            let b_tile = b.add(tile(stage), b.i32(A_BYTES));
            let hint = Some(CacheHint::EvictLast);
            p.tensor_load(b_tile, b_map, &[k, p.block_id(Axis::X)], full(stage), None, hint);
        });
    };
    b.if_then(leader, || {
        p.prefetch_tensor_map(a_map);
        (0..STAGES).for_each(|stage| p.mbarrier_init(full(b.i32(stage)), b.i32(1)));
        p.fence_mbarrier_init();
    });
    p.barrier();
    p.grid_dependency_wait();
    (0..STAGES - 1).for_each(|step| fetch(b.i32(step)));
    let zero = vec![b.f32(0.0); shape.accumulators()];
    let sums = b.for_loop((b.i32(0), steps, b.i32(1)), &zero, Unroll::No, |step, sums| {
        let stage = stage_of(step);
        p.mbarrier_wait(full(stage), b.and(b.lshr(step, b.i32(STAGES.ilog2() as i32)), b.i32(1)));
        let rows = p.shared_descriptor(tile(stage), 16, 1024, Swizzle::Bytes128);
        let columns = p.shared_descriptor(b.add(tile(stage), b.i32(A_BYTES)), 16, 1024, Swizzle::Bytes128);
        p.wgmma_fence();
        let mut sums = sums.to_vec();
        for k in 0..4 {
            let (rows, columns) = (p.advance_descriptor(rows, 32 * k), p.advance_descriptor(columns, 32 * k));
            sums = p.wgmma(shape, &sums, WgmmaA::Shared(rows), columns, b.i1(true));
        }
        p.wgmma_commit();
        let sums = p.wgmma_wait(0, &sums);
        p.barrier();
        fetch(b.add(step, b.i32(STAGES - 1)));
        sums
    });
    p.grid_dependency_launch();
    let base = b.gep(b.ty.f32, output, b.mul(thread, b.i32(sums.len() as i32)));
    for (index, four) in sums.chunks(4).enumerate() {
        b.store(b.vector(four), b.gep_const(b.ty.f32, base, 4 * index as i32), Access::aligned(16));
    }
    b.ret(None);
}

#[test]
fn wgmma_on_hopper() {
    for n in [8, 64, 128, 256] {
        let shape = Wgmma { n, element: WgmmaElement::Bf16, a_major: Major::K, b_major: Major::K };
        let ptx = compile("sm_90a", kernel(128), maps_output_and_steps, |b| wgmma_pipeline(b, shape));
        assert_eq!(count(&ptx, "wgmma.mma_async"), 4, "{ptx}");
        assert!(count(&ptx, "cp.async.bulk.tensor.2d") >= 2, "{ptx}");
        assert!(ptx.contains("mbarrier.try_wait.parity"), "{ptx}");
        // Accumulators stay where they are: nothing is moved between the first product and the wait.
        let products = &ptx[ptx.find("wgmma.mma_async").unwrap()..ptx.find("wgmma.wait_group").unwrap()];
        assert_eq!(count(products, "mov.b32"), 0, "{ptx}");
    }
}

#[test]
fn every_wgmma_shape_and_type_assembles() {
    for (index, n) in (8..=256).step_by(8).enumerate() {
        let element = [WgmmaElement::Bf16, WgmmaElement::F16, WgmmaElement::Tf32][index % 3];
        let b_major = match element {
            WgmmaElement::Tf32 => Major::K,
            _ => [Major::K, Major::Mn][index / 3 % 2],
        };
        let shape = Wgmma { n, element, a_major: b_major, b_major };
        compile("sm_90a", kernel(128), global_pointers(1), |b| {
            let p = b.ptx();
            let smem = b.address_of("smem", Space::Shared);
            let descriptor = p.shared_descriptor(smem, 16, 1024, Swizzle::Bytes64);
            let words = p.load_words(b.arg(0), 4, LoadCache::NoL1);
            let registers = WgmmaA::Registers([words[0], words[1], words[2], words[3]]);
            let mut sums = vec![b.f32(0.0); shape.accumulators()];
            p.wgmma_fence();
            for a in [WgmmaA::Shared(descriptor), registers] {
                sums = p.wgmma(shape, &sums, a, descriptor, b.i1(true));
            }
            p.wgmma_commit();
            let sums = p.wgmma_wait(0, &sums);
            let total = sums[1..].iter().fold(sums[0], |total, &sum| b.fadd(total, sum));
            b.store(total, b.arg(0), Access::aligned(4));
            b.ret(None);
        });
    }
}

/// Instructions of both architectures; each must be in the PTX.
#[test]
fn instructions_of_ampere() {
    let expected = [
        "mbarrier.init.shared::cta.b64",
        "mbarrier.arrive.shared::cta.b64",
        "mbarrier.test_wait.parity",
        "mbarrier.inval",
        "cp.async.mbarrier.arrive.noinc",
        "cp.async.ca.shared.global",
        "cp.async.wait_group 1",
        "bar.warp.sync",
        "bar.sync \t1, 64",
        "barrier.cta.arrive.aligned",
        "vote.sync.ballot",
        "shfl.sync.bfly.b32",
        "shfl.sync.idx.b32",
        "ex2.approx.f32",
        "ex2.approx.ftz.f32",
        "lg2.approx",
        "tanh.approx",
        "rcp.approx.f32",
        "rcp.approx.ftz.f32",
        "rsqrt.approx",
        "sin.approx",
        "cos.approx",
        "cvt.rn.bf16x2.f32",
        "cvt.rn.f16x2.f32",
        "cvt.rna.tf32.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16",
        "ldmatrix.sync.aligned.m8n8.x1.shared",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared",
        "ld.global.nc.b32",
        "ld.global.nc.L1::no_allocate.v4.b32",
        "ld.global.cs.v2.b32",
        "ld.global.L1::no_allocate.v4.b32",
        "st.global.cs.v4.b32",
        "st.global.L1::no_allocate.v2.b32",
        "globaltimer",
        "nanosleep",
        "fence.acq_rel.gpu",
        "trap;",
    ];
    let ptx = compile("sm_80", kernel(64), global_pointers(1), |b| {
        let p = b.ptx();
        let (out, smem) = (b.arg(0), b.address_of("smem", Space::Shared));
        let (one, lane) = (b.i32(1), p.lane_id());
        p.mbarrier_init(smem, b.i32(64));
        p.barrier();
        p.cp_async(4, b.gep_const(b.ty.i8, smem, 128), out, b.i32(3));
        p.cp_async_mbarrier_arrive(smem);
        p.mbarrier_arrive(smem);
        p.cp_async_commit();
        p.cp_async_wait(1);
        let done = p.mbarrier_test_wait(smem, b.i32(0));
        p.mbarrier_invalidate(smem);
        p.sync_warp(b.i32(-1));
        p.named_barrier_arrive(one, b.i32(64));
        p.named_barrier(one, b.i32(64));
        let mut words = vec![p.ballot(done), p.shuffle_xor(lane, one), p.ldmatrix(1, false, smem)[0]];
        words.extend(p.ldmatrix(2, true, smem));
        for (count, cache) in
            [(1, LoadCache::ReadOnly), (4, LoadCache::ReadOnlyNoL1), (2, LoadCache::Streaming), (4, LoadCache::NoL1)]
        {
            words.extend(p.load_words(out, count, cache));
        }
        let x = b.bitcast(words[0], b.ty.f32);
        let y = p.shuffle_index(x, b.i32(0));
        let mut floats = vec![p.ex2_approx(x), p.ex2_approx_ftz(x), p.lg2_approx(x), p.tanh_approx(x), p.rcp_approx(x)];
        floats.extend([p.rcp_approx_ftz(y), p.rsqrt_approx(y), p.sin_approx(y), p.cos_approx(y)]);
        let quad = [floats[0], floats[1], floats[2], floats[3]];
        let a = [words[0], words[1], words[2], words[3]];
        for shape in [Mma::M16N8K8Tf32, Mma::M16N8K16F16] {
            floats.extend(p.mma(shape, a, [words[4], words[5]], quad));
        }
        words.extend([p.pack_bf16x2(x, y), p.pack_f16x2(x, y), p.to_tf32(y), b.trunc(p.global_timer(), b.ty.i32)]);
        p.nanosleep(b.i32(20));
        p.fence_gpu();
        words.extend(floats.iter().map(|&float| b.bitcast(float, b.ty.i32)));
        for (index, four) in words.chunks_exact(4).enumerate() {
            p.store_words(b.gep_const(b.ty.i32, out, 4 * index as i32), four, StoreCache::Streaming);
        }
        p.store_words(out, &words[words.len() - 2..], StoreCache::NoL1);
        b.if_then(done, || p.trap());
        b.ret(None);
    });
    for instruction in expected {
        assert!(ptx.contains(instruction), "no {instruction} in\n{ptx}");
    }
}

#[test]
fn instructions_of_hopper() {
    let expected = [
        "mbarrier.arrive.shared::cluster.b64",
        "mapa.shared::cluster.u32",
        "fence.mbarrier_init",
        "fence.proxy.async.shared::cta",
        "fence.proxy.async;",
        "barrier.cluster.arrive.release;",
        "barrier.cluster.wait.acquire;",
        "elect.sync",
        "setmaxnreg.inc.sync.aligned.u32 232",
        "setmaxnreg.dec.sync.aligned.u32 40",
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
        "cp.async.bulk.shared::cluster.global.mbarrier",
        "cp.async.bulk.global.shared::cta.bulk_group",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.wait_group 1",
        "cp.async.bulk.wait_group.read 0",
        "cp.async.bulk.tensor.3d.shared::cluster",
        "cp.async.bulk.tensor.4d.shared::cluster",
        ".multicast::cluster.L2::cache_hint",
        "cp.async.bulk.tensor.4d.global.shared::cta",
        "stmatrix.sync.aligned.m8n8.x4.shared",
        "stmatrix.sync.aligned.m8n8.x2.trans",
        "prefetch.tensormap",
        "%cluster_ctarank",
    ];
    let kernel = Kernel { threads: [256, 1, 1], cluster: [2, 1, 1], min_blocks: 1, max_registers: 0 };
    let ptx = compile("sm_90a", kernel, map_and_output, |b| {
        let p = b.ptx();
        let (map, out, smem) = (b.arg(0), b.arg(1), b.address_of("smem", Space::Shared));
        let (barrier, bytes) = (b.gep_const(b.ty.i8, smem, 4096), b.i32(1024));
        let zero = b.i32(0);
        p.mbarrier_init(barrier, b.i32(1));
        p.fence_mbarrier_init();
        p.cluster_arrive();
        p.cluster_wait();
        p.grid_dependency_wait();
        let producer = b.icmp(ICmp::Ult, p.thread_id(Axis::X), b.i32(128));
        b.if_else(
            producer,
            &[],
            || {
                p.set_max_registers_dec(40);
                b.if_then(p.elect(), || {
                    p.prefetch_tensor_map(map);
                    p.mbarrier_arrive_expect_tx(barrier, bytes);
                    p.bulk_load(smem, out, bytes, barrier);
                    p.tensor_load(smem, map, &[zero; 3], barrier, None, Some(CacheHint::EvictFirst));
                    let blocks = b.int(b.ty.i16, 3);
                    p.tensor_load(smem, map, &[zero; 4], barrier, Some(blocks), Some(CacheHint::EvictNormal));
                });
                vec![]
            },
            || {
                p.set_max_registers_inc(232);
                p.mbarrier_wait(barrier, zero);
                let rank = b.xor(p.cluster_rank(), b.i32(1));
                p.mbarrier_arrive_cluster(p.map_shared(barrier, rank));
                let row = b.gep_bytes(smem, b.shl(p.lane_id(), b.i32(4)));
                p.stmatrix(false, row, &[zero, rank, zero, rank]);
                p.stmatrix(true, row, &[rank, zero]);
                p.fence_proxy_async_shared();
                p.fence_proxy_async();
                b.if_then(p.elect(), || {
                    p.tensor_store(map, &[zero; 4], smem);
                    p.bulk_store(out, smem, bytes);
                    p.bulk_commit();
                    p.bulk_wait(1);
                    p.bulk_wait_read(0);
                });
                vec![]
            },
        );
        p.grid_dependency_launch();
        b.ret(None);
    });
    for instruction in expected {
        assert!(ptx.contains(instruction), "no {instruction} in\n{ptx}");
    }
}

#[test]
fn ptxas_findings_are_errors() {
    let refused = ptxas::check(".version 8.0\n.target sm_90a\n.address_size 64\nnonsense", "sm_90a");
    assert!(matches!(refused, Err(ptxas::Error::Rejected(_))), "{refused:?}");
    // Reading an accumulator while the product is under way serializes it.
    let session = Session::new();
    let target = Processor::cuda("sm_90a").unwrap();
    let module = ModuleBuilder::new(&session, &target).unwrap();
    module.dynamic_shared("smem", 1024);
    let parameters = global_pointers(1)(module.types());
    let b = module.function(&Function { kernel: Some(kernel(128)), ..Function::new("f", &parameters) });
    let p = b.ptx();
    let descriptor = p.shared_descriptor(b.address_of("smem", Space::Shared), 16, 1024, Swizzle::None);
    let shape = Wgmma { n: 8, element: WgmmaElement::Bf16, a_major: Major::K, b_major: Major::K };
    let mut sums = vec![b.f32(0.0); 4];
    for _ in 0..2 {
        p.wgmma_fence();
        sums = p.wgmma(shape, &sums, WgmmaA::Shared(descriptor), descriptor, b.i1(true));
        sums = sums.iter().map(|&sum| b.fadd(sum, b.f32(1.0))).collect();
    }
    p.wgmma_commit();
    let sums = p.wgmma_wait(0, &sums);
    b.store(b.vector(&sums), b.arg(0), Access::aligned(16));
    b.ret(None);
    drop(b);
    let module = module.finish();
    let ptx = session.compile(&module, &target, &Options::default()).unwrap().ptx().unwrap();
    let serialized = ptxas::check(&ptx, "sm_90a");
    assert!(matches!(serialized, Err(ptxas::Error::Serialized(_))), "{serialized:?}");
}
