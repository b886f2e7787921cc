//! Memory that code runs in: written first, then executable, never both at once.

use std::io;

use crate::{Error, Result};

/// How a part of a region is protected once it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protection {
    Execute,
    Read,
    Write,
}

/// Pages of this process, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    start: *mut u8,
    size: usize,
}

// SAFETY: the pages belong to the region alone; after sealing, what remains writable is for the code's own use.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// The size of a page in bytes.
pub(super) fn page_size() -> usize {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl Region {
    /// Maps `size` bytes of zeros, readable and writable; below 2 GiB where `low`, for code with 32-bit addresses.
    pub(super) fn map(size: usize, low: bool) -> Result<Region> {
        let size = size.max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if low { libc::MAP_32BIT } else { 0 };
        // SAFETY: a fresh anonymous mapping touches no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::OutOfMemory(format!("{size} bytes for code: {}", io::Error::last_os_error())));
        }
        Ok(Region { start: start.cast(), size })
    }

    /// The address of byte `offset`.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.start as u64 + offset as u64
    }

    /// The bytes, before sealing.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, initialized to zero, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }

    /// Protects the pages of each range of bytes (page-aligned starts). Nothing may be written through
    /// [`bytes_mut`](Region::bytes_mut) afterwards.
    pub(super) fn seal(&mut self, ranges: &[(std::ops::Range<usize>, Protection)]) -> Result<()> {
        for (range, protection) in ranges {
            let flags = match protection {
                Protection::Execute => libc::PROT_READ | libc::PROT_EXEC,
                Protection::Read => libc::PROT_READ,
                Protection::Write => libc::PROT_READ | libc::PROT_WRITE,
            };
            if range.is_empty() {
                continue;
            }
            debug_assert!(range.end <= self.size && range.start.is_multiple_of(page_size()));
            // SAFETY: the pages are this region's own.
            let status = unsafe { libc::mprotect(self.start.add(range.start).cast(), range.len(), flags) };
            if status != 0 {
                let message = format!("cannot make memory {protection:?}: {}", io::Error::last_os_error());
                return Err(Error::Object(message));
            }
        }
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; whoever runs code in it holds the region.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}
