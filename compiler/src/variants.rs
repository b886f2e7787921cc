//! A function of symbolic sizes is compiled for all of them, and again for ranges of sizes that calls come back to.
//!
//! Schedules follow the greatest sizes that the ranges allow for; what serves all sizes is slow for small ones. Which ranges are worth a compile
//! follows from the calls: a symbol that had one value in all of them is taken for that value, any other one for the powers of two around it.

use rc_dialects::func::{SymbolDecl, set_symbols};
use rc_ir::Module;
use rc_runtime::program::Bindings;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Programs for ranges of a function's symbols, made as calls ask for them. A call of other sizes is one for the program that serves all.
pub struct Variants<P> {
    symbols: Vec<SymbolDecl>,
    limit: usize,
    /// The call of a range's sizes for which its program is made.
    at_call: usize,
    state: Mutex<State<P>>,
}

struct State<P> {
    /// The value of each symbol, as long as all calls had the same.
    same: Vec<Option<i64>>,
    /// How often calls came with sizes of each range.
    calls: HashMap<Vec<i64>, usize>,
    made: Vec<(Vec<SymbolDecl>, Option<Arc<P>>)>,
    warned: bool,
}

/// The program for a call.
#[derive(Debug)]
pub enum Found<P> {
    /// The one that serves all sizes.
    General,
    Variant(Arc<P>),
    /// The one that serves all sizes, since there are as many others as there may be: said once.
    Full,
}

impl<P> Variants<P> {
    /// Of a function with these symbols: at most `limit` programs, each made at the second call of its sizes; `at_once`: at the first, so
    /// that equal calls run the same program.
    pub fn new(symbols: Vec<SymbolDecl>, limit: usize, at_once: bool) -> Variants<P> {
        let state = State { same: Vec::new(), calls: HashMap::new(), made: Vec::new(), warned: false };
        Variants { symbols, limit, at_call: if at_once { 1 } else { 2 }, state: Mutex::new(state) }
    }

    /// The program for these sizes. `make` compiles one for narrower ranges of the symbols; other threads are served meanwhile.
    ///
    /// # Errors
    /// Those of `make`, once for each range.
    pub fn find<E>(&self, sizes: &Bindings, make: impl FnOnce(&[SymbolDecl]) -> Result<P, E>) -> Result<Found<P>, E> {
        let Some(values) = self.symbols.iter().map(|s| sizes.get(&s.name).copied()).collect::<Option<Vec<i64>>>()
        else {
            return Ok(Found::General);
        };
        let (place, ranges) = {
            let mut state = self.state();
            if let Some((_, program)) = state.made.iter().find(|made| contains(&made.0, &values)) {
                return Ok(program.clone().map_or(Found::General, Found::Variant));
            }
            let ranges = self.narrowed(&mut state, &values);
            let calls = state.calls.entry(values.iter().map(|&v| step(v)).collect()).or_default();
            *calls += 1;
            if self.limit == 0 || *calls < self.at_call || ranges == self.symbols {
                return Ok(Found::General);
            }
            if state.made.len() >= self.limit {
                let again = std::mem::replace(&mut state.warned, true);
                return Ok(if again { Found::General } else { Found::Full });
            }
            state.made.push((ranges.clone(), None));
            (state.made.len() - 1, ranges)
        };
        let program = Arc::new(make(&ranges)?);
        self.state().made[place].1 = Some(program.clone());
        Ok(Found::Variant(program))
    }

    /// The ranges of the programs there are.
    pub fn ranges(&self) -> Vec<Vec<SymbolDecl>> {
        self.state().made.iter().filter(|made| made.1.is_some()).map(|made| made.0.clone()).collect()
    }

    fn narrowed(&self, state: &mut State<P>, values: &[i64]) -> Vec<SymbolDecl> {
        if state.same.is_empty() {
            state.same = values.iter().map(|&v| Some(v)).collect();
        }
        for (same, &value) in state.same.iter_mut().zip(values) {
            *same = same.filter(|&v| v == value);
        }
        let range = |(symbol, (&value, same)): (&SymbolDecl, (&i64, &Option<i64>))| {
            let (min, max) = same.map_or_else(|| powers(value), |value| (value, value));
            SymbolDecl { min: min.max(symbol.min), max: max.min(symbol.max), ..*symbol }
        };
        self.symbols.iter().zip(values.iter().zip(&state.same)).map(range).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The module, its first function for narrower ranges of its symbols.
pub fn narrowed(module: &Module, ranges: &[SymbolDecl]) -> Module {
    let mut module = module.clone();
    if let Some(body) = module.bodies.iter_mut().find(|body| !body.is_private()) {
        set_symbols(body, ranges);
    }
    module
}

fn contains(ranges: &[SymbolDecl], values: &[i64]) -> bool {
    ranges.iter().zip(values).all(|(range, &value)| range.allows(value))
}

/// Which powers of two a size lies between.
fn step(value: i64) -> i64 {
    i64::from(u64::try_from(value).unwrap_or(0).max(1).next_power_of_two().trailing_zeros())
}

fn powers(value: i64) -> (i64, i64) {
    let high = 1i64.checked_shl(step(value) as u32).filter(|&n| n > 0).unwrap_or(i64::MAX);
    (high / 2 + 1, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::Name;

    fn symbols() -> Vec<SymbolDecl> {
        vec![SymbolDecl::new("b", 2, 64), SymbolDecl::new("s", 2, i64::MAX)]
    }
    fn ask(variants: &Variants<Vec<(i64, i64)>>, b: i64, s: i64) -> Found<Vec<(i64, i64)>> {
        let sizes: Bindings = [("b", b), ("s", s)].map(|(name, value)| (Name::new(name), value)).into_iter().collect();
        let ranges = |decls: &[SymbolDecl]| Ok::<_, String>(decls.iter().map(|d| (d.min, d.max)).collect());
        variants.find(&sizes, ranges).unwrap()
    }
    fn variant(found: Found<Vec<(i64, i64)>>) -> Vec<(i64, i64)> {
        match found {
            Found::Variant(program) => program.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sizes_that_come_back_get_a_program() {
        let variants = Variants::new(symbols(), 4, false);
        assert!(matches!(ask(&variants, 4, 1024), Found::General));
        assert_eq!(variant(ask(&variants, 4, 1024)), [(4, 4), (1024, 1024)]);
        assert!(matches!(ask(&variants, 4, 100), Found::General));
        assert_eq!(variant(ask(&variants, 4, 120)), [(4, 4), (65, 128)]);
        assert_eq!(variant(ask(&variants, 4, 65)), [(4, 4), (65, 128)]);
        assert_eq!(variant(ask(&variants, 4, 1024)), [(4, 4), (1024, 1024)]);
        // Of the same powers of two, but no longer of one value of b.
        assert_eq!(variant(ask(&variants, 3, 100)), [(3, 4), (65, 128)]);
        assert!(matches!(ask(&variants, 4, 2), Found::General));
        assert_eq!(variant(ask(&variants, 4, 2)), [(3, 4), (2, 2)]);
        // There are as many as there may be.
        assert!(matches!(ask(&variants, 8, 9), Found::General));
        assert!(matches!(ask(&variants, 8, 9), Found::Full));
        assert!(matches!(ask(&variants, 8, 9), Found::General));
        assert_eq!(variants.ranges().len(), 4);
    }

    #[test]
    fn a_program_that_cannot_be_made_is_not_tried_again() {
        let variants: Variants<()> = Variants::new(symbols(), 8, true);
        let sizes: Bindings = [("b", 2), ("s", 5)].map(|(n, v)| (Name::new(n), v)).into_iter().collect();
        assert!(variants.find(&sizes, |_| Err("no")).is_err());
        assert!(matches!(variants.find(&sizes, |_| Err("no")), Ok(Found::General)));
        assert!(variants.ranges().is_empty());
    }

    #[test]
    fn sizes_at_the_ends() {
        assert_eq!((powers(0), powers(1), powers(2), powers(3)), ((1, 1), (1, 1), (2, 2), (3, 4)));
        assert_eq!(powers(i64::MAX).1, i64::MAX);
    }
}
