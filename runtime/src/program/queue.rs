//! Launches on a stream, one by one or as graphs.

use super::CudaProgram;
use super::graphs::Driver;
use super::prepare::{At, Machine, PreparedStep, run_steps};
use super::stretch::{Launch, Node, Places, Stretch};
use crate::cuda::{self, Arg, Dependency, Graph, GraphExec, KernelArgs, LaunchConfig, Stream};
use crate::foreign::On;
use crate::{Error, Result};
use std::cell::RefCell;

/// A run on a stream, on memory that begins at these bases.
pub struct Queue<'a> {
    program: &'a CudaProgram,
    stream: &'a Stream,
    bases: &'a [u64],
    /// The arguments of a launch.
    args: RefCell<KernelArgs>,
}

/// A graph, and its nodes in order.
pub struct Exec {
    graph: GraphExec,
    nodes: Vec<cuda::Node>,
}

impl<'a> Queue<'a> {
    pub fn new(program: &'a CudaProgram, stream: &'a Stream, bases: &'a [u64]) -> Queue<'a> {
        Queue { program, stream, bases, args: RefCell::default() }
    }

    /// Queues launches and copies in order. A kernel that waits by itself may start before the one ahead of it has ended.
    pub fn nodes(&self, nodes: &[Node]) -> Result<()> {
        let mut after_kernel = false;
        for node in nodes {
            self.node(node, after_kernel)?;
            after_kernel = matches!(node, Node::Launch(_));
        }
        Ok(())
    }

    /// Runs a step that needs the host.
    pub fn step(&self, step: &PreparedStep) -> Result<()> {
        let mut turns = Turns { queue: self, after_kernel: false };
        run_steps(&mut turns, std::slice::from_ref(step), &mut Vec::new())
    }

    fn node(&self, node: &Node, after_kernel: bool) -> Result<()> {
        match node {
            Node::Launch(launch) => {
                let args = &mut *self.args.borrow_mut();
                self.arguments(args, launch, self.bases)?;
                let mut config = self.config(launch);
                config.programmatic = self.is_early(launch) && after_kernel;
                // SAFETY: the code was generated for these arguments: buffers of the planned sizes, the kernel's symbols in their order.
                unsafe { self.stream.launch(&self.program.kernels[launch.kernel], &config, args) }
            }
            // SAFETY: both places have that many bytes, and the plan gives results memory of their own.
            Node::Copy { to, from, bytes } => unsafe {
                self.stream.copy(to.address(self.bases), from.address(self.bases), *bytes)
            },
        }
    }

    /// Whether a kernel waits by itself for those before it.
    fn is_early(&self, launch: &Launch) -> bool {
        self.program.program.kernels[launch.kernel].early
    }

    fn config(&self, launch: &Launch) -> LaunchConfig {
        let binary = &self.program.program.kernels[launch.kernel];
        let config = LaunchConfig::new(launch.grid, [binary.threads, 1, 1]).shared_memory(binary.shared);
        LaunchConfig { cluster: binary.cluster, ..config }
    }

    /// Leaves a launch's arguments in `values`, its tensor maps encoded.
    fn arguments(&self, values: &mut KernelArgs, launch: &Launch, bases: &[u64]) -> Result<()> {
        let binary = &self.program.program.kernels[launch.kernel];
        let address = |i: usize| launch.args[i].address(bases);
        values.clear();
        if binary.table {
            values.push_table(launch.args.iter().map(|spot| spot.address(bases)));
            return Ok(());
        }
        let bind = |name| binary.symbols.iter().position(|&s| s == name).map(|i| launch.symbols[i]);
        let count = launch.args.len();
        for i in 0..count {
            values.push(&match binary.maps.iter().find(|map| map.param == i) {
                Some(map) => Arg::TensorMap(map.encode(address(map.arg), &bind)?),
                None => Arg::Pointer(address(i)),
            });
        }
        for map in binary.maps.iter().filter(|map| map.param >= count) {
            values.push(&Arg::TensorMap(map.encode(address(map.arg), &bind)?));
        }
        launch.symbols.iter().for_each(|&n| values.push(&Arg::I64(n)));
        Ok(())
    }

    /// Adds a node to a graph, behind the one before it.
    fn add(
        &self,
        graph: &mut Graph,
        node: &Node,
        bases: &[u64],
        before: Option<(bool, cuda::Node)>,
    ) -> Result<cuda::Node> {
        let full = before.map(|(_, node)| Dependency::Full(node));
        match node {
            Node::Launch(launch) => {
                let args = &mut *self.args.borrow_mut();
                self.arguments(args, launch, bases)?;
                let early = self.is_early(launch);
                let dependency = match before {
                    Some((true, node)) if early => Some(Dependency::Programmatic(node)),
                    _ => full,
                };
                let function = &self.program.kernels[launch.kernel];
                // SAFETY: as where it is queued by itself; whoever launches the graph vouches for the memory.
                unsafe { graph.add_kernel(function, &self.config(launch), args, dependency.as_slice()) }
            }
            // SAFETY: as above.
            Node::Copy { to, from, bytes } => unsafe {
                graph.add_copy(to.address(bases), from.address(bases), *bytes, full.as_slice())
            },
        }
    }
}

impl Driver for Queue<'_> {
    type Exec = Exec;

    fn build(&self, stretch: &Stretch, bases: &[u64]) -> Result<Exec> {
        let mut graph = Graph::new(&self.program.device)?;
        let mut nodes = Vec::with_capacity(stretch.nodes().len());
        let mut before = None;
        for node in stretch.nodes() {
            let added = self.add(&mut graph, node, bases, before)?;
            before = Some((matches!(node, Node::Launch(_)), added));
            nodes.push(added);
        }
        Ok(Exec { graph: graph.instantiate()?, nodes })
    }

    fn patch(&self, exec: &mut Exec, nodes: &[u32], stretch: &Stretch, bases: &[u64]) -> Result<()> {
        for &i in nodes {
            let place = exec.nodes[i as usize];
            match &stretch.nodes()[i as usize] {
                Node::Launch(launch) => {
                    let args = &mut *self.args.borrow_mut();
                    self.arguments(args, launch, bases)?;
                    let function = &self.program.kernels[launch.kernel];
                    // SAFETY: as where it is queued by itself. Runs that are queued keep what they have.
                    unsafe { exec.graph.set_kernel(place, function, &self.config(launch), args)? }
                }
                // SAFETY: as above.
                Node::Copy { to, from, bytes } => unsafe {
                    exec.graph.set_copy(place, to.address(bases), from.address(bases), *bytes)?;
                },
            }
        }
        Ok(())
    }

    fn launch(&self, exec: &Exec) -> Result<()> {
        // SAFETY: its nodes are those of a stretch on the memory that this run's caller vouches for.
        unsafe { exec.graph.launch(self.stream) }
    }

    fn separately(&self, stretch: &Stretch, _: &[u64]) -> Result<()> {
        self.nodes(stretch.nodes())
    }

    fn stream(&self) -> usize {
        self.stream.raw() as usize
    }
}

/// A step of which the host decides how it goes on.
struct Turns<'a> {
    queue: &'a Queue<'a>,
    after_kernel: bool,
}

impl Turns<'_> {
    fn places(&self) -> Places<'_> {
        let program = self.queue.program;
        Places { program: &program.program, constants: &program.places }
    }

    fn at(&self, at: &At, turns: &[usize]) -> u64 {
        self.places().spot(at, turns).address(self.queue.bases)
    }
}

impl Machine for Turns<'_> {
    fn simple(&mut self, step: &PreparedStep, turns: &[usize]) -> Result<()> {
        if let PreparedStep::Foreign(call) = step {
            let program = self.queue.program;
            let function = (program.program.foreign[call.function].as_str(), &program.foreign[call.function]);
            let on = On::Cuda { device: program.device.ordinal(), stream: self.queue.stream.raw() };
            call.run(function, on, |at| self.at(at, turns))?;
            self.after_kernel = false;
        } else if let Some(node) = self.places().node(step, turns)? {
            self.queue.node(&node, self.after_kernel)?;
            self.after_kernel = matches!(node, Node::Launch(_));
        }
        Ok(())
    }

    fn truth(&mut self, at: &At, turns: &[usize]) -> Result<bool> {
        if self.queue.stream.is_capturing()? {
            let what = "a choice or a loop that depends on what is computed, while a CUDA graph is captured";
            return Err(Error::Unsupported(format!("{what}: run this function outside of the capture")));
        }
        self.after_kernel = false;
        // SAFETY: the plan gives a condition a byte, which the steps before write.
        Ok(unsafe { self.queue.stream.read_byte(self.at(at, turns))? } != 0)
    }
}
