//! Folding single operations, and constants for what they fold to.

use crate::attr::Attr;
use crate::body::{Body, Op, Value};
use crate::builder::Builder;
use crate::diag::{Diagnostic, Result};
use crate::op_def::{Fold, FoldArgs, InferArgs, OpDef, OpName, Traits, constant_of, registered};
use crate::types::Type;
use smallvec::SmallVec;

/// What an op's one result folds to by its declaration. Constants themselves do not fold.
///
/// Errors: the declaration folds to a value of another type, a mistake in it.
pub fn fold(body: &Body, op: Op) -> Result<Option<Fold>> {
    let Some(def) = body.name(op).def() else { return Ok(None) };
    let Some(fold) = def.fold.filter(|_| !def.has(Traits::CONSTANT) && body.result_count(op) == 1) else {
        return Ok(None);
    };
    let constants: SmallVec<[Option<Attr>; 4]> = body.operands(op).map(|v| constant_of(body, v)).collect();
    let Some(folded) = fold(&FoldArgs { op: body.op_ref(op), constants: &constants }) else { return Ok(None) };
    let result = body.result(op, 0);
    if let Fold::Value(value) = folded {
        if value == result {
            return Ok(None);
        }
        if body.ty(value) != body.ty(result) {
            let (is, gives) = (body.ty(result), body.ty(value));
            let error = body.op_ref(op).error(format_args!("folds to a value of type {gives}, but its result is {is}"));
            return Err(error.help("this is a bug in the declaration of the operation"));
        }
    }
    Ok(Some(folded))
}

/// The registered constants, with which attributes become values.
pub struct Constants {
    defs: Vec<&'static OpDef>,
}

impl Constants {
    /// Those registered now: ops with the trait `CONSTANT` that infer their result type from `value`.
    pub fn new() -> Constants {
        Constants { defs: registered().into_iter().filter(|d| d.has(Traits::CONSTANT) && d.infer.is_some()).collect() }
    }
    /// The declaration of the constant that holds `value` with the type `ty`: of the dialect of `like` where it
    /// has one, else the first by name.
    pub fn find(&self, like: OpName, value: Attr, ty: Type) -> Option<&'static OpDef> {
        let attrs = Attr::dict([("value".into(), value)]);
        let holds = |def: &&&'static OpDef| {
            let infer = def.infer.map(|infer| infer(&InferArgs { operands: &[], attrs, def }));
            matches!(infer, Some(Ok(types)) if types.as_slice() == [ty])
        };
        let same_dialect = |def: &&&'static OpDef| OpName::new(def.name).dialect() == like.dialect();
        let own = self.defs.iter().filter(same_dialect).find(holds);
        own.or_else(|| self.defs.iter().find(holds)).copied()
    }
    /// A constant before `op`, with its location.
    ///
    /// Errors: no registered constant holds such a value.
    pub fn materialize(&self, body: &mut Body, op: Op, value: Attr, ty: Type) -> Result<Value> {
        let Some(def) = self.find(body.name(op), value, ty) else {
            return Err(no_constant(body, op, value, ty));
        };
        Builder::before(body, op).op(OpName::new(def.name)).attr("value", value).try_value()
    }
}

impl Default for Constants {
    fn default() -> Self {
        Self::new()
    }
}

fn no_constant(body: &Body, op: Op, value: Attr, ty: Type) -> Box<Diagnostic> {
    let error = body.op_ref(op).error(format_args!("folds to {value}, but no registered constant has the type {ty}"));
    error.help("register the dialect that declares the constant")
}
