//! rc, a compiler of tensor graphs: from a module at any stage to code that runs.
//!
//! [`register`] makes dialects and passes known; [`compile`] runs the pipeline for a [`Target`]; [`Executable`] runs
//! what comes out. [`CheckEachPass`] executes a module before and after every pass.

pub mod buckets;
pub mod cache;
mod calibrate;
mod check;
mod function;
mod gradients;
mod package;
mod pipeline;
mod training;
mod tune;
pub mod variants;
mod version;

pub use cache::{Begun, Cache, Compiled, compile_anew, compile_cached};
pub use calibrate::{Figure, calibrate};
pub use check::CheckEachPass;
pub use function::Function;
pub use gradients::check_gradients;
pub use package::{Packing, is_compiled};
pub use pipeline::{compile, compile_tuned, compile_watched, pipeline};
pub use rc_dialects::verify;
pub use rc_machine::{Machine, Target, figure};
pub use rc_passes::partition::RECOMPUTE;
pub use rc_passes::schedule::Tuning;
pub use rc_runtime::random::{random_input, random_inputs, small_value};
pub use rc_runtime::{Executable, KernelTime, gpu_arch};
pub use training::{Divided, divide, give_once, without};
pub use tune::{Compared, TuneOptions, Tuned, compare, describe, tune, update};
pub use version::{version, versions};

/// Makes rc's dialects and passes known. Calling it again does nothing.
pub fn register() {
    rc_dialects::register();
    rc_passes::register();
    rc_lowering::pass::register();
}

/// Makes ready what the first compile on this pool's threads needs, while the caller does other work. Returns at once.
pub fn prepare() {
    rc_lowering::backend::Session::prepare();
}
