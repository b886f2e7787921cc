//! A machine's figures.

use crate::cpu::Cpu;
use crate::fusion::Fusion;
use crate::gpu::Gpu;
use crate::matrix::{Matrix, Unit};
use rc_ir::Type;
use serde::{Deserialize, Serialize};

/// The two kinds of machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    Cpu,
    Cuda,
}

impl Machine {
    /// `cpu` or `cuda`.
    pub fn word(self) -> &'static str {
        match self {
            Machine::Cpu => "cpu",
            Machine::Cuda => "cuda",
        }
    }
}

/// A machine's figures. A *core* is a CPU core or a streaming multiprocessor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: String,
    pub machine: Machine,
    /// The code generator's name for it: `sm_90a`, `x86-64-v3`.
    pub arch: String,
    /// A CPU's target triple.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub triple: String,
    /// Features of a CPU besides those that its name has, or that it lacks: `+avx512vl`, `-amx-tile`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Features that a CPU has which this describes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The version of PTX that is emitted, times ten.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ptx: u32,
    pub cores: i64,
    /// Threads that a core holds at once.
    pub threads: i64,
    /// Threads of a GPU's block at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_threads: i64,
    /// 32-bit registers of a streaming multiprocessor; vector registers of a CPU core.
    pub registers: i64,
    /// 32-bit registers of a GPU's thread at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub thread_registers: i64,
    /// Shared memory of a block; a CPU core's first-level data cache.
    pub shared_bytes: i64,
    /// Shared memory of a streaming multiprocessor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub core_shared_bytes: i64,
    /// The second-level cache: a GPU's whole, a CPU core's own.
    pub cache_bytes: i64,
    /// A CPU's last-level cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_bytes: i64,
    /// Bits of a CPU's vector registers; of a GPU thread's widest load.
    pub vector_bits: i64,
    /// Whether a copy engine brings tiles of tensors to shared memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tensor_maps: bool,
    /// GB/s to memory.
    pub bandwidth: f64,
    /// GB/s that one core of a CPU reads from memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub core_bandwidth: f64,
    /// GB/s of all cores to the second-level cache.
    pub cache_bandwidth: f64,
    /// Tflop/s without matrix units, in f32.
    pub flops_f32: f64,
    /// Tflop/s of the matrix units, in bf16.
    pub flops_mma: f64,
    /// Microseconds that starting a kernel takes.
    pub launch_us: f64,
    /// Kernels that a merged one has the code of, at most; 0 where none are merged.
    #[serde(default, skip_serializing_if = "is_default")]
    pub merged_kernels: i64,
    /// Bytes of a GPU kernel's parameters at most; 0 where nothing bounds them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parameter_bytes: i64,
    pub matrix: Vec<Matrix>,
    pub fusion: Fusion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Target {
    pub fn is_cpu(&self) -> bool {
        self.machine == Machine::Cpu
    }
    /// `cpu` or `cuda`.
    pub fn word(&self) -> &'static str {
        self.machine.word()
    }
    /// The constants of a CPU's cost models; every CPU's description has them.
    pub fn cpu(&self) -> &Cpu {
        self.cpu.as_ref().expect("the description of a CPU has [cpu]")
    }
    /// The constants of a GPU's cost models; every GPU's description has them.
    pub fn gpu(&self) -> &Gpu {
        self.gpu.as_ref().expect("the description of a GPU has [gpu]")
    }
    /// Elements of `ty` in one vector register (CPU) or one widest load (GPU); at least 1.
    pub fn lanes(&self, ty: Type) -> i64 {
        (self.vector_bits / i64::from(ty.bit_width().unwrap_or(32).max(8))).max(1)
    }
    /// Shared memory of a GPU's block through which its threads exchange elements of tiles, at most.
    pub fn exchange_bytes(&self) -> i64 {
        self.shared_bytes / 4
    }
    /// Whether it has an instruction for `a b + c` on vectors: all but x86-64 before AVX2.
    pub fn has_fma(&self) -> bool {
        !self.triple.starts_with("x86_64") || self.needs.iter().any(|feature| feature == "fma")
    }
    /// The instruction of a unit that multiplies `operands`, if code generation may use it.
    pub fn instruction(&self, unit: Unit, operands: Type, accumulator: Type) -> Option<&Matrix> {
        let is = |name: &str, ty: Type| name == ty.to_string();
        self.matrix
            .iter()
            .find(|m| m.unit == unit && is(&m.operands, operands) && is(&m.accumulator, accumulator) && self.runs(m))
    }
    /// The instruction that multiplies words of `operands`, in vectors; its shape is `[1, lanes, elements of a word]`.
    pub fn words(&self, operands: Type, accumulator: Type) -> Option<&Matrix> {
        [Unit::Avx512Bf16, Unit::Vnni].into_iter().find_map(|unit| self.instruction(unit, operands, accumulator))
    }
    /// The instruction that multiplies tiles of words of `operands`.
    pub fn tiles(&self, operands: Type, accumulator: Type) -> Option<&Matrix> {
        self.instruction(Unit::Amx, operands, accumulator)
    }
    /// Whether code generation may use a matrix instruction: no feature that it needs is switched off.
    pub fn runs(&self, matrix: &Matrix) -> bool {
        let is_off = |feature: &&str| self.features.iter().any(|f| f.strip_prefix('-') == Some(*feature));
        !matrix.features().iter().any(is_off)
    }
    /// Whether it has a matrix instruction of this unit.
    pub fn has_unit(&self, unit: Unit) -> bool {
        self.matrix.iter().any(|m| m.unit == unit)
    }
    /// Whether it has Hopper's warpgroup products and copy engine: `sm_90a`, not `sm_90`.
    pub fn has_warpgroups(&self) -> bool {
        self.has_unit(Unit::Wgmma)
    }
    /// What measured times hold for: machines of one fingerprint run kernels alike.
    pub fn fingerprint(&self) -> String {
        let Target { arch, cores, .. } = self;
        match self.machine {
            Machine::Cuda => format!("{arch} {cores} cores"),
            Machine::Cpu => {
                let [first, second] = [self.shared_bytes, self.cache_bytes].map(|bytes| bytes >> 10);
                format!("{arch} {cores} cores {} bits {first} + {second} KiB", self.vector_bits)
            }
        }
    }
    /// The CUDA compute capability as a number, 90 of `sm_90a`; 0 for a CPU.
    pub fn capability(&self) -> u32 {
        capability(&self.arch).unwrap_or(0)
    }
}

/// 90 of `sm_90a`.
pub(crate) fn capability(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()
}
