//! The threads that share the work where a package is read or a module compiled. A process that was forked has none of its parent's, and gets a team of
//! its own.

use crate::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

static TEAM: AtomicPtr<ThreadPool> = AtomicPtr::new(std::ptr::null_mut());

/// Runs work that divides itself on threads that this process has: those that the caller is one of, else the team.
///
/// # Errors
/// If no thread can be started.
pub fn on_team<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    if rayon::current_thread_index().is_some() {
        return Ok(work());
    }
    Ok(team()?.install(work))
}

/// The threads of this process.
fn team() -> Result<&'static ThreadPool> {
    // SAFETY: a team that stands here is never freed.
    if let Some(team) = unsafe { TEAM.load(Ordering::Acquire).as_ref() } {
        return Ok(team);
    }
    static HANDLER: Once = Once::new();
    // SAFETY: the handler only stores a null pointer.
    HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) });
    let name = |i| format!("rc-team-{i}");
    let made = ThreadPoolBuilder::new().thread_name(name).stack_size(8 << 20).build();
    let made = made.map_err(|why| Error::Invalid(format!("no threads can be started: {why}")))?;
    let made = Box::into_raw(Box::new(made));
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
