//! What was measured: for kernels and machines the fastest schedules, as a text file to commit.
//!
//! ```text
//! // rc tuning 1
//! #rc.tuned<kernel = "0c4be07f46a52a1d", machine = "znver5 2 cores …", ns = 5100, model_ns = 6300, origin = "dot+add", schedules = [#rc.schedule<…>, …]>
//! ```
//!
//! A line for each kernel and machine, sorted, so that files merge line by line. An entry without schedules says that the model's choice
//! was the fastest.

use super::{Schedule, Target};
use rc_dialects::loop_::{ATTENTION, ATTENTION_BACKWARD, NEST, SCATTER, SORT};
use rc_ir::loc::Source;
use rc_ir::{Attr, Block, Body, Diagnostic, Loc, Op, Result, Value};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The first line of a file.
const HEADER: &str = "// rc tuning 1";

/// What was measured of a kernel on a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// [`structure`] of the kernel.
    pub kernel: String,
    /// [`Target::fingerprint`] of the machine.
    pub machine: String,
    /// The operations that the kernel came from, for readers.
    pub origin: String,
    /// Nanoseconds with these schedules, and with the model's choice.
    pub ns: i64,
    pub model_ns: i64,
    /// One for each nest of the kernel, in order; none where the model's choice was not beaten.
    pub schedules: Vec<Attr>,
}

/// The entries of a file.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Tuning {
    entries: BTreeMap<(String, String), Entry>,
}

impl Tuning {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, and as [`Tuning::parse`].
    pub fn read(path: &Path) -> Result<Tuning> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|e| Diagnostic::error(Loc::UNKNOWN, format!("cannot read the tuning file '{name}': {e}")))?;
        Tuning::parse(&name, text)
    }

    /// Reads a file's text; `name` is the file's in messages. An empty text has no entries.
    ///
    /// # Errors
    /// What is no entry, with a caret.
    pub fn parse(name: &str, text: String) -> Result<Tuning> {
        let mut tuning = Tuning::default();
        if text.is_empty() {
            return Ok(tuning);
        }
        let source = Source::register(name, text);
        let first = source.text.lines().next().unwrap_or_default();
        if first.trim_end() != HEADER {
            let what = match first.strip_prefix("// rc tuning ") {
                Some(version) => format!("a tuning file of version {}; this rc reads version 1", version.trim()),
                None => format!("no tuning file: the first line is not '{HEADER}'"),
            };
            return Err(Diagnostic::error(source.loc(0), what)
                .with_len(first.len().max(1))
                .help("rc-tune writes such files"));
        }
        let mut at = 0;
        for line in source.text.split_inclusive('\n') {
            let range = at..at + line.trim_end().len();
            at += line.len();
            if !line.trim().is_empty() && !line.starts_with("//") {
                tuning.insert(entry(&source, range)?);
            }
        }
        Ok(tuning)
    }

    /// The file's text.
    pub fn to_text(&self) -> String {
        self.entries.values().fold(format!("{HEADER}\n"), |text, entry| text + &entry.to_string() + "\n")
    }

    /// Adds an entry. One of the same kernel and machine is replaced.
    pub fn insert(&mut self, entry: Entry) {
        self.entries.insert((entry.kernel.clone(), entry.machine.clone()), entry);
    }
    /// Adds all entries of another file, which count before its own.
    pub fn merge(&mut self, other: Tuning) {
        self.entries.extend(other.entries);
    }
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
    /// What was measured of a kernel on a machine.
    pub fn get(&self, kernel: &str, machine: &str) -> Option<&Entry> {
        self.entries.get(&(kernel.to_string(), machine.to_string()))
    }

    /// Writes the schedules of a kernel on its nests, whose groups are formed; whether there were any. Remarks say so, and of an entry that
    /// does not fit, why.
    pub fn apply(&self, body: &mut Body, target: &Target, remarks: &mut Vec<Box<Diagnostic>>) -> bool {
        let (kernel, machine) = (structure(body), target.fingerprint());
        let loc = body.loc(body.root());
        let Some(entry) = self.get(&kernel, &machine) else {
            let others: Vec<&str> =
                self.entries.values().filter(|e| e.kernel == kernel).map(|e| e.machine.as_str()).collect();
            if !others.is_empty() {
                let what = format!("tuned for {}, not for {machine}: the model chooses", others.join(" and for "));
                remarks.push(Diagnostic::remark(loc, what));
            }
            return false;
        };
        if entry.schedules.is_empty() {
            let what =
                format!("measured on {machine}: no schedule was faster than the model's, {}", micros(entry.model_ns));
            remarks.push(Diagnostic::remark(loc, what));
            return false;
        }
        let nests = nests(body);
        if let Err(why) = write(body, &nests, &entry.schedules, target) {
            nests.iter().for_each(|&op| body.remove_attr(op, "schedule"));
            remarks.push(Diagnostic::remark(
                loc,
                format!("the tuning file's schedule does not fit, the model chooses: {why}"),
            ));
            return false;
        }
        let what = format!(
            "tuned schedule for {} on {machine}: {}, {} with the model's choice",
            if nests.len() == 1 { "1 nest".into() } else { format!("{} nests", nests.len()) },
            micros(entry.ns),
            micros(entry.model_ns)
        );
        remarks.push(Diagnostic::remark(loc, what));
        true
    }
}

fn micros(ns: i64) -> String {
    format!("{:.1} us", ns as f64 * 1e-3)
}

fn write(body: &mut Body, nests: &[Op], schedules: &[Attr], target: &Target) -> std::result::Result<(), String> {
    if nests.len() != schedules.len() {
        return Err(format!("{} schedules for {} nests", schedules.len(), nests.len()));
    }
    for (&op, &schedule) in nests.iter().zip(schedules) {
        body.set_attr(op, "schedule", schedule);
        let at = body.op_ref(op);
        Schedule::read(at).and_then(|s| s.check_on(at, target)).map_err(|d| d.message)?;
    }
    Ok(())
}

/// The nests of a kernel, in order.
pub fn nests(body: &Body) -> Vec<Op> {
    let kinds = [&NEST, &ATTENTION, &ATTENTION_BACKWARD, &SCATTER, &SORT];
    let ops = body.entry().into_iter().flat_map(|entry| body.ops(entry));
    ops.filter(|&op| kinds.iter().any(|def| body.name(op) == *def)).collect()
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let params = [
            ("kernel", Attr::str(&self.kernel)),
            ("machine", Attr::str(&self.machine)),
            ("ns", Attr::i64(self.ns)),
            ("model_ns", Attr::i64(self.model_ns)),
            ("origin", Attr::str(&self.origin)),
            ("schedules", Attr::array(&self.schedules)),
        ];
        write!(f, "{}", Attr::dialect("tuned", &params))
    }
}

/// The entry that stands in a line.
fn entry(source: &Source, line: std::ops::Range<usize>) -> Result<Entry> {
    let wrong = |why: &str| {
        let error = Diagnostic::error(source.loc(line.start), format!("no entry of a tuning file: {why}"));
        error.with_len(line.len()).help("delete the line, or the file: rc-tune measures again what it does not have")
    };
    let attr = rc_parser::parse_attr_in(source, line.clone())?;
    attr.as_dialect("tuned").ok_or_else(|| wrong("expects #rc.tuned<…>"))?;
    let word = |key: &str| {
        attr.get(key).and_then(|a| a.as_str()).map(String::from).ok_or_else(|| wrong(&format!("'{key}' is no word")))
    };
    let time = |key: &str| {
        let ns = attr.get(key).and_then(|a| a.as_int()).filter(|&ns| ns >= 0);
        ns.ok_or_else(|| wrong(&format!("'{key}' is no number of nanoseconds")))
    };
    let schedules = attr.get("schedules").and_then(|a| a.as_array()).ok_or_else(|| wrong("'schedules' is no list"))?;
    if schedules.iter().any(|s| s.as_dialect("schedule").is_none()) {
        return Err(wrong("'schedules' is no list of #rc.schedule<…>"));
    }
    Ok(Entry {
        kernel: word("kernel")?,
        machine: word("machine")?,
        origin: word("origin")?,
        ns: time("ns")?,
        model_ns: time("model_ns")?,
        schedules: schedules.to_vec(),
    })
}

/// A hash of what a kernel computes, the same in every process: of its operations, types and index maps, whatever values and the kernel are named
/// and wherever they come from. Schedules do not count, nor how often it is launched.
pub fn structure(body: &Body) -> String {
    let mut text = Text { body, values: FxHashMap::default(), out: String::new() };
    text.op(body.root());
    blake3::hash(text.out.as_bytes()).to_hex()[..16].to_string()
}

struct Text<'a> {
    body: &'a Body,
    values: FxHashMap<Value, usize>,
    out: String,
}

impl Text<'_> {
    fn value(&mut self, value: Value) {
        let next = self.values.len();
        let number = *self.values.entry(value).or_insert(next);
        let _ = write!(self.out, " {number}");
    }
    fn op(&mut self, op: Op) {
        let body = self.body;
        let _ = write!(self.out, "{}", body.name(op).as_str());
        body.operands(op).for_each(|v| self.value(v));
        for (key, value) in body.attrs(op).as_dict().unwrap_or_default() {
            if !["schedule", "sym_name", "origin", "launches"].contains(&key.as_str()) {
                let _ = write!(self.out, " {key}={value}");
            }
        }
        let _ = write!(self.out, " {:?} ->", body.props(op).map(|p| p.to_string()));
        for result in body.results(op) {
            self.value(result);
            let _ = write!(self.out, ":{}", body.ty(result));
        }
        self.out.push('\n');
        for region in body.regions(op) {
            body.blocks(region).collect::<Vec<_>>().into_iter().for_each(|block| self.block(block));
        }
    }
    fn block(&mut self, block: Block) {
        let body = self.body;
        self.out.push('(');
        for arg in body.block_args(block) {
            self.value(arg);
            let _ = write!(self.out, ":{}", body.ty(arg));
        }
        self.out.push_str(")\n");
        body.ops(block).for_each(|op| self.op(op));
    }
}
