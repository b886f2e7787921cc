//! Reading target files: text, the description that it starts from, figures that make sense.

use crate::target::Target;
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
        let text = message("base = \"sm_80\"\n[gpu.rows]\nblock = 96");
        assert!(text.contains("t.toml:3:1") && text.contains("'gpu.rows.block' is 96, and no power of two"), "{text}");
        let text = message("base = \"x86-64-v3\"\n[cpu.products]\ndepth = 0");
        assert!(text.contains("t.toml:3:1") && text.contains("'cpu.products.depth' is 0"), "{text}");
        let text = message("base = \"x86-64-v3\"\n[fusion]\ntimes = -1.0");
        assert!(text.contains("t.toml:3:1") && text.contains("'fusion.times' is -1"), "{text}");
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
