//! Graphs: launches recorded once and replayed as one.
//!
//! A graph is built node by node ([`Graph::add_kernel`]), which gives the nodes to patch later, or captured from a
//! stream ([`Graph::capture`]), which takes in what libraries queue.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use super::args::KernelArgs;
use super::device::Device;
use super::driver::{check, check_with};
use super::launch::{LaunchConfig, cluster_value, prepare};
use super::module::Function;
use super::stream::Stream;
use crate::{Error, Result};

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(sys::CUgraphNode);

// SAFETY: a node is a name that means something only together with its graph.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The end of a node.
    Full(Node),
    /// The point where every block of a kernel has ended or said `griddepcontrol.launch_dependents`. The kernel that
    /// waits so does the rest itself (`griddepcontrol.wait`).
    Programmatic(Node),
}

/// Launches and what they wait for.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    handle: sys::CUgraph,
    /// The kernels of the nodes, which must stay loaded.
    functions: Vec<Function>,
}

// SAFETY: the driver's graphs are not locked, and `&mut` guards them here.
unsafe impl Send for Graph {}

impl Graph {
    /// A graph without nodes.
    pub fn new(device: &Arc<Device>) -> Result<Graph> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { sys::cuGraphCreate(&mut handle, 0) }, "cuGraphCreate")?;
        Ok(Graph { device: device.clone(), handle, functions: Vec::new() })
    }

    /// Adds a launch that waits for `dependencies`. [`LaunchConfig::programmatic`] has no meaning here: the kind of
    /// each dependency says it.
    ///
    /// # Safety
    ///
    /// As for [`Stream::launch`], whenever the graph runs.
    pub unsafe fn add_kernel(
        &mut self,
        function: &Function,
        config: &LaunchConfig,
        args: &mut KernelArgs,
        dependencies: &[Dependency],
    ) -> Result<Node> {
        let params = node_params(function, config, args)?;
        let mut node = std::ptr::null_mut();
        // SAFETY: the parameters outlive the call, which copies them.
        let status = unsafe { sys::cuGraphAddKernelNode_v2(&mut node, self.handle, std::ptr::null(), 0, &params) };
        check_with(status, || format!("cuGraphAddKernelNode(`{}`, {config:?})", function.name()))?;
        self.functions.push(function.clone());
        if let Some(cluster) = config.cluster {
            let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            // SAFETY: the value is of the attribute's kind.
            let status = unsafe { sys::cuGraphKernelNodeSetAttribute(node, id, &cluster_value(cluster)) };
            check(status, "cuGraphKernelNodeSetAttribute(cluster)")?;
        }
        for dependency in dependencies {
            self.add_edge(*dependency, node)?;
        }
        Ok(Node(node))
    }

    fn add_edge(&mut self, dependency: Dependency, to: sys::CUgraphNode) -> Result<()> {
        let mut edge = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let from = match dependency {
            Dependency::Full(node) => node.0,
            Dependency::Programmatic(node) => {
                // Port 1 of a kernel node is its programmatic one.
                edge.from_port = 1;
                edge.type_ = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
                node.0
            }
        };
        // SAFETY: one edge between two nodes, which the driver finds in this graph or refuses.
        check(unsafe { sys::cuGraphAddDependencies_v2(self.handle, &from, &to, &edge, 1) }, "cuGraphAddDependencies")
    }

    /// Records what `queue` queues on `stream`, without running it. Nothing else may use the stream meanwhile, and
    /// `queue` may not synchronize or allocate. `functions` are the kernels that it launches, which the graph keeps
    /// loaded.
    pub fn capture(
        stream: &Stream,
        functions: &[Function],
        queue: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<Graph> {
        let device = stream.device();
        device.bind()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is valid.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.handle(), mode) }, "cuStreamBeginCapture")?;
        let result = queue(stream);
        let mut handle = std::ptr::null_mut();
        // Ends in any case, or the stream would go on recording.
        // SAFETY: begun above, on this thread.
        let status = unsafe { sys::cuStreamEndCapture(stream.handle(), &mut handle) };
        let graph = Graph { device: device.clone(), handle, functions: functions.to_vec() };
        result?;
        check(status, "cuStreamEndCapture")?;
        Ok(graph)
    }

    /// The number of nodes.
    pub fn node_count(&self) -> Result<usize> {
        self.device.bind()?;
        let mut count = 0;
        // SAFETY: with no array the driver gives the number alone.
        check(unsafe { sys::cuGraphGetNodes(self.handle, std::ptr::null_mut(), &mut count) }, "cuGraphGetNodes")?;
        Ok(count)
    }

    /// Makes the graph ready to run.
    pub fn instantiate(self) -> Result<GraphExec> {
        self.device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { sys::cuGraphInstantiateWithFlags(&mut handle, self.handle, 0) };
        check(status, "cuGraphInstantiate")?;
        Ok(GraphExec { handle, graph: self })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `new` or `capture`, where a failed capture leaves null; destroyed once.
        if !self.handle.is_null() && self.device.bind().is_ok() {
            unsafe { sys::cuGraphDestroy(self.handle) };
        }
    }
}

fn node_params(
    function: &Function,
    config: &LaunchConfig,
    args: &mut KernelArgs,
) -> Result<sys::CUDA_KERNEL_NODE_PARAMS> {
    if config.is_empty() {
        let name = function.name();
        return Err(Error::Invalid(format!("an empty launch of `{name}` as a graph's node: {:?}", config.grid)));
    }
    prepare(function, config, args)?;
    Ok(sys::CUDA_KERNEL_NODE_PARAMS {
        func: function.handle(),
        gridDimX: config.grid[0],
        gridDimY: config.grid[1],
        gridDimZ: config.grid[2],
        blockDimX: config.block[0],
        blockDimY: config.block[1],
        blockDimZ: config.block[2],
        sharedMemBytes: config.shared_memory,
        kernelParams: args.pointers(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: function.device().context(),
    })
}

/// A graph that is ready to run.
#[derive(Debug)]
pub struct GraphExec {
    handle: sys::CUgraphExec,
    /// Its nodes name what can be patched, so it lives as long.
    graph: Graph,
}

// SAFETY: as for `Graph`.
unsafe impl Send for GraphExec {}

impl GraphExec {
    /// Replaces the launch of a kernel's node, before the next run: its arguments and shape, and within the same
    /// device its kernel. The cluster stays as it was.
    ///
    /// # Safety
    ///
    /// As for [`Stream::launch`]; and `node` is of the graph that this was made from.
    pub unsafe fn set_kernel(
        &mut self,
        node: Node,
        function: &Function,
        config: &LaunchConfig,
        args: &mut KernelArgs,
    ) -> Result<()> {
        let params = node_params(function, config, args)?;
        // SAFETY: the parameters outlive the call, which copies them; the caller vouches for the node.
        let status = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.handle, node.0, &params) };
        check_with(status, || format!("cuGraphExecKernelNodeSetParams(`{}`, {config:?})", function.name()))?;
        let functions = &mut self.graph.functions;
        let kept = functions.iter().any(|known| known.handle() == function.handle());
        if !kept {
            functions.push(function.clone());
        }
        Ok(())
    }

    /// Queues a run of the whole graph.
    ///
    /// # Safety
    ///
    /// As for [`Stream::launch`], for every launch in it.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        self.graph.device.bind()?;
        // SAFETY: both handles are valid; the caller vouches for the launches.
        check(unsafe { sys::cuGraphLaunch(self.handle, stream.handle()) }, "cuGraphLaunch")
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: made in `instantiate`, destroyed once; a run under way completes.
        if self.graph.device.bind().is_ok() {
            unsafe { sys::cuGraphExecDestroy(self.handle) };
        }
    }
}
