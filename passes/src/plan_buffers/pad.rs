//! Padding without copies: what is padded is computed where it lies in the result, and a kernel fills what is around it.
//!
//! A launch that does nothing but pad says so (`pads`): for each dimension the result's size, the elements before, and the operand's size.

use rc_dialects::core::scalar::{splat_attr, splat_of};
use rc_dialects::op;
use rc_dialects::op::kernel;
use rc_ir::builder::new_function;
use rc_ir::{Attr, Body, Builder, Dim, Loc, Op, OpRef, Type, Value};

/// Elements of a row that are filled at once, at most.
const RUN: i64 = 64;

/// How a tensor lies in another that has more elements around it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Padding {
    dims: Vec<PaddedDim>,
    value: Attr,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PaddedDim {
    extent: i64,
    low: i64,
    size: i64,
}

/// Runs of elements around what is padded: `runs` of so many from an element on, at a distance of `pitch`.
struct Around {
    runs: i64,
    pitch: i64,
    first: i64,
    length: i64,
}

impl Padding {
    /// What a launch says of itself.
    pub fn of(launch: OpRef) -> Option<Padding> {
        let numbers: Option<Vec<i64>> = launch.attr("pads")?.as_shape()?.iter().map(|d| d.as_static()).collect();
        let dim = |n: &[i64]| PaddedDim { extent: n[0], low: n[1], size: n[2] };
        let value = launch.attr("padding").filter(|&value| splat_of(value).is_some())?;
        Some(Padding { dims: numbers?.chunks_exact(3).map(dim).collect(), value })
    }

    /// The memory of what is padded: its shape, without dimensions of one element, and strides.
    pub fn memory(&self, elem: Type) -> Type {
        let strides = self.strides();
        let kept = || self.dims.iter().zip(&strides).filter(|(dim, _)| dim.size != 1);
        let shape: Vec<Dim> = kept().map(|(dim, _)| Dim::Static(dim.size)).collect();
        let strides: Vec<Dim> = kept().map(|(_, &stride)| Dim::Static(stride)).collect();
        Type::memref(&shape, elem, 0).with_strides(&strides)
    }

    /// The first element of what is padded.
    pub fn offset(&self) -> i64 {
        self.dims.iter().zip(self.strides()).map(|(dim, stride)| dim.low * stride).sum()
    }

    /// The distance of each dimension's elements in the whole.
    pub fn strides(&self) -> Vec<i64> {
        let extent = |dim: &PaddedDim| dim.extent;
        (0..self.dims.len()).map(|d| self.dims[d + 1..].iter().map(extent).product()).collect()
    }

    fn around(&self) -> Vec<Around> {
        let mut out = Vec::new();
        for (d, (dim, stride)) in self.dims.iter().zip(self.strides()).enumerate() {
            let (runs, pitch) = (self.dims[..d].iter().map(|dim| dim.extent).product(), dim.extent * stride);
            let end = dim.low + dim.size;
            for (first, last) in [(0, dim.low), (end, dim.extent)].into_iter().filter(|(first, last)| first < last) {
                out.push(Around { runs, pitch, first: first * stride, length: (last - first) * stride });
            }
        }
        out
    }

    /// The kernel that fills what is around the operand, in memory of this type.
    pub fn kernel(&self, name: &str, memory: Type, loc: Loc) -> Body {
        let made = new_function(kernel::FUNC, name, &[memory], &[], loc);
        let mut body = made.body;
        let mut b = Builder::at_end(&mut body, made.entry);
        self.around().iter().for_each(|part| self.fill(&mut b, made.args[0], part));
        b.op(kernel::RETURN).build();
        let root = body.root();
        let attrs = [("phase", Attr::str("tile")), ("target", Attr::str("cpu")), ("origin", Attr::str("pad"))];
        attrs.into_iter().for_each(|(name, value)| body.set_attr(root, name, value));
        body.set_attr(root, "grid", Attr::shape(&[Dim::Static(1); 3]));
        body.set_attr(root, "threads", Attr::i64(1));
        body
    }

    fn fill(&self, b: &mut Builder, memory: Value, part: &Around) {
        let elem = b.ty(memory).elem();
        let step = (1..=RUN).rev().find(|step| part.length % step == 0).unwrap_or(1);
        let rows = Type::memref(&[part.runs, part.pitch].map(Dim::Static), elem, 0);
        let rows = b.op(kernel::VIEW).operand(memory).result(rows).value();
        let value = splat_of(self.value).and_then(|value| splat_attr(Type::tile(&[1, step], elem, None), value));
        let tile = value.expect("a number of the memory's type");
        let tile = b.op(op::core::CONSTANT).attr("value", tile).value();
        each(b, [0, part.runs, 1], |b, row| {
            each(b, [part.first, part.first + part.length, step], |b, column| {
                let store = b.op(kernel::STORE).operand(tile).operand(rows).operands(&[row, column]);
                store.attr("dims", Attr::i64s(&[0, 1])).build();
            });
        });
    }
}

/// A loop with known bounds and step.
fn each(b: &mut Builder, bounds: [i64; 3], then: impl FnOnce(&mut Builder, Value)) {
    let bounds = bounds.map(|n| constant(b, n));
    let op: Op = b.op(kernel::FOR).operands(&bounds).regions(1).build();
    let region = b.body.regions(op)[0];
    let block = b.body.add_block(region, &[Type::index()]);
    let counter = b.body.block_args(block).next().expect("its counter");
    b.within(block, |b| {
        then(b, counter);
        b.op(kernel::YIELD).build();
    });
}

/// A constant index.
pub fn constant(b: &mut Builder, n: i64) -> Value {
    b.op(op::core::CONSTANT).attr("value", Attr::index(n)).value()
}
