//! Launches on a stream, one by one or as graphs.

use super::CudaProgram;
use super::graphs::Driver;
use super::prepare::{At, Machine, PreparedStep, run_steps};
use super::record::Places;
use super::stretch::{Launch, Node, Spot, Stretch, outermost};
use crate::cuda::{self, Arg, Conditional, Decides, Dependency, Graph, GraphExec, KernelArgs, LaunchConfig, Stream};
use crate::foreign::On;
use crate::{Error, Result};
use std::cell::RefCell;
use std::ops::Range;

/// A run on a stream, on memory that begins at these bases.
pub struct Queue<'a> {
    program: &'a CudaProgram,
    stream: &'a Stream,
    bases: &'a [u64],
    /// The arguments of a launch.
    args: RefCell<KernelArgs>,
}

/// A graph, and what its nodes are in there, in order.
pub struct Exec {
    graph: GraphExec,
    nodes: Vec<Placed>,
}

/// What a node is in a graph.
#[derive(Clone, Copy)]
enum Placed {
    Work(cuda::Node),
    /// What reads the flag: of a loop before it, and at the end of each turn.
    Decides([Option<cuda::Node>; 2], Decides),
}

/// A graph that is being made of a stretch.
struct Making<'a> {
    queue: &'a Queue<'a>,
    stretch: &'a Stretch,
    /// What the nodes are, as far as they are made.
    placed: Vec<Option<Placed>>,
}

/// A node that others wait for, and whether it is a kernel that they may start before the end of.
type Before = (bool, cuda::Node);

impl<'a> Queue<'a> {
    pub fn new(program: &'a CudaProgram, stream: &'a Stream, bases: &'a [u64]) -> Queue<'a> {
        Queue { program, stream, bases, args: RefCell::default() }
    }

    /// Queues nodes in order, and waits for what decides. A kernel that waits by itself may start before the one ahead of it has ended.
    pub fn nodes(&self, nodes: &[Node]) -> Result<()> {
        let mut after_kernel = false;
        for (at, [first, second]) in outermost(nodes, 0..nodes.len()) {
            match &nodes[at] {
                Node::If { flag, .. } => self.nodes(&nodes[if self.truth(flag)? { first } else { second }])?,
                Node::While { flag, .. } => {
                    while self.truth(flag)? {
                        self.nodes(&nodes[first.clone()])?;
                    }
                }
                node => self.node(node, after_kernel)?,
            }
            after_kernel = matches!(nodes[at], Node::Launch(_));
        }
        Ok(())
    }

    /// Whether a byte is not 0 when all that is queued is done.
    fn truth(&self, flag: &Spot) -> Result<bool> {
        if self.stream.is_capturing()? {
            let what = "a choice or a loop that depends on what is computed, while a CUDA graph is captured";
            return Err(Error::Unsupported(format!("{what}: run this function outside of the capture")));
        }
        // SAFETY: the plan gives a condition a byte, which the nodes before write.
        Ok(unsafe { self.stream.read_byte(flag.address(self.bases))? } != 0)
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
                unsafe { self.stream.launch(self.program.kernel(launch.kernel)?, &config, args) }
            }
            // SAFETY: both places have that many bytes, and the plan gives results memory of their own.
            Node::Copy { to, from, bytes } => unsafe {
                self.stream.copy(to.address(self.bases), from.address(self.bases), *bytes)
            },
            Node::If { .. } | Node::While { .. } => unreachable!("the nodes inside are queued as it decides"),
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
}

impl Making<'_> {
    /// Adds these nodes to a graph, each behind those that it waits for. Gives those that none of them waits for.
    fn fill(&mut self, graph: &mut Graph, range: Range<usize>, inner: bool) -> Result<Vec<Before>> {
        let (mut all, mut open): (Vec<Before>, Vec<usize>) = (Vec::new(), Vec::new());
        for (at, inside) in outermost(self.stretch.nodes(), range) {
            let node = &self.stretch.nodes()[at];
            let waits = waits(node, all.len()).unwrap_or_else(|| open.clone());
            let before: Vec<Before> = waits.iter().map(|&i| all[i]).collect();
            all.push(match node {
                Node::If { flag, .. } => (false, self.choice(graph, at, flag, inside, &before)?),
                Node::While { flag, .. } => (false, self.turns(graph, at, flag, inside[0].clone(), &before)?),
                node => {
                    let added = self.add(graph, node, &before)?;
                    self.placed[at] = Some(Placed::Work(added));
                    (!inner && matches!(node, Node::Launch(_)), added)
                }
            });
            open.retain(|i| !waits.contains(i));
            open.push(all.len() - 1);
        }
        Ok(open.into_iter().map(|i| all[i]).collect())
    }

    /// Adds a launch or a copy.
    fn add(&self, graph: &mut Graph, node: &Node, before: &[Before]) -> Result<cuda::Node> {
        let (queue, bases) = (self.queue, self.queue.bases);
        match node {
            Node::Launch(launch) => {
                let args = &mut *queue.args.borrow_mut();
                queue.arguments(args, launch, bases)?;
                let early = queue.is_early(launch);
                let dependency = |&(kernel, node): &Before| match kernel && early {
                    true => Dependency::Programmatic(node),
                    false => Dependency::Full(node),
                };
                let dependencies: Vec<Dependency> = before.iter().map(dependency).collect();
                let function = queue.program.kernel(launch.kernel)?;
                // SAFETY: as where it is queued by itself; whoever launches the graph vouches for the memory.
                unsafe { graph.add_kernel(function, &queue.config(launch), args, &dependencies) }
            }
            // SAFETY: as above.
            Node::Copy { to, from, bytes } => unsafe {
                graph.add_copy(to.address(bases), from.address(bases), *bytes, &full(before))
            },
            Node::If { .. } | Node::While { .. } => unreachable!("these are more than one node"),
        }
    }

    /// Adds what reads a flag and decides.
    fn decide(&self, graph: &mut Graph, flag: &Spot, decides: Decides, before: &[Before]) -> Result<cuda::Node> {
        let conditions = self.queue.program.conditions()?;
        // SAFETY: as for other launches.
        unsafe { conditions.add(graph, flag.address(self.queue.bases), decides, &full(before)) }
    }

    fn choice(
        &mut self,
        graph: &mut Graph,
        at: usize,
        flag: &Spot,
        branches: [Range<usize>; 2],
        before: &[Before],
    ) -> Result<cuda::Node> {
        let handles = [graph.handle()?, graph.handle()?];
        let decides = Decides::Choice(handles);
        let mut last = self.decide(graph, flag, decides, before)?;
        self.placed[at] = Some(Placed::Decides([Some(last), None], decides));
        for (handle, branch) in handles.into_iter().zip(branches) {
            let fill = |body: &mut Graph| self.fill(body, branch, true).map(drop);
            last = graph.add_conditional(Conditional::If, handle, &[Dependency::Full(last)], fill)?;
        }
        Ok(last)
    }

    fn turns(
        &mut self,
        graph: &mut Graph,
        at: usize,
        flag: &Spot,
        inside: Range<usize>,
        before: &[Before],
    ) -> Result<cuda::Node> {
        let handle = graph.handle()?;
        let decides = Decides::While(handle);
        let first = self.decide(graph, flag, decides, before)?;
        let fill = |body: &mut Graph| {
            let last = self.fill(body, inside, true)?;
            let again = self.decide(body, flag, decides, &last)?;
            self.placed[at] = Some(Placed::Decides([Some(first), Some(again)], decides));
            Ok(())
        };
        graph.add_conditional(Conditional::While, handle, &[Dependency::Full(first)], fill)
    }
}

fn full(before: &[Before]) -> Vec<Dependency> {
    before.iter().map(|&(_, node)| Dependency::Full(node)).collect()
}

/// Which of the nodes before it, of which there are so many, a node waits for; nothing where these are all of them. What is before the first was done
/// before the graph began.
fn waits(node: &Node, count: usize) -> Option<Vec<usize>> {
    let Node::Launch(Launch { after: Some(after), .. }) = node else { return None };
    Some(after.iter().filter_map(|&distance| count.checked_sub(distance)).collect())
}

impl Driver for Queue<'_> {
    type Exec = Exec;

    fn build(&self, stretch: &Stretch, bases: &[u64]) -> Result<Exec> {
        let mut graph = Graph::new(&self.program.device)?;
        let (count, on) = (stretch.nodes().len(), Queue::new(self.program, self.stream, bases));
        let mut making = Making { queue: &on, stretch, placed: vec![None; count] };
        making.fill(&mut graph, 0..count, false)?;
        Ok(Exec { nodes: making.placed.into_iter().flatten().collect(), graph: graph.instantiate()? })
    }

    fn patch(&self, exec: &mut Exec, nodes: &[u32], stretch: &Stretch, bases: &[u64]) -> Result<()> {
        for &i in nodes {
            match (exec.nodes[i as usize], &stretch.nodes()[i as usize]) {
                (Placed::Work(place), Node::Launch(launch)) => {
                    let args = &mut *self.args.borrow_mut();
                    self.arguments(args, launch, bases)?;
                    let function = self.program.kernel(launch.kernel)?;
                    // SAFETY: as where it is queued by itself. Runs that are queued keep what they have.
                    unsafe { exec.graph.set_kernel(place, function, &self.config(launch), args)? }
                }
                // SAFETY: as above.
                (Placed::Work(place), Node::Copy { to, from, bytes }) => unsafe {
                    exec.graph.set_copy(place, to.address(bases), from.address(bases), *bytes)?;
                },
                (Placed::Decides(places, decides), Node::If { flag, .. } | Node::While { flag, .. }) => {
                    let conditions = self.program.conditions()?;
                    for place in places.into_iter().flatten() {
                        // SAFETY: as above.
                        unsafe { conditions.set(&mut exec.graph, place, flag.address(bases), decides)? }
                    }
                }
                _ => return Err(Error::Invalid("a graph of other nodes".into())),
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
        self.after_kernel = false;
        self.queue.truth(&self.places().spot(at, turns))
    }
}
