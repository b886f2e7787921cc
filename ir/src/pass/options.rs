//! Options of passes: declared with a kind and a default, read from `key=value`.

use super::PassDef;
use crate::suggest::did_you_mean;
use std::fmt;

/// An option of a pass.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    /// `max-ops`.
    pub name: &'static str,
    pub kind: OptionKind,
    /// Written as in a pipeline; empty for an empty string or list.
    pub default: &'static str,
    pub doc: &'static str,
}

/// An option: `option("max-ops", OptionKind::Int { min: 1, max: 4096 }, "64", "Operations in one fusion at most.")`.
pub const fn option(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { name, kind, default, doc }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionKind {
    /// `true` or `false`; the name alone means `true`.
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Float,
    Str,
    Enum(&'static [&'static str]),
    /// Integers with `x`, as a tile's sizes are written: `64x128x32`.
    Sizes,
}

impl OptionKind {
    /// Any integer.
    pub const INT: OptionKind = OptionKind::Int { min: i64::MIN, max: i64::MAX };
}

/// What an option is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Sizes(Vec<i64>),
}

/// The options of a pass, each with a value.
#[derive(Clone, Debug)]
pub struct Options {
    defs: &'static [OptionDef],
    /// In the order of `defs`.
    values: Vec<OptionValue>,
}

/// Which part of a `key=value` is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionPart {
    Key,
    Value,
}

/// Why an option was not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    pub part: OptionPart,
    pub message: String,
    pub help: Option<String>,
}

impl Options {
    /// # Panics
    /// If a declared default is not of its option's kind, a mistake of the program.
    pub fn defaults(pass: &PassDef) -> Options {
        let value = |o: &OptionDef| match o.parse(o.default) {
            Ok(value) => value,
            Err(e) => panic!("the default of the option '{}' of '{}': {}", o.name, pass.name, e.message),
        };
        Options { defs: pass.options, values: pass.options.iter().map(value).collect() }
    }
    /// Sets `key` to what `text` says; `None` for a key alone, which turns a boolean on.
    pub fn set(&mut self, pass: &PassDef, key: &str, text: Option<&str>) -> Result<(), OptionError> {
        let Some(i) = self.defs.iter().position(|o| o.name == key) else {
            let hint = did_you_mean(key, self.defs.iter().map(|o| o.name));
            let names: Vec<&str> = self.defs.iter().map(|o| o.name).collect();
            let help = match names.as_slice() {
                [] => format!("'{}' takes no options", pass.name),
                _ => format!("'{}' takes {}", pass.name, names.join(", ")),
            };
            let message = format!("'{}' has no option '{key}'{hint}", pass.name);
            return Err(OptionError { part: OptionPart::Key, message, help: Some(help) });
        };
        self.values[i] = match (text, self.defs[i].kind) {
            (Some(text), _) => self.defs[i].parse(text)?,
            (None, OptionKind::Bool) => OptionValue::Bool(true),
            (None, _) => {
                let message = format!("the option '{key}' needs a value: {key}={}", self.defs[i].placeholder());
                return Err(OptionError { part: OptionPart::Key, message, help: None });
            }
        };
        Ok(())
    }
    /// # Panics
    /// If the pass declares no such option; so do the other readers, and for one of another kind.
    pub fn get(&self, name: &str) -> &OptionValue {
        let i = self.defs.iter().position(|o| o.name == name);
        &self.values[i.unwrap_or_else(|| panic!("the pass declares no option '{name}'"))]
    }
    pub fn bool(&self, name: &str) -> bool {
        if let OptionValue::Bool(b) = self.get(name) { *b } else { panic!("'{name}' is no boolean") }
    }
    pub fn int(&self, name: &str) -> i64 {
        if let OptionValue::Int(n) = self.get(name) { *n } else { panic!("'{name}' is no integer") }
    }
    pub fn float(&self, name: &str) -> f64 {
        if let OptionValue::Float(x) = self.get(name) { *x } else { panic!("'{name}' is no number") }
    }
    /// The value of a string or of an enumeration.
    pub fn str(&self, name: &str) -> &str {
        if let OptionValue::Str(s) = self.get(name) { s } else { panic!("'{name}' is no string") }
    }
    pub fn sizes(&self, name: &str) -> &[i64] {
        if let OptionValue::Sizes(s) = self.get(name) { s } else { panic!("'{name}' is no list of sizes") }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |(o, v): &(&OptionDef, &OptionValue)| o.parse(o.default).as_ref() != Ok(*v);
        let set: Vec<String> =
            self.defs.iter().zip(&self.values).filter(set).map(|(o, v)| format!("{}={v}", o.name)).collect();
        if set.is_empty() { Ok(()) } else { write!(f, "{{{}}}", set.join(" ")) }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Bool(b) => write!(f, "{b}"),
            OptionValue::Int(n) => write!(f, "{n}"),
            OptionValue::Float(x) => write!(f, "{x:?}"),
            OptionValue::Str(s) if is_bare(s) => f.write_str(s),
            OptionValue::Str(s) => write!(f, "\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\"")),
            OptionValue::Sizes(s) => f.write_str(&s.iter().map(i64::to_string).collect::<Vec<_>>().join("x")),
        }
    }
}

/// Whether a value needs no quotes in a pipeline.
fn is_bare(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.:/@".contains(c))
}

impl OptionDef {
    /// The value that `text` stands for.
    pub fn parse(&self, text: &str) -> Result<OptionValue, OptionError> {
        let error = |expected: String, help: Option<String>| OptionError {
            part: OptionPart::Value,
            message: format!("the option '{}' expects {expected}, got '{text}'", self.name),
            help,
        };
        match self.kind {
            OptionKind::Bool => match text {
                "true" => Ok(OptionValue::Bool(true)),
                "false" => Ok(OptionValue::Bool(false)),
                _ => Err(error("true or false".into(), None)),
            },
            OptionKind::Int { min, max } => match text.parse() {
                Ok(n) if (min..=max).contains(&n) => Ok(OptionValue::Int(n)),
                _ if (min, max) == (i64::MIN, i64::MAX) => Err(error("an integer".into(), None)),
                _ if max == i64::MAX => Err(error(format!("an integer of at least {min}"), None)),
                _ => Err(error(format!("an integer from {min} to {max}"), None)),
            },
            OptionKind::Float => match text.parse() {
                Ok(x) => Ok(OptionValue::Float(x)),
                Err(_) => Err(error("a number".into(), None)),
            },
            OptionKind::Str => Ok(OptionValue::Str(text.to_string())),
            OptionKind::Enum(words) => match words.iter().find(|&&w| w == text) {
                Some(word) => Ok(OptionValue::Str(word.to_string())),
                None => {
                    let hint = did_you_mean(text, words.iter().copied());
                    let mut e = error(format!("one of {}", words.join(", ")), None);
                    e.message += &hint;
                    Err(e)
                }
            },
            OptionKind::Sizes if text.is_empty() => Ok(OptionValue::Sizes(Vec::new())),
            OptionKind::Sizes => match text.split('x').map(|n| n.parse().ok().filter(|&n| n >= 0)).collect() {
                Some(sizes) => Ok(OptionValue::Sizes(sizes)),
                None => Err(error("sizes, as in 64x32".into(), None)),
            },
        }
    }
    /// What stands for a value in help: `<int>`, `near|far`.
    pub fn placeholder(&self) -> String {
        match self.kind {
            OptionKind::Bool => "true|false".into(),
            OptionKind::Int { .. } => "<int>".into(),
            OptionKind::Float => "<number>".into(),
            OptionKind::Str => "<string>".into(),
            OptionKind::Enum(words) => words.join("|"),
            OptionKind::Sizes => "<int>x<int>".into(),
        }
    }
}
