//! A description as the module's attribute `rc.target = #rc.target<…>`, in full.

use crate::file::{merge, with_base};
use crate::target::Target;
use rc_ir::attr::AttrData;
use rc_ir::{Attr, Diagnostic, Loc, Module, Name, Result, Type};
use toml::{Table, Value};

/// What a reader looks for.
const FIRST: [&str; 3] = ["machine", "arch", "name"];

impl Target {
    /// `#rc.target<name = "h200", machine = "cuda", …>` with every figure.
    pub fn to_attr(&self) -> Attr {
        let table = Table::try_from(self).expect("a description is a table");
        let mut entries: Vec<(String, Attr)> = table.into_iter().map(|(key, value)| (key, attr_of(value))).collect();
        let first = |key: &str| FIRST.iter().position(|&f| f == key).unwrap_or(FIRST.len());
        entries.sort_by_key(|e| first(&e.0));
        let entries: Vec<(&str, Attr)> = entries.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        Attr::dialect("target", &entries)
    }

    /// Writes the target into a module, where the passes that depend on it look.
    pub fn set_on(&self, module: &mut Module) {
        module.set_attr("rc.target", self.to_attr());
    }

    /// The target of a module's attributes: `rc.target` in full, or `#rc.target<machine = "cpu", arch = "host">`, which names a
    /// description, and the figures in which it differs. `None` where the module has none.
    ///
    /// # Errors
    /// If there is no such target, or a figure is unknown or none that a machine has.
    pub fn of_module(attrs: Attr) -> Result<Option<Target>> {
        attrs.get("rc.target").map(Target::from_attr).transpose()
    }

    fn from_attr(attr: Attr) -> Result<Target> {
        let wrong = |why: String| Diagnostic::error(Loc::UNKNOWN, format!("the module's rc.target: {why}"));
        let help = "as in rc.target = #rc.target<machine = cuda, arch = sm_90a>";
        let params = attr.as_dialect("target").ok_or_else(|| wrong("expects #rc.target<…>".into()).help(help))?;
        let mut own = Table::new();
        for (key, value) in params {
            let value = value_of(*value).ok_or_else(|| wrong(format!("'{key}' has no figure")).help(help))?;
            own.insert(key.as_str().to_string(), value);
        }
        let full = own.contains_key("name");
        let mut table = match full {
            true => Table::new(),
            false => {
                let word = |key: &str| own.get(key).and_then(Value::as_str);
                let found = Target::find(word("machine").unwrap_or("cpu"), word("arch")).map_err(wrong)?;
                own.remove("arch");
                if own.keys().all(|key| key == "machine") {
                    return Ok(found);
                }
                Table::try_from(&found).expect("a description is a table")
            }
        };
        merge(&mut table, with_base(own).map_err(wrong)?);
        let target: Target =
            table.try_into().map_err(|e: toml::de::Error| wrong(e.message().to_string()).help(help))?;
        let absurd = target.check().into_iter().next();
        absurd.map_or(Ok(target), |(_, why)| Err(wrong(why)))
    }
}

fn attr_of(value: Value) -> Attr {
    match value {
        Value::String(text) => Attr::str(&text),
        Value::Integer(n) => Attr::i64(n),
        Value::Float(x) if x.fract() == 0.0 && x.abs() < 1e15 => Attr::i64(x as i64),
        Value::Float(x) => Attr::float(x, Type::f64()),
        Value::Boolean(b) => Attr::bool(b),
        Value::Datetime(date) => Attr::str(&date.to_string()),
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_integer) => {
            Attr::i64s(&items.iter().filter_map(Value::as_integer).collect::<Vec<_>>())
        }
        Value::Array(items) => Attr::array(&items.into_iter().map(attr_of).collect::<Vec<_>>()),
        Value::Table(table) => Attr::dict(table.into_iter().map(|(key, value)| (Name::new(&key), attr_of(value)))),
    }
}

fn value_of(attr: Attr) -> Option<Value> {
    Some(match attr.data() {
        AttrData::String(text) => Value::String(text.to_string()),
        AttrData::Bool(b) => Value::Boolean(*b),
        AttrData::Int { .. } => Value::Integer(attr.as_int()?),
        AttrData::Float { .. } => Value::Float(attr.as_float()?),
        AttrData::DenseArray { .. } => Value::Array(attr.as_ints()?.into_iter().map(Value::Integer).collect()),
        AttrData::Array(items) => Value::Array(items.iter().map(|&i| value_of(i)).collect::<Option<_>>()?),
        AttrData::Dict(entries) => {
            let entries = entries.iter().map(|&(key, value)| Some((key.as_str().to_string(), value_of(value)?)));
            Value::Table(entries.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        for target in Target::all() {
            assert_eq!(&Target::from_attr(target.to_attr()).unwrap(), target);
        }
        let host = Target::host();
        assert_eq!(Target::from_attr(host.to_attr()).unwrap(), host);
    }

    #[test]
    fn a_name_and_figures() {
        let read = |params: &[(&str, Attr)]| Target::from_attr(Attr::dialect("target", params));
        let named = [("machine", Attr::str("cuda")), ("arch", Attr::str("sm_90a")), ("cores", Attr::i64(66))];
        let half = read(&named).unwrap();
        assert_eq!((half.cores, half.shared_bytes), (66, 232_448));
        let unknown = read(&[("machine", Attr::str("cuda")), ("corez", Attr::i64(66))]).unwrap_err();
        assert!(unknown.message.contains("corez"), "{}", unknown.message);
        assert!(read(&[("machine", Attr::str("tpu"))]).is_err());
        assert!(read(&[("machine", Attr::str("cpu")), ("cores", Attr::i64(0))]).is_err());
        for feature in ["", "+", "avx2", "é", "+avx2,-avx", "-a\0"] {
            let features = [("machine", Attr::str("cpu")), ("features", Attr::array(&[Attr::str(feature)]))];
            let wrong = read(&features).unwrap_err();
            assert!(wrong.message.contains("'features' has"), "{}", wrong.message);
        }
    }
}
