//! What values and blocks are called in text.
//!
//! A value keeps the name it has, made valid and unique among the names visible where it is; others are
//! numbered. Regions side by side may use the same names: a region's names and numbers follow on those
//! of the regions around it. A multi-result op whose results have no names of their own prints as one
//! group, `%0:2`, with uses `%0#1`.

use crate::body::{Block, Body, Op, Region, Value};
use crate::intern::Name;
use rustc_hash::{FxHashMap, FxHashSet};

/// Tags of the entries: a number, an index into `texts`, the k-th further result of a group, not seen.
const TAG: u32 = 3 << 30;
const NUMBER: u32 = 0;
const TEXT: u32 = 1 << 30;
const MEMBER: u32 = 2 << 30;
const UNSEEN: u32 = 3 << 30;

/// For blocks: the block is a branch target.
const TARGET: u32 = 1 << 29;

#[derive(Default)]
pub(super) struct Names {
    values: Vec<u32>,
    blocks: Vec<u32>,
    texts: Vec<Name>,
    used: FxHashSet<Name>,
    /// Names in the order of use, to forget those of a region when it ends.
    order: Vec<Name>,
    /// The next suffix to try for a name that occurs again.
    suffixes: FxHashMap<Name, u32>,
    next: u32,
}

enum Step {
    Enter(Region),
    Leave { names: usize, next: u32 },
}

impl Names {
    pub fn of(body: &Body) -> Names {
        let mut names = Names::default();
        names.renew(body);
        names
    }

    /// Names everything in `body`, forgetting the body before.
    pub fn renew(&mut self, body: &Body) {
        self.values.clear();
        self.values.resize(body.value_capacity(), UNSEEN);
        self.blocks.clear();
        self.texts.clear();
        self.used.clear();
        self.order.clear();
        self.suffixes.clear();
        self.next = 0;
        self.name_results(body, body.root());
        let mut stack: Vec<Step> = body.regions(body.root()).into_iter().rev().map(Step::Enter).collect();
        while let Some(step) = stack.pop() {
            match step {
                Step::Enter(region) => {
                    stack.push(Step::Leave { names: self.order.len(), next: self.next });
                    let at = stack.len();
                    self.name_region(body, region, &mut stack);
                    stack[at..].reverse();
                }
                Step::Leave { names, next } => {
                    for name in self.order.drain(names..) {
                        self.used.remove(&name);
                    }
                    self.next = next;
                }
            }
        }
    }

    fn name_region(&mut self, body: &Body, region: Region, nested: &mut Vec<Step>) {
        let mut labels: FxHashSet<Name> = FxHashSet::default();
        for (i, block) in body.blocks(region).enumerate() {
            self.name_block(body, block, i as u32, &mut labels);
            for arg in body.block_args(block) {
                let entry = self.fresh(body.value_name(arg));
                self.values[arg.index()] = entry;
            }
            for op in body.ops(block) {
                self.name_results(body, op);
                if body.has_extra(op) {
                    nested.extend(body.regions(op).into_iter().map(Step::Enter));
                    for successor in body.successors(op) {
                        *self.block_entry(successor) |= TARGET;
                    }
                }
            }
        }
        // The first block has a label only where one is needed, so its name would not always survive.
        if let Some(entry) = body.first_block(region).filter(|&b| !self.is_target(b)) {
            *self.block_entry(entry) = NUMBER;
        }
    }

    fn block_entry(&mut self, block: Block) -> &mut u32 {
        if self.blocks.len() <= block.index() {
            self.blocks.resize(block.index() + 1, NUMBER);
        }
        &mut self.blocks[block.index()]
    }

    fn name_block(&mut self, body: &Body, block: Block, number: u32, labels: &mut FxHashSet<Name>) {
        let label = body.block_label(block);
        let entry = if label.is_empty() {
            NUMBER | number
        } else {
            let mut label = name_in_text(label);
            if is_default_label(label.as_str()) || labels.contains(&label) {
                let base = label;
                let fresh = (0..).map(|k| Name::new(&format!("{base}_{k}"))).find(|n| !labels.contains(n));
                label = fresh.expect("an endless range");
            }
            labels.insert(label);
            self.texts.push(label);
            TEXT | (self.texts.len() as u32 - 1)
        };
        *self.block_entry(block) |= entry;
    }

    fn name_results(&mut self, body: &Body, op: Op) {
        for (i, result) in body.results(op).enumerate() {
            let name = body.value_name(result);
            let entry = if i > 0 && name.is_empty() {
                // The group that result `i - 1` leads or is in.
                let before = self.values[result.index() - 1];
                MEMBER | if before & TAG == MEMBER { (before & !TAG) + 1 } else { 1 }
            } else {
                self.fresh(name)
            };
            self.values[result.index()] = entry;
        }
    }

    /// An entry for a value called `name`, or for one without a name.
    #[inline]
    fn fresh(&mut self, name: Name) -> u32 {
        if name.is_empty() {
            self.next += 1;
            return NUMBER | (self.next - 1);
        }
        self.fresh_text(name)
    }
    fn fresh_text(&mut self, name: Name) -> u32 {
        let mut unique = name_in_text(name);
        if self.used.contains(&unique) {
            let base = unique;
            let suffix = self.suffixes.entry(base).or_insert(0);
            while self.used.contains(&unique) {
                unique = Name::new(&format!("{base}_{suffix}"));
                *suffix += 1;
            }
        }
        self.used.insert(unique);
        self.order.push(unique);
        self.texts.push(unique);
        TEXT | (self.texts.len() as u32 - 1)
    }

    fn write_entry(&self, out: &mut String, entry: u32) {
        match entry & TAG {
            NUMBER => out.push_str(itoa::Buffer::new().format(entry & !TAG)),
            TEXT => out.push_str(self.texts[(entry & !TAG) as usize].as_str()),
            // A value outside the body's ops: the IR is broken, and the text says so.
            _ => out.push_str("<<unknown value>>"),
        }
    }

    /// `%name` or `%group#k`.
    #[inline]
    pub fn write_use(&self, out: &mut String, _body: &Body, value: Value) {
        let at = value.index();
        let entry = self.values[at];
        out.push('%');
        if entry & TAG == MEMBER {
            let k = entry & !TAG;
            self.write_entry(out, self.values[at - k as usize]);
            out.push('#');
            out.push_str(itoa::Buffer::new().format(k));
            return;
        }
        self.write_entry(out, entry);
        if self.values.get(at + 1).is_some_and(|next| next & TAG == MEMBER) {
            out.push_str("#0");
        }
    }

    /// `%a, %b:2`.
    pub fn write_results(&self, out: &mut String, body: &Body, op: Op) {
        let results = body.results(op);
        let count = results.len();
        let mut i = 0;
        for result in results {
            let entry = self.values[result.index()];
            i += 1;
            if entry & TAG == MEMBER {
                continue;
            }
            if i > 1 {
                out.push_str(", ");
            }
            out.push('%');
            self.write_entry(out, entry);
            let further = self.values[result.index() + 1..].iter().take(count - i);
            let group = 1 + further.take_while(|e| **e & TAG == MEMBER).count();
            if group > 1 {
                out.push(':');
                out.push_str(itoa::Buffer::new().format(group));
            }
        }
    }

    /// `^label`.
    pub fn write_block(&self, out: &mut String, block: Block) {
        let entry = self.blocks.get(block.index()).copied().unwrap_or(NUMBER) & !TARGET;
        out.push('^');
        if entry & TAG == NUMBER {
            out.push_str("bb");
        }
        self.write_entry(out, entry);
    }

    /// Whether some op branches to the block.
    pub fn is_target(&self, block: Block) -> bool {
        self.blocks.get(block.index()).is_some_and(|e| e & TARGET != 0)
    }
}

/// `bb` and digits: what blocks without a name are called.
pub fn is_default_label(label: &str) -> bool {
    label.strip_prefix("bb").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// What a value of this name is called in text: the name itself where the grammar has it (`[A-Za-z_$.-][A-Za-z0-9_$.-]*`), else one made from it.
pub fn name_in_text(name: Name) -> Name {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.' | b'-');
    let text = name.as_str();
    let starts_well = !text.starts_with(|c: char| c.is_ascii_digit());
    if starts_well && text.bytes().all(ok) {
        return name;
    }
    let mut made = String::from(if starts_well { "" } else { "_" });
    made.extend(text.chars().map(|c| if c.is_ascii() && ok(c as u8) { c } else { '_' }));
    Name::new(&made)
}
