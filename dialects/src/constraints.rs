//! Sets of types that operands and results are declared with, and checks that several ops share.

use rc_ir::op_def::{InferArgs, TypeConstraint, Types};
use rc_ir::types::TypeData;
use rc_ir::{Dim, OpRef, Result, Type};
use smallvec::smallvec;

/// A scalar, or a tensor, vector or tile: what elementwise ops work on. Of a memref there are no elements to compute with.
fn is_container(ty: Type) -> bool {
    ty.is_scalar() || ((ty.is_tensor() || ty.is_vector() || ty.is_tile()) && ty.elem().is_scalar())
}
fn holds(ty: Type, elem: fn(Type) -> bool) -> bool {
    is_container(ty) && elem(ty.elem())
}
fn is_bool(ty: Type) -> bool {
    ty == Type::i1()
}
fn is_number(ty: Type) -> bool {
    ty.is_scalar() && !is_bool(ty)
}

pub const NUMERIC: TypeConstraint = TypeConstraint {
    desc: "numbers (scalar, tensor, vector or tile; floats, integers or index)",
    check: |t| holds(t, is_number),
};
pub const FLOAT: TypeConstraint =
    TypeConstraint { desc: "floats (scalar, tensor, vector or tile)", check: |t| holds(t, Type::is_float) };
pub const INTEGER: TypeConstraint = TypeConstraint {
    desc: "integers (scalar, tensor, vector or tile; index too, i1 not)",
    check: |t| holds(t, |e| is_number(e) && !e.is_float()),
};
pub const BITS: TypeConstraint = TypeConstraint {
    desc: "integers or i1 (scalar, tensor, vector or tile)",
    check: |t| holds(t, |e| e.is_int() || e.is_index()),
};
pub const BOOL: TypeConstraint =
    TypeConstraint { desc: "i1 (scalar, tensor, vector or tile)", check: |t| holds(t, is_bool) };
pub const SCALAR_LIKE: TypeConstraint =
    TypeConstraint { desc: "a scalar, or a tensor, vector or tile of scalars", check: is_container };
pub const SHAPED: TypeConstraint =
    TypeConstraint { desc: "a tensor, vector or tile of scalars", check: |t| is_container(t) && !t.is_scalar() };
pub const TENSOR: TypeConstraint =
    TypeConstraint { desc: "a tensor of scalars", check: |t| t.is_tensor() && t.elem().is_scalar() };
pub const FLOAT_TENSOR: TypeConstraint =
    TypeConstraint { desc: "a tensor of floats", check: |t| t.is_tensor() && t.elem().is_float() };
pub const NUMERIC_TENSOR: TypeConstraint = TypeConstraint {
    desc: "a tensor of numbers (floats, integers or index)",
    check: |t| t.is_tensor() && is_number(t.elem()),
};
pub const BOOL_TENSOR: TypeConstraint =
    TypeConstraint { desc: "a tensor of i1", check: |t| t.is_tensor() && is_bool(t.elem()) };
pub const INT_TENSOR: TypeConstraint = TypeConstraint {
    desc: "a tensor of integers",
    check: |t| t.is_tensor() && (t.elem().is_int() || t.elem().is_index()) && !is_bool(t.elem()),
};
pub const MASK_TENSOR: TypeConstraint = TypeConstraint {
    desc: "a tensor of i1 or floats",
    check: |t| t.is_tensor() && (is_bool(t.elem()) || t.elem().is_float()),
};
pub const MASK_OR_COUNTS: TypeConstraint = TypeConstraint {
    desc: "a tensor of i1, floats or integers",
    check: |t| t.is_tensor() && (is_bool(t.elem()) || t.elem().is_float() || t.elem().is_int()),
};
pub const SCALAR: TypeConstraint = TypeConstraint { desc: "a scalar", check: Type::is_scalar };
pub const INDEX: TypeConstraint = TypeConstraint { desc: "index", check: Type::is_index };

pub const I1: TypeConstraint = TypeConstraint { desc: "i1", check: is_bool };
pub const INT_OR_INDEX: TypeConstraint =
    TypeConstraint { desc: "an integer or index", check: |t| t.is_index() || (t.is_int() && !is_bool(t)) };
pub const VECTOR: TypeConstraint =
    TypeConstraint { desc: "a vector of scalars", check: |t| t.is_vector() && t.elem().is_scalar() };
pub const SCALAR_OR_VECTOR: TypeConstraint = TypeConstraint {
    desc: "a scalar or a vector of scalars",
    check: |t| t.is_scalar() || (t.is_vector() && t.elem().is_scalar()),
};
pub const TILE: TypeConstraint =
    TypeConstraint { desc: "a tile of scalars", check: |t| t.is_tile() && t.elem().is_scalar() };
pub const MEMREF: TypeConstraint = TypeConstraint { desc: "a ranked memref", check: Type::is_memref };
pub const SHARED: TypeConstraint =
    TypeConstraint { desc: "a memref in shared memory (space 3)", check: |t| t.is_memref() && memory_space(t) == 3 };

/// The number of a memref's memory space; 0 for the default one, and for other types.
pub fn memory_space(ty: Type) -> i64 {
    match ty.data() {
        TypeData::MemRef { space, .. } => space.and_then(|s| s.as_int()).unwrap_or(0),
        _ => 0,
    }
}

/// What inference answers: the result types, or why the operands do not fit.
pub type Inferred = std::result::Result<Types, String>;

/// One result type.
pub fn one(ty: Type) -> Inferred {
    Ok(smallvec![ty])
}

/// All operands have one type, and the result has it too.
pub fn infer_elementwise(args: &InferArgs) -> Inferred {
    let first = args.operand(0)?;
    match args.operands.iter().find(|&&t| t != first) {
        Some(other) => Err(format!("needs operands of one type, and has {first} and {other}")),
        None => one(first),
    }
}

/// As [`infer_elementwise`], with elements of type `i1`.
pub fn infer_predicate(args: &InferArgs) -> Inferred {
    Ok(smallvec![infer_elementwise(args)?[0].with_elem(Type::i1())])
}

/// The dimension list `name` as positions in `0..rank`, each at most once; empty where the attribute is absent.
pub fn dims_attr(args: &InferArgs, name: &str, rank: usize) -> std::result::Result<Vec<usize>, String> {
    match args.attr(name) {
        Some(_) => check_dims(name, &args.ints(name)?, rank),
        None => Ok(Vec::new()),
    }
}

/// Whether `dims` are positions in `0..rank`, each at most once.
pub fn check_dims(name: &str, dims: &[i64], rank: usize) -> std::result::Result<Vec<usize>, String> {
    let mut out = Vec::with_capacity(dims.len());
    for &d in dims {
        let at = usize::try_from(d).ok().filter(|&at| at < rank);
        let at = at.ok_or_else(|| format!("has dimension {d} in '{name}', outside of rank {rank}"))?;
        if out.contains(&at) {
            return Err(format!("has dimension {d} twice in '{name}'"));
        }
        out.push(at);
    }
    Ok(out)
}

/// The dimension `name` as a position in `0..rank`.
pub fn dim_attr(args: &InferArgs, name: &str, rank: usize) -> std::result::Result<usize, String> {
    let d = args.int(name)?;
    usize::try_from(d).ok().filter(|&at| at < rank).ok_or_else(|| format!("has '{name}' = {d}, outside of rank {rank}"))
}

/// The sizes or offsets in the attribute `name`, one for each of `rank` dimensions.
pub fn shape_attr(args: &InferArgs, name: &str, rank: usize) -> std::result::Result<Vec<Dim>, String> {
    let dims =
        args.attr(name).and_then(|a| a.as_shape()).ok_or_else(|| format!("expects the shape attribute '{name}'"))?;
    if dims.len() != rank {
        return Err(format!("has {} entries in '{name}' for rank {rank}", dims.len()));
    }
    Ok(dims.to_vec())
}

/// `ty` with another shape; an error where a vector or tile would have a size that is no integer.
pub fn reshaped(ty: Type, shape: &[Dim]) -> std::result::Result<Type, String> {
    match shape.iter().find(|d| d.is_dynamic()) {
        Some(size) if !ty.is_tensor() => {
            Err(format!("cannot give {ty} the size {size}: only tensors have symbolic sizes"))
        }
        _ => Ok(ty.with_shape(shape)),
    }
}

/// `[s, 768]`.
pub fn shape_text(dims: &[Dim]) -> String {
    let parts: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", parts.join(", "))
}

/// An error of `op` from a check's message.
pub fn fail(op: OpRef, check: std::result::Result<(), String>) -> Result {
    check.map_err(|why| op.error(why))
}

/// The type that sums and products of `elem` are accumulated in where an op does not say: f32 for narrower
/// floats, else the type itself.
pub fn default_acc(elem: Type) -> Type {
    if elem.is_float() && elem.bit_width().is_some_and(|bits| bits < 32) { Type::f32() } else { elem }
}

/// The accumulation type of an op: its `acc` attribute, or [`default_acc`] of `elem`.
pub fn acc_of(op: OpRef, elem: Type) -> Type {
    op.attr("acc").and_then(|a| a.as_type()).unwrap_or_else(|| default_acc(elem))
}
