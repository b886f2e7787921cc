//! Which function runs which op.

use rc_dialects::op;
use rc_ir::{Body, OpRef, Result};

use super::block::{Program, Run};
use super::code::{Inst, Kind};

/// Who has to be at an instruction before it runs.
#[derive(Clone, Copy)]
pub(crate) enum Meeting {
    /// Threads at a barrier, wherever in the text.
    Barrier,
    /// All threads of the cluster.
    Cluster,
    /// The 32 threads of a warp, at this very instruction.
    Warp(Together),
    /// The 128 threads of a warpgroup.
    Warpgroup(Together),
}

/// Work for threads that have met.
pub(crate) type Together = fn(&mut Program<'_, '_>, &[usize], &Inst) -> Result;

macro_rules! run {
    ($name:ident) => {
        |program, thread, inst| program.$name(thread, inst)
    };
}

/// How an op that is neither elementwise nor control flow runs. An op that the interpreter does not know is an error.
pub(crate) fn kind_of(op: OpRef, kernel: &Body) -> Result<Kind> {
    let whole = kernel.attr(kernel.root(), "phase").and_then(|a| a.as_str()) != Some("thread");
    let run: Run = match op.name().as_str() {
        op::kernel::PROGRAM_ID => run!(program_id),
        op::kernel::THREAD_ID => run!(thread_id),
        op::kernel::EXTENT => run!(extent),
        op::kernel::LOAD => run!(load),
        op::kernel::GATHER => run!(gather),
        op::kernel::STORE => run!(store),
        op::kernel::SCATTER => run!(scatter),
        op::kernel::REDUCE => run!(tile_reduce),
        op::kernel::SCAN => run!(tile_scan),
        op::kernel::SORT => run!(tile_sort),
        op::kernel::DOT => run!(tile_dot),
        op::kernel::PACK => run!(pack),
        op::kernel::DOT_WORDS => run!(dot_words),
        op::kernel::DOT_TILES => run!(dot_tiles),
        op::kernel::IOTA => run!(tile_iota),
        op::kernel::BROADCAST => run!(tile_broadcast),
        op::kernel::TRANSPOSE => run!(tile_transpose),
        op::kernel::EXTRACT_SLICE => run!(tile_slice),
        op::kernel::CONVERT_LAYOUT => run!(same),
        op::kernel::ALLOC => run!(alloc),
        op::kernel::VIEW => run!(view),
        op::kernel::CHOOSE => run!(choose),
        op::kernel::READ => run!(read_vector),
        op::kernel::WRITE => run!(write_vector),
        op::kernel::ATOMIC => run!(atomic),
        op::kernel::SPLAT => run!(splat),
        op::kernel::EXTRACT => run!(extract),
        op::kernel::INSERT => run!(insert),
        op::kernel::CONCAT => run!(concat),
        op::kernel::SLICE => run!(slice),
        op::kernel::PERMUTE => run!(permute),
        op::kernel::VECTOR_REDUCE => run!(vector_reduce),
        op::kernel::BITCAST => run!(bitcast),
        op::kernel::APPROX => run!(approx),
        op::kernel::ELECT => run!(elect),
        op::kernel::FENCE => run!(fence),
        op::kernel::SET_MAX_REGISTERS
        | op::kernel::GRID_WAIT
        | op::kernel::GRID_LAUNCH
        | op::kernel::PREFETCH
        | op::kernel::TENSOR_PREFETCH
        | op::kernel::BOX_PREFETCH
        | op::kernel::WGMMA_FENCE => {
            run!(nothing)
        }
        op::kernel::CLUSTER_RANK => run!(cluster_rank),
        op::kernel::MBARRIER_INIT => run!(mbarrier_init),
        op::kernel::MBARRIER_ARRIVE => run!(mbarrier_arrive),
        op::kernel::ASYNC_ARRIVE => run!(async_arrive),
        op::kernel::MBARRIER_EXPECT => run!(mbarrier_expect),
        op::kernel::MBARRIER_WAIT => run!(mbarrier_wait),
        op::kernel::ASYNC_COPY => run!(async_copy),
        op::kernel::ASYNC_COMMIT => run!(async_commit),
        op::kernel::ASYNC_WAIT => run!(async_wait),
        op::kernel::TENSOR_LOAD => run!(tensor_load),
        op::kernel::TENSOR_STORE => run!(tensor_store),
        op::kernel::BULK_COMMIT => run!(nothing),
        op::kernel::BULK_WAIT => run!(nothing),
        op::kernel::WGMMA_COMMIT => run!(wgmma_commit),
        op::kernel::BARRIER | op::kernel::CLUSTER_BARRIER if whole => run!(nothing),
        name => {
            let meeting = match name {
                op::kernel::BARRIER => Meeting::Barrier,
                op::kernel::CLUSTER_BARRIER => Meeting::Cluster,
                op::kernel::SHUFFLE => Meeting::Warp(|p, group, inst| p.shuffle(group, inst)),
                op::kernel::LDMATRIX => Meeting::Warp(|p, group, inst| p.ldmatrix(group, inst)),
                op::kernel::STMATRIX => Meeting::Warp(|p, group, inst| p.stmatrix(group, inst)),
                op::kernel::MMA => Meeting::Warp(|p, group, inst| p.mma(group, inst)),
                op::kernel::WGMMA_WAIT => Meeting::Warp(|p, group, inst| p.wgmma_wait(group, inst)),
                op::kernel::WGMMA => Meeting::Warpgroup(|p, group, inst| p.wgmma(group, inst)),
                _ => return Err(op.unsupported("in the interpreter")),
            };
            if whole {
                return Err(op.unsupported("before the thread phase"));
            }
            return Ok(Kind::Meet(meeting));
        }
    };
    Ok(Kind::Run(run))
}
