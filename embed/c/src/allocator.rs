//! The caller's allocator.

use crate::invalid;
use runtime::{Allocator, Error};
use std::ffi::c_void;

/// `rc_allocator`.
#[repr(C)]
pub struct RcAllocator {
    allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize, *mut c_void) -> *mut c_void>,
    release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void)>,
    context: *mut c_void,
}

/// An allocator with both of its functions.
pub struct Callers {
    allocate: unsafe extern "C" fn(*mut c_void, usize, usize, *mut c_void) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void),
    context: *mut c_void,
}

impl Callers {
    pub fn new(given: &RcAllocator) -> Result<Callers, Error> {
        let allocate = given.allocate.ok_or_else(|| invalid("the allocator's allocate is null"))?;
        let release = given.release.ok_or_else(|| invalid("the allocator's release is null"))?;
        Ok(Callers { allocate, release, context: given.context })
    }
}

// SAFETY: the header says that threads call the functions.
unsafe impl Send for Callers {}
// SAFETY: as above.
unsafe impl Sync for Callers {}

// SAFETY: the header says what the functions do.
unsafe impl Allocator for Callers {
    fn allocate(&self, bytes: usize, alignment: usize, stream: *mut c_void) -> *mut u8 {
        // SAFETY: as above.
        unsafe { (self.allocate)(self.context, bytes, alignment, stream).cast() }
    }

    fn release(&self, memory: *mut u8, bytes: usize, stream: *mut c_void) {
        // SAFETY: memory that it gave, once.
        unsafe { (self.release)(self.context, memory.cast(), bytes, stream) }
    }
}
