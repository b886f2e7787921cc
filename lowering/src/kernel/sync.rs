//! Barriers, fences, registers, dependent launches, asynchronous copies without tensor maps.

use super::Lowering;
use crate::backend::{Cuda, Processor};
use crate::emit::Value;
use rc_dialects::op;
use rc_ir::{OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn sync(&mut self, op: OpRef) -> Result {
        let p = self.b.ptx();
        let int = |name: &str| op.int(name).unwrap_or(0);
        match op.name().as_str() {
            op::kernel::BARRIER => self.barrier(op),
            op::kernel::MBARRIER_INIT => {
                let barrier = self.barrier_address(op)?;
                p.mbarrier_init(barrier, self.b.i32(int("count") as i32));
            }
            op::kernel::MBARRIER_ARRIVE => {
                let barrier = self.barrier_address(op)?;
                match op.group("rank").first() {
                    Some(&rank) => {
                        self.needs_hopper(op)?;
                        p.mbarrier_arrive_cluster(p.map_shared(barrier, self.index32(rank)));
                    }
                    None => p.mbarrier_arrive(barrier),
                }
            }
            op::kernel::ASYNC_ARRIVE => {
                let barrier = self.barrier_address(op)?;
                p.cp_async_mbarrier_arrive(barrier);
            }
            op::kernel::MBARRIER_EXPECT => {
                self.needs_hopper(op)?;
                let barrier = self.barrier_address(op)?;
                p.mbarrier_arrive_expect_tx(barrier, self.b.i32(int("bytes") as i32));
            }
            op::kernel::MBARRIER_WAIT => self.mbarrier_wait(op)?,
            op::kernel::FENCE => {
                self.needs_hopper(op)?;
                match op.str("kind") {
                    Some("mbarrier_init") => p.fence_mbarrier_init(),
                    _ => p.fence_proxy_async_shared(),
                }
            }
            op::kernel::SET_MAX_REGISTERS => {
                self.needs_wgmma(op)?;
                let count = int("count");
                if !(24..=256).contains(&count) || count % 8 != 0 {
                    return Err(op.error(format!("has 'count' = {count}: a multiple of 8, 24 to 256")));
                }
                match op.str("action") {
                    Some("increase") => p.set_max_registers_inc(count as u32),
                    _ => p.set_max_registers_dec(count as u32),
                }
            }
            op::kernel::ELECT => {
                self.needs_hopper(op)?;
                self.values.set(op.result(0), p.elect());
            }
            op::kernel::CLUSTER_BARRIER => {
                self.needs_hopper(op)?;
                if op.bool("relaxed") {
                    p.cluster_arrive_relaxed()
                } else {
                    p.cluster_arrive()
                }
                p.cluster_wait();
            }
            op::kernel::CLUSTER_RANK => {
                self.needs_hopper(op)?;
                let result = op.result(0);
                let rank = self.index_cast(p.cluster_rank(), self.index_type(result), true);
                self.values.set(result, rank);
            }
            // Before sm_90 a kernel starts when those before it are done, which is what these make sure of.
            op::kernel::GRID_WAIT if self.hopper() => p.grid_dependency_wait(),
            op::kernel::GRID_LAUNCH if self.hopper() => p.grid_dependency_launch(),
            op::kernel::GRID_WAIT | op::kernel::GRID_LAUNCH => {}
            op::kernel::ASYNC_COMMIT => p.cp_async_commit(),
            op::kernel::ASYNC_WAIT => p.cp_async_wait(int("pending") as u32),
            op::kernel::TENSOR_PREFETCH => {
                self.needs_hopper(op)?;
                p.prefetch_tensor_map(self.values.one(op.operand(0)));
            }
            op::kernel::BULK_COMMIT => {
                self.needs_hopper(op)?;
                p.bulk_commit();
            }
            op::kernel::BULK_WAIT => {
                self.needs_hopper(op)?;
                let pending = int("pending") as u32;
                if op.bool("read") { p.bulk_wait_read(pending) } else { p.bulk_wait(pending) }
            }
            _ => return Err(op.unsupported("in machine code")),
        }
        Ok(())
    }

    fn barrier(&self, op: OpRef) {
        let (b, p) = (self.b, self.b.ptx());
        match (op.int("id").unwrap_or(0), op.int("threads"), op.group("at").first()) {
            (0, None, None) => p.barrier(),
            (id, threads, at) => {
                let threads = threads.map_or(self.info.threads as i32, |n| n as i32);
                let id = b.i32(id as i32);
                p.named_barrier(at.map_or(id, |&at| b.add(self.index32(at), id)), b.i32(threads));
            }
        }
    }

    /// The address of the operation's mbarrier.
    pub fn barrier_address(&mut self, op: OpRef) -> Result<Value<'m>> {
        let barriers = op.group("barriers")[0];
        if self.body.ty(barriers).elem().bit_width() != Some(64) {
            return Err(op.error(format!("needs mbarriers of 64 bits, and has {}", self.body.ty(barriers))));
        }
        self.address(op, barriers, &op.group("indices"))
    }

    fn mbarrier_wait(&mut self, op: OpRef) -> Result {
        let (b, p) = (self.b, self.b.ptx());
        let barrier = self.barrier_address(op)?;
        let parity = self.index32(op.group("parity")[0]);
        if self.hopper() {
            p.mbarrier_wait(barrier, parity);
            return Ok(());
        }
        let (waiting, done) = (b.new_block(&[]), b.new_block(&[]));
        b.br(waiting, &[]);
        b.position_at_end(waiting);
        b.cond_br(p.mbarrier_test_wait(barrier, parity), (done, &[]), (waiting, &[]));
        b.position_at_end(done);
        Ok(())
    }

    pub fn async_copy(&mut self, op: OpRef) -> Result {
        let bytes = op.int("bytes").unwrap_or(16);
        if ![4, 8, 16].contains(&bytes) {
            return Err(op.error(format!("copies {bytes} bytes: 4, 8 or 16")));
        }
        let target = self.shared_address(op, op.group("target")[0], &op.group("at"))?;
        let source = self.address(op, op.group("source")[0], &op.group("from"))?;
        let width = self.body.ty(op.group("source")[0]).elem().byte_width().unwrap_or(1) as i32;
        let b = self.b;
        let size = b.i32(bytes as i32);
        let valid = match op.group("valid").first() {
            None => size,
            Some(&valid) => {
                // Clamped before it is multiplied, so that nothing wraps.
                let lanes = self.index_cast(self.values.one(valid), b.ty.i64, self.ranges.non_negative(valid));
                let lanes = b.smin(b.smax(lanes, b.i64(0)), b.i64(bytes / i64::from(width)));
                b.mul(b.trunc(lanes, b.ty.i32), b.i32(width))
            }
        };
        b.ptx().cp_async(bytes as u32, target, source, valid);
        Ok(())
    }

    // ---- What the architecture has

    fn cuda(&self) -> Option<Cuda> {
        if let Processor::Cuda(cuda) = self.target { Some(*cuda) } else { None }
    }

    pub fn hopper(&self) -> bool {
        self.cuda().is_some_and(|cuda| cuda.has_tma())
    }

    pub fn needs_hopper(&self, op: OpRef) -> Result {
        if self.hopper() { Ok(()) } else { Err(self.lacks(op, "sm_90")) }
    }

    pub fn needs_wgmma(&self, op: OpRef) -> Result {
        if self.cuda().is_some_and(|cuda| cuda.has_wgmma()) { Ok(()) } else { Err(self.lacks(op, "sm_90a")) }
    }

    fn lacks(&self, op: OpRef, arch: &str) -> Box<rc_ir::Diagnostic> {
        op.unsupported(format!("on {}", self.target.cpu_name()))
            .help(format!("it needs {arch}: schedule the kernel for the target"))
    }
}
