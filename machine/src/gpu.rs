//! The constants of a GPU's cost models.

use serde::{Deserialize, Serialize};

/// The constants of a GPU's cost models.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Elements that a thread combines in an unrolled loop at most, all steps together.
    pub unroll: i64,
    /// Of these, where each is loaded for itself.
    pub in_flight: i64,
    /// Bytes that the second-level cache gives at once.
    pub sector_bytes: i64,
    /// Microseconds of a load.
    pub load_us: f64,
    pub pointwise: Pointwise,
    pub rows: Rows,
    pub columns: Columns,
    pub scans: Scans,
    pub parts: Parts,
    pub sorts: Sorts,
    pub scatters: Scatters,
    pub products: Products,
    pub warpgroups: Warpgroups,
    pub attention: Attention,
    /// Attention's gradients.
    pub gradients: Attention,
    pub align: Align,
}

/// Products by `mma.sync`, and without matrix units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    /// Microseconds of a step along k that waits for what its program gathers.
    pub gather_us: f64,
    /// Where matrix units are given rows that begin at no multiple of 16 bytes: microseconds of a step at least, nanoseconds of each piece that a core
    /// copies, and the part by which a warp takes longer that has one of four schedulers to itself; nanoseconds of a result, and of an elementary
    /// function of one.
    pub step_us: f64,
    pub piece_ns: f64,
    pub piece_alone: f64,
    pub result_ns: f64,
    pub function_ns: f64,
    /// Microseconds of a step with matrix units where whole tiles are copied, and what each KiB of the tiles adds.
    pub tile_us: f64,
    pub tile_kb_us: f64,
    /// How much longer rows of results take that begin at no multiple of 16 bytes.
    pub unaligned: f64,
    /// Bytes of a line of the caches, and how much longer reading takes in halves of them.
    pub line_bytes: f64,
    pub half_lines: f64,
    /// Nanoseconds of a thread to widen an element of a tile.
    pub widen_ns: f64,
    /// Rows up to which a product widens an operand of 8 bits itself, where warpgroups multiply 16 bits.
    pub widened: i64,
    /// Microseconds from a program's start to its first tiles of operands.
    pub fill_us: f64,
    /// Of products whose operands come straight to registers: how many times as fast as its share of memory a core reads them.
    pub direct_rate: f64,
    /// The part of `flops_mma` that `mma.sync` reaches.
    pub rate: f64,
    /// Registers of a thread.
    pub registers: i64,
    /// Results of a tile with which the matrix units reach half their rate.
    pub mma_half: f64,
    /// Without matrix units: cycles of a core for a warp's read of 16 bytes a thread from shared memory, and for a step beside its arithmetic; the part
    /// by which a warp takes longer that has one of four schedulers to itself; microseconds of a step that waits; registers of a thread beside its results.
    pub fma_read: f64,
    /// What each further thread adds whose read falls into the same banks.
    pub fma_conflict: f64,
    pub fma_step: f64,
    /// Of what does not take longest, the part that is not hidden.
    pub fma_beside: f64,
    pub fma_alone: f64,
    pub fma_us: f64,
    pub fma_registers: f64,
    /// The rate of the second-level cache for operands, in multiples of `bandwidth`.
    pub cache_rate: f64,
    /// Tiles of operands in flight.
    pub mma_stages: i64,
    pub fma_stages: i64,
    /// Bytes of shared memory that tiles of operands take where no schedule says how many are in flight, at most.
    pub stage_bytes: i64,
}

/// Products by `wgmma`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warpgroups {
    /// Microseconds of a step along k at least.
    pub step_us: f64,
    /// Microseconds until a tile's copy is there: a step takes at least its part of that, by the stages that are on their way beside it.
    pub tile_us: f64,
    /// The part of `flops_mma` that is reached.
    pub rate: f64,
    /// And the part of it, where one warpgroup's products run at a time.
    pub turn_rate: f64,
    /// Microseconds until the first tile is there, and of an epilogue at least.
    pub start_us: f64,
    pub epilogue_us: f64,
    /// The rate of the second-level cache for operands, in multiples of `bandwidth`.
    pub cache_rate: f64,
    /// Bytes that the shared memory of a multiprocessor takes in or gives in a nanosecond.
    pub shared_rate: f64,
    /// Bytes of shared memory that stay free for what the epilogue exchanges and for barriers.
    pub reserve_bytes: i64,
    /// Tiles of operands in flight, at most.
    pub max_stages: i64,
    /// Steps along k of a part at least, where sums are cut into parts.
    pub part_steps: i64,
    /// How far the last wave of tiles counts as a whole one, from 0 to 1.
    pub whole_waves: f64,
    /// The part of `bandwidth` that tiles come at from memory, and the microseconds that one is on its way.
    pub memory_rate: f64,
    pub latency_us: f64,
    /// Nanoseconds of each further copy of a line of the right operand: narrow rows that lie on one line each ask for it, and boxes past the end.
    pub line_ns: f64,
    /// The part of the shorter of a product's times, for its arithmetic, for memory and for shared lines, that it takes besides the longest one.
    pub beside: f64,
    /// Nanoseconds of an operation of the epilogue on a column of 64 rows, and of an element that it reads for each of these: from memory, or from shared
    /// memory, where the copy engine has brought it ahead.
    pub after_ns: f64,
    pub read_ns: f64,
    pub box_ns: f64,
    /// Microseconds of a step whose operands are gathered, and nanoseconds for each run of neighbours besides.
    pub gather_us: f64,
    pub gather_ns: f64,
    /// Microseconds that a step takes longer where programs of a cluster share an operand's tile.
    pub cluster_us: f64,
    /// Microseconds of the kernel that adds parts of the sums, and its rate in multiples of `bandwidth`.
    pub combine_us: f64,
    pub combine_rate: f64,
}

/// Attention: a program goes over blocks of keys, a step for each.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// The widest rows of queries, keys and values that kernels hold; scores of wider ones are stored.
    pub widest: i64,
    /// The part of `flops_mma`, without matrix units of `flops_f32`, that both products reach.
    pub rate: f64,
    /// Picoseconds of a multiprocessor for a score's softmax, for each of the sums that a step scales, and for what is read of a mask or bias
    /// besides, by threads or from shared memory.
    pub score_ps: f64,
    pub sum_ps: f64,
    pub mask_ps: f64,
    pub staged_ps: f64,
    /// Microseconds of latency in a step, and how much longer a program alone takes for its products.
    pub step_us: f64,
    pub alone: f64,
    /// The part of the products' and the softmax's time together that they take beside one another.
    pub overlap: f64,
    /// Microseconds from a program's start to its first step, and after its last.
    pub start_us: f64,
    /// Microseconds between two blocks of queries, where a program handles one after another.
    pub block_us: f64,
    /// Columns of scores with which products of two operands in shared memory reach the matrix units' rate.
    pub narrow: f64,
    /// Registers of a thread besides sums, scores and weights.
    pub registers: i64,
    /// Registers for these at most, in a program of one warpgroup and in one of two.
    pub most_registers: [i64; 2],
    /// The same, with those of a mask, where threads read one.
    pub masked_registers: i64,
    /// How far the last wave of programs counts as a whole one, from 0 to 1.
    pub whole_waves: f64,
    /// How many times as long boxes take whose rows begin within sectors.
    pub unaligned: f64,
    /// How many times as long as at the memory's rate it takes to bring keys that one program reads: in boxes, by threads, and by threads that fill rows up to
    /// a power of two.
    pub memory: [f64; 3],
    /// How many times as long as a multiprocessor a warp alone takes for its products and softmax.
    pub warp: f64,
}

/// When operands of products are copied to rows of whole 16 bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Align {
    /// Tflop/s of products that read an operand element by element, and of those that read tiles.
    pub slow_tflops: f64,
    pub fast_tflops: f64,
    /// Of f32 by multiply-adds, and of TF32 with exact sums.
    pub exact_tflops: f64,
    pub parts_tflops: f64,
    /// And of those that read words across the sums.
    pub words_tflops: f64,
}

/// Nests that compute each element for itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pointwise {
    /// Elements of a thread where there is little work, and where there is enough for all threads.
    pub each: [i64; 2],
    /// Side of a tile where an operand is read across, and elements of a thread of such a tile.
    pub square: i64,
    pub across: i64,
}

/// Reductions along what is contiguous in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Elements of a row that stay in a program's registers between its nests, at most.
    pub longest: i64,
    /// Elements of a longer row that a program takes at once, and those of them for each thread.
    pub chunk: i64,
    pub each: i64,
    /// Elements of a row from which on tiles run along two of its iterators.
    pub deep: i64,
    /// Elements of a row for which a program of its own pays, besides the kernel that combines the parts.
    pub part: i64,
    /// Threads that a program has at least where it takes several rows.
    pub block: i64,
    /// Elements of a row's operands in each thread's registers, at most, where two programs share a multiprocessor.
    pub held: i64,
}

/// Reductions across what is contiguous in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Threads of a program.
    pub threads: i64,
    /// Loads that a thread has in flight, and the bytes that these are of at least.
    pub loads: i64,
    pub load_bytes: i64,
    /// Registers of a thread for what it has read and for its sums, at most, where more loads than these are in flight.
    pub registers: i64,
    /// Bytes of a row that a program reads at once.
    pub row_bytes: i64,
    /// Elements of whole columns in each thread's registers, at most.
    pub whole: i64,
    /// Elements from which on the kernel that combines parts pays for itself.
    pub split_from: i64,
    /// Of fewer elements: the steps down from which on it does, where programs are few.
    pub steps: i64,
}

/// Scans along what is contiguous in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scans {
    /// Elements of 32 bits that a program takes at once.
    pub chunk: i64,
    /// Threads that a program has at least where it takes several rows or columns.
    pub block: i64,
    /// Elements of a column that a thread takes.
    pub each: i64,
    /// Pieces of all rows together that occupy the machine.
    pub pieces: i64,
}

/// Pairs of reductions whose rows are cut into parts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Elements from which on the kernel that combines parts pays for itself.
    pub from: i64,
    /// Elements of a part at least.
    pub shortest: i64,
    /// Parts of all rows together, at most.
    pub most: i64,
}

/// Sorts of rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sorts {
    /// Elements of the longest rows that are sorted by comparing all pairs.
    pub pairs: i64,
    /// Elements that a thread merges alone where rows are fewer than cores, and where they are not.
    pub each: [i64; 2],
    /// Threads that a program has at least where it takes several rows.
    pub block: i64,
    /// The shortest and the longest run of a row that is merged, powers of two.
    pub runs: [i64; 2],
    /// Nanoseconds of a byte of keys and places for each doubling of what a program has sorted; microseconds of merging all runs by pairs, and nanoseconds of each
    /// element.
    pub byte_ns: f64,
    pub merge_us: f64,
    pub merge_ns: f64,
    /// The most keys that are counted; microseconds of that, and nanoseconds of a comparison.
    pub counted: i64,
    pub counted_us: f64,
    pub compare_ns: f64,
}

/// Sums of updates into places of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scatters {
    /// Updates of a place that its program takes at once, elements of each at most, and those of a thread.
    pub at_once: i64,
    pub wide: i64,
    pub each: i64,
    /// Places of a program at most, one after the other, and nanoseconds of each beside what it moves, on the whole machine.
    pub places: i64,
    pub place_ns: f64,
    /// Elements of the updates that a program combines with memory.
    pub updates: i64,
    /// Updates of a place from which on programs combine theirs in shared memory first; the bytes of such a table and the elements of a slice in it, at most;
    /// and a program's updates of a place that pay adding its table to the result.
    pub together: i64,
    pub table_bytes: i64,
    pub width: i64,
    pub merge: i64,
    /// Elements of a slice from which on updates may be sorted by place: programs then read whole lines.
    pub slice: i64,
    /// Launches of a sum of sorted updates, besides the sort.
    pub launches: f64,
}
