//! Which function runs which op.

use rc_ir::{Body, OpRef, Result};

use super::block::{Program, Run};
use super::code::{Inst, Kind};

/// Who has to be at an instruction before it runs.
#[derive(Clone, Copy)]
pub(crate) enum Meeting {
    /// Threads at a barrier, wherever in the text.
    Barrier,
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
    let run: Run = match op.name().pretty() {
        "kernel.program_id" => run!(program_id),
        "kernel.thread_id" => run!(thread_id),
        "kernel.extent" => run!(extent),
        "kernel.load" => run!(load),
        "kernel.gather" => run!(gather),
        "kernel.store" => run!(store),
        "kernel.scatter" => run!(scatter),
        "kernel.reduce" => run!(tile_reduce),
        "kernel.scan" => run!(tile_scan),
        "kernel.sort" => run!(tile_sort),
        "kernel.dot" => run!(tile_dot),
        "kernel.pack" => run!(pack),
        "kernel.dot_words" => run!(dot_words),
        "kernel.dot_tiles" => run!(dot_tiles),
        "kernel.iota" => run!(tile_iota),
        "kernel.broadcast" => run!(tile_broadcast),
        "kernel.transpose" => run!(tile_transpose),
        "kernel.extract_slice" => run!(tile_slice),
        "kernel.convert_layout" => run!(same),
        "kernel.alloc" => run!(alloc),
        "kernel.view" => run!(view),
        "kernel.choose" => run!(choose),
        "kernel.read" => run!(read_vector),
        "kernel.write" => run!(write_vector),
        "kernel.atomic" => run!(atomic),
        "kernel.splat" => run!(splat),
        "kernel.extract" => run!(extract),
        "kernel.insert" => run!(insert),
        "kernel.concat" => run!(concat),
        "kernel.slice" => run!(slice),
        "kernel.permute" => run!(permute),
        "kernel.vector_reduce" => run!(vector_reduce),
        "kernel.bitcast" => run!(bitcast),
        "kernel.approx" => run!(approx),
        "kernel.elect" => run!(elect),
        "kernel.fence" => run!(fence),
        "kernel.set_max_registers"
        | "kernel.grid_wait"
        | "kernel.grid_launch"
        | "kernel.tensor_prefetch"
        | "kernel.box_prefetch"
        | "kernel.wgmma_fence" => {
            run!(nothing)
        }
        "kernel.cluster_rank" => run!(cluster_rank),
        "kernel.mbarrier_init" => run!(mbarrier_init),
        "kernel.mbarrier_arrive" => run!(mbarrier_arrive),
        "kernel.async_arrive" => run!(async_arrive),
        "kernel.mbarrier_expect" => run!(mbarrier_expect),
        "kernel.mbarrier_wait" => run!(mbarrier_wait),
        "kernel.async_copy" => run!(async_copy),
        "kernel.async_commit" => run!(async_commit),
        "kernel.async_wait" => run!(async_wait),
        "kernel.tensor_load" => run!(tensor_load),
        "kernel.tensor_store" => run!(tensor_store),
        "kernel.bulk_commit" => run!(nothing),
        "kernel.bulk_wait" => run!(nothing),
        "kernel.wgmma_commit" => run!(wgmma_commit),
        "kernel.wgmma_wait" => run!(wgmma_wait),
        "kernel.barrier" | "kernel.cluster_barrier" if whole => run!(nothing),
        name => {
            let meeting = match name {
                // A cluster is one block here.
                "kernel.barrier" | "kernel.cluster_barrier" => Meeting::Barrier,
                "kernel.shuffle" => Meeting::Warp(|p, group, inst| p.shuffle(group, inst)),
                "kernel.ldmatrix" => Meeting::Warp(|p, group, inst| p.ldmatrix(group, inst)),
                "kernel.stmatrix" => Meeting::Warp(|p, group, inst| p.stmatrix(group, inst)),
                "kernel.mma" => Meeting::Warp(|p, group, inst| p.mma(group, inst)),
                "kernel.wgmma" => Meeting::Warpgroup(|p, group, inst| p.wgmma(group, inst)),
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
