//! The suite of rc: files of IR with `// RUN:` lines, judged by two FileChecks, and what such a file is made of.
//!
//! | file | what it is |
//! |---|---|
//! | `lit` | a test file: its `RUN:` and `REQUIRES:` lines, substitutions, running them |
//! | `condition` | what a file says of the machines that it is for |
//! | `tools` | where the programs are that tests run, and building those of rc |
//! | `update` | rewriting the expectations of a file from its output (`RC_UPDATE=1`) |
//! | `book` | the book's pages: commands to run, outputs to compare |
//! | `judge` | FileCheck twice: litcheck's and LLVM's, which must agree |
//! | `interop` | a generic dump through `mlir-opt` and back |
//! | `fuzz` | random modules through every phase, executed after each |
//! | `mutate` | broken input out of good input |
//! | `generate` | modules out of random choices |

pub mod book;
pub mod condition;
pub mod fuzz;
pub mod generate;
pub mod interop;
pub mod judge;
pub mod lit;
pub mod mutate;
pub mod tools;
pub mod update;
