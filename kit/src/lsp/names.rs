//! Where names are defined and used, by tokens alone: it works on text that does not parse.

use rc_ir::op_def::resolve_pretty;
use rc_ir::{OpDef, Traits};
use rc_parser::{Token, tokens};
use rustc_hash::FxHashMap;
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Value,
    Symbol,
    Block,
    Alias,
}

/// A place where a name stands.
#[derive(Clone, Debug)]
pub struct Place {
    pub kind: Kind,
    /// Without `%`, `@`, `^`, quotes.
    pub name: Range<usize>,
    /// The place of its definition, by number; its own, for a definition.
    pub definition: Option<usize>,
    scope: usize,
    /// Of a result: where the name of its operation is, and its number among the results.
    pub result_of: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Scope {
    parent: usize,
    open: Token,
}

/// The names of a text.
pub struct Names {
    /// In the order of the text.
    pub places: Vec<Place>,
    scopes: Vec<Scope>,
    /// From which byte on which scope is the innermost.
    changes: Vec<(usize, usize)>,
    tokens: Vec<(Token, Range<usize>)>,
}

impl Names {
    pub fn of(text: &str) -> Names {
        let mut reader = Reader {
            text,
            tokens: tokens(text),
            scopes: vec![Scope { parent: 0, open: Token::End }],
            stack: vec![0],
            changes: vec![(0, 0)],
            places: Vec::new(),
            defined: FxHashMap::default(),
        };
        for at in 0..reader.tokens.len() {
            reader.token(at);
        }
        reader.resolve();
        let Reader { tokens, scopes, changes, places, .. } = reader;
        Names { places, scopes, changes, tokens }
    }

    /// The name at an offset, its sigil included, and just behind it.
    pub fn at(&self, offset: usize) -> Option<usize> {
        let end = self.places.partition_point(|p| p.name.start <= offset + 1);
        (end.saturating_sub(3)..end).rev().find(|&i| {
            let name = &self.places[i].name;
            name.start <= offset + 1 && offset <= name.end
        })
    }

    /// Every place of the same name as the one at number `place`, the definition included.
    pub fn same(&self, place: usize) -> Vec<usize> {
        let Some(definition) = self.places[place].definition else { return vec![place] };
        (0..self.places.len()).filter(|&i| self.places[i].definition == Some(definition)).collect()
    }

    /// The definitions of a kind that can be seen at an offset, the latest first.
    pub fn visible(&self, offset: usize, kind: Kind) -> Vec<usize> {
        let mut scope = self.scope_at(offset);
        let mut seen = vec![scope];
        while scope != 0 {
            scope = self.scopes[scope].parent;
            seen.push(scope);
        }
        let definitions = (0..self.places.len()).rev().filter(|&i| self.places[i].definition == Some(i));
        let visible = |&i: &usize| {
            let place = &self.places[i];
            let global = matches!(kind, Kind::Symbol | Kind::Alias);
            place.kind == kind && (global || place.name.end < offset && seen.contains(&place.scope))
        };
        definitions.filter(visible).collect()
    }

    /// What bracket the offset is in.
    pub fn bracket(&self, offset: usize) -> Token {
        self.scopes[self.scope_at(offset)].open
    }

    fn scope_at(&self, offset: usize) -> usize {
        let at = self.changes.partition_point(|c| c.0 <= offset);
        self.changes[at.saturating_sub(1)].1
    }

    /// The token that an offset is in or behind.
    pub fn token_at(&self, offset: usize) -> Option<(Token, Range<usize>)> {
        let at = self.tokens.partition_point(|t| t.1.start <= offset).checked_sub(1)?;
        let (token, range) = &self.tokens[at];
        (offset <= range.end).then(|| (*token, range.clone()))
    }

    /// The last registered operation named before an offset, and where.
    pub fn op_before(&self, text: &str, offset: usize) -> Option<(&'static OpDef, Range<usize>)> {
        let at = self.tokens.partition_point(|t| t.1.start < offset);
        self.tokens[..at].iter().rev().find_map(|(token, range)| Some((op_named(text, *token, range)?, range.clone())))
    }
}

/// The registered operation that a token names.
pub fn op_named(text: &str, token: Token, range: &Range<usize>) -> Option<&'static OpDef> {
    let word = &text[range.clone()];
    match token {
        Token::Word if word.contains('.') => resolve_pretty(word).def(),
        Token::String => resolve_pretty(word.trim_matches('"')).def().filter(|_| word.contains('.')),
        _ => None,
    }
}

struct Reader<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    scopes: Vec<Scope>,
    /// Open scopes, the innermost last.
    stack: Vec<usize>,
    changes: Vec<(usize, usize)>,
    places: Vec<Place>,
    defined: FxHashMap<(usize, Kind, &'t str), usize>,
}

impl<'t> Reader<'t> {
    fn kind(&self, at: usize) -> Token {
        self.tokens.get(at).map_or(Token::End, |t| t.0)
    }
    fn slice(&self, at: usize) -> &'t str {
        self.tokens.get(at).map_or("", |t| &self.text[t.1.clone()])
    }
    fn innermost(&self) -> usize {
        *self.stack.last().unwrap_or(&0)
    }
    fn open(&mut self, token: Token, at: usize) {
        self.scopes.push(Scope { parent: self.innermost(), open: token });
        self.stack.push(self.scopes.len() - 1);
        self.changes.push((self.tokens[at].1.end, self.innermost()));
    }
    fn close(&mut self, token: Token, at: usize) {
        let open = self.stack.iter().rposition(|&s| self.scopes[s].open == token);
        if let Some(depth) = open {
            self.stack.truncate(depth);
            self.changes.push((self.tokens[at].1.start, self.innermost()));
        }
    }

    fn token(&mut self, at: usize) {
        self.top_level(at);
        match self.kind(at) {
            open @ (Token::BraceOpen | Token::ParenOpen | Token::BracketOpen) => self.open(open, at),
            Token::BraceClose => self.close(Token::BraceOpen, at),
            Token::ParenClose => self.close(Token::ParenOpen, at),
            Token::BracketClose => self.close(Token::BracketOpen, at),
            Token::Value => self.value(at),
            Token::Symbol => self.symbol(at),
            Token::String => self.string(at),
            Token::Label => self.label(at),
            Token::Hash | Token::Bang => self.alias(at),
            _ => {}
        }
    }

    /// A top-level operation has a scope of its own. One that stands at the start of a line ends whatever is still open.
    fn top_level(&mut self, at: usize) {
        let start = self.tokens[at].1.start;
        let column = start - self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let is_op = match self.kind(at) {
            Token::Word => self.slice(at).contains('.') || self.slice(at) == "module",
            Token::String | Token::Value => true,
            _ => false,
        };
        if !is_op {
            return;
        }
        let symbol = op_named(self.text, self.kind(at), &self.tokens[at].1).is_some_and(|def| def.has(Traits::SYMBOL));
        if column == 0 && symbol {
            self.stack.truncate(1);
        }
        // The operation before has ended, if none of its brackets is open.
        let depth = self.stack.len() - usize::from(self.scopes[self.innermost()].open == Token::Word);
        let in_module = depth == 2 && self.scopes[self.stack[1]].open == Token::BraceOpen;
        if (depth == 1 || in_module) && self.slice(at) != "module" && self.is_first(start) {
            self.stack.truncate(depth);
            // A scope without a bracket.
            self.scopes.push(Scope { parent: self.innermost(), open: Token::Word });
            self.stack.push(self.scopes.len() - 1);
            self.changes.push((start, self.innermost()));
        }
    }

    /// Whether only spaces are before it on its line.
    fn is_first(&self, start: usize) -> bool {
        self.text[..start].bytes().rev().take_while(|&b| b != b'\n').all(|b| b.is_ascii_whitespace() || b == b'{')
    }

    /// The scope that a name defined here is seen in: arguments in parentheses are seen behind these.
    fn scope_of_definition(&self) -> usize {
        let mut scope = self.innermost();
        while self.scopes[scope].open == Token::BracketOpen {
            scope = self.scopes[scope].parent;
        }
        if self.scopes[scope].open == Token::ParenOpen { self.scopes[scope].parent } else { scope }
    }

    fn place(&mut self, kind: Kind, name: Range<usize>, scope: usize, defines: bool) -> usize {
        let number = self.places.len();
        let definition = defines.then_some(number);
        if defines {
            self.defined.entry((scope, kind, &self.text[name.clone()])).or_insert(number);
        }
        self.places.push(Place { kind, name, definition, scope, result_of: None });
        number
    }

    fn name(&self, at: usize, skip: usize) -> Range<usize> {
        let range = &self.tokens[at].1;
        range.start + skip..range.end
    }

    fn value(&mut self, at: usize) {
        let in_parens = self.scopes[self.innermost()].open == Token::ParenOpen;
        let argument = in_parens && self.kind(at + 1) == Token::Colon && self.kind(at + 2) != Token::Int;
        let op = if at > 0 && self.kind(at - 1) == Token::Equal { None } else { self.op_of_results(at) };
        let defines = argument || op.is_some();
        let scope = if defines { self.scope_of_definition() } else { self.innermost() };
        let number = self.place(Kind::Value, self.name(at, 1), scope, defines);
        if let Some(op) = op {
            // Results before this one in its list.
            let before = self.places[..number].iter().rev().take_while(|p| p.result_of.is_some_and(|r| r.0 == op));
            self.places[number].result_of = Some((op, before.count()));
        }
    }

    /// Where the operation's name is, for a value in a list of results `%a, %b:2 = op`.
    fn op_of_results(&self, at: usize) -> Option<usize> {
        let mut next = at + 1;
        loop {
            match (self.kind(next), self.kind(next + 1)) {
                (Token::Equal, _) => return self.tokens.get(next + 1).map(|t| t.1.start),
                (Token::Colon, Token::Int) | (Token::Comma, Token::Value) => next += 2,
                _ => return None,
            }
        }
    }

    fn symbol(&mut self, at: usize) {
        let quoted = self.slice(at).starts_with("@\"");
        let range = self.name(at, if quoted { 2 } else { 1 });
        let range = range.start..range.end - usize::from(quoted);
        let visibility = |at: usize| ["private", "public", "nested"].contains(&self.slice(at));
        let before = match at {
            0 => None,
            _ if at > 1 && visibility(at - 1) => Some(at - 2),
            _ => Some(at - 1),
        };
        let defines = before.is_some_and(|b| {
            self.slice(b) == "module"
                || op_named(self.text, self.kind(b), &self.tokens[b].1).is_some_and(|def| def.has(Traits::SYMBOL))
        });
        self.place(Kind::Symbol, range, 0, defines);
    }

    /// `sym_name = "f"`, and strings that may name a function: `callee = "f"`.
    fn string(&mut self, at: usize) {
        if at < 2 || self.kind(at - 1) != Token::Equal || self.kind(at - 2) != Token::Word {
            return;
        }
        let range = self.name(at, 1);
        self.place(Kind::Symbol, range.start..range.end - 1, 0, self.slice(at - 2) == "sym_name");
    }

    fn label(&mut self, at: usize) {
        let start = self.tokens[at].1.start;
        let defines = self.is_first(start) && matches!(self.kind(at + 1), Token::Colon | Token::ParenOpen);
        self.place(Kind::Block, self.name(at, 1), self.innermost(), defines);
    }

    fn alias(&mut self, at: usize) {
        let adjacent = at > 0 && self.tokens[at - 1].1.end == self.tokens[at].1.start;
        if self.slice(at).contains('.') || adjacent && self.kind(at - 1) == Token::Value {
            return;
        }
        let defines = self.kind(at + 1) == Token::Equal && self.scopes[self.innermost()].open != Token::BraceOpen;
        self.place(Kind::Alias, self.name(at, 1), 0, defines);
    }

    /// Finds the definition of each use, from its scope outward.
    fn resolve(&mut self) {
        for i in 0..self.places.len() {
            if self.places[i].definition.is_some() {
                continue;
            }
            let Place { kind, ref name, mut scope, .. } = self.places[i];
            let name = &self.text[name.clone()];
            loop {
                if let Some(&definition) = self.defined.get(&(scope, kind, name)) {
                    self.places[i].definition = Some(definition);
                    break;
                }
                if scope == 0 {
                    break;
                }
                scope = self.scopes[scope].parent;
            }
        }
        // A string that is the name of no function is just a string.
        let text = self.text;
        let is_name = |p: &Place| {
            p.definition.is_some()
                || text.as_bytes().get(p.name.start - 1) != Some(&b'"')
                || text[..p.name.start - 1].ends_with('@')
        };
        let mut new_number = Vec::new();
        let mut kept = 0;
        for place in &self.places {
            new_number.push(kept);
            kept += usize::from(is_name(place));
        }
        self.places.retain(is_name);
        for place in &mut self.places {
            place.definition = place.definition.map(|d| new_number[d]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(text: &str, name: &str) -> Vec<Vec<usize>> {
        crate::register();
        let names = Names::of(text);
        let definitions = (0..names.places.len()).filter(|&i| names.places[i].definition == Some(i));
        let named = definitions.filter(|&i| &text[names.places[i].name.clone()] == name);
        named.map(|i| names.same(i).into_iter().map(|p| names.places[p].name.start).collect()).collect()
    }

    #[test]
    fn values_of_two_functions_are_two() {
        let text = "func.func @a(%x: f32) {\n  %y = core.exp %x : f32\n  func.return\n}\nfunc.func @b(%x: f32) {\n  core.neg %x\n}\n";
        assert_eq!(uses(text, "x").iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn regions_see_what_is_around_them() {
        let text = "func.func @a(%x: f32) {\n  %y = core.fusion %x ((%x: f32) {\n    %e = core.exp %x : f32\n    core.yield %e\n  }) : f32\n  func.return %y, %x\n}\n";
        // The function's argument has three places, the region's two.
        assert_eq!(uses(text, "x").iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(uses(text, "e"), [[text.find("%e").unwrap() + 1, text.rfind("%e").unwrap() + 1]]);
    }

    #[test]
    fn symbols_and_strings_that_name_them() {
        let text = "func.func private @step(%x: f32) {\n}\nfunc.func @b(%x: f32) {\n  core.while %x {body = \"step\", kind = \"other\"}\n  func.call %x {callee = @step}\n}\n";
        assert_eq!(uses(text, "step")[0].len(), 3);
        assert!(uses(text, "other").is_empty());
    }

    #[test]
    fn an_unclosed_function_ends_at_the_next() {
        let text = "func.func @a(%x: f32) {\n  %y = core.exp %x\nfunc.func @b(%x: f32) {\n  core.neg %x\n}\n";
        assert_eq!(uses(text, "x").iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn results_by_number() {
        crate::register();
        let text = "func.func @a(%x: f32) {\n  %v, %at = core.sort %x : f32, i64\n}\n";
        let names = Names::of(text);
        let results: Vec<_> = names.places.iter().filter_map(|p| p.result_of).collect();
        let op = text.find("core.sort %x").unwrap();
        assert_eq!(results, [(op, 0), (op, 1)]);
        let at = names.at(text.find("%at").unwrap()).unwrap();
        assert_eq!(&text[names.places[at].name.clone()], "at");
        assert_eq!(names.visible(text.len() - 3, Kind::Value).len(), 3);
    }
}
