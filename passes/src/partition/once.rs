//! A backward function that gives each value once.

use crate::autodiff::{end_of, set_results};
use rc_ir::{Body, Value};

/// Leaves out results that are a value which a result before them is, of the same kind; `kinds` has a number for each result. Gives which of the results
/// that are left each of them is.
pub fn give_once(body: &mut Body, kinds: &[usize]) -> Vec<usize> {
    let results: Vec<(Value, usize)> = body.operands(end_of(body)).zip(kinds.iter().copied()).collect();
    let mut once: Vec<(Value, usize)> = Vec::new();
    let mut number = |result: &(Value, usize)| {
        once.iter().position(|other| other == result).unwrap_or_else(|| {
            once.push(*result);
            once.len() - 1
        })
    };
    let numbers = results.iter().map(&mut number).collect();
    let values: Vec<Value> = once.iter().map(|result| result.0).collect();
    set_results(body, &values);
    numbers
}
