//! `align-products`: operands of products whose rows start at multiples of 16 bytes.
//!
//! Hopper's copy engine brings no tile of a matrix whose rows start elsewhere (a vocabulary of 50257, 197 keys): products of such operands
//! would read them element by element, at a tenth of the rate. Where a padded copy takes less time than that costs, the product reads one. Images with
//! channels first are copied to channels last instead, where a row of places is no multiple and channels are. f32 that are rounded to TF32 are multiplied by
//! warpgroups where both operands' rows are along the sums: others are turned, where that takes less time than to multiply them as they lie.

use crate::products::Product;
use crate::schedule::Target;
use crate::windows::windows_of;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::{DOT, PRECISION};
use rc_dialects::core::shape::RESHAPE;
use rc_dialects::func::FUNC;
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::{Body, Builder, Dim, Op, Result, Type, Value};

pub static ALIGN_PRODUCTS: PassDef = PassDef {
    summary: "Pads or turns operands of products that lie as no warpgroup takes them.",
    doc: "For GPUs with warpgroup products, of static sizes. f32 that may be rounded to TF32 are turned so that their rows are along the sums; other f32 stay as they are. Of \
16-bit floats rows become multiples of 16 bytes. A free dimension is padded in a copy of which the product reads \
the part that counts; a contracted one with zeros, in both operands. Short rows of an image are not padded, but the other dimension becomes the last, if its rows are \
whole: tiles then have rows of the image one after the other. A remark says what was padded, and the microseconds that the copy and \
the product as it was would take. Copies of one operand for several products become one by `cse`.",
    requires: &["decompose"],
    ..PassDef::new("align-products", |_| Ok(PassKind::symbol(run)))
};

/// Elements that 16 bytes hold.
const UNIT: i64 = 8;

/// Elements of a line of the second-level cache: rows that start within one cost a line more for each part that is read.
const LINE: i64 = 64;

/// Rows from which on padding is but a few elements of them, and tiles are filled by one.
const LONG: i64 = 512;

/// The size of a padded dimension: whole lines where they are few more elements.
fn whole(size: i64) -> i64 {
    let up = |unit: i64| (size as u64).next_multiple_of(unit as u64) as i64;
    if up(LINE) - size <= size / 16 { up(LINE) } else { up(UNIT) }
}

fn run(body: &mut Body, cx: &mut SymbolContext) -> Result {
    let Ok(target) = Target::of("", "", cx.module.attrs) else { return Ok(()) };
    if body.name(body.root()) != &FUNC || !target.has_warpgroups() {
        return Ok(());
    }
    for dot in body.walk().into_iter().filter(|&op| body.name(op) == &DOT).collect::<Vec<_>>() {
        if let Some(case) = Case::read(body, dot).filter(|case| case.pays(&target)) {
            let (flops, bytes) = (case.product.flops / 1e9, case.bytes / 1e6);
            let how = if case.words { "turned to rows along the sums" } else { "padded to rows of whole 16 bytes" };
            cx.remark(
                body.loc(dot),
                format!("operands of a product of {flops:.1} GFLOP are {how}: {bytes:.1} MB copied"),
            );
            cx.count("products aligned", 1);
            case.apply(body, dot)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Operand {
    /// The dimensions to pad, with their new sizes.
    padded: Vec<(usize, i64)>,
    /// The dimension that becomes the last instead.
    last: Option<usize>,
}

impl Operand {
    fn copied(&self) -> bool {
        !self.padded.is_empty() || self.last.is_some()
    }
}

/// A product with operands to copy.
struct Case {
    product: Product,
    operands: [Operand; 2],
    /// Read and written by the copies.
    bytes: f64,
    /// Whether operands are words that are rounded to TF32.
    words: bool,
}

impl Case {
    fn read(body: &Body, dot: Op) -> Option<Case> {
        let (op, product) = (body.op_ref(dot), Product::read(body, dot)?);
        let half = |v: Value| [Type::bf16(), Type::f16()].contains(&body.ty(v).elem());
        let words = op.attr(PRECISION.name).is_some() && op.operands().all(|v| body.ty(v).elem() == Type::f32());
        if !words && !op.operands().all(half) || product.roles.acc != Type::f32() {
            return None;
        }
        // Products gather windows where they lie, in pieces of 8 bytes, and their weights likewise.
        let windows = [0, 1].map(|side| windows_of(body, op.operand(side)).is_some());
        product.shapes.iter().all(|shape| shape.len() >= 2).then_some(())?;
        let mut case = Case { product, operands: Default::default(), bytes: 0.0, words };
        if words {
            (windows == [false; 2]).then_some(())?;
            (0..2).try_for_each(|side| case.turn(side))?;
        }
        for side in (0..2).filter(|&side| !words && !windows[side]) {
            case.align(side, windows[1 - side])?;
        }
        let width = if words { 4.0 } else { 2.0 };
        for side in (0..2).filter(|&side| case.operands[side].copied()) {
            let (elements, users) = case.product.shared(body, dot, side);
            case.bytes += 2.0 * width * elements / users;
        }
        (case.bytes > 0.0).then_some(case)
    }

    /// Notes what makes the rows of an operand of words lie along the sums; `None` where those are over several dimensions, or no whole rows.
    fn turn(&mut self, side: usize) -> Option<()> {
        let last = self.product.shapes[side].len() - 1;
        let &[summed] = self.product.dims(side)[2] else { return None };
        (self.product.shapes[side][summed] % (UNIT / 2) == 0).then_some(())?;
        self.operands[side].last = (summed != last).then_some(summed);
        Some(())
    }

    /// Notes what makes the rows of an operand whole; `None` where that is a batch dimension, or one that is contracted with windows.
    fn align(&mut self, side: usize, with_windows: bool) -> Option<()> {
        let last = self.product.shapes[side].len() - 1;
        let size = self.product.shapes[side][last];
        if size % UNIT == 0 {
            return Some(());
        }
        let whole = whole(size);
        let [batch, _, contracted] = self.product.dims(side);
        if batch.contains(&last) {
            return None;
        }
        let position = contracted.iter().position(|&d| d == last);
        if position.is_some() && with_windows {
            return None;
        }
        if let Some(other) = self.other_last(side) {
            self.operands[side].last = Some(other);
            return Some(());
        }
        let Some(n) = position else {
            self.operands[side].padded.push((last, whole));
            return Some(());
        };
        for side in 0..2 {
            let dim = self.product.dims(side)[2][n];
            if !self.operands[side].padded.iter().any(|p| p.0 == dim) {
                self.operands[side].padded.push((dim, whole));
            }
        }
        Some(())
    }

    /// The dimension that makes whole rows as the last one, where short rows of more than one dimension would be padded: a contracted one after free ones,
    /// or a free one after those that are contracted.
    fn other_last(&self, side: usize) -> Option<usize> {
        let shape = &self.product.shapes[side];
        let last = shape.len() - 1;
        let [_, free, contracted] = self.product.dims(side);
        let (own, others) = if free.contains(&last) { (free, contracted) } else { (contracted, free) };
        let several = own.iter().filter(|&&d| shape[d] > 1).count() > 1;
        let other = *others.iter().max()?;
        (several && shape[last] < LONG && shape[other] % UNIT == 0).then_some(other)
    }

    fn pays(&self, target: &Target) -> bool {
        let rates = &target.gpu().align;
        let slow = if self.words { rates.words_tflops } else { rates.slow_tflops };
        let fast = if self.words { rates.fast_tflops / 2.0 } else { rates.fast_tflops };
        let saved = self.product.flops / 1e6 * (1.0 / slow - 1.0 / fast);
        saved > self.bytes / (target.bandwidth * 1e3) + 2.0 * target.launch_us
    }

    fn apply(&self, body: &mut Body, dot: Op) -> Result {
        for (side, operand) in self.operands.iter().enumerate() {
            // What is padded here for the other operand's sake stays in its order.
            let read = match operand.last {
                Some(last) if operand.padded.is_empty() => self.product.turned(body, dot, side, last),
                _ if operand.padded.is_empty() => continue,
                _ => self.padded(body, dot, side),
            };
            body.set_operand(dot, side, read);
        }
        Ok(())
    }

    fn padded(&self, body: &mut Body, dot: Op, side: usize) -> Value {
        let (shape, padded) = (&self.product.shapes[side], &self.operands[side].padded);
        let contracted = self.product.dims(side)[2];
        let value = body.operand(dot, side);
        let copy = padded_copy(body, dot, value, shape, padded);
        // What is summed over is summed with its zeros.
        let size = |d: usize| {
            let whole = padded.iter().find(|p| p.0 == d && contracted.contains(&d));
            Dim::Static(whole.map_or(shape[d], |p| p.1))
        };
        let sizes: Vec<Dim> = (0..shape.len()).map(size).collect();
        let mut b = Builder::before(body, dot);
        let zeros = vec![Dim::Static(0); shape.len()];
        if b.ty(copy).shape().as_slice() == sizes { copy } else { b.slice(copy, &zeros, &sizes) }
    }
}

/// The value with zeros after its elements along the `padded` dimensions. A view is padded as what it is a view of, if its rows are the same, so
/// that products that see it in different shapes share a copy.
fn padded_copy(body: &mut Body, before: Op, value: Value, shape: &[i64], padded: &[(usize, i64)]) -> Value {
    let last = shape.len() - 1;
    let view = body.defining_op(value).filter(|&def| body.name(def) == &RESHAPE).map(|def| body.operand(def, 0));
    let rows_only = padded.iter().all(|p| p.0 == last);
    let source = view.filter(|&v| rows_only && body.ty(v).shape().last() == Some(&Dim::Static(shape[last])));
    let source = source.unwrap_or(value);
    let from = body.ty(source).shape();
    let mut b = Builder::before(body, before);
    let mut more = vec![Dim::Static(0); from.len()];
    for &(dim, whole) in padded {
        // Of a view only the last dimension is padded.
        let dim_of_source = if rows_only { from.len() - 1 } else { dim };
        more[dim_of_source] = Dim::Static(whole - shape[dim]);
    }
    let copy = b.pad_or_crop(source, 0.0, &vec![Dim::Static(0); from.len()], &more);
    let mut sizes: Vec<Dim> = shape.iter().map(|&n| Dim::Static(n)).collect();
    padded.iter().for_each(|&(dim, whole)| sizes[dim] = Dim::Static(whole));
    b.reshape(copy, &sizes)
}
