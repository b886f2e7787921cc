//! Text of the IR: MLIR's generic form, and the pretty form that people read.

pub mod types;

/// Which of the two forms to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// MLIR's generic form, which `mlir-opt --allow-unregistered-dialect` reads.
    Generic,
    Pretty,
}
