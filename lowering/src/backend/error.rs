use std::fmt;

/// What went wrong between the MLIR module and the machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The text or the operations are not a valid module of the `llvm` and `nvvm` dialects.
    InvalidModule(String),
    /// MLIR could not translate the module to LLVM IR.
    Translate(String),
    /// The pass pipeline does not parse, or a pass failed.
    Passes(String),
    /// The target is unknown or this build cannot generate code for it.
    Target(String),
    /// LLVM's code generator reported an error.
    Codegen(String),
    /// The object code refers to these symbols, which nothing defines: the runtime loads it without a linker.
    UndefinedSymbols(Vec<String>),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidModule(message) => write!(formatter, "invalid llvm-dialect module: {message}"),
            Self::Translate(message) => write!(formatter, "translation to LLVM IR failed: {message}"),
            Self::Passes(message) => write!(formatter, "LLVM passes failed: {message}"),
            Self::Target(message) => write!(formatter, "target: {message}"),
            Self::Codegen(message) => write!(formatter, "code generation failed: {message}"),
            Self::UndefinedSymbols(names) => write!(
                formatter,
                "object code has undefined symbols: {}; expand the operations behind them before lowering",
                names.join(", ")
            ),
        }
    }
}

impl std::error::Error for Error {}
