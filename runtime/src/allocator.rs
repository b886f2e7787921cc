//! Memory from the caller.

use std::ffi::c_void;

/// The caller's allocator, for the memory that runs need besides their arguments and results: on a GPU that of the device.
///
/// # Safety
/// What `allocate` gives is null, or memory of that many bytes, where the model runs, that nobody else uses until it is released.
pub unsafe trait Allocator: Send + Sync {
    /// Memory whose address is a multiple of `alignment`; null where there is none. On a GPU it is used by what is queued on the stream from here on; a null
    /// stream means at once.
    fn allocate(&self, bytes: usize, alignment: usize, stream: *mut c_void) -> *mut u8;

    /// Takes memory back, for what is queued on the stream from here on.
    fn release(&self, memory: *mut u8, bytes: usize, stream: *mut c_void);
}
