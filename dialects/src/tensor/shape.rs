//! Shapes and choice: permute, reshape, cat, split, where.

use super::arith::broadcast_shapes;
use crate::builder::CoreBuilder;
use crate::constraints::{BOOL_TENSOR, Inferred, TENSOR, check_dims, one};
use crate::interfaces::Decompose;
use rc_ir::op_def::{AttrKind, InferArgs, Types, attr, operand, result, variadic, variadic_result};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Value};

pub static PERMUTE: OpDef = OpDef {
    summary: "Permutes dimensions.",
    doc: "Dimension `i` of the result is dimension `dims[i]` of the operand; negative ones count from the end.",
    example: "func.func @permute(%x: tensor<2x3x5xf32>) -> tensor<5x2x3xf32> {
  %y = tensor.permute %x {dims = [-1, 0, 1]} : tensor<5x2x3xf32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[attr("dims", AttrKind::I64Array, "A permutation of the operand's dimensions.")],
    effects: Effects::Pure,
    infer: Some(infer_permute),
    interfaces: &[&Decompose(define_permute)],
    ..OpDef::new("rc.tensor.permute")
};

pub static RESHAPE: OpDef = OpDef {
    summary: "The same elements in row-major order, in another shape.",
    doc: "Sizes are expressions over the function's symbols. One may be -1: what the number of elements leaves for it, where \
          that is a multiple of the other sizes.",
    example: "func.func @reshape(%x: tensor<s x 12 x f32>) -> tensor<s x 3 x 4 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %y = tensor.reshape %x {shape = [s, -1, 4]} : tensor<s x 3 x 4 x f32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[attr("shape", AttrKind::Shape, "The shape of the result.")],
    effects: Effects::Pure,
    infer: Some(infer_reshape),
    interfaces: &[&Decompose(|b, op| {
        let (x, shape) = (b.body.operand(op, 0), b.ty(b.body.result(op, 0)).shape());
        Ok(vec![b.reshape(x, &shape)])
    })],
    ..OpDef::new("rc.tensor.reshape")
};

pub static CAT: OpDef = OpDef {
    summary: "Joins tensors along a dimension.",
    doc: "All other sizes are equal. A negative dimension counts from the end.",
    example: "func.func @cat(%x: tensor<3x2xf32>, %y: tensor<3x5xf32>) -> tensor<3x7xf32> {
  %z = tensor.cat %x, %y {dim = -1} : tensor<3x7xf32>
  func.return %z
}
",
    operands: &[variadic("xs", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension along which the operands follow one another.")],
    effects: Effects::Pure,
    infer: Some(infer_cat),
    interfaces: &[&Decompose(define_cat)],
    ..OpDef::new("rc.tensor.cat")
};

pub static SPLIT: OpDef = OpDef {
    summary: "Parts of a tensor along a dimension.",
    doc: "One result for each of `sizes`, which add up to the dimension's size. A negative dimension counts from the end.",
    example: "func.func @split(%x: tensor<3x7xf32>) -> (tensor<3x2xf32>, tensor<3x5xf32>) {
  %y, %z = tensor.split %x {sizes = [2, 5], dim = -1} : tensor<3x2xf32>, tensor<3x5xf32>
  func.return %y, %z
}
",
    operands: &[operand("x", TENSOR)],
    results: &[variadic_result("parts", TENSOR)],
    attrs: &[
        attr("sizes", AttrKind::Shape, "The sizes of the parts."),
        attr("dim", AttrKind::I64, "The dimension that is divided."),
    ],
    effects: Effects::Pure,
    infer: Some(infer_split),
    interfaces: &[&Decompose(define_split)],
    ..OpDef::new("rc.tensor.split")
};

pub static WHERE: OpDef = OpDef {
    summary: "Elementwise choice with broadcasting: `on_true` where `cond`, else `on_false`.",
    doc: "Shapes broadcast by numpy's rules. An element that is not chosen has no effect, be it NaN.",
    example: "func.func @where(%c: tensor<3x1xi1>, %x: tensor<5xf32>, %y: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %z = tensor.where %c, %x, %y : tensor<3x5xf32>
  func.return %z
}
",
    operands: &[operand("cond", BOOL_TENSOR), operand("on_true", TENSOR), operand("on_false", TENSOR)],
    results: &[result("result", TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_where),
    interfaces: &[&Decompose(define_where)],
    ..OpDef::new("rc.tensor.where")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&PERMUTE, &RESHAPE, &CAT, &SPLIT, &WHERE];

fn from_start(d: i64, rank: usize) -> i64 {
    if d < 0 { d.saturating_add(rank as i64) } else { d }
}

/// The attribute `dim` from 0.
fn dim_of(args: &InferArgs, rank: usize) -> std::result::Result<usize, String> {
    Ok(check_dims("dim", &[from_start(args.int("dim")?, rank)], rank)?[0])
}

fn infer_permute(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims: Vec<i64> = args.ints("dims")?.iter().map(|&d| from_start(d, x.rank())).collect();
    let dims = check_dims("dims", &dims, x.rank())?;
    if dims.len() != x.rank() {
        return Err(format!("has {} entries in 'dims' for {x}", dims.len()));
    }
    let shape = x.shape();
    one(x.with_shape(&dims.iter().map(|&d| shape[d]).collect::<Vec<_>>()))
}

fn define_permute(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let rank = b.ty(x).rank();
    let dims: Vec<i64> =
        b.body.op_ref(op).ints("dims").expect("verified").iter().map(|&d| from_start(d, rank)).collect();
    Ok(vec![b.permute(x, &dims)])
}

fn infer_reshape(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let shape = args.attr("shape").and_then(|a| a.as_shape()).ok_or("expects the shape attribute 'shape'")?;
    let open: Vec<usize> = (0..shape.len()).filter(|&d| shape[d] == Dim::Static(-1)).collect();
    let rest = |skip: &[usize]| {
        let sizes = shape.iter().enumerate().filter(|(d, _)| !skip.contains(d));
        sizes.fold(Dim::Static(1), |n, (_, &size)| n * size)
    };
    if open.len() > 1
        || shape.iter().enumerate().any(|(d, n)| !open.contains(&d) && n.as_static().is_some_and(|n| n < 0))
    {
        return Err("needs sizes that are not negative, but for one -1".into());
    }
    let (count, mut sizes) = (x.num_elements(), shape.to_vec());
    if let &[d] = open.as_slice() {
        sizes[d] =
            quotient(count, rest(&open)).ok_or_else(|| format!("cannot divide {count} elements by {}", rest(&open)))?;
    } else if count != rest(&[]) || count == Dim::Dynamic {
        return Err(format!("has {count} elements in its operand and {} in its result", rest(&[])));
    }
    one(x.with_shape(&sizes))
}

/// `count / by` where it comes out even: for a single product of symbols, with those of `by` divided out.
fn quotient(count: Dim, by: Dim) -> Option<Dim> {
    let (a, b) = (count.polynomial()?, by.polynomial()?);
    let whole = match (b.terms.as_slice(), b.constant) {
        ([], n) if n > 0 => count.floordiv(by),
        // Divide the symbols of `by` out of every term, then the coefficient.
        ([(monomial, n)], 0) if *n > 0 && a.constant == 0 => {
            let mut out = a.clone();
            for (factors, _) in &mut out.terms {
                for (atom, power) in monomial {
                    let factor = factors.iter_mut().find(|f| f.0 == *atom && f.1 >= *power)?;
                    factor.1 -= power;
                }
                factors.retain(|f| f.1 > 0);
            }
            rebuilt(&out).floordiv(Dim::Static(*n))
        }
        _ => return None,
    };
    (whole * by == count).then_some(whole)
}

/// The canonical dimension of a polynomial whose terms may need merging.
fn rebuilt(p: &rc_ir::dim::Polynomial) -> Dim {
    p.terms.iter().fold(Dim::Static(p.constant), |sum, (factors, n)| {
        let term = rc_ir::dim::Polynomial { terms: vec![(factors.clone(), 1)], constant: 0 };
        sum + Dim::Static(*n) * if factors.is_empty() { Dim::Static(1) } else { Dim::from(term) }
    })
}

fn infer_cat(args: &InferArgs) -> Inferred {
    let first = args.operand(0)?;
    let dim = dim_of(args, first.rank())?;
    crate::core::slice::joined(args.operands, dim)
}

fn define_cat(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let parts: Vec<Value> = b.body.operands(op).collect();
    let dim = from_start(b.body.op_ref(op).int("dim").expect("verified"), b.ty(parts[0]).rank());
    Ok(vec![b.concat(&parts, dim)])
}

fn infer_split(args: &InferArgs) -> std::result::Result<Types, String> {
    let x = args.operand(0)?;
    let dim = dim_of(args, x.rank())?;
    let sizes = args.attr("sizes").and_then(|a| a.as_shape()).ok_or("expects the shape attribute 'sizes'")?;
    let mut shape = x.shape();
    let total = sizes.iter().fold(Dim::Static(0), |n, &size| n + size);
    if total != shape[dim] || sizes.iter().any(|s| s.as_static().is_some_and(|n| n < 0)) {
        return Err(format!("has parts of {total} in all for dimension {dim} of size {}", shape[dim]));
    }
    let parts = sizes.iter().map(|&size| {
        shape[dim] = size;
        x.with_shape(&shape)
    });
    Ok(parts.collect())
}

fn define_split(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let rank = b.ty(x).rank();
    let dim = from_start(b.body.op_ref(op).int("dim").expect("verified"), rank) as usize;
    let types: Vec<_> = b.body.op_ref(op).result_types().to_vec();
    let mut starts = vec![Dim::Static(0); rank];
    let mut parts = Vec::with_capacity(types.len());
    for ty in types {
        let sizes = ty.shape();
        parts.push(b.slice(x, &starts, &sizes));
        starts[dim] = starts[dim] + sizes[dim];
    }
    Ok(parts)
}

fn infer_where(args: &InferArgs) -> Inferred {
    let (cond, a, b) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    if a.elem() != b.elem() {
        return Err(format!(
            "has alternatives of element types {} and {}; convert one with core.convert",
            a.elem(),
            b.elem()
        ));
    }
    let shape = broadcast_shapes(&a.shape(), &b.shape())?;
    one(a.with_shape(&broadcast_shapes(&cond.shape(), &shape)?))
}

fn define_where(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let shape = b.ty(b.body.result(op, 0)).shape();
    let operands: Vec<Value> = b.body.operands(op).collect();
    let wide: Vec<Value> = operands.into_iter().map(|v| b.broadcast_to(v, &shape)).collect();
    Ok(vec![b.select(wide[0], wide[1], wide[2])])
}
