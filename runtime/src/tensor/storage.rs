//! Where a tensor's bytes live: memory of its own, or a mapped file.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::{Error, Result};

/// Alignment of owned storage in bytes: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// Buffers from this size on are mapped, in huge pages where the system has them: fewer page faults, and fewer misses of the address translation.
const LARGE: usize = 4 << 20;

/// Fresh pages of zeros; null where there are none.
fn map_zeroed(size: usize) -> *mut u8 {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches no other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    // Advice only: without huge pages it has no effect.
    #[cfg(target_os = "linux")]
    // SAFETY: the pages are the ones just mapped.
    unsafe {
        libc::madvise(start, size, libc::MADV_HUGEPAGE)
    };
    start.cast()
}

#[derive(Debug)]
pub(crate) enum Storage {
    Owned(AlignedBuffer),
    Mapped(memmap2::Mmap),
    Borrowed(Borrowed),
}

/// Memory that somebody else vouches for.
#[derive(Debug)]
pub(crate) struct Borrowed {
    start: *const u8,
    size: usize,
}

// SAFETY: whoever made it vouches that the memory is only read while it is in use.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Storage {
    pub(crate) fn zeroed(size: usize) -> Result<Storage> {
        Ok(Storage::Owned(AlignedBuffer::zeroed(size)?))
    }

    /// The caller's memory.
    ///
    /// # Safety
    /// `start` is not null and valid for `size` initialized bytes, which nobody writes to while the storage is in use.
    pub(crate) unsafe fn borrowed(start: *const u8, size: usize) -> Storage {
        Storage::Borrowed(Borrowed { start, size })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Storage::Owned(buffer) => buffer.bytes(),
            Storage::Mapped(map) => map,
            // SAFETY: `Storage::borrowed`'s caller vouches for these bytes.
            Storage::Borrowed(memory) => unsafe { std::slice::from_raw_parts(memory.start, memory.size) },
        }
    }
}

/// A zero-initialized buffer at a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the buffer owns its memory, and mutation needs `&mut`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    pub(crate) fn zeroed(size: usize) -> Result<AlignedBuffer> {
        let error = || Error::OutOfMemory(format!("{size} bytes on the host"));
        let layout = Layout::from_size_align(size, ALIGNMENT).map_err(|_| error())?;
        if size == 0 {
            // No memory, but still an aligned address.
            let start = NonNull::without_provenance(const { std::num::NonZero::new(ALIGNMENT).unwrap() });
            return Ok(AlignedBuffer { start, size });
        }
        // SAFETY: the size is not zero.
        let start = if size < LARGE { unsafe { alloc_zeroed(layout) } } else { map_zeroed(size) };
        Ok(AlignedBuffer { start: NonNull::new(start).ok_or_else(error)?, size })
    }

    /// The address of the first byte; whoever holds the buffer alone may write through it.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `size` initialized bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.size >= LARGE {
            // SAFETY: mapped in `zeroed` with this size.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
        } else if self.size > 0 {
            // SAFETY: allocated in `zeroed` with this same layout, which was valid there.
            unsafe { dealloc(self.start.as_ptr(), Layout::from_size_align_unchecked(self.size, ALIGNMENT)) }
        }
    }
}
