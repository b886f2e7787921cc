//! The section of large constants: `{-# dialect_resources: { builtin: { name: "0x…" } } #-}`. In the pretty form what is text prints as
//! `name: text "…"`.

use super::types::write_string;
use super::{CHUNK, Form, Printer};
use crate::module::{Blob, Module};

impl Printer<'_> {
    pub(super) fn resources(&mut self, module: &Module) {
        if module.resources.is_empty() {
            return;
        }
        self.out.push_str("\n{-#\n  dialect_resources: {\n    builtin: {\n");
        for (i, (&name, blob)) in module.resources.iter().enumerate() {
            if i > 0 {
                self.out.push_str(",\n");
            }
            self.out.push_str("      ");
            self.key(name);
            self.out.push_str(": ");
            match blob.as_text().filter(|_| self.options.form == Form::Pretty) {
                Some(text) => {
                    self.out.push_str("text ");
                    let _ = write_string(&mut self.out, text);
                }
                None => self.blob(blob),
            }
        }
        self.out.push_str("\n    }\n  }\n#-}\n");
    }

    /// The alignment in four little-endian bytes, then the data, as hex digits.
    fn blob(&mut self, blob: &Blob) {
        self.out.push_str("\"0x");
        self.hex(&blob.align.to_le_bytes());
        for chunk in blob.bytes().chunks(CHUNK / 2) {
            self.hex(chunk);
            self.flush_if_full();
        }
        self.out.push('"');
    }
    fn hex(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        for &byte in bytes {
            self.out.push(DIGITS[usize::from(byte >> 4)] as char);
            self.out.push(DIGITS[usize::from(byte & 15)] as char);
        }
    }
}
