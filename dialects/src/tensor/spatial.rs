//! What convolutions and pooling share: windows over the last dimensions, with padding, steps and dilation.

use crate::builder::CoreBuilder;
use crate::core::window::windows;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrKind, InferArgs, attr};
use rc_ir::{Attr, Builder, Dim, OpRef, Value};

pub const STRIDES: AttrDef = attr("strides", AttrKind::I64Array, "Steps from window to window; absent: 1.").optional();
pub const PADDING: AttrDef =
    attr("padding", AttrKind::I64Array, "Elements added on both sides, negative: taken away; absent: 0.").optional();
pub const DILATIONS: AttrDef =
    attr("dilations", AttrKind::I64Array, "Steps from element to element of a window; absent: 1.").optional();

/// Sizes, distances and padding of windows at most: the places of their elements are numbers of 64 bits.
const MOST: i64 = i32::MAX as i64;

/// Windows over the last `rank()` dimensions.
#[derive(Clone, Debug)]
pub struct Windows {
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
    /// On both sides.
    pub padding: Vec<i64>,
    pub dilations: Vec<i64>,
}

impl Windows {
    /// From an op's attributes, for windows of these sizes.
    fn checked(sizes: Vec<i64>, list: impl Fn(&str) -> Option<Vec<i64>>) -> std::result::Result<Windows, String> {
        let rank = sizes.len();
        let steps = |name: &str, default: i64, least: i64| {
            let steps = list(name).unwrap_or_else(|| vec![default; rank]);
            let good = steps.len() == rank && steps.iter().all(|&s| (least..=MOST).contains(&s));
            if good {
                Ok(steps)
            } else {
                Err(format!("needs {rank} '{name}', each from {least} to {MOST}, and has {steps:?}"))
            }
        };
        let (strides, dilations) = (steps("strides", 1, 1)?, steps("dilations", 1, 1)?);
        let padding = steps("padding", 0, -MOST)?;
        if rank == 0 || sizes.iter().any(|s| !(1..=MOST).contains(s)) {
            return Err(format!("needs windows of sizes from 1 to {MOST}, and has {sizes:?}"));
        }
        Ok(Windows { sizes, strides, padding, dilations })
    }
    pub fn infer(sizes: Vec<i64>, args: &InferArgs) -> std::result::Result<Windows, String> {
        Windows::checked(sizes, |name| args.attr(name).and_then(|a| a.as_ints()))
    }
    /// Of a verified op.
    pub fn of(sizes: Vec<i64>, op: OpRef) -> Windows {
        Windows::checked(sizes, |name| op.ints(name)).expect("verified")
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }
    /// The elements from a window's first to its last, both counted.
    pub fn span(&self, i: usize) -> i64 {
        self.dilations[i] * (self.sizes[i] - 1) + 1
    }
    /// How many windows there are along each dimension of a tensor whose last sizes are `sizes`.
    pub fn counts(&self, sizes: &[Dim]) -> std::result::Result<Vec<Dim>, String> {
        let count = |(i, &size): (usize, &Dim)| {
            let padded = size + Dim::Static(2 * self.padding[i]);
            let why = || format!("has windows that span {} elements of {padded}, padding included", self.span(i));
            windows(padded, self.span(i), self.strides[i]).ok_or_else(why)
        };
        sizes.iter().enumerate().map(count).collect()
    }
    /// The padded tensor's windows: `[.., counts.., sizes..]`. Outside lies `value`; `extra` is added at the end of each dimension.
    pub fn take(&self, b: &mut Builder, x: Value, value: f64, extra: &[i64]) -> Value {
        let lead = b.ty(x).rank() - self.rank();
        let side = |extra: &[i64]| -> Vec<Dim> {
            let pads =
                self.padding.iter().enumerate().map(|(i, &p)| Dim::Static(p + extra.get(i).copied().unwrap_or(0)));
            std::iter::repeat_n(Dim::Static(0), lead).chain(pads).collect()
        };
        let padded = b.pad_or_crop(x, value, &side(&[]), &side(extra));
        self.slide(b, padded)
    }
    /// Each window's elements combined: a tensor over the windows. Outside lies `value`, which changes nothing; `extra` as for [`Windows::take`]. Large windows
    /// are combined along one dimension after the other: neighbours along one share what was combined along another.
    pub fn reduce(&self, b: &mut Builder, kind: &str, x: Value, value: f64, extra: &[i64]) -> Value {
        let rank = b.ty(x).rank();
        let lead = rank - self.rank();
        if !self.reduces_by_dimensions() {
            let taken = self.take(b, x, value, extra);
            return b.reduce(kind, taken, &(rank..rank + self.rank()).map(|d| d as i64).collect::<Vec<_>>());
        }
        (0..self.rank()).fold(x, |x, i| {
            let mut low = vec![Dim::Static(0); rank];
            let mut high = low.clone();
            low[lead + i] = Dim::Static(self.padding[i]);
            high[lead + i] = Dim::Static(self.padding[i] + extra.get(i).copied().unwrap_or(0));
            let padded = b.pad_or_crop(x, value, &low, &high);
            let [size, stride, dilation] = [&self.sizes, &self.strides, &self.dilations].map(|list| [list[i]]);
            let taken = b.window(padded, &[(lead + i) as i64], &size, &stride, &dilation);
            b.reduce(kind, taken, &[rank as i64])
        })
    }
    /// Whether combining by dimensions takes less than half of the steps: the others' time goes into writing and reading what lies between.
    fn reduces_by_dimensions(&self) -> bool {
        // What a dimension is combined to has the other dimensions' strides as many elements as there are windows.
        let later = |i: usize| self.strides[i + 1..].iter().product::<i64>();
        let steps: i64 = (0..self.rank()).map(|i| self.sizes[i] * later(i)).sum();
        self.sizes.iter().filter(|&&size| size > 1).count() > 1 && self.sizes.iter().product::<i64>() >= 2 * steps
    }
    /// As [`Windows::take`], along the dimensions from number `first` on, others may follow: `[.., counts.., .., sizes..]`.
    pub fn take_at(&self, b: &mut Builder, x: Value, first: usize, value: f64) -> Value {
        let mut pads = vec![Dim::Static(0); b.ty(x).rank()];
        self.padding.iter().enumerate().for_each(|(i, &p)| pads[first + i] = Dim::Static(p));
        let padded = b.pad_or_crop(x, value, &pads, &pads);
        let dims: Vec<i64> = (first..first + self.rank()).map(|d| d as i64).collect();
        b.window(padded, &dims, &self.sizes, &self.strides, &self.dilations)
    }
    /// All windows of a tensor as it is.
    fn slide(&self, b: &mut Builder, x: Value) -> Value {
        let dims = self.last(b, x);
        b.window(x, &dims, &self.sizes, &self.strides, &self.dilations)
    }
    /// The numbers of the last dimensions of `x`.
    pub fn last(&self, b: &Builder, x: Value) -> Vec<i64> {
        let rank = b.ty(x).rank();
        (rank - self.rank()..rank).map(|d| d as i64).collect()
    }

    /// The way back: for each element of a tensor whose last sizes are `sizes`, the elements of `y` (one for each window) of the
    /// windows that hold it, in the order of their elements from last to first: `[.., sizes.., window sizes..]`. Windows
    /// that are none are `value`.
    pub fn holders(&self, b: &mut Builder, y: Value, sizes: &[Dim], value: f64) -> Value {
        let lead = b.ty(y).rank() - self.rank();
        let spread = self.spread(b, y, value);
        let spread_sizes = b.ty(spread).shape()[lead..].to_vec();
        let none = std::iter::repeat_n(Dim::Static(0), lead);
        // Window o holds element i at k where i + padding = o stride + k dilation.
        let before = |i: usize| Dim::Static(self.span(i) - 1 - self.padding[i]);
        let low: Vec<Dim> = none.clone().chain((0..self.rank()).map(before)).collect();
        let after = |i: usize| sizes[i] + Dim::Static(self.span(i) - 1) - before(i) - spread_sizes[i];
        let high: Vec<Dim> = none.chain((0..self.rank()).map(after)).collect();
        let padded = b.pad_or_crop(spread, value, &low, &high);
        let dims = self.last(b, padded);
        b.window(padded, &dims, &self.sizes, &vec![1; self.rank()], &self.dilations)
    }
    /// As [`Windows::holders`], of integer sizes, along the dimensions from number `first` on and with fewer windows: `[.., sizes.., .., taps..]`, of each element
    /// those that start at most a window's length before it. The elements from one start to the next have the same, so that some may not hold an element.
    /// Outside lie zeros.
    pub fn near(&self, b: &mut Builder, y: Value, first: usize, sizes: &[i64]) -> Value {
        let steps: Vec<Remainders> = (0..self.rank()).map(|i| self.remainders(i)).collect();
        let mut low = vec![Dim::Static(0); b.ty(y).rank()];
        let mut high = low.clone();
        for (i, step) in steps.iter().enumerate() {
            (low[first + i], high[first + i]) = step.padding(Dim::Static(sizes[i]), b.ty(y).shape()[first + i]);
        }
        let padded = b.pad_or_crop(y, 0.0, &low, &high);
        let list = |of: &dyn Fn(&Remainders) -> i64| Attr::i64s(&steps.iter().map(of).collect::<Vec<_>>());
        let dims: Vec<i64> = (first..first + self.rank()).map(|d| d as i64).collect();
        let op = b.op(op::core::WINDOW).operand(padded).attr("dims", Attr::i64s(&dims));
        let op = op.attr("sizes", list(&|s| s.taps)).attr("dilations", list(&|s| s.apart));
        let op = op.attr("counts", Attr::i64s(sizes));
        op.attr("divisors", list(&|s| s.stride)).attr("offsets", list(&|s| s.first)).value()
    }
    /// How the windows that hold an element follow from its place, along dimension i.
    pub fn remainders(&self, i: usize) -> Remainders {
        let (window, stride, dilation) = (self.sizes[i], self.strides[i], self.dilations[i]);
        // The only element of a window is nowhere apart from another.
        let common = if window == 1 { stride } else { gcd(stride, dilation) };
        let classes = stride / common;
        let apart = if window == 1 { 1 } else { dilation / common };
        let (taps, apart, even) = match (classes, apart) {
            (1, _) => (window, apart, true),
            (_, 1) => ((window + classes - 1) / classes, 1, true),
            _ => ((self.span(i) + stride - 1) / stride, 1, false),
        };
        let padding = self.padding[i];
        let (first, shift) = (padding.rem_euclid(stride), padding.div_euclid(stride));
        Remainders { stride, common, classes: classes.min(window), taps, apart, even, first, shift }
    }
    /// The elements `strides` apart, with `value` between them.
    fn spread(&self, b: &mut Builder, y: Value, value: f64) -> Value {
        let lead = b.ty(y).rank() - self.rank();
        let mut y = y;
        for (i, &stride) in self.strides.iter().enumerate().filter(|s| *s.1 > 1) {
            let d = lead + i;
            let shape = b.ty(y).shape().to_vec();
            let split = [&shape[..=d], &[Dim::Static(1)], &shape[d + 1..]].concat();
            let apart = b.reshape(y, &split);
            let none = vec![Dim::Static(0); split.len()];
            let mut high = none.clone();
            high[d + 1] = Dim::Static(stride - 1);
            let padded = b.pad_or_crop(apart, value, &none, &high);
            let mut joined = shape;
            joined[d] = joined[d] * Dim::Static(stride);
            y = b.reshape(padded, &joined);
        }
        y
    }
}

/// Along one dimension: element `stride * q + r - first`, for r below `stride`, is in no windows but `q + shift - t * apart` for t below `taps`, and in
/// none unless r is `common * a` for an a below `classes`. If `even`, it is element `stride / common * t + a` of window number t.
#[derive(Clone, Debug)]
pub struct Remainders {
    pub stride: i64,
    pub common: i64,
    pub classes: i64,
    pub taps: i64,
    pub apart: i64,
    pub even: bool,
    pub first: i64,
    pub shift: i64,
}

impl Remainders {
    /// How many q there are for so many elements.
    pub fn count(&self, size: Dim) -> Dim {
        (size + Dim::Static(self.first)).ceildiv(Dim::Static(self.stride))
    }
    /// What the windows' values, so many of them, are padded by so that their windows of `taps`, `apart` from one another, are those of each q, from the
    /// last t to the first.
    pub fn padding(&self, size: Dim, windows: Dim) -> (Dim, Dim) {
        let reach = self.apart * (self.taps - 1);
        let low = reach - self.shift;
        (Dim::Static(low), self.count(size) + Dim::Static(reach - low) - windows)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The product of sizes.
pub fn product(dims: &[Dim]) -> Dim {
    dims.iter().fold(Dim::Static(1), |n, &d| n * d)
}

/// The attribute `groups`.
pub const GROUPS: AttrDef =
    attr("groups", AttrKind::I64, "Channels come in so many groups, each with its own weights.")
        .default(rc_ir::op_def::AttrDefault::Int(1));

/// The dimensions of so many results of channels that are alone: `[channels, results of each]`, or `[channels]` where each has one.
pub fn own_results(channels: Dim, results: Dim) -> Vec<Dim> {
    let each = results.floordiv(channels);
    if each == Dim::Static(1) { vec![channels] } else { vec![channels, each] }
}

pub fn groups_of(op: OpRef) -> i64 {
    op.int("groups").unwrap_or(1)
}

/// A zero-based counter along dimension `dim` of `shape`, in i64.
pub fn iota(b: &mut Builder, shape: &[Dim], dim: usize) -> Value {
    let ty = rc_ir::Type::tensor(shape, rc_ir::Type::i64());
    b.op(op::core::IOTA).attr("dim", Attr::i64(dim as i64)).result(ty).value()
}
