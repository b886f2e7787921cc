//! Reading target files: text, the description that it starts from, figures that make sense.

use crate::target::{Gpu, Machine, Target};
use rc_ir::loc::Source;
use rc_ir::{Diagnostic, Loc, Result};
use std::ops::Range;
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
        let at = |span: Option<Range<usize>>, message: String| {
            let span = span.unwrap_or(0..0);
            Diagnostic::error(source.loc(span.start), message).with_len(span.len())
        };
        let own: Table = toml::from_str(text).map_err(|e| at(e.span(), e.message().to_string()))?;
        let spans = DeTable::parse(text).map_err(|e| at(e.span(), e.message().to_string()))?;
        let span = |path: &str| find_span(spans.get_ref(), path);
        let table = with_base(own).map_err(|why| at(span("base"), why))?;
        let target: Target = table.try_into().map_err(|e: toml::de::Error| misfit(&e, &span, &at))?;
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

    /// What no machine has, or what the figures contradict: the path of the figure, and why.
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
        within("last_bytes", self.last_bytes as f64, 0.0, 1e12);
        within("core_shared_bytes", self.core_shared_bytes as f64, 0.0, 1e9);
        within("merged_kernels", self.merged_kernels as f64, 0.0, 1024.0);
        within("launch_us", self.launch_us, 0.0, 1e6);
        if self.machine == Machine::Cuda {
            within("block_threads", self.block_threads as f64, 32.0, 1024.0);
            within("thread_registers", self.thread_registers as f64, 16.0, 255.0);
            within("parameter_bytes", self.parameter_bytes as f64, 128.0, 32764.0);
            within("ptx", f64::from(self.ptx), 70.0, 99.0);
        }
        self.gpu.iter().for_each(|gpu| gpu.check(&mut within));
        match self.machine {
            Machine::Cuda if crate::target::capability(&self.arch).is_none_or(|n| n < 80) => {
                wrong.push(("arch".into(), format!("'arch' is {:?}, no CUDA architecture from sm_80 on", self.arch)));
            }
            Machine::Cpu if self.triple.is_empty() => {
                wrong.push(("machine".into(), "a CPU needs its 'triple': x86_64-unknown-linux-gnu".into()));
            }
            _ => {}
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

impl Gpu {
    /// Constants that no cost model can take.
    fn check(&self, within: &mut impl FnMut(&str, f64, f64, f64)) {
        let table = Table::try_from(self).expect("constants are a table");
        let tables = table.iter().filter_map(|(name, value)| Some((name, value.as_table()?)));
        for (model, key, value) in tables.flat_map(|(model, t)| t.iter().map(move |(key, value)| (model, key, value))) {
            let low = match key.as_str() {
                "rate" | "cache_rate" | "combine_rate" | "slow_tflops" | "fast_tflops" => 1e-3,
                "registers" | "most_registers" | "mma_stages" | "fma_stages" | "max_stages" => 1.0,
                _ => 0.0,
            };
            let high = if key == "whole_waves" || key == "overlap" { 1.0 } else { 1e9 };
            for figure in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                let figure = figure.as_float().or(figure.as_integer().map(|n| n as f64)).unwrap_or(f64::NAN);
                within(&format!("gpu.{model}.{key}"), figure, low, high);
            }
        }
        within("gpu.unroll", self.unroll as f64, 1.0, 1e6);
        within("gpu.in_flight", self.in_flight as f64, 1.0, 1e6);
    }
}

/// What does not fit a description: a key that is unknown, missing or of another type, with the caret at it or at the table that lacks it.
fn misfit(
    error: &toml::de::Error,
    span: &dyn Fn(&str) -> Option<Range<usize>>,
    at: &dyn Fn(Option<Range<usize>>, String) -> Box<Diagnostic>,
) -> Box<Diagnostic> {
    let message = error.message();
    let table = error
        .to_string()
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("in `")?.strip_suffix('`'))
        .map(String::from);
    let key = message.split('`').nth(1);
    let path = match (&table, key) {
        (Some(table), Some(key)) => Some(format!("{table}.{key}")),
        (table, key) => key.map(String::from).or(table.clone()),
    };
    let place = path.as_deref().and_then(span).or_else(|| table.as_deref().and_then(span));
    let message = match table.filter(|_| key.is_none()) {
        Some(path) => format!("'{path}': {message}"),
        None => message.to_string(),
    };
    at(place, message).help(
        "start from a description that is near, as in base = \"x86-64-v3\"; rc-opt --print-target shows one in full",
    )
}

/// Where the value of a path `a.b` stands.
fn find_span(table: &DeTable, path: &str) -> Option<Range<usize>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (key, value): (_, &Spanned<DeValue>) = table.iter().find(|(k, _)| k.get_ref() == first)?;
    match rest {
        None => Some(key.span().start..value.span().end),
        Some(rest) => find_span(value.get_ref().as_table()?, rest),
    }
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
        let text = message("base = \"sm_80\"\n[gpu.align]\nslow_tflops = \"much\"");
        assert!(text.contains("t.toml:3:1") && text.contains("invalid type"), "{text}");
        let text = message("base = \"sm_80\"\n[gpu.products]\nrate = 0.0");
        assert!(text.contains("t.toml:3:1") && text.contains("'gpu.products.rate' is 0"), "{text}");
        let text = message("base = \"sm_80\"\n[gpu.align]\nfast = 2.0");
        assert!(text.contains("t.toml:3:1") && text.contains("unknown field `fast`"), "{text}");
        assert!(message("base = \"sm_80\"\narch = \"sm_70\"").contains("t.toml:2:1"));
        assert!(message("name = \"mine\"\nmachine = \"cpu\"").contains("missing field"));
    }

    #[test]
    fn text_round_trips() {
        for target in Target::all() {
            assert_eq!(&Target::parse(&target.name, &target.to_toml()).unwrap(), target);
        }
    }
}
