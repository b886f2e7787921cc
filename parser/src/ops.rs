//! Operations: what both forms share. An op with regions is made when its regions start, and gets its
//! operands and results, whose types may come after, when they are known.

use crate::cursor::{Parser, clipped};
use crate::lexer::Token;
use crate::locs::WrittenLoc;
use crate::scope::{Labels, NameId, ValueUse};
use rc_ir::op_def::{self, OpDef};
use rc_ir::suggest::{did_you_mean, suggest};
use rc_ir::{Attr, Block, Body, Diagnostic, Loc, Name, Op, OpName, OpState, Region, Result, Traits, Type, Value};
use smallvec::SmallVec;

/// `%r:2` on the left of `=`.
#[derive(Clone, Copy)]
pub(crate) struct ResultName {
    pub id: NameId,
    pub at: usize,
    pub count: u32,
}
pub(crate) type ResultNames = SmallVec<[ResultName; 2]>;
pub(crate) type Uses = SmallVec<[ValueUse; 4]>;
pub(crate) type TypeVec = SmallVec<[Type; 4]>;

/// What an op is made into: the root of a new body, or an op nested in it.
pub(crate) struct Target<'b> {
    pub body: &'b mut Body,
    pub is_root: bool,
    /// Blocks that the op may name as successors.
    pub region: Option<Region>,
}

/// The parts of an op before its regions.
pub(crate) struct Start {
    pub name: OpName,
    pub at: usize,
    pub successors: SmallVec<[Block; 2]>,
    pub props: Option<Attr>,
    pub attrs: Attr,
}

impl<'s> Parser<'s> {
    /// An operation with its results. It is in no block yet.
    pub fn op(&mut self, target: Target, labels: &mut Labels<'s>) -> Result<Op> {
        let results = self.result_names()?;
        match self.token {
            Token::String if self.is_generic_op() => self.generic_op(target, labels, &results),
            Token::String | Token::Word => self.pretty_op(target, labels, &results),
            _ => Err(self.expected("an operation")),
        }
    }

    /// Whether the quoted name that is next begins the generic form: `(` with operands or nothing in it.
    fn is_generic_op(&self) -> bool {
        let bytes = self.text.as_bytes();
        let next = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
            (at, bytes.get(at))
        };
        match next(self.end) {
            (at, Some(b'(')) => !matches!(next(at + 1).1, Some(b'{' | b'(')),
            _ => false,
        }
    }

    /// `%a, %b:2 =`, or nothing.
    fn result_names(&mut self) -> Result<ResultNames> {
        let mut names = ResultNames::new();
        if !self.is(Token::Value) {
            return Ok(names);
        }
        loop {
            if !self.is(Token::Value) {
                return Err(self.expected("the name of a result, %name"));
            }
            let (id, at) = (self.scope.id(&self.slice()[1..]), self.start);
            self.advance();
            let mut count = 1;
            if self.take(Token::Colon) {
                let number = self.slice().parse::<u32>().ok().filter(|&n| n > 0 && self.is(Token::Int));
                count = number.ok_or_else(|| self.expected("the number of results"))?;
                self.advance();
            }
            names.push(ResultName { id, at, count });
            if !self.take(Token::Comma) {
                break;
            }
        }
        self.expect(Token::Equal, "after the names of results")?;
        Ok(names)
    }

    /// The op that `text` names, if it may occur.
    pub fn op_name(&mut self, text: &'s str, pretty: bool) -> Result<OpName> {
        if let Some(&name) = self.op_names.get(text) {
            // A quoted name is not shortened, so the two ways to write a name have different keys.
            return Ok(name);
        }
        let range = self.start..self.end;
        let quoted = text.starts_with('"');
        let name = if quoted {
            let name = self.string()?;
            if name.is_empty() {
                return Err(self.error_at(range, "the name of an operation is empty"));
            }
            OpName::new(&name)
        } else {
            op_def::resolve_pretty(text)
        };
        if name.def().is_none() {
            self.check_unregistered(name, range.clone(), pretty && !quoted)?;
        }
        if quoted {
            self.seek(range.start);
        }
        self.op_names.insert(text, name);
        Ok(name)
    }
    #[cold]
    fn check_unregistered(&mut self, name: OpName, range: std::ops::Range<usize>, pretty: bool) -> Result {
        let text = name.as_str();
        if text == "builtin.module" {
            return Ok(());
        }
        let dialect = text.rsplit_once('.').map_or("", |p| p.0);
        let registered = self.dialects.get_or_insert_with(|| {
            op_def::registered().iter().filter_map(|d| d.name.rsplit_once('.')).map(|p| p.0).collect()
        });
        // A bare name may lack the `rc.` of rc's own dialects; quoted, it is another's.
        let shortened = pretty && registered.contains(format!("rc.{dialect}").as_str());
        let dialect_known = shortened || registered.contains(dialect);
        if !dialect_known && self.options.allow_unregistered {
            return Ok(());
        }
        let error = self.error_at(range, format!("unknown operation '{}'", clipped(text)));
        let names = op_def::registered().into_iter().map(|d| OpName::new(d.name));
        let known: Vec<&str> = names.map(|n| if pretty { n.pretty() } else { n.as_str() }).collect();
        Err(match suggest(text, known) {
            Some(near) => error.help(format!("did you mean '{near}'?")),
            None if OpName::new(&format!("rc.{text}")).def().is_some() => {
                error.help(format!("the generic form's name is \"rc.{text}\""))
            }
            None if dialect_known => error.help(format!("the dialect '{dialect}' has no such operation")),
            None if dialect.is_empty() => error.help("an operation is written dialect.name, such as core.add"),
            None => error.help("--allow-unregistered-dialect accepts operations of dialects that are not registered"),
        })
    }

    // ---- making ops ----

    /// Makes an op with all its parts, without regions.
    pub fn make(
        &mut self,
        target: &mut Target,
        start: Start,
        operands: SmallVec<[Value; 4]>,
        results: &[Type],
    ) -> Result<Op> {
        let Start { name, at, successors, props, attrs } = start;
        self.check_counts(at, operands.len(), results.len())?;
        let loc = self.loc(at);
        if !target.is_root {
            let results = SmallVec::from_slice(results);
            return Ok(target.body.create(OpState {
                name,
                loc,
                operands,
                results,
                attrs,
                props,
                successors,
                regions: 0,
            }));
        }
        let op = self.make_root(target, Start { name, at, successors, props, attrs });
        self.finish(target, op, at, &operands, results)?;
        Ok(op)
    }
    /// Makes an op whose regions come next.
    pub fn make_early(&mut self, target: &mut Target, start: Start) -> Op {
        if target.is_root {
            return self.make_root(target, start);
        }
        let Start { name, at, successors, props, attrs } = start;
        let (operands, results) = Default::default();
        target.body.create(OpState { name, loc: self.loc(at), operands, results, attrs, props, successors, regions: 0 })
    }
    fn make_root(&self, target: &mut Target, start: Start) -> Op {
        let root = target.body.root();
        target.body.set_name_of_op(root, start.name);
        target.body.set_loc(root, self.loc(start.at));
        target.body.set_attrs(root, start.attrs);
        if start.props.is_some() {
            target.body.set_props(root, start.props);
        }
        root
    }
    /// Gives operands and results to an op that was made early.
    pub fn finish(&mut self, target: &mut Target, op: Op, at: usize, operands: &[Value], results: &[Type]) -> Result {
        self.check_counts(at, operands.len(), results.len())?;
        self.share_values |= target.is_root && !operands.is_empty();
        if !operands.is_empty() {
            target.body.set_operands(op, operands);
        }
        if !results.is_empty() {
            target.body.add_results(op, results);
        }
        Ok(())
    }
    fn check_counts(&self, at: usize, operands: usize, results: usize) -> Result {
        const MOST: usize = u16::MAX as usize;
        if operands > MOST || results > MOST {
            return Err(
                self.error_at(at..at + 1, format!("an operation has at most {MOST} operands and {MOST} results"))
            );
        }
        Ok(())
    }

    /// Names the results as written on the left of `=`.
    pub fn define_results(&mut self, target: &mut Target, op: Op, names: &[ResultName]) -> Result {
        if names.is_empty() {
            return Ok(());
        }
        let total = target.body.result_count(op);
        let named: u64 = names.iter().map(|n| u64::from(n.count)).sum();
        if named != total as u64 {
            let plural = if total == 1 { "" } else { "s" };
            let message = format!("this operation has {total} result{plural}, but {named} named");
            return Err(self.error_at(names[0].at..names[0].at + 1, message));
        }
        if target.is_root {
            return self.define_top_level(target.body, op, names);
        }
        let mut first = 0;
        for name in names {
            let value = target.body.result(op, first);
            self.define(target.body, name.id, name.at, value, name.count)?;
            first += name.count as usize;
        }
        Ok(())
    }
    fn define_top_level(&mut self, body: &mut Body, op: Op, names: &[ResultName]) -> Result {
        self.share_values |= !self.scope.top_level.is_empty();
        let mut first = 0;
        for name in names {
            let end = self.text[name.at..]
                .bytes()
                .skip(1)
                .take_while(|b| b.is_ascii_alphanumeric() || b"_$.-".contains(b))
                .count();
            let text = &self.text[name.at + 1..name.at + 1 + end];
            self.scope.top_level.insert(text);
            if !text.starts_with(|c: char| c.is_ascii_digit()) {
                body.set_value_name(body.result(op, first), Name::new(text));
            }
            first += name.count as usize;
        }
        Ok(())
    }

    /// ` loc(…)` after an op.
    pub fn op_loc(&mut self, target: &mut Target, op: Op) -> Result {
        match self.trailing_loc()? {
            None => {}
            Some(WrittenLoc::Known(loc)) => target.body.set_loc(op, loc),
            Some(WrittenLoc::Alias(alias, at)) => {
                let late = crate::cursor::LateLoc { alias, at, body: Some(usize::MAX), op: Some(op) };
                self.late_locs.push(late);
            }
        }
        Ok(())
    }

    // ---- pieces ----

    /// `[^a, ^b]`, or `^a, ^b` of an op that is declared to have successors (else it is the next block), or nothing.
    pub fn successors(
        &mut self,
        target: &mut Target,
        def: Option<&'static OpDef>,
        labels: &mut Labels<'s>,
    ) -> Result<SmallVec<[Block; 2]>> {
        let mut blocks = SmallVec::new();
        let bracketed = self.is(Token::BracketOpen);
        let branches = def.is_some_and(|d| d.successors > 0);
        if !(bracketed || branches && self.is(Token::Label)) {
            return Ok(blocks);
        }
        let open = self.start;
        if bracketed {
            self.advance();
        }
        if target.region.is_none() {
            return Err(self.error("a top-level operation has no successors"));
        }
        loop {
            if !self.is(Token::Label) {
                return Err(self.expected("a block, ^name"));
            }
            let body = &mut *target.body;
            blocks.push(labels.get(self.slice(), self.start, || body.detached_block()).block);
            self.advance();
            if self.is(Token::ParenOpen) && bracketed {
                return Err(self
                    .error("a successor takes no arguments in the generic form")
                    .help("give the values as operands of the branch"));
            }
            if !self.take(Token::Comma) {
                break;
            }
        }
        if bracketed {
            self.expect_close(Token::BracketClose, open, "or ',' after a successor")?;
        }
        Ok(blocks)
    }

    /// `<{…}>`: properties. Those of a registered op are attributes that it declares.
    pub fn properties(&mut self, def: Option<&'static OpDef>) -> Result<Option<Attr>> {
        if !self.is(Token::Less) {
            return Ok(None);
        }
        let open = self.start;
        self.advance();
        if !self.is(Token::BraceOpen) {
            return Err(self.expected("the op's properties, <{…}>"));
        }
        let at = self.start;
        let dict = self.dict()?;
        self.expect_close(Token::Greater, open, "after the properties")?;
        if let Some(def) = def {
            for (key, _) in dict.as_dict().unwrap_or_default() {
                if !rc_ir::print::is_inherent(def, key.as_str()) {
                    return Err(self.unknown_attr(def, key.as_str(), at));
                }
            }
        }
        Ok(Some(dict))
    }
    #[cold]
    pub fn unknown_attr(&self, def: &OpDef, key: &str, at: usize) -> Box<Diagnostic> {
        let known = def.attrs.iter().map(|a| a.name);
        let name = OpName::new(def.name).pretty();
        let hint = did_you_mean(key, known.clone());
        let error = self.error_at(at..at + key.len(), format!("'{name}' has no attribute '{}'{hint}", clipped(key)));
        let known: Vec<&str> = known.collect();
        if known.is_empty() {
            return error.help("it has no attributes; names with a dot, such as my.note, are free for notes");
        }
        error.help(format!("it has {}; names with a dot, such as my.note, are free for notes", known.join(", ")))
    }

    /// Both dictionaries of an op as one.
    pub fn merged(&self, a: Attr, b: Attr, at: usize) -> Result<Attr> {
        let (x, y) = (a.as_dict().unwrap_or_default(), b.as_dict().unwrap_or_default());
        if y.is_empty() {
            return Ok(a);
        }
        if x.is_empty() {
            return Ok(b);
        }
        self.dictionary(x.iter().chain(y).copied().collect(), at)
    }

    // ---- regions and blocks ----

    /// The rest of a region after `{` at `open`, to its `}`. `entry` is a block that has its arguments already.
    pub fn region_body(&mut self, body: &mut Body, region: Region, entry: Option<Block>, open: usize) -> Result {
        self.nested(|p| {
            let mut labels = Labels::default();
            let mut block = entry;
            while !p.is(Token::BraceClose) {
                if p.is(Token::End) {
                    return p.expect_close(Token::BraceClose, open, "at the end of a region");
                }
                if p.is(Token::Label) {
                    block = Some(p.block_label(body, region, &mut labels)?);
                    continue;
                }
                let at = *block.get_or_insert_with(|| body.add_block(region, &[]));
                let target = Target { body: &mut *body, is_root: false, region: Some(region) };
                let op = p.op(target, &mut labels)?;
                body.append(at, op);
            }
            if let Some((label, def)) = labels.undefined() {
                let hint = did_you_mean(label, labels.names());
                let message = format!("the region has no block '{label}'{hint}");
                return Err(p
                    .error_at(def.at..def.at + label.len(), message)
                    .help("a successor is a block of the same region"));
            }
            p.advance();
            Ok(())
        })
    }

    /// `^name(%x: t):`.
    fn block_label(&mut self, body: &mut Body, region: Region, labels: &mut Labels<'s>) -> Result<Block> {
        let (label, at) = (self.slice(), self.start);
        let def = labels.get(label, at, || body.detached_block());
        if def.defined {
            let error = self.error_at(at..at + label.len(), format!("redefinition of the block '{label}'"));
            return Err(error.note(self.loc(def.at), "first defined here"));
        }
        (def.defined, def.at) = (true, at);
        let block = def.block;
        body.attach_block(region, block);
        if !rc_ir::print::is_default_label(&label[1..]) && !label.as_bytes()[1].is_ascii_digit() {
            body.set_block_label(block, Name::new(&label[1..]));
        }
        self.advance();
        if self.is(Token::ParenOpen) {
            self.list(Token::ParenOpen, Token::ParenClose, "in a block's arguments", &mut |p| {
                p.block_arg(body, block)
            })?;
        }
        self.expect(Token::Colon, "after a block's name")?;
        Ok(block)
    }
    /// `%x: t`.
    pub fn block_arg(&mut self, body: &mut Body, block: Block) -> Result {
        if !self.is(Token::Value) {
            return Err(self.expected("an argument, %name: type"));
        }
        let (id, at) = (self.scope.id(&self.slice()[1..]), self.start);
        self.advance();
        self.expect(Token::Colon, "and the argument's type")?;
        let ty = self.ty()?;
        self.trailing_loc()?;
        let value = body.add_block_arg(block, ty);
        self.define(body, id, at, value, 1)
    }

    /// Runs `f` in a scope of its own: names defined in it are forgotten, and those outside are not visible if `isolated`.
    pub fn in_region(&mut self, isolated: bool, f: impl FnOnce(&mut Self) -> Result) -> Result {
        let mark = self.scope.mark();
        self.scope.level += u32::from(isolated);
        let mut result = f(self);
        if isolated && result.is_ok() {
            result = self.check_undefined();
        }
        self.scope.level -= u32::from(isolated);
        self.scope.restore(mark);
        result
    }

    pub fn is_isolated(name: OpName) -> bool {
        name.def().is_some_and(|d| d.has(Traits::ISOLATED) || d.has(Traits::FUNCTION))
    }
    /// An op of this name with nothing but it.
    pub fn bare_op(body: &mut Body, name: OpName, loc: Loc) -> Op {
        body.create(OpState::new(name, loc))
    }
}
