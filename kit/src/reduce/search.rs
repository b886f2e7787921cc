//! Testing proposals: several at once, none twice, the first in order wins.

use super::Test;
use rc_ir::Module;
use rustc_hash::FxHashMap;
use std::hash::{BuildHasher, Hasher};

/// What a search did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Runs of the test.
    pub runs: usize,
    /// Proposals that do not verify, or were tested before: the test was not run on them.
    pub skipped: usize,
}

/// A test, and what is known of it.
pub struct Search<'t> {
    test: &'t dyn Test,
    /// Runs of the test at once.
    jobs: usize,
    /// Runs of the test at most.
    limit: usize,
    /// By the hash of a module's text: whether the test holds.
    known: FxHashMap<u64, bool>,
    /// Whether the last batch was the last.
    is_over: bool,
    pub counts: Counts,
}

/// Its number, the hash of its text, itself.
type Proposal = (usize, u64, Module);

impl<'t> Search<'t> {
    /// `jobs` proposals are tested at once; after `limit` runs nothing more is tested.
    pub fn new(test: &'t dyn Test, jobs: usize, limit: usize) -> Search<'t> {
        Search {
            test,
            jobs: jobs.max(1),
            limit,
            known: FxHashMap::default(),
            is_over: false,
            counts: Counts::default(),
        }
    }

    /// Whether the test holds on a module.
    pub fn holds(&mut self, module: &Module) -> bool {
        self.counts.runs += 1;
        let holds = self.test.holds(module);
        self.known.insert(hash_of(module), holds);
        holds
    }

    /// The first proposal, in order, on which the test holds, and its number. A proposal that could not be made is `None`.
    pub fn first(&mut self, proposals: impl Iterator<Item = Option<Module>>) -> Option<(usize, Module)> {
        let mut proposals = proposals.enumerate();
        loop {
            let (batch, held) = self.batch(&mut proposals);
            self.counts.runs += batch.len();
            let verdicts = self.verdicts(&batch);
            self.known.extend(batch.iter().map(|b| b.1).zip(verdicts.iter().copied()));
            let first = batch.into_iter().zip(verdicts).find(|(_, holds)| *holds);
            match (first, held) {
                (Some(((number, _, module), _)), _) | (None, Some((number, module))) => return Some((number, module)),
                (None, None) if self.is_over => return None,
                (None, None) => {}
            }
        }
    }

    /// The next proposals worth a test, and the one after them that is known to hold.
    fn batch(
        &mut self,
        proposals: &mut impl Iterator<Item = (usize, Option<Module>)>,
    ) -> (Vec<Proposal>, Option<(usize, Module)>) {
        let mut batch: Vec<Proposal> = Vec::new();
        let room = self.jobs.min(self.limit.saturating_sub(self.counts.runs));
        self.is_over = false;
        while batch.len() < room {
            let Some((number, module)) = proposals.next() else {
                self.is_over = true;
                break;
            };
            let Some(module) = module.filter(is_valid) else {
                self.counts.skipped += 1;
                continue;
            };
            let hash = hash_of(&module);
            match self.known.get(&hash) {
                Some(true) => return (batch, Some((number, module))),
                None if batch.iter().all(|b| b.1 != hash) => batch.push((number, hash, module)),
                _ => self.counts.skipped += 1,
            }
        }
        self.is_over |= room == 0;
        (batch, None)
    }

    fn verdicts(&self, batch: &[Proposal]) -> Vec<bool> {
        let test = self.test;
        std::thread::scope(|scope| {
            let threads: Vec<_> = batch.iter().map(|(_, _, module)| scope.spawn(move || test.holds(module))).collect();
            // A test that panics does not hold.
            threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
        })
    }
}

/// Whether a module verifies.
pub fn is_valid(module: &Module) -> bool {
    rc_dialects::verify(module).is_empty()
}

fn hash_of(module: &Module) -> u64 {
    let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
    hasher.write(module.to_string().as_bytes());
    hasher.finish()
}
