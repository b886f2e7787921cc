//! The threads that compile. A process that was forked has none of its parent's, and gets a team of its own.

use crate::errors::plain;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

static TEAM: AtomicPtr<ThreadPool> = AtomicPtr::new(std::ptr::null_mut());

/// Runs work without the interpreter's lock, on threads that this process has.
pub fn on_team<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let team = team().map_err(|e| plain(py, format!("no threads to compile on: {e}")))?;
    Ok(py.detach(|| team.install(work)))
}

/// Lets the threads that compile make ready, while PyTorch traces.
#[pyfunction]
pub fn prepare() {
    if let Ok(team) = team() {
        team.install(rc::prepare);
    }
}

/// The threads of this process.
pub fn team() -> Result<&'static ThreadPool, rayon::ThreadPoolBuildError> {
    // SAFETY: a team that stands here is never freed.
    if let Some(team) = unsafe { TEAM.load(Ordering::Acquire).as_ref() } {
        return Ok(team);
    }
    static HANDLER: Once = Once::new();
    // SAFETY: the handler only stores a null pointer.
    HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) });
    let name = |i| format!("rc-compile-{i}");
    let made = Box::new(ThreadPoolBuilder::new().thread_name(name).stack_size(8 << 20).build()?);
    let made = Box::into_raw(made);
    match TEAM.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => Ok(unsafe { &*made }),
        Err(other) => {
            // SAFETY: made here, and no other thread has seen it; the one that stands is never freed.
            drop(unsafe { Box::from_raw(made) });
            Ok(unsafe { &*other })
        }
    }
}

extern "C" fn forget() {
    TEAM.store(std::ptr::null_mut(), Ordering::Release);
}
