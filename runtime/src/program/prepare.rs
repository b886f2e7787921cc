//! A program's steps for given sizes: every expression a number.

use super::signature::{Bindings, evaluate};
use super::{Memory, Place, Program, Step};
use crate::{Error, Result};
use rc_ir::Dim;

/// A place in memory, the offset in bytes.
pub type At = (Memory, usize);

/// Steps with every size known.
pub enum PreparedStep {
    Launch { kernel: usize, args: Vec<At>, symbols: Vec<i64>, grid: [u64; 3] },
    Copy { from: At, to: At, bytes: usize },
}

impl Program {
    /// The steps where the symbols have these values.
    ///
    /// # Errors
    /// If sizes differ that the program assumes to be equal.
    pub fn prepare(&self, bindings: &Bindings) -> Result<Vec<PreparedStep>> {
        let number = |d: Dim| evaluate(d, bindings);
        for &(size, expected) in &self.asserts {
            let (is, wanted) = (number(size)?, number(expected)?);
            if is != wanted {
                return Err(Error::Invalid(format!(
                    "the program assumes that {size} = {expected}, and for these arguments it is {is}, not {wanted}"
                )));
            }
        }
        let place = |p: &Place| Ok((p.memory, number(p.offset)? as usize));
        let step = |step: &Step| {
            Ok(match step {
                Step::Launch { kernel, args, symbols, grid } => {
                    let mut extents = [0; 3];
                    for (extent, &dim) in extents.iter_mut().zip(grid) {
                        *extent = number(dim)? as u64;
                    }
                    PreparedStep::Launch {
                        kernel: *kernel,
                        args: args.iter().map(place).collect::<Result<_>>()?,
                        symbols: symbols.iter().map(|&d| number(d)).collect::<Result<_>>()?,
                        grid: extents,
                    }
                }
                Step::Copy { from, to, bytes } => {
                    PreparedStep::Copy { from: place(from)?, to: place(to)?, bytes: number(*bytes)? as usize }
                }
            })
        };
        self.steps.iter().map(step).collect()
    }

    /// Bytes of the arena where the symbols have these values.
    pub fn arena_bytes(&self, bindings: &Bindings) -> Result<usize> {
        evaluate(self.arena, bindings).map(|n| n as usize)
    }
}
