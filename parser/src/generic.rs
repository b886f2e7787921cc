//! The generic form: `%r = "dialect.op"(%a, %b)[^bb1] <{…}> ({ … }) {…} : (t, t) -> t`.

use crate::cursor::{Parser, RecentSignatures};
use crate::lexer::Token;
use crate::ops::{ResultName, Start, Target, TypeVec, Uses};
use crate::scope::{Labels, ValueUse};
use rc_ir::{Attr, Body, Op, Result, Type, Value};
use smallvec::SmallVec;

impl<'s> Parser<'s> {
    pub fn generic_op(&mut self, mut target: Target, labels: &mut Labels<'s>, results: &[ResultName]) -> Result<Op> {
        let at = self.start;
        let name = self.op_name(self.slice(), false)?;
        let def = name.def();
        self.advance();
        let mut uses = Uses::new();
        // The list written out, as it is read for each op.
        let open = self.start;
        self.expect(Token::ParenOpen, "and the operands")?;
        if !self.take(Token::ParenClose) {
            loop {
                uses.push(self.value_use()?);
                if !self.take(Token::Comma) {
                    break;
                }
            }
            self.expect_close(Token::ParenClose, open, "or ',' after an operand")?;
        }
        let successors = self.successors(&mut target, None, labels)?;
        let props = self.properties(def)?;
        let mut start = Start { name, at, successors, props, attrs: Attr::empty_dict() };
        if let (Some(_), Some(props)) = (def, start.props) {
            (start.props, start.attrs) = (None, props);
        }
        let op = if self.is(Token::ParenOpen) {
            let attrs = start.attrs;
            let op = self.make_early(&mut target, start);
            self.generic_regions(&mut target, op)?;
            let attrs = self.trailing_dict(attrs)?;
            target.body.set_attrs(op, attrs);
            let mut types = TypeVec::new();
            let operands = self.signature(&mut target, &uses, &mut types)?;
            self.finish(&mut target, op, at, &operands, &types)?;
            op
        } else {
            start.attrs = self.trailing_dict(start.attrs)?;
            let mut types = TypeVec::new();
            let operands = self.signature(&mut target, &uses, &mut types)?;
            self.make(&mut target, start, operands, &types)?
        };
        self.op_loc(&mut target, op)?;
        self.define_results(&mut target, op, results)?;
        Ok(op)
    }

    fn trailing_dict(&mut self, before: Attr) -> Result<Attr> {
        if !self.is(Token::BraceOpen) {
            return Ok(before);
        }
        let at = self.start;
        let dict = self.dict()?;
        self.merged(before, dict, at)
    }

    fn generic_regions(&mut self, target: &mut Target, op: Op) -> Result {
        let isolated = target.is_root || Self::is_isolated(target.body.name(op));
        let body = &mut *target.body;
        self.list(Token::ParenOpen, Token::ParenClose, "after a region", &mut |p| {
            let open = p.start;
            p.expect(Token::BraceOpen, "and a region")?;
            let region = body.add_region(op);
            p.in_region(isolated, |p| p.region_body(body, region, None, open))
        })
    }

    /// `: (t, t) -> t`: checks the operand types and gives the operands; result types go to `results`.
    fn signature(
        &mut self,
        target: &mut Target,
        uses: &[ValueUse],
        results: &mut TypeVec,
    ) -> Result<SmallVec<[Value; 4]>> {
        self.expect(Token::Colon, "and the operation's type")?;
        let at = self.start;
        let slot = RecentSignatures::slot::<48>(self.text, at);
        if let Some((end, known)) = slot.and_then(|slot| self.recent_signatures.get(slot, self.text, at))
            && usize::from(known.operands) == uses.len()
            && !continues_word(self.byte(end))
        {
            return self.known_signature(target, uses, results, (end, known));
        }
        self.expect(Token::ParenOpen, "and the types of the operands")?;
        let mut operands = SmallVec::new();
        let mut given = 0;
        if !self.take(Token::ParenClose) {
            loop {
                let ty = self.ty()?;
                if let Some(&written) = uses.get(given) {
                    operands.push(self.value(target.body, written, Some(ty))?);
                }
                given += 1;
                if !self.take(Token::Comma) {
                    break;
                }
            }
            self.expect_close(Token::ParenClose, at, "or ',' after a type")?;
        }
        if given != uses.len() {
            let plural = if uses.len() == 1 { "" } else { "s" };
            let message = format!("{} operand{plural}, but {given} operand types", uses.len());
            return Err(self.error_at(at..self.start, message));
        }
        self.expect(Token::Arrow, "and the types of the results")?;
        self.result_types(results)?;
        if let (Some(slot), Some(signature)) = (slot, Signature::of(target.body, &operands, results)) {
            self.recent_signatures.set(slot, &self.text[at..self.behind], signature);
        }
        Ok(operands)
    }

    /// The rest of a signature that ends at a place, as it was read before.
    fn known_signature(
        &mut self,
        target: &mut Target,
        uses: &[ValueUse],
        results: &mut TypeVec,
        (end, known): (usize, Signature),
    ) -> Result<SmallVec<[Value; 4]>> {
        let (operand_types, rest) = known.types.split_at(uses.len());
        let mut operands = SmallVec::new();
        for (&written, &ty) in uses.iter().zip(operand_types) {
            operands.push(self.value(target.body, written, Some(ty))?);
        }
        results.extend_from_slice(&rest[..usize::from(known.results)]);
        self.seek(end);
        Ok(operands)
    }
}

/// Whether a byte behind a type would make it another one.
fn continues_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'<')
}

/// The types of an operation's operands, and of its results.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    types: [Type; 4],
    operands: u8,
    results: u8,
}

impl Signature {
    /// `None` where there are more types than are remembered.
    fn of(body: &Body, operands: &[Value], results: &[Type]) -> Option<Signature> {
        let mut types = [Type::none(); 4];
        if operands.len() + results.len() > types.len() {
            return None;
        }
        for (slot, ty) in types.iter_mut().zip(operands.iter().map(|&v| body.ty(v)).chain(results.iter().copied())) {
            *slot = ty;
        }
        Some(Signature { types, operands: operands.len() as u8, results: results.len() as u8 })
    }
}
