//! The generic form: `%r = "dialect.op"(%a, %b)[^bb1] <{…}> ({ … }) {…} : (t, t) -> t`.

use crate::cursor::Parser;
use crate::lexer::Token;
use crate::ops::{ResultName, Start, Target, TypeVec, Uses};
use crate::scope::Labels;
use rc_ir::{Attr, Op, Result, Value};
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
        uses: &[crate::scope::ValueUse],
        results: &mut TypeVec,
    ) -> Result<SmallVec<[Value; 4]>> {
        self.expect(Token::Colon, "and the operation's type")?;
        let at = self.start;
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
        Ok(operands)
    }
}
