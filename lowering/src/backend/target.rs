//! Targets: the CPU that this process runs on, and CUDA architectures.

use super::{Error, llvm::TargetMachine};
use std::{fmt, str::FromStr, sync::OnceLock};

/// What machine code is generated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Cpu(Cpu),
    Cuda(Cuda),
}

impl Target {
    /// The host's own CPU, with its features.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where the host is not x86-64.
    pub fn host() -> Result<Self, Error> {
        Cpu::host().map(Self::Cpu)
    }

    /// A CUDA architecture by name, such as `sm_90a`.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] for a name that is not one of [`Cuda::ARCHS`].
    pub fn cuda(arch: &str) -> Result<Self, Error> {
        arch.parse().map(Self::Cuda)
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

    /// LLVM's data layout string for modules of this target.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where LLVM does not know the target.
    pub fn data_layout(&self) -> Result<String, Error> {
        // The layout follows from the triple alone, and a target machine is not free to make.
        static CPU: OnceLock<String> = OnceLock::new();
        static CUDA: OnceLock<String> = OnceLock::new();
        let cell = match self {
            Self::Cpu(_) => &CPU,
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
}

impl Cpu {
    /// The CPU that this process runs on.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where it is not x86-64.
    pub fn host() -> Result<Self, Error> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::Target(format!(
                "not supported: code for {} hosts; only x86-64 is",
                std::env::consts::ARCH
            )));
        }
        let (name, features) = super::llvm::host_cpu();
        Ok(Self { triple: "x86_64-unknown-linux-gnu".into(), name, features })
    }

    /// An x86-64 CPU by LLVM's name with that name's own features, such as `x86-64-v3`.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] for a name that LLVM does not know. Left to itself it would warn, and generate code for any x86-64.
    pub fn named(name: &str) -> Result<Self, Error> {
        if !super::llvm::is_x86_64_cpu(name) {
            return Err(Error::Target(format!(
                "unknown CPU '{name}'; known are host and LLVM's names of 64-bit x86 processors: x86-64, x86-64-v3, x86-64-v4, znver4, sapphirerapids, …"
            )));
        }
        Ok(Self { triple: "x86_64-unknown-linux-gnu".into(), name: name.into(), features: String::new() })
    }

    /// Whether it has an instruction for `x * y + z`, as processors since AVX2 have.
    pub fn has_fma(&self) -> bool {
        match self.features.is_empty() {
            true => !WITHOUT_FMA.contains(&self.name.as_str()),
            false => self.has_feature("fma"),
        }
    }

    /// Whether LLVM generates code that uses `feature` (as `avx2`, `avx512f`, `fma`), by the feature string.
    pub fn has_feature(&self, feature: &str) -> bool {
        self.features.split(',').any(|entry| entry.strip_prefix('+') == Some(feature))
    }
}

/// A CUDA architecture and the PTX version that its code is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cuda {
    arch: &'static str,
    ptx_version: u32,
}

impl Cuda {
    /// Known architectures with the PTX version that rc emits for each (80 is PTX 8.0, which CUDA 12.0 reads; 81 has atomic sums of vectors).
    pub const ARCHS: &[(&str, u32)] = &[
        ("sm_80", 80),
        ("sm_86", 80),
        ("sm_87", 80),
        ("sm_89", 80),
        ("sm_90", 81),
        ("sm_90a", 81),
        ("sm_100", 86),
        ("sm_100a", 86),
        ("sm_120", 87),
        ("sm_120a", 87),
    ];

    /// The architecture's name, such as `sm_90a`.
    pub fn arch(&self) -> &'static str {
        self.arch
    }

    /// The compute capability times ten: 80 for `sm_80`, 90 for `sm_90a`.
    pub fn compute_capability(&self) -> u32 {
        let digits: String = self.arch.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }

    /// The PTX version times ten.
    pub fn ptx_version(&self) -> u32 {
        self.ptx_version
    }

    /// Whether TMA (`cp.async.bulk.tensor`), clusters and transaction barriers exist.
    pub fn has_tma(&self) -> bool {
        self.compute_capability() >= 90
    }

    /// Whether `wgmma` and `setmaxnreg` exist: they belong to `sm_90a` alone.
    pub fn has_wgmma(&self) -> bool {
        self.arch == "sm_90a"
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

impl FromStr for Cuda {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ARCHS.iter().find(|(arch, _)| *arch == name);
        known.map(|&(arch, ptx_version)| Self { arch, ptx_version }).ok_or_else(|| {
            let names: Vec<_> = Self::ARCHS.iter().map(|(arch, _)| *arch).collect();
            Error::Target(format!("unknown CUDA architecture '{name}'; known: {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Cuda {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.arch)
    }
}
