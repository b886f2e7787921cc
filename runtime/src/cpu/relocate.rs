//! The relocations of x86-64 ELF objects (System V ABI, AMD64 supplement, table 4.9).

use object::elf;

use crate::{Error, Result};

/// What a relocation type asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    /// S + A in 64 bits.
    Absolute64,
    /// S + A in 32 bits, zero-extended by the code that reads it.
    Absolute32,
    /// S + A in 32 bits, sign-extended.
    Absolute32Signed,
    /// S + A - P in 64 bits.
    Relative64,
    /// S + A - P in 32 bits.
    Relative32,
    /// G + A - P in 32 bits, G the symbol's slot in the global offset table.
    GotRelative32,
}

impl Kind {
    /// The kind of an `R_X86_64_*` number.
    pub(super) fn of(r_type: elf::RelocationType) -> Result<Kind> {
        Ok(match r_type {
            elf::R_X86_64_NONE => Kind::None,
            elf::R_X86_64_64 => Kind::Absolute64,
            elf::R_X86_64_32 => Kind::Absolute32,
            elf::R_X86_64_32S => Kind::Absolute32Signed,
            elf::R_X86_64_PC64 => Kind::Relative64,
            // Every symbol is local to the object, so a call through a procedure linkage table is a direct one.
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => Kind::Relative32,
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => Kind::GotRelative32,
            elf::R_X86_64_TLSGD | elf::R_X86_64_TLSLD | elf::R_X86_64_GOTTPOFF | elf::R_X86_64_TPOFF32 => {
                return Err(Error::Unsupported("thread-local storage in object code".into()));
            }
            other => {
                let hint = "compile with the small code model and reloc-model=pic";
                return Err(Error::Unsupported(format!("relocation type {other} of x86-64 ELF; {hint}")));
            }
        })
    }

    pub(super) fn needs_low_memory(self) -> bool {
        matches!(self, Kind::Absolute32 | Kind::Absolute32Signed)
    }

    fn width(self) -> usize {
        match self {
            Kind::None => 0,
            Kind::Absolute64 | Kind::Relative64 => 8,
            _ => 4,
        }
    }
}

/// One relocation, its symbol resolved.
pub(super) struct Relocation {
    pub(super) kind: Kind,
    /// Where to write, in bytes from the start of the region.
    pub(super) offset: usize,
    /// The same as an address, P.
    pub(super) place: u64,
    /// The symbol's address S, or its slot's G.
    pub(super) target: u64,
    pub(super) addend: i64,
}

impl Relocation {
    /// Writes the relocated value into `bytes`, the whole region.
    pub(super) fn apply(&self, bytes: &mut [u8], symbol: &str) -> Result<()> {
        let out_of_range = || Error::Object(format!("`{symbol}` is out of reach of a {:?} relocation", self.kind));
        let width = self.kind.width();
        let field = bytes
            .get_mut(self.offset..)
            .and_then(|rest| rest.get_mut(..width))
            .ok_or_else(|| Error::Object(format!("a relocation of `{symbol}` outside its section")))?;
        let absolute = self.target.wrapping_add_signed(self.addend);
        let relative = absolute.wrapping_sub(self.place) as i64;
        match self.kind {
            Kind::None => {}
            Kind::Absolute64 => field.copy_from_slice(&absolute.to_le_bytes()),
            Kind::Relative64 => field.copy_from_slice(&relative.to_le_bytes()),
            Kind::Absolute32 => {
                field.copy_from_slice(&u32::try_from(absolute).map_err(|_| out_of_range())?.to_le_bytes())
            }
            Kind::Absolute32Signed => {
                field.copy_from_slice(&i32::try_from(absolute as i64).map_err(|_| out_of_range())?.to_le_bytes())
            }
            Kind::Relative32 | Kind::GotRelative32 => {
                field.copy_from_slice(&i32::try_from(relative).map_err(|_| out_of_range())?.to_le_bytes())
            }
        }
        Ok(())
    }
}
