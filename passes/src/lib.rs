//! The passes of rc, a file or folder each. None links LLVM.

pub mod align_products;
pub mod autodiff;
pub mod canonicalize;
pub mod cse;
pub mod dce;
pub mod decompose;
pub mod expand_math;
pub mod fuse;
pub mod hoist_constants;
pub mod in_parts;
pub mod layout;
pub mod lower_kernel;
pub mod lower_loops;
pub mod lower_tiles;
pub mod merge_launches;
pub mod order_scatters;
pub mod partition;
pub mod plan_buffers;
mod products;
pub mod rules;
pub mod schedule;
pub mod split_products;
pub mod split_scans;
pub mod split_sorts;
#[cfg(test)]
mod test_ops;
mod windows;
mod work;

/// Makes the passes of this crate known by name. Does nothing the second time.
pub fn register() {
    rc_ir::pass::register(&[
        &autodiff::AUTODIFF,
        &partition::PARTITION,
        &canonicalize::CANONICALIZE,
        &rules::REWRITE,
        &cse::CSE,
        &dce::DCE,
        &decompose::DECOMPOSE,
        &layout::LAYOUT,
        &hoist_constants::HOIST_CONSTANTS,
        &split_scans::SPLIT_SCANS,
        &split_sorts::SPLIT_SORTS,
        &align_products::ALIGN_PRODUCTS,
        &split_products::SPLIT_PRODUCTS,
        &order_scatters::ORDER_SCATTERS,
        &in_parts::IN_PARTS,
        &fuse::FUSE,
        &fuse::OUTLINE_OPS,
        &lower_loops::LOWER_LOOPS,
        &schedule::SCHEDULE,
        &lower_kernel::LOWER_KERNEL,
        &lower_tiles::LOWER_TILES,
        &merge_launches::MERGE_LAUNCHES,
        &expand_math::EXPAND_MATH,
        &plan_buffers::PLAN_BUFFERS,
    ]);
}
