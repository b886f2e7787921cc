//! Relocatable objects as LLVM emits them, made runnable without a linker.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader};
use object::read::{
    Object, ObjectSection, ObjectSymbol, Relocation as ElfRelocation, RelocationFlags, RelocationTarget,
};
use object::{LittleEndian, SectionIndex, SymbolIndex, SymbolSection};

use super::abi::KernelFn;
use super::memory::{Protection, Region, page_size};
use super::relocate::{Kind, Relocation};
use crate::{Error, Result};

#[cfg(test)]
mod tests;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// An object in memory: code executable, constants read-only, data writable, no page both writable and executable.
#[derive(Debug)]
pub struct LoadedObject {
    region: Region,
    /// Defined global and local functions, by name, as offsets into the region.
    functions: BTreeMap<String, usize>,
    size: usize,
}

/// A kernel of a loaded object, which it keeps in memory.
#[derive(Clone, Debug)]
pub struct Kernel {
    object: Arc<LoadedObject>,
    entry: KernelFn,
}

impl Kernel {
    /// The entry point, valid as long as the kernel or its object lives.
    pub fn entry(&self) -> KernelFn {
        self.entry
    }

    /// The object that holds the code.
    pub fn object(&self) -> &Arc<LoadedObject> {
        &self.object
    }
}

impl LoadedObject {
    /// Maps an ELF x86-64 relocatable object and applies its relocations. Fails where the bytes are no such object,
    /// where it refers to a symbol that it does not define (the error names it), or where it uses what a loader
    /// without a linker does not do: thread-local storage, constructors, indirect functions.
    pub fn load(bytes: &[u8]) -> Result<Arc<LoadedObject>> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Error::Unsupported("object code on a machine other than x86-64 Linux".into()));
        }
        let elf = parse(bytes)?;
        let layout = Layout::of(&elf)?;
        let relocations = collect_relocations(&elf, &layout)?;
        let got = global_offset_table(&relocations);
        let size = layout.size + got.len() * 8;
        let low = relocations.iter().any(|(_, _, kind)| kind.needs_low_memory());
        let mut region = Region::map(size, low)?;
        copy_sections(&elf, &layout, &mut region)?;
        let resolve = Resolver { elf: &elf, layout: &layout, base: region.address(0) };
        for (symbol, slot) in &got {
            let (address, _) = resolve.symbol(SymbolIndex(*symbol))?;
            let offset = layout.size + slot * 8;
            region.bytes_mut()[offset..offset + 8].copy_from_slice(&address.to_le_bytes());
        }
        for (offset, relocation, kind) in &relocations {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let (address, name) = resolve.symbol(symbol)?;
            let target = match kind {
                Kind::GotRelative32 => region.address(layout.size + got[&symbol.0] * 8),
                _ => address,
            };
            let place = region.address(*offset);
            let relocation = Relocation { kind: *kind, offset: *offset, place, target, addend: relocation.addend() };
            relocation.apply(region.bytes_mut(), &name)?;
        }
        let mut parts = layout.parts;
        // The table follows the last part, read-only data, in pages of its own.
        parts.push((layout.size..size, Protection::Read));
        region.seal(&parts)?;
        Ok(Arc::new(LoadedObject { functions: functions(&elf, &layout.offsets), region, size }))
    }

    /// The names of the functions, sorted.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// Bytes of memory, code and data together.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The address of a function of any signature.
    pub fn address(&self, name: &str) -> Result<*const ()> {
        match self.functions.get(name) {
            Some(&offset) => Ok(self.region.address(offset) as *const ()),
            None => {
                let known: Vec<_> = self.functions().take(8).collect();
                Err(Error::Object(format!("no function `{name}`; there are: {}", known.join(", "))))
            }
        }
    }

    /// A kernel by its function's name. That the function has the ABI of [`abi`](super::abi) is for the caller to
    /// know: running it is unsafe.
    pub fn kernel(self: &Arc<LoadedObject>, name: &str) -> Result<Kernel> {
        let address = self.address(name)?;
        // SAFETY: both are code pointers; the cast alone runs nothing.
        let entry = unsafe { std::mem::transmute::<*const (), KernelFn>(address) };
        Ok(Kernel { object: self.clone(), entry })
    }
}

fn error(e: object::Error) -> Error {
    Error::Object(e.to_string())
}

fn parse(bytes: &[u8]) -> Result<Elf<'_>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::Object(format!("not a 64-bit little-endian ELF file: {e}")))?;
    let header: &FileHeader64<LittleEndian> = elf.elf_header();
    let (machine, kind) = (header.e_machine(LittleEndian), header.e_type(LittleEndian));
    if machine != elf::EM_X86_64 {
        return Err(Error::Object(format!("ELF for machine {machine}, and x86-64 is {}", elf::EM_X86_64)));
    }
    if kind != elf::ET_REL {
        return Err(Error::Object(format!("an ELF file of type {kind}, and a relocatable object is {}", elf::ET_REL)));
    }
    Ok(elf)
}

/// Where each section goes.
struct Layout {
    /// The bytes of the region for each section that occupies memory, by section index.
    offsets: BTreeMap<usize, Range<usize>>,
    /// Page-aligned ranges of one protection.
    parts: Vec<(Range<usize>, Protection)>,
    size: usize,
}

impl Layout {
    /// Code first, then constants, then data; each part on pages of its own.
    fn of(elf: &Elf<'_>) -> Result<Layout> {
        let mut layout = Layout { offsets: BTreeMap::new(), parts: Vec::new(), size: 0 };
        for protection in [Protection::Execute, Protection::Read, Protection::Write] {
            let start = layout.size;
            let mut end = start;
            for section in elf.sections() {
                if section_protection(&section)? != Some(protection) {
                    continue;
                }
                let too_large = || Error::Object("sections too large for memory".into());
                let align = usize::try_from(section.align().max(1)).map_err(|_| too_large())?;
                if !align.is_power_of_two() || align > page_size() {
                    let name = section.name().map_err(error)?;
                    return Err(Error::Object(format!("section `{name}` asks for an alignment of {align}")));
                }
                let size = usize::try_from(section.size()).map_err(|_| too_large())?;
                let offset = end.next_multiple_of(align);
                end = offset.checked_add(size).filter(|&end| end < 1 << 31).ok_or_else(too_large)?;
                layout.offsets.insert(section.index().0, offset..end);
            }
            layout.size = end.next_multiple_of(page_size());
            layout.parts.push((start..layout.size, protection));
        }
        Ok(layout)
    }
}

/// How a section is to be protected; `None` where it takes no memory at run time.
fn section_protection<'data>(section: &impl ObjectSection<'data>) -> Result<Option<Protection>> {
    let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else {
        return Ok(None);
    };
    let name = section.name().map_err(error)?;
    let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
    // Nothing unwinds through kernels, so their unwind tables stay out.
    if !has(elf::SHF_ALLOC) || name == ".eh_frame" || name.starts_with(".note") {
        return Ok(None);
    }
    if has(elf::SHF_TLS) {
        return Err(Error::Unsupported(format!("thread-local storage in object code (section `{name}`)")));
    }
    if name.starts_with(".init_array") || name.starts_with(".ctors") {
        return Err(Error::Unsupported(format!("constructors in object code (section `{name}`)")));
    }
    let (write, execute) = (has(elf::SHF_WRITE), has(elf::SHF_EXECINSTR));
    match (write, execute) {
        (true, true) => Err(Error::Unsupported(format!("section `{name}`, both writable and executable"))),
        (_, true) => Ok(Some(Protection::Execute)),
        // Writable only until relocated.
        (true, _) if name.starts_with(".data.rel.ro") => Ok(Some(Protection::Read)),
        (true, _) => Ok(Some(Protection::Write)),
        _ => Ok(Some(Protection::Read)),
    }
}

fn copy_sections(elf: &Elf<'_>, layout: &Layout, region: &mut Region) -> Result<()> {
    for (&index, range) in &layout.offsets {
        // A section without bytes in the file (.bss) stays zero.
        let data = elf.section_by_index(SectionIndex(index)).and_then(|section| section.data()).map_err(error)?;
        region.bytes_mut()[range.start..range.start + data.len()].copy_from_slice(data);
    }
    Ok(())
}

/// The relocations of the sections in memory: where in the region, what, and how.
fn collect_relocations(elf: &Elf<'_>, layout: &Layout) -> Result<Vec<(usize, ElfRelocation, Kind)>> {
    let mut result = Vec::new();
    for (&index, range) in &layout.offsets {
        let section = elf.section_by_index(SectionIndex(index)).map_err(error)?;
        for (offset, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let kind = Kind::of(r_type)?;
            if kind == Kind::None {
                continue;
            }
            let inside = usize::try_from(offset).ok().filter(|&offset| offset < range.len());
            let offset =
                inside.ok_or_else(|| Error::Object(format!("a relocation at {offset:#x}, outside its section")))?;
            result.push((range.start + offset, relocation, kind));
        }
    }
    Ok(result)
}

/// A slot's number for each symbol that is reached through the global offset table.
fn global_offset_table(relocations: &[(usize, ElfRelocation, Kind)]) -> BTreeMap<usize, usize> {
    let mut slots = BTreeMap::new();
    for (_, relocation, kind) in relocations {
        if let (Kind::GotRelative32, RelocationTarget::Symbol(symbol)) = (kind, relocation.target()) {
            let next = slots.len();
            slots.entry(symbol.0).or_insert(next);
        }
    }
    slots
}

/// Finds symbols' addresses.
struct Resolver<'a, 'data> {
    elf: &'a Elf<'data>,
    layout: &'a Layout,
    base: u64,
}

impl Resolver<'_, '_> {
    /// A symbol's address and name.
    fn symbol(&self, index: SymbolIndex) -> Result<(u64, String)> {
        let symbol = self.elf.symbol_by_index(index).map_err(error)?;
        let name = symbol.name().map_err(error)?.to_string();
        if symbol.kind() == object::SymbolKind::Tls {
            return Err(Error::Unsupported(format!("thread-local storage in object code (`{name}`)")));
        }
        if symbol_type(&symbol) == elf::STT_GNU_IFUNC {
            return Err(Error::Unsupported(format!("the indirect function `{name}` in object code")));
        }
        let address = match symbol.section() {
            SymbolSection::Section(section) => {
                let range = self
                    .layout
                    .offsets
                    .get(&section.0)
                    .ok_or_else(|| Error::Object(format!("`{name}` lies in a section that is not loaded")))?;
                self.base.wrapping_add(range.start as u64).wrapping_add(symbol.address())
            }
            SymbolSection::Absolute => symbol.address(),
            SymbolSection::Common => {
                return Err(Error::Unsupported(format!("the common symbol `{name}`; give it an initializer")));
            }
            _ => {
                let hint = "object code defines all that it uses, and calls the runtime through the entries table";
                return Err(Error::Object(format!("undefined symbol `{name}`: {hint}")));
            }
        };
        Ok((address, name))
    }
}

fn symbol_type<'data>(symbol: &impl ObjectSymbol<'data>) -> elf::SymbolType {
    match symbol.flags() {
        object::SymbolFlags::Elf { st_info, .. } => st_info.st_type(),
        _ => elf::STT_NOTYPE,
    }
}

fn functions(elf: &Elf<'_>, offsets: &BTreeMap<usize, Range<usize>>) -> BTreeMap<String, usize> {
    let mut result = BTreeMap::new();
    for symbol in elf.symbols() {
        let range = symbol.section_index().and_then(|section| offsets.get(&section.0));
        let (Some(range), Ok(name), elf::STT_FUNC) = (range, symbol.name(), symbol_type(&symbol)) else {
            continue;
        };
        let inside = usize::try_from(symbol.address()).ok().filter(|&address| address < range.len());
        if let Some(address) = inside {
            result.insert(name.to_string(), range.start + address);
        }
    }
    result
}
