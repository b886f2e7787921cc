//! Products of static sizes, for passes that store operands in another order or form.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::DOT;
use rc_dialects::interfaces::{Contraction, ContractionRoles};
use rc_ir::{Attr, Body, Builder, Op, Value};

pub struct Product {
    pub roles: ContractionRoles,
    /// The operands' sizes.
    pub shapes: [Vec<i64>; 2],
    pub flops: f64,
}

impl Product {
    /// Of a `core.dot`; `None` where a size is symbolic.
    pub fn read(body: &Body, dot: Op) -> Option<Product> {
        let op = body.op_ref(dot);
        let roles = (op.def()?.interface::<Contraction>()?.0)(op)?;
        let shape = |v: Value| body.ty(v).static_shape().map(|s| s.to_vec());
        let (lhs, rhs, out) = (shape(op.operand(0))?, shape(op.operand(1))?, shape(op.result(0))?);
        let sums: f64 = roles.lhs_contract.iter().map(|&d| lhs[d] as f64).product();
        let flops = 2.0 * out.iter().map(|&n| n as f64).product::<f64>() * sums;
        Some(Product { roles, shapes: [lhs, rhs], flops })
    }

    /// The dimensions of an operand that are batches, free and contracted.
    pub fn dims(&self, side: usize) -> [&[usize]; 3] {
        let roles = &self.roles;
        match side {
            0 => [&roles.lhs_batch, &roles.lhs_free, &roles.lhs_contract],
            _ => [&roles.rhs_batch, &roles.rhs_free, &roles.rhs_contract],
        }
    }

    /// Elements of an operand, and how many products share what is made of it.
    pub fn shared(&self, body: &Body, dot: Op, side: usize) -> (f64, f64) {
        let users = body.uses(body.operand(dot, side)).filter(|(user, _)| body.name(*user) == &DOT).count();
        (self.shapes[side].iter().map(|&n| n as f64).product(), users as f64)
    }

    /// An operand with another dimension as the last, of which the product's attributes then speak.
    pub fn turned(&self, body: &mut Body, dot: Op, side: usize, last: usize) -> Value {
        let order: Vec<usize> = (0..self.shapes[side].len()).filter(|&d| d != last).chain([last]).collect();
        let place = |d: &usize| order.iter().position(|o| o == d).expect("all dimensions are there") as i64;
        let [batch, _, contracted] = self.dims(side);
        let name = ["lhs", "rhs"][side];
        for (role, dims) in
            [("batch", batch), ("contract", contracted)].into_iter().filter(|(_, dims)| !dims.is_empty())
        {
            let dims: Vec<i64> = dims.iter().map(place).collect();
            body.set_attr(dot, &format!("{name}_{role}"), Attr::i64s(&dims));
        }
        let value = body.operand(dot, side);
        let perm: Vec<i64> = order.iter().map(|&d| d as i64).collect();
        Builder::before(body, dot).permute(value, &perm)
    }
}
