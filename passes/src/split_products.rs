//! `split-products`: products of f32 as products of TF32, as exact.
//!
//! An f32 is the sum of two TF32 and less than 2^-22 of it, so that a product of two is three products of these: high parts, and each high part with the other's low
//! part. Matrix units multiply them at several times the rate of multiply-adds. They cut off digits as they add: `exact_sums` has them add few products at a time.
//! After Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.

use crate::fuse::overlaps;
use crate::schedule::Target;
use crate::windows::windows_of;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::{DOT, EXACT_SUMS, PRECISION};
use rc_dialects::func::FUNC;
use rc_dialects::interfaces::{Contraction, ContractionRoles};
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::{Attr, Body, Builder, Op, Result, Type, Value};
use rc_machine::Unit;

pub static SPLIT_PRODUCTS: PassDef = PassDef {
    summary: "Multiplies f32 as sums of TF32, where that takes less time.",
    doc: "For GPUs whose warpgroups multiply TF32, products of f32 of static sizes that may not be rounded. Operands become their high and low parts side by side, along the sums; \
their products are as exact as f32's. Infinities and NaN have no low part, so that they meet the other operand once. A remark says what was split.",
    requires: &["decompose"],
    ..PassDef::new("split-products", |_| Ok(PassKind::symbol(run)))
};

/// Words that 16 bytes hold.
const UNIT: i64 = 4;

/// The largest TF32.
const LARGEST: f64 = 340_116_213_421_465_350_000_000_000_000_000_000_000.0;

/// Parts of each operand: what is multiplied is three times as long.
const PARTS: f64 = 3.0;

fn run(body: &mut Body, cx: &mut SymbolContext) -> Result {
    let Ok(target) = Target::of("", "", cx.module.attrs) else { return Ok(()) };
    let has_units = !target.is_cpu() && target.instruction(Unit::Wgmma, Type::tf32(), Type::f32()).is_some();
    if body.name(body.root()) != &FUNC || !has_units {
        return Ok(());
    }
    for dot in body.walk().into_iter().filter(|&op| body.name(op) == &DOT).collect::<Vec<_>>() {
        let Some(case) = Case::read(body, dot).filter(|case| case.pays(&target)) else { continue };
        cx.remark(
            body.loc(dot),
            format!("a product of {:.1} GFLOP is three of TF32: {:.1} MB of parts", case.flops / 1e9, case.bytes / 1e6),
        );
        cx.count("products split", 1);
        case.apply(body, dot);
    }
    Ok(())
}

/// A product to split.
struct Case {
    roles: ContractionRoles,
    flops: f64,
    /// Read and written to split the operands, and read by the product.
    bytes: f64,
}

impl Case {
    fn read(body: &Body, dot: Op) -> Option<Case> {
        let op = body.op_ref(dot);
        let roles = (op.def()?.interface::<Contraction>()?.0)(op)?;
        let words = op.operands().chain(op.results()).all(|v| body.ty(v).elem() == Type::f32());
        // Windows that overlap would be stored.
        let apart = |v: Value| windows_of(body, v).is_none_or(|windows| !overlaps(body.op_ref(windows)));
        let plain = op.attr(PRECISION.name).is_none() && op.operands().all(apart);
        if !words || !plain || roles.acc != Type::f32() {
            return None;
        }
        let shape = |v: Value| body.ty(v).static_shape().map(|s| s.to_vec());
        let (lhs, rhs, out) = (shape(op.operand(0))?, shape(op.operand(1))?, shape(op.result(0))?);
        let (&[summed], &[_]) = (&roles.lhs_contract[..], &roles.rhs_contract[..]) else { return None };
        (lhs[summed] % UNIT == 0).then_some(())?;
        let elements = |shape: &[i64]| shape.iter().map(|&n| n as f64).product::<f64>();
        let flops = 2.0 * elements(&out) * lhs[summed] as f64;
        // Products of the same operand share its parts.
        let bytes = |side: usize, shape: &[i64]| {
            let users = body.uses(op.operand(side)).filter(|(user, _)| body.name(*user) == &DOT).count();
            elements(shape) * (4.0 + 4.0 * PARTS) / users.max(1) as f64 + elements(shape) * 4.0 * (PARTS - 1.0)
        };
        Some(Case { flops, bytes: bytes(0, &lhs) + bytes(1, &rhs), roles })
    }

    fn pays(&self, target: &Target) -> bool {
        let rates = &target.gpu().align;
        let saved = self.flops / 1e6 * (1.0 / rates.exact_tflops - PARTS / rates.parts_tflops);
        saved > self.bytes / (target.bandwidth * 1e3) + 2.0 * target.launch_us
    }

    fn apply(&self, body: &mut Body, dot: Op) {
        for side in 0..2 {
            let (name, batch, contract) = match side {
                0 => ("lhs", &self.roles.lhs_batch, self.roles.lhs_contract[0]),
                _ => ("rhs", &self.roles.rhs_batch, self.roles.rhs_contract[0]),
            };
            let rank = body.ty(body.operand(dot, side)).rank();
            let order: Vec<usize> = (0..rank).filter(|&d| d != contract).chain([contract]).collect();
            let value = body.operand(dot, side);
            let parts = parts(&mut Builder::before(body, dot), value, &order, side);
            let place = |d: &usize| order.iter().position(|o| o == d).expect("all dimensions are there") as i64;
            let batch: Vec<i64> = batch.iter().map(place).collect();
            if !batch.is_empty() {
                body.set_attr(dot, &format!("{name}_batch"), Attr::i64s(&batch));
            }
            body.set_attr(dot, &format!("{name}_contract"), Attr::i64s(&[rank as i64 - 1]));
            body.set_operand(dot, side, parts);
        }
        body.set_attr(dot, PRECISION.name, Attr::str("tf32"));
        body.set_attr(dot, EXACT_SUMS.name, Attr::bool(true));
    }
}

/// The parts of an operand, its dimensions in the order given, side by side along the last: what meets the other one's high part, its low part, and what meets all
/// of it that is not finite.
fn parts(b: &mut Builder, x: Value, order: &[usize], side: usize) -> Value {
    let x = b.permute(x, &order.iter().map(|&d| d as i64).collect::<Vec<_>>());
    let ty = b.ty(x);
    let (finite, zero) = (b.unary("is_finite", x), b.splat(0.0, ty));
    // The largest numbers would be rounded to infinities.
    let below = b.binary_scalar("min", x, LARGEST);
    let within = b.binary_scalar("max", below, -LARGEST);
    let rounded = b.convert(within, Type::tf32());
    let rounded = b.convert(rounded, ty.elem());
    let high = b.select(finite, rounded, x);
    let low = b.binary("sub", x, high);
    let [low, only] = [low, rounded].map(|part| b.select(finite, part, zero));
    let order = if side == 0 { [low, only, high] } else { [only, low, high] };
    b.concat(&order, ty.rank() as i64 - 1)
}
