//! Asynchronous copies, tensor maps, and global accesses with cache hints.

use super::{Effects, Instruction, Ptx, Value, instructions, operand_list};

instructions! {
    CP_ASYNC_16 = "cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr", Memory;
    CP_ASYNC_8 = "cp.async.ca.shared.global [$0], [$1], 8, $2;", "", "rlr", Memory;
    CP_ASYNC_4 = "cp.async.ca.shared.global [$0], [$1], 4, $2;", "", "rlr", Memory;
    CP_ASYNC_COMMIT = "cp.async.commit_group;", "", "", Memory;
    CP_ASYNC_WAIT = "cp.async.wait_group $0;", "", "n", Memory;
    BULK_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
        "", "rlrr", Memory;
    BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "", "lrr", Memory;
    BULK_COMMIT = "cp.async.bulk.commit_group;", "", "", Memory;
    BULK_WAIT = "cp.async.bulk.wait_group $0;", "", "n", Memory;
    BULK_WAIT_READ = "cp.async.bulk.wait_group.read $0;", "", "n", Memory;
    REDUCE_ADD_2 = "red.relaxed.gpu.global.add.v2.f32 [$0], {$1, $2};", "", "lff", Memory;
    REDUCE_ADD_4 = "red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", Memory;
    PREFETCH_TENSOR_MAP = "prefetch.tensormap [$0];", "", "l", Memory;
}

/// L2 eviction policies for copies through a tensor map, as the 64-bit operand that `createpolicy` would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheHint {
    EvictNormal,
    EvictFirst,
    EvictLast,
}

impl CacheHint {
    fn bits(self) -> i64 {
        match self {
            Self::EvictNormal => 0x1000_0000_0000_0000,
            Self::EvictFirst => 0x12F0_0000_0000_0000,
            Self::EvictLast => 0x14F0_0000_0000_0000,
        }
    }
}

/// How a load from global memory is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadCache {
    /// Through the read-only path: nothing writes there while the kernel runs.
    ReadOnly,
    /// Read-only, and kept out of L1.
    ReadOnlyNoL1,
    /// Read once.
    Streaming,
    /// Kept out of L1.
    NoL1,
}

impl LoadCache {
    fn suffix(self) -> &'static str {
        match self {
            Self::ReadOnly => ".nc",
            Self::ReadOnlyNoL1 => ".nc.L1::no_allocate",
            Self::Streaming => ".cs",
            Self::NoL1 => ".L1::no_allocate",
        }
    }
}

/// How a store to global memory is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCache {
    /// Not read again soon.
    Streaming,
    /// Kept out of L1.
    NoL1,
}

impl StoreCache {
    fn suffix(self) -> &'static str {
        match self {
            Self::Streaming => ".cs",
            Self::NoL1 => ".L1::no_allocate",
        }
    }
}

impl<'m> Ptx<'_, 'm> {
    /// Adds two or four f32 to global memory, each atomically; the address is a multiple of their size.
    pub fn reduce_add_f32(&self, global: Value<'m>, values: &[Value<'m>]) {
        let instruction = match values.len() {
            2 => REDUCE_ADD_2,
            4 => REDUCE_ADD_4,
            n => panic!("vectors of 2 or 4 f32 are added at once, not {n}"),
        };
        self.run(instruction, &[&[self.global_address(global)], values].concat());
    }

    /// Starts copying `size` (4, 8 or 16) bytes from global to shared memory, both aligned to `size`. Only the first
    /// `valid` bytes (`i32`) are read; the rest is zero.
    pub fn cp_async(&self, size: u32, shared: Value<'m>, global: Value<'m>, valid: Value<'m>) {
        let instruction = match size {
            16 => CP_ASYNC_16,
            8 => CP_ASYNC_8,
            4 => CP_ASYNC_4,
            _ => panic!("cp.async copies 4, 8 or 16 bytes, not {size}"),
        };
        self.run(instruction, &[self.shared_address(shared), self.global_address(global), valid]);
    }

    /// Closes this thread's group of `cp.async`.
    pub fn cp_async_commit(&self) {
        self.run(CP_ASYNC_COMMIT, &[]);
    }

    /// Waits until at most the `pending` latest groups of `cp.async` are under way.
    pub fn cp_async_wait(&self, pending: u32) {
        self.run(CP_ASYNC_WAIT, &[self.b.i32(pending as i32)]);
    }

    /// Starts copying `bytes` (`i32`, a multiple of 16) from global to shared memory, both aligned to 16; the barrier
    /// counts them.
    pub fn bulk_load(&self, shared: Value<'m>, global: Value<'m>, bytes: Value<'m>, barrier: Value<'m>) {
        let operands = [self.shared_address(shared), self.global_address(global), bytes, self.shared_address(barrier)];
        self.run(BULK_LOAD, &operands);
    }

    /// Starts copying `bytes` (`i32`, a multiple of 16) from shared to global memory.
    pub fn bulk_store(&self, global: Value<'m>, shared: Value<'m>, bytes: Value<'m>) {
        self.run(BULK_STORE, &[self.global_address(global), self.shared_address(shared), bytes]);
    }

    /// Starts copying the box at `coordinates` (`i32`, fastest dimension first, 1 to 5 of them) of a tensor map to
    /// shared memory; the barrier counts its bytes. `blocks` (`i16`) are the cluster's blocks that get it, where it is
    /// given.
    pub fn tensor_load(
        &self,
        shared: Value<'m>,
        tensor_map: Value<'m>,
        coordinates: &[Value<'m>],
        barrier: Value<'m>,
        blocks: Option<Value<'m>>,
        hint: Option<CacheHint>,
    ) {
        let rank = coordinates.len();
        let mut operands = vec![self.shared_address(shared), tensor_map];
        operands.extend(coordinates);
        operands.push(self.shared_address(barrier));
        let mut letters = format!("rl{}r", "r".repeat(rank));
        let mut qualifiers = String::new();
        let mut tail = String::new();
        if let Some(blocks) = blocks {
            qualifiers += ".multicast::cluster";
            tail += &format!(", ${}", operands.len());
            operands.push(blocks);
            letters.push('h');
        }
        if let Some(hint) = hint {
            qualifiers += ".L2::cache_hint";
            tail += &format!(", ${}", operands.len());
            operands.push(self.b.i64(hint.bits()));
            letters.push('l');
        }
        let text = format!(
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{qualifiers} \
             [$0], [$1, {{{}}}], [${}]{tail};",
            operand_list(2, rank),
            rank + 2
        );
        self.run(Instruction { text: &text, results: "", operands: &letters, effects: Effects::Memory }, &operands);
    }

    /// Starts copying a box at `coordinates` (`i32`, fastest dimension first) of a tensor map into the second-level cache.
    pub fn prefetch_box(&self, tensor_map: Value<'m>, coordinates: &[Value<'m>]) {
        let rank = coordinates.len();
        let text = format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [$0, {{{}}}];", operand_list(1, rank));
        let operands = [&[tensor_map], coordinates].concat();
        let letters = format!("l{}", "r".repeat(rank));
        self.run(Instruction { text: &text, results: "", operands: &letters, effects: Effects::Memory }, &operands);
    }

    /// Starts copying a box from shared memory to `coordinates` (`i32`, fastest dimension first) of a tensor map, in
    /// this thread's bulk group.
    pub fn tensor_store(&self, tensor_map: Value<'m>, coordinates: &[Value<'m>], shared: Value<'m>) {
        let rank = coordinates.len();
        let mut operands = vec![tensor_map, self.shared_address(shared)];
        operands.extend(coordinates);
        let text = format!(
            "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [$0, {{{}}}], [$1];",
            operand_list(2, rank)
        );
        let letters = format!("lr{}", "r".repeat(rank));
        self.run(Instruction { text: &text, results: "", operands: &letters, effects: Effects::Memory }, &operands);
    }

    /// Closes this thread's group of bulk copies from shared memory.
    pub fn bulk_commit(&self) {
        self.run(BULK_COMMIT, &[]);
    }

    /// Waits until at most the `pending` latest bulk groups are under way.
    pub fn bulk_wait(&self, pending: u32) {
        self.run(BULK_WAIT, &[self.b.i32(pending as i32)]);
    }

    /// Waits until at most the `pending` latest bulk groups have yet to read their shared memory.
    pub fn bulk_wait_read(&self, pending: u32) {
        self.run(BULK_WAIT_READ, &[self.b.i32(pending as i32)]);
    }

    /// Fetches a tensor map (a generic pointer, as a kernel's parameter is) ahead of its use.
    pub fn prefetch_tensor_map(&self, tensor_map: Value<'m>) {
        self.run(PREFETCH_TENSOR_MAP, &[tensor_map]);
    }

    /// Loads `words` (1, 2 or 4) 32-bit words from global memory, aligned to their total size.
    pub fn load_words(&self, global: Value<'m>, words: usize, cache: LoadCache) -> Vec<Value<'m>> {
        let text = format!("ld.global{}{} {}, [${words}];", cache.suffix(), vector(words), braces(0, words));
        let results = "r".repeat(words);
        let instruction = Instruction { text: &text, results: &results, operands: "l", effects: Effects::Ordered };
        self.instruction(instruction, &[self.global_address(global)])
    }

    /// Stores 1, 2 or 4 32-bit words to global memory, aligned to their total size.
    pub fn store_words(&self, global: Value<'m>, words: &[Value<'m>], cache: StoreCache) {
        let text = format!("st.global{}{} [$0], {};", cache.suffix(), vector(words.len()), braces(1, words.len()));
        let letters = format!("l{}", "r".repeat(words.len()));
        let operands = [&[self.global_address(global)], words].concat();
        self.run(Instruction { text: &text, results: "", operands: &letters, effects: Effects::Memory }, &operands);
    }
}

fn vector(words: usize) -> &'static str {
    match words {
        1 => ".b32",
        2 => ".v2.b32",
        4 => ".v4.b32",
        _ => panic!("a global access has 1, 2 or 4 words, not {words}"),
    }
}

fn braces(first: usize, count: usize) -> String {
    let list = operand_list(first, count);
    if count == 1 { list } else { format!("{{{list}}}") }
}
