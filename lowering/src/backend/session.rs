use super::{Error, LlvmModule, Options, Processor, codegen::translate};
use melior::{
    Context,
    diagnostic::DiagnosticSeverity,
    dialect::{DialectHandle, DialectRegistry},
    ir::{Module, operation::OperationLike},
};
use mlir_sys::MlirContext;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

// MLIR's C API offers all translations or none, and all of them pull every dialect into the binary. These two C++
// entries, with the Itanium ABI's names, register just the ones in use.
// SAFETY: the signatures are those of mlir/Target/LLVMIR/Dialect; a reference is passed as a pointer.
unsafe extern "C" {
    #[link_name = "_ZN4mlir30registerLLVMDialectTranslationERNS_11MLIRContextE"]
    fn register_llvm_translation(context: MlirContext);
    #[link_name = "_ZN4mlir30registerNVVMDialectTranslationERNS_11MLIRContextE"]
    fn register_nvvm_translation(context: MlirContext);
    #[link_name = "_ZN4mlir33registerBuiltinDialectTranslationERNS_11MLIRContextE"]
    fn register_builtin_translation(context: MlirContext);
}

/// A session's uses on one thread.
const MOST_USES: usize = 256;

thread_local! {
    /// The thread's session, and how often it was used.
    static KEPT: Cell<Option<(Session, usize)>> = const { Cell::new(None) };
}

/// An MLIR context that knows the `llvm` and `nvvm` dialects and how they become LLVM IR.
///
/// A session belongs to one thread; threads have one each.
pub struct Session {
    context: Context,
    errors: Rc<RefCell<Vec<String>>>,
}

impl Session {
    /// A session with the `llvm` and `nvvm` dialects loaded.
    pub fn new() -> Self {
        let registry = DialectRegistry::new();
        DialectHandle::llvm().insert_dialect(&registry);
        // SAFETY: a dialect's handle is a constant of the library.
        let nvvm = unsafe { DialectHandle::from_raw(mlir_sys::mlirGetDialectHandle__nvvm__()) };
        nvvm.insert_dialect(&registry);
        let context = Context::new_with_registry(&registry, false);
        context.load_all_available_dialects();
        // SAFETY: `MlirContext` holds nothing but the pointer, so it passes as the reference that these take; the context lives.
        unsafe {
            register_builtin_translation(context.to_raw());
            register_llvm_translation(context.to_raw());
            register_nvvm_translation(context.to_raw());
        }
        let errors = Rc::new(RefCell::new(Vec::new()));
        let sink = errors.clone();
        context.attach_diagnostic_handler(move |diagnostic| {
            if matches!(diagnostic.severity(), DiagnosticSeverity::Error) {
                sink.borrow_mut().push(format!("{}: {diagnostic}", diagnostic.location()));
            }
            true
        });
        Self { context, errors }
    }

    /// Runs `work` in this thread's session, which stays for the next: making one takes longer than a small kernel. What a context has
    /// seen, types and constants, it keeps, so after some uses there is a new one.
    pub fn with<T>(work: impl FnOnce(&Session) -> T) -> T {
        let (session, uses) = KEPT.take().unwrap_or_else(|| (Session::new(), 0));
        let result = work(&session);
        KEPT.set(Some((session, uses + 1)).filter(|_| uses + 1 < MOST_USES));
        result
    }

    /// Makes a session for each thread of the pool, unless it has one, so that a compile that comes soon finds them. Returns at once.
    pub fn prepare() {
        rayon::spawn_broadcast(|_| Session::with(|_| ()));
    }

    /// MLIR's context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Parses a module from MLIR's text.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidModule`] with MLIR's message.
    pub fn parse(&self, source: &str) -> Result<Module<'_>, Error> {
        Module::parse(&self.context, source).ok_or_else(|| Error::InvalidModule(self.take_errors()))
    }

    /// Verifies a module of the `llvm` and `nvvm` dialects, translates it to LLVM IR for `target` and runs the passes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidModule`] where MLIR's verifier objects, else what the step that failed says.
    pub fn compile(&self, module: &Module, target: &Processor, options: &Options) -> Result<LlvmModule, Error> {
        if !module.as_operation().verify() {
            return Err(Error::InvalidModule(self.take_errors()));
        }
        let llvm = translate(module, target).map_err(|error| match error {
            Error::Translate(message) => Error::Translate([self.take_errors(), message].join(" ").trim().to_owned()),
            other => other,
        })?;
        llvm.optimized(options)
    }

    /// MLIR's errors since the last call.
    fn take_errors(&self) -> String {
        self.errors.take().join("\n")
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
