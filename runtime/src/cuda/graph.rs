//! Graphs: launches recorded once and replayed as one, built node by node, which gives the nodes to patch later.

use std::sync::Arc;

use cudarc::driver::sys;
use rustc_hash::FxHashMap;

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

/// What a kernel tells a conditional node by whether to run its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(super) u64);

/// When a conditional node runs its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// Once, where its handle is not 0 when it is reached.
    If,
    /// Again and again while its handle is not 0.
    While,
}

/// Launches and what they wait for.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    handle: sys::CUgraph,
    /// Whether it is the body of a node, which goes with that node's graph.
    inner: bool,
    /// The kernels of the nodes by their handles, which must stay loaded; those of bodies too.
    functions: FxHashMap<usize, Function>,
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
        Ok(Graph { device: device.clone(), handle, inner: false, functions: FxHashMap::default() })
    }

    /// A handle for a conditional node of this graph. Until a kernel of the same run sets it, it has no value.
    pub fn handle(&mut self) -> Result<Handle> {
        let mut handle = 0;
        self.device.bind()?;
        // SAFETY: writes one handle.
        let status =
            unsafe { sys::cuGraphConditionalHandleCreate(&mut handle, self.handle, self.device.context(), 0, 0) };
        check(status, "cuGraphConditionalHandleCreate")?;
        Ok(Handle(handle))
    }

    /// Adds a node that runs a body as its handle says, and fills the body. Nodes in there have [`Dependency::Full`] alone.
    ///
    /// # Errors
    /// The driver's, and those of `fill`.
    pub fn add_conditional(
        &mut self,
        kind: Conditional,
        handle: Handle,
        dependencies: &[Dependency],
        fill: impl FnOnce(&mut Graph) -> Result<()>,
    ) -> Result<Node> {
        let type_ = match kind {
            Conditional::If => sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
            Conditional::While => sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
        };
        let conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
            handle: handle.0,
            type_,
            size: 1,
            phGraph_out: std::ptr::null_mut(),
            ctx: self.device.context(),
        };
        let mut params = sys::CUgraphNodeParams {
            type_: sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            __bindgen_anon_1: sys::CUgraphNodeParams_st__bindgen_ty_1 { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.__bindgen_anon_1.conditional = conditional;
        let (mut node, none) = (std::ptr::null_mut(), std::ptr::null());
        self.device.bind()?;
        // SAFETY: the parameters are of the node's type; the driver writes the body's place into them.
        let status = unsafe { sys::cuGraphAddNode_v2(&mut node, self.handle, none, std::ptr::null(), 0, &mut params) };
        check_with(status, || format!("cuGraphAddNode({kind:?})"))?;
        for dependency in dependencies {
            self.add_edge(*dependency, node)?;
        }
        // SAFETY: the driver wrote an array of one graph, which is there as long as the node.
        let body = unsafe { *params.__bindgen_anon_1.conditional.phGraph_out };
        let mut body =
            Graph { device: self.device.clone(), handle: body, inner: true, functions: FxHashMap::default() };
        fill(&mut body)?;
        self.functions.extend(body.functions.drain());
        Ok(Node(node))
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
        keep(&mut self.functions, function);
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

    /// Adds a copy between two places of the device, of at least one byte, that waits for `dependencies`.
    ///
    /// # Safety
    ///
    /// As for [`Stream::copy`], whenever the graph runs.
    pub unsafe fn add_copy(&mut self, to: u64, from: u64, bytes: usize, dependencies: &[Dependency]) -> Result<Node> {
        let (params, context) = (copy_params(to, from, bytes), self.device.context());
        self.device.bind()?;
        let mut node = std::ptr::null_mut();
        // SAFETY: the parameters outlive the call, which copies them.
        let status =
            unsafe { sys::cuGraphAddMemcpyNode(&mut node, self.handle, std::ptr::null(), 0, &params, context) };
        check_with(status, || format!("cuGraphAddMemcpyNode({bytes} bytes)"))?;
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
        // SAFETY: made in `new`, destroyed once.
        if let Some(_relaxed) = self.device.releasing().filter(|_| !self.inner) {
            unsafe { sys::cuGraphDestroy(self.handle) };
        }
    }
}

/// Keeps a kernel loaded.
fn keep(functions: &mut FxHashMap<usize, Function>, function: &Function) {
    functions.entry(function.handle() as usize).or_insert_with(|| function.clone());
}

/// A copy along one dimension.
fn copy_params(to: u64, from: u64, bytes: usize) -> sys::CUDA_MEMCPY3D {
    let kind = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: kind,
        srcHost: std::ptr::null(),
        srcDevice: from,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: kind,
        dstHost: std::ptr::null_mut(),
        dstDevice: to,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
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
        keep(&mut self.graph.functions, function);
        Ok(())
    }

    /// Replaces a copy's node, before the next run.
    ///
    /// # Safety
    ///
    /// As for [`Graph::add_copy`]; and `node` is a copy of the graph that this was made from.
    pub unsafe fn set_copy(&mut self, node: Node, to: u64, from: u64, bytes: usize) -> Result<()> {
        let (params, context) = (copy_params(to, from, bytes), self.graph.device.context());
        self.graph.device.bind()?;
        // SAFETY: the parameters outlive the call, which copies them; the caller vouches for the node.
        let status = unsafe { sys::cuGraphExecMemcpyNodeSetParams(self.handle, node.0, &params, context) };
        check_with(status, || format!("cuGraphExecMemcpyNodeSetParams({bytes} bytes)"))
    }

    /// Queues a run of the whole graph, behind its runs before on any stream.
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
        if let Some(_relaxed) = self.graph.device.releasing() {
            unsafe { sys::cuGraphExecDestroy(self.handle) };
        }
    }
}
