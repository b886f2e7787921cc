//! Written locations: `loc("file":1:2)`, `loc("name"(…))`, `loc(fused[…])`, `loc(callsite(a at b))`, aliases.

use crate::cursor::Parser;
use crate::lexer::Token;
use rc_ir::loc::LocData;
use rc_ir::{Loc, Name, Result};

/// A location, or the alias of one that is not defined yet.
pub(crate) enum WrittenLoc<'s> {
    Known(Loc),
    Alias(&'s str, usize),
}

impl<'s> Parser<'s> {
    /// ` loc(…)` if it is next.
    pub fn trailing_loc(&mut self) -> Result<Option<WrittenLoc<'s>>> {
        if !self.is_word("loc") || self.byte(self.end) != b'(' {
            return Ok(None);
        }
        self.advance();
        let open = self.start;
        self.advance();
        let loc = if self.is(Token::Hash) && !self.loc_aliases.contains_key(&self.slice()[1..]) {
            let alias = WrittenLoc::Alias(&self.slice()[1..], self.start);
            self.advance();
            alias
        } else {
            WrittenLoc::Known(self.location()?)
        };
        self.expect_close(Token::ParenClose, open, "at the end of a location")?;
        Ok(Some(loc))
    }

    fn location(&mut self) -> Result<Loc> {
        self.nested(|p| match (p.token, p.slice()) {
            (Token::String, _) => p.file_or_name(),
            (Token::Hash, _) => {
                let Some(&loc) = p.loc_aliases.get(&p.slice()[1..]) else {
                    return Err(p.error(format!("undefined location alias '{}'", p.slice())));
                };
                p.advance();
                Ok(loc)
            }
            (Token::Word, "unknown") => {
                p.advance();
                Ok(Loc::UNKNOWN)
            }
            (Token::Word, "fused") => {
                p.advance();
                p.fused()
            }
            (Token::Word, "callsite") => {
                p.advance();
                let open = p.start;
                p.expect(Token::ParenOpen, "after 'callsite'")?;
                let callee = p.location()?;
                if !p.take_word("at") {
                    return Err(p.expected("'at' and the caller's location"));
                }
                let caller = p.location()?;
                p.expect_close(Token::ParenClose, open, "at the end of a location")?;
                Ok(Loc::written(LocData::CallSite { callee, caller }))
            }
            // A location inside another may be wrapped again.
            (Token::Word, "loc") => {
                p.advance();
                let open = p.start;
                p.expect(Token::ParenOpen, "after 'loc'")?;
                let inner = p.location()?;
                p.expect_close(Token::ParenClose, open, "at the end of a location")?;
                Ok(inner)
            }
            _ => Err(p.expected("a location: \"file\":line:column, \"name\", unknown, fused[…] or callsite(…)")),
        })
    }

    fn file_or_name(&mut self) -> Result<Loc> {
        let name = self.string()?;
        if self.take(Token::Colon) {
            let line = self.position()?;
            self.expect(Token::Colon, "between line and column")?;
            let col = self.position()?;
            if self.take_word("to") {
                // The end of a range is read, not kept.
                if self.is(Token::Int) {
                    self.position()?;
                }
                self.expect(Token::Colon, "in a range of positions")?;
                self.position()?;
            }
            return Ok(Loc::written(LocData::File { file: Name::new(&name), line, col }));
        }
        let mut child = Loc::UNKNOWN;
        let open = self.start;
        if self.take(Token::ParenOpen) {
            child = self.location()?;
            self.expect_close(Token::ParenClose, open, "at the end of a location")?;
        }
        Ok(Loc::named(&name, child))
    }
    fn position(&mut self) -> Result<u32> {
        let value = self.slice().parse().ok().filter(|_| self.is(Token::Int));
        let value = value.ok_or_else(|| self.expected("a line or column number"))?;
        self.advance();
        Ok(value)
    }
    fn fused(&mut self) -> Result<Loc> {
        if self.is(Token::Less) {
            // Metadata of a fusion is read, not kept.
            let open = self.start;
            self.advance();
            self.attr()?;
            self.expect_close(Token::Greater, open, "after a fused location's metadata")?;
        }
        let mut parts = Vec::new();
        self.list(Token::BracketOpen, Token::BracketClose, "in a fused location", &mut |p| {
            parts.push(p.location()?);
            Ok(())
        })?;
        Ok(Loc::fused(&parts))
    }
}
