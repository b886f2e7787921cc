//! The dialects of rc. A folder each, a file for each family of operations; an operation's declaration
//! ([`rc_ir::OpDef`]) is all there is to it: operands, attributes, meaning, verifier, folding, documentation.
//!
//! [`register`] makes them known to the parser, the verifier and the passes.

pub mod builder;
pub mod constraints;
pub mod core;
pub mod derivative;
pub mod func;
pub mod host;
pub mod interfaces;
pub mod kernel;
pub mod loop_;
pub mod op;
pub mod tensor;

pub use builder::{CoreBuilder, TensorBuilder};

/// Registers every dialect. Calling it again does nothing.
pub fn register() {
    func::register();
    core::register();
    tensor::register();
    rc_ir::op_def::register(loop_::OPS);
    rc_ir::op_def::register(&kernel::ops());
    rc_ir::op_def::register(host::OPS);
}

/// Everything that is wrong with a module as it was read: what the IR's verifier finds, and calls that do not fit their callees.
pub fn verify(module: &rc_ir::Module) -> Vec<rc_ir::Diagnostic> {
    let mut errors = rc_ir::verify::verify_module(module);
    if errors.is_empty() {
        errors.extend(func::verify_calls(module).into_iter().map(|d| *d));
        errors.extend(func::verify_initializers(module).into_iter().map(|d| *d));
    }
    errors
}
