//! The one error type of the runtime.

use std::path::{Path, PathBuf};

/// Result with the runtime's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, worded for the person who gave the input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file holds something other than it should.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A caller's argument does not fit (a shape, a dtype, a length, an index).
    #[error("{0}")]
    Invalid(String),
    /// A package without code for this machine.
    #[error("{}: {why}", path.display())]
    Misfit {
        /// The package.
        path: PathBuf,
        /// What its code needs, and what there is.
        why: String,
    },
    /// Memory could not be had.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// Object code that cannot be loaded.
    #[error("object code: {0}")]
    Object(String),
    /// A kernel reported a failure through [`RuntimeEntries::fail`](crate::cpu::abi::RuntimeEntries).
    #[error("kernel failed with code {code} ({a}, {b}), first in thread {thread}")]
    Kernel {
        /// The code that the kernel gave.
        code: u64,
        /// First operand of the failure, such as the index found.
        a: i64,
        /// Second operand of the failure, such as the bound.
        b: i64,
        /// The pool thread that reported first.
        thread: u64,
    },
    /// A program calls a function that is not registered in this process.
    #[error("the program calls the foreign function '{0}', which is not registered in this process")]
    NotRegistered(String),
    /// A foreign function failed.
    #[error("the foreign function '{function}' failed: {why}")]
    Foreign {
        /// Its name.
        function: String,
        /// Its own error.
        why: crate::foreign::Failure,
    },
    /// There is no driver, or no device.
    #[error("no CUDA GPU: {0}")]
    NoGpu(String),
    /// A call of the CUDA driver failed.
    #[error("CUDA: {call}: {name}: {message}")]
    Cuda {
        /// The driver function, and what it was given where that helps.
        call: String,
        /// The driver's name for the error, such as `CUDA_ERROR_INVALID_VALUE`.
        name: String,
        /// The driver's description, and the log of its assembler where there is one.
        message: String,
    },
    /// What this build or machine does not do.
    #[error("not supported: {0}")]
    Unsupported(String),
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_path_buf(), source }
    }

    /// The same, of the driver, saying which kernel had been launched.
    pub(crate) fn of_launch(mut self, kernel: &str) -> Error {
        if let Error::Cuda { call, .. } = &mut self {
            call.push_str(&format!(", after the launch of `{kernel}`"));
        }
        self
    }

    pub(crate) fn format(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), expected: expected.into(), found: found.into() }
    }
}
