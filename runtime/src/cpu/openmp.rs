//! The team of an OpenMP runtime that another library of the process has, PyTorch's say.
//!
//! Its threads watch for the next loop for milliseconds before they sleep. Threads of rc's own would share processors with them, wherever the other library's
//! operations come between rc's kernels: a step of training took up to twice its time. So loops run on that team.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
type Number = unsafe extern "C" fn() -> c_int;

/// What GCC's runtime exports, and others for code that GCC compiled.
struct OpenMp {
    parallel: Parallel,
    thread: Number,
    threads: Number,
    inside: Number,
}

static SHARED: OnceLock<Option<OpenMp>> = OnceLock::new();

/// Runs loops on the team of the OpenMP runtime that a library of this process uses from now on; whether it has one. Only the first call counts.
pub fn share_openmp_of(library: &CStr) -> bool {
    super::pool::notice_forks();
    SHARED.get_or_init(|| OpenMp::of(library)).is_some()
}

impl OpenMp {
    fn of(library: &CStr) -> Option<OpenMp> {
        // SAFETY: loads nothing that is not loaded. What it gives is kept: the runtime's threads cannot be unloaded either.
        let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: names and signatures are those of OpenMP 3.0 and of libgomp's interface since GCC 4.9.
        unsafe {
            Some(OpenMp {
                parallel: std::mem::transmute::<*mut c_void, Parallel>(found(library, c"GOMP_parallel")?),
                thread: std::mem::transmute::<*mut c_void, Number>(found(library, c"omp_get_thread_num")?),
                threads: std::mem::transmute::<*mut c_void, Number>(found(library, c"omp_get_max_threads")?),
                inside: std::mem::transmute::<*mut c_void, Number>(found(library, c"omp_in_parallel")?),
            })
        }
    }
}

/// A function of a library or of one that it needs.
fn found(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is loaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls `work` with each thread's number on a team of at most so many threads, the caller's included, and returns when all are done. `false`, and nothing is
/// done, where no team is shared, or the caller's is larger: it would be made anew for each library in turn.
pub fn run(threads: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
    let Some(Some(openmp)) = SHARED.get() else { return false };
    // SAFETY: they take nothing, and any thread may ask.
    let (inside, team) = unsafe { ((openmp.inside)() != 0, (openmp.threads)() as usize) };
    let fits = !inside && (1..=threads).contains(&team);
    if fits {
        let mut member = Member { work, thread: openmp.thread };
        // SAFETY: `member` outlives the call, which returns when all threads have; it is only read.
        unsafe { (openmp.parallel)(enter, (&raw mut member).cast(), team as c_uint, 0) };
    }
    fits
}

struct Member<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    thread: Number,
}

extern "C" fn enter(member: *mut c_void) {
    // SAFETY: `run` gives a `Member`.
    let member = unsafe { &*member.cast::<Member>() };
    // SAFETY: any thread may ask.
    (member.work)(unsafe { (member.thread)() } as usize);
}
