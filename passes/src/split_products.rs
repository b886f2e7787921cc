//! `split-products`: products of f32 as products of TF32, as exact.
//!
//! An f32 is the sum of two TF32 and less than 2^-22 of it, so that a product of two is three products of these: high parts, and each high part with the other's low
//! part. Matrix units multiply them at several times the rate of multiply-adds. They cut off digits as they add: `exact_sums` has them add few products at a time.
//! After Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.

use crate::fuse::overlaps;
use crate::products::Product;
use crate::schedule::Target;
use crate::windows::windows_of;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::{DOT, EXACT_SUMS, PRECISION};
use rc_dialects::func::FUNC;
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
            format!(
                "a product of {:.1} GFLOP is three of TF32: {:.1} MB of parts",
                case.product.flops / 1e9,
                case.bytes / 1e6
            ),
        );
        cx.count("products split", 1);
        case.apply(body, dot);
    }
    Ok(())
}

/// A product to split.
struct Case {
    product: Product,
    /// Read and written to split the operands, and read by the product.
    bytes: f64,
}

impl Case {
    fn read(body: &Body, dot: Op) -> Option<Case> {
        let (op, product) = (body.op_ref(dot), Product::read(body, dot)?);
        let words = op.operands().chain(op.results()).all(|v| body.ty(v).elem() == Type::f32());
        // Windows that overlap would be stored.
        let apart = |v: Value| windows_of(body, v).is_none_or(|windows| !overlaps(body.op_ref(windows)));
        let plain = op.attr(PRECISION.name).is_none() && op.operands().all(apart);
        if !words || !plain || product.roles.acc != Type::f32() {
            return None;
        }
        let &[summed] = product.dims(0)[2] else { return None };
        (product.shapes[0][summed] % UNIT == 0).then_some(())?;
        let bytes = |side: usize| {
            let (elements, users) = product.shared(body, dot, side);
            elements * (4.0 + 4.0 * PARTS) / users + elements * 4.0 * (PARTS - 1.0)
        };
        Some(Case { bytes: bytes(0) + bytes(1), product })
    }

    fn pays(&self, target: &Target) -> bool {
        let rates = &target.gpu().align;
        let saved = self.product.flops / 1e6 * (1.0 / rates.exact_tflops - PARTS / rates.parts_tflops);
        saved > self.bytes / (target.bandwidth * 1e3) + 2.0 * target.launch_us
    }

    fn apply(&self, body: &mut Body, dot: Op) {
        for side in 0..2 {
            let rows = self.product.turned(body, dot, side, self.product.dims(side)[2][0]);
            let parts = parts(&mut Builder::before(body, dot), rows, side);
            body.set_operand(dot, side, parts);
        }
        body.set_attr(dot, PRECISION.name, Attr::str("tf32"));
        body.set_attr(dot, EXACT_SUMS.name, Attr::bool(true));
    }
}

/// The parts of an operand side by side along its last dimension, that of the sums: the left one's low, high and high part meet the right one's high, low and high part.
/// What is not finite stands in the last part alone.
fn parts(b: &mut Builder, x: Value, side: usize) -> Value {
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
