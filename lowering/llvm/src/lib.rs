//! Nothing: its build script looks for LLVM.
