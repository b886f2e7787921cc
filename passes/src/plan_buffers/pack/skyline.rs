//! Best fit on a skyline: the lowest stretch of time gets, of the items that fit into it, the one of the longest life, or the largest; where none fits, the
//! stretch is raised to its lower neighbour.

use super::{Item, Packing};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which of the items that fit goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    Length,
    Area,
    Size,
    /// The length, less up to a hundredth of it: another for each item, and for each number.
    About(u64),
}

impl Rule {
    fn key(self, item: &Item) -> Key {
        let (length, size) = (item.length() as i128, i128::from(item.size));
        match self {
            Rule::Length => [length, size],
            Rule::Area => [length * size, size],
            Rule::Size => [size, length],
            Rule::About(number) => [1024 * length - length * share_of(item, number), size],
        }
    }
    /// No item that lives so long has a larger key.
    fn at_most(self, length: usize) -> Key {
        match self {
            Rule::Length => [length as i128, i128::MAX],
            Rule::About(_) => [1024 * length as i128, i128::MAX],
            Rule::Area => [(length as i128).saturating_mul(i128::from(i64::MAX)), i128::MAX],
            Rule::Size => [i128::MAX; 2],
        }
    }
}

type Key = [i128; 2];

/// Any number from 0 to 9, by the item and a number.
fn share_of(item: &Item, number: u64) -> i128 {
    let parts = [item.first as u64, item.end as u64, item.size as u64, number];
    let mixed =
        parts.iter().fold(0u64, |mixed, part| (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    i128::from(mixed % 10)
}

/// The packing, and the items in the order of their places, the lowest first; none where `effort` is not enough.
pub fn place(items: &[Item], rule: Rule, effort: u64) -> Option<(Packing, Vec<u32>)> {
    let mut waiting = Waiting::new(items, rule);
    let mut sky = Sky::new(items.iter().map(|i| i.end).max().unwrap_or(0));
    let mut offsets = vec![0; items.len()];
    let mut order = Vec::new();
    while order.len() < items.len() {
        let Some((at, height)) = sky.lowest() else { break };
        if waiting.looked_at > effort {
            return None;
        }
        let stretch = sky.stretches[at];
        match waiting.take(stretch.first, stretch.end) {
            Some(i) => {
                offsets[i as usize] = height;
                order.push(i);
                sky.build(at, &items[i as usize]);
            }
            None => sky.raise(at),
        }
    }
    Some((Packing::of(items, offsets), order))
}

#[derive(Clone, Copy)]
struct Stretch {
    first: usize,
    end: usize,
    height: i64,
    /// Neighbours by number; the ends of time have none.
    before: Option<usize>,
    after: Option<usize>,
    /// Counts changes, so that old entries of the heap are known.
    version: u32,
    gone: bool,
}

struct Sky {
    stretches: Vec<Stretch>,
    heap: BinaryHeap<Reverse<(i64, usize, usize, u32)>>,
}

impl Sky {
    fn new(end: usize) -> Sky {
        let mut sky = Sky { stretches: Vec::new(), heap: BinaryHeap::new() };
        if end > 0 {
            sky.push(Stretch { first: 0, end, height: 0, before: None, after: None, version: 0, gone: false });
        }
        sky
    }
    fn push(&mut self, stretch: Stretch) -> usize {
        self.stretches.push(stretch);
        self.note(self.stretches.len() - 1);
        self.stretches.len() - 1
    }
    fn note(&mut self, at: usize) {
        let s = &self.stretches[at];
        self.heap.push(Reverse((s.height, s.first, at, s.version)));
    }
    fn lowest(&mut self) -> Option<(usize, i64)> {
        while let Some(&Reverse((height, _, at, version))) = self.heap.peek() {
            if !self.stretches[at].gone && self.stretches[at].version == version {
                return Some((at, height));
            }
            self.heap.pop();
        }
        None
    }
    /// Puts the item on a stretch that it fits into; what is left of the stretch on both sides stays low.
    fn build(&mut self, at: usize, item: &Item) {
        let old = self.stretches[at];
        if item.first > old.first {
            let left = Stretch { end: item.first, after: Some(at), version: 0, ..old };
            let left = self.push(left);
            self.link(old.before, Some(left));
            self.stretches[at].before = Some(left);
        }
        if item.end < old.end {
            let right = Stretch { first: item.end, before: Some(at), version: 0, ..old };
            let right = self.push(right);
            self.link(Some(right), old.after);
            self.stretches[at].after = Some(right);
        }
        self.change(at, item.first, item.end, old.height + item.size);
        self.join(at);
    }
    fn raise(&mut self, at: usize) {
        let s = self.stretches[at];
        let heights = [s.before, s.after].into_iter().flatten().map(|n| self.stretches[n].height);
        // With no neighbour nothing is left that does not fit.
        let Some(height) = heights.min() else { return self.stretches[at].gone = true };
        self.change(at, s.first, s.end, height);
        self.join(at);
    }
    fn change(&mut self, at: usize, first: usize, end: usize, height: i64) {
        let s = &mut self.stretches[at];
        (s.first, s.end, s.height) = (first, end, height);
        s.version += 1;
        self.note(at);
    }
    /// Merges a stretch with neighbours of its height.
    fn join(&mut self, at: usize) {
        let s = self.stretches[at];
        for neighbour in [s.before, s.after].into_iter().flatten() {
            let n = self.stretches[neighbour];
            if n.height != s.height {
                continue;
            }
            let now = self.stretches[at];
            self.stretches[neighbour].gone = true;
            if n.first < s.first {
                self.link(n.before, Some(at));
                self.change(at, n.first, now.end, now.height);
            } else {
                self.link(Some(at), n.after);
                self.change(at, now.first, n.end, now.height);
            }
        }
    }
    fn link(&mut self, before: Option<usize>, after: Option<usize>) {
        if let Some(b) = before {
            self.stretches[b].after = after;
        }
        if let Some(a) = after {
            self.stretches[a].before = before;
        }
    }
}

/// The items that wait, by start; a tree of the least end and the first by the rule below each node.
struct Waiting<'a> {
    items: &'a [Item],
    rule: Rule,
    /// Numbers of items in the order of their starts.
    by_first: Vec<u32>,
    leaves: usize,
    nodes: Vec<(usize, Key)>,
    /// Nodes.
    looked_at: u64,
}

const NONE: (usize, Key) = (usize::MAX, [0, -1]);

impl<'a> Waiting<'a> {
    fn new(items: &'a [Item], rule: Rule) -> Waiting<'a> {
        let mut by_first: Vec<u32> = (0..items.len() as u32).collect();
        // Of those that begin together neighbours end together, too, so that a node is passed by as a whole.
        by_first.sort_by_key(|&i| (items[i as usize].first, items[i as usize].end, i));
        let leaves = items.len().next_power_of_two();
        let mut nodes = vec![NONE; 2 * leaves];
        for (place, &i) in by_first.iter().enumerate() {
            let item = &items[i as usize];
            nodes[leaves + place] = (item.end, rule.key(item));
        }
        for node in (1..leaves).rev() {
            nodes[node] = Self::both(nodes[2 * node], nodes[2 * node + 1]);
        }
        Waiting { items, rule, by_first, leaves, nodes, looked_at: 0 }
    }
    fn both(a: (usize, Key), b: (usize, Key)) -> (usize, Key) {
        (a.0.min(b.0), a.1.max(b.1))
    }
    /// Takes the first item by the rule that lives within a stretch of time.
    fn take(&mut self, first: usize, end: usize) -> Option<u32> {
        let place = |moment: usize| self.by_first.partition_point(|&i| self.items[i as usize].first < moment);
        let (from, to) = (place(first), place(end));
        let mut best = None;
        self.foremost(1, (0, self.leaves), (from, to), end, &mut best);
        let (_, place) = best?;
        let mut node = self.leaves + place;
        self.nodes[node] = NONE;
        while node > 1 {
            node /= 2;
            self.nodes[node] = Self::both(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
        Some(self.by_first[place])
    }
    fn foremost(
        &mut self,
        node: usize,
        span: (usize, usize),
        wanted: (usize, usize),
        end: usize,
        best: &mut Option<(Key, usize)>,
    ) {
        self.looked_at += 1;
        let outside = span.1 <= wanted.0 || wanted.1 <= span.0;
        if outside || self.nodes[node].0 > end || best.is_some_and(|(b, _)| self.at_most(node, span, end) <= b) {
            return;
        }
        if node >= self.leaves {
            *best = Some((self.nodes[node].1, node - self.leaves));
            return;
        }
        let middle = (span.0 + span.1) / 2;
        let mut children = [(2 * node, (span.0, middle)), (2 * node + 1, (middle, span.1))];
        children.sort_by_key(|&(child, span)| Reverse(self.at_most(child, span, end)));
        for (child, span) in children {
            self.foremost(child, span, wanted, end, best);
        }
    }
    /// No item below a node that ends by then goes before this: none begins before the node's first.
    fn at_most(&self, node: usize, span: (usize, usize), end: usize) -> Key {
        let first = self.by_first.get(span.0).map_or(end, |&i| self.items[i as usize].first);
        let room = end.saturating_sub(first);
        let limit = self.rule.at_most(room);
        limit.min(self.nodes[node].1)
    }
}
