//! What each iterator of a contraction is: batch, row or column of the result, or summed over.

use super::nest::Nest;
use rc_dialects::loop_::{self, IterKind};
use rc_ir::{Body, Dim, Name, Value};
use rustc_hash::FxHashSet;

/// The two-dimensional product inside a contraction: result tiles `[m, n]`, sums over `k`; all other iterators are
/// taken one point at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Roles {
    pub m: Name,
    pub n: Name,
    pub k: Name,
    /// Which of the two yielded factors has `m`.
    pub left: usize,
}

/// The iterators that the yielded value number `at` depends on.
fn iterators_of(body: &Body, nest: &Nest, at: usize) -> FxHashSet<Name> {
    let mut found = FxHashSet::default();
    let entry = body.op_ref(nest.op).entry(0).expect("a verified nest has a body");
    let yielded = body.last_op(entry).expect("a verified nest yields");
    let mut note = |dim: Dim| {
        dim.for_each_symbol(&mut |n| {
            found.insert(n);
        })
    };
    let (mut stack, mut seen): (Vec<Value>, FxHashSet<Value>) = (vec![body.operand(yielded, at)], FxHashSet::default());
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        let Some(op) = body.defining_op(value).filter(|&o| body.parent(o) == Some(entry)) else {
            let arg = body.block_args(entry).position(|a| a == value);
            arg.into_iter().flat_map(|i| &nest.inputs[i].exprs).for_each(|&e| note(e));
            continue;
        };
        for name in ["expr", "at"] {
            let dims = body.attr(op, name).and_then(|a| a.as_shape()).unwrap_or_default();
            dims.iter().for_each(|&d| note(nest.resolve(d)));
        }
        let skip = usize::from(body.name(op) == &loop_::GATHER);
        stack.extend(body.operands(op).skip(skip));
    }
    found
}

impl Roles {
    /// The roles in a contraction with one result; `None` where one factor has no iterator of its own (a matrix-vector product).
    pub fn of(body: &Body, nest: &Nest) -> Option<Roles> {
        if nest.combiners != ["contract"] {
            return None;
        }
        let factors = [iterators_of(body, nest, 0), iterators_of(body, nest, 1)];
        let own = |f: usize| {
            nest.of_kind(IterKind::Parallel).map(|i| i.name).filter({
                let factors = &factors;
                move |n| factors[f].contains(n) && !factors[1 - f].contains(n)
            })
        };
        let inner = nest.outputs[0].innermost();
        // The result's contiguous iterator is n.
        let left = usize::from(own(0).any(|n| Some(n) == inner));
        let n = own(1 - left).find(|&n| Some(n) == inner).or(own(1 - left).last())?;
        let m = own(left).last()?;
        let k = nest.of_kind(IterKind::Reduce).map(|i| i.name);
        let both = |k: &Name| factors.iter().all(|f| f.contains(k));
        let k = k.filter(both).last().or_else(|| nest.of_kind(IterKind::Reduce).map(|i| i.name).last())?;
        Some(Roles { m, n, k, left })
    }

    /// Whether factor `which` is contiguous along an iterator, by an operand that has its row or column.
    pub fn is_contiguous(&self, nest: &Nest, which: usize, along: Name) -> bool {
        let own = if which == self.left { self.m } else { self.n };
        nest.inputs
            .iter()
            .chain(&nest.gathers)
            .any(|a| a.mentions(own) && (a.distance(along) == Some(1) || a.run(along) > 1))
    }
    /// Whether factor `which` lies with the sums' iterator as its contiguous one.
    pub fn lies_along_k(&self, nest: &Nest, which: usize) -> bool {
        let own = if which == self.left { self.m } else { self.n };
        self.is_contiguous(nest, which, self.k) && !self.is_contiguous(nest, which, own)
    }
}
