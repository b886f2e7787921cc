//! Barriers, fences, warps, clusters, dependent launches.

use super::{Ptx, Value, instructions};
use crate::emit::Type;
use melior::ir::ValueLike;

instructions! {
    MBARRIER_INIT = "mbarrier.init.shared::cta.b64 [$0], $1;", "", "rr", Memory;
    MBARRIER_INVALIDATE = "mbarrier.inval.shared::cta.b64 [$0];", "", "r", Memory;
    MBARRIER_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [$0];", "", "r", Memory;
    MBARRIER_ARRIVE_CLUSTER = "mbarrier.arrive.shared::cluster.b64 _, [$0];", "", "r", Memory;
    MBARRIER_ARRIVE_EXPECT_TX = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "", "rr", Memory;
    MBARRIER_TRY_WAIT = "mbarrier.try_wait.parity.shared::cta.b64 $0, [$1], $2;", "b", "rr", Memory;
    MBARRIER_TEST_WAIT = "mbarrier.test_wait.parity.shared::cta.b64 $0, [$1], $2;", "b", "rr", Memory;
    CP_ASYNC_MBARRIER_ARRIVE = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", "", "r", Memory;
    MAP_SHARED = "mapa.shared::cluster.u32 $0, $1, $2;", "r", "rr", Pure;
    FENCE_MBARRIER_INIT = "fence.mbarrier_init.release.cluster;", "", "", Memory;
    FENCE_PROXY_ASYNC_SHARED = "fence.proxy.async.shared::cta;", "", "", Memory;
    FENCE_PROXY_ASYNC = "fence.proxy.async;", "", "", Memory;
    FENCE_ACQ_REL_GPU = "fence.acq_rel.gpu;", "", "", Memory;
    BARRIER_ARRIVE = "barrier.cta.arrive.aligned $0, $1;", "", "rr", Memory;
    SYNC_WARP = "bar.warp.sync $0;", "", "r", Memory;
    CLUSTER_ARRIVE = "barrier.cluster.arrive.release;", "", "", Memory;
    CLUSTER_ARRIVE_RELAXED = "barrier.cluster.arrive.relaxed;", "", "", Memory;
    CLUSTER_WAIT = "barrier.cluster.wait.acquire;", "", "", Memory;
    ELECT = "elect.sync _|$0, $1;", "b", "r", Ordered;
    BALLOT = "vote.sync.ballot.b32 $0, $1, $2;", "r", "br", Ordered;
    SET_MAX_REGISTERS_INC = "setmaxnreg.inc.sync.aligned.u32 $0;", "", "n", Memory;
    SET_MAX_REGISTERS_DEC = "setmaxnreg.dec.sync.aligned.u32 $0;", "", "n", Memory;
    GRID_WAIT = "griddepcontrol.wait;", "", "", Memory;
    GRID_LAUNCH = "griddepcontrol.launch_dependents;", "", "", Memory;
    NANOSLEEP = "nanosleep.u32 $0;", "", "r", Ordered;
    TRAP = "trap;", "", "", Memory;
}

impl<'m> Ptx<'_, 'm> {
    /// Prepares a barrier of 8 bytes, aligned to 8, in shared memory for `count` (`i32`) arrivals.
    pub fn mbarrier_init(&self, barrier: Value<'m>, count: Value<'m>) {
        self.run(MBARRIER_INIT, &[self.shared_address(barrier), count]);
    }

    /// Ends a barrier's life; its memory may hold something else afterwards.
    pub fn mbarrier_invalidate(&self, barrier: Value<'m>) {
        self.run(MBARRIER_INVALIDATE, &[self.shared_address(barrier)]);
    }

    pub fn mbarrier_arrive(&self, barrier: Value<'m>) {
        self.run(MBARRIER_ARRIVE, &[self.shared_address(barrier)]);
    }

    /// Arrives at a barrier of another block of the cluster; the address is from [`Ptx::map_shared`]. What was written is not made visible to that block:
    /// this would take a fence of the whole GPU.
    pub fn mbarrier_arrive_cluster(&self, address: Value<'m>) {
        self.run(MBARRIER_ARRIVE_CLUSTER, &[address]);
    }

    /// Arrives, and lets the phase wait for `bytes` (`i32`) more from asynchronous copies.
    pub fn mbarrier_arrive_expect_tx(&self, barrier: Value<'m>, bytes: Value<'m>) {
        self.run(MBARRIER_ARRIVE_EXPECT_TX, &[self.shared_address(barrier), bytes]);
    }

    /// Whether the phase with `parity` (`i32`, 0 or 1) has completed; waits for a time that the hardware limits.
    pub fn mbarrier_try_wait(&self, barrier: Value<'m>, parity: Value<'m>) -> Value<'m> {
        self.value(MBARRIER_TRY_WAIT, &[self.shared_address(barrier), parity])
    }

    /// Whether the phase with `parity` has completed, without waiting; also for `sm_80`.
    pub fn mbarrier_test_wait(&self, barrier: Value<'m>, parity: Value<'m>) -> Value<'m> {
        self.value(MBARRIER_TEST_WAIT, &[self.shared_address(barrier), parity])
    }

    /// Waits until the phase with `parity` (`i32`, 0 or 1) has completed.
    pub fn mbarrier_wait(&self, barrier: Value<'m>, parity: Value<'m>) {
        let b = self.b;
        let address = self.shared_address(barrier);
        let waiting = b.new_block(&[]);
        let done = b.new_block(&[]);
        b.br(waiting, &[]);
        b.position_at_end(waiting);
        b.cond_br(self.mbarrier_try_wait(address, parity), (done, &[]), (waiting, &[]));
        b.position_at_end(done);
    }

    /// Arrives at a barrier once all of this thread's earlier `cp.async` have been written.
    pub fn cp_async_mbarrier_arrive(&self, barrier: Value<'m>) {
        self.run(CP_ASYNC_MBARRIER_ARRIVE, &[self.shared_address(barrier)]);
    }

    /// The address of the same place in the shared memory of the cluster's block `rank` (`i32`).
    pub fn map_shared(&self, pointer: Value<'m>, rank: Value<'m>) -> Value<'m> {
        self.value(MAP_SHARED, &[self.shared_address(pointer), rank])
    }

    /// Makes the initialization of barriers visible to asynchronous copies and to the cluster.
    pub fn fence_mbarrier_init(&self) {
        self.run(FENCE_MBARRIER_INIT, &[]);
    }

    /// Orders this thread's accesses to shared memory before later ones by asynchronous copies and `wgmma`.
    pub fn fence_proxy_async_shared(&self) {
        self.run(FENCE_PROXY_ASYNC_SHARED, &[]);
    }

    /// [`Ptx::fence_proxy_async_shared`] for all memory.
    pub fn fence_proxy_async(&self) {
        self.run(FENCE_PROXY_ASYNC, &[]);
    }

    /// Orders this thread's accesses against those of other blocks.
    pub fn fence_gpu(&self) {
        self.run(FENCE_ACQ_REL_GPU, &[]);
    }

    /// Waits for all threads of the block.
    pub fn barrier(&self) {
        self.b.op("nvvm.barrier0", &[], &[], &[], &[]);
    }

    /// Waits at barrier `id` (0 to 15) for `threads` threads, a multiple of 32; both `i32`.
    pub fn named_barrier(&self, id: Value<'m>, threads: Value<'m>) {
        let sizes = self.b.i32_array(&[1, 1, 0]);
        self.b.op("nvvm.barrier", &[id, threads], &[], &[("operandSegmentSizes", sizes)], &[]);
    }

    /// Arrives at barrier `id` without waiting.
    pub fn named_barrier_arrive(&self, id: Value<'m>, threads: Value<'m>) {
        self.run(BARRIER_ARRIVE, &[id, threads]);
    }

    /// Waits for the warp's threads in `mask` (`i32`).
    pub fn sync_warp(&self, mask: Value<'m>) {
        self.run(SYNC_WARP, &[mask]);
    }

    /// Arrives at the cluster's barrier.
    pub fn cluster_arrive(&self) {
        self.run(CLUSTER_ARRIVE, &[]);
    }

    /// The same, where nothing that was written is to be seen after it.
    pub fn cluster_arrive_relaxed(&self) {
        self.run(CLUSTER_ARRIVE_RELAXED, &[]);
    }

    /// Waits at the cluster's barrier.
    pub fn cluster_wait(&self) {
        self.run(CLUSTER_WAIT, &[]);
    }

    /// An `i1` that holds in one thread of the (whole) warp.
    pub fn elect(&self) -> Value<'m> {
        self.value(ELECT, &[self.b.i32(-1)])
    }

    /// A bit for each lane of the warp where the `i1` holds.
    pub fn ballot(&self, predicate: Value<'m>) -> Value<'m> {
        self.value(BALLOT, &[predicate, self.b.i32(-1)])
    }

    /// Asks for `count` registers a thread, for the whole warp group: a multiple of 8, 24 to 256.
    pub fn set_max_registers_inc(&self, count: u32) {
        self.run(SET_MAX_REGISTERS_INC, &[self.b.i32(count as i32)]);
    }

    /// Gives registers back, down to `count` a thread.
    pub fn set_max_registers_dec(&self, count: u32) {
        self.run(SET_MAX_REGISTERS_DEC, &[self.b.i32(count as i32)]);
    }

    /// Waits until the kernels that this one depends on have finished and their writes can be seen.
    pub fn grid_dependency_wait(&self) {
        self.run(GRID_WAIT, &[]);
    }

    /// Lets the kernels that depend on this one start.
    pub fn grid_dependency_launch(&self) {
        self.run(GRID_LAUNCH, &[]);
    }

    /// Sleeps for about so many nanoseconds (`i32`).
    pub fn nanosleep(&self, nanoseconds: Value<'m>) {
        self.run(NANOSLEEP, &[nanoseconds]);
    }

    /// Ends the kernel with an error.
    pub fn trap(&self) {
        self.run(TRAP, &[]);
    }

    /// The value of the lane whose number differs in the bits of `mask` (`i32`), among all lanes; `i32` or `f32`.
    pub fn shuffle_xor(&self, value: Value<'m>, mask: Value<'m>) -> Value<'m> {
        self.shuffle("bfly", value, mask, 31)
    }

    /// The value of lane `lane` (`i32`), among all lanes; `i32` or `f32`.
    pub fn shuffle_index(&self, value: Value<'m>, lane: Value<'m>) -> Value<'m> {
        self.shuffle("idx", value, lane, 31)
    }

    /// The value of the lane whose number has the bits of `keep` from one's own and the others from `by` (`i32`); `i32` or `f32`.
    pub fn shuffle_within(&self, value: Value<'m>, by: Value<'m>, keep: i32) -> Value<'m> {
        self.shuffle("idx", value, by, keep << 8 | 31)
    }

    /// The value of the lane `by` (`i32`) below, one's own where there is none; `i32` or `f32`.
    pub fn shuffle_up(&self, value: Value<'m>, by: Value<'m>) -> Value<'m> {
        self.shuffle("up", value, by, 0)
    }

    /// The value of the lane `by` (`i32`) above, one's own where there is none; `i32` or `f32`.
    pub fn shuffle_down(&self, value: Value<'m>, by: Value<'m>) -> Value<'m> {
        self.shuffle("down", value, by, 31)
    }

    fn shuffle(&self, mode: &str, value: Value<'m>, lane: Value<'m>, clamp: i32) -> Value<'m> {
        let (b, r#type): (_, Type<'m>) = (self.b, value.r#type());
        let suffix = if r#type == b.ty.f32 { "f32" } else { "i32" };
        let operands = [b.i32(-1), value, lane, b.i32(clamp)];
        b.intrinsic1(&format!("llvm.nvvm.shfl.sync.{mode}.{suffix}"), &operands, r#type)
    }
}
