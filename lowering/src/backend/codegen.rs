use super::{
    Error, ObjectCode, Options, Processor,
    llvm::{Context, Module, TargetMachine, convergent_asm_calls, enum_attribute, string_attribute},
};
use llvm_sys::{
    LLVMAttributeFunctionIndex,
    core::{LLVMAddAttributeAtIndex, LLVMAddCallSiteAttribute, LLVMSetDataLayout, LLVMSetTarget},
    target_machine::LLVMCodeGenFileType,
};
use std::{
    ffi::CString,
    time::{Duration, Instant},
};

/// How long the steps took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// From the MLIR module to LLVM IR.
    pub translate: Duration,
    /// LLVM's passes.
    pub passes: Duration,
}

/// A module in LLVM IR, after LLVM's passes, from which text, assembly, object code or PTX is generated.
pub struct LlvmModule {
    // Dropped in this order: the module before its context.
    module: Module,
    machine: TargetMachine,
    context: Context,
    target: Processor,
    timings: Timings,
}

impl LlvmModule {
    /// The target it is for.
    pub fn target(&self) -> &Processor {
        &self.target
    }

    /// How long translation and passes took.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// LLVM IR as text.
    pub fn llvm_ir(&self) -> String {
        self.module.text()
    }

    /// Assembly for the CPU, or PTX.
    ///
    /// # Errors
    ///
    /// [`Error::Codegen`] with LLVM's message.
    pub fn assembly(&self) -> Result<String, Error> {
        let bytes = self.emit(LLVMCodeGenFileType::LLVMAssemblyFile)?;
        String::from_utf8(bytes).map_err(|_| Error::Codegen("assembly is not UTF-8".into()))
    }

    /// PTX.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where the target is a CPU, [`Error::Codegen`] with LLVM's message.
    pub fn ptx(&self) -> Result<String, Error> {
        match self.target {
            Processor::Cuda(_) => self.assembly(),
            Processor::Cpu(_) => Err(Error::Target("PTX is for CUDA targets; this module is for a CPU".into())),
        }
    }

    /// A relocatable ELF object without undefined symbols.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where the target is not a CPU, [`Error::Codegen`] with LLVM's message,
    /// [`Error::UndefinedSymbols`] where an operation became a call into a library.
    pub fn object(&self) -> Result<ObjectCode, Error> {
        match self.target {
            Processor::Cpu(_) => ObjectCode::checked(self.emit(LLVMCodeGenFileType::LLVMObjectFile)?),
            Processor::Cuda(_) => Err(Error::Target("object code is for CPU targets; this module is for CUDA".into())),
        }
    }

    fn emit(&self, file_type: LLVMCodeGenFileType) -> Result<Vec<u8>, Error> {
        // The code generator changes the module, so it gets a copy.
        let bytes = self.machine.emit(&self.module.copy(), file_type)?;
        match self.context.take_errors() {
            Some(message) => Err(Error::Codegen(message)),
            None => Ok(bytes),
        }
    }

    pub(super) fn optimized(mut self, options: &Options) -> Result<Self, Error> {
        let start = Instant::now();
        let pipeline = options.pipeline.text(&self.target);
        if !pipeline.is_empty() {
            self.machine.run_passes(&self.module, &pipeline)?;
        }
        if let Some(message) = self.context.take_errors() {
            return Err(Error::Passes(message));
        }
        self.timings.passes = start.elapsed();
        Ok(self)
    }

    /// States what holds for every function that rc generates.
    fn add_attributes(&self) {
        let nounwind = enum_attribute(&self.context, "nounwind");
        let no_builtins = string_attribute(&self.context, "no-builtins", "");
        let frame_pointer = string_attribute(&self.context, "frame-pointer", "all");
        let convergent = enum_attribute(&self.context, "convergent");
        for function in self.module.definitions() {
            // SAFETY: the functions and calls are the module's, the attributes its context's, and both outlive this.
            unsafe {
                // No unwind tables, and no loop turned into a call of memset or memcpy.
                LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, nounwind);
                LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, no_builtins);
                if let Processor::Cpu(_) = self.target {
                    // LLVM aligns the stack for vectors that it spills only where it has a frame pointer; others may lie across two cache lines.
                    LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, frame_pointer);
                }
                if let Processor::Cuda(_) = self.target {
                    // A barrier or an aligned instruction must stay under the control flow that it was written under.
                    LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, convergent);
                    for call in convergent_asm_calls(function) {
                        LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex, convergent);
                        LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex, nounwind);
                    }
                }
            }
        }
    }
}

/// Translates a verified module to LLVM IR.
pub(super) fn translate(module: &melior::ir::Module, target: &Processor) -> Result<LlvmModule, Error> {
    let start = Instant::now();
    let machine = TargetMachine::new(target)?;
    let context = Context::new();
    // SAFETY: the operation is a module's, and the pointer that of an LLVM context.
    let raw = unsafe { mlir_sys::mlirTranslateModuleToLLVMIR(module.as_operation().to_raw(), context.raw().cast()) };
    if raw.is_null() {
        return Err(Error::Translate(context.take_errors().unwrap_or_default()));
    }
    // SAFETY: the translation has made the module for its caller, who is the only one to have it.
    let llvm = unsafe { Module::from_raw(raw.cast()) };
    let triple = CString::new(target.triple()).map_err(|_| Error::Target("a NUL byte in the triple".into()))?;
    let layout = CString::new(target.data_layout()?).map_err(|_| Error::Target("a NUL byte in the layout".into()))?;
    // SAFETY: LLVM copies both strings, which end in a NUL byte.
    unsafe {
        LLVMSetTarget(llvm.raw(), triple.as_ptr());
        LLVMSetDataLayout(llvm.raw(), layout.as_ptr());
    }
    let mut result = LlvmModule { module: llvm, machine, context, target: target.clone(), timings: Timings::default() };
    result.add_attributes();
    result.timings.translate = start.elapsed();
    Ok(result)
}
