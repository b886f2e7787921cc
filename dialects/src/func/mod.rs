//! `func`: functions, under MLIR's names. What rc adds is symbolic sizes, which a function declares.

mod calls;
mod initializer;
mod ops;
mod symbols;
mod updates;

pub use calls::{Call, callee, calls, verify_calls};
pub use initializer::{INIT, Initializer, constant_args, given_inputs, set_constant_args, verify_initializers};
pub use ops::{CALL, FUNC, RETURN, arg_dicts, arg_names, res_dicts, return_op, verify_return};
pub use symbols::{
    SYMBOLS, SymbolDecl, bindings, bindings_attr, set_symbols, symbols, symbols_attr, symbols_of, verify_bindings,
};
pub use updates::{donated_args, set_donated_args, set_updates, updated_args};

/// Registers the dialect.
pub fn register() {
    rc_ir::op_def::register(&[&FUNC, &RETURN, &CALL]);
}
