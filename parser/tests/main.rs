//! Tests of text: both forms, errors, hostile input, generated modules, `mlir-opt`.

mod common;
mod errors;
mod forms;
mod interop;
mod random;
mod robust;
