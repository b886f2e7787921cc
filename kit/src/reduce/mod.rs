//! Reducing a module: the smallest one found on which a test still holds.
//!
//! | file | what gets smaller |
//! |---|---|
//! | `symbols` | functions |
//! | `ops` | operations: what is left of a function is made a function of its own |
//! | `results` | results of functions, operands and results of regions |
//! | `attrs` | attributes and constants |
//! | `types` | sizes, symbols, element types |
//! | `pipeline` | the passes of the test itself |
//!
//! Each proposes smaller modules in a fixed order; those that verify are tested, several at once, and the first in order on which the test
//! holds is taken. So the result depends on the module and the test alone, not on the number of threads.

mod attrs;
pub mod cli;
mod minimize;
mod ops;
mod pipeline;
mod results;
mod search;
mod symbols;
mod test;
mod types;

pub use pipeline::reduced_pipeline;
pub use search::{Counts, Search};
pub use test::{ChangesResult, Command, FailsWith, Test, error_of, shape_of_error};

use rc_ir::Module;

/// Rounds over all phases at most: what one makes smaller may let another go on.
const ROUNDS: usize = 8;

/// The smallest module found on which the search's test holds. It verifies wherever `module` does.
pub fn reduced(module: Module, search: &mut Search) -> Module {
    let mut best = module;
    for _ in 0..ROUNDS {
        let before = best.to_string();
        for phase in
            [attrs::of_symbols, symbols::reduce, ops::reduce, types::reduce, results::reduce, ops::cut, attrs::reduce]
        {
            best = phase(best, search);
        }
        if best.to_string() == before {
            break;
        }
    }
    best
}

/// The operations of a module, those in regions included.
pub fn op_count(module: &Module) -> usize {
    module.bodies.iter().map(|body| body.walk().len()).sum()
}
