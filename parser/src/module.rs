//! A file: aliases, top-level operations, perhaps inside `module { … }`, and resources. After an error
//! the parser goes on with the next top-level operation.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::locs::WrittenLoc;
use crate::ops::Target;
use crate::scope::Labels;
use rc_ir::module::{ForeignResources, GROUP};
use rc_ir::suggest::did_you_mean;
use rc_ir::{Attr, Blob, Body, Loc, Module, Name, OpState, Result};

/// After this many errors the rest of the file is not read.
const ERROR_LIMIT: usize = 50;

impl<'s> Parser<'s> {
    /// What can be read of the text: the top-level operations without errors.
    pub fn readable(&mut self) -> Module {
        let mut module = Module::new();
        let (mut wrapped, first) = (false, self.start);
        while !self.is(Token::End) && self.diagnostics.len() < ERROR_LIMIT {
            let start = self.start;
            let result = if self.is_module_op() {
                if wrapped || !module.bodies.is_empty() {
                    let error = self.error("a file holds one module");
                    Err(error.help("separate modules with a line `// -----` and use --split-input-file"))
                } else {
                    wrapped = true;
                    self.wrapped_module(&mut module)
                }
            } else {
                self.top_level(&mut module, wrapped)
            };
            if let Err(error) = result {
                self.diagnostics.push(*error);
                self.recover(start, false);
            }
        }
        if self.diagnostics.is_empty() && !wrapped && module.bodies.is_empty() && module.resources.is_empty() {
            let error = self.error_at(first..first, "expected an operation or a module, found nothing");
            self.diagnostics.push(*error.help("an empty module is written `module {}`"));
        }
        if self.grouped && self.diagnostics.is_empty() {
            let undefined = self.check_undefined().err();
            self.diagnostics.extend(undefined.map(|error| *error));
            module.bodies.iter_mut().for_each(Body::shrink);
        }
        let top_level = &self.scope.top_level;
        self.share_values |= self.scope.undefined.iter().any(|name| top_level.contains(name.as_str()));
        // Names that only one operation defines are free in the others' regions to rc, and not to MLIR.
        self.share_values |= !top_level.is_empty() && module.bodies.len() > 1;
        self.resolve_late_locs(&mut module);
        module
    }

    fn is_module_op(&self) -> bool {
        match self.token {
            Token::Word => matches!(self.slice(), "module" | "builtin.module"),
            Token::String => self.slice() == "\"builtin.module\"",
            _ => false,
        }
    }

    /// An alias, resources or an operation.
    fn top_level(&mut self, module: &mut Module, after_module: bool) -> Result {
        match self.token {
            Token::Hash | Token::Bang => self.alias(),
            Token::MetaOpen => self.resources(module),
            Token::Value | Token::String | Token::Word if after_module => {
                Err(self.error("no operation follows a module").help("put it inside the module"))
            }
            Token::Value | Token::String | Token::Word => self.top_level_op(module),
            _ => Err(self.expected("an operation, an alias or resources")),
        }
    }

    fn top_level_op(&mut self, module: &mut Module) -> Result {
        if self.grouped {
            return self.grouped_op(module);
        }
        let mut body = Body::new(OpState::new("builtin.module", Loc::UNKNOWN));
        if let Some(last) = module.bodies.last() {
            // Functions of a text are often of a size.
            body.reserve_as(last);
        }
        let late = self.late_locs.len();
        let result = self.op(Target { body: &mut body, is_root: true, region: None }, &mut Labels::default());
        let result = result.and_then(|_| self.check_undefined());
        self.scope.clear();
        self.reset_depth();
        match result {
            Ok(()) => {
                body.shrink();
                for loc in &mut self.late_locs[late..] {
                    loc.body = Some(module.bodies.len());
                }
                module.bodies.push(body);
                Ok(())
            }
            Err(error) => {
                self.late_locs.truncate(late);
                Err(error)
            }
        }
    }

    /// An operation of the one body of a module whose top-level operations share values.
    fn grouped_op(&mut self, module: &mut Module) -> Result {
        if module.bodies.is_empty() {
            rc_ir::op_def::register(&[&GROUP]);
            let mut body = Body::new(OpState::new(GROUP.name, module.loc));
            let region = body.add_region(body.root());
            body.add_block(region, &[]);
            module.bodies.push(body);
        }
        let Some(body) = module.bodies.last_mut() else { return Ok(()) };
        let (region, block) = (body.regions(body.root()).first().copied(), body.entry());
        let late = self.late_locs.len();
        let mut labels = Labels::default();
        let op = self.op(Target { body, is_root: false, region }, &mut labels)?;
        if let Some((label, def)) = labels.undefined() {
            return Err(self.error_at(def.at..def.at + label.len(), "a top-level operation has no successors"));
        }
        if let Some(block) = block {
            body.append(block, op);
        }
        for loc in &mut self.late_locs[late..] {
            loc.body = Some(0);
        }
        Ok(())
    }

    // ---- module ----

    /// `module @name attributes {…} { … }` or `"builtin.module"() <{…}> ({ … }) {…} : () -> ()`.
    fn wrapped_module(&mut self, module: &mut Module) -> Result {
        let at = self.start;
        module.loc = self.loc(at);
        let generic = self.is(Token::String);
        self.advance();
        let mut attrs = Attr::empty_dict();
        if generic {
            self.expect(Token::ParenOpen, "after \"builtin.module\"")?;
            self.expect(Token::ParenClose, "after \"builtin.module\"(")?;
            if let Some(props) = self.properties(None)? {
                attrs = props;
            }
            self.expect(Token::ParenOpen, "and the module's region")?;
        } else {
            if self.is(Token::Symbol) {
                attrs = Attr::dict([(Name::new("sym_name"), Attr::str(self.symbol_name()?.as_str()))]);
            }
            if self.take_word("attributes") {
                let dict_at = self.start;
                let dict = self.dict()?;
                attrs = self.merged(attrs, dict, dict_at)?;
            }
        }
        self.module_body(module, generic)?;
        if generic {
            self.expect(Token::ParenClose, "after the module's region")?;
            if self.is(Token::BraceOpen) {
                let dict_at = self.start;
                let dict = self.dict()?;
                attrs = self.merged(attrs, dict, dict_at)?;
            }
            for token in
                [Token::Colon, Token::ParenOpen, Token::ParenClose, Token::Arrow, Token::ParenOpen, Token::ParenClose]
            {
                self.expect(token, "in the module's type, () -> ()")?;
            }
        }
        module.attrs = attrs;
        match self.trailing_loc()? {
            Some(WrittenLoc::Known(loc)) => module.loc = loc,
            Some(WrittenLoc::Alias(alias, at)) => {
                self.late_locs.push(crate::cursor::LateLoc { alias, at, body: None, op: None });
            }
            None => {}
        }
        Ok(())
    }

    fn module_body(&mut self, module: &mut Module, generic: bool) -> Result {
        let open = self.start;
        self.expect(Token::BraceOpen, "and the module's operations")?;
        if generic && self.is(Token::Label) && self.slice() == "^bb0" {
            self.advance();
            self.expect(Token::Colon, "after a block's name")?;
        }
        while !self.is(Token::BraceClose) {
            if self.is(Token::End) {
                return self.expect_close(Token::BraceClose, open, "at the end of the module");
            }
            let start = self.start;
            if self.is_word("module") {
                return Err(self
                    .error("not supported: `module` inside a module")
                    .help("write it as an operation: \"builtin.module\"() ({ … }) : () -> ()"));
            }
            if let Err(error) = self.top_level(module, false) {
                self.diagnostics.push(*error);
                if self.diagnostics.len() >= ERROR_LIMIT {
                    self.seek(self.text.len());
                    return Ok(());
                }
                self.recover(start, true);
                if self.is(Token::End) {
                    return Ok(());
                }
            }
        }
        self.advance();
        Ok(())
    }

    /// Goes to the start of the next top-level op after the broken one at `start`, or to the brace that ends the
    /// module around, if there is one.
    fn recover(&mut self, start: usize, in_module: bool) {
        if self.grouped {
            // What follows may use values of the broken op.
            return self.seek(self.text.len());
        }
        self.scope.clear();
        self.reset_depth();
        self.seek(start);
        let mut depth = 0i64;
        let mut first = true;
        while !self.is(Token::End) {
            let begins = match self.token {
                Token::String | Token::Value | Token::Hash | Token::Bang | Token::MetaOpen => true,
                Token::Word => self.slice().contains('.') || self.slice() == "module",
                _ => false,
            };
            if !first && depth == 0 && begins && self.is_first_on_line() {
                return;
            }
            match self.token {
                Token::BraceOpen | Token::ParenOpen | Token::BracketOpen => depth += 1,
                Token::BraceClose | Token::ParenClose | Token::BracketClose => depth -= 1,
                _ => {}
            }
            if depth < 0 {
                if in_module && self.is(Token::BraceClose) {
                    return;
                }
                depth = 0;
            }
            first = false;
            self.advance();
        }
    }
    fn is_first_on_line(&self) -> bool {
        self.text[..self.start].bytes().rev().take_while(|&b| b != b'\n').all(|b| b.is_ascii_whitespace())
    }

    // ---- aliases ----

    /// `#name = attribute`, `!name = type`, `#name = loc(…)`.
    fn alias(&mut self) -> Result {
        let (at, text, is_type) = (self.start, self.slice(), self.is(Token::Bang));
        let name = &text[1..];
        if name.contains('.') {
            return Err(self.error("the name of an alias has no dot"));
        }
        self.advance();
        self.expect(Token::Equal, "and what the alias stands for")?;
        let known = if is_type {
            self.type_aliases.contains_key(name)
        } else {
            self.attr_aliases.contains_key(name) || self.loc_aliases.contains_key(name)
        };
        if known {
            return Err(self.error_at(at..at + text.len(), format!("redefinition of the alias '{text}'")));
        }
        if is_type {
            let ty = self.ty()?;
            self.type_aliases.insert(name, ty);
        } else if self.is_word("loc") {
            match self.trailing_loc()? {
                Some(WrittenLoc::Known(loc)) => drop(self.loc_aliases.insert(name, loc)),
                Some(WrittenLoc::Alias(alias, at)) => {
                    return Err(self.error_at(at..at + alias.len() + 1, format!("undefined location alias '#{alias}'")));
                }
                None => return Err(self.expected("a location, loc(…)")),
            }
        } else {
            let attr = self.attr()?;
            self.attr_aliases.insert(name, attr);
        }
        Ok(())
    }

    fn resolve_late_locs(&mut self, module: &mut Module) {
        for late in std::mem::take(&mut self.late_locs) {
            let Some(&loc) = self.loc_aliases.get(late.alias) else {
                let hint = did_you_mean(late.alias, self.loc_aliases.keys().copied());
                let message = format!("undefined location alias '#{}'{hint}", late.alias);
                let error = self.error_at(late.at..late.at + late.alias.len() + 1, message);
                self.diagnostics.push(*error);
                continue;
            };
            match (late.body, late.op) {
                (Some(body), Some(op)) => {
                    if let Some(body) = module.bodies.get_mut(body) {
                        body.set_loc(op, loc);
                    }
                }
                _ => module.loc = loc,
            }
        }
    }

    // ---- resources ----

    /// `{-# dialect_resources: { builtin: { name: "0x…" } } #-}`.
    fn resources(&mut self, module: &mut Module) -> Result {
        let open = self.start;
        self.advance();
        while !self.is(Token::MetaClose) {
            let section = self.slice();
            self.expect(Token::Word, "such as dialect_resources")?;
            self.expect(Token::Colon, "and a section")?;
            if section == "dialect_resources" {
                self.dialect_resources(module)?;
            } else if section == "external_resources" {
                // Other tools' notes, such as reproducers.
                self.list(Token::BraceOpen, Token::BraceClose, "in resources", &mut |p| {
                    let owner = p.resource_name()?;
                    p.expect(Token::Colon, "and its resources")?;
                    p.foreign_resources(true, owner, module)
                })?;
            } else {
                return Err(self
                    .error(format!("unknown section '{section}'"))
                    .help("dialect_resources or external_resources"));
            }
            if !self.take(Token::Comma) {
                break;
            }
        }
        self.expect_close(Token::MetaClose, open, "at the end of the resources")
    }
    fn dialect_resources(&mut self, module: &mut Module) -> Result {
        self.list(Token::BraceOpen, Token::BraceClose, "in resources", &mut |p| {
            let dialect = p.slice();
            p.expect(Token::Word, "the name of a dialect")?;
            p.expect(Token::Colon, "and its resources")?;
            if dialect != "builtin" {
                return p.foreign_resources(false, Name::new(dialect), module);
            }
            p.list(Token::BraceOpen, Token::BraceClose, "in resources", &mut |p| p.resource(module))
        })
    }
    /// Resources that rc does not interpret, from their brace on.
    fn foreign_resources(&mut self, external: bool, owner: Name, module: &mut Module) -> Result {
        if !self.is(Token::BraceOpen) {
            return Err(self.expected("'{' and resources"));
        }
        let (start, end) = (self.start, self.balanced_end(self.start, false)?);
        self.seek(end);
        module.foreign.push(ForeignResources { external, owner, text: self.text[start..end].into() });
        Ok(())
    }
    /// `text "…"`, or the bytes in hex digits, after their alignment.
    fn blob(&mut self) -> Result<Blob> {
        if self.is(Token::Word) && self.slice() == "text" {
            self.advance();
            return Ok(Blob::text(self.string()?));
        }
        let here = self.start..self.end;
        let bytes = self.hex_bytes("a resource")?;
        let Some((align, data)) = bytes.split_first_chunk::<4>() else {
            return Err(self.error_at(here, "a resource starts with its alignment, four little-endian bytes"));
        };
        let align = u32::from_le_bytes(*align);
        if !align.is_power_of_two() {
            return Err(self.error_at(here, format!("the alignment {align} is not a power of two")));
        }
        let mut blob = Blob::new(data.to_vec());
        blob.align = align;
        Ok(blob)
    }
    fn resource(&mut self, module: &mut Module) -> Result {
        let at = self.start;
        let name = self.resource_name()?;
        self.expect(Token::Colon, "and the resource's bytes")?;
        let blob = self.blob()?;
        if module.resources.insert(name, blob).is_some() {
            return Err(self.error_at(at..at + name.as_str().len(), format!("redefinition of the resource '{name}'")));
        }
        Ok(())
    }
}
