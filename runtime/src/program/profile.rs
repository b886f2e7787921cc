//! How long each launch of a program takes on a GPU.

use super::cuda::{Piece, Source};
use super::queue::Queue;
use super::signature::Bindings;
use super::stretch::{Node, outermost};
use super::{CudaProgram, Step};
use crate::Result;
use crate::cuda::{Event, Gate, Stream};

/// Launches that are queued, with marks between them, before the first starts: few enough for the driver's queue.
pub(super) const AT_ONCE: usize = 64;

const CHOICE: &str = "a choice";
const LOOP: &str = "a loop";

impl CudaProgram {
    /// What each launch, copy, or step in which the host takes part takes by itself, in milliseconds, in order: functions of the process, choices and loops as a
    /// whole. A launch begins when the one before has ended, and does not wait for the host.
    ///
    /// # Errors
    /// As [`CudaProgram::run`].
    pub fn launch_times(&self, bindings: &Bindings, inputs: &[Source]) -> Result<Vec<(String, f64)>> {
        self.on_prepared(bindings, inputs, |stream, bases| {
            let queue = Queue::new(self, stream, bases);
            let gate = Gate::new(self.device())?;
            let mut times = Vec::new();
            for (first, piece) in &self.plan(bindings, &[])?.pieces {
                match piece {
                    Piece::Stretch(stretch) => {
                        times.extend(self.stretch_times(stream, &gate, &queue, stretch.nodes())?)
                    }
                    Piece::Host(step) => {
                        let took = self.marked(stream, || queue.step(step))?;
                        times.push((self.program().steps[*first].name(self.program()).to_string(), took));
                    }
                }
            }
            Ok(times)
        })
    }

    /// What each of a stretch's nodes takes: what decides, with all inside of it.
    fn stretch_times(&self, stream: &Stream, gate: &Gate, queue: &Queue, nodes: &[Node]) -> Result<Vec<(String, f64)>> {
        let outer: Vec<_> = outermost(nodes, 0..nodes.len()).map(|(at, [_, rest])| at..rest.end).collect();
        let mut times = Vec::new();
        for run in outer.chunk_by(|a, b| !nodes[a.start].decides() && !nodes[b.start].decides()) {
            let run = &nodes[run[0].start..run[run.len() - 1].end];
            if run[0].decides() {
                times.push((self.name_of(&run[0]), self.marked(stream, || queue.nodes(run))?));
                continue;
            }
            for nodes in run.chunks(AT_ONCE) {
                let names = nodes.iter().map(|node| self.name_of(node));
                times.extend(names.zip(self.timed(stream, gate, queue, nodes)?));
            }
        }
        Ok(times)
    }

    /// What some work takes in which the host takes part.
    fn marked(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let marks = [Event::new(self.device())?, Event::new(self.device())?];
        marks[0].record(stream)?;
        work()?;
        marks[1].record(stream)?;
        marks[1].synchronize()?;
        Ok(marks[1].microseconds_since(&marks[0])? / 1e3)
    }

    fn timed(&self, stream: &Stream, gate: &Gate, queue: &Queue, nodes: &[Node]) -> Result<Vec<f64>> {
        let marks = (0..=nodes.len()).map(|_| Event::new(self.device())).collect::<Result<Vec<_>>>()?;
        // At a kernel's first launch the driver may wait for the device, which must not wait at the gate. One that fails is named.
        for node in nodes {
            queue.nodes(std::slice::from_ref(node))?;
            stream.synchronize().map_err(|error| error.of_launch(&self.name_of(node)))?;
        }
        let closed = gate.close(stream)?;
        marks[0].record(stream)?;
        for (node, mark) in nodes.iter().zip(&marks[1..]) {
            queue.nodes(std::slice::from_ref(node))?;
            mark.record(stream)?;
        }
        drop(closed);
        stream.synchronize()?;
        marks.windows(2).map(|pair| Ok(pair[1].microseconds_since(&pair[0])? / 1e3)).collect()
    }

    fn name_of(&self, node: &Node) -> String {
        match node {
            Node::Launch(launch) => self.program().kernels[launch.kernel].name.to_string(),
            Node::Copy { .. } => "copy".into(),
            Node::If { .. } => CHOICE.into(),
            Node::While { .. } => LOOP.into(),
        }
    }
}

impl Step {
    /// What it runs.
    pub fn name<'a>(&self, program: &'a super::Program) -> &'a str {
        match self {
            Step::Launch { kernel, .. } => program.kernels[*kernel].name.as_str(),
            Step::Copy { .. } => "copy",
            Step::If { .. } => CHOICE,
            Step::Loop(_) => LOOP,
            Step::Foreign(call) => program.foreign[call.function].as_str(),
        }
    }
}
