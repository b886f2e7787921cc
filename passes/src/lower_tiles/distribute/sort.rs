//! `kernel.sort`: each thread sorts its elements in registers; then runs of twice the length are merged again and again through shared
//! memory. Of a merged run a thread makes its own elements: as many of the elements before them come from the left run as a binary search
//! along their diagonal says (Odeh, Green, Mwassi, Shmueli and Birk, "Merge Path", 2012). Equal keys stay in their order.
//!
//! Where only the first elements are needed, longer runs keep just those, and threads beyond rest.

use super::Distribute;
use crate::lower_tiles::layout::{Distribution, Holder, WARP};
use rc_dialects::op;
use rc_ir::{Attr, Dim, OpRef, Result, Type, Value};

/// The elements of a thread: for each tile the numbers in their order.
type Items = Vec<Vec<Value>>;

/// The merges of a tile's rows.
struct Merge {
    /// Shared memory of each tile.
    memory: Vec<Value>,
    /// Elements of a thread, and the number of its first one.
    each: i64,
    first: Value,
    /// The first elements of a row that are needed.
    needed: i64,
}

impl<'s> Distribute<'s> {
    pub(super) fn sort(&mut self, op: OpRef<'s>) -> Result {
        let spread = self.spread(op, op.result_types()[0])?;
        let (rows, length) = self.rows_of(op, &spread)?;
        let mut items = Items::new();
        for tile in op.operands() {
            let register = self.registers(tile)[0];
            items.push((0..spread.vec).map(|lane| self.emit.extract(register, lane)).collect::<Result<_>>()?);
        }
        self.sort_in_registers(&mut items)?;
        if spread.vec < length {
            let needed = op.int("count").map_or(length, |n| (n.max(1) as u64).next_power_of_two() as i64);
            let merge = self.merge_of(&items, rows * length, spread.vec, needed.clamp(spread.vec, length))?;
            let mut width = spread.vec;
            while width < length {
                if width > spread.vec || self.loops > 0 {
                    self.barrier()?;
                }
                self.leave_runs(&merge, width, &items)?;
                self.barrier()?;
                items = self.merged(&merge, width, items)?;
                width *= 2;
            }
        }
        for (result, numbers) in op.results().zip(items) {
            let register = self.emit.concat(&numbers)?;
            self.bind_tile(result, vec![register]);
        }
        Ok(())
    }

    /// The rows of a tile and their length, where threads hold neighbouring elements, one register each.
    fn rows_of(&self, op: OpRef, spread: &Distribution) -> Result<(i64, i64)> {
        let length = spread.shape.last().copied().unwrap_or(1);
        let total: i64 = spread.shape.iter().product();
        let last = spread.shape.len() - 1;
        let mut held = 1;
        let mut in_order = spread.vec_dim.is_none_or(|d| d == last);
        for d in (0..spread.shape.len()).rev() {
            for (digit, _) in spread.digits(d, Holder::Lane) {
                in_order &= digit.stride == held;
                held *= digit.size;
            }
        }
        let mut warps = 1;
        for d in (0..spread.shape.len()).rev() {
            for (digit, _) in spread.digits(d, Holder::Warp) {
                in_order &= digit.stride == warps && held == WARP;
                warps *= digit.size;
            }
        }
        if !self.cuda || !in_order || spread.registers != 1 || spread.vec * held * warps != total {
            let error = op.unsupported("of a tile whose threads do not have neighbouring elements");
            return Err(error.help("on a GPU, give each thread a vector along the rows, in order"));
        }
        Ok((total / length, length))
    }

    /// Exchanges neighbours that are out of order, the even and the odd ones in turn.
    fn sort_in_registers(&mut self, items: &mut Items) -> Result {
        let each = items[0].len();
        for round in 0..each {
            for left in (round % 2..each.saturating_sub(1)).step_by(2) {
                let swapped = self.emit.compare("gt", items[0][left], items[0][left + 1])?;
                for numbers in items.iter_mut() {
                    let [a, b] = [numbers[left], numbers[left + 1]];
                    numbers[left] = self.emit.core(op::core::SELECT, &[swapped, b, a])?;
                    numbers[left + 1] = self.emit.core(op::core::SELECT, &[swapped, a, b])?;
                }
            }
        }
        Ok(())
    }

    fn merge_of(&mut self, items: &Items, total: i64, each: i64, needed: i64) -> Result<Merge> {
        let mut memory = Vec::new();
        for numbers in items {
            // One more than there are, for the key that is read past the last run and not used.
            let size = if memory.is_empty() { total + 1 } else { total };
            memory.push(self.shared(Type::memref(&[Dim::Static(size)], self.emit.ty(numbers[0]), 3))?);
        }
        let thread = self.emit.thread_id()?;
        let thread = self.emit.value(op::core::CONVERT, &[thread], &[], Some(Type::int(32)))?;
        let (each_number, zero) = (self.number(each)?, self.number(0)?);
        let first = self.emit.core(op::core::MUL, &[thread, each_number])?;
        let (none, end) = (self.emit.splat_constant(self.emit.ty(items[0][0]), 0.0)?, self.emit.index(total)?);
        let one_thread = self.emit.compare("eq", thread, zero)?;
        self.emit.op(op::kernel::WRITE, &[&[none], &[memory[0]], &[end], &[one_thread], &[]], &[], None)?;
        Ok(Merge { memory, each, first, needed })
    }

    /// Threads whose elements are needed write them.
    fn leave_runs(&mut self, merge: &Merge, width: i64, items: &Items) -> Result {
        let only = self.is_before(merge, width, merge.needed.min(width))?;
        let at = self.index_of(merge.first, 0)?;
        for (&memory, numbers) in merge.memory.iter().zip(items) {
            let bytes = self.emit.ty(numbers[0]).byte_width().unwrap_or(4) as i64;
            let wide = (16 / bytes).min(merge.each);
            for (i, part) in numbers.chunks(wide as usize).enumerate() {
                let part = [self.emit.concat(part)?];
                let at = [match i {
                    0 => at,
                    _ => self.index_of(merge.first, i as i64 * wide)?,
                }];
                let align = [("align", Attr::i64(wide * bytes))];
                self.emit.op(op::kernel::WRITE, &[&part, &[memory], &at, only.as_slice(), &[]], &align, None)?;
            }
        }
        Ok(())
    }
    /// Whether the thread's elements are among the first `needed` of their run; none where all are.
    fn is_before(&mut self, merge: &Merge, width: i64, needed: i64) -> Result<Option<Value>> {
        if needed >= width {
            return Ok(None);
        }
        let place = self.place_in_run(merge, width)?;
        let needed = self.number(needed)?;
        self.emit.compare("lt", place, needed).map(Some)
    }
    /// The place of the thread's first element in its run of `width`, a power of two.
    fn place_in_run(&mut self, merge: &Merge, width: i64) -> Result<Value> {
        let mask = self.number(width - 1)?;
        self.emit.core(op::core::AND, &[merge.first, mask])
    }

    /// The thread's elements of the merged pairs of runs of `width`; threads whose elements are not needed keep theirs.
    fn merged(&mut self, merge: &Merge, width: i64, items: Items) -> Result<Items> {
        let Some(active) = self.is_before(merge, 2 * width, merge.needed)? else {
            return self.merge_own(merge, width);
        };
        let types: Vec<Type> = items.iter().flatten().map(|&v| self.emit.ty(v)).collect();
        let made = self.emit.op(op::kernel::IF, &[&[active]], &[], Some(&types))?;
        let at = self.emit.block;
        for then in [true, false] {
            let region = self.emit.body.add_region(made);
            self.emit.block = self.emit.body.add_block(region, &[]);
            let values = if then { self.merge_own(merge, width)?.concat() } else { items.concat() };
            self.emit.op(op::kernel::YIELD, &[&values], &[], None)?;
        }
        self.emit.block = at;
        let results: Vec<Value> = self.emit.body.results(made).collect();
        Ok(results.chunks(merge.each as usize).map(|numbers| numbers.to_vec()).collect())
    }

    fn merge_own(&mut self, merge: &Merge, width: i64) -> Result<Items> {
        let run = width.min(merge.needed);
        let place = self.place_in_run(merge, 2 * width)?;
        let left = self.emit.core(op::core::SUB, &[merge.first, place])?;
        let (distance, length) = (self.number(width)?, self.number(run)?);
        let right = self.emit.core(op::core::ADD, &[left, distance])?;
        let taken = self.taken(merge, [left, right], place, run)?;
        let rest = self.emit.core(op::core::SUB, &[place, taken])?;
        let (mut at_a, mut at_b) =
            (self.emit.core(op::core::ADD, &[left, taken])?, self.emit.core(op::core::ADD, &[right, rest])?);
        let (end_a, end_b) =
            (self.emit.core(op::core::ADD, &[left, length])?, self.emit.core(op::core::ADD, &[right, length])?);
        let keys = merge.memory[0];
        let [mut key_a, mut key_b] = [self.read_at(keys, at_a)?, self.read_at(keys, at_b)?];
        let mut out: Items = vec![Vec::new(); merge.memory.len()];
        let one = self.number(1)?;
        for i in 0..merge.each {
            let (has_a, none_b) = (self.emit.compare("lt", at_a, end_a)?, self.emit.compare("ge", at_b, end_b)?);
            let first = self.emit.compare("le", key_a, key_b)?;
            let first = self.emit.core(op::core::AND, &[first, has_a])?;
            let first = self.emit.core(op::core::OR, &[first, none_b])?;
            out[0].push(self.emit.core(op::core::SELECT, &[first, key_a, key_b])?);
            let at = self.emit.core(op::core::SELECT, &[first, at_a, at_b])?;
            for (&memory, numbers) in merge.memory.iter().zip(&mut out).skip(1) {
                numbers.push(self.read_at(memory, at)?);
            }
            if i + 1 == merge.each {
                break;
            }
            let next = self.emit.core(op::core::ADD, &[at, one])?;
            let key = self.read_at(keys, next)?;
            key_a = self.emit.core(op::core::SELECT, &[first, key, key_a])?;
            at_a = self.emit.core(op::core::SELECT, &[first, next, at_a])?;
            key_b = self.emit.core(op::core::SELECT, &[first, key_b, key])?;
            at_b = self.emit.core(op::core::SELECT, &[first, at_b, next])?;
        }
        Ok(out)
    }

    /// How many of the `place` elements before the thread's come from the left run: the greatest number whose last element is not
    /// after the one that the right run would end with. What is read where a number is too large lies in the pair, too.
    fn taken(&mut self, merge: &Merge, [left, right]: [Value; 2], place: Value, run: i64) -> Result<Value> {
        let (zero, length) = (self.number(0)?, self.number(run)?);
        let least = self.emit.core(op::core::SUB, &[place, length])?;
        let mut taken = self.emit.core(op::core::MAX, &[least, zero])?;
        let most = self.emit.core(op::core::MIN, &[place, length])?;
        let end = self.emit.core(op::core::ADD, &[right, place])?;
        let one = self.number(1)?;
        let before = self.emit.core(op::core::SUB, &[left, one])?;
        let keys = merge.memory[0];
        let mut step = run;
        while step > 0 {
            let by = self.number(step)?;
            let more = self.emit.core(op::core::ADD, &[taken, by])?;
            let mine = self.emit.core(op::core::ADD, &[before, more])?;
            let mine = self.read_at(keys, mine)?;
            let theirs = self.emit.core(op::core::SUB, &[end, more])?;
            let theirs = self.read_at(keys, theirs)?;
            let (allowed, not_after) = (self.emit.compare("le", more, most)?, self.emit.compare("le", mine, theirs)?);
            let up = self.emit.core(op::core::AND, &[allowed, not_after])?;
            taken = self.emit.core(op::core::SELECT, &[up, more, taken])?;
            step /= 2;
        }
        Ok(taken)
    }

    fn read_at(&mut self, memory: Value, at: Value) -> Result<Value> {
        let at = [self.index_of(at, 0)?];
        let ty = [self.emit.ty(memory).elem()];
        let read = self.emit.op(op::kernel::READ, &[&[memory], &at, &[], &[]], &[], Some(&ty))?;
        Ok(self.emit.body.result(read, 0))
    }
    fn index_of(&mut self, number: Value, plus: i64) -> Result<Value> {
        let index = self.emit.value(op::core::CONVERT, &[number], &[], Some(Type::index()))?;
        match plus {
            0 => Ok(index),
            _ => {
                let plus = self.emit.index(plus)?;
                self.emit.core(op::core::ADD, &[index, plus])
            }
        }
    }
    fn number(&mut self, n: i64) -> Result<Value> {
        self.emit.constant(Attr::int(n, Type::int(32)))
    }
}
