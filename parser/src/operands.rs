//! Operands of the pretty form, and their groups as declared.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::ops::Target;
use crate::pretty::Carried;
use crate::scope::{NameId, ValueUse};
use rc_ir::op_def::{Arity, GroupSyntax, OpDef};
use rc_ir::suggest::did_you_mean;
use rc_ir::{Attr, Diagnostic, OpName, Result, Traits, Value};
use smallvec::SmallVec;

/// What stands in `[…]` behind an operand.
enum Brackets {
    Values(Vec<ValueUse>),
    /// An index map.
    Map(Attr),
}

struct Item {
    value: ValueUse,
    brackets: Option<(usize, Brackets)>,
}

struct NamedGroup<'s> {
    name: &'s str,
    at: usize,
    items: Vec<Item>,
    /// The names of loop-carried values, of an `iter(…)`.
    carried: Vec<(NameId, usize)>,
    brackets: Option<(usize, Brackets)>,
}

/// The operands as written.
#[derive(Default)]
pub(crate) struct Written<'s> {
    /// Brackets before any operand.
    lead: Option<(usize, Brackets)>,
    plain: Vec<Item>,
    named: Vec<NamedGroup<'s>>,
}

/// The operands as declared.
#[derive(Default)]
pub(crate) struct Grouped {
    pub operands: SmallVec<[Value; 4]>,
    pub segments: Option<Attr>,
    pub maps: Option<Attr>,
    pub carried: SmallVec<[Carried; 2]>,
}

impl<'s> Parser<'s> {
    pub fn written_operands(&mut self, def: Option<&'static OpDef>) -> Result<Written<'s>> {
        let mut written = Written { lead: self.brackets(def)?, ..Written::default() };
        if def.is_none_or(|d| d.operands.iter().any(|o| matches!(o.syntax, GroupSyntax::Plain))) {
            written.plain = self.plain_operands(def)?;
        }
        while self.is(Token::Word) && self.byte(self.end) == b'(' && !self.is_word("loc") {
            let group = self.named_group(def)?;
            written.named.push(group);
        }
        Ok(written)
    }

    /// `%a, %b[…]`. A list that `=` follows is not this op's operands but the next op's results.
    fn plain_operands(&mut self, def: Option<&'static OpDef>) -> Result<Vec<Item>> {
        let start = self.start;
        let mut items = Vec::new();
        if !self.is(Token::Value) {
            return Ok(items);
        }
        loop {
            let value = self.value_use()?;
            let names_results = self.is(Token::Equal) || (self.is(Token::Colon) && self.follows_digit());
            if names_results {
                self.seek(start);
                return Ok(Vec::new());
            }
            let brackets = self.brackets(def)?;
            items.push(Item { value, brackets });
            if !self.take(Token::Comma) {
                return Ok(items);
            }
        }
    }
    /// The blank between an operand that ends at `last` and a value behind it in the same line.
    fn missing_comma(&self, last: Option<usize>) -> Option<std::ops::Range<usize>> {
        let last = last?;
        let rest = &self.text[last..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        rest[blank..].starts_with('%').then(|| last..last + blank.max(1))
    }
    fn follows_digit(&self) -> bool {
        self.text[self.end..].trim_start().starts_with(|c: char| c.is_ascii_digit())
    }

    /// `[…]`, unless it holds successors.
    fn brackets(&mut self, def: Option<&'static OpDef>) -> Result<Option<(usize, Brackets)>> {
        let at = self.start;
        if !self.is(Token::BracketOpen) || self.text[self.end..].trim_start().starts_with('^') {
            return Ok(None);
        }
        if def.is_some_and(|d| d.has(Traits::INDEXED)) {
            return Ok(Some((at, Brackets::Map(Attr::shape(&self.dims()?)))));
        }
        let mut values = Vec::new();
        self.list(Token::BracketOpen, Token::BracketClose, "in a list of values", &mut |p| {
            values.push(p.value_use()?);
            Ok(())
        })?;
        Ok(Some((at, Brackets::Values(values))))
    }

    /// `name(%a, %b)` or `iter(%acc = %init)`.
    fn named_group(&mut self, def: Option<&'static OpDef>) -> Result<NamedGroup<'s>> {
        let (name, at) = (self.slice(), self.start);
        let groups = def.map_or(&[][..], |d| d.operands);
        let declared = groups.iter().find(|g| match g.syntax {
            GroupSyntax::Named => g.name == name,
            GroupSyntax::Iter => name == "iter",
            _ => false,
        });
        let Some(declared) = declared else {
            let known = groups.iter().filter_map(|g| match g.syntax {
                GroupSyntax::Named => Some(g.name),
                GroupSyntax::Iter => Some("iter"),
                _ => None,
            });
            let hint = did_you_mean(name, known);
            return Err(self.error(format!("this operation has no operands called '{name}'{hint}")));
        };
        self.advance();
        let mut group = NamedGroup { name: declared.name, at, items: Vec::new(), carried: Vec::new(), brackets: None };
        let is_iter = declared.syntax == GroupSyntax::Iter;
        self.list(Token::ParenOpen, Token::ParenClose, "in a group of operands", &mut |p| {
            if is_iter {
                let at = p.start;
                let arg = p.value_use()?;
                p.expect(Token::Equal, "and the first value")?;
                group.carried.push((arg.name, at));
            }
            let value = p.value_use()?;
            let brackets = p.brackets(def)?;
            group.items.push(Item { value, brackets });
            Ok(())
        })?;
        group.brackets = self.brackets(def)?;
        Ok(group)
    }

    /// Puts the operands in the order of the declaration, resolved.
    pub fn group_operands(
        &mut self,
        target: &mut Target,
        def: Option<&'static OpDef>,
        written: &mut Written<'s>,
        at: usize,
    ) -> Result<Grouped> {
        let Some(def) = def else {
            return self.loose_operands(target, written);
        };
        let uses = self.ordered(def, written, at)?;
        let mut grouped = Grouped::default();
        let mut maps = Vec::new();
        let mut unmapped = None;
        for group in &uses.groups {
            for (value, map) in group {
                grouped.operands.push(self.value(target.body, *value, None)?);
                match map {
                    Some(map) => maps.push(*map),
                    None => unmapped = Some(*value),
                }
            }
        }
        if !maps.is_empty() {
            if let Some(value) = unmapped {
                let error = self.error_at(value.at..value.end, "this operand has no index map, but others have");
                return Err(error.help("write one behind every operand: %a[i, j]"));
            }
            grouped.maps = Some(Attr::array(&maps));
        }
        if def.has_segments() {
            let sizes: Vec<i64> = uses.groups.iter().map(|g| g.len() as i64).collect();
            grouped.segments = Some(Attr::i32s(&sizes));
        }
        for ((id, at), value) in uses.carried {
            if !self.is_known(value) {
                let error = self
                    .error_at(value.at..value.end, "a loop-carried value starts as a value defined before the loop");
                return Err(error);
            }
            let init = self.value(target.body, value, None)?;
            grouped.carried.push((id, at, init));
        }
        Ok(grouped)
    }

    /// The operands of an unregistered op: a plain list.
    fn loose_operands(&mut self, target: &mut Target, written: &Written) -> Result<Grouped> {
        let mut grouped = Grouped::default();
        let brackets = written.lead.iter().chain(written.plain.iter().filter_map(|i| i.brackets.as_ref())).next();
        if let Some((at, _)) = brackets {
            return Err(self.error_at(*at..*at + 1, "an unregistered operation takes a plain list of operands"));
        }
        for item in &written.plain {
            grouped.operands.push(self.value(target.body, item.value, None)?);
        }
        Ok(grouped)
    }

    fn ordered(&self, def: &'static OpDef, written: &mut Written<'s>, at: usize) -> Result<Ordered> {
        let name = OpName::new(def.name).pretty();
        let op = at..at + name.len();
        let mut out = Ordered::default();
        let indexed = def.has(Traits::INDEXED);
        let later_fixed = |from: usize| {
            let rest = &def.operands[from..];
            rest.iter().filter(|o| o.syntax == GroupSyntax::Plain && o.arity == Arity::One).count()
        };
        let last = written.plain.last().map(|item| item.value.end);
        let mut plain = std::mem::take(&mut written.plain).into_iter().peekable();
        let mut brackets = written.lead.take();
        for (i, group) in def.operands.iter().enumerate() {
            let mut values: Vec<(ValueUse, Option<Attr>)> = Vec::new();
            let mut take = |item: Item, brackets: &mut Option<(usize, Brackets)>| -> Result {
                let map = match item.brackets {
                    Some((_, Brackets::Map(map))) => Some(map),
                    other => {
                        self.no_brackets(brackets)?;
                        *brackets = other;
                        None
                    }
                };
                values.push((item.value, map));
                Ok(())
            };
            match group.syntax {
                GroupSyntax::Plain => {
                    let wanted = match group.arity {
                        Arity::One => 1,
                        Arity::Optional => plain.len().saturating_sub(later_fixed(i + 1)).min(1),
                        Arity::Variadic => plain.len().saturating_sub(later_fixed(i + 1)),
                    };
                    for _ in 0..wanted {
                        let Some(item) = plain.next() else {
                            let error = match self.missing_comma(last) {
                                Some(at) => self.error_at(at, "expected ',' between two operands"),
                                None => self.error_at(op, format!("'{name}' needs the operand '{}'", group.name)),
                            };
                            return Err(error);
                        };
                        take(item, &mut brackets)?;
                    }
                }
                GroupSyntax::Bracketed => {
                    if let Some((_, Brackets::Values(inner))) = brackets.take() {
                        values.extend(inner.into_iter().map(|v| (v, None)));
                    }
                }
                GroupSyntax::Named | GroupSyntax::Iter => {
                    self.no_brackets(&brackets)?;
                    let found = written.named.iter().position(|n| n.name == group.name);
                    if let Some(found) = found {
                        let named = written.named.remove(found);
                        let uses: Vec<ValueUse> = named.items.iter().map(|i| i.value).collect();
                        for item in named.items {
                            take(item, &mut brackets)?;
                        }
                        if named.brackets.is_some() {
                            self.no_brackets(&brackets)?;
                            brackets = named.brackets;
                        }
                        out.carried.extend(named.carried.into_iter().zip(uses));
                    }
                }
            }
            let (least, most) = match group.arity {
                Arity::One => (1, 1),
                Arity::Optional => (0, 1),
                Arity::Variadic => (0, usize::MAX),
            };
            if values.len() < least || values.len() > most {
                let found = values.len();
                return Err(self.error_at(op, format!("'{name}' takes one operand '{}', found {found}", group.name)));
            }
            out.groups.push(values);
        }
        if !indexed {
            self.no_brackets(&brackets)?;
        }
        if let Some(extra) = plain.next() {
            let most = def.operands.iter().filter(|o| o.syntax == GroupSyntax::Plain).count();
            let error = self.error_at(
                extra.value.at..extra.value.end,
                format!("'{name}' takes {most} plain operands; this is one too many"),
            );
            return Err(error);
        }
        if let Some(twice) = written.named.first() {
            return Err(self.error_at(
                twice.at..twice.at + twice.name.len(),
                format!("the operands '{}' are given twice", twice.name),
            ));
        }
        Ok(out)
    }
    fn no_brackets(&self, brackets: &Option<(usize, Brackets)>) -> Result {
        match brackets {
            Some((at, _)) => Err(self.unexpected_brackets(*at)),
            None => Ok(()),
        }
    }
    #[cold]
    fn unexpected_brackets(&self, at: usize) -> Box<Diagnostic> {
        self.error_at(at..at + 1, "no indices are expected here")
    }
}

/// Uses by declared group, each with its index map where it has one.
#[derive(Default)]
struct Ordered {
    groups: Vec<Vec<(ValueUse, Option<Attr>)>>,
    carried: Vec<((NameId, usize), ValueUse)>,
}
