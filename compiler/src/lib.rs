//! rc, a compiler of tensor graphs: from a module at any stage to code that runs.
//!
//! [`register`] makes dialects and passes known; [`compile`] runs the pipeline for a [`Target`]; [`Executable`] runs
//! what comes out. [`CheckEachPass`] executes a module before and after every pass.

mod check;
mod executable;
mod pipeline;
mod random;

pub use check::CheckEachPass;
pub use executable::{Executable, gpu_arch};
pub use pipeline::{Machine, Target, compile, pipeline};
pub use random::{random_input, random_inputs, small_value};

/// Makes rc's dialects and passes known. Calling it again does nothing.
pub fn register() {
    rc_dialects::register();
    rc_passes::register();
    rc_lowering::pass::register();
}
