//! The dialect `poly`: polynomials as tensors of their coefficients, the constant term first.
//!
//! `ops` declares the operations, `factor` is a pass. [`register`] is all that a program needs.

mod factor;
mod ops;

/// Makes the dialect and its pass known. Calling it again does nothing.
pub fn register() {
    rc_ir::op_def::register(&[&ops::EVAL, &ops::MUL]);
    rc_ir::pass::register(&[&factor::POLY_FACTOR]);
}
