//! What a `kernel.func` says of itself: arguments, symbols, grid, threads.

use super::kernel_error;
use rc_dialects::func::{SymbolDecl, symbols_of};
use rc_dialects::op;
use rc_ir::{Attr, Body, Dim, Result, Type, TypeData};

/// What a caller needs to know to launch a kernel.
///
/// Machine code takes a pointer or a tensor map for each of `args`, then an i64 for each of `symbols`; on a GPU one array of the pointers, if `table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    pub symbol: String,
    pub args: Vec<KernelArg>,
    /// Whether the code chooses among its arguments by number, all of which are pointers.
    pub table: bool,
    /// The symbols over which sizes and grid are expressions, in the order of their arguments.
    pub symbols: Vec<SymbolDecl>,
    /// Programs along x, y, z, over the symbols.
    pub grid: [Dim; 3],
    /// Threads of a program: 1 on the CPU.
    pub threads: u32,
    /// Blocks of a cluster along x, y, z.
    pub cluster: Option<[u32; 3]>,
    /// Programs that a multiprocessor should hold at once; 0 leaves it open.
    pub min_blocks: u32,
    /// Whether it waits by itself for the kernels before it, and may start before they have ended.
    pub early: bool,
    /// Whether its blocks need the first-level cache.
    pub prefer_l1: bool,
    /// Bytes of scratch memory that each CPU thread needs.
    pub scratch: u64,
    /// Bytes of a block's shared memory that the code declares itself.
    pub static_shared: u32,
    /// Bytes of a block's shared memory that the launch gives.
    pub dynamic_shared: u32,
}

/// An argument before the symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelArg {
    /// A pointer to a dense memref of this type.
    Memory(Type),
    /// A 128-byte tensor map, by value.
    TensorMap(TensorMapInfo),
}

/// What a tensor map describes: the host encodes it for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapInfo {
    /// A dense memref.
    pub tensor: Type,
    /// Extents of the box that one copy moves, outermost dimension first.
    pub box_shape: Vec<u32>,
    /// Bytes of the swizzle: 0 for none, 32, 64 or 128.
    pub swizzle: u32,
    /// The launch's operand that it describes, where that is not the one in its place.
    pub arg: Option<usize>,
}

impl KernelInfo {
    pub(super) fn of(body: &Body) -> Result<KernelInfo> {
        let root = body.op_ref(body.root());
        if !root.is(op::kernel::FUNC) {
            return Err(root.error("is not a kernel.func"));
        }
        if let Some(phase @ ("tile" | "placed")) = root.str("phase") {
            let error = root.unsupported(format!("in machine code from its {phase} phase"));
            return Err(error.help("run lower-tiles first, which brings kernels to their thread phase"));
        }
        let Some(entry) = body.entry() else { return Err(root.error("has no body")) };
        let mut maps = tensor_maps(body)?.into_iter();
        let args = body.block_args(entry).map(|arg| arg_of(body, body.ty(arg), &mut maps)).collect::<Result<_>>()?;
        let count = |name: &str| -> Result<u32> {
            let value = root.int(name).unwrap_or(0);
            u32::try_from(value).map_err(|_| root.error(format!("has '{name}' = {value}")))
        };
        let chooses = body.walk().into_iter().any(|op| body.op_ref(op).is(op::kernel::CHOOSE));
        if chooses && !symbols_of(root)?.is_empty() {
            return Err(root.unsupported("of kernel.choose in a kernel with symbols"));
        }
        // Tensor maps are parameters of their own.
        let table = chooses && root.attr("tensor_maps").is_none();
        Ok(KernelInfo {
            symbol: body.symbol().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            args,
            table,
            symbols: symbols_of(root)?,
            grid: grid_of(body)?,
            threads: count("threads")?.max(1),
            cluster: cluster_of(body)?,
            min_blocks: count("min_blocks")?,
            early: body.ops(entry).any(|op| body.op_ref(op).is(op::kernel::GRID_WAIT)),
            prefer_l1: root.bool("prefer_l1"),
            scratch: 0,
            static_shared: 0,
            dynamic_shared: 0,
        })
    }
}

fn arg_of(body: &Body, ty: Type, maps: &mut impl Iterator<Item = TensorMapInfo>) -> Result<KernelArg> {
    match ty.data() {
        TypeData::MemRef { .. } if ty.strides().is_some() => Ok(KernelArg::Memory(ty)),
        TypeData::Dialect { name, .. } if *name == "tensor_map" => maps
            .next()
            .map(KernelArg::TensorMap)
            .ok_or_else(|| kernel_error(body, "has fewer 'tensor_maps' than arguments that are tensor maps")),
        _ => Err(kernel_error(
            body,
            format!("takes {ty}: arguments are memrefs, row-major or strided<[…]>, and tensor maps"),
        )),
    }
}

fn tensor_maps(body: &Body) -> Result<Vec<TensorMapInfo>> {
    let Some(maps) = body.op_ref(body.root()).attr("tensor_maps") else { return Ok(Vec::new()) };
    let all = maps.as_array().unwrap_or_default().iter().map(|map| tensor_map(*map)).collect::<Option<_>>();
    all.ok_or_else(|| {
        let error = kernel_error(body, format!("has malformed 'tensor_maps': {maps}"));
        error.help("write each as #rc.tensor_map<tensor = memref<…>, box = [rows, columns], swizzle = 128>")
    })
}

fn tensor_map(map: Attr) -> Option<TensorMapInfo> {
    map.as_dialect("tensor_map")?;
    let tensor = map.get("tensor")?.as_type().filter(|ty| ty.is_memref())?;
    let extents = map.get("box")?.as_ints()?;
    let box_shape: Vec<u32> = extents.iter().map(|&n| u32::try_from(n).ok()).collect::<Option<_>>()?;
    let swizzle = map.get("swizzle").map_or(Some(0), |s| u32::try_from(s.as_int()?).ok())?;
    let valid = box_shape.len() == tensor.rank() && [0, 32, 64, 128].contains(&swizzle);
    let arg = map.get("arg").map_or(Some(None), |a| usize::try_from(a.as_int()?).ok().map(Some))?;
    valid.then_some(TensorMapInfo { tensor, box_shape, swizzle, arg })
}

fn grid_of(body: &Body) -> Result<[Dim; 3]> {
    let root = body.op_ref(body.root());
    let dims = root.attr("grid").and_then(|a| a.as_shape()).unwrap_or_default();
    let mut grid = [Dim::Static(1); 3];
    if dims.len() > 3 || dims.contains(&Dim::Dynamic) {
        return Err(root.error("expects up to three known extents in 'grid'"));
    }
    grid[..dims.len()].copy_from_slice(dims);
    Ok(grid)
}

fn cluster_of(body: &Body) -> Result<Option<[u32; 3]>> {
    let root = body.op_ref(body.root());
    let Some(ints) = root.ints("cluster") else { return Ok(None) };
    let mut cluster = [1; 3];
    if ints.len() > 3 || ints.iter().any(|n| !(1..=16).contains(n)) {
        return Err(root.error(format!("has 'cluster' = {ints:?}: up to three extents from 1 to 16")));
    }
    cluster.iter_mut().zip(&ints).for_each(|(to, &n)| *to = n as u32);
    Ok(Some(cluster))
}
