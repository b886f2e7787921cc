//! Launches, copies, choices and loops in which the host has nothing to do, with every size a number: what one CUDA graph runs.
//!
//! Addresses are given as places in a call's memory. A call says where its memory begins: its bases. Which launches depend on which base is
//! known, so that a graph made for other bases, or for other sizes, is patched where it differs and nowhere else.

use super::After;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place in a call's memory: bytes from one of its bases, or an address that is the same at every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    pub base: Option<u32>,
    pub offset: u64,
}

impl Spot {
    pub fn address(&self, bases: &[u64]) -> u64 {
        self.base.map_or(0, |base| bases[base as usize]).wrapping_add(self.offset)
    }

    #[cfg(test)]
    pub fn of(base: u32, offset: u64) -> Spot {
        Spot { base: Some(base), offset }
    }
}

/// A launch, a copy, or what decides about the nodes after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Launch(Launch),
    Copy {
        to: Spot,
        from: Spot,
        bytes: usize,
    },
    /// So many nodes where the byte is not 0, else so many after these.
    If {
        flag: Spot,
        branches: [usize; 2],
    },
    /// So many nodes again and again while the byte is not 0.
    While {
        flag: Spot,
        inner: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    pub kernel: usize,
    pub args: Vec<Spot>,
    pub symbols: Vec<i64>,
    pub grid: [u32; 3],
    pub after: After,
}

impl Node {
    fn spots(&self) -> impl Iterator<Item = &Spot> {
        let (args, others): (&[Spot], _) = match self {
            Node::Launch(launch) => (&launch.args, [None, None]),
            Node::Copy { to, from, .. } => (&[], [Some(to), Some(from)]),
            Node::If { flag, .. } | Node::While { flag, .. } => (&[], [Some(flag), None]),
        };
        args.iter().chain(others.into_iter().flatten())
    }

    /// How many of the nodes after it are inside of it: of a choice in each branch.
    fn inside(&self) -> [usize; 2] {
        match self {
            Node::Launch(_) | Node::Copy { .. } => [0, 0],
            Node::If { branches, .. } => *branches,
            Node::While { inner, .. } => [*inner, 0],
        }
    }

    /// Whether it decides about others.
    pub fn decides(&self) -> bool {
        matches!(self, Node::If { .. } | Node::While { .. })
    }

    /// Whether a graph's node of the other can be patched to be this.
    fn is_like(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Launch(a), Node::Launch(b)) => (a.kernel, &a.after) == (b.kernel, &b.after),
            (Node::Copy { .. }, Node::Copy { .. }) => true,
            (Node::If { branches: a, .. }, Node::If { branches: b, .. }) => a == b,
            (Node::While { inner: a, .. }, Node::While { inner: b, .. }) => a == b,
            _ => false,
        }
    }

    /// Whether this on the one memory does what the other does on its own.
    fn is_same(&self, bases: &[u64], other: &Node, others: &[u64]) -> bool {
        let sizes = match (self, other) {
            (Node::Launch(a), Node::Launch(b)) => (a.grid, &a.symbols) == (b.grid, &b.symbols),
            (Node::Copy { bytes: a, .. }, Node::Copy { bytes: b, .. }) => a == b,
            _ => self.is_like(other),
        };
        sizes && self.spots().map(|spot| spot.address(bases)).eq(other.spots().map(|spot| spot.address(others)))
    }
}

/// The nodes of a range that are inside of none: the place of each, and of the nodes inside of it.
pub fn outermost(nodes: &[Node], range: Range<usize>) -> impl Iterator<Item = (usize, [Range<usize>; 2])> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let at = (next < range.end).then_some(next)?;
        let [first, second] = nodes[at].inside();
        let middle = at + 1 + first;
        next = middle + second;
        Some((at, [at + 1..middle, middle..next]))
    })
}

/// Nodes, one after the other.
#[derive(Debug)]
pub struct Stretch {
    /// No other one of this process has it.
    pub id: u64,
    nodes: Vec<Node>,
    /// For each base the nodes whose parameters follow from it.
    users: Vec<Vec<u32>>,
}

impl Stretch {
    pub fn new(nodes: Vec<Node>) -> Stretch {
        let mut users: Vec<Vec<u32>> = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            for base in node.spots().filter_map(|spot| spot.base) {
                let base = base as usize;
                users.resize(users.len().max(base + 1), Vec::new());
                if users[base].last() != Some(&(i as u32)) {
                    users[base].push(i as u32);
                }
            }
        }
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Stretch { id: NEXT.fetch_add(1, Ordering::Relaxed), nodes, users }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether a graph of the other can be patched to run this.
    pub fn is_like(&self, other: &Stretch) -> bool {
        std::ptr::eq(self, other)
            || self.nodes.len() == other.nodes.len() && self.nodes.iter().zip(&other.nodes).all(|(a, b)| a.is_like(b))
    }

    /// The nodes to patch, where a graph of the other on its memory is to run this on other memory; `None` if it cannot.
    pub fn changes(&self, bases: &[u64], other: &Stretch, others: &[u64]) -> Option<Vec<u32>> {
        if std::ptr::eq(self, other) {
            return Some(self.moved(bases, others));
        }
        let pairs = || self.nodes.iter().zip(&other.nodes);
        let differs = |(_, (a, b)): &(u32, (&Node, &Node))| !a.is_same(bases, b, others);
        self.is_like(other).then(|| (0..).zip(pairs()).filter(differs).map(|(i, _)| i).collect())
    }

    /// The nodes whose memory begins elsewhere.
    fn moved(&self, bases: &[u64], others: &[u64]) -> Vec<u32> {
        let moved = |(users, (a, b)): (_, (&u64, &u64))| (a != b).then_some(users);
        let mut nodes: Vec<u32> =
            self.users.iter().zip(bases.iter().zip(others)).filter_map(moved).flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(kernel: usize, args: &[Spot], size: u32) -> Node {
        Node::Launch(Launch {
            kernel,
            args: args.to_vec(),
            symbols: vec![i64::from(size)],
            grid: [size, 1, 1],
            after: None,
        })
    }

    /// Kernel 0 from base 0 to base 2, kernel 1 there, a copy from there to base 1.
    fn three(size: u32) -> Stretch {
        let (x, y, arena) = (Spot::of(0, 0), Spot::of(1, 0), Spot::of(2, 64));
        let copy = Node::Copy { to: y, from: arena, bytes: 4 * size as usize };
        Stretch::new(vec![launch(0, &[x, arena], size), launch(1, &[arena, arena], 7), copy])
    }

    #[test]
    fn what_depends_on_a_base_is_patched_when_it_moves() {
        let s = three(5);
        let from = [100, 200, 300];
        assert_eq!(s.changes(&from, &s, &from), Some(vec![]));
        assert_eq!(s.changes(&[101, 200, 300], &s, &from), Some(vec![0]));
        assert_eq!(s.changes(&[100, 201, 300], &s, &from), Some(vec![2]));
        assert_eq!(s.changes(&[101, 201, 300], &s, &from), Some(vec![0, 2]));
        assert_eq!(s.changes(&[100, 200, 301], &s, &from), Some(vec![0, 1, 2]));
    }

    #[test]
    fn other_sizes_patch_what_they_are_in() {
        let (a, b, bases) = (three(5), three(6), [100, 200, 300]);
        assert_eq!(b.changes(&bases, &a, &bases), Some(vec![0, 2]));
        assert_eq!(three(5).changes(&bases, &a, &bases), Some(vec![]), "equal sizes, recorded twice");
        // The same addresses by another base.
        let moved = Stretch::new(vec![launch(1, &[Spot::of(0, 0)], 7)]);
        let here = Stretch::new(vec![launch(1, &[Spot::of(1, 0)], 7)]);
        assert_eq!(moved.changes(&[9, 9], &here, &[9, 9]), Some(vec![]));
        assert_eq!(moved.changes(&[8, 9], &here, &[9, 9]), Some(vec![0]));
    }

    #[test]
    fn other_kernels_are_another_graph() {
        let bases = [100, 200, 300];
        let other = Stretch::new(vec![launch(0, &[Spot::of(0, 0)], 1), launch(2, &[Spot::of(0, 0)], 7)]);
        assert_eq!(three(5).changes(&bases, &other, &bases), None);
        let copies = Stretch::new(vec![three(5).nodes[2].clone(); 3]);
        assert!(!copies.is_like(&three(5)) && three(5).is_like(&three(6)));
    }
}
