//! The pretty form, one grammar for every dialect:
//! `%r = dialect.op @symbol %a[…], %b name(%c) iter(%acc = %init) [^bb] {…} ((%i: t) { … }) : t`.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::ops::{ResultName, Start, Target, TypeVec};
use crate::scope::{Labels, NameId};
use rc_ir::op_def::{AttrKind, InferArgs, OpDef};
use rc_ir::print::implicit_terminator;
use rc_ir::{Attr, Body, Name, Op, Result, Traits, Value};
use smallvec::SmallVec;

/// A loop-carried value's name, where it is written, and the value that it starts as.
pub(crate) type Carried = (NameId, usize, Value);

impl<'s> Parser<'s> {
    pub fn pretty_op(&mut self, mut target: Target, labels: &mut Labels<'s>, results: &[ResultName]) -> Result<Op> {
        let at = self.start;
        let name = self.op_name(self.slice(), true)?;
        let def = name.def();
        self.advance();
        if let Some(def) = def.filter(|d| d.has(Traits::FUNCTION)) {
            let op = self.function(&mut target, def, at)?;
            self.op_loc(&mut target, op)?;
            self.define_results(&mut target, op, results)?;
            return Ok(op);
        }
        let symbol = self.op_symbol(def)?;
        let mut written = self.written_operands(def)?;
        let successors = self.successors(&mut target, def, labels)?;
        let grouped = self.group_operands(&mut target, def, &mut written, at)?;
        let props = if def.is_none() { self.properties(None)? } else { None };
        let dict_at = self.start;
        let mut attrs = if self.is(Token::BraceOpen) { self.kind_dict(def)? } else { Attr::empty_dict() };
        for (key, value) in [("sym_name", symbol), ("operandSegmentSizes", grouped.segments), ("maps", grouped.maps)] {
            if let Some(value) = value {
                if key != "operandSegmentSizes" && attrs.get(key).is_some() {
                    return Err(self.error_at(dict_at..dict_at + 1, format!("the attribute '{key}' is given twice")));
                }
                attrs = attrs.with(Name::new(key), Some(value));
            }
        }
        let start = Start { name, at, successors, props, attrs };
        let op = if self.is(Token::ParenOpen) {
            let op = self.make_early(&mut target, start);
            self.pretty_regions(&mut target, op, def, &grouped.carried)?;
            let types = self.written_results(&mut target, def, &grouped.operands, attrs, results, at)?;
            self.finish(&mut target, op, at, &grouped.operands, &types)?;
            op
        } else {
            if !grouped.carried.is_empty() {
                return Err(self.expected("a region after iter(…)"));
            }
            let types = self.written_results(&mut target, def, &grouped.operands, attrs, results, at)?;
            self.make(&mut target, start, grouped.operands, &types)?
        };
        self.op_loc(&mut target, op)?;
        self.define_results(&mut target, op, results)?;
        Ok(op)
    }

    /// `@name` of an op that defines a symbol.
    fn op_symbol(&mut self, def: Option<&'static OpDef>) -> Result<Option<Attr>> {
        if !self.is(Token::Symbol) {
            return Ok(None);
        }
        if def.is_some_and(|d| d.has(Traits::SYMBOL)) {
            return Ok(Some(Attr::str(self.symbol_name()?.as_str())));
        }
        let error = self.error("this operation does not define a symbol");
        Err(error.help("a reference to a symbol is an attribute: {callee = @name}"))
    }

    /// `{…}` with declared attributes in their kind's spelling.
    pub fn kind_dict(&mut self, def: Option<&'static OpDef>) -> Result<Attr> {
        let Some(def) = def else { return self.dict() };
        let mut flags: SmallVec<[&'static str; 4]> =
            def.attrs.iter().filter(|a| a.kind == AttrKind::Bool).map(|a| a.name).collect();
        let start = self.start;
        let dict = self.dict_of(&mut |p, key| {
            let at = p.start;
            let Some(declared) = def.attr_def(key) else {
                return p.attr();
            };
            flags.retain(|f| *f != key);
            let value = p.kind_attr(declared.kind)?;
            if !declared.kind.accepts(value) {
                let message = format!(
                    "the attribute '{key}' of '{}' is {}, not {value}",
                    rc_ir::OpName::new(def.name).pretty(),
                    declared.kind.desc()
                );
                return Err(p.error_at(at..p.start, message));
            }
            Ok(value)
        })?;
        let mut entries: Vec<(Name, Attr)> = dict.as_dict().unwrap_or_default().to_vec();
        for (key, value) in &mut entries {
            if def.attr_def(key.as_str()).is_none()
                && !key.as_str().contains('.')
                && !rc_ir::print::is_inherent(def, key.as_str())
            {
                let at = self.text[start..self.start].find(key.as_str()).map_or(start, |i| start + i);
                return Err(self.unknown_attr(def, key.as_str(), at));
            }
            // `{approx}` of a flag means that it is true.
            if flags.contains(&key.as_str()) && *value == Attr::unit() {
                *value = Attr::bool(true);
            }
        }
        self.dictionary(entries, start)
    }

    // ---- regions ----

    /// `({ … }, (%x: t) { … })`.
    fn pretty_regions(
        &mut self,
        target: &mut Target,
        op: Op,
        def: Option<&'static OpDef>,
        carried: &[Carried],
    ) -> Result {
        let isolated = target.is_root || Self::is_isolated(target.body.name(op));
        let implicit = def.and_then(implicit_terminator);
        let body = &mut *target.body;
        let mut first = true;
        self.list(Token::ParenOpen, Token::ParenClose, "after a region", &mut |p| {
            let region = body.add_region(op);
            let carried = if std::mem::take(&mut first) { carried } else { &[] };
            p.in_region(isolated, |p| {
                let mut entry = None;
                if p.is(Token::ParenOpen) {
                    let block = body.add_block(region, &[]);
                    entry = Some(block);
                    p.list(Token::ParenOpen, Token::ParenClose, "in a region's arguments", &mut |p| {
                        p.block_arg(body, block)
                    })?;
                }
                if !carried.is_empty() {
                    let block = *entry.get_or_insert_with(|| body.add_block(region, &[]));
                    for &(id, at, init) in carried {
                        let ty = body.ty(init);
                        let arg = body.add_block_arg(block, ty);
                        p.define(body, id, at, arg, 1)?;
                    }
                }
                let open = p.start;
                p.expect(Token::BraceOpen, "and a region")?;
                p.region_body(body, region, entry, open)?;
                if let Some(name) = implicit {
                    let end = p.loc(open);
                    Self::add_terminator(body, region, name, end);
                }
                Ok(())
            })
        })
    }

    /// Ends a region of one block with the terminator that was left out.
    pub fn add_terminator(body: &mut Body, region: rc_ir::Region, name: rc_ir::OpName, loc: rc_ir::Loc) {
        if body.blocks(region).len() > 1 {
            return;
        }
        let block = body.first_block(region).unwrap_or_else(|| body.add_block(region, &[]));
        if body.terminator(block).is_none() {
            let op = Self::bare_op(body, name, loc);
            body.append(block, op);
        }
    }

    // ---- result types ----

    /// `: t0, t1`; inferred where they are left out and the declaration can tell.
    fn written_results(
        &mut self,
        target: &mut Target,
        def: Option<&'static OpDef>,
        operands: &[Value],
        attrs: Attr,
        names: &[ResultName],
        at: usize,
    ) -> Result<TypeVec> {
        let mut types = TypeVec::new();
        if self.take(Token::Colon) {
            loop {
                if self.is(Token::ParenOpen) && self.is_wrapped_type() {
                    let open = self.start;
                    self.advance();
                    types.push(self.ty()?);
                    self.expect_close(Token::ParenClose, open, "after a function type")?;
                } else {
                    types.push(self.ty()?);
                }
                if !self.take(Token::Comma) {
                    return Ok(types);
                }
            }
        }
        let infer = def.and_then(|d| Some((d, d.infer?)));
        let known = operands.iter().all(|&v| target.body.ty(v) != rc_ir::Type::none());
        match infer {
            Some((def, infer)) if known => {
                let operands: SmallVec<[_; 4]> = operands.iter().map(|&v| target.body.ty(v)).collect();
                let args = InferArgs { operands: &operands, attrs, def };
                let inferred = infer(&args).map_err(|why| {
                    let name = rc_ir::OpName::new(def.name).pretty();
                    self.error_at(at..at + name.len(), format!("'{name}' op {why}"))
                })?;
                Ok(inferred.into_iter().collect())
            }
            _ if !names.is_empty() => Err(self.expected("':' and the types of the results")),
            _ => Ok(types),
        }
    }
    /// Whether `(` that is next encloses a whole function type: it is followed by another one.
    fn is_wrapped_type(&self) -> bool {
        let rest = self.text[self.end..].trim_start();
        rest.starts_with('(')
    }
}
