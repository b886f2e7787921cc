//! Fewer rewrites than a pass would make: to find the first that is wrong.
//!
//! The limit holds on one thread, so a pass is run on one.

use crate::body::{Body, Op};
use crate::loc::Loc;
use std::cell::RefCell;

/// What was rewritten under a limit.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    /// How many rewrites were made.
    pub count: usize,
    /// The last: `the pattern 'add-zero'`, `folding`.
    pub kind: String,
    /// Where the operation is from.
    pub loc: Loc,
    /// The operation as it was before the last rewrite that the limit allows.
    pub op: String,
}

struct Limit {
    most: usize,
    made: Rewrites,
}

thread_local! {
    static LIMIT: RefCell<Option<Limit>> = const { RefCell::new(None) };
}

/// Runs `work` on a thread of its own, and the passes in it too; the drivers in it make `most` rewrites at most, of all bodies together.
pub fn with_limit<T: Send>(most: usize, work: impl FnOnce() -> T + Send) -> (T, Rewrites) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    pool.install(|| {
        LIMIT.set(Some(Limit { most, made: Rewrites::default() }));
        let done = work();
        (done, LIMIT.take().map(|limit| limit.made).unwrap_or_default())
    })
}

pub(super) fn is_set() -> bool {
    LIMIT.with_borrow(Option::is_some)
}

pub(super) fn is_reached() -> bool {
    LIMIT.with_borrow(|limit| limit.as_ref().is_some_and(|l| l.made.count >= l.most))
}

/// Keeps the text of what may be the last op rewritten.
pub(super) fn before(body: &Body, op: Op) {
    LIMIT.with_borrow_mut(|limit| {
        if let Some(limit) = limit.as_mut().filter(|l| l.made.count + 1 == l.most) {
            limit.made.op = body.op_ref(op).to_string();
        }
    });
}

pub(super) fn made(kind: String, loc: Loc) {
    LIMIT.with_borrow_mut(|limit| {
        if let Some(limit) = limit {
            limit.made = Rewrites { count: limit.made.count + 1, kind, loc, op: std::mem::take(&mut limit.made.op) };
        }
    });
}
