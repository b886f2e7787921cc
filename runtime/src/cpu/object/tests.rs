//! Objects assembled by hand, so that the tests need no compiler.

use object::elf;
use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};

use super::*;
use crate::cpu::{Launch, Pool, PoolOptions};

/// `offsets(args, ctx)` stores `id + 1000 + 5 + 2000 + 1` at `args[0][id]` for each id of its range: 1000 from a
/// constant (PC32), 5 from a variable (GOTPCREL), 2000 through a pointer (64), 1 by a helper (PLT32).
const OFFSETS: &[u8] = &[
    0x48, 0x8b, 0x07, // mov rax, [rdi]
    0x48, 0x8b, 0x0e, // mov rcx, [rsi]
    0x48, 0x8b, 0x56, 0x08, // mov rdx, [rsi + 8]
    0x4c, 0x8b, 0x05, 0, 0, 0, 0, // mov r8, [rip + constant]
    0x4c, 0x8b, 0x0d, 0, 0, 0, 0, // mov r9, [rip + variable@GOTPCREL]
    0x4d, 0x03, 0x01, // add r8, [r9]
    0x4c, 0x8b, 0x0d, 0, 0, 0, 0, // mov r9, [rip + pointer]
    0x4d, 0x03, 0x01, // add r8, [r9]
    0xe8, 0, 0, 0, 0, // call helper@PLT
    0x48, 0x39, 0xd1, // 1: cmp rcx, rdx
    0x73, 0x0d, // jae 2f
    0x4e, 0x8d, 0x14, 0x01, // lea r10, [rcx + r8]
    0x4c, 0x89, 0x14, 0xc8, // mov [rax + 8*rcx], r10
    0x48, 0xff, 0xc1, // inc rcx
    0xeb, 0xee, // jmp 1b
    0xc3, // 2: ret
];
const HELPER: &[u8] = &[0x49, 0xff, 0xc0, 0xc3]; // inc r8; ret
/// `fails(args, ctx)`: `ctx->entries->fail(ctx, 7, ctx->begin, ctx->end)`.
const FAILS: &[u8] = &[
    0x48, 0x89, 0xf7, // mov rdi, rsi
    0x48, 0x8b, 0x46, 0x48, // mov rax, [rsi + 72]
    0x48, 0x8b, 0x40, 0x08, // mov rax, [rax + 8]
    0x48, 0x8b, 0x4f, 0x08, // mov rcx, [rdi + 8]
    0x48, 0x8b, 0x17, // mov rdx, [rdi]
    0xbe, 0x07, 0, 0, 0, // mov esi, 7
    0xff, 0xe0, // jmp rax
];
/// `uint64_t absolute(void)` reads the constant at a 32-bit address.
const ABSOLUTE: &[u8] = &[0xb8, 0, 0, 0, 0, 0x48, 0x8b, 0x00, 0xc3]; // mov eax, offset constant; mov rax, [rax]; ret
const SIGNED: &[u8] = &[0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0xc3]; // mov rax, [constant]; ret

struct Builder(Object<'static>);

impl Builder {
    fn new() -> Builder {
        Builder(Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little))
    }

    fn define(
        &mut self,
        name: &str,
        kind: SymbolKind,
        section: StandardSection,
        bytes: &[u8],
        align: u64,
    ) -> (SymbolId, SectionId, u64) {
        let symbol = self.symbol(name, kind);
        let section = self.0.section_id(section);
        let offset = self.0.add_symbol_data(symbol, section, bytes, align);
        (symbol, section, offset)
    }

    fn symbol(&mut self, name: &str, kind: SymbolKind) -> SymbolId {
        self.0.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size: 0,
            kind,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Undefined,
            flags: SymbolFlags::None,
        })
    }

    fn function(&mut self, name: &str, code: &[u8]) -> (SymbolId, SectionId, u64) {
        self.define(name, SymbolKind::Text, StandardSection::Text, code, 16)
    }

    fn relocate(
        &mut self,
        section: SectionId,
        offset: u64,
        symbol: SymbolId,
        r_type: elf::RelocationType,
        addend: i64,
    ) {
        let flags = RelocationFlags::Elf { r_type };
        self.0.add_relocation(section, Relocation { offset, symbol, addend, flags }).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.write().unwrap()
    }
}

/// The object with `offsets` and `fails`; its GOT relocation is of type `got`.
fn sample(got: elf::RelocationType) -> Builder {
    let mut b = Builder::new();
    let (constant, ..) = b.define("constant", SymbolKind::Data, StandardSection::ReadOnlyData, &u64s(&[1000, 2000]), 8);
    let (variable, ..) = b.define("variable", SymbolKind::Data, StandardSection::Data, &u64s(&[5]), 8);
    let (pointer, data, at) =
        b.define("pointer", SymbolKind::Data, StandardSection::ReadOnlyDataWithRel, &u64s(&[0]), 8);
    b.relocate(data, at, constant, elf::R_X86_64_64, 8);
    let (helper, ..) = b.function("helper", HELPER);
    let (_, text, at) = b.function("offsets", OFFSETS);
    b.relocate(text, at + 0x0d, constant, elf::R_X86_64_PC32, -4);
    b.relocate(text, at + 0x14, variable, got, -4);
    b.relocate(text, at + 0x1e, pointer, elf::R_X86_64_PC32, -4);
    b.relocate(text, at + 0x26, helper, elf::R_X86_64_PLT32, -4);
    b.function("fails", FAILS);
    b
}

fn u64s(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn runs_with_every_pic_relocation() {
    let pool = Pool::new(PoolOptions::with_threads(3)).unwrap();
    for got in [elf::R_X86_64_GOTPCREL, elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX] {
        let object = LoadedObject::load(&sample(got).bytes()).unwrap();
        assert_eq!(object.functions().collect::<Vec<_>>(), ["fails", "helper", "offsets"]);
        let kernel = object.kernel("offsets").unwrap();
        drop(object);
        let mut out = vec![0u64; 7 * 11 * 13];
        let args = [out.as_mut_ptr() as u64];
        // SAFETY: the kernel writes one slot of `out` for each program.
        unsafe { pool.launch(kernel.entry(), &args, Launch::grid([7, 11, 13])).unwrap() };
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as u64 + 3006), "{:?}", &out[..9]);
    }
}

#[test]
fn failures_come_back_as_errors() {
    let pool = Pool::new(PoolOptions::with_threads(2)).unwrap();
    let kernel = LoadedObject::load(&sample(elf::R_X86_64_GOTPCREL).bytes()).unwrap().kernel("fails").unwrap();
    // SAFETY: the kernel reads its context alone.
    let error =
        unsafe { pool.launch(kernel.entry(), &[], Launch { grain: 100, ..Launch::grid([9, 1, 1]) }) }.unwrap_err();
    assert!(matches!(error, Error::Kernel { code: 7, a: 0, b: 9, thread: 0 }), "{error}");
}

#[test]
fn absolute_addresses_of_32_bits() {
    let mut b = Builder::new();
    let (constant, ..) = b.define("constant", SymbolKind::Data, StandardSection::ReadOnlyData, &u64s(&[1, 77]), 8);
    let (_, text, at) = b.function("absolute", ABSOLUTE);
    b.relocate(text, at + 1, constant, elf::R_X86_64_32, 8);
    let (_, text, at) = b.function("signed", SIGNED);
    b.relocate(text, at + 4, constant, elf::R_X86_64_32S, 8);
    let object = LoadedObject::load(&b.bytes()).unwrap();
    for name in ["absolute", "signed"] {
        // SAFETY: the function takes nothing and returns a u64.
        let function =
            unsafe { std::mem::transmute::<*const (), extern "C" fn() -> u64>(object.address(name).unwrap()) };
        assert_eq!(function(), 77, "{name}");
    }
}

/// The protection of the page at `address`, as the kernel reports it: "r-xp" and the like.
fn protection(address: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        (u64::from_str_radix(start, 16).unwrap()..u64::from_str_radix(end, 16).unwrap()).contains(&address)
    });
    line.unwrap().split(' ').nth(1).unwrap().to_string()
}

#[test]
fn no_page_is_writable_and_executable() {
    let mut b = sample(elf::R_X86_64_GOTPCREL);
    let bss = b.0.section_id(StandardSection::UninitializedData);
    b.0.append_section_bss(bss, 10_000, 64);
    let object = LoadedObject::load(&b.bytes()).unwrap();
    let pages = object.size().div_ceil(page_size());
    let found: Vec<_> = (0..pages).map(|page| protection(object.region.address(page * page_size()))).collect();
    // Code; constants and the relocated pointer; the variable and 10,000 zero bytes; the offset table.
    assert_eq!(found, ["r-xp", "r--p", "rw-p", "rw-p", "rw-p", "r--p"]);
}

#[test]
fn undefined_symbols_are_named() {
    let mut b = Builder::new();
    let memcpy = b.symbol("memcpy", SymbolKind::Text);
    let (_, text, at) = b.function("f", &[0xe8, 0, 0, 0, 0, 0xc3]);
    b.relocate(text, at + 1, memcpy, elf::R_X86_64_PLT32, -4);
    let error = LoadedObject::load(&b.bytes()).unwrap_err().to_string();
    assert!(error.contains("undefined symbol `memcpy`"), "{error}");
}

#[test]
fn what_needs_a_linker_is_refused() {
    let mut b = Builder::new();
    b.define("local", SymbolKind::Tls, StandardSection::Tls, &[0; 8], 8);
    assert!(LoadedObject::load(&b.bytes()).unwrap_err().to_string().contains("thread-local"));

    let mut b = Builder::new();
    let common = b.0.add_common_symbol(
        Symbol {
            name: b"common".into(),
            value: 0,
            size: 0,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Common,
            flags: SymbolFlags::None,
        },
        8,
        8,
    );
    let (_, text, at) = b.function("f", ABSOLUTE);
    b.relocate(text, at + 1, common, elf::R_X86_64_32, 0);
    assert!(LoadedObject::load(&b.bytes()).unwrap_err().to_string().contains("`common`"));

    let mut b = Builder::new();
    let (f, text, at) = b.function("f", ABSOLUTE);
    b.relocate(text, at + 1, f, elf::R_X86_64_GOTOFF64, 0);
    assert!(LoadedObject::load(&b.bytes()).unwrap_err().to_string().contains("relocation type"));
}

#[test]
fn relocations_out_of_reach_or_bounds_are_errors() {
    let mut b = Builder::new();
    let (f, text, at) = b.function("f", ABSOLUTE);
    b.relocate(text, at + 1, f, elf::R_X86_64_PC32, 1 << 40);
    assert!(LoadedObject::load(&b.bytes()).unwrap_err().to_string().contains("out of reach"));

    for offset in [ABSOLUTE.len() as u64, 1 << 40] {
        let mut b = Builder::new();
        let (f, text, _) = b.function("f", ABSOLUTE);
        b.relocate(text, offset, f, elf::R_X86_64_PC32, 0);
        assert!(LoadedObject::load(&b.bytes()).unwrap_err().to_string().contains("outside its section"));
    }
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"garbage that is no object at all, but long enough to be a header of 64 bytes"]
    {
        assert!(LoadedObject::load(bytes).is_err());
    }
    let arm = Object::new(BinaryFormat::Elf, Architecture::Aarch64, Endianness::Little).write().unwrap();
    assert!(LoadedObject::load(&arm).unwrap_err().to_string().contains("machine"));
    let this_program = std::fs::read("/proc/self/exe").unwrap();
    assert!(LoadedObject::load(&this_program).unwrap_err().to_string().contains("relocatable"));
    let empty = LoadedObject::load(&Builder::new().bytes()).unwrap();
    assert!(empty.kernel("f").unwrap_err().to_string().contains("no function `f`"));
}

/// Loading only maps and copies, so any bytes may be tried; nothing here runs them.
#[test]
fn corrupt_objects_never_panic() {
    let good = sample(elf::R_X86_64_GOTPCREL).bytes();
    for length in (0..good.len()).step_by(7) {
        let _ = LoadedObject::load(&good[..length]);
    }
    for i in 0..good.len() {
        for byte in [0x00, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[i] = byte;
            let _ = LoadedObject::load(&bytes);
        }
    }
}
