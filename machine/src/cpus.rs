//! Names of CPUs: which description fits which, and how CPUID tells them.

use crate::target::Target;

/// A processor: LLVM's name, the description that fits it, its vendor (`I`ntel, `A`MD), family and models.
struct Known {
    name: &'static str,
    like: &'static str,
    vendor: u8,
    family: u32,
    models: &'static [u32],
}

const fn intel(name: &'static str, like: &'static str, models: &'static [u32]) -> Known {
    Known { name, like, vendor: b'I', family: 6, models }
}
/// Of models from one number to another.
const fn amd(name: &'static str, like: &'static str, family: u32, models: &'static [u32]) -> Known {
    Known { name, like, vendor: b'A', family, models }
}

const V3: &str = "x86-64-v3";
const V4: &str = "x86-64-v4";

const KNOWN: &[Known] = &[
    intel("haswell", V3, &[0x3c, 0x3f, 0x45, 0x46]),
    intel("broadwell", V3, &[0x3d, 0x47, 0x4f, 0x56]),
    intel("skylake", V3, &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6]),
    intel("skylake-avx512", V4, &[0x55]),
    intel("cascadelake", V4, &[]),
    intel("icelake-client", V4, &[0x7d, 0x7e]),
    intel("icelake-server", V4, &[0x6a, 0x6c]),
    intel("tigerlake", V4, &[0x8c, 0x8d]),
    intel("rocketlake", V4, &[0xa7]),
    intel("alderlake", V3, &[0x97, 0x9a]),
    intel("raptorlake", V3, &[0xb7, 0xba, 0xbf]),
    intel("meteorlake", V3, &[0xaa, 0xac]),
    intel("sapphirerapids", "sapphirerapids", &[0x8f]),
    intel("emeraldrapids", "sapphirerapids", &[0xcf]),
    intel("graniterapids", "sapphirerapids", &[0xad]),
    amd("znver1", V3, 0x17, &[0x00, 0x2f]),
    amd("znver2", V3, 0x17, &[0x30, 0xff]),
    amd("znver3", V3, 0x19, &[0x00, 0x0f, 0x20, 0x5f]),
    amd("znver4", V4, 0x19, &[0x10, 0x1f, 0x60, 0xaf]),
    amd("znver5", "znver5", 0x1a, &[0x00, 0xff]),
];

/// The description of a CPU that LLVM calls `arch`: its own or that of one like it; else of the least that its name says.
pub fn describe(arch: &str) -> Target {
    let own = |name: &str| Target::all().iter().find(|t| t.is_cpu() && t.name == name).cloned();
    if let Some(own) = own(arch) {
        return own;
    }
    let aarch64 = ["aarch64", "armv8", "armv9", "neoverse", "cortex", "apple", "ampere"];
    let like = match KNOWN.iter().find(|k| k.name == arch) {
        Some(known) => known.like,
        None if aarch64.iter().any(|word| arch.starts_with(word)) => "aarch64",
        None => "x86-64",
    };
    let near = own(like).expect("a known processor is like one that is described");
    Target { arch: arch.to_string(), ..near }
}

/// Whether a description is known to fit the name.
pub fn is_known(arch: &str) -> bool {
    arch == "x86-64-v2" || KNOWN.iter().any(|k| k.name == arch)
}

/// LLVM's name of a processor that CPUID describes so.
pub fn name(vendor: u8, family: u32, model: u32) -> Option<&'static str> {
    let fits = |k: &&Known| {
        let within = |m: &[u32]| m.len() == 2 && (m[0]..=m[1]).contains(&model);
        let listed = if vendor == b'A' { k.models.chunks(2).any(within) } else { k.models.contains(&model) };
        k.vendor == vendor && k.family == family && listed
    };
    KNOWN.iter().find(fits).map(|k| k.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name(b'I', 6, 0x8f), Some("sapphirerapids"));
        assert_eq!(name(b'A', 0x19, 0x61), Some("znver4"));
        assert_eq!(name(b'A', 0x19, 0x21), Some("znver3"));
        assert_eq!(name(b'I', 15, 1), None);
        assert_eq!(describe("neoverse-v1").vector_bits, 128);
        assert!(KNOWN.iter().all(|k| describe(k.name).vector_bits >= 256));
    }
}
