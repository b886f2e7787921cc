//! Where a kernel's allocations lie: shared memory, scratch, the stack.

use super::{KernelInfo, Lowering, cuda};
use crate::emit::{Space, Value};
use rc_dialects::constraints::memory_space;
use rc_dialects::op;
use rc_ir::{Body, Op, OpRef, Result};

/// The most that a CPU thread keeps on its stack; what is beyond lies in scratch memory.
const STACK: u64 = 16 << 10;

/// The most shared memory that code may declare itself.
const STATIC_SHARED: u64 = 48 << 10;

/// Places of all allocations of a kernel.
pub(super) struct Allocations {
    places: Vec<Place>,
    shared: u64,
    /// Alignment of the whole of shared memory.
    pub shared_align: u32,
}

struct Place {
    op: Op,
    kind: Kind,
    offset: u64,
    bytes: u64,
    align: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    Scratch,
    Stack,
}

impl Allocations {
    /// Gives each allocation its place and notes in `info` what memory the kernel needs. `room`: the shared memory of a GPU's block.
    ///
    /// # Errors
    /// More shared memory than there is; shared memory on a CPU.
    pub fn plan(body: &Body, info: &mut KernelInfo, room: Option<u64>) -> Result<Allocations> {
        let gpu = room.is_some();
        let mut ops: Vec<OpRef> =
            body.walk().into_iter().map(|op| body.op_ref(op)).filter(|op| op.is(op::kernel::ALLOC)).collect();
        // The most aligned first: little lies between them.
        ops.sort_by_key(|op| std::cmp::Reverse(op.int("align").unwrap_or(16)));
        let mut places = Vec::new();
        let (mut shared, mut scratch, mut stack) = (Region::default(), Region::default(), 0);
        for op in ops {
            let (bytes, align) = size_of(op)?;
            let space = memory_space(op.result_types()[0]);
            let overlay = op.str("overlay");
            let (kind, offset) = match (space, gpu) {
                (3, true) => (Kind::Shared, shared.place(bytes, align, overlay)),
                (3, false) => {
                    return Err(op
                        .unsupported("in space 3 on the CPU")
                        .help("a CPU program has one thread: use space 5"));
                }
                (_, false) if stack + bytes > STACK => (Kind::Scratch, scratch.place(bytes, align, overlay)),
                _ => {
                    stack += bytes;
                    (Kind::Stack, 0)
                }
            };
            places.push(Place { op: op.op, kind, offset, bytes, align });
        }
        let root = body.op_ref(body.root());
        let dynamic = shared.end > STATIC_SHARED;
        let room = room.unwrap_or_default();
        let bytes = u32::try_from(shared.end).ok().filter(|_| shared.end <= room).ok_or_else(|| {
            root.error(format!("needs {} bytes of shared memory; a block of the machine has {room}", shared.end))
        })?;
        (info.static_shared, info.dynamic_shared) = if dynamic { (0, bytes) } else { (bytes, 0) };
        info.scratch = scratch.end.next_multiple_of(64);
        Ok(Allocations { places, shared: shared.end, shared_align: shared.align.max(16) as u32 })
    }
}

/// Memory that fills up from its start.
#[derive(Default)]
struct Region {
    end: u64,
    align: u64,
    overlays: Vec<(&'static str, u64)>,
}

impl Region {
    fn place(&mut self, bytes: u64, align: u64, overlay: Option<&'static str>) -> u64 {
        let known = overlay.and_then(|name| self.overlays.iter().find(|o| o.0 == name)).map(|o| o.1);
        // The first of an overlay decides where it starts, at an alignment that suits any other.
        let align = if overlay.is_some() { align.max(1024) } else { align };
        let offset = known.unwrap_or_else(|| self.end.next_multiple_of(align));
        if let (Some(name), None) = (overlay, known) {
            self.overlays.push((name, offset));
        }
        self.end = self.end.max(offset + bytes);
        self.align = self.align.max(align);
        offset
    }
}

fn size_of(op: OpRef) -> Result<(u64, u64)> {
    let ty = op.result_types()[0];
    let count = ty.static_shape().and_then(|shape| shape.iter().try_fold(1i64, |n, &d| n.checked_mul(d)));
    let elem = ty.elem().byte_width();
    let bytes = count.zip(elem).and_then(|(n, width)| u64::try_from(n).ok()?.checked_mul(width));
    let Some(bytes) = bytes.filter(|&bytes| bytes < 1 << 31) else {
        return Err(op.error(format!("of type {ty} has no size, or is larger than 2 GiB")));
    };
    let align = op.int("align").unwrap_or(16);
    match u64::try_from(align) {
        Ok(align) if align.is_power_of_two() && align <= 4096 => Ok((bytes, align.max(elem.unwrap_or(1)))),
        _ => Err(op.error(format!("has 'align' = {align}: a power of two up to 4096"))),
    }
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// Makes the kernel's allocations, at its entry. `scratch` is the CPU thread's scratch memory.
    pub fn allocate(&mut self, plan: &Allocations, scratch: Option<Value<'m>>) {
        let b = self.b;
        let shared = (plan.shared > 0).then(|| b.address_of(&cuda::shared_name(self.info), Space::Shared));
        for place in &plan.places {
            let base = match place.kind {
                Kind::Shared => shared,
                Kind::Scratch => scratch,
                Kind::Stack => Some(b.alloca(b.ty.i8, place.bytes.max(1) as i64, place.align as u32)),
            };
            let base = base.expect("memory of each kind that the plan uses");
            self.values.set(self.body.result(place.op, 0), b.gep_const(b.ty.i8, base, place.offset as i32));
        }
    }
}
