use super::Error;
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, elf};

/// A relocatable ELF object that refers to nothing outside itself.
///
/// Its relocations are `R_X86_64_PC32`, `R_X86_64_PLT32` (to a symbol of its own) and `R_X86_64_64`, so a loader maps
/// the allocated sections within 2 GiB of each other and patches them in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCode(Vec<u8>);

impl ObjectCode {
    pub(super) fn checked(bytes: Vec<u8>) -> Result<Self, Error> {
        let malformed = |error: object::Error| Error::Codegen(format!("LLVM wrote a malformed object: {error}"));
        let file = object::File::parse(&*bytes).map_err(malformed)?;
        let mut undefined = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.is_undefined()) {
            let name = symbol.name().map_err(malformed)?;
            if !name.is_empty() {
                undefined.push(name.to_owned());
            }
        }
        if !undefined.is_empty() {
            undefined.sort();
            return Err(Error::UndefinedSymbols(undefined));
        }
        let loaded = file.sections().filter(|section| section.kind() != object::SectionKind::Metadata);
        for (_, relocation) in loaded.flat_map(|section| section.relocations()) {
            match relocation.flags() {
                RelocationFlags::Elf { r_type: elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_64 } => {}
                flags => return Err(Error::Codegen(format!("not supported: relocation {flags:?} in object code"))),
            }
        }
        Ok(Self(bytes))
    }

    /// The ELF file.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The ELF file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
