//! What decides which operations become one kernel, and which iterators one.

use serde::{Deserialize, Serialize};

/// Thresholds of fusion.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fusion {
    /// Elements of a result that takes no time to store, at most.
    pub stored: i64,
    /// Elements of a mask that takes less time to compare again than a kernel to start, at most.
    pub compared: i64,
    /// Elements that take less time to compute again, with a few operations each, than a kernel to start, at most.
    pub repeated: i64,
    /// Arithmetic operations that compute again what a sum over columns reads, at most.
    pub again: i64,
    /// How many times as many bytes as its operands its result has then, at least.
    pub narrower: f64,
    /// Times that an element is computed or read across its memory from which on storing it costs less.
    pub times: f64,
    /// Parts of a concatenation among which a kernel chooses, at most.
    pub choices: i64,
    /// A gather of one in so many elements costs less than storing the table.
    pub gathered: i64,
    /// Queries at most, and keys at least, for which the keys that a mask of booleans shows are counted: what is not read pays for the count.
    pub counted_queries: i64,
    pub counted_keys: i64,
    /// Points of a nest for each element of an operand that may be read element by element.
    pub reuse: f64,
    /// Elements from one window to the next from which on windows are better read side by side.
    pub apart: i64,
    /// Points of nests that one program for each row runs together, however few the rows are.
    pub together: f64,
}
