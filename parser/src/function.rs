//! Symbols with a signature and a body: `func.func private @f(%x: t {…}) -> (t {…}) attributes {…} { … }`.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::ops::{Start, Target};
use crate::scope::NameId;
use rc_ir::op_def::OpDef;
use rc_ir::print::{implicit_terminator, is_visibility};
use rc_ir::{Attr, Name, Op, OpName, Result, Type};

/// Arguments or results: their types, attributes, and the arguments' names.
#[derive(Default)]
struct Signature {
    types: Vec<Type>,
    attrs: Vec<Attr>,
    names: Vec<(NameId, usize)>,
}

impl<'s> Parser<'s> {
    /// The rest of a function-like op after its name.
    pub fn function(&mut self, target: &mut Target, def: &'static OpDef, at: usize) -> Result<Op> {
        let mut attrs: Vec<(Name, Attr)> = Vec::new();
        if self.is(Token::Word) && is_visibility(self.slice()) {
            attrs.push((Name::new("sym_visibility"), Attr::str(self.slice())));
            self.advance();
        }
        let symbol = self.symbol_name()?;
        attrs.push((Name::new("sym_name"), Attr::str(symbol.as_str())));
        let inputs = self.parameters_of_function()?;
        let results = self.results_of_function()?;
        attrs.push((Name::new("function_type"), Attr::ty(Type::function(&inputs.types, &results.types))));
        for (key, signature) in [("arg_attrs", &inputs), ("res_attrs", &results)] {
            if signature.attrs.iter().any(|a| *a != Attr::empty_dict()) {
                attrs.push((Name::new(key), Attr::array(&signature.attrs)));
            }
        }
        let dict_at = self.start;
        if self.take_word("attributes") {
            let written = self.kind_dict(Some(def))?;
            attrs.extend(written.as_dict().unwrap_or_default());
        }
        let attrs = self.dictionary(attrs, dict_at)?;
        let start = Start { name: OpName::new(def.name), at, successors: Default::default(), props: None, attrs };
        let op = self.make_early(target, start);
        let region = target.body.add_region(op);
        if !self.is(Token::BraceOpen) {
            return Ok(op);
        }
        if inputs.names.len() != inputs.types.len() {
            return Err(self.error("a function with a body names its arguments").help("write %name: type"));
        }
        let body = &mut *target.body;
        self.in_region(true, |p| {
            let open = p.start;
            p.advance();
            // A label first in the body is that of the entry block, where there are no arguments to name it by.
            let entry = if p.is(Token::Label) && inputs.types.is_empty() {
                None
            } else {
                Some(body.add_block(region, &inputs.types))
            };
            for (i, &(id, at)) in inputs.names.iter().enumerate() {
                let arg = body.block_arg(entry.expect("arguments"), i);
                p.define(body, id, at, arg, 1)?;
            }
            p.region_body(body, region, entry, open)?;
            if let Some(name) = implicit_terminator(def) {
                let loc = p.loc(open);
                Self::add_terminator(body, region, name, loc);
            }
            Ok(())
        })?;
        Ok(op)
    }

    /// `(%x: t {…}, %y: t)`; of a declaration, also just types.
    fn parameters_of_function(&mut self) -> Result<Signature> {
        let mut signature = Signature::default();
        self.list(Token::ParenOpen, Token::ParenClose, "in a function's arguments", &mut |p| {
            if p.is(Token::Value) {
                let at = p.start;
                let name = p.scope.id(&p.slice()[1..]);
                p.advance();
                p.expect(Token::Colon, "and the argument's type")?;
                signature.names.push((name, at));
            }
            p.typed_attrs(&mut signature)
        })?;
        Ok(signature)
    }
    /// `-> t`, `-> (t {…}, t)`, or nothing.
    fn results_of_function(&mut self) -> Result<Signature> {
        let mut signature = Signature::default();
        if !self.take(Token::Arrow) {
            return Ok(signature);
        }
        if self.is(Token::ParenOpen) {
            self.list(Token::ParenOpen, Token::ParenClose, "in a function's results", &mut |p| {
                p.typed_attrs(&mut signature)
            })?;
        } else {
            signature.types.push(self.ty()?);
            signature.attrs.push(Attr::empty_dict());
        }
        Ok(signature)
    }
    fn typed_attrs(&mut self, signature: &mut Signature) -> Result {
        signature.types.push(self.ty()?);
        let attrs = if self.is(Token::BraceOpen) { self.dict()? } else { Attr::empty_dict() };
        signature.attrs.push(attrs);
        self.trailing_loc()?;
        Ok(())
    }
}
