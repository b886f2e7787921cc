//! CUDA graphs of a program's launches, patched where a call's memory or sizes are others than those of the call before.
//!
//! A stretch of launches is queued one by one at its first call, and is a graph from the second on. A call takes the graph that is nearest to it: none
//! of whose launches need be patched, or the fewest. One that comes again and needs many gets a graph of its own.

use super::stretch::Stretch;
use crate::Result;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Launches from which on they are a graph. On the host of an H200 a launch takes 2.7 µs and a graph 1.1 µs (3 launches or 300), and a patch 0.25 µs: a graph
/// is the faster one though all of its launches are patched. Making one takes 2 µs a launch, and its first run 1 µs a launch.
const LEAST: usize = 2;

/// Graphs of one stretch. The one that was used longest ago goes first, when nobody used it in the last [`STALE`] calls.
const KEPT: usize = 4;
const STALE: u64 = 64;

/// One in so many launches may be patched at every call of memory that comes again, rather than have a graph made for it.
const FEW: usize = 8;

/// Calls whose memory is remembered.
const REMEMBERED: usize = 16;

/// Launches in all graphs of the process.
const LIMIT: usize = 1 << 17;
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);

/// What makes and launches graphs, on one stream.
pub trait Driver {
    type Exec;

    fn build(&self, stretch: &Stretch, bases: &[u64]) -> Result<Self::Exec>;

    /// Has later launches of a graph run these nodes as the stretch on this memory.
    fn patch(&self, exec: &mut Self::Exec, nodes: &[u32], stretch: &Stretch, bases: &[u64]) -> Result<()>;

    fn launch(&self, exec: &Self::Exec) -> Result<()>;

    /// Queues the launches one by one.
    fn separately(&self, stretch: &Stretch, bases: &[u64]) -> Result<()>;

    /// The stream's name. A graph runs once at a time, so that each stream has its own.
    fn stream(&self) -> usize;
}

/// The graphs of a stretch.
pub struct Pool<E> {
    graphs: Vec<Graph<E>>,
    last: Option<Arc<Stretch>>,
    /// Hashes of the last calls' sizes and memory.
    recent: VecDeque<u64>,
    calls: u64,
    counts: Counts,
    /// Why no graph can be made.
    failed: Option<String>,
}

impl<E> Default for Pool<E> {
    fn default() -> Pool<E> {
        Pool {
            graphs: Vec::new(),
            last: None,
            recent: VecDeque::new(),
            calls: 0,
            counts: Counts::default(),
            failed: None,
        }
    }
}

struct Graph<E> {
    exec: E,
    stretch: Arc<Stretch>,
    bases: Vec<u64>,
    stream: usize,
    used: u64,
    _counted: Counted,
}

/// Launches that are counted among the process's.
struct Counted(usize);

impl Counted {
    fn new(launches: usize) -> Option<Counted> {
        let fits = |all: usize| (all + launches <= LIMIT).then_some(all + launches);
        LAUNCHES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok().map(|_| Counted(launches))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LAUNCHES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What calls came to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    built: u64,
    launched: u64,
    patched: u64,
    separate: u64,
}

/// What a call does.
#[derive(PartialEq, Eq, Debug)]
enum Choice {
    /// Launches this graph, these nodes patched.
    Graph(usize, Vec<u32>),
    New,
    Separate,
}

impl<E> Pool<E> {
    /// Queues a stretch on memory that begins at these bases.
    ///
    /// # Errors
    /// The driver's, of launches. Where a graph cannot be made or patched, its launches are queued one by one, and [`Pool::explain`] says why.
    pub fn run(&mut self, driver: &impl Driver<Exec = E>, stretch: &Arc<Stretch>, bases: &[u64]) -> Result<()> {
        let choice = self.choose(stretch, bases, driver.stream());
        self.calls += 1;
        self.last = Some(stretch.clone());
        let found = match choice {
            Choice::Graph(i, nodes) => self.patched(driver, i, &nodes, stretch, bases),
            Choice::New => self.built(driver, stretch, bases),
            Choice::Separate => None,
        };
        let Some(i) = found else {
            self.counts.separate += 1;
            return driver.separately(stretch, bases);
        };
        self.counts.launched += 1;
        self.graphs[i].used = self.calls;
        driver.launch(&self.graphs[i].exec)
    }

    fn choose(&mut self, stretch: &Stretch, bases: &[u64], stream: usize) -> Choice {
        let count = stretch.nodes().len();
        if self.failed.is_some() || count < LEAST {
            return Choice::Separate;
        }
        let is_same = |graph: &Graph<E>| {
            (graph.stretch.id, graph.stream) == (stretch.id, stream) && graph.bases.as_slice() == bases
        };
        if let Some(i) = self.graphs.iter().position(is_same) {
            return Choice::Graph(i, Vec::new());
        }
        let comes_again = self.remembers(stretch, bases, stream);
        let near = |(i, graph): (usize, &Graph<E>)| {
            let nodes = stretch.changes(bases, &graph.stretch, &graph.bases)?;
            Some((graph.stream != stream, nodes.len(), graph.used, i, nodes))
        };
        let best = self.graphs.iter().enumerate().filter_map(near).min();
        let own = best.as_ref().is_some_and(|(foreign, ..)| !foreign);
        let few = best.as_ref().is_some_and(|(_, patched, ..)| patched * FEW <= count);
        let again = self.last.as_ref().is_some_and(|last| last.is_like(stretch));
        if again && (!own || comes_again && !few) && self.has_room() {
            return Choice::New;
        }
        match best {
            Some((.., i, nodes)) => Choice::Graph(i, nodes),
            None => Choice::Separate,
        }
    }

    /// Whether a call of these sizes and memory was seen not long ago; it is from now on.
    fn remembers(&mut self, stretch: &Stretch, bases: &[u64], stream: usize) -> bool {
        let mut hasher = rustc_hash::FxHasher::default();
        (stretch.id, bases, stream).hash(&mut hasher);
        let hash = hasher.finish();
        if self.recent.contains(&hash) {
            return true;
        }
        self.recent.truncate(REMEMBERED - 1);
        self.recent.push_front(hash);
        false
    }

    /// Whether one more may be made: one that nobody uses goes for it.
    fn has_room(&mut self) -> bool {
        if self.graphs.len() < KEPT {
            return true;
        }
        let oldest = (0..self.graphs.len()).min_by_key(|&i| self.graphs[i].used);
        let Some(i) = oldest.filter(|&i| self.graphs[i].used + STALE < self.calls) else { return false };
        self.graphs.swap_remove(i);
        true
    }

    fn patched(
        &mut self,
        driver: &impl Driver<Exec = E>,
        i: usize,
        nodes: &[u32],
        stretch: &Arc<Stretch>,
        bases: &[u64],
    ) -> Option<usize> {
        let graph = &mut self.graphs[i];
        if let Err(error) = driver.patch(&mut graph.exec, nodes, stretch, bases) {
            // Some of its nodes may be the new ones.
            self.graphs.swap_remove(i);
            self.failed = Some(error.to_string());
            return None;
        }
        self.counts.patched += nodes.len() as u64;
        (graph.stretch, graph.stream) = (stretch.clone(), driver.stream());
        graph.bases.clear();
        graph.bases.extend_from_slice(bases);
        Some(i)
    }

    fn built(&mut self, driver: &impl Driver<Exec = E>, stretch: &Arc<Stretch>, bases: &[u64]) -> Option<usize> {
        let Some(counted) = Counted::new(stretch.nodes().len()) else {
            self.failed = Some(format!("the graphs of this process have {LIMIT} launches"));
            return None;
        };
        match driver.build(stretch, bases) {
            Err(error) => {
                self.failed = Some(error.to_string());
                None
            }
            Ok(exec) => {
                self.counts.built += 1;
                let (stretch, bases, stream) = (stretch.clone(), bases.to_vec(), driver.stream());
                self.graphs.push(Graph { exec, stretch, bases, stream, used: self.calls, _counted: counted });
                Some(self.graphs.len() - 1)
            }
        }
    }

    /// What became of the calls, and why, in a line.
    pub fn explain(&self) -> String {
        let Counts { built, launched, patched, separate } = self.counts;
        let launches = self.last.as_ref().map_or(0, |stretch| stretch.nodes().len());
        let kept = self.graphs.len();
        let graphs = format!(
            "{launches} launches: {launched} calls by a CUDA graph, {patched} launches patched, {built} graphs made, {kept} kept; \
             {separate} calls launch by launch"
        );
        match &self.failed {
            Some(why) => format!("{graphs}: {why}"),
            None if launches < LEAST => format!("{graphs}: a graph takes {LEAST}"),
            None => graphs,
        }
    }
}

#[cfg(test)]
mod tests;
