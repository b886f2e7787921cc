//! Bands around buffers that nothing may write to, of programs that were planned with them (`plan-buffers=guard=BYTES`), and memory
//! that holds no zeros by chance.

use crate::{Error, Result};

/// What bands hold, and an arena before a run: NaN in every float, -1 in every signed integer.
pub const POISON: u8 = 0xff;

/// A buffer in memory, with a band before and one after it.
pub struct Guarded {
    start: *mut u8,
    bytes: usize,
    band: usize,
}

impl Guarded {
    /// # Safety
    /// `band` bytes before the buffer and after it are valid, and nobody else's while the value lives.
    pub unsafe fn new(start: *mut u8, bytes: usize, band: usize) -> Guarded {
        Guarded { start, bytes, band }
    }

    /// Fills both bands.
    pub fn fill(&self) {
        // SAFETY: both are valid and nobody else's, as `new` asks for.
        unsafe {
            self.start.sub(self.band).write_bytes(POISON, self.band);
            self.start.add(self.bytes).write_bytes(POISON, self.band);
        }
    }

    /// # Errors
    /// If something was written to a band since it was filled; `writer` did it.
    pub fn check(&self, writer: &str) -> Result<()> {
        // SAFETY: as in `fill`.
        let bands = unsafe {
            let before = std::slice::from_raw_parts(self.start.sub(self.band), self.band);
            [before, std::slice::from_raw_parts(self.start.add(self.bytes), self.band)]
        };
        let written = bands.map(|band| band.iter().position(|&byte| byte != POISON));
        let place = match written {
            [Some(at), _] => format!("{} bytes before", self.band - at),
            [None, Some(at)] => format!("{at} bytes after the end of"),
            [None, None] => return Ok(()),
        };
        Err(Error::Invalid(format!("{writer} writes {place} a buffer of {} bytes", self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_beside_a_buffer_are_found() {
        for (at, found) in [(7, Some("1 bytes before")), (8, None), (11, None), (12, Some("0 bytes after the end of"))]
        {
            let mut memory = [0u8; 20];
            // SAFETY: 8 bytes lie before the buffer and 8 after it.
            let guarded = unsafe { Guarded::new(memory.as_mut_ptr().add(8), 4, 8) };
            guarded.fill();
            // SAFETY: inside of the memory.
            unsafe { memory.as_mut_ptr().add(at).write(3) };
            let message = guarded.check("a kernel").err().map(|e| e.to_string());
            assert_eq!(message, found.map(|place| format!("a kernel writes {place} a buffer of 4 bytes")));
        }
    }
}
