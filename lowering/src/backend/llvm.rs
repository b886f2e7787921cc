//! Thin owners over LLVM's C API: context, module, target machine, memory buffer.

use super::{Error, Processor};
use llvm_sys::{
    LLVMDiagnosticSeverity, core::*, prelude::*, target::*, target_machine::*, transforms::pass_builder::*,
};
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_void},
    ptr,
    sync::Once,
};

/// An LLVM context that keeps what LLVM reports as errors instead of ending the process.
pub(super) struct Context {
    raw: LLVMContextRef,
    errors: Box<RefCell<Vec<String>>>,
}

impl Context {
    pub fn new() -> Self {
        let errors = Box::new(RefCell::new(Vec::new()));
        // SAFETY: making a context has no conditions.
        let raw = unsafe { LLVMContextCreate() };
        let data = ptr::from_ref::<RefCell<Vec<String>>>(&errors).cast_mut().cast::<c_void>();
        // SAFETY: the handler gets `data`, which is boxed and lives as long as the context.
        unsafe { LLVMContextSetDiagnosticHandler(raw, Some(keep_error), data) };
        Self { raw, errors }
    }

    pub fn raw(&self) -> LLVMContextRef {
        self.raw
    }

    /// The errors reported since the last call, if any.
    pub fn take_errors(&self) -> Option<String> {
        let errors = self.errors.take();
        (!errors.is_empty()).then(|| errors.join("\n"))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is this owner's alone, and what was made in it is gone: modules come before their context in every owner of both.
        unsafe { LLVMContextDispose(self.raw) }
    }
}

extern "C" fn keep_error(diagnostic: LLVMDiagnosticInfoRef, data: *mut c_void) {
    // SAFETY: LLVM calls this with a diagnostic that lives meanwhile, and with the pointer that `Context::new` gave it.
    unsafe {
        if matches!(LLVMGetDiagInfoSeverity(diagnostic), LLVMDiagnosticSeverity::LLVMDSError) {
            let errors = &*data.cast::<RefCell<Vec<String>>>();
            errors.borrow_mut().push(take_message(LLVMGetDiagInfoDescription(diagnostic)));
        }
    }
}

/// An LLVM module; its context must outlive it.
pub(super) struct Module(LLVMModuleRef);

impl Module {
    /// Takes over a module.
    ///
    /// # Safety
    ///
    /// The pointer is a module that nobody else disposes of.
    pub unsafe fn from_raw(raw: LLVMModuleRef) -> Self {
        Self(raw)
    }

    pub fn raw(&self) -> LLVMModuleRef {
        self.0
    }

    pub fn copy(&self) -> Self {
        // SAFETY: the module lives, and its clone is nobody else's.
        Self(unsafe { LLVMCloneModule(self.0) })
    }

    pub fn text(&self) -> String {
        // SAFETY: the module lives, and its text is the caller's to dispose of.
        unsafe { take_message(LLVMPrintModuleToString(self.0)) }
    }

    /// The functions that have a body.
    pub fn definitions(&self) -> impl Iterator<Item = LLVMValueRef> {
        // SAFETY: the module lives.
        let first = unsafe { LLVMGetFirstFunction(self.0) };
        // SAFETY: what follows a function of the module is one too, or null.
        let functions = chain(first, |function| unsafe { LLVMGetNextFunction(function) });
        // SAFETY: a function of the module.
        functions.filter(|&function| unsafe { LLVMIsDeclaration(function) } == 0)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it is this owner's alone, and its context lives.
        unsafe { LLVMDisposeModule(self.0) }
    }
}

/// The calls of inline assembly in a function that must stay under the control flow they were written under: those
/// with side effects, and those of instructions that a whole warp runs together, which have `.sync` in their names.
pub(super) fn convergent_asm_calls(function: LLVMValueRef) -> impl Iterator<Item = LLVMValueRef> {
    // SAFETY: a function of a module that lives; what follows a block or an instruction of it is one too, or null.
    let blocks = chain(unsafe { LLVMGetFirstBasicBlock(function) }, |block| unsafe { LLVMGetNextBasicBlock(block) });
    let instructions = |block| {
        // SAFETY: as above.
        chain(unsafe { LLVMGetFirstInstruction(block) }, |instruction| unsafe { LLVMGetNextInstruction(instruction) })
    };
    // SAFETY: an instruction of the function; only a call is asked for what it calls, and only inline assembly for its text.
    blocks.flat_map(instructions).filter(|&instruction| unsafe {
        if LLVMIsACallInst(instruction).is_null() {
            return false;
        }
        let callee = LLVMGetCalledValue(instruction);
        !LLVMIsAInlineAsm(callee).is_null() && (LLVMGetInlineAsmHasSideEffects(callee) != 0 || runs_in_step(callee))
    })
}

/// Whether a whole warp runs the instructions together.
///
/// # Safety
///
/// The value is inline assembly.
unsafe fn runs_in_step(inline_asm: LLVMValueRef) -> bool {
    let mut length = 0;
    // SAFETY: the text is as long as LLVM says, and lives as long as the value.
    let text = unsafe {
        let start = LLVMGetInlineAsmAsmString(inline_asm, &mut length).cast::<u8>();
        std::slice::from_raw_parts(start, length)
    };
    text.windows(5).any(|window| window == b".sync")
}

fn chain<T>(first: *mut T, next: impl Fn(*mut T) -> *mut T) -> impl Iterator<Item = *mut T> {
    std::iter::successors((!first.is_null()).then_some(first), move |&current| {
        let following = next(current);
        (!following.is_null()).then_some(following)
    })
}

/// A target machine: everything LLVM needs to generate code for one target.
pub(super) struct TargetMachine(LLVMTargetMachineRef);

impl TargetMachine {
    pub fn new(target: &Processor) -> Result<Self, Error> {
        initialize_targets();
        let triple = c_string(target.triple())?;
        let cpu = c_string(target.cpu_name())?;
        let features = c_string(&target.features())?;
        // SAFETY: the strings end in a NUL byte and live; the target is one that LLVM found, a message the caller's to dispose of.
        unsafe {
            let mut llvm_target = ptr::null_mut();
            let mut message = ptr::null_mut();
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut llvm_target, &mut message) != 0 {
                return Err(Error::Target(take_message(message)));
            }
            let machine = LLVMCreateTargetMachine(
                llvm_target,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                // The runtime maps an object wherever there is room.
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelSmall,
            );
            if machine.is_null() {
                return Err(Error::Target(format!("LLVM cannot generate code for {}", target.triple())));
            }
            Ok(Self(machine))
        }
    }

    pub fn data_layout(&self) -> String {
        // SAFETY: the machine lives; layout and text are the caller's to dispose of.
        unsafe {
            let data = LLVMCreateTargetDataLayout(self.0);
            let text = take_message(LLVMCopyStringRepOfTargetData(data));
            LLVMDisposeTargetData(data);
            text
        }
    }

    /// Runs a pipeline given in the text form of `opt -passes=`.
    pub fn run_passes(&self, module: &Module, pipeline: &str) -> Result<(), Error> {
        let pipeline = c_string(pipeline)?;
        // SAFETY: module and machine live; options, and an error with its message, are the caller's to dispose of, each once.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            let error = LLVMRunPasses(module.raw(), pipeline.as_ptr(), self.0, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            let message = llvm_sys::error::LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            llvm_sys::error::LLVMDisposeErrorMessage(message);
            Err(Error::Passes(text))
        }
    }

    /// Generates assembly or object code. The module is changed on the way.
    pub fn emit(&self, module: &Module, file_type: LLVMCodeGenFileType) -> Result<Vec<u8>, Error> {
        // SAFETY: module and machine live; where it succeeds there is a buffer of the size that LLVM says, else a message; either is disposed of.
        unsafe {
            let mut buffer = ptr::null_mut();
            let mut message = ptr::null_mut();
            if LLVMTargetMachineEmitToMemoryBuffer(self.0, module.raw(), file_type, &mut message, &mut buffer) != 0 {
                return Err(Error::Codegen(take_message(message)));
            }
            let start = LLVMGetBufferStart(buffer).cast::<u8>();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }
}

impl Drop for TargetMachine {
    fn drop(&mut self) {
        // SAFETY: it is this owner's alone.
        unsafe { LLVMDisposeTargetMachine(self.0) }
    }
}

// LLVM's C API cannot ask whether a processor's name is known. A `StringRef` is passed as its two words; the result is an
// enum whose zero is "none".
// SAFETY: the signature is that of llvm/TargetParser/X86TargetParser.h.
unsafe extern "C" {
    #[link_name = "_ZN4llvm3X8612parseArchX86ENS_9StringRefEb"]
    fn parse_x86_arch(name: *const c_char, length: usize, only_64_bit: bool) -> std::ffi::c_int;
}

/// Whether LLVM knows a 64-bit x86 processor of this name.
pub(super) fn is_x86_64_cpu(name: &str) -> bool {
    // SAFETY: pointer and length are those of a string, which is only read.
    unsafe { parse_x86_arch(name.as_ptr().cast(), name.len(), true) != 0 }
}

/// An attribute that LLVM knows by kind, such as `nounwind`.
pub(super) fn enum_attribute(context: &Context, name: &str) -> LLVMAttributeRef {
    // SAFETY: pointer and length are those of a string; the context lives.
    unsafe {
        let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
        LLVMCreateEnumAttribute(context.raw(), kind, 0)
    }
}

/// A string attribute, such as `"no-builtins"`, whose value is empty.
pub(super) fn string_attribute(context: &Context, name: &str, value: &str) -> LLVMAttributeRef {
    let [(name, names), (value, values)] = [name, value].map(|text| (text.as_ptr().cast(), text.len() as u32));
    // SAFETY: as above, for both strings.
    unsafe { LLVMCreateStringAttribute(context.raw(), name, names, value, values) }
}

fn initialize_targets() {
    static ONCE: Once = Once::new();
    // SAFETY: LLVM's tables of targets are written once, before any of them is looked up.
    ONCE.call_once(|| unsafe {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
    });
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Target(format!("a NUL byte in {text:?}")))
}

/// Takes over a message that LLVM allocated.
///
/// # Safety
///
/// The pointer is null, or a message that nobody else disposes of.
unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: a message ends in a NUL byte; it is read, then disposed of.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}
