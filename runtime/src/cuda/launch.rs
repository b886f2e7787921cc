//! Launches.

use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributeValue};

use super::args::KernelArgs;
use super::device::DeviceInfo;
use super::driver::check_with;
use super::module::Function;
use super::stream::Stream;
use crate::{Error, Result};

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y, z. A launch with a zero is no launch.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; the grid is a multiple of it. Leave it out where the PTX fixes the cluster
    /// (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory of a block in bytes; above 48 KiB it is opted into. A kernel has dynamic shared memory or
    /// static, not both; the dynamic array then starts at a multiple of 1024.
    pub shared_memory: u32,
    /// Whether the kernel may start before the one queued ahead of it has ended. It then waits by itself
    /// (`griddepcontrol.wait`) before it touches what that one writes.
    pub programmatic: bool,
}

impl LaunchConfig {
    /// Without clusters, dynamic shared memory or early start.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> LaunchConfig {
        LaunchConfig { grid, block, cluster: None, shared_memory: 0, programmatic: false }
    }

    /// The same with dynamic shared memory, in bytes.
    pub fn shared_memory(self, bytes: u32) -> LaunchConfig {
        LaunchConfig { shared_memory: bytes, ..self }
    }

    /// The same with clusters.
    pub fn cluster(self, cluster: [u32; 3]) -> LaunchConfig {
        LaunchConfig { cluster: Some(cluster), ..self }
    }

    /// The same, starting early.
    pub fn programmatic(self) -> LaunchConfig {
        LaunchConfig { programmatic: true, ..self }
    }

    /// Whether there is nothing to launch.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// Checks the limits that the driver would report as no more than an invalid value.
    pub(super) fn check(&self, kernel: &str, static_shared: u32, device: &DeviceInfo) -> Result<()> {
        let fail = |what: String| Err(Error::Invalid(format!("launch of `{kernel}`: {what}")));
        let [x, y, z] = self.grid;
        if x > i32::MAX as u32 || y > 65535 || z > 65535 {
            return fail(format!("a grid of {x} × {y} × {z} blocks; at most 2147483647 × 65535 × 65535"));
        }
        let [bx, by, bz] = self.block;
        let threads = volume(self.block);
        if threads == 0 || threads > u64::from(device.max_threads_per_block) || bz > 64 {
            let most = device.max_threads_per_block;
            return fail(format!("a block of {bx} × {by} × {bz} threads; 1 to {most}, at most 64 in z"));
        }
        if self.shared_memory > 0 && static_shared > 0 {
            // The driver's linker puts the dynamic array right behind the static ones, whatever its alignment: a
            // swizzled copy there would silently read and write the wrong places.
            return Err(Error::Unsupported(format!(
                "launch of `{kernel}`: {static_shared} bytes of static shared memory beside {} of dynamic; \
                 declare all of it as one array",
                self.shared_memory
            )));
        }
        let shared = u64::from(self.shared_memory.max(static_shared));
        if shared > u64::from(device.shared_memory_per_block) {
            let most = device.shared_memory_per_block;
            return fail(format!("{shared} bytes of shared memory a block; {} has {most}", device.name));
        }
        if let Some(cluster) = self.cluster {
            if device.compute_capability < (9, 0) {
                return fail(format!("clusters, which {} ({}) lacks", device.name, device.arch()));
            }
            let fits = cluster.iter().zip(self.grid).all(|(&c, g)| c > 0 && g % c == 0);
            let blocks = volume(cluster);
            if !fits || blocks > 16 {
                let [cx, cy, cz] = cluster;
                return fail(format!(
                    "a cluster of {cx} × {cy} × {cz} blocks in a grid of {x} × {y} × {z}; it divides the grid and has at most 16"
                ));
            }
        }
        Ok(())
    }

    /// The attributes beyond grid, block and shared memory.
    fn attributes(&self) -> ([CUlaunchAttribute; 2], usize) {
        let none = CUlaunchAttribute {
            id: Id::CU_LAUNCH_ATTRIBUTE_IGNORE,
            pad: [0; 4],
            value: CUlaunchAttributeValue { pad: [0; 64] },
        };
        let (mut attributes, mut count) = ([none; 2], 0);
        if let Some(cluster) = self.cluster {
            attributes[count].id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[count].value = cluster_value(cluster);
            count += 1;
        }
        if self.programmatic {
            attributes[count].id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[count].value.programmaticStreamSerializationAllowed = 1;
            count += 1;
        }
        (attributes, count)
    }
}

/// How many there are, counted no further than 64 bits.
fn volume(extents: [u32; 3]) -> u64 {
    extents.iter().fold(1, |product: u64, &extent| product.saturating_mul(u64::from(extent)))
}

/// The value of the cluster attribute.
pub(super) fn cluster_value([x, y, z]: [u32; 3]) -> CUlaunchAttributeValue {
    let mut value = CUlaunchAttributeValue { pad: [0; 64] };
    value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
    value
}

/// Everything that is checked and set before a launch, queued or as a graph's node.
pub(super) fn prepare(function: &Function, config: &LaunchConfig, args: &KernelArgs) -> Result<()> {
    args.check(function.name(), function.parameter_sizes())?;
    config.check(function.name(), function.info().static_shared_memory, function.device().info())?;
    function.device().bind()?;
    function.allow(config.shared_memory, config.cluster.map_or(1, |cluster| cluster.iter().product()))
}

impl Stream {
    /// Queues a kernel; returns at once. Fails where the arguments' sizes are not the parameters', or a limit of the
    /// device is exceeded. What goes wrong while it runs appears when the stream is synchronized.
    ///
    /// # Safety
    ///
    /// The arguments are right for the kernel: addresses valid, until it has run, for all that it reads and writes.
    pub unsafe fn launch(&self, function: &Function, config: &LaunchConfig, args: &mut KernelArgs) -> Result<()> {
        if config.is_empty() {
            return Ok(());
        }
        prepare(function, config, args)?;
        let (mut attributes, count) = config.attributes();
        let launch = sys::CUlaunchConfig {
            gridDimX: config.grid[0],
            gridDimY: config.grid[1],
            gridDimZ: config.grid[2],
            blockDimX: config.block[0],
            blockDimY: config.block[1],
            blockDimZ: config.block[2],
            sharedMemBytes: config.shared_memory,
            hStream: self.handle(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        // SAFETY: configuration and arguments outlive the call, which copies them; the caller vouches for the rest.
        let status =
            unsafe { sys::cuLaunchKernelEx(&launch, function.handle(), args.pointers(), std::ptr::null_mut()) };
        check_with(status, || format!("cuLaunchKernelEx(`{}`, {config:?})", function.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let device = DeviceInfo {
            name: "Test".into(),
            compute_capability: (9, 0),
            max_threads_per_block: 1024,
            shared_memory_per_block: 232_448,
            ..DeviceInfo::default()
        };
        let older = DeviceInfo { compute_capability: (8, 0), ..device.clone() };
        let good = LaunchConfig::new([8, 65535, 1], [128, 1, 2]).shared_memory(200_000).cluster([2, 1, 1]);
        good.check("k", 0, &device).unwrap();
        let check = |config: LaunchConfig| config.check("k", 0, &device).unwrap_err().to_string();
        assert!(check(LaunchConfig::new([1, 65536, 1], [1, 1, 1])).contains("65536"));
        assert!(check(LaunchConfig::new([1, 1, 1], [33, 32, 1])).contains("33 × 32 × 1 threads"));
        assert!(check(LaunchConfig::new([1, 1, 1], [0, 1, 1])).contains("threads"));
        assert!(check(LaunchConfig::new([1, 1, 1], [u32::MAX; 3])).contains("threads"));
        assert!(check(good.cluster([3, 1, 1])).contains("divides"));
        assert!(check(good.cluster([0, 1, 1])).contains("cluster"));
        assert!(check(good.shared_memory(232_449)).contains("232449"));
        assert!(good.check("k", 16, &device).unwrap_err().to_string().contains("one array"));
        let plain = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
        plain.check("k", 232_448, &device).unwrap();
        assert!(plain.check("k", 232_449, &device).is_err());
        assert!(good.check("k", 0, &older).unwrap_err().to_string().contains("sm_80"));
        assert!(LaunchConfig::new([5, 0, 1], [1, 1, 1]).is_empty());
    }
}
