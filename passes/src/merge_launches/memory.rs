//! Which bytes the operations of a planned function read and write.

use rc_dialects::host::{CONSTANT, COPY, LAUNCH, VIEW};
use rc_ir::{Body, Dim, Op, Type, Value};

/// Bytes of an argument of the function, or of a constant. Arguments share no memory.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    of: Value,
    start: i64,
    end: i64,
}

/// What an operation touches.
#[derive(Clone, Default, Debug)]
pub struct Access {
    reads: Vec<Bytes>,
    writes: Vec<Bytes>,
    /// It may touch anything.
    unknown: bool,
}

impl Bytes {
    fn of(body: &Body, mut value: Value) -> Bytes {
        let ty = body.ty(value);
        let size = (span(ty) * Dim::Static(ty.elem().byte_width().unwrap_or(8) as i64)).as_static();
        let mut start = Some(0);
        while let Some(op) = body.defining_op(value).filter(|&op| body.name(op) == &VIEW) {
            let offset = body.attr(op, "offset").and_then(|a| a.as_shape()?.first()?.as_static());
            start = start.zip(offset).map(|(a, b)| a + b);
            value = body.operand(op, 0);
        }
        match start.zip(size) {
            Some((start, size)) => Bytes { of: value, start, end: start + size },
            // All of it, where sizes are symbols.
            None => Bytes { of: value, start: 0, end: i64::MAX },
        }
    }
    fn meets(&self, other: &Bytes) -> bool {
        self.of == other.of && self.start < other.end && other.start < self.end
    }
}

/// How many elements lie from a memref's first to its last, both included.
fn span(ty: Type) -> Dim {
    let strides = ty.strides().filter(|_| !ty.is_row_major());
    let Some(strides) = strides else { return ty.num_elements() };
    let last = ty
        .shape()
        .iter()
        .zip(strides)
        .fold(Dim::Static(0), |sum, (&size, stride)| sum + (size - Dim::Static(1)) * stride);
    last + Dim::Static(1)
}

impl Access {
    /// What an operation touches, if it is no view and no constant. `writes`: whether a launch's callee writes to an argument.
    pub fn of(body: &Body, op: Op, writes: impl Fn(usize) -> bool) -> Option<Access> {
        let bytes = |value| Bytes::of(body, value);
        match body.name(op) {
            name if name == &VIEW || name == &CONSTANT => None,
            name if name == &COPY => {
                let (from, to) = (bytes(body.operand(op, 0)), bytes(body.operand(op, 1)));
                Some(Access { reads: vec![from], writes: vec![to], unknown: false })
            }
            name if name == &LAUNCH => {
                let mut access = Access::default();
                for (i, value) in body.operands(op).enumerate() {
                    let list = if writes(i) { &mut access.writes } else { &mut access.reads };
                    list.push(bytes(value));
                }
                Some(access)
            }
            _ => Some(Access { unknown: true, ..Access::default() }),
        }
    }

    /// Whether one must be done before the other.
    pub fn meets(&self, other: &Access) -> bool {
        let any = |a: &[Bytes], b: &[Bytes]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        self.unknown
            || other.unknown
            || any(&self.writes, &other.writes)
            || any(&self.writes, &other.reads)
            || any(&self.reads, &other.writes)
    }

    pub fn join(&mut self, other: &Access) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.unknown |= other.unknown;
    }
}
