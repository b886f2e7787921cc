//! The contract between generated CPU code and the runtime. The code generator follows this file.
//!
//! # A kernel
//!
//! ```c
//! void kernel(const uint64_t *args, const KernelCtx *ctx);   // System V x86-64
//! ```
//!
//! One call covers the programs with linear ids `ctx->begin <= id < ctx->end`; the function loops over them. The grid
//! has x innermost:
//!
//! ```text
//! id = x + grid[0] * (y + grid[1] * z)      x = id % grid[0], y = id / grid[0] % grid[1], z = id / (grid[0] * grid[1])
//! ```
//!
//! Calls run at the same time on several threads, in no order; together they cover each id of the grid exactly once.
//! A grid with a zero extent makes no call.
//!
//! # Arguments
//!
//! `args` is an array of 8-byte slots in the kernel's own order: pointers, then i64 extents and scalars. A narrower
//! scalar lies in the low bytes of its slot (an f32 as its 32 bits, an i1 as 0 or 1), upper bytes zero. The array is
//! read-only and valid during the call.
//!
//! # Context
//!
//! [`KernelCtx`], read-only, at these byte offsets ([`KernelCtx::OFFSETS`] checks them when this crate compiles):
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | `begin` | first linear id |
//! | 8 | `end` | one past the last |
//! | 16, 24, 32 | `grid` | extents in x, y, z |
//! | 40 | `thread` | 0 to `threads` - 1; calls with the same value never overlap in time |
//! | 48 | `threads` | threads that may take part in this launch |
//! | 56 | `scratch` | memory of this thread alone, 64-byte aligned, contents undefined at entry |
//! | 64 | `scratch_size` | its size in bytes, at least what the launch asked for |
//! | 72 | `entries` | [`RuntimeEntries`] |
//! | 80 | `failure` | for the runtime |
//!
//! # Runtime entries
//!
//! Object code has no undefined symbols. What it needs from outside it calls through [`RuntimeEntries`]: load
//! `ctx->entries`, load the function at the offset, call it by the System V convention.
//!
//! | offset | function |
//! |---|---|
//! | 0 | size of the table in bytes (u64), which only grows from version to version |
//! | 8 | `void fail(const KernelCtx *ctx, uint64_t code, int64_t a, int64_t b)`: makes the launch an error; returns, and the kernel then returns too, leaving the rest of its programs |
//! | 16 | `void memcpy(void *to, const void *from, uint64_t bytes)` |
//! | 24 | `void memmove(void *to, const void *from, uint64_t bytes)` |
//! | 32 | `void memset(void *to, uint32_t byte, uint64_t bytes)` |
//!
//! # Rules for generated code
//!
//! - Position-independent (`reloc-model=pic`), small code model; no thread-local storage, no constructors, no calls
//!   to libc (mark functions `"no-builtins"`, and lower `llvm.memcpy` and kin to loops or to the entries).
//! - It does not unwind, and nothing unwinds through it.
//! - It leaves the floating-point environment (MXCSR) as found: round to nearest, no flushing of subnormals. Kernels with `flush` flush them
//!   while they run.
//! - Threads have 8 MiB of stack; larger private memory is scratch, its size given at launch.

use std::mem::offset_of;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A kernel's entry point.
pub type KernelFn = unsafe extern "C" fn(args: *const u64, ctx: *const KernelCtx);

/// Version of this contract, for cache keys; changes when compiled code of an earlier version no longer works.
pub const ABI_VERSION: u32 = 1;

/// Alignment of [`KernelCtx::scratch`] in bytes.
pub const SCRATCH_ALIGNMENT: usize = 64;

/// What one call of a kernel is given; see the [module documentation](self).
#[repr(C)]
#[derive(Debug)]
pub struct KernelCtx {
    /// First linear program id of this call.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
    /// Extents of the grid in x, y, z.
    pub grid: [u64; 3],
    /// This thread's index.
    pub thread: u64,
    /// Threads that may take part.
    pub threads: u64,
    /// This thread's scratch memory.
    pub scratch: *mut u8,
    /// Its size in bytes.
    pub scratch_size: u64,
    /// The runtime's functions.
    pub entries: *const RuntimeEntries,
    /// Where `fail` records; null is allowed and then nothing is recorded.
    pub failure: *const FailureCell,
}

impl KernelCtx {
    /// Byte offsets of the fields, in order.
    pub const OFFSETS: [usize; 9] = [
        offset_of!(KernelCtx, begin),
        offset_of!(KernelCtx, end),
        offset_of!(KernelCtx, grid),
        offset_of!(KernelCtx, thread),
        offset_of!(KernelCtx, threads),
        offset_of!(KernelCtx, scratch),
        offset_of!(KernelCtx, scratch_size),
        offset_of!(KernelCtx, entries),
        offset_of!(KernelCtx, failure),
    ];
}

/// The functions that generated code calls.
#[repr(C)]
pub struct RuntimeEntries {
    /// Size of this table in bytes.
    pub size: u64,
    /// Makes the launch an error.
    pub fail: unsafe extern "C" fn(ctx: *const KernelCtx, code: u64, a: i64, b: i64),
    /// Copies between ranges that do not overlap.
    pub memcpy: unsafe extern "C" fn(to: *mut u8, from: *const u8, bytes: u64),
    /// Copies between ranges that may overlap.
    pub memmove: unsafe extern "C" fn(to: *mut u8, from: *const u8, bytes: u64),
    /// Fills with the low byte of `byte`.
    pub memset: unsafe extern "C" fn(to: *mut u8, byte: u32, bytes: u64),
}

impl RuntimeEntries {
    /// Byte offsets of the functions `fail`, `memcpy`, `memmove`, `memset`.
    pub const OFFSETS: [usize; 4] = [
        offset_of!(RuntimeEntries, fail),
        offset_of!(RuntimeEntries, memcpy),
        offset_of!(RuntimeEntries, memmove),
        offset_of!(RuntimeEntries, memset),
    ];
}

const _: () = {
    let c = KernelCtx::OFFSETS;
    assert!(c[0] == 0 && c[1] == 8 && c[2] == 16 && c[3] == 40 && c[4] == 48);
    assert!(c[5] == 56 && c[6] == 64 && c[7] == 72 && c[8] == 80);
    let e = RuntimeEntries::OFFSETS;
    assert!(e[0] == 8 && e[1] == 16 && e[2] == 24 && e[3] == 32);
};

/// The table that every launch passes.
pub static ENTRIES: RuntimeEntries =
    RuntimeEntries { size: size_of::<RuntimeEntries>() as u64, fail, memcpy, memmove, memset };

/// The first failure of a launch.
#[derive(Debug, Default)]
pub struct FailureCell {
    /// 0: none; 1: being written; 2: written.
    state: AtomicU64,
    code: AtomicU64,
    a: AtomicI64,
    b: AtomicI64,
    thread: AtomicU64,
}

impl FailureCell {
    fn record(&self, code: u64, a: i64, b: i64, thread: u64) {
        if self.state.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.code.store(code, Ordering::Relaxed);
            self.a.store(a, Ordering::Relaxed);
            self.b.store(b, Ordering::Relaxed);
            self.thread.store(thread, Ordering::Relaxed);
            self.state.store(2, Ordering::Release);
        }
    }

    /// Whether a kernel has failed so far.
    pub fn failed(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// The failure as an error, once every thread is done.
    pub fn check(&self) -> crate::Result<()> {
        if self.state.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        Err(crate::Error::Kernel {
            code: self.code.load(Ordering::Relaxed),
            a: self.a.load(Ordering::Relaxed),
            b: self.b.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
        })
    }
}

unsafe extern "C" fn fail(ctx: *const KernelCtx, code: u64, a: i64, b: i64) {
    // SAFETY: kernels pass on the context that they were given, and its cell lives as long as the launch.
    unsafe {
        if let Some(cell) = (*ctx).failure.as_ref() {
            cell.record(code, a, b, (*ctx).thread);
        }
    }
}

unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: u64) {
    // SAFETY: the kernel vouches for both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) }
}

unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: u64) {
    // SAFETY: as above.
    unsafe { std::ptr::copy(from, to, bytes as usize) }
}

unsafe extern "C" fn memset(to: *mut u8, byte: u32, bytes: u64) {
    // SAFETY: as above.
    unsafe { std::ptr::write_bytes(to, byte as u8, bytes as usize) }
}
