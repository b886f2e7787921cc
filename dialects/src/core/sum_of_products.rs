//! Sums of products of what is repeated: contractions that were written elementwise.
//!
//! ```text
//! sum(a[:, :, 1, :] * b[:, 1, :, :], -1)      dot(a, b), batches of matrices
//! ```
//!
//! A nest would read both factors for each product; a contraction reads tiles of them once. Reference forms of state-space models (Mamba 2) are written so, and sums
//! over pairs.

use crate::builder::CoreBuilder;
use crate::op;
use rc_ir::rewrite::Rewriter;
use rc_ir::{Body, Builder, Dim, Op, Result, Type, Value};

/// The least rows, columns and depth of a product that pays: of fewer, tiles are mostly empty.
const LEAST: i64 = 16;

/// A factor as it was before it was repeated: the dimension of the product's space that each of its own is, none of those of one element.
struct Factor {
    value: Value,
    dims: Vec<Option<usize>>,
}

pub fn contract(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (Some(dims), Some("add")) = (at.ints("dims"), at.str("kind")) else { return Ok(false) };
    let (product, result) = (at.operand(0), at.result_types()[0]);
    let summed: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
    let Some([lhs, rhs]) = factors(rw.body, product) else { return Ok(false) };
    let Some(space) = rw.body.ty(product).static_shape() else { return Ok(false) };
    let roles = Roles::of(&space, &summed, [&lhs, &rhs]);
    if !roles.pay(&space) {
        return Ok(false);
    }
    let mut b = rw.before(op);
    let sides = [&lhs, &rhs].map(|factor| narrowed(&mut b, factor));
    let places = |side: usize, dims: &[usize]| -> Vec<i64> {
        dims.iter().filter_map(|d| sides[side].1.iter().position(|own| own == d)).map(|p| p as i64).collect()
    };
    let batch = [0, 1].map(|side| places(side, &roles.batch));
    let along = [0, 1].map(|side| places(side, &roles.summed));
    let [x, y] = [sides[0].0, sides[1].0];
    let dot = b.contract(x, y, [&batch[0], &batch[1]], [&along[0], &along[1]], result.elem());
    let free =
        |side: usize, dims: &[usize]| sides[side].1.iter().copied().filter(|d| dims.contains(d)).collect::<Vec<_>>();
    let order = [roles.batch.clone(), free(0, &roles.rows), free(1, &roles.columns)].concat();
    let mut wanted: Vec<usize> = (0..order.len()).collect();
    wanted.sort_by_key(|&i| order[i]);
    let perm: Vec<i64> = wanted.iter().map(|&i| i as i64).collect();
    let turned = b.permute(dot, &perm);
    let value = b.reshape(turned, &result.shape());
    rw.replace(op, &[value]);
    Ok(true)
}

/// The factors of a product of f32 or f64 that nothing else uses, at least one of which is repeated.
fn factors(body: &Body, product: Value) -> Option<[Factor; 2]> {
    let op = body.op_ref(body.defining_op(product)?);
    let elem = body.ty(product).elem();
    let exact = elem == Type::f32() || elem == Type::f64();
    let used_once = body.has_one_use(product);
    (op.name().as_str() == op::core::MUL && exact && used_once).then(|| [0, 1].map(|i| factor(body, op.operand(i))))
}

fn factor(body: &Body, value: Value) -> Factor {
    let shape = body.ty(value).shape();
    let repeated =
        body.defining_op(value).map(|op| body.op_ref(op)).filter(|op| op.name().as_str() == op::core::BROADCAST);
    let Some((source, dims)) = repeated.and_then(|op| Some((op.operand(0), op.ints("dims")?))) else {
        let whole = |d: usize| Some(d).filter(|&d| shape[d] != Dim::Static(1));
        return Factor { value, dims: (0..shape.len()).map(whole).collect() };
    };
    let own = body.ty(source).shape();
    let place = |(i, &d): (usize, &i64)| Some(d as usize).filter(|_| own[i] != Dim::Static(1));
    Factor { value: source, dims: dims.iter().enumerate().map(place).collect() }
}

/// A factor without the dimensions of one element, and what the others are.
fn narrowed(b: &mut Builder, factor: &Factor) -> (Value, Vec<usize>) {
    let shape = b.ty(factor.value).shape().to_vec();
    let kept: Vec<usize> = (0..shape.len()).filter(|&i| factor.dims[i].is_some()).collect();
    let sizes: Vec<Dim> = kept.iter().map(|&i| shape[i]).collect();
    (b.reshape(factor.value, &sizes), factor.dims.iter().flatten().copied().collect())
}

/// What the dimensions of the space are, each in order.
struct Roles {
    batch: Vec<usize>,
    rows: Vec<usize>,
    columns: Vec<usize>,
    summed: Vec<usize>,
    /// Whether both factors change along all that is summed.
    whole: bool,
}

impl Roles {
    fn of(space: &[i64], summed: &[usize], factors: [&Factor; 2]) -> Roles {
        let has = |side: usize, d: usize| factors[side].dims.contains(&Some(d));
        let pick = |f: &dyn Fn(usize) -> bool| (0..space.len()).filter(|&d| f(d)).collect::<Vec<usize>>();
        let is_summed = |d: usize| summed.contains(&d);
        Roles {
            batch: pick(&|d| has(0, d) && has(1, d) && !is_summed(d)),
            rows: pick(&|d| has(0, d) && !has(1, d) && !is_summed(d)),
            columns: pick(&|d| !has(0, d) && has(1, d) && !is_summed(d)),
            summed: pick(&|d| is_summed(d) && space[d] != 1),
            whole: summed.iter().all(|&d| space[d] == 1 || has(0, d) && has(1, d)),
        }
    }

    fn pay(&self, space: &[i64]) -> bool {
        let large = |dims: &[usize]| dims.iter().map(|&d| space[d]).product::<i64>() >= LEAST;
        self.whole && [&self.rows, &self.columns, &self.summed].into_iter().all(|dims| large(dims))
    }
}
