//! The constants of a CPU's cost models. Cycles are those of a core at its peak of multiply-adds.

use serde::{Deserialize, Serialize};

/// The constants of a CPU's cost models.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Vectors of a row that a program takes at once: their values stay in registers.
    pub vectors: i64,
    /// How many times as long a row is a long one, of which a program takes other vectors at once where it goes over it several times or sums it.
    pub long: i64,
    pub long_vectors: i64,
    /// Elements of a row for which a program of its own pays, besides the kernel that combines the parts.
    pub part: i64,
    /// Bytes from one place to the next with which both have the same set of the first-level cache.
    pub page_bytes: i64,
    /// Microseconds that starting a wave of programs takes.
    pub wave_us: f64,
    pub threads: CpuThreads,
    pub pointwise: CpuPointwise,
    pub columns: CpuColumns,
    pub short_rows: CpuShortRows,
    pub windows: CpuWindows,
    pub products: CpuProducts,
    pub dots: CpuDots,
    pub attention: CpuAttention,
    pub sorts: CpuSorts,
}

/// Whether threads share a launch, by the microseconds that it takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuThreads {
    /// On one thread: from there on others share it.
    pub shared: f64,
    /// On all threads: up to there one thread is tried.
    pub tried: f64,
}

/// Nests that compute each element for itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuPointwise {
    /// Operations at most with which a program takes up to twice as many vectors.
    pub light: i64,
    /// Vectors that a program takes where it computes elementary functions, at most.
    pub function_vectors: i64,
    /// What starting a program takes, in vectors that are copied.
    pub program_vectors: i64,
}

/// Sums over columns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuColumns {
    /// Vectors of results that a program has at most.
    pub vectors: i64,
    /// Bytes that could be read in the time that going to a tile's next row takes.
    pub row_bytes: i64,
}

/// Rows of a few elements, one in each lane or one after the other: cycles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuShortRows {
    /// Of an element that is loaded, or stored, by itself.
    pub load: f64,
    pub store: f64,
    /// Of a row that a nest goes over in vectors, besides functions.
    pub nest: f64,
    /// Of an elementary function of a vector, and of a row's one number.
    pub function: f64,
    pub scalar_function: f64,
}

/// Windows in register tiles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuWindows {
    /// Rows of a tile, and of one whose rows take one another's place in the first-level cache, at most.
    pub rows: i64,
    pub colliding_rows: i64,
    /// Vectors of a row at most.
    pub vectors: i64,
    /// The side of windows plus their step up to which padding is read in place; the same where rows of lanes are padded.
    pub padded: i64,
    pub padded_lanes: i64,
    /// Steps along an iterator that are taken at once, at most.
    pub unrolled: i64,
    /// Cycles until a sum takes its next element, of a step besides loads and arithmetic, of each row that it reads, of a vector that finds no register, and of
    /// starting a tile.
    pub latency: f64,
    pub step: f64,
    pub row: f64,
    pub spill: f64,
    pub tile: f64,
    /// How much longer a tile takes that is partly past the lanes' end.
    pub partial: f64,
}

/// Products by blocks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuProducts {
    /// Elements of the sums at a time at most; of panels that no call packs, twice as many.
    pub depth: i64,
    /// The same where rows of the left operand are read in place.
    pub depth_in_place: i64,
    /// Bytes of a program's own memory at most.
    pub memory_bytes: i64,
    /// Rows of a tile of results at most.
    pub rows: i64,
    /// Cycles until a sum takes its next product, and of a step besides loads and multiply-adds.
    pub latency: f64,
    pub step: f64,
    /// Cycles by which loading a repeated element, or a vector, delays a step's multiply-adds, though both run at once.
    pub element: f64,
    pub vector: f64,
    /// Cycles that starting a program takes, a tile of results, a row that is packed, and a run of windows' elements that is read in place.
    pub program: f64,
    pub tile: f64,
    pub row: f64,
    pub run: f64,
    /// Cycles that an elementary function of a vector of results takes.
    pub function: f64,
    /// Cycles that packing an element takes from the second-level cache, and from further away.
    pub near: f64,
    pub far: f64,
    /// Cycles besides that turning an element takes, where it is packed across the operand's rows, and a word of several.
    pub turn: f64,
    pub turn_word: f64,
    /// Cycles of a vector of sums that waits for the next block of k: it is stored and added.
    pub wait: f64,
    /// How much longer a step takes whose right panel comes from the second-level cache, and how many of its vectors come in a cycle at most.
    pub right_second: f64,
    pub right_rate: f64,
    /// Bytes of a cycle that come from beyond the second-level cache, as far as nothing hides it.
    pub third_rate: f64,
    /// Cycles until a row of the left operand that is read in place, on a page of its own, arrives ahead of its use.
    pub left_start: f64,
    /// Cycles of a step for each row of the left operand that is read in place, across its rows.
    pub left_across: f64,
    /// Cycles of a step for each vector of the right operand that is read in place: from rows on one page, and from rows on pages of their own.
    pub right_near: f64,
    pub right_far: f64,
    /// Bytes of a row of the right operand from which on each is on a page of its own, where it does not stay in the first-level cache.
    pub right_far_bytes: i64,
    /// The part of reading a right operand in place from beyond the second-level cache that multiply-adds do not hide.
    pub right_beyond: f64,
    /// The part of reading operands from beyond the last-level cache that multiply-adds do not hide.
    pub beyond_last: f64,
    /// How much of a program's time all wait for the last one.
    pub last: f64,
}

/// Products of rows with rows, whose vectors run along the sums.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuDots {
    /// Columns of a tile of results at most.
    pub columns: i64,
    /// Cycles of adding a vector's lanes and storing the result, and of a step besides loads and multiply-adds.
    pub lanes: f64,
    pub step: f64,
    /// Cycles that an elementary function of a result takes: they are computed one by one.
    pub function: f64,
    /// Bytes of a cycle from the second-level cache, and from beyond it, and the part of both times that nothing hides.
    pub near_rate: f64,
    pub far_rate: f64,
    pub beside: f64,
}

/// Attention by tiles of queries and keys; cycles of a core.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuAttention {
    /// Of a tile, besides what follows.
    pub step: f64,
    /// Of a vector of scores: mask, maximum, exponential, sum.
    pub softmax: f64,
    /// Of a vector of results that is read, scaled and written in a step.
    pub total: f64,
    /// Of turning around a square of keys, as large as a vector.
    pub square: f64,
    /// Of adding the lanes of a vector's worth of sums, where keys are read as they lie.
    pub lanes: f64,
}

/// Sorts of rows by counting digits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSorts {
    /// Elements of the longest rows that are sorted by comparing all pairs.
    pub pairs: i64,
    /// Bits of a digit, of short rows and of long ones: more counts to form, fewer passes.
    pub digits: [i64; 2],
    /// Elements of a row from which on it is a long one.
    pub long: i64,
}
