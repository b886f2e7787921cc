//! Dimensions: `s`, `2 * s + 1`, `(s + 63) floordiv 64`, `max(a, b)`, `?`.

use crate::cursor::Parser;
use crate::lexer::Token;
use rc_ir::{Dim, Result};

/// Expressions of more terms than this are refused: products of sums grow without bound.
const TERM_LIMIT: usize = 256;

impl Parser<'_> {
    /// `[s, 768]`.
    pub fn dims(&mut self) -> Result<Vec<Dim>> {
        let mut dims = Vec::new();
        self.list(Token::BracketOpen, Token::BracketClose, "in a list of dimensions", &mut |p| {
            dims.push(p.dim()?);
            Ok(())
        })?;
        Ok(dims)
    }

    /// A sum of terms.
    pub fn dim(&mut self) -> Result<Dim> {
        self.nested(|p| {
            let mut sum = p.dim_product()?;
            loop {
                let at = p.start;
                if p.take(Token::Plus) {
                    sum = sum + p.dim_product()?;
                } else if p.take(Token::Minus) {
                    sum = sum - p.dim_product()?;
                } else {
                    return Ok(sum);
                }
                p.check_terms(sum, at)?;
            }
        })
    }

    fn dim_product(&mut self) -> Result<Dim> {
        let mut product = self.dim_primary()?;
        loop {
            let at = self.start;
            product = if self.take(Token::Star) {
                let factor = self.dim_primary()?;
                if terms(product).saturating_mul(terms(factor)) > 4 * TERM_LIMIT {
                    return Err(self.too_complex(at));
                }
                product * factor
            } else if self.take_word("floordiv") {
                product.floordiv(self.dim_primary()?)
            } else if self.take_word("ceildiv") {
                product.ceildiv(self.dim_primary()?)
            } else if self.take_word("mod") {
                product.modulo(self.dim_primary()?)
            } else {
                return Ok(product);
            };
            self.check_terms(product, at)?;
        }
    }

    fn dim_primary(&mut self) -> Result<Dim> {
        match self.token {
            Token::Minus => {
                self.advance();
                if self.is(Token::Int) {
                    return Ok(Dim::Static(self.dim_integer(true)?));
                }
                let negated = self.nested(|p| p.dim_primary())?;
                Ok(Dim::Static(-1) * negated)
            }
            Token::Int => Ok(Dim::Static(self.dim_integer(false)?)),
            Token::Question => {
                self.advance();
                Ok(Dim::Dynamic)
            }
            Token::ParenOpen => {
                let open = self.start;
                self.advance();
                let inner = self.dim()?;
                self.expect_close(Token::ParenClose, open, "in a dimension")?;
                Ok(inner)
            }
            Token::Word if matches!(self.slice(), "max" | "min") && self.byte(self.end) == b'(' => {
                let is_max = self.slice() == "max";
                self.advance();
                self.advance();
                let a = self.dim()?;
                self.expect(Token::Comma, "between two dimensions")?;
                let b = self.dim()?;
                self.expect(Token::ParenClose, "after two dimensions")?;
                Ok(if is_max { a.max(b) } else { a.min(b) })
            }
            Token::Word => {
                let dim = Dim::symbol(self.slice());
                self.advance();
                Ok(dim)
            }
            _ => Err(self.expected("a dimension: an integer, a symbol, '?' or an expression")),
        }
    }

    fn dim_integer(&mut self, negative: bool) -> Result<i64> {
        let value = self.slice().parse::<i128>().ok().map(|n| if negative { -n } else { n });
        let value =
            value.and_then(|n| i64::try_from(n).ok()).ok_or_else(|| self.error("this size does not fit 64 bits"))?;
        self.advance();
        Ok(value)
    }

    fn check_terms(&self, dim: Dim, at: usize) -> Result {
        if terms(dim) > TERM_LIMIT { Err(self.too_complex(at)) } else { Ok(()) }
    }
    fn too_complex(&self, at: usize) -> Box<rc_ir::Diagnostic> {
        self.error_at(at..self.start, format!("not supported: a dimension of more than {TERM_LIMIT} terms"))
    }
}

fn terms(dim: Dim) -> usize {
    if let Dim::Expr(e) = dim { e.data().terms.len() + 1 } else { 1 }
}
