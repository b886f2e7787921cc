//! Descriptions by name, and the nearest one where there is none of that name.

use crate::cpus;
use crate::matrix::Unit;
use crate::target::{Machine, Target, capability};
use rc_ir::Attr;

impl Default for Target {
    /// The machine that is compiled for where nothing names one: `x86-64-v3`.
    fn default() -> Target {
        cpus::describe("x86-64-v3")
    }
}

impl Target {
    /// The description for `cpu` or `cuda` with an architecture: `host`, LLVM's name of a CPU, `sm_…`; without one, `x86-64-v3` or `sm_90a`.
    /// Where there is none of that name, the nearest one, which [`Target::remark`] tells of.
    ///
    /// # Errors
    /// If there is no such machine, or nothing that is near.
    pub fn find(machine: &str, arch: Option<&str>) -> Result<Target, String> {
        match machine {
            "cpu" if arch == Some("host") => Ok(Target::host()),
            "cpu" => Ok(cpus::describe(arch.unwrap_or("x86-64-v3"))),
            "cuda" => gpu(arch.unwrap_or("sm_90a")),
            _ => Err(format!("there is no target '{machine}'; write cpu or cuda")),
        }
    }

    /// The GPU called `arch`.
    ///
    /// # Errors
    /// As [`Target::find`].
    pub fn cuda(arch: &str) -> Result<Target, String> {
        Target::find("cuda", Some(arch))
    }

    /// The target that a pass's options `target` and `arch` name; where they are empty, the one that the module's attributes have; without
    /// one, a CPU.
    ///
    /// # Errors
    /// If there is no such target.
    pub fn of(machine: &str, arch: &str, module: Attr) -> Result<Target, String> {
        let given = module.get("rc.target").and_then(|t| t.get("machine")).and_then(|m| m.as_str());
        let wanted = if machine.is_empty() { given.unwrap_or("cpu") } else { machine };
        if arch.is_empty() && given == Some(wanted) {
            let target = Target::of_module(module).map_err(|d| d.message)?;
            return Ok(target.expect("the module has the attribute"));
        }
        Target::find(wanted, Some(arch).filter(|arch| !arch.is_empty()))
    }

    /// What to tell of a description that was taken for another architecture than its own.
    pub fn remark(&self) -> Option<String> {
        let own = Target::all().iter().find(|t| t.name == self.name)?;
        let same = own.arch == self.arch || cpus::is_known(&self.arch);
        (!same).then(|| {
            format!(
                "no description of {}: the figures are those of {} ({}), the nearest",
                self.arch, own.name, own.arch
            )
        })
    }
}

/// The description of a GPU: its own, else the newest before it, less the instructions that only that very architecture has.
fn gpu(arch: &str) -> Result<Target, String> {
    let Some(wanted) = capability(arch) else {
        return Err(format!("'{arch}' is no CUDA architecture; write sm_90a or sm_80"));
    };
    let gpus = || Target::all().iter().filter(|t| t.machine == Machine::Cuda);
    if let Some(own) = gpus().find(|t| t.arch == arch) {
        return Ok(own.clone());
    }
    let near = gpus().filter(|t| t.capability() <= wanted).max_by_key(|t| t.capability());
    let near = near.ok_or_else(|| format!("not supported: '{arch}', the oldest architecture is sm_80"))?;
    let mut target = Target { arch: arch.to_string(), ..near.clone() };
    target.matrix.retain(|m| m.unit != Unit::Wgmma);
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::Type;

    #[test]
    fn finds_targets() {
        let find = |machine, arch| Target::find(machine, arch).unwrap();
        assert_eq!(find("cpu", None).vector_bits, 256);
        for arch in ["x86-64-v4", "znver4", "znver5", "sapphirerapids", "graniterapids"] {
            assert_eq!(find("cpu", Some(arch)).lanes(Type::f32()), 16, "{arch}");
        }
        assert_eq!(find("cpu", Some("x86-64-v2")).lanes(Type::f32()), 4);
        assert_eq!(find("cuda", Some("sm_80")).name, "a100");
        assert_eq!(find("cuda", Some("sm_86")).name, "a40");
        assert_eq!(find("cuda", Some("sm_89")).name, "l40s");
        assert_eq!(find("cuda", None).capability(), 90);
        assert!(Target::find("cuda", Some("sm_70")).is_err());
        assert!(Target::find("tpu", None).is_err());
    }

    #[test]
    fn the_nearest_is_told_of() {
        let near = Target::cuda("sm_90").unwrap();
        assert!(!near.has_warpgroups() && near.remark().unwrap().contains("h200 (sm_90a)"));
        assert!(Target::cuda("sm_87").unwrap().remark().unwrap().contains("a40 (sm_86)"));
        assert!(Target::find("cpu", Some("bonnell")).unwrap().remark().unwrap().contains("x86-64"));
        assert_eq!(Target::cuda("sm_90a").unwrap().remark(), None);
        assert_eq!(Target::find("cpu", Some("znver3")).unwrap().remark(), None);
    }
}
