//! What machine code needs of the machine that runs it.

use crate::host::{cpu_name, features, tiles_are_refused};
use crate::target::{Machine, Target, capability};
use serde::{Deserialize, Serialize};

/// What machine code needs: the processor that it was generated for, and features of a CPU besides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    pub machine: Machine,
    /// `x86-64-v3`, `znver5`, `sm_90a`.
    pub arch: String,
    /// LLVM's names of features, such as `avx512bf16`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// The levels of x86-64, and what each needs besides those before it.
const LEVELS: [(&str, &[&str]); 4] = [
    ("x86-64", &[]),
    ("x86-64-v2", &["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"]),
    ("x86-64-v3", &["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

/// The features of a level; `None` where the name is that of a processor.
fn level(arch: &str) -> Option<Vec<&'static str>> {
    let last = LEVELS.iter().position(|l| l.0 == arch)?;
    Some(LEVELS[..=last].iter().flat_map(|l| l.1).copied().collect())
}

impl Target {
    /// What code that is generated for this target needs.
    pub fn needs(&self) -> Needs {
        let mut features: Vec<String> = level(&self.arch).unwrap_or_default().iter().map(|f| f.to_string()).collect();
        let (on, off): (Vec<&String>, Vec<&String>) = self.features.iter().partition(|f| f.starts_with('+'));
        let is_off = |feature: &String| off.iter().any(|f| f[1..] == feature[..]);
        let named = self.needs.iter().cloned().chain(on.iter().map(|f| f[1..].to_string()));
        features.extend(named.filter(|f| !is_off(f)));
        features.sort();
        features.dedup();
        Needs { machine: self.machine, arch: self.arch.clone(), features }
    }

    /// Why the CPU at hand does not run code for this target; `None` where it does. A CPU whose name is not known runs what was generated for it as the
    /// host, where it has the features.
    pub fn misfit_here(&self) -> Option<String> {
        let host = (self.name == "host").then_some(self.arch.as_str());
        self.needs().misfit(std::env::consts::ARCH, cpu_name().or(host), &features())
    }
}

impl Needs {
    /// Why the CPU at hand does not run the code; `None` where it does.
    ///
    /// Code for a level of x86-64 runs where all its features are. Code for a named processor may hold any of its instructions, and runs on
    /// that processor alone.
    pub fn misfit_here(&self) -> Option<String> {
        self.misfit(std::env::consts::ARCH, cpu_name(), &features())
    }

    fn misfit(&self, family: &str, cpu: Option<&str>, known: &[(&str, bool)]) -> Option<String> {
        if self.machine != Machine::Cpu {
            return Some(format!("it is code for a GPU, {}", self.arch));
        }
        if family != "x86_64" {
            return Some(format!("it needs an x86-64 CPU, and this one is of {family}"));
        }
        let is_lacking = |feature: &&String| !known.iter().any(|(name, has)| name == feature && *has);
        let lacking: Vec<&str> = self.features.iter().filter(is_lacking).map(String::as_str).collect();
        if lacking.iter().any(|feature| feature.starts_with("amx-")) && tiles_are_refused() {
            return Some(format!("it needs AMX tiles, whose state this system's kernel does not keep ({})", self.arch));
        }
        if !lacking.is_empty() {
            return Some(format!("it needs a CPU with {}, which this one lacks ({})", lacking.join(", "), self.arch));
        }
        if level(&self.arch).is_none() && cpu != Some(self.arch.as_str()) {
            let here = cpu.unwrap_or("another");
            return Some(format!("it needs a CPU of the kind {}, and this one is {here}", self.arch));
        }
        None
    }

    /// Why a GPU of this architecture, as `sm_90a`, does not run the code; `None` where it does: PTX for an older architecture is
    /// assembled for a newer one, but that with an `a` is for one alone.
    pub fn misfit_on(&self, arch: &str) -> Option<String> {
        if self.machine != Machine::Cuda {
            return Some(format!("it is code for a CPU, {}", self.arch));
        }
        let older = capability(&self.arch).zip(capability(arch)).is_some_and(|(code, gpu)| code <= gpu);
        let runs = self.arch == arch || older && !self.arch.ends_with(['a', 'f']);
        (!runs).then(|| format!("it needs a GPU of the architecture {}, and this one is {arch}", self.arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(machine: &str, arch: &str) -> Needs {
        Target::find(machine, Some(arch)).unwrap().needs()
    }

    #[test]
    fn the_host_runs_its_own_code() {
        if cfg!(target_arch = "x86_64") && std::env::var_os("RC_TARGET").is_none() {
            assert_eq!(Target::host().needs().misfit_here(), None);
        }
    }

    #[test]
    fn cpus_need_what_their_level_says() {
        let avx2 = [
            "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
            "movbe",
        ];
        let known: Vec<(&str, bool)> = avx2.iter().map(|&f| (f, true)).chain([("avx512f", false)]).collect();
        let misfit = |arch: &str| needs("cpu", arch).misfit("x86_64", Some("znver3"), &known);
        assert_eq!(misfit("x86-64-v2"), None);
        assert_eq!(misfit("x86-64-v3"), None);
        assert_eq!(misfit("znver3"), None);
        let why = misfit("x86-64-v4").unwrap();
        assert!(why.contains("avx512bw") && why.contains("avx512f") && !why.contains("avx2"), "{why}");
        assert!(misfit("haswell").unwrap().contains("haswell, and this one is znver3"));
        assert!(needs("cpu", "x86-64-v3").misfit("aarch64", None, &[]).unwrap().contains("aarch64"));
        assert!(needs("cuda", "sm_80").misfit_here().unwrap().contains("GPU"));
    }

    #[test]
    fn features_that_are_off_are_not_needed() {
        let mut target = Target::find("cpu", Some("sapphirerapids")).unwrap();
        target.features = vec!["-amx-tile".into(), "+gfni".into()];
        let needs = target.needs();
        assert!(!needs.features.contains(&"amx-tile".to_string()) && needs.features.contains(&"gfni".to_string()));
    }

    #[test]
    fn ptx_runs_on_newer_gpus() {
        for (code, gpu, runs) in [
            ("sm_80", "sm_80", true),
            ("sm_80", "sm_90a", true),
            ("sm_90a", "sm_90a", true),
            ("sm_90a", "sm_100a", false),
            ("sm_90", "sm_80", false),
        ] {
            assert_eq!(needs("cuda", code).misfit_on(gpu).is_none(), runs, "{code} on {gpu}");
        }
        assert!(needs("cpu", "x86-64-v3").misfit_on("sm_80").unwrap().contains("CPU"));
    }
}
