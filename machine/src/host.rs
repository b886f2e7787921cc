//! The CPU at hand: its features, caches and cores, as far as this process may use them.

use crate::cpus;
use crate::target::Target;
use std::sync::LazyLock;

impl Target {
    /// The CPU that this runs on, or the one that the environment variable `RC_TARGET` names: `x86-64-v2`, which any newer one can run.
    pub fn host() -> Target {
        static HOST: LazyLock<Target> = LazyLock::new(|| {
            let named = std::env::var("RC_TARGET").ok().filter(|name| !name.is_empty() && name != "host");
            named.map_or_else(detect, |name| cpus::describe(&name))
        });
        HOST.clone()
    }
}

/// The description that needs the most of what this CPU has, with its own cores and caches, and what follows from them for its arithmetic.
fn detect() -> Target {
    let known = features();
    let has = |feature: &String| known.iter().any(|(name, has)| name == feature && *has);
    let fits = |t: &&Target| t.is_cpu() && t.triple.starts_with(std::env::consts::ARCH) && t.needs.iter().all(has);
    let near = Target::all().iter().filter(fits).max_by_key(|t| (t.vector_bits, t.needs.len()));
    let near = near.unwrap_or(&Target::all()[0]).clone();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as i64);
    let share = cores as f64 / near.cores as f64;
    Target {
        name: "host".into(),
        arch: cpu_name().unwrap_or(&near.arch).to_string(),
        features: known.iter().map(|(name, has)| format!("{}{name}", if *has { '+' } else { '-' })).collect(),
        cores,
        shared_bytes: cache_bytes(1).unwrap_or(near.shared_bytes),
        cache_bytes: cache_bytes(2).unwrap_or(near.cache_bytes),
        last_bytes: cache_bytes(3).unwrap_or(near.last_bytes),
        bandwidth: (near.bandwidth * share.max(1.0)).min(cores as f64 * near.core_bandwidth),
        cache_bandwidth: near.cache_bandwidth * share,
        flops_f32: near.flops_f32 * share,
        flops_mma: near.flops_mma * share,
        ..near
    }
}

/// LLVM's name for the CPU, where it is known.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cpu_name() -> Option<&'static str> {
    use std::arch::x86_64::__cpuid;
    let (vendor, version) = (__cpuid(0).ebx.to_le_bytes()[0], __cpuid(1).eax);
    let vendor = if vendor == b'G' { b'I' } else { vendor };
    let base = version >> 8 & 15;
    let family = base + if base == 15 { version >> 20 & 255 } else { 0 };
    let model = (version >> 4 & 15) | (version >> 12 & 0xf0);
    cpus::name(vendor, family, model)
}
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn cpu_name() -> Option<&'static str> {
    None
}

/// LLVM's names of the features that code generation makes use of, and whether this CPU and its system have them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> Vec<(&'static str, bool)> {
    macro_rules! detected {
        ($($name:tt),*) => { vec![$(($name, std::arch::is_x86_feature_detected!($name))),*] };
    }
    let mut all = detected![
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "bmi1",
        "bmi2",
        "lzcnt",
        "movbe",
        "adx",
        "aes",
        "pclmulqdq",
        "sha",
        "gfni",
        "vaes",
        "vpclmulqdq",
        "avxvnni",
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512ifma",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512vnni",
        "avx512bitalg",
        "avx512vpopcntdq",
        "avx512bf16",
        "avx512fp16"
    ];
    // As LLVM calls them.
    for (name, _) in &mut all {
        *name = match *name {
            "bmi1" => "bmi",
            "pclmulqdq" => "pclmul",
            other => other,
        };
    }
    // Tiles: leaf 7. Their state is kept for a process that has asked for it.
    let tiles = [("amx-bf16", 22), ("amx-tile", 24), ("amx-int8", 25)];
    let has = tile_bits();
    let allowed = has != 0 && tiles_are_allowed();
    all.extend(tiles.map(|(name, bit)| (name, allowed && has >> bit & 1 == 1)));
    all
}
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}

/// What CPUID says of tiles: bits 22, 24 and 25.
#[cfg(target_arch = "x86_64")]
fn tile_bits() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let edx = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).edx } else { 0 };
    edx & (1 << 22 | 1 << 24 | 1 << 25)
}

/// Whether the CPU has tiles that the kernel does not let this process use.
pub(crate) fn tiles_are_refused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return tile_bits() != 0 && !tiles_are_allowed();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Asks the kernel, once, to keep the tiles' state for this process and its threads. One from before 5.16 knows no such request.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tiles_are_allowed() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XTILEDATA: i64 = 18;
    static ALLOWED: LazyLock<bool> = LazyLock::new(|| {
        let result: i64;
        // SAFETY: a system call that reads and writes no memory of this process.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    });
    *ALLOWED
}
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn tiles_are_allowed() -> bool {
    false
}

/// Bytes of a core's data cache of this level, where the system says.
fn cache_bytes(level: u32) -> Option<i64> {
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
    fn the_host_is_described() {
        let host = Target::host();
        assert!(host.check().is_empty(), "{:?}", host.check());
        // A target that the environment names has the features of its name.
        let named = std::env::var_os("RC_TARGET").is_some();
        assert!(host.cores >= 1 && host.features.len() > 1 || named || cfg!(not(target_arch = "x86_64")));
        assert_eq!(host.remark(), None);
    }
}
