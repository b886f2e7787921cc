//! Names of values and blocks: what they mean at the current place of the text.
//!
//! A name is visible in its region and those nested in it, up to an op isolated from above. A value
//! may be used before its definition (in a CFG, in a graph region): the use gets a placeholder until then.

use crate::cursor::Parser;
use rc_ir::suggest::suggest;
use rc_ir::{Block, Body, Diagnostic, Name, Result, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The number of a value's name: digits directly, other names through a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NameId(u32);

const NUMBERED: u32 = 1 << 31;
/// Names of more digits go through the table.
const DIGITS: usize = 5;

/// The definition that a name stands for.
#[derive(Clone, Copy, Default)]
struct Def {
    value: Option<Value>,
    /// Values in the group: `2` of `%r:2`.
    count: u32,
    at: u32,
    /// How many isolated ops are around it.
    level: u32,
}

struct Pending {
    index: u32,
    at: usize,
    placeholder: Value,
}

/// A use of a value as written: `%r#1`.
#[derive(Clone, Copy)]
pub(crate) struct ValueUse {
    pub name: NameId,
    pub index: u32,
    pub indexed: bool,
    pub at: usize,
    pub end: usize,
}

#[derive(Default)]
pub(crate) struct Scope<'s> {
    ids: FxHashMap<&'s str, u32>,
    texts: Vec<&'s str>,
    names: Vec<Name>,
    named: Vec<Def>,
    numbered: Vec<Def>,
    /// What definitions replaced, to be restored at the end of their region.
    undo: Vec<(NameId, Def)>,
    pub level: u32,
    pending: FxHashMap<(NameId, u32), Vec<Pending>>,
    placeholders: Option<Block>,
    /// All names defined in the current body and where, for messages.
    defined: Vec<(NameId, u32)>,
    /// Results of top-level ops.
    pub top_level: FxHashSet<&'s str>,
    /// What was used and not found.
    pub undefined: Vec<String>,
}

impl<'s> Scope<'s> {
    /// The id of a name, without its `%`.
    pub fn id(&mut self, text: &'s str) -> NameId {
        let bytes = text.as_bytes();
        if bytes.len() <= DIGITS && bytes[0].is_ascii_digit() && (bytes[0] != b'0' || bytes.len() == 1) {
            let number = bytes.iter().fold(0u32, |n, b| n * 10 + u32::from(b - b'0'));
            if self.numbered.len() <= number as usize {
                self.numbered.resize(number as usize + 1, Def::default());
            }
            return NameId(number | NUMBERED);
        }
        let fresh = self.texts.len() as u32;
        let id = *self.ids.entry(text).or_insert(fresh);
        if id == fresh {
            self.texts.push(text);
            self.names.push(if bytes[0].is_ascii_digit() { Name::EMPTY } else { Name::new(text) });
            self.named.push(Def::default());
        }
        NameId(id)
    }
    /// The name that a value keeps; empty for one of digits.
    fn kept_name(&self, id: NameId) -> Name {
        if id.0 & NUMBERED != 0 { Name::EMPTY } else { self.names[id.0 as usize] }
    }
    pub fn text(&self, id: NameId) -> String {
        if id.0 & NUMBERED != 0 { (id.0 & !NUMBERED).to_string() } else { self.texts[id.0 as usize].to_string() }
    }
    #[inline]
    fn def(&mut self, id: NameId) -> &mut Def {
        if id.0 & NUMBERED != 0 {
            &mut self.numbered[(id.0 & !NUMBERED) as usize]
        } else {
            &mut self.named[id.0 as usize]
        }
    }
    fn visible(&mut self, id: NameId) -> Option<Def> {
        let level = self.level;
        Some(*self.def(id)).filter(|d| d.value.is_some() && d.level == level)
    }
    /// Where to return to when the region that starts here ends.
    pub fn mark(&self) -> usize {
        self.undo.len()
    }
    /// Forgets what was defined since `mark`.
    pub fn restore(&mut self, mark: usize) {
        while self.undo.len() > mark {
            let (id, old) = self.undo.pop().expect("longer than the mark");
            *self.def(id) = old;
        }
    }
    /// Forgets the body that was read.
    pub fn clear(&mut self) {
        self.restore(0);
        self.pending.clear();
        self.defined.clear();
        self.placeholders = None;
        self.level = 0;
    }
    /// Names like an unknown one, defined in the same body.
    fn near(&self, text: &str) -> Option<(String, bool)> {
        let names: Vec<String> = self.defined.iter().map(|&(id, _)| self.text(id)).collect();
        if names.iter().any(|n| n == text) {
            return Some((text.to_string(), true));
        }
        suggest(text, names.iter().map(String::as_str)).map(|n| (n.to_string(), false))
    }
    fn place_of(&self, name: &str) -> Option<u32> {
        self.defined.iter().find(|d| self.text(d.0) == name).map(|d| d.1)
    }
}

impl<'s> Parser<'s> {
    /// Makes `id` stand for `value` and the `count - 1` results after it, and names the first of them.
    pub fn define(&mut self, body: &mut Body, id: NameId, at: usize, value: Value, count: u32) -> Result {
        if let Some(old) = self.scope.visible(id) {
            let text = self.scope.text(id);
            let error = self.error_at(at..at + text.len() + 1, format!("redefinition of the value '%{text}'"));
            return Err(error
                .note(self.loc(old.at as usize), "first defined here")
                .help("value names are unique in a region and those nested in it"));
        }
        let name = self.scope.kept_name(id);
        if !name.is_empty() {
            body.set_value_name(value, name);
        }
        let level = self.scope.level;
        let def = Def { value: Some(value), count, at: at as u32, level };
        let old = std::mem::replace(self.scope.def(id), def);
        self.scope.undo.push((id, old));
        self.scope.defined.push((id, at as u32));
        if !self.scope.pending.is_empty() {
            for pending in self.scope.pending.remove(&(id, level)).unwrap_or_default() {
                self.resolve_pending(body, id, def, pending)?;
            }
        }
        Ok(())
    }
    fn resolve_pending(&mut self, body: &mut Body, id: NameId, def: Def, pending: Pending) -> Result {
        let value = self.member(body, def, id, pending.index, pending.at)?;
        let (expected, found) = (body.ty(pending.placeholder), body.ty(value));
        if expected != Type::none() && expected != found {
            let error = self.error_at(
                pending.at..pending.at + 1,
                format!("'%{}' is used as {expected}, but is {found}", self.scope.text(id)),
            );
            return Err(error.note(self.loc(def.at as usize), "defined here"));
        }
        body.replace_all_uses(pending.placeholder, value);
        Ok(())
    }
    /// Value `index` of the group `def`.
    #[inline]
    fn member(&self, body: &Body, def: Def, id: NameId, index: u32, at: usize) -> Result<Value> {
        let first = def.value.expect("a definition");
        if index == 0 {
            return Ok(first);
        }
        if index >= def.count {
            let text = self.scope.text(id);
            let error =
                self.error_at(at..at + text.len() + 1, format!("'%{text}' has {} values, so no '#{index}'", def.count));
            return Err(error.note(self.loc(def.at as usize), "defined here"));
        }
        let op = body.defining_op(first).expect("a group of results");
        let start = body.results(op).position(|r| r == first).expect("a result of its op");
        Ok(body.result(op, start + index as usize))
    }

    /// The value of a use; of one not defined yet, a placeholder of type `ty`.
    #[inline]
    pub fn value(&mut self, body: &mut Body, written: ValueUse, ty: Option<Type>) -> Result<Value> {
        let Some(def) = self.scope.visible(written.name) else {
            return self.placeholder(body, written, ty);
        };
        if def.count > 1 && !written.indexed {
            let text = self.scope.text(written.name);
            let error = self.error_at(written.at..written.end, format!("'%{text}' is {} values", def.count));
            return Err(error
                .note(self.loc(def.at as usize), "defined here")
                .help(format!("name one of them: %{text}#0")));
        }
        let value = self.member(body, def, written.name, written.index, written.at)?;
        let found = body.ty(value);
        match ty {
            Some(ty) if ty != found => {
                let text = &self.text[written.at..written.end];
                let error = self.error_at(written.at..written.end, format!("'{text}' is used as {ty}, but is {found}"));
                Err(error.note(self.loc(def.at as usize), "defined here"))
            }
            _ => Ok(value),
        }
    }
    fn placeholder(&mut self, body: &mut Body, written: ValueUse, ty: Option<Type>) -> Result<Value> {
        let block = *self.scope.placeholders.get_or_insert_with(|| body.detached_block());
        let placeholder = body.add_block_arg(block, ty.unwrap_or_else(Type::none));
        let pending = Pending { index: written.index, at: written.at, placeholder };
        self.scope.pending.entry((written.name, self.scope.level)).or_default().push(pending);
        Ok(placeholder)
    }
    /// Whether the value is not defined yet.
    pub fn is_known(&mut self, written: ValueUse) -> bool {
        self.scope.visible(written.name).is_some()
    }

    /// An error if some use at this level of isolation has no definition.
    pub fn check_undefined(&mut self) -> Result {
        let level = self.scope.level;
        let uses = self.scope.pending.iter().filter(|(key, _)| key.1 == level);
        let first = uses.flat_map(|(key, pending)| pending.iter().map(move |p| (p.at, key.0))).min_by_key(|u| u.0);
        first.map_or(Ok(()), |(at, id)| Err(self.undefined(at, id)))
    }
    #[cold]
    fn undefined(&mut self, at: usize, id: NameId) -> Box<Diagnostic> {
        let text = self.scope.text(id);
        self.scope.undefined.push(text.clone());
        let message = format!("use of the undefined value '%{text}'");
        let error = self.error_at(at..at + text.len() + 1, message);
        match self.scope.near(&text) {
            Some((name, true)) => {
                let place = self.scope.place_of(&name).unwrap_or(0);
                error.note(self.loc(place as usize), "a value of this name is not visible from there")
            }
            Some((name, false)) => error.help(format!("did you mean '%{name}'?")),
            None => error,
        }
    }

    /// `%x` or `%r#1`, which must be next.
    #[inline]
    pub fn value_use(&mut self) -> Result<ValueUse> {
        if !self.is(crate::lexer::Token::Value) {
            return Err(self.expected("a value, %name"));
        }
        let name = self.scope.id(&self.slice()[1..]);
        let (at, mut end) = (self.start, self.end);
        self.advance();
        let mut index = 0;
        let indexed = self.is(crate::lexer::Token::Hash) && self.start == end;
        if indexed {
            let number = self.slice()[1..].parse();
            index = number.map_err(|_| self.expected("the number of a result after '#'"))?;
            end = self.end;
            self.advance();
        }
        Ok(ValueUse { name, index, indexed, at, end })
    }
}

/// Blocks by label within a region.
#[derive(Default)]
pub(crate) struct Labels<'s> {
    blocks: SmallVec<[(&'s str, LabelDef); 2]>,
    table: FxHashMap<&'s str, usize>,
}

#[derive(Clone, Copy)]
pub(crate) struct LabelDef {
    pub block: Block,
    /// The label's place, or that of its first use while it is not defined.
    pub at: usize,
    pub defined: bool,
}

impl<'s> Labels<'s> {
    /// The block called `label`, made by `make` where the label is new.
    pub fn get(&mut self, label: &'s str, at: usize, make: impl FnOnce() -> Block) -> &mut LabelDef {
        // Few labels are searched, many are hashed.
        const FEW: usize = 8;
        let found = if self.blocks.len() <= FEW {
            self.blocks.iter().position(|b| b.0 == label)
        } else {
            if self.table.is_empty() {
                self.table.extend(self.blocks.iter().enumerate().map(|(i, b)| (b.0, i)));
            }
            self.table.get(label).copied()
        };
        let index = found.unwrap_or_else(|| {
            self.blocks.push((label, LabelDef { block: make(), at, defined: false }));
            if !self.table.is_empty() {
                self.table.insert(label, self.blocks.len() - 1);
            }
            self.blocks.len() - 1
        });
        &mut self.blocks[index].1
    }
    /// The first label that is used but not defined.
    pub fn undefined(&self) -> Option<(&'s str, LabelDef)> {
        self.blocks.iter().filter(|b| !b.1.defined).min_by_key(|b| b.1.at).copied()
    }
    pub fn names(&self) -> impl Iterator<Item = &'s str> + '_ {
        self.blocks.iter().filter(|b| b.1.defined).map(|b| b.0)
    }
}
