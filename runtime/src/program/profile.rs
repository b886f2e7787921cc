//! How long each launch of a program takes on a GPU.

use super::cuda::{Piece, Source};
use super::queue::Queue;
use super::signature::Bindings;
use super::stretch::Node;
use super::{CudaProgram, Step};
use crate::Result;
use crate::cuda::{Event, Gate, Stream};

/// Launches that are queued, with marks between them, before the first starts: few enough for the driver's queue.
const AT_ONCE: usize = 64;

impl CudaProgram {
    /// What each launch, copy or step by the host of one run takes by itself, in milliseconds, in order. A launch begins when the one before has
    /// ended, and does not wait for the host.
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
                        for nodes in stretch.nodes().chunks(AT_ONCE) {
                            let names = nodes.iter().map(|node| self.name_of(node));
                            let took = self.timed(stream, &gate, &queue, nodes)?;
                            times.extend(names.zip(took));
                        }
                    }
                    Piece::Host(step) => {
                        let marks = [Event::new(self.device())?, Event::new(self.device())?];
                        marks[0].record(stream)?;
                        queue.step(step)?;
                        marks[1].record(stream)?;
                        marks[1].synchronize()?;
                        let milliseconds = marks[1].microseconds_since(&marks[0])? / 1e3;
                        times.push((self.program().steps[*first].name(self.program()).to_string(), milliseconds));
                    }
                }
            }
            Ok(times)
        })
    }

    fn timed(&self, stream: &Stream, gate: &Gate, queue: &Queue, nodes: &[Node]) -> Result<Vec<f64>> {
        let marks = (0..=nodes.len()).map(|_| Event::new(self.device())).collect::<Result<Vec<_>>>()?;
        // At a kernel's first launch the driver may wait for the device, which must not wait at the gate.
        queue.nodes(nodes)?;
        stream.synchronize()?;
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
        }
    }
}

impl Step {
    /// What it runs.
    pub fn name<'a>(&self, program: &'a super::Program) -> &'a str {
        match self {
            Step::Launch { kernel, .. } => program.kernels[*kernel].name.as_str(),
            Step::Copy { .. } => "copy",
            Step::If { .. } => "a choice",
            Step::Loop(_) => "a loop",
            Step::Foreign(call) => program.foreign[call.function].as_str(),
        }
    }
}
