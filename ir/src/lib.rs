//! The IR of rc. It knows no dialect: operations are declared elsewhere as [`OpDef`]s and registered.
//!
//! A [`Module`] is a list of top-level operations, each the root of a [`Body`], the arena that owns
//! everything nested in it. Types, attributes and names are interned for the whole process and `Copy`.

pub mod attr;
pub mod body;
pub mod builder;
pub mod clone;
pub mod diag;
pub mod dim;
pub mod dim_range;
pub mod docs;
pub mod dominance;
pub mod effects;
mod float8;
pub mod half_float;
pub mod intern;
pub mod loc;
pub mod module;
pub mod op_def;
pub mod pass;
pub mod print;
pub mod rewrite;
pub mod structure;
pub mod suggest;
#[cfg(test)]
mod test_dialect;
pub mod types;
pub mod verify;

pub use attr::{Attr, AttrData};
pub use body::{Block, Body, Op, OpRef, OpState, Region, Value, ValueDef};
pub use builder::{Builder, InsertPoint};
pub use clone::Mapping;
pub use diag::{Diagnostic, Result, Severity};
pub use dim::Dim;
pub use intern::Name;
pub use loc::Loc;
pub use module::{Blob, Module};
pub use op_def::{Effects, OpDef, OpName, Traits};
pub use rewrite::{Canonicalize, Pattern, PatternSet, Rewriter, apply_patterns};
pub use types::{FloatKind, Type, TypeData};
pub use verify::{verify_body, verify_module};
