//! `loop.sort` of short rows on a CPU: an element's place is the number of those that come before it, which is counted for a few vectors of elements at a
//! time (rank sort). Equal elements stay in their order, as those before an element count where they are equal, and those after it do not.

use super::program::{Program, RANK};
use super::scope::Scope;
use super::sort::Sort;
use super::sort_cpu::{load, number, store};
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Result, Type, Value};

/// The memory of one row.
struct Row {
    keys: Value,
    /// How many elements come before each.
    before: Value,
    /// The elements in their order.
    places: Value,
}

impl Sort {
    /// Sorts the scope's row, whose keys have the type `key`, `step` elements at a time.
    pub(super) fn run_by_counting(
        &self,
        p: &mut Program,
        scope: &Scope,
        (key, longest, step): (Type, i64, i64),
    ) -> Result {
        let word = Type::int(32);
        let row = Row {
            keys: p.alloc(&[longest], key),
            before: p.alloc(&[longest], word),
            places: p.alloc(&[longest], word),
        };
        self.write_keys(p, (row.keys, step, None), scope)?;
        let length = p.size(self.sizes.iters[1].extent);
        let bounds = [p.constant_index(0), length, p.constant_index(step)];
        p.for_loop(bounds, &[], |p, first, _| row.count(p, first, length, step).map(|()| Vec::new()))?;
        let bounds = [p.constant_index(0), length, p.constant_index(1)];
        p.for_loop(bounds, &[], |p, at, _| {
            let there = p.read_scalar(row.before, &[at]);
            let there = p.convert(there, Type::index());
            let place = p.convert(at, word);
            p.write_scalar(place, row.places, &[there]);
            Ok::<_, Box<Diagnostic>>(Vec::new())
        })?;
        self.write_results(p, (row.places, step), scope)
    }
}

impl Row {
    /// Counts what comes before each of `step` elements.
    fn count(&self, p: &mut Program, first: Value, length: Value, step: i64) -> Result {
        let keys = load(p, self.keys, first, step);
        let last = p.constant_index(step);
        let last = p.binary(op::core::ADD, first, last);
        let last = p.binary(op::core::MIN, last, length);
        let (zero, none) = (p.constant_index(0), p.zeros([1, step], Type::int(32)));
        let mine = p.iota(first, 1, step);
        let mine = p.broadcast(mine, [1, step]);
        let before = self.add(p, [zero, first], none, keys, |p, key, _| p.compare("le", key, keys))?;
        let among = self.add(p, [first, last], before, keys, |p, key, at| {
            let (less, equal, earlier) =
                (p.compare("lt", key, keys), p.compare("eq", key, keys), p.compare("lt", at, mine));
            let tied = p.binary(op::core::AND, equal, earlier);
            p.binary(op::core::OR, less, tied)
        })?;
        let all = self.add(p, [last, length], among, keys, |p, key, _| p.compare("lt", key, keys))?;
        store(p, all, self.before, first);
        Ok(())
    }

    /// The counts with one more for each element of the row in `from..to` that comes before.
    fn add(
        &self,
        p: &mut Program,
        [from, to]: [Value; 2],
        counts: Value,
        keys: Value,
        comes_before: impl Fn(&mut Program, Value, Value) -> Value,
    ) -> Result<Value> {
        let shape = p.shape(keys);
        let by = p.constant_index(1);
        let found = p.for_loop([from, to, by], &[counts], |p, at, counts| {
            let key = p.read_scalar(self.keys, &[at]);
            let (key, at) = (p.broadcast(key, shape), p.broadcast(at, shape));
            let more = comes_before(p, key, at);
            let (one, zero) = (number(p, 1), p.splat([1; RANK], Attr::int(0, Type::int(32))));
            let more = p.select(more, one, zero);
            Ok::<_, Box<Diagnostic>>(vec![p.binary(op::core::ADD, counts[0], more)])
        })?;
        Ok(found[0])
    }
}
