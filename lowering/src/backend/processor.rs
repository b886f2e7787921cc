//! What LLVM is told of a machine: triple, name and features.

use super::{Error, llvm::TargetMachine};
use rc_ir::Name;
use rc_machine::{Machine, Target, Unit};
use std::sync::OnceLock;

/// What machine code is generated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Processor {
    Cpu(Cpu),
    Cuda(Cuda),
}

impl Processor {
    /// The processor of a described machine.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where LLVM has no processor of that name.
    pub fn of(target: &Target) -> Result<Self, Error> {
        match target.machine {
            Machine::Cpu => Cpu::of(target).map(Self::Cpu),
            Machine::Cuda => Cuda::of(target).map(Self::Cuda),
        }
    }

    /// The host's own CPU, with its features.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where the host is not x86-64.
    pub fn host() -> Result<Self, Error> {
        Self::of(&Target::host())
    }

    /// A CUDA architecture by name, such as `sm_90a`.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] for a name that is not one of [`Cuda::ARCHS`].
    pub fn cuda(arch: &str) -> Result<Self, Error> {
        Cuda::check(arch)?;
        Self::of(&Target::cuda(arch).map_err(Error::Target)?)
    }

    /// LLVM's target triple.
    pub fn triple(&self) -> &str {
        match self {
            Self::Cpu(cpu) => &cpu.triple,
            Self::Cuda(_) => "nvptx64-nvidia-cuda",
        }
    }

    /// LLVM's name for the processor.
    pub fn cpu_name(&self) -> &str {
        match self {
            Self::Cpu(cpu) => &cpu.name,
            Self::Cuda(cuda) => cuda.arch(),
        }
    }

    /// LLVM's feature string, such as `+avx2,+fma` or `+ptx80`.
    pub fn features(&self) -> String {
        match self {
            Self::Cpu(cpu) => cpu.features.clone(),
            Self::Cuda(cuda) => format!("+ptx{}", cuda.ptx_version),
        }
    }

    /// LLVM's data layout string for modules of this processor.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where LLVM does not know the processor.
    pub fn data_layout(&self) -> Result<String, Error> {
        // The layout follows from the triple alone, and a target machine is not free to make.
        static X86: OnceLock<String> = OnceLock::new();
        static CUDA: OnceLock<String> = OnceLock::new();
        let cell = match self {
            Self::Cpu(_) => &X86,
            Self::Cuda(_) => &CUDA,
        };
        if let Some(layout) = cell.get() {
            return Ok(layout.clone());
        }
        let layout = TargetMachine::new(self)?.data_layout();
        Ok(cell.get_or_init(|| layout).clone())
    }
}

/// An x86-64 CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// LLVM's triple; position-independent ELF code is generated whatever the host's system is.
    pub triple: String,
    /// LLVM's name, such as `znver3` or `x86-64-v3`.
    pub name: String,
    /// LLVM's feature string, such as `+avx2,+fma`.
    pub features: String,
    /// What multiplies matrices.
    pub units: Vec<Unit>,
    /// Whether loads take masks at no cost, as with AVX-512.
    pub masks: bool,
}

impl Cpu {
    /// The CPU of a description.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where it is not x86-64, or LLVM does not know its name. Left to itself LLVM would warn, and generate code for
    /// any x86-64.
    pub fn of(target: &Target) -> Result<Self, Error> {
        let name = &target.arch;
        if !target.triple.starts_with("x86_64") {
            return Err(Error::Target(format!("not supported: code for {name} ({}); only x86-64 is", target.triple)));
        }
        if !super::llvm::is_x86_64_cpu(name) {
            return Err(Error::Target(format!(
                "unknown CPU '{name}'; known are host and LLVM's names of 64-bit x86 processors: x86-64, x86-64-v3, x86-64-v4, znver4, sapphirerapids, …"
            )));
        }
        let units = target.matrix.iter().filter(|m| target.runs(m)).map(|m| m.unit).collect();
        Ok(Self {
            triple: target.triple.clone(),
            name: name.clone(),
            features: target.features.join(","),
            units,
            masks: target.vector_bits >= 512,
        })
    }

    /// Whether it has an instruction for `x * y + z`, as processors since AVX2 have.
    pub fn has_fma(&self) -> bool {
        match self.features.is_empty() {
            true => !WITHOUT_FMA.contains(&self.name.as_str()),
            false => self.has_feature("fma"),
        }
    }

    /// Whether it has instructions that convert f16, as processors since AVX2 have.
    pub fn has_f16(&self) -> bool {
        match self.features.is_empty() {
            true => !WITHOUT_FMA.contains(&self.name.as_str()),
            false => self.has_feature("f16c"),
        }
    }

    /// Whether it has the instructions of a unit.
    pub fn has_unit(&self, unit: Unit) -> bool {
        self.units.contains(&unit)
    }

    /// Whether LLVM generates code that uses `feature` (as `avx2`, `avx512f`, `fma`), by the feature string.
    pub fn has_feature(&self, feature: &str) -> bool {
        self.features.split(',').any(|entry| entry.strip_prefix('+') == Some(feature))
    }
}

/// A CUDA architecture and the PTX version that its code is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cuda {
    arch: Name,
    ptx_version: u32,
    shared_bytes: u64,
    tensor_maps: bool,
    warpgroups: bool,
}

impl Cuda {
    /// Architectures that LLVM has.
    pub const ARCHS: &[&str] =
        &["sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120a"];

    fn check(arch: &str) -> Result<(), Error> {
        let known = Self::ARCHS.join(", ");
        let unknown = || Error::Target(format!("unknown CUDA architecture '{arch}'; known: {known}"));
        if Self::ARCHS.contains(&arch) { Ok(()) } else { Err(unknown()) }
    }

    /// The architecture of a description.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] for a name that is not one of [`Cuda::ARCHS`].
    pub fn of(target: &Target) -> Result<Self, Error> {
        Self::check(&target.arch)?;
        Ok(Self {
            arch: Name::new(&target.arch),
            ptx_version: target.ptx,
            shared_bytes: target.shared_bytes as u64,
            tensor_maps: target.tensor_maps,
            warpgroups: target.has_warpgroups(),
        })
    }

    /// The architecture's name, such as `sm_90a`.
    pub fn arch(&self) -> &'static str {
        self.arch.as_str()
    }

    /// The PTX version times ten.
    pub fn ptx_version(&self) -> u32 {
        self.ptx_version
    }

    /// Shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.shared_bytes
    }

    /// Whether instructions convert 8-bit floats, as processors since `sm_89` have.
    pub fn has_float8(&self) -> bool {
        let digits = self.arch().trim_start_matches("sm_").trim_end_matches('a');
        digits.parse().is_ok_and(|version: u32| version >= 89)
    }

    /// Whether TMA (`cp.async.bulk.tensor`), clusters and transaction barriers exist.
    pub fn has_tma(&self) -> bool {
        self.tensor_maps
    }

    /// Whether `wgmma` and `setmaxnreg` exist: they belong to `sm_90a` alone.
    pub fn has_wgmma(&self) -> bool {
        self.warpgroups
    }
}

/// LLVM's names of the 64-bit x86 processors without fused multiply-adds.
const WITHOUT_FMA: &[&str] = &[
    "x86-64",
    "x86-64-v2",
    "nocona",
    "core2",
    "penryn",
    "nehalem",
    "corei7",
    "westmere",
    "sandybridge",
    "corei7-avx",
    "ivybridge",
    "core-avx-i",
    "bonnell",
    "atom",
    "silvermont",
    "slm",
    "goldmont",
    "goldmont-plus",
    "goldmont_plus",
    "tremont",
    "k8",
    "athlon64",
    "athlon-fx",
    "opteron",
    "k8-sse3",
    "athlon64-sse3",
    "opteron-sse3",
    "amdfam10",
    "barcelona",
    "btver1",
    "btver2",
    "bdver1",
];
