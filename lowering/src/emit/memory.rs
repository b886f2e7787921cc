//! Addresses, loads, stores and atomics.

use super::{Builder, Type, Value};
use melior::ir::{Attribute, ValueLike, attribute::TypeAttribute};

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address is a multiple of this many bytes. A vector at a scalar's alignment is right everywhere on the CPU;
    /// on the GPU an access of n bytes at once needs alignment n.
    pub align: u32,
    /// Not cached: the data is not used again (`movnt` on the CPU, `.cs` on the GPU).
    pub nontemporal: bool,
    /// Nothing writes there while the function runs (`ld.global.nc` on the GPU).
    pub invariant: bool,
    pub volatile: bool,
}

impl Access {
    /// An ordinary access.
    pub fn aligned(align: u32) -> Self {
        Self { align, nontemporal: false, invariant: false, volatile: false }
    }

    /// A read of memory that nothing writes while the function runs.
    pub fn invariant(align: u32) -> Self {
        Self { invariant: true, ..Self::aligned(align) }
    }
}

/// Atomic read-modify-write operations, by MLIR's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum AtomicOp {
    Exchange = 0,
    Add = 1,
    Sub = 2,
    And = 3,
    Or = 5,
    Xor = 6,
    SMax = 7,
    SMin = 8,
    UMax = 9,
    UMin = 10,
    FAdd = 11,
}

/// Memory orders, by MLIR's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum Ordering {
    Relaxed = 2,
    Acquire = 4,
    Release = 5,
    AcquireRelease = 6,
    SequentiallyConsistent = 7,
}

/// MLIR's mark for an index that is an operand rather than a constant.
const DYNAMIC_INDEX: i32 = i32::MIN;
/// LLVM's mark for an address inside of what its base points to.
const INBOUNDS: i32 = 3;

impl<'m> Builder<'m> {
    /// The address of element `index` (an `i32` or `i64`, signed) in an array of `element` at `base`.
    pub fn gep(&self, element: Type<'m>, base: Value<'m>, index: Value<'m>) -> Value<'m> {
        self.gep_op(element, &[base, index], DYNAMIC_INDEX, INBOUNDS)
    }

    /// [`Builder::gep`] of an element that may lie outside of what `base` points to.
    pub fn gep_outside(&self, element: Type<'m>, base: Value<'m>, index: Value<'m>) -> Value<'m> {
        self.gep_op(element, &[base, index], DYNAMIC_INDEX, 0)
    }

    /// [`Builder::gep`] with a constant index.
    pub fn gep_const(&self, element: Type<'m>, base: Value<'m>, index: i32) -> Value<'m> {
        if index == 0 { base } else { self.gep_op(element, &[base], index, INBOUNDS) }
    }

    /// The address `bytes` (an `i32` or `i64`, signed) past `base`.
    pub fn gep_bytes(&self, base: Value<'m>, bytes: Value<'m>) -> Value<'m> {
        self.gep(self.ty.i8, base, bytes)
    }

    fn gep_op(&self, element: Type<'m>, operands: &[Value<'m>], index: i32, flags: i32) -> Value<'m> {
        let attributes = [
            ("rawConstantIndices", self.i32_array(&[index])),
            ("elem_type", TypeAttribute::new(element).into()),
            ("noWrapFlags", self.i32_attribute(flags)),
        ];
        self.op1("llvm.getelementptr", operands, operands[0].r#type(), &attributes)
    }

    /// Loads a scalar or a vector.
    pub fn load(&self, r#type: Type<'m>, pointer: Value<'m>, access: Access) -> Value<'m> {
        let mut attributes = self.access_attributes(access);
        if access.invariant {
            attributes.push(("invariant", self.unit_attribute()));
        }
        self.op1("llvm.load", &[pointer], r#type, &attributes)
    }

    /// Stores a scalar or a vector.
    pub fn store(&self, value: Value<'m>, pointer: Value<'m>, access: Access) {
        self.op("llvm.store", &[value, pointer], &[], &self.access_attributes(access), &[]);
    }

    /// Loads the lanes whose `mask` (a vector of `i1`) is set; the others are those of `other`, and their memory is
    /// not touched.
    pub fn masked_load(&self, pointer: Value<'m>, mask: Value<'m>, other: Value<'m>, align: u32) -> Value<'m> {
        let align = [("alignment", self.i32_attribute(align as i32))];
        self.op1("llvm.intr.masked.load", &[pointer, mask, other], other.r#type(), &align)
    }

    /// Stores the lanes whose `mask` (a vector of `i1`) is set.
    pub fn masked_store(&self, value: Value<'m>, pointer: Value<'m>, mask: Value<'m>, align: u32) {
        let align = [("alignment", self.i32_attribute(align as i32))];
        self.op("llvm.intr.masked.store", &[value, pointer, mask], &[], &align, &[]);
    }

    /// `count` elements on the stack, in the function's frame. Call it at the entry, not in a loop.
    pub fn alloca(&self, element: Type<'m>, count: i64, align: u32) -> Value<'m> {
        let attributes =
            [("elem_type", TypeAttribute::new(element).into()), ("alignment", self.i64_attribute(align.into()))];
        self.op1("llvm.alloca", &[self.i64(count)], self.ty.ptr, &attributes)
    }

    /// Atomically combines `value` into memory and returns what was there. `scope` is LLVM's: empty for all of the
    /// system, `device` or `block` on the GPU.
    pub fn atomic(
        &self,
        op: AtomicOp,
        pointer: Value<'m>,
        value: Value<'m>,
        ordering: Ordering,
        scope: &str,
    ) -> Value<'m> {
        let mut attributes =
            vec![("bin_op", self.i64_attribute(op as i64)), ("ordering", self.i64_attribute(ordering as i64))];
        if !scope.is_empty() {
            attributes.push(("syncscope", self.string_attribute(scope)));
        }
        self.op1("llvm.atomicrmw", &[pointer, value], value.r#type(), &attributes)
    }

    /// Loads a scalar with an order between threads: acquire or relaxed.
    pub fn atomic_load(
        &self,
        r#type: Type<'m>,
        pointer: Value<'m>,
        ordering: Ordering,
        align: u32,
        scope: &str,
    ) -> Value<'m> {
        let attributes = self.atomic_attributes(ordering, align, scope);
        self.op1("llvm.load", &[pointer], r#type, &attributes)
    }

    /// Stores a scalar with an order between threads: release or relaxed.
    pub fn atomic_store(&self, value: Value<'m>, pointer: Value<'m>, ordering: Ordering, align: u32, scope: &str) {
        let attributes = self.atomic_attributes(ordering, align, scope);
        self.op("llvm.store", &[value, pointer], &[], &attributes, &[]);
    }

    /// Hints that the CPU's cache line at `pointer` is read soon.
    pub fn prefetch(&self, pointer: Value<'m>) {
        let attributes =
            [("rw", self.i32_attribute(0)), ("hint", self.i32_attribute(3)), ("cache", self.i32_attribute(1))];
        self.op("llvm.intr.prefetch", &[pointer], &[], &attributes, &[]);
    }

    fn access_attributes(&self, access: Access) -> Vec<(&'static str, Attribute<'m>)> {
        let mut attributes = vec![("alignment", self.i64_attribute(access.align.into()))];
        if access.volatile {
            attributes.push(("volatile_", self.unit_attribute()));
        }
        if access.nontemporal {
            attributes.push(("nontemporal", self.unit_attribute()));
        }
        attributes
    }

    fn atomic_attributes(&self, ordering: Ordering, align: u32, scope: &str) -> Vec<(&'static str, Attribute<'m>)> {
        let mut attributes =
            vec![("alignment", self.i64_attribute(align.into())), ("ordering", self.i64_attribute(ordering as i64))];
        if !scope.is_empty() {
            attributes.push(("syncscope", self.string_attribute(scope)));
        }
        attributes
    }
}
