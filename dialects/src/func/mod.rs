//! `func`: functions, under MLIR's names. What rc adds is symbolic sizes, which a function declares.

mod ops;
mod symbols;

pub use ops::{CALL, FUNC, RETURN, arg_names, return_op, verify_calls, verify_return};
pub use symbols::{BINDINGS, SYMBOLS, SymbolDecl, bindings, bindings_attr, set_symbols, symbols, symbols_attr, symbols_of};

/// Registers the dialect.
pub fn register() {
    rc_ir::op_def::register(&[&FUNC, &RETURN, &CALL]);
}
