//! The section of large constants: `{-# dialect_resources: { builtin: { name: "0x…" } } #-}`. In the pretty form what is text prints as
//! `name: text "…"`.

use super::types::write_string;
use super::{CHUNK, Form, Printer};
use crate::module::{Blob, ForeignResources, Module};

impl Printer<'_> {
    pub(super) fn resources(&mut self, module: &Module) {
        let (external, of_dialects): (Vec<_>, Vec<_>) = module.foreign.iter().partition(|foreign| foreign.external);
        let dialects = !module.resources.is_empty() || !of_dialects.is_empty();
        if !dialects && external.is_empty() {
            return;
        }
        self.out.push_str("\n{-#\n");
        if dialects {
            self.out.push_str("  dialect_resources: {\n");
            self.constants(module);
            self.foreign(&of_dialects, !module.resources.is_empty());
            self.out.push_str("\n  }");
        }
        if !external.is_empty() {
            self.out.push_str(if dialects { ",\n  external_resources: {\n" } else { "  external_resources: {\n" });
            self.foreign(&external, false);
            self.out.push_str("\n  }");
        }
        self.out.push_str("\n#-}\n");
    }

    /// What rc does not interpret, each after a comma but the first.
    fn foreign(&mut self, all: &[&ForeignResources], mut after_others: bool) {
        for foreign in all {
            self.out.push_str(if after_others { ",\n    " } else { "    " });
            self.key(foreign.owner);
            self.out.push_str(": ");
            self.out.push_str(&foreign.text);
            after_others = true;
        }
    }

    fn constants(&mut self, module: &Module) {
        if module.resources.is_empty() {
            return;
        }
        self.out.push_str("    builtin: {\n");
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
        self.out.push_str("\n    }");
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
