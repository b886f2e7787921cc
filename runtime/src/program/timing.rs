//! How long runs of a program take on a GPU, between events.

use super::CudaProgram;
use super::cuda::{Piece, Prepared, Source, locked};
use super::profile::AT_ONCE;
use super::signature::Bindings;
use super::stretch::Node;
use crate::Result;
use crate::cuda::{Event, Gate};
use std::sync::atomic::Ordering;

/// Milliseconds that runs which are queued together take, about.
const QUEUED_MS: f64 = 1.0;

/// A program with memory for its runs, and graphs of them made.
struct Timer<'a> {
    program: &'a CudaProgram,
    prepared: &'a Prepared,
    gate: Gate,
    marks: [Event; 2],
    /// How many runs may be queued before the first of them starts.
    at_once: usize,
}

impl CudaProgram {
    /// Milliseconds of `runs` runs of the kernels, between events, after `warm` ones that do not count; `before` is called before each. Inputs and
    /// results stay on the device. A run of few launches begins when all of them are queued.
    ///
    /// # Errors
    /// As [`CudaProgram::run`], and those of `before`.
    pub fn times_ms(
        &self,
        bindings: &Bindings,
        inputs: &[Source],
        runs: usize,
        warm: usize,
        before: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        self.with_timer(bindings, inputs, |timer| {
            let times = (0..runs + warm).map(|_| {
                before()?;
                timer.time(1)
            });
            Ok(times.collect::<Result<Vec<f64>>>()?.split_off(warm))
        })
    }

    /// Milliseconds of a run among several that are queued, launch by launch, before the first of them starts: what it takes in a program that goes on with
    /// others. As many rounds as take `span` together, about, but `counts[0]` at least and `counts[1]` at most. Of a run that is too long for that, or needs the host, what it takes by itself.
    ///
    /// # Errors
    /// As [`CudaProgram::run`].
    pub fn queued_ms(&self, bindings: &Bindings, inputs: &[Source], span: f64, counts: [usize; 2]) -> Result<Vec<f64>> {
        self.with_timer(bindings, inputs, |timer| {
            let once = timer.time(1)?.max(1e-3);
            let runs = ((QUEUED_MS / once) as usize).clamp(1, timer.at_once.max(1));
            // A kernel may start before the one ahead has ended, but not across the ends of graphs.
            let graphs = timer.at_once > 1 && self.as_graphs.swap(false, Ordering::Relaxed);
            let rounds = ((span / (once * runs as f64)) as usize).clamp(counts[0], counts[1]);
            let times = (0..=rounds).map(|_| Ok(timer.time(runs)? / runs as f64)).collect::<Result<Vec<_>>>();
            self.as_graphs.fetch_or(graphs, Ordering::Relaxed);
            Ok(times?.split_off(1))
        })
    }

    fn with_timer<T>(
        &self,
        bindings: &Bindings,
        inputs: &[Source],
        work: impl FnOnce(&Timer) -> Result<T>,
    ) -> Result<T> {
        let mut last = locked(&self.last);
        let prepared = self.prepared(last.take(), bindings, inputs)?;
        self.execute(&prepared, inputs)?;
        // The second run makes graphs.
        self.replay(&prepared)?;
        let marks = [Event::new(&self.device)?, Event::new(&self.device)?];
        let (gate, at_once) = (Gate::new(&self.device)?, self.runs_at_once(bindings)?);
        let result = work(&Timer { program: self, prepared: &prepared, gate, marks, at_once });
        *last = Some(prepared);
        result
    }

    /// How many runs may be queued before the first of them starts: none where the host decides about what is launched, or where launches are many.
    fn runs_at_once(&self, bindings: &Bindings) -> Result<usize> {
        let plan = self.plan(bindings, &[])?;
        let launches = plan.pieces.iter().map(|(_, piece)| match piece {
            Piece::Stretch(stretch) if !stretch.nodes().iter().any(Node::decides) => Some(stretch.nodes().len()),
            _ => None,
        });
        Ok(launches.sum::<Option<usize>>().map_or(0, |launches| AT_ONCE / launches.max(1)))
    }
}

impl Timer<'_> {
    /// Milliseconds of so many runs, one after the other.
    fn time(&self, runs: usize) -> Result<f64> {
        let ([start, end], stream) = (&self.marks, &self.program.stream);
        let closed = (runs <= self.at_once).then(|| self.gate.close(stream)).transpose()?;
        start.record(stream)?;
        (0..runs).try_for_each(|_| self.program.replay(self.prepared))?;
        end.record(stream)?;
        drop(closed);
        end.synchronize()?;
        Ok(end.microseconds_since(start)? / 1e3)
    }
}
