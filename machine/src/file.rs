//! Reading target files: text, the description that it starts from, figures that make sense.

use crate::target::{Machine, Target};
use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Loc, Result};
use std::sync::LazyLock;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

const FILES: &[(&str, &str)] = &[
    ("cuda", include_str!("../targets/cuda.toml")),
    ("x86-64", include_str!("../targets/x86-64.toml")),
    ("x86-64-v3", include_str!("../targets/x86-64-v3.toml")),
    ("x86-64-v4", include_str!("../targets/x86-64-v4.toml")),
    ("znver5", include_str!("../targets/znver5.toml")),
    ("sapphirerapids", include_str!("../targets/sapphirerapids.toml")),
    ("aarch64", include_str!("../targets/aarch64.toml")),
    ("sm_80", include_str!("../targets/sm_80.toml")),
    ("sm_86", include_str!("../targets/sm_86.toml")),
    ("sm_89", include_str!("../targets/sm_89.toml")),
    ("sm_90a", include_str!("../targets/sm_90a.toml")),
    ("sm_100a", include_str!("../targets/sm_100a.toml")),
    ("sm_120", include_str!("../targets/sm_120.toml")),
];

/// What has no name of its own, only what others start from.
const ABSTRACT: &str = "cuda";

impl Target {
    /// All descriptions that rc has.
    pub fn all() -> &'static [Target] {
        static ALL: LazyLock<Vec<Target>> = LazyLock::new(|| {
            let files = FILES.iter().filter(|f| f.0 != ABSTRACT);
            files.map(|f| Target::parse(f.0, f.1).unwrap_or_else(|d| panic!("{}", d.render()))).collect()
        });
        &ALL
    }

    /// Reads a description; `file` is its name in messages.
    ///
    /// # Errors
    /// What is wrong with the text, with a caret: syntax, keys that are unknown or missing, figures that no machine has.
    pub fn parse(file: &str, text: &str) -> Result<Target> {
        let source = Source::register(file, text.to_string());
        let at = |span: Option<std::ops::Range<usize>>, message: String| {
            let span = span.unwrap_or(0..0);
            Diagnostic::error(source.loc(span.start), message).with_len(span.len())
        };
        let own: Table = toml::from_str(text).map_err(|e| at(e.span(), e.message().to_string()))?;
        let spans = DeTable::parse(text).map_err(|e| at(e.span(), e.message().to_string()))?;
        let span = |path: &str| find_span(spans.get_ref(), path);
        let table = with_base(own).map_err(|why| at(span("base"), why))?;
        let target: Target = table.try_into().map_err(|e: toml::de::Error| {
            let key = e.message().split('`').nth(1).and_then(&span);
            at(key, e.message().to_string()).help("the files in machine/targets show what a description has")
        })?;
        let wrong = target.check().into_iter().next();
        wrong.map_or(Ok(target), |(path, why)| Err(at(span(&path), why)))
    }

    /// Reads a description from a file.
    ///
    /// # Errors
    /// If the file cannot be read, and as [`Target::parse`].
    pub fn read(path: &std::path::Path) -> Result<Target> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Diagnostic::error(Loc::UNKNOWN, format!("cannot read the target file '{name}': {e}")))?;
        Target::parse(&name, &text)
    }

    /// The description as a file that [`Target::parse`] reads.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a description is a table")
    }

    /// What no machine has: the path of the figure, and why.
    pub(crate) fn check(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        let mut within = |path: &str, value: f64, low: f64, high: f64| {
            if !(low..=high).contains(&value) {
                wrong.push((path.to_string(), format!("'{path}' is {value}, and must be from {low} to {high}")));
            }
        };
        within("cores", self.cores as f64, 1.0, 1e6);
        within("threads", self.threads as f64, 1.0, 65536.0);
        within("registers", self.registers as f64, 4.0, 1e8);
        within("shared_bytes", self.shared_bytes as f64, 1024.0, 1e9);
        within("cache_bytes", self.cache_bytes as f64, 1024.0, 1e12);
        within("vector_bits", self.vector_bits as f64, 64.0, 2048.0);
        within("bandwidth", self.bandwidth, 0.01, 1e7);
        within("core_bandwidth", self.core_bandwidth, 0.0, 1e5);
        within("cache_bandwidth", self.cache_bandwidth, 0.01, 1e8);
        within("flops_f32", self.flops_f32, 1e-6, 1e7);
        within("flops_mma", self.flops_mma, 1e-6, 1e7);
        within("merged_kernels", self.merged_kernels as f64, 0.0, 1024.0);
        within("launch_us", self.launch_us, 0.0, 1e6);
        if self.machine == Machine::Cuda {
            within("block_threads", self.block_threads as f64, 32.0, 1024.0);
            within("thread_registers", self.thread_registers as f64, 16.0, 255.0);
            within("parameter_bytes", self.parameter_bytes as f64, 128.0, 32764.0);
            within("ptx", f64::from(self.ptx), 70.0, 99.0);
        }
        if !(self.vector_bits as u64).is_power_of_two() {
            wrong.push(("vector_bits".into(), format!("'vector_bits' is {}, and no power of two", self.vector_bits)));
        }
        if self.machine == Machine::Cuda && self.gpu.is_none() {
            wrong.push(("machine".into(), "[gpu] is missing: start from another description, base = \"cuda\"".into()));
        }
        if let Some(m) = self.matrix.iter().find(|m| m.shape.iter().any(|&n| n < 1)) {
            wrong.push(("matrix".into(), format!("a matrix instruction has the shape {:?}", m.shape)));
        }
        wrong
    }
}

/// The table with what it does not say taken from its `base`.
pub(crate) fn with_base(mut own: Table) -> std::result::Result<Table, String> {
    let Some(base) = own.remove("base") else { return Ok(own) };
    let name = base.as_str().unwrap_or_default();
    let file = FILES.iter().find(|f| f.0 == name).ok_or_else(|| {
        let names: Vec<&str> = FILES.iter().map(|f| f.0).collect();
        format!("there is no description '{name}' to start from; there are {}", names.join(", "))
    })?;
    let mut table = with_base(toml::from_str(file.1).map_err(|e| e.to_string())?)?;
    // It needs what its base does, and more.
    if let (Some(Value::Array(base)), Some(Value::Array(more))) = (table.get("needs"), own.get_mut("needs")) {
        more.splice(0..0, base.clone());
    }
    merge(&mut table, own);
    Ok(table)
}

/// Sets in `table` all that `over` has, table by table.
pub(crate) fn merge(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Where a key, or the last one of a path `a.b`, stands: at the top or in any table.
fn find_span(table: &DeTable, key: &str) -> Option<std::ops::Range<usize>> {
    let own = table
        .iter()
        .find(|(k, _)| k.get_ref() == key)
        .map(|(k, v): (_, &Spanned<DeValue>)| k.span().start..v.span().end);
    own.or_else(|| table.values().find_map(|v| v.get_ref().as_table().and_then(|t| find_span(t, key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_checked() {
        let message = |text: &str| Target::parse("t.toml", text).unwrap_err().render();
        assert!(message("base = \"cuda\"\ncorez = 3").contains("corez"), "{}", message("base = \"cuda\"\ncorez = 3"));
        assert!(message("name = 1 2").contains("t.toml:1"));
        assert!(message("base = \"sm_90a\"\ncores = 0").contains("t.toml:2:1"));
        assert!(message("base = \"sm_90a\"\nvector_bits = 96").contains("no power of two"));
        assert!(message("base = \"sm_9\"").contains("there is no description 'sm_9'"));
        assert!(message("base = \"cuda\"\n[gpu.align]\nslow_tflops = \"much\"").contains("invalid type"));
    }

    #[test]
    fn text_round_trips() {
        for target in Target::all() {
            assert_eq!(&Target::parse(&target.name, &target.to_toml()).unwrap(), target);
        }
    }
}
