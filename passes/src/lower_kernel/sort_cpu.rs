//! `loop.sort` on a CPU: a row's keys by their digits, the least significant first (radix sort; Seward, 1954). One pass counts all digits;
//! then each pass moves keys and places to where the counts say, so equal keys stay in their order.
//!
//! Where few elements of a row are kept, those are left out first whose first digit comes after that of the last one kept.

use super::program::{Program, RANK};
use super::run::bind;
use super::scope::Scope;
use super::sort::Sort;
use crate::schedule::sort::is_short;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Result, Type, Value};

/// Keys and the places that they had.
#[derive(Clone, Copy)]
struct Items {
    keys: Value,
    places: Value,
}

/// Some bits of a key.
#[derive(Clone, Copy)]
struct Digit {
    /// Its number: counts are kept by it.
    number: i64,
    shift: u32,
    bits: u32,
}

/// The memory of one row.
struct Row {
    from: Items,
    to: Items,
    /// How often each digit has each value; then where the next key with that value goes.
    counts: Value,
    /// From the least significant.
    digits: Vec<Digit>,
    longest: i64,
}

impl Sort {
    /// Sorts the scope's row in memory of the program's own.
    pub fn run_on_cpu(&self, p: &mut Program, scope: &Scope) -> Result {
        let longest = self.sizes.longest(p.src.op_ref(self.op), &p.ranges)?;
        let key = self.below.map_or_else(|| key_of(p.src.ty(self.x).elem()), |_| Type::int(32));
        let step = step(p, key, longest);
        if is_short(longest, p.target.lanes(key)) {
            return self.run_by_counting(p, scope, (key, longest, step));
        }
        let mut row = Row::new(p, (key, self.width(key)), longest);
        let sign = row.sign(p);
        self.write_keys(p, (row.from.keys, step, Some(sign)), scope)?;
        let mut length = p.size(self.sizes.iters[1].extent);
        let last = row.digits[row.digits.len() - 1];
        let few = self.sizes.count.as_static().filter(|&count| 2 * count <= longest);
        let mut placed = false;
        if let Some(count) = few {
            row.fill_last_step(p, count);
            length = row.leave_out(p, last, count, length)?;
            placed = true;
        }
        row.count(p, &row.digits.clone(), length)?;
        for digit in row.digits.clone() {
            row.starts(p, digit)?;
            row.move_by(p, digit, length, placed)?;
            placed = true;
        }
        self.write_results(p, (row.from.places, step), scope)
    }

    /// The low bits in which keys differ.
    fn width(&self, key: Type) -> u32 {
        let all = key.bit_width().unwrap_or(64);
        self.below.map_or(all, |below| (below - 1).max(1).ilog2() + 1)
    }

    /// Writes the keys of the row, `step` at a time, with other bits where some are turned.
    pub(super) fn write_keys(
        &self,
        p: &mut Program,
        (to, step, turned): (Value, i64, Option<Attr>),
        scope: &Scope,
    ) -> Result {
        let [_, j] = self.sizes.iters;
        let bounds = [p.constant_index(0), p.size(j.extent), p.constant_index(step)];
        p.for_loop(bounds, &[], |p, first, _| {
            let scope = scope.with(j.name, bind(&j, first, Some(1), step));
            let x = p.load(self.x, &self.element(Dim::symbol(j.name)), &scope)?;
            let x = p.broadcast(x, scope.shape());
            let mut keys = self.keys(p, x);
            if let Some(turned) = turned {
                let turned = p.splat([1; RANK], turned);
                keys = p.binary(op::core::XOR, keys, turned);
            }
            store(p, keys, to, first);
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        Ok(())
    }

    /// Looks up the elements that come first.
    pub(super) fn write_results(&self, p: &mut Program, (places, step): (Value, i64), scope: &Scope) -> Result {
        let [_, j] = self.sizes.iters;
        let bounds = [p.constant_index(0), p.size(self.sizes.count), p.constant_index(step)];
        p.for_loop(bounds, &[], |p, first, _| {
            let scope = scope.with(j.name, bind(&j, first, Some(1), step));
            let at = load(p, places, first, step);
            self.look_up(p, &scope, at).map(|()| Vec::new())
        })?;
        Ok(())
    }
}

impl Row {
    /// For keys that differ in so many low bits.
    fn new(p: &mut Program, (key, width): (Type, u32), longest: i64) -> Row {
        let sorts = &p.target.cpu().sorts;
        let bits = sorts.digits[usize::from(longest >= sorts.long)] as u32;
        let digits = Digit::of_width(width, bits);
        let [from, to] =
            [0, 1].map(|_| Items { keys: p.alloc(&[longest], key), places: p.alloc(&[longest], Type::int(32)) });
        let counts = p.alloc(&[digits.len() as i64, 1 << bits], Type::int(32));
        Row { from, to, counts, digits, longest }
    }
    fn key(&self, p: &Program) -> Type {
        p.ty(self.from.keys).elem()
    }
    /// The sign's bit alone: digits have no sign, the least number is the one without bits.
    fn sign(&self, p: &Program) -> Attr {
        let key = self.key(p);
        Attr::int(i64::MIN >> (64 - key.bit_width().unwrap_or(64)), key)
    }

    /// Writes places where the last step of the `count` results reads more than there are.
    fn fill_last_step(&self, p: &mut Program, count: i64) {
        let step = step(p, self.key(p), self.longest);
        let first = p.constant_index(count / step * step);
        for items in [self.from, self.to] {
            let zeros = p.zeros([1, step], Type::int(32));
            store(p, zeros, items.places, first);
        }
    }

    /// Counts how often each digit has each value among the first `length` keys.
    fn count(&self, p: &mut Program, digits: &[Digit], length: Value) -> Result {
        for &digit in digits {
            self.clear(p, digit)?;
        }
        let bounds = [p.constant_index(0), length, p.constant_index(1)];
        p.for_loop(bounds, &[], |p, at, _| {
            let key = p.read_scalar(self.from.keys, &[at]);
            for &digit in digits {
                let value = digit.of(p, key);
                let place = [p.constant_index(digit.number), value];
                let (count, one) = (p.read_scalar(self.counts, &place), number(p, 1));
                let count = p.binary(op::core::ADD, count, one);
                p.write_scalar(count, self.counts, &place);
            }
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        Ok(())
    }
    fn clear(&self, p: &mut Program, digit: Digit) -> Result {
        let step = 4 * p.target.lanes(Type::int(32));
        let bounds = [p.constant_index(0), p.constant_index(1 << digit.bits), p.constant_index(step)];
        p.for_loop(bounds, &[], |p, first, _| {
            let zeros = p.zeros([1, step], Type::int(32));
            let at = [p.constant_index(digit.number), first];
            let mut b = p.build();
            let store = b.op(op::kernel::STORE).operand(zeros).operand(self.counts).operands(&at);
            store.attr("dims", Attr::i64s(&[0, 1])).build();
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        Ok(())
    }
    /// Makes of a digit's counts the numbers of keys whose digit is less.
    fn starts(&self, p: &mut Program, digit: Digit) -> Result {
        let bounds = [p.constant_index(0), p.constant_index(1 << digit.bits), p.constant_index(1)];
        let none = number(p, 0);
        p.for_loop(bounds, &[none], |p, value, before| {
            let place = [p.constant_index(digit.number), value];
            let count = p.read_scalar(self.counts, &place);
            p.write_scalar(before[0], self.counts, &place);
            Ok::<_, Box<Diagnostic>>(vec![p.binary(op::core::ADD, before[0], count)])
        })?;
        Ok(())
    }

    /// Moves the first `length` items to the order of a digit. Without `placed`, an item's place is its number.
    fn move_by(&mut self, p: &mut Program, digit: Digit, length: Value, placed: bool) -> Result {
        let (from, to, counts) = (self.from, self.to, self.counts);
        let bounds = [p.constant_index(0), length, p.constant_index(1)];
        p.for_loop(bounds, &[], |p, at, _| {
            let key = p.read_scalar(from.keys, &[at]);
            let place = if placed { p.read_scalar(from.places, &[at]) } else { p.convert(at, Type::int(32)) };
            let slot = [p.constant_index(digit.number), digit.of(p, key)];
            let (start, one) = (p.read_scalar(counts, &slot), number(p, 1));
            let next = p.binary(op::core::ADD, start, one);
            p.write_scalar(next, counts, &slot);
            let there = p.convert(start, Type::index());
            p.write_scalar(key, to.keys, &[there]);
            p.write_scalar(place, to.places, &[there]);
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        std::mem::swap(&mut self.from, &mut self.to);
        Ok(())
    }

    /// Keeps the items whose digit, the most significant, is at most that of the last of the `count` that come first. Gives their number.
    fn leave_out(&mut self, p: &mut Program, digit: Digit, count: i64, length: Value) -> Result<Value> {
        self.count(p, &[digit], length)?;
        let [zero, one] = [0, 1].map(|n| p.constant_index(n));
        // The greatest digit of which fewer keys than `count` are less.
        let bounds = [zero, p.constant_index(1 << digit.bits), one];
        let none = number(p, 0);
        let found = p.for_loop(bounds, &[none, zero], |p, value, carried| {
            let here = [p.constant_index(digit.number), value];
            let own = p.read_scalar(self.counts, &here);
            let wanted = number(p, count);
            let reached = p.compare("lt", carried[0], wanted);
            let last = p.select(reached, value, carried[1]);
            Ok::<_, Box<Diagnostic>>(vec![p.binary(op::core::ADD, carried[0], own), last])
        })?;
        let (from, to) = (self.from, self.to);
        let kept = p.for_loop([zero, length, one], &[zero], |p, at, carried| {
            let key = p.read_scalar(from.keys, &[at]);
            let value = digit.of(p, key);
            let stays = p.compare("le", value, found[1]);
            let place = p.convert(at, Type::int(32));
            p.write_scalar(key, to.keys, &[carried[0]]);
            p.write_scalar(place, to.places, &[carried[0]]);
            let [zero, one] = [0, 1].map(|n| p.constant_index(n));
            let more = p.select(stays, one, zero);
            Ok::<_, Box<Diagnostic>>(vec![p.binary(op::core::ADD, carried[0], more)])
        })?;
        std::mem::swap(&mut self.from, &mut self.to);
        Ok(kept[0])
    }
}

impl Digit {
    /// The digits of keys of so many bits, the last perhaps narrower.
    fn of_width(width: u32, bits: u32) -> Vec<Digit> {
        let digit = |number: u32| Digit {
            number: i64::from(number),
            shift: number * bits,
            bits: bits.min(width - number * bits),
        };
        (0..width.div_ceil(bits)).map(digit).collect()
    }
    /// The digit of a key, as an index.
    fn of(self, p: &mut Program, key: Value) -> Value {
        let ty = p.ty(key);
        let mut value = key;
        if self.shift > 0 {
            let by = p.scalar(Attr::int(i64::from(self.shift), ty));
            value = p.binary(op::core::SHR, value, by);
        }
        let mask = p.scalar(Attr::int((1 << self.bits) - 1, ty));
        let value = p.binary(op::core::AND, value, mask);
        p.convert(value, Type::index())
    }
}

/// The type of the keys of elements.
fn key_of(elem: Type) -> Type {
    let width = elem.bit_width().unwrap_or(64);
    Type::int(if width > 32 || elem.is_unsigned() && width == 32 { 64 } else { 32 })
}

/// Elements that are handled at once where they are computed.
fn step(p: &Program, key: Type, longest: i64) -> i64 {
    let lanes = p.target.lanes(key);
    (4 * lanes).min((longest as u64).next_multiple_of(lanes as u64) as i64)
}

/// A count.
pub(super) fn number(p: &mut Program, n: i64) -> Value {
    p.scalar(Attr::int(n, Type::int(32)))
}

/// A tile of one row of memory of one dimension.
pub(super) fn load(p: &mut Program, memory: Value, first: Value, size: i64) -> Value {
    let ty = Type::tile(&[1, size], p.ty(memory).elem(), None);
    let mut b = p.build();
    let load = b.op(op::kernel::LOAD).operand(memory).operand(first).attr("dims", Attr::i64s(&[-1, 0]));
    load.result(ty).value()
}

/// Writes a tile of one row to memory of one dimension.
pub(super) fn store(p: &mut Program, tile: Value, memory: Value, first: Value) {
    let mut b = p.build();
    b.op(op::kernel::STORE).operand(tile).operand(memory).operand(first).attr("dims", Attr::i64s(&[-1, 0])).build();
}
