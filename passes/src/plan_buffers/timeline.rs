//! What is alive over a function's operations, for remarks and errors.

use super::lives::Buffer;
use rc_ir::{Body, Diagnostic, Op};
use std::cmp::Reverse;

/// As many buffers are named of those that hold the peak.
const NAMED: usize = 4;

const COLUMNS: usize = 60;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The bytes of intermediate results that are alive at each operation.
pub struct Timeline<'a> {
    buffers: &'a [Buffer],
    sizes: &'a [i64],
    alive: Vec<i64>,
}

impl<'a> Timeline<'a> {
    /// `sizes` are those of the buffers; 0 for what lies elsewhere.
    pub fn of(buffers: &'a [Buffer], sizes: &'a [i64]) -> Timeline<'a> {
        let operations = buffers.iter().map(|b| b.last + 1).max().unwrap_or(0);
        let mut alive = vec![0; operations];
        for (buffer, size) in buffers.iter().zip(sizes) {
            alive[buffer.first..=buffer.last].iter_mut().for_each(|bytes| *bytes += size);
        }
        Timeline { buffers, sizes, alive }
    }

    /// The first operation at which most is alive, and how much.
    fn peak(&self) -> Option<(usize, i64)> {
        let most = self.alive.iter().copied().max().filter(|&most| most > 0)?;
        Some((self.alive.iter().position(|&bytes| bytes == most)?, most))
    }

    /// A bar for each operation, or for some that follow each other: the most that is alive in them.
    fn bars(&self, most: i64) -> String {
        let columns = self.alive.len().min(COLUMNS);
        let bar = |column: usize| {
            let (from, to) = (column * self.alive.len() / columns, (column + 1) * self.alive.len() / columns);
            let bytes = self.alive[from..to].iter().copied().max().unwrap_or(0);
            let level = (i128::from(bytes) * 8).div_euclid(i128::from(most)) as usize;
            BARS[level.max((bytes > 0).into())]
        };
        (0..columns).map(bar).collect()
    }

    /// Adds where the peak is, who holds it, and what is alive before and after.
    pub fn explain(&self, body: &Body, mut diagnostic: Box<Diagnostic>) -> Box<Diagnostic> {
        let (Some((at, most)), Some(entry)) = (self.peak(), body.entry()) else { return diagnostic };
        let ops: Vec<Op> = body.ops(entry).collect();
        let text = format!("most is alive here, {most} bytes; over all operations: |{}|", self.bars(most));
        diagnostic = diagnostic.note(body.loc(ops[at]), text);
        let mut holders: Vec<usize> = (0..self.buffers.len()).collect();
        holders.retain(|&b| self.sizes[b] > 0 && self.buffers[b].first <= at && at <= self.buffers[b].last);
        holders.sort_by_key(|&b| (Reverse(self.sizes[b]), b));
        for &b in holders.iter().take(NAMED) {
            diagnostic = diagnostic
                .note(body.loc(ops[self.buffers[b].first]), format!("{} of them are from here", self.sizes[b]));
        }
        diagnostic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_rise_to_the_peak() {
        let buffer = |first, last| Buffer { size: 1.into(), first, last, result: None };
        let buffers = [buffer(0, 1), buffer(1, 3), buffer(3, 3)];
        let timeline = Timeline::of(&buffers, &[4, 4, 0]);
        assert_eq!(timeline.peak(), Some((1, 8)));
        assert_eq!(timeline.bars(8), "▄█▄▄");
        assert_eq!(Timeline::of(&[], &[]).peak(), None);
    }
}
