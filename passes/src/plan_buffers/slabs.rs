//! Slabs: groups of buffers in the arena that a caller may hold apart from one another, each only while launches use it. A caller that lets arguments go
//! as they are read, and makes results as they are written, then holds less at once: a training step's backward part begins with all that was kept, and
//! needs the most of its arena when most of that is gone.

use super::bytes_of;
use super::lives::{Lives, Root, viewed};
use super::place::Placement;
use rc_dialects::func::{calls, constant_args};
use rc_ir::{Body, Diagnostic, Op};

/// Slabs at most: each is an allocation at every call.
const MOST: usize = 8;
/// Moments at most at which a slab may be divided.
const CUTS: usize = 64;
/// Bytes that a division saves at least.
const LEAST: i64 = 1 << 20;
/// Operations at most of a function that is divided.
const OPERATIONS: usize = 1 << 14;

/// Buffers of the arena, and what they span: bytes, and operations (both included).
#[derive(Clone)]
struct Slab {
    buffers: Vec<usize>,
    bytes: (i64, i64),
    first: usize,
    last: usize,
}

/// The slabs of a function's arena.
pub struct Slabs {
    slabs: Vec<Slab>,
    /// The slab of each buffer in the arena.
    of: Vec<Option<usize>>,
    /// The most that is held at once with arguments and results: with the arena as a whole, and with slabs.
    peaks: (i64, i64),
}

impl Slabs {
    /// The slabs of a plan with fixed sizes, where they lower the peak by a hundredth or more.
    pub fn of(body: &Body, lives: &Lives, placement: &Placement) -> Option<Slabs> {
        let ops: Vec<Op> = body.ops(body.entry()?).collect();
        let fixed = placement.offsets.iter().all(|offset| offset.is_static()) && placement.size.is_static();
        if !fixed || ops.len() > OPERATIONS || ops.iter().any(|&op| !calls(body.op_ref(op)).is_empty()) {
            return None;
        }
        let buffer = |i: usize| {
            let (b, from) = (&lives.buffers[i], placement.offsets[i].as_static()?);
            Some(Slab { buffers: vec![i], bytes: (from, from + placement.sizes[i]), first: b.first, last: b.last })
        };
        let inner = (0..lives.buffers.len()).filter(|&i| lives.buffers[i].result.is_none() && placement.sizes[i] > 0);
        let all = inner.map(buffer).collect::<Option<Vec<Slab>>>()?;
        let outside = outside(body, lives, &ops)?;
        let slabs = divided(&all, &outside, placement.planned)?;
        let mut of = vec![None; lives.buffers.len()];
        for (number, slab) in slabs.iter().enumerate() {
            slab.buffers.iter().for_each(|&b| of[b] = Some(number));
        }
        let whole = outside.iter().max()? + placement.planned;
        let peaks = (whole, most(&held(&outside, &slabs)));
        Some(Slabs { slabs, of, peaks })
    }

    /// Pairs of the bytes of the arena where each begins and ends.
    pub fn ranges(&self) -> Vec<i64> {
        self.slabs.iter().flat_map(|slab| [slab.bytes.0, slab.bytes.1]).collect()
    }

    pub fn of_buffer(&self, buffer: usize) -> Option<usize> {
        self.of[buffer]
    }

    pub fn remark(&self, body: &Body) -> Diagnostic {
        let (count, (whole, apart)) = (self.slabs.len(), self.peaks);
        let text = format!(
            "the arena is {count} slabs: {apart} bytes at once with arguments that are let go and results that are made as they are used, {whole} with the arena as a whole"
        );
        *Diagnostic::remark(body.loc(body.root()), text)
    }
}

/// The bytes of arguments and results at each operation: arguments until they are read last, results from where they are written first.
fn outside(body: &Body, lives: &Lives, ops: &[Op]) -> Option<Vec<i64>> {
    let entry = body.entry()?;
    let mut last = vec![None; body.block_args(entry).len()];
    let number: rustc_hash::FxHashMap<_, _> = body.block_args(entry).enumerate().map(|(i, arg)| (arg, i)).collect();
    for (at, &op) in ops.iter().enumerate() {
        for value in body.operands(op) {
            if let Some(&i) = number.get(&viewed(body, value)) {
                last[i] = Some(at);
            }
        }
    }
    let mut bytes = vec![0i64; ops.len()];
    let mut add = |range: &mut dyn Iterator<Item = usize>, size: i64| -> Option<()> {
        for at in range {
            bytes[at] = bytes[at].checked_add(size)?;
        }
        Some(())
    };
    let constant = constant_args(body);
    for (i, arg) in body.block_args(entry).enumerate() {
        let kept = constant.contains(&i) || matches!(lives.root(arg), Root::Donated(_));
        if let (Some(last), false) = (last[i], kept) {
            add(&mut (0..=last), bytes_of(body.ty(arg)).as_static()?)?;
        }
    }
    for buffer in lives.buffers.iter().filter(|b| b.result.is_some()) {
        add(&mut (buffer.first..ops.len()), buffer.size.as_static()?)?;
    }
    Some(bytes)
}

/// Divides where the most is held, in time, as long as that lowers it by a hundredth or more; none where it never does.
fn divided(buffers: &[Slab], outside: &[i64], arena: i64) -> Option<Vec<Slab>> {
    let all: Vec<&Slab> = buffers.iter().collect();
    let mut slabs = vec![Slab { bytes: (0, arena), first: 0, last: outside.len() - 1, ..union(&all)? }];
    let mut peak = most(&held(outside, &slabs));
    while slabs.len() < MOST {
        let now = held(outside, &slabs);
        let at = now.iter().position(|&bytes| bytes == peak)?;
        let candidates = (0..slabs.len()).filter(|&i| slabs[i].first <= at && at <= slabs[i].last);
        let best = candidates
            .flat_map(|i| divisions(buffers, &slabs, i, outside))
            .min_by_key(|found| (found.0, found.1.len()));
        let Some((then, better)) =
            best.filter(|(then, better)| *then <= peak - LEAST.max(peak / 100) && better.len() <= MOST)
        else {
            break;
        };
        (peak, slabs) = (then, better);
    }
    (slabs.len() > 1).then_some(slabs)
}

/// The ways to divide a slab at a moment: what ends before, what begins then or later, and what is alive over it, apart or with either; with the peaks then.
fn divisions(buffers: &[Slab], slabs: &[Slab], which: usize, outside: &[i64]) -> Vec<(i64, Vec<Slab>)> {
    let slab = &slabs[which];
    let others: Vec<Slab> = slabs.iter().enumerate().filter(|&(i, _)| i != which).map(|(_, s)| s.clone()).collect();
    let (without, mut out) = (held(outside, &others), Vec::new());
    let members: Vec<&Slab> = buffers.iter().filter(|b| slab.buffers.contains(&b.buffers[0])).collect();
    let step = ((slab.last - slab.first) / CUTS).max(1);
    for cut in (slab.first + 1..=slab.last).step_by(step) {
        let part =
            |wanted: &dyn Fn(&Slab) -> bool| -> Vec<&Slab> { members.iter().copied().filter(|b| wanted(b)).collect() };
        let [before, after, over] =
            [part(&|b| b.last < cut), part(&|b| b.first >= cut), part(&|b| b.first < cut && cut <= b.last)];
        let ways = [
            vec![before.clone(), after.clone(), over.clone()],
            vec![[&*before, &*over].concat(), after.clone()],
            vec![before, [&*after, &*over].concat()],
        ];
        for way in ways {
            let parts: Vec<Slab> = way.iter().filter_map(|part| union(part)).collect();
            if parts.len() > 1 {
                let peak = most(&held(&without, &parts));
                out.push((peak, others.iter().cloned().chain(parts).collect()));
            }
        }
    }
    out
}

/// What is held at each operation.
fn held(outside: &[i64], slabs: &[Slab]) -> Vec<i64> {
    let mut bytes = outside.to_vec();
    for slab in slabs {
        bytes[slab.first..=slab.last].iter_mut().for_each(|at| *at += slab.bytes.1 - slab.bytes.0);
    }
    bytes
}

fn most(bytes: &[i64]) -> i64 {
    bytes.iter().copied().max().unwrap_or(0)
}

fn union(parts: &[&Slab]) -> Option<Slab> {
    let mut all = (*parts.first()?).clone();
    for part in &parts[1..] {
        all.buffers.extend(&part.buffers);
        all.bytes = (all.bytes.0.min(part.bytes.0), all.bytes.1.max(part.bytes.1));
        (all.first, all.last) = (all.first.min(part.first), all.last.max(part.last));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(number: usize, bytes: (i64, i64), first: usize, last: usize) -> Slab {
        Slab { buffers: vec![number], bytes, first, last }
    }

    #[test]
    fn what_is_large_late_is_a_slab_of_its_own() {
        // Kept values are let go one after the other; the arena is needed when few are left.
        let outside = [1000, 900, 800, 700, 600, 500, 400, 300].map(|mib| mib << 20);
        let mib = |number, (from, to): (i64, i64), first, last| buffer(number, (from << 20, to << 20), first, last);
        let buffers = [mib(0, (0, 10), 0, 1), mib(1, (10, 20), 1, 3), mib(2, (0, 400), 6, 7)];
        let slabs = divided(&buffers, &outside, 400 << 20).unwrap();
        let mut all: Vec<usize> = slabs.iter().flat_map(|s| s.buffers.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        let peak = most(&held(&outside, &slabs));
        assert!(peak <= 1020 << 20, "{peak}");
        let late = slabs.iter().find(|s| s.buffers == [2]).unwrap();
        assert_eq!((late.bytes, late.first, late.last), ((0, 400 << 20), 6, 7));
    }

    #[test]
    fn an_arena_that_is_full_when_most_is_held_stays_whole() {
        let buffers = [buffer(0, (0, 100), 0, 1), buffer(1, (0, 100), 2, 3)];
        assert!(divided(&buffers, &[10 << 20; 4], 100).is_none());
    }
}
