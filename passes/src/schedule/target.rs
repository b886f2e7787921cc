//! What a schedule needs to know of a machine, read from the text files in `targets/`.

use rc_ir::{Attr, Type};
use serde::Deserialize;

/// The two kinds of machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    Cpu,
    Cuda,
}

/// A machine's figures. A *core* is a CPU core or a streaming multiprocessor.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: String,
    pub machine: Machine,
    /// The code generator's name for it: `sm_90a`, `x86-64-v3`.
    pub arch: String,
    pub cores: i64,
    /// Threads that a core holds at once.
    pub threads: i64,
    /// 32-bit registers of a streaming multiprocessor; vector registers of a CPU core.
    pub registers: i64,
    /// Shared memory of a block; a CPU core's first-level data cache.
    pub shared_bytes: i64,
    /// The second-level cache: a GPU's whole, a CPU core's own.
    pub cache_bytes: i64,
    /// Bits of a CPU's vector registers; of a GPU thread's widest load.
    pub vector_bits: i64,
    /// GB/s to memory.
    pub bandwidth: f64,
    /// Tflop/s without matrix units, in f32.
    pub flops_f32: f64,
    /// Tflop/s of the matrix units, in bf16.
    pub flops_mma: f64,
    /// Microseconds that starting a kernel takes.
    pub launch_us: f64,
}

const FILES: &[&str] =
    &[include_str!("targets/cpu.toml"), include_str!("targets/h200.toml"), include_str!("targets/a100.toml")];

impl Target {
    /// Reads a target description.
    ///
    /// # Errors
    /// What is wrong with the text, with its line.
    pub fn parse(text: &str) -> Result<Target, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }
    /// All descriptions that rc has.
    pub fn all() -> Vec<Target> {
        FILES.iter().map(|text| Target::parse(text).expect("the built-in target files are right")).collect()
    }
    /// The description for `cpu`, or for `cuda` with the given arch (`sm_80`; any newer `sm_…` takes the newest known before it).
    ///
    /// # Errors
    /// If there is no such target.
    pub fn find(machine: &str, arch: Option<&str>) -> Result<Target, String> {
        let number =
            |arch: &str| -> Option<u32> { arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok() };
        match (machine, arch) {
            ("cpu", arch) => {
                let mut cpu = Target::all().remove(0);
                match arch.unwrap_or("x86-64-v3") {
                    "host" => cpu.set_host(),
                    arch => cpu.set_arch(arch),
                }
                Ok(cpu)
            }
            ("cuda", arch) => {
                let arch = arch.unwrap_or("sm_90a");
                let wanted =
                    number(arch).ok_or_else(|| format!("'{arch}' is no CUDA architecture; write sm_90a or sm_80"))?;
                let known = Target::all().into_iter().filter(|t| number(&t.arch).is_some_and(|n| n <= wanted));
                let best = known.max_by_key(|t| number(&t.arch));
                let best = best.ok_or_else(|| format!("not supported: '{arch}', the oldest architecture is sm_80"))?;
                Ok(Target { arch: arch.to_string(), ..best })
            }
            _ => Err(format!("there is no target '{machine}'; write cpu or cuda")),
        }
    }
    /// Sets a CPU's architecture level, and the vector width that comes with it.
    fn set_arch(&mut self, arch: &str) {
        self.arch = arch.to_string();
        (self.vector_bits, self.registers) = match arch {
            "x86-64-v4" | "znver4" | "znver5" | "skylake-avx512" | "cascadelake" | "icelake-server"
            | "sapphirerapids" | "emeraldrapids" | "graniterapids" => (512, 32),
            "x86-64" | "x86-64-v2" => (128, 16),
            _ if arch.starts_with("aarch64") => (128, 32),
            _ => (self.vector_bits, self.registers),
        };
    }
    /// Takes cores, caches and vector width from the machine that this runs on, and what follows from them for its arithmetic.
    fn set_host(&mut self) {
        let before = (self.cores * self.vector_bits) as f64;
        self.arch = "host".into();
        self.cores = std::thread::available_parallelism().map_or(1, |n| n.get() as i64);
        self.shared_bytes = cache_of_host(1).unwrap_or(self.shared_bytes);
        self.cache_bytes = cache_of_host(2).unwrap_or(self.cache_bytes);
        #[cfg(target_arch = "x86_64")]
        {
            (self.vector_bits, self.registers) = match () {
                _ if std::arch::is_x86_feature_detected!("avx512f") => (512, 32),
                _ if std::arch::is_x86_feature_detected!("avx2") => (256, 16),
                _ => (128, 16),
            };
        }
        #[cfg(target_arch = "aarch64")]
        {
            (self.vector_bits, self.registers) = (128, 32);
        }
        let more = (self.cores * self.vector_bits) as f64 / before;
        (self.flops_f32, self.flops_mma) = (self.flops_f32 * more, self.flops_mma * more);
    }
    /// The target that a pass's options `target` and `arch` name; where they are empty, the one that the module is
    /// attributed with (`rc.target = #rc.target<machine = "cpu", arch = "host">`); without one, a CPU.
    ///
    /// # Errors
    /// If there is no such target.
    pub fn of(machine: &str, arch: &str, module: Attr) -> Result<Target, String> {
        let given = module.get("rc.target");
        let word = |key: &str| given.and_then(|t| t.get(key)).and_then(|a| a.as_str());
        let wanted = if machine.is_empty() { word("machine").unwrap_or("cpu") } else { machine };
        let arch = match arch {
            "" if Some(wanted) == word("machine") => word("arch"),
            "" => None,
            arch => Some(arch),
        };
        Target::find(wanted, arch)
    }
    pub fn is_cpu(&self) -> bool {
        self.machine == Machine::Cpu
    }
    /// `cpu` or `cuda`.
    pub fn word(&self) -> &'static str {
        if self.is_cpu() { "cpu" } else { "cuda" }
    }
    /// Elements of `ty` in one vector register (CPU) or one widest load (GPU); at least 1.
    pub fn lanes(&self, ty: Type) -> i64 {
        (self.vector_bits / i64::from(ty.bit_width().unwrap_or(32).max(8))).max(1)
    }
    /// Whether it has Hopper's warpgroup products and copy engine: `sm_90a`, not `sm_90`.
    pub fn has_warpgroups(&self) -> bool {
        self.capability() == 90 && self.arch.ends_with('a')
    }
    /// The CUDA compute capability as a number, 90 of `sm_90a`; 0 for a CPU.
    pub fn capability(&self) -> u32 {
        self.arch.strip_prefix("sm_").and_then(|n| n.trim_end_matches(['a', 'f']).parse().ok()).unwrap_or(0)
    }
}

/// Bytes of a core's data cache of this level, where the system says.
fn cache_of_host(level: u32) -> Option<i64> {
    let read = |i: u32, file: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{file}")).ok()
    };
    let fits = |i: &u32| {
        let holds_data = read(*i, "type").is_some_and(|t| t.trim() != "Instruction");
        holds_data && read(*i, "level").is_some_and(|l| l.trim() == level.to_string())
    };
    let size = read((0..8).find(fits)?, "size")?;
    size.trim().strip_suffix('K')?.parse::<i64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_targets() {
        assert_eq!(Target::find("cpu", None).unwrap().vector_bits, 256);
        assert_eq!(Target::find("cpu", Some("x86-64-v4")).unwrap().lanes(Type::f32()), 16);
        assert_eq!(Target::find("cuda", Some("sm_80")).unwrap().name, "a100");
        assert_eq!(Target::find("cuda", Some("sm_89")).unwrap().name, "a100");
        assert_eq!(Target::find("cuda", None).unwrap().capability(), 90);
        assert!(Target::find("cuda", Some("sm_70")).is_err());
        assert!(Target::find("tpu", None).is_err());
        assert!(Target::parse("name = 1").is_err());
    }
}
