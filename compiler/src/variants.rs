//! A function of symbolic sizes is compiled for all of them, and again for ranges of sizes that calls come back to.
//!
//! Schedules follow the greatest sizes that the ranges allow for; what serves all sizes is slow for small ones. Which ranges are worth a compile
//! follows from the calls: a symbol that had one value in all of them is taken for that value, any other one for the powers of two around it.

use crate::{Target, buckets};
use rc_dialects::func::{SymbolDecl, set_symbols, symbols};
use rc_ir::{Module, Name};
use rc_runtime::program::Bindings;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Instant;

/// When programs are made for ranges of sizes, and how many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How many there may be, beside the one for all sizes.
    pub limit: usize,
    /// Each at the first call of its sizes and not at the second, so that equal calls run the same program.
    pub at_once: bool,
    /// By another thread, while the program for all sizes serves.
    pub behind: bool,
    /// Sizes are filled up to the next of these, where the function allows it, and each program is for one of them. See [`crate::buckets`].
    pub buckets: Vec<i64>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { limit: 8, at_once: false, behind: false, buckets: Vec::new() }
    }
}

/// Programs for ranges of a function's symbols, made as calls ask for them. A call of other sizes is one for the program that serves all.
pub struct Variants<P> {
    symbols: Vec<SymbolDecl>,
    policy: Policy,
    /// The symbols whose sizes are filled up.
    filled: Vec<Name>,
    state: Arc<Mutex<State<P>>>,
}

struct State<P> {
    /// The value of each symbol, as long as all calls had the same.
    same: Vec<Option<i64>>,
    /// How often calls came with sizes of each range.
    calls: HashMap<Sizes, usize>,
    /// How many calls were served by the program for all sizes.
    general: usize,
    made: Vec<Variant<P>>,
    is_full: bool,
    news: Vec<News>,
}

type Sizes = SmallVec<[i64; 4]>;

struct Variant<P> {
    ranges: Vec<SymbolDecl>,
    why: String,
    hits: usize,
    stage: Stage<P>,
}

enum Stage<P> {
    Compiling,
    Ready(Arc<P>),
    Failed,
}

/// The program for a call, and what happened since the last one.
#[derive(Debug)]
pub struct Found<P> {
    /// `None`: the one that serves all sizes.
    pub program: Option<Arc<P>>,
    pub news: Vec<News>,
}

/// What a frontend may want to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A program was made.
    Made(String),
    /// One could not be made, or there are as many as there may be: each is said once.
    Warning(String),
}

impl<P: Send + Sync + 'static> Variants<P> {
    /// Of a function with these symbols. Where there are some whose sizes are `filled` up to the policy's buckets, programs are for these alone.
    pub fn new(symbols: Vec<SymbolDecl>, policy: Policy, filled: Vec<Name>) -> Variants<P> {
        let state = State {
            same: Vec::new(),
            calls: HashMap::new(),
            general: 0,
            made: Vec::new(),
            is_full: false,
            news: Vec::new(),
        };
        Variants { symbols, policy, filled, state: Arc::new(Mutex::new(state)) }
    }

    /// The program for these sizes. `make` compiles one for narrower ranges of the symbols; other threads are served meanwhile. Where this is no time to
    /// compile (`may_make`), since a stream is being captured, a later call does it.
    pub fn find(
        &self,
        sizes: &Bindings,
        may_make: impl FnOnce() -> bool,
        make: impl FnOnce(&[SymbolDecl]) -> Result<P, String> + Send + 'static,
    ) -> Found<P> {
        let values: Option<Sizes> = self.symbols.iter().map(|s| sizes.get(&s.name).copied()).collect();
        let mut state = lock(&self.state);
        let news = std::mem::take(&mut state.news);
        let Some(values) = values else { return Found { program: None, news } };
        if let Some(variant) = state.made.iter_mut().find(|variant| contains(&variant.ranges, &values)) {
            if let Stage::Ready(program) = &variant.stage {
                variant.hits += 1;
                return Found { program: Some(program.clone()), news };
            }
            state.general += 1;
            return Found { program: None, news };
        }
        let Some(place) = self.due(&mut state, &values, may_make) else {
            state.general += 1;
            let more = std::mem::take(&mut state.news);
            return Found { program: None, news: [news, more].concat() };
        };
        let ranges = state.made[place].ranges.clone();
        if self.policy.behind {
            state.general += 1;
            drop(state);
            self.make_behind(place, ranges, make);
            return Found { program: None, news };
        }
        drop(state);
        let program = finish(&self.state, place, &ranges, make);
        let mut state = lock(&self.state);
        match program {
            Some(_) => state.made[place].hits += 1,
            None => state.general += 1,
        }
        let more = std::mem::take(&mut state.news);
        Found { program, news: [news, more].concat() }
    }

    /// The place of a new program for these sizes, if one is to be made now.
    fn due(&self, state: &mut State<P>, values: &[i64], may_make: impl FnOnce() -> bool) -> Option<usize> {
        let ranges = self.narrowed(state, values);
        let calls = state.calls.entry(values.iter().map(|&v| step(v)).collect()).or_default();
        *calls += 1;
        let at_call = if self.policy.at_once || !self.filled.is_empty() { 1 } else { 2 };
        if self.policy.limit == 0 || *calls < at_call || ranges == self.symbols || !may_make() {
            return None;
        }
        if state.made.len() >= self.policy.limit {
            if !std::mem::replace(&mut state.is_full, true) {
                state.news.push(News::Warning(full(state, &shown_sizes(&self.symbols, values))));
            }
            return None;
        }
        let mut why = format!("call {calls} of such sizes, with {}", shown_sizes(&self.symbols, values));
        let same = self.symbols.iter().zip(&state.same).filter(|(_, same)| same.is_some());
        let same: Vec<&str> = same.map(|(symbol, _)| symbol.name.as_str()).collect();
        let ends: Vec<String> = ranges.iter().filter(|r| self.filled.contains(&r.name)).map(end).collect();
        if !ends.is_empty() {
            _ = write!(why, "; filled up to {}", ends.join(", "));
        } else if !same.is_empty() {
            _ = write!(why, "; {} had the same value in all calls", same.join(", "));
        }
        state.made.push(Variant { ranges, why, hits: 0, stage: Stage::Compiling });
        Some(state.made.len() - 1)
    }

    fn make_behind(
        &self,
        place: usize,
        ranges: Vec<SymbolDecl>,
        make: impl FnOnce(&[SymbolDecl]) -> Result<P, String> + Send + 'static,
    ) {
        let (state, running) = (self.state.clone(), Running::new());
        let work = move || {
            let _running = running;
            finish(&state, place, &ranges, make);
        };
        let started = std::thread::Builder::new().name("rc-variant".into()).stack_size(8 << 20).spawn(work);
        if let Err(error) = started {
            fail(&mut lock(&self.state), place, &error.to_string());
        }
    }

    /// The ranges of the programs there are.
    pub fn ranges(&self) -> Vec<Vec<SymbolDecl>> {
        let state = lock(&self.state);
        let ready = state.made.iter().filter(|variant| matches!(variant.stage, Stage::Ready(_)));
        ready.map(|variant| variant.ranges.clone()).collect()
    }

    /// The programs that there are, a line each: sizes, calls, and why it was made.
    pub fn explain(&self) -> Vec<String> {
        let state = lock(&self.state);
        let mut lines = vec![format!("all sizes: {}", calls(state.general))];
        lines.extend(state.made.iter().map(|variant| {
            let stage = match variant.stage {
                Stage::Ready(_) => "made",
                Stage::Compiling => "being made",
                Stage::Failed => "not made, since it does not compile,",
            };
            format!("{}: {}, {stage} at {}", shown(&variant.ranges), calls(variant.hits), variant.why)
        }));
        if state.is_full {
            lines.push(format!("no more are made: the limit is {}", self.policy.limit));
        }
        lines
    }

    /// The programs that were made, and for which sizes.
    pub fn made(&self) -> Vec<(String, Arc<P>)> {
        let made = |variant: &Variant<P>| match &variant.stage {
            Stage::Ready(program) => Some((shown(&variant.ranges), program.clone())),
            _ => None,
        };
        lock(&self.state).made.iter().filter_map(made).collect()
    }

    fn narrowed(&self, state: &mut State<P>, values: &[i64]) -> Vec<SymbolDecl> {
        if state.same.is_empty() {
            state.same = values.iter().map(|&v| Some(v)).collect();
        }
        for (same, &value) in state.same.iter_mut().zip(values) {
            *same = same.filter(|&v| v == value);
        }
        let range = |(symbol, (&value, same)): (&SymbolDecl, (&i64, &Option<i64>))| {
            let (min, max) = match (self.filled.is_empty(), self.filled.contains(&symbol.name)) {
                (true, _) => same.map_or_else(|| powers(value), |value| (value, value)),
                (_, true) => bucket(&self.policy.buckets, symbol, value).unwrap_or((symbol.min, symbol.max)),
                _ => (symbol.min, symbol.max),
            };
            SymbolDecl { min: min.max(symbol.min), max: max.min(symbol.max), ..*symbol }
        };
        self.symbols.iter().zip(values.iter().zip(&state.same)).map(range).collect()
    }
}

/// The sizes that are filled up to the same one as `value`; none where no bucket holds it. There is nothing to copy where there is no row.
fn bucket(buckets: &[i64], symbol: &SymbolDecl, value: i64) -> Option<(i64, i64)> {
    let end = buckets.iter().copied().filter(|&end| end >= value && symbol.allows(end)).min()?;
    let before = buckets.iter().copied().filter(|&before| before < value).max().unwrap_or(0);
    (value > 0).then_some((before + 1, end))
}

/// `n = 128`.
fn end(range: &SymbolDecl) -> String {
    format!("{} = {}", range.name, range.max)
}

/// Makes a program, and notes what came of it.
fn finish<P>(
    state: &Mutex<State<P>>,
    place: usize,
    ranges: &[SymbolDecl],
    make: impl FnOnce(&[SymbolDecl]) -> Result<P, String>,
) -> Option<Arc<P>> {
    let start = Instant::now();
    let made = catch_unwind(AssertUnwindSafe(|| make(ranges))).unwrap_or_else(|_| Err("a mistake in rc".into()));
    let mut state = lock(state);
    match made {
        Ok(program) => {
            let program = Arc::new(program);
            state.made[place].stage = Stage::Ready(program.clone());
            let took = start.elapsed().as_secs_f64();
            state.news.push(News::Made(format!("compiled for {} in {took:.3} s", shown(ranges))));
            Some(program)
        }
        Err(why) => {
            fail(&mut state, place, &why);
            None
        }
    }
}

fn fail<P>(state: &mut State<P>, place: usize, why: &str) {
    state.made[place].stage = Stage::Failed;
    let sizes = shown(&state.made[place].ranges);
    state.news.push(News::Warning(format!("nothing was compiled for {sizes}: {why}")));
}

/// Why no more programs are made.
fn full<P>(state: &State<P>, sizes: &str) -> String {
    let made: Vec<String> = state.made.iter().map(|variant| shown(&variant.ranges)).collect();
    format!(
        "calls of further sizes ({sizes}) run what was compiled for all: there are programs for {} already; the option 'variants' says how many \
         there may be",
        made.join("; ")
    )
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn calls(count: usize) -> String {
    format!("{count} {}", if count == 1 { "call" } else { "calls" })
}

/// `b = 4, s = 65 to 128`.
pub fn shown(ranges: &[SymbolDecl]) -> String {
    let one = |r: &SymbolDecl| match r.min == r.max {
        true => format!("{} = {}", r.name, r.min),
        false => format!("{} = {} to {}", r.name, r.min, r.max),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn shown_sizes(symbols: &[SymbolDecl], values: &[i64]) -> String {
    let sizes: Vec<String> = symbols.iter().zip(values).map(|(s, n)| format!("{} = {n}", s.name)).collect();
    sizes.join(", ")
}

/// The process, and how many programs it is compiling behind. It does not end under them: LLVM's memory would be gone while they use it.
static RUNNING: (Mutex<(u32, usize)>, Condvar) = (Mutex::new((0, 0)), Condvar::new());

struct Running;

impl Running {
    fn new() -> Running {
        static AT_EXIT: Once = Once::new();
        extern "C" fn wait() {
            settle();
        }
        // SAFETY: the handler waits, and uses nothing that is freed before it runs.
        AT_EXIT.call_once(|| _ = unsafe { libc::atexit(wait) });
        let mut running = lock(&RUNNING.0);
        let process = std::process::id();
        // A process that was forked has none of its parent's threads.
        *running = (process, if running.0 == process { running.1 + 1 } else { 1 });
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&RUNNING.0).1 -= 1;
        RUNNING.1.notify_all();
    }
}

/// Waits until nothing is being compiled behind.
pub fn settle() {
    let running = lock(&RUNNING.0);
    let is_busy = |running: &mut (u32, usize)| running.0 == std::process::id() && running.1 > 0;
    drop(RUNNING.1.wait_while(running, is_busy).unwrap_or_else(PoisonError::into_inner));
}

/// Which symbols of a module's first function are filled up to a policy's buckets, and a warning where none is.
pub fn filled(module: &Module, target: &Target, policy: &Policy) -> (Vec<Name>, Option<News>) {
    let Some(&largest) = policy.buckets.iter().max() else { return (Vec::new(), None) };
    let refusals = buckets::refusals(module, target, largest);
    let filled: Vec<Name> = refusals.iter().filter(|(_, why)| why.is_none()).map(|(name, _)| *name).collect();
    let why = |(name, why): &(Name, Option<String>)| Some(format!("{name}: {}", why.as_ref()?));
    let whys: Vec<String> = refusals.iter().filter_map(why).collect();
    let warn = filled.is_empty() && !whys.is_empty();
    let text = || format!("the option 'buckets' has no effect: sizes cannot be filled up: {}", whys.join("; "));
    (filled, warn.then(|| News::Warning(text())))
}

/// The module, its first function for narrower ranges of its symbols.
pub fn narrowed(module: &Module, ranges: &[SymbolDecl], filled: &[Name]) -> Module {
    if !filled.is_empty() {
        // A bucket's sizes are all that there are; another symbol keeps its range.
        let is_bucket = |name: &Name| {
            let declared = module.bodies.iter().find(|body| !body.is_private()).map(symbols).unwrap_or_default();
            declared.iter().zip(ranges).any(|(all, range)| all.name == *name && all != range)
        };
        return buckets::filled(module, ranges, &filled.iter().copied().filter(is_bucket).collect::<Vec<_>>());
    }
    let mut module = module.clone();
    if let Some(body) = module.bodies.iter_mut().find(|body| !body.is_private()) {
        set_symbols(body, ranges);
    }
    module
}

fn contains(ranges: &[SymbolDecl], values: &[i64]) -> bool {
    ranges.iter().zip(values).all(|(range, &value)| range.allows(value))
}

/// Which powers of two a size lies between.
fn step(value: i64) -> i64 {
    i64::from(u64::try_from(value).unwrap_or(0).max(1).next_power_of_two().trailing_zeros())
}

fn powers(value: i64) -> (i64, i64) {
    let high = 1i64.checked_shl(step(value) as u32).filter(|&n| n > 0).unwrap_or(i64::MAX);
    (high / 2 + 1, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decls() -> Vec<SymbolDecl> {
        vec![SymbolDecl::new("b", 2, 64), SymbolDecl::new("s", 2, i64::MAX)]
    }
    type Ranges = Vec<(i64, i64)>;

    fn sizes(b: i64, s: i64) -> Bindings {
        [("b", b), ("s", s)].map(|(name, value)| (Name::new(name), value)).into_iter().collect()
    }
    fn ranges(decls: &[SymbolDecl]) -> Result<Ranges, String> {
        Ok(decls.iter().map(|d| (d.min, d.max)).collect())
    }
    fn policy(limit: usize, at_once: bool, behind: bool) -> Policy {
        Policy { limit, at_once, behind, buckets: Vec::new() }
    }
    fn ask(variants: &Variants<Ranges>, b: i64, s: i64) -> Option<Ranges> {
        variants.find(&sizes(b, s), || true, ranges).program.map(|program| program.to_vec())
    }

    #[test]
    fn sizes_that_come_back_get_a_program() {
        let variants = Variants::new(decls(), policy(4, false, false), Vec::new());
        assert_eq!(ask(&variants, 4, 1024), None);
        assert_eq!(ask(&variants, 4, 1024).unwrap(), [(4, 4), (1024, 1024)]);
        assert_eq!(ask(&variants, 4, 100), None);
        assert_eq!(ask(&variants, 4, 120).unwrap(), [(4, 4), (65, 128)]);
        assert_eq!(ask(&variants, 4, 65).unwrap(), [(4, 4), (65, 128)]);
        assert_eq!(ask(&variants, 4, 1024).unwrap(), [(4, 4), (1024, 1024)]);
        // Of the same powers of two, but no longer of one value of b.
        assert_eq!(ask(&variants, 3, 100).unwrap(), [(3, 4), (65, 128)]);
        assert_eq!(ask(&variants, 4, 2), None);
        assert_eq!(ask(&variants, 4, 2).unwrap(), [(3, 4), (2, 2)]);
        // There are as many as there may be, which is said once.
        assert_eq!(ask(&variants, 8, 9), None);
        let warned = |found: Found<Ranges>| found.news.iter().any(|n| matches!(n, News::Warning(_)));
        assert!(warned(variants.find(&sizes(8, 9), || true, ranges)));
        assert!(!warned(variants.find(&sizes(8, 9), || true, ranges)));
        assert_eq!(variants.ranges().len(), 4);
        let lines = variants.explain();
        assert_eq!(lines[0], "all sizes: 6 calls");
        assert_eq!(
            lines[1],
            "b = 4, s = 1024: 2 calls, made at call 2 of such sizes, with b = 4, s = 1024; b, s had the same value in all calls"
        );
        assert_eq!(
            lines[2],
            "b = 4, s = 65 to 128: 2 calls, made at call 2 of such sizes, with b = 4, s = 120; b had the same value in all calls"
        );
        assert_eq!(lines[5], "no more are made: the limit is 4");
    }

    #[test]
    fn a_program_that_cannot_be_made_is_not_tried_again() {
        let variants: Variants<()> = Variants::new(decls(), policy(8, true, false), Vec::new());
        let found = variants.find(&sizes(2, 5), || true, |_| Err("no".into()));
        assert_eq!(found.news, [News::Warning("nothing was compiled for b = 2, s = 5: no".into())]);
        let found = variants.find(&sizes(2, 5), || true, |_| panic!("is not tried"));
        assert!(found.program.is_none() && found.news.is_empty());
        let found = variants.find(&sizes(3, 5), || true, |_| panic!("a mistake"));
        assert!(found.program.is_none() && found.news.len() == 1);
        assert!(variants.ranges().is_empty());
    }

    #[test]
    fn the_program_for_all_sizes_serves_while_another_is_made() {
        let variants: Variants<Ranges> = Variants::new(decls(), policy(8, true, true), Vec::new());
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let found = variants.find(
            &sizes(2, 5),
            || true,
            move |decls| {
                wait.recv().unwrap();
                ranges(decls)
            },
        );
        assert!(found.program.is_none());
        assert_eq!(ask(&variants, 2, 5), None);
        assert!(variants.explain()[1].contains("being made"));
        go.send(()).unwrap();
        settle();
        let found = variants.find(&sizes(2, 5), || true, ranges);
        assert_eq!(found.program.unwrap().to_vec(), [(2, 2), (5, 5)]);
        assert!(matches!(&found.news[..], [News::Made(_)]));
    }

    #[test]
    fn what_is_due_at_a_bad_time_is_made_later() {
        let variants: Variants<Ranges> = Variants::new(decls(), policy(8, true, false), Vec::new());
        assert!(variants.find(&sizes(2, 5), || false, |_| panic!("not now")).program.is_none());
        assert_eq!(ask(&variants, 2, 5).unwrap(), [(2, 2), (5, 5)]);
        // What is there serves at any time.
        assert!(variants.find(&sizes(2, 5), || false, ranges).program.is_some());
    }

    #[test]
    fn sizes_are_filled_up_to_buckets() {
        let policy = Policy { buckets: vec![16, 4, 200], ..Policy::default() };
        let variants: Variants<Ranges> = Variants::new(decls(), policy, vec![Name::new("b")]);
        assert_eq!(ask(&variants, 3, 9).unwrap(), [(2, 4), (2, i64::MAX)]);
        assert_eq!(ask(&variants, 5, 2).unwrap(), [(5, 16), (2, i64::MAX)]);
        // No bucket that the symbol can be holds it.
        assert_eq!(ask(&variants, 17, 9), None);
        assert_eq!(ask(&variants, 17, 9), None);
        let lines = variants.explain();
        assert_eq!(lines[0], "all sizes: 2 calls");
        assert!(lines[2].contains("b = 5 to 16") && lines[2].ends_with("; filled up to b = 16"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn sizes_at_the_ends() {
        assert_eq!((powers(0), powers(1), powers(2), powers(3)), ((1, 1), (1, 1), (2, 2), (3, 4)));
        assert_eq!(powers(i64::MAX).1, i64::MAX);
    }
}
