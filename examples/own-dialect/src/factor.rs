//! `poly-factor`: the values of a product are products of values.

use rc_dialects::CoreBuilder;
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::{Body, Builder, Op, Result};

pub static POLY_FACTOR: PassDef = PassDef {
    summary: "Evaluates the factors of a product instead of the product.",
    doc: "A poly.mul of n and m coefficients takes n * m multiplications. It goes where only a poly.eval uses it, and the values of \
          its factors, which then are multiplied, are fewer.",
    ..PassDef::new("poly-factor", |_| Ok(PassKind::symbol(run)))
};

fn run(body: &mut Body, cx: &mut SymbolContext) -> Result {
    // Factors may be products: what is made is looked at, too.
    let mut work: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == "poly.eval").rev().collect();
    while let Some(op) = work.pop() {
        let (x, c, loc) = (body.operand(op, 0), body.operand(op, 1), body.loc(op));
        let Some(product) = body.defining_op(c).filter(|&d| body.name(d) == "poly.mul") else { continue };
        if body.uses(c).count() > 1 {
            cx.remark(loc, "the product is not factored: other operations use it");
            continue;
        }
        let factors = [body.operand(product, 0), body.operand(product, 1)];
        let costs = body.ty(factors[0]).num_elements() * body.ty(factors[1]).num_elements();
        let values = body.ty(x).num_elements();
        let numbers = format!("it takes {costs} multiplications, {values} values as many");
        if values.as_static().zip(costs.as_static()).is_none_or(|(values, costs)| values >= costs) {
            cx.remark(loc, format!("the product is not factored: {numbers}"));
            continue;
        }
        let mut b = Builder::before(body, op);
        let parts = factors.map(|factor| b.op("poly.eval").operands(&[x, factor]).value());
        let value = b.binary("mul", parts[0], parts[1]);
        work.extend(parts.into_iter().rev().filter_map(|v| body.defining_op(v)));
        body.replace_op(op, &[value]);
        body.erase(product);
        cx.remark(loc, format!("the product is factored: {numbers}"));
        cx.count("products factored", 1);
    }
    Ok(())
}
