//! PTX to machine code, by the assembler in the driver.
//!
//! The driver's linker gives machine code that can be kept, and assembles for linking: registers that warps give to one another
//! (`setmaxnreg`) are not counted on there, and a kernel that takes more of them than its threads have at the start keeps some in memory, or has its
//! products of warpgroups wait for one another. PTX with such instructions is loaded as it is ([`load_all`]): the driver assembles it as a whole program,
//! and keeps the code in a cache of its own. Libraries it assembles several at once, without a log; modules one at a time.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{self, CUjit_option as Option_};

use super::cache::CubinCache;
use super::device::Device;
use super::driver::{check, version};
use super::module::{Function, Module};
use crate::cpu::Pool;
use crate::{Error, Result};

/// How PTX is assembled; part of the cache's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleOptions {
    /// Most registers of a thread; `None` leaves it to the PTX.
    pub max_registers: Option<u32>,
    /// 0 to 4.
    pub optimization_level: u32,
    /// Whether to keep line numbers for profilers.
    pub line_info: bool,
}

impl Default for AssembleOptions {
    fn default() -> AssembleOptions {
        AssembleOptions { max_registers: None, optimization_level: 4, line_info: false }
    }
}

/// Machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The ELF file that [`Module::load`](super::Module::load) takes.
    pub bytes: Vec<u8>,
    /// What the assembler said: registers, spills, warnings. Empty where the code came from the cache.
    pub log: String,
    /// Whether the code came from the cache.
    pub cached: bool,
}

/// The size of each log in bytes; the driver cuts what is longer.
const LOG_SIZE: usize = 16 << 10;

/// Assembles PTX for `device`, or takes the result from `cache`. An error of the assembler comes with its log.
pub fn assemble(device: &Device, ptx: &str, options: &AssembleOptions, cache: Option<&CubinCache>) -> Result<Cubin> {
    let key = match cache {
        Some(_) => Some(CubinCache::key(ptx, &device.info().arch(), version()?, options)),
        None => None,
    };
    if let (Some(cache), Some(key)) = (cache, &key)
        && let Some(bytes) = cache.get(key)
    {
        return Ok(Cubin { bytes, log: String::new(), cached: true });
    }
    device.bind()?;
    let cubin = Linker::new(options)?.assemble(ptx)?;
    // What the log says is needed again where it is slow.
    if let (Some(cache), Some(key), false) = (cache, &key, cubin.is_serialized()) {
        cache.put(key, &cubin.bytes);
    }
    Ok(cubin)
}

impl Cubin {
    /// Whether the assembler says that products of warpgroups wait for one another.
    fn is_serialized(&self) -> bool {
        self.log.contains("are serialized")
    }
}

/// The kernels of these names, each in a module of its own: assembled several at once, the longest first, and loaded. Fails with the first
/// error in their order.
pub fn load_all(
    device: &Arc<Device>,
    kernels: &[(&str, &str)],
    options: &AssembleOptions,
    cache: Option<&CubinCache>,
) -> Result<Vec<Function>> {
    let mut order: Vec<usize> = (0..kernels.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(kernels[i].1.len()));
    let loader = Loader { device, options, cache };
    at_once(kernels, &order, &|&(name, ptx)| loader.load(name, ptx))
}

/// What loads a kernel.
struct Loader<'a> {
    device: &'a Arc<Device>,
    options: &'a AssembleOptions,
    cache: Option<&'a CubinCache>,
}

impl Loader<'_> {
    fn load(&self, name: &str, ptx: &str) -> Result<Function> {
        // Another thread may be capturing a stream.
        let _relaxed = self.device.relaxed();
        if ptx.contains("setmaxnreg") {
            return self.whole(name, ptx);
        }
        let (linked, is_serialized) = self.linked(name, ptx)?;
        if !is_serialized {
            return Ok(linked);
        }
        let whole = Module::whole(self.device, ptx, self.options)?.function(name)?;
        Ok(if spilled(&whole) <= spilled(&linked) { whole } else { linked })
    }

    /// A kernel whose warps give one another registers. It is linked only where it keeps some in memory as a whole program too, and fewer then.
    fn whole(&self, name: &str, ptx: &str) -> Result<Function> {
        let whole = Module::library(self.device, ptx)?.function(name)?;
        if spilled(&whole) == 0 {
            return Ok(whole);
        }
        let (linked, _) = self.linked(name, ptx)?;
        Ok(if spilled(&linked) < spilled(&whole) { linked } else { whole })
    }

    /// And whether its products of warpgroups wait for one another.
    fn linked(&self, name: &str, ptx: &str) -> Result<(Function, bool)> {
        let cubin = assemble(self.device, ptx, self.options, self.cache)?;
        Ok((Module::load(self.device, &cubin.bytes)?.function(name)?, cubin.is_serialized()))
    }
}

/// Bytes of a thread's memory that its registers did not have room for.
fn spilled(function: &Function) -> u32 {
    function.info().local_memory
}

/// What is made of each, on as many threads as the CPU's pool has, the first of `order` first. The pool itself runs one job at a time, and what it does not
/// take on one thread: a backward function's kernels are assembled while the forward function's are.
fn at_once<S: Sync, T: Send>(from: &[S], order: &[usize], make: &(dyn Fn(&S) -> Result<T> + Sync)) -> Result<Vec<T>> {
    let results: Vec<Mutex<Option<Result<T>>>> = from.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = make(&from[i]);
            *results[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        }
    };
    let threads = Pool::global()?.threads().min(from.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let missing = || Err(Error::Invalid("a module was not assembled".into()));
    results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()).unwrap_or_else(missing)).collect()
}

/// What the assembler is told, and the logs that it writes.
pub(super) struct Settings {
    pub(super) info: Vec<u8>,
    pub(super) errors: Vec<u8>,
    /// The driver reads and writes these until it is done.
    pub(super) keys: Vec<Option_>,
    pub(super) values: Vec<*mut c_void>,
}

impl Settings {
    pub(super) fn new(options: &AssembleOptions) -> Settings {
        let (mut info, mut errors) = (vec![0u8; LOG_SIZE], vec![0u8; LOG_SIZE]);
        let number = |value: usize| value as *mut c_void;
        let mut pairs = vec![
            (Option_::CU_JIT_INFO_LOG_BUFFER, info.as_mut_ptr().cast()),
            (Option_::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG_SIZE)),
            (Option_::CU_JIT_ERROR_LOG_BUFFER, errors.as_mut_ptr().cast()),
            (Option_::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG_SIZE)),
            (Option_::CU_JIT_LOG_VERBOSE, number(1)),
            (Option_::CU_JIT_OPTIMIZATION_LEVEL, number(options.optimization_level as usize)),
            (Option_::CU_JIT_TARGET_FROM_CUCONTEXT, number(0)),
        ];
        if let Some(registers) = options.max_registers {
            pairs.push((Option_::CU_JIT_MAX_REGISTERS, number(registers as usize)));
        }
        if options.line_info {
            pairs.push((Option_::CU_JIT_GENERATE_LINE_INFO, number(1)));
        }
        let (keys, values) = pairs.into_iter().unzip();
        Settings { info, errors, keys, values }
    }

    /// A failed status as an error with the assembler's log.
    pub(super) fn check(&self, status: sys::CUresult, call: &str) -> Result<()> {
        check(status, call).map_err(|error| match error {
            Error::Cuda { call, name, message } => {
                let logs = [log_text(&self.errors), log_text(&self.info)];
                let message = std::iter::once(message).chain(logs.into_iter().filter(|log| !log.is_empty()));
                Error::Cuda { call, name, message: message.collect::<Vec<_>>().join("\n") }
            }
            other => other,
        })
    }
}

/// PTX as the driver takes it, with a zero byte at its end.
pub(super) fn terminated(ptx: &str) -> Result<Vec<u8>> {
    if let Some(position) = ptx.bytes().position(|byte| byte == 0) {
        return Err(Error::Invalid(format!("PTX with a zero byte at {position}")));
    }
    Ok([ptx.as_bytes(), &[0]].concat())
}

/// One use of the driver's linker.
struct Linker {
    state: sys::CUlinkState,
    settings: Settings,
}

impl Linker {
    fn new(options: &AssembleOptions) -> Result<Linker> {
        let mut settings = Settings::new(options);
        let Settings { keys, values, .. } = &mut settings;
        let mut state = std::ptr::null_mut();
        // SAFETY: keys and values have the length that is passed, and live, with the logs, as long as the linker.
        let status =
            unsafe { sys::cuLinkCreate_v2(keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr(), &mut state) };
        check(status, "cuLinkCreate")?;
        Ok(Linker { state, settings })
    }

    fn assemble(self, ptx: &str) -> Result<Cubin> {
        let mut text = terminated(ptx)?;
        let (mut cubin, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the text is terminated and its size passed. The result belongs to the linker and is copied below.
        unsafe {
            let name = c"kernel.ptx".as_ptr() as *const c_char;
            let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
            let data = text.as_mut_ptr().cast();
            let none = (std::ptr::null_mut(), std::ptr::null_mut());
            let status = sys::cuLinkAddData_v2(self.state, kind, data, text.len(), name, 0, none.0, none.1);
            self.settings.check(status, "cuLinkAddData(PTX)")?;
            self.settings.check(sys::cuLinkComplete(self.state, &mut cubin, &mut size), "cuLinkComplete")?;
            let bytes = std::slice::from_raw_parts(cubin.cast::<u8>(), size).to_vec();
            Ok(Cubin { bytes, log: log_text(&self.settings.info), cached: false })
        }
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        unsafe { sys::cuLinkDestroy(self.state) };
    }
}

/// A log's text up to its first zero byte.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim_end().to_string()
}
