//! A GPU program's kernels, which are assembled and loaded by threads of their own: a program need not wait for them before it runs.

use super::{Binary, Code};
use crate::cuda::{AssembleOptions, CubinCache, Device, Function, load_all};
use crate::{Error, Result};
use rc_ir::Blob;
use std::sync::{Arc, Condvar, Mutex, Once, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Kernels in the order of the program's, loaded or being loaded.
pub(super) struct Kernels {
    loaded: OnceLock<Result<Vec<Function>, String>>,
    loading: Mutex<Option<JoinHandle<Result<Vec<Function>>>>>,
}

impl Kernels {
    /// Begins to load these.
    ///
    /// # Errors
    /// Code for another machine; a thread that cannot be started.
    pub(super) fn load(device: &Arc<Device>, kernels: &[Binary]) -> Result<Kernels> {
        let texts = kernels.iter().map(Text::of).collect::<Result<Vec<_>>>()?;
        let caches: Vec<_> = kernels.iter().map(|k| k.prefer_l1.then_some((k.threads, k.shared))).collect();
        let (device, running) = (device.clone(), Running::new());
        let work = move || {
            let _running = running;
            let cache = crate::cache::folder().map(|folder| CubinCache::at(folder.join("cubins")));
            let texts: Vec<_> = texts.iter().map(Text::named).collect();
            let functions = load_all(&device, &texts, &AssembleOptions::default(), cache.as_ref())?;
            for (function, cached) in functions.iter().zip(caches) {
                cached.map_or(Ok(()), |(threads, shared)| function.prefer_l1(threads, shared))?;
            }
            Ok(functions)
        };
        let started = std::thread::Builder::new().name("rc-load".into()).spawn(work);
        let loading = started.map_err(|why| Error::Invalid(format!("no thread can be started: {why}")))?;
        Ok(Kernels { loaded: OnceLock::new(), loading: Mutex::new(Some(loading)) })
    }

    /// The kernels, once all are loaded.
    ///
    /// # Errors
    /// What went wrong with the first of them.
    pub(super) fn get(&self) -> Result<&[Function]> {
        let loaded = self.loaded.get_or_init(|| {
            let loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner).take();
            match loading.map(JoinHandle::join) {
                Some(Ok(loaded)) => loaded.map_err(|error| error.to_string()),
                _ => Err("the thread that loads kernels ended".into()),
            }
        });
        loaded.as_deref().map_err(|why| Error::Invalid(why.clone()))
    }
}

/// A kernel's name and PTX, which is UTF-8.
struct Text(&'static str, Blob);

impl Text {
    fn of(binary: &Binary) -> Result<Text> {
        let Code::Ptx(text) = &binary.code else {
            return Err(Error::Invalid(format!("the kernel {} is not compiled for a GPU", binary.name)));
        };
        match std::str::from_utf8(text.bytes()) {
            Ok(_) => Ok(Text(binary.name.as_str(), text.clone())),
            Err(_) => Err(Error::Invalid(format!("the code of {} is no text", binary.name))),
        }
    }

    fn named(&self) -> (&str, &str) {
        (self.0, std::str::from_utf8(self.1.bytes()).unwrap_or_default())
    }
}

/// How many threads load. The driver takes itself down when the process ends, which none may see.
static RUNNING: (Mutex<(usize, u32)>, Condvar) = (Mutex::new((0, 0)), Condvar::new());

/// A thread that loads, while it lasts.
struct Running(());

impl Running {
    fn new() -> Running {
        static HANDLER: Once = Once::new();
        // SAFETY: the handler waits, and touches nothing of the process's but what is static.
        HANDLER.call_once(|| _ = unsafe { libc::atexit(wait) });
        let (mut state, process) = (RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner), std::process::id());
        // A process that was forked has none of its parent's threads.
        let before = if state.1 == process { state.0 } else { 0 };
        *state = (before + 1, process);
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
        RUNNING.1.notify_all();
    }
}

/// Waits for all threads that load, at the end of the process that they are in.
extern "C" fn wait() {
    let busy = |state: &mut (usize, u32)| state.0 > 0 && state.1 == std::process::id();
    let state = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(RUNNING.1.wait_while(state, busy));
}
