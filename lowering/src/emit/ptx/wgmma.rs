//! Matrix products of a warp group on `sm_90a`.

use super::{Ptx, Value, instructions, operand_list};

instructions! {
    FENCE = "wgmma.fence.sync.aligned;", "", "", Memory;
    COMMIT = "wgmma.commit_group.sync.aligned;", "", "", Memory;
}

/// One `wgmma`: 64 rows, `n` columns, f32 accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wgmma {
    /// A multiple of 8, 8 to 256.
    pub n: u32,
    pub element: WgmmaElement,
    /// How A lies in shared memory; TF32 has only [`Major::K`].
    pub a_major: Major,
    /// How B lies in shared memory; TF32 has only [`Major::K`].
    pub b_major: Major,
}

/// The type of A's and B's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgmmaElement {
    /// Depth 16.
    Bf16,
    /// Depth 16.
    F16,
    /// Depth 8.
    Tf32,
}

/// Which dimension of an operand is contiguous in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// The depth: rows of A, columns of B are contiguous.
    K,
    /// The other one: "transposed".
    Mn,
}

/// Where A is.
#[derive(Clone, Copy)]
pub enum WgmmaA<'m> {
    /// In shared memory; an `i64` from [`Ptx::shared_descriptor`].
    Shared(Value<'m>),
    /// In registers: 4 `i32`.
    Registers([Value<'m>; 4]),
}

/// How lines of shared memory are permuted against bank conflicts, by the numbers of the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Swizzle {
    None = 0,
    Bytes128 = 1,
    Bytes64 = 2,
    Bytes32 = 3,
}

impl Wgmma {
    /// How many f32 accumulators each thread holds.
    pub fn accumulators(&self) -> usize {
        self.n as usize / 2
    }

    /// The depth of one instruction.
    pub fn k(&self) -> u32 {
        match self.element {
            WgmmaElement::Bf16 | WgmmaElement::F16 => 16,
            WgmmaElement::Tf32 => 8,
        }
    }

    fn text(&self, a: &WgmmaA<'_>) -> String {
        let count = self.accumulators();
        let element = match self.element {
            WgmmaElement::Bf16 => "bf16",
            WgmmaElement::F16 => "f16",
            WgmmaElement::Tf32 => "tf32",
        };
        // Operands follow the accumulators twice: as results and as tied operands.
        let first = 2 * count;
        let (a_text, b) = match a {
            WgmmaA::Shared(_) => (format!("${first}"), first + 1),
            WgmmaA::Registers(_) => (format!("{{{}}}", operand_list(first, 4)), first + 4),
        };
        let transposed = |major: Major| if major == Major::Mn { ", 1" } else { ", 0" };
        let majors = match (self.element, a) {
            (WgmmaElement::Tf32, _) => String::new(),
            (_, WgmmaA::Shared(_)) => [transposed(self.a_major), transposed(self.b_major)].concat(),
            (_, WgmmaA::Registers(_)) => transposed(self.b_major).into(),
        };
        format!(
            "wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{element}.{element} {{{}}}, {a_text}, ${b}, ${}, 1, 1{majors};",
            self.n,
            self.k(),
            operand_list(0, count),
            b + 1,
        )
    }
}

impl<'m> Ptx<'_, 'm> {
    /// Orders register and shared-memory accesses before the following `wgmma`. Needed before the first one, and where
    /// registers that one uses were written otherwise.
    pub fn wgmma_fence(&self) {
        self.run(FENCE, &[]);
    }

    /// Closes a group of `wgmma`.
    pub fn wgmma_commit(&self) {
        self.run(COMMIT, &[]);
    }

    /// Waits until at most the `pending` latest groups are under way, and returns `accumulators` as they are then: go
    /// on with these, so that nothing reads an accumulator before the wait. All that are in flight belong here.
    pub fn wgmma_wait(&self, pending: u32, accumulators: &[Value<'m>]) -> Vec<Value<'m>> {
        let text = format!("wgmma.wait_group.sync.aligned {pending};");
        self.tied(&text, accumulators, &[], "")
    }

    /// Starts `A B`, or `A B + accumulators` where the `i1` `accumulate` holds. The results may be read only after
    /// [`Ptx::wgmma_wait`]; until then they only pass to further `wgmma` of the same shape.
    ///
    /// `b` is an `i64` from [`Ptx::shared_descriptor`]. Panics where the number of accumulators is not
    /// [`Wgmma::accumulators`].
    pub fn wgmma(
        &self,
        shape: Wgmma,
        accumulators: &[Value<'m>],
        a: WgmmaA<'m>,
        b: Value<'m>,
        accumulate: Value<'m>,
    ) -> Vec<Value<'m>> {
        assert!(
            shape.n.is_multiple_of(8) && (8..=256).contains(&shape.n),
            "wgmma has 8, 16, … 256 columns, not {}",
            shape.n
        );
        assert_eq!(accumulators.len(), shape.accumulators(), "accumulators of a wgmma with {} columns", shape.n);
        let text = shape.text(&a);
        match a {
            WgmmaA::Shared(a) => self.tied(&text, accumulators, &[a, b, accumulate], "llb"),
            WgmmaA::Registers([r0, r1, r2, r3]) => {
                self.tied(&text, accumulators, &[r0, r1, r2, r3, b, accumulate], "rrrrlb")
            }
        }
    }

    /// The matrix descriptor of an operand at a shared address. `leading` and `stride` are the descriptor's byte
    /// offsets, multiples of 16: between core matrices (of 8 rows of 16 bytes) along the depth (unused where swizzled
    /// and K-major), and along the rows or columns.
    pub fn shared_descriptor(&self, address: Value<'m>, leading: u32, stride: u32, swizzle: Swizzle) -> Value<'m> {
        let b = self.b;
        let fixed = (u64::from(leading >> 4) << 16) | (u64::from(stride >> 4) << 32) | ((swizzle as u64) << 62);
        let low = b.lshr(b.and(self.shared_address(address), b.i32(0x3_FFFF)), b.i32(4));
        b.or(b.zext(low, b.ty.i64), b.i64(fixed as i64))
    }

    /// The descriptor of the same matrix `bytes` (a multiple of 16) further on.
    pub fn advance_descriptor(&self, descriptor: Value<'m>, bytes: u32) -> Value<'m> {
        self.b.add(descriptor, self.b.i64(i64::from(bytes >> 4)))
    }

    /// An instruction whose results overwrite its first operands.
    fn tied(&self, text: &str, registers: &[Value<'m>], operands: &[Value<'m>], letters: &str) -> Vec<Value<'m>> {
        let count = registers.len();
        let results = (0..count).map(|_| "=f".to_owned());
        let tied = (0..count).map(|index| index.to_string());
        let rest = letters.chars().map(String::from);
        let constraints: Vec<_> = results.chain(tied).chain(rest).chain(["~{memory}".to_owned()]).collect();
        let types = vec![self.b.ty.f32; count];
        self.b.inline_asm(text, &constraints.join(","), &[registers, operands].concat(), &types, true)
    }
}
