use super::super::stretch::{Launch, Node, Spot};
use super::*;
use crate::Error;
use std::cell::{Cell, RefCell};

/// What the driver was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Did {
    Built,
    Patched(Vec<u32>),
    Launched,
    Separately,
}
use Did::*;

/// A driver whose graphs are the addresses that their launches have.
#[derive(Default)]
struct Fake {
    did: RefCell<Vec<Did>>,
    ran: RefCell<Vec<Vec<u64>>>,
    stream: Cell<usize>,
    broken: Cell<bool>,
}

/// The first address and the first size of each launch.
fn meaning(stretch: &Stretch, bases: &[u64], i: usize) -> u64 {
    match &stretch.nodes()[i] {
        Node::Launch(launch) => launch.args[0].address(bases) * 1000 + u64::from(launch.grid[0]),
        Node::Copy { to, .. } => to.address(bases),
        Node::If { flag, .. } | Node::While { flag, .. } => flag.address(bases),
    }
}

fn all(stretch: &Stretch, bases: &[u64]) -> Vec<u64> {
    (0..stretch.nodes().len()).map(|i| meaning(stretch, bases, i)).collect()
}

impl Driver for Fake {
    type Exec = Vec<u64>;

    fn build(&self, stretch: &Stretch, bases: &[u64]) -> Result<Vec<u64>> {
        self.did.borrow_mut().push(Built);
        if self.broken.get() { Err(Error::Invalid("broken".into())) } else { Ok(all(stretch, bases)) }
    }

    fn patch(&self, exec: &mut Vec<u64>, nodes: &[u32], stretch: &Stretch, bases: &[u64]) -> Result<()> {
        if !nodes.is_empty() {
            self.did.borrow_mut().push(Patched(nodes.to_vec()));
        }
        if self.broken.get() {
            return Err(Error::Invalid("broken".into()));
        }
        nodes.iter().for_each(|&i| exec[i as usize] = meaning(stretch, bases, i as usize));
        Ok(())
    }

    fn launch(&self, exec: &Vec<u64>) -> Result<()> {
        self.did.borrow_mut().push(Launched);
        self.ran.borrow_mut().push(exec.clone());
        Ok(())
    }

    fn separately(&self, stretch: &Stretch, bases: &[u64]) -> Result<()> {
        self.did.borrow_mut().push(Separately);
        self.ran.borrow_mut().push(all(stretch, bases));
        Ok(())
    }

    fn stream(&self) -> usize {
        self.stream.get()
    }
}

/// Sixteen launches: half on the first base, half on the second but for one on the third.
fn sixteen(size: u32) -> Arc<Stretch> {
    let base = |i| if i == 15 { 2 } else { u32::from(i >= 8) };
    let launch = |i| Launch {
        kernel: i,
        args: vec![Spot::of(base(i), i as u64)],
        symbols: vec![],
        grid: [size, 1, 1],
        after: None,
    };
    Arc::new(Stretch::new((0..16).map(|i| Node::Launch(launch(i))).collect()))
}

struct Case {
    pool: Pool<Vec<u64>>,
    driver: Fake,
}

impl Case {
    fn new() -> Case {
        Case { pool: Pool::default(), driver: Fake::default() }
    }

    /// Runs, checks that what ran is what was asked for, and says what the driver did.
    fn run(&mut self, stretch: &Arc<Stretch>, bases: &[u64]) -> Vec<Did> {
        self.pool.run(&self.driver, stretch, bases).unwrap();
        assert_eq!(self.driver.ran.borrow().last(), Some(&all(stretch, bases)));
        self.driver.did.take()
    }
}

#[test]
fn a_graph_from_the_second_call_on() {
    let (mut case, s) = (Case::new(), sixteen(4));
    assert_eq!(case.run(&s, &[1, 2, 3]), [Separately]);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Built, Launched]);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Launched]);
    assert!(
        case.pool
            .explain()
            .contains("2 calls by a CUDA graph, 0 launches patched, 1 graphs made, 1 kept; 1 calls launch by launch")
    );
}

#[test]
fn what_moved_is_patched() {
    let (mut case, s) = (Case::new(), sixteen(4));
    case.run(&s, &[1, 2, 3]);
    case.run(&s, &[1, 2, 3]);
    for i in 0..10 {
        assert_eq!(case.run(&s, &[1, 2, 4 + i % 2]), [Patched(vec![15]), Launched]);
    }
    assert_eq!(case.run(&s, &[7, 2, 5]), [Patched((0..8).collect()), Launched], "memory that never came before");
}

#[test]
fn memory_that_comes_again_has_its_own_graph() {
    let (mut case, s) = (Case::new(), sixteen(4));
    let sets = [[1, 2, 3], [11, 12, 3], [21, 22, 3]];
    for _ in 0..3 {
        sets.iter().for_each(|set| _ = case.run(&s, set));
    }
    for set in &sets {
        assert_eq!(case.run(&s, set), [Launched]);
    }
    assert!(case.pool.graphs.len() <= 3);
}

#[test]
fn there_are_so_many_graphs_and_no_more() {
    let (mut case, s) = (Case::new(), sixteen(4));
    for i in 0..60 {
        case.run(&s, &[1 + i % 6, 12 + i % 6, 3]);
    }
    assert_eq!(case.pool.graphs.len(), KEPT);
    assert_eq!(case.pool.counts.built, KEPT as u64, "none is made and thrown away at every call");
    // Long after, other memory takes the place of what nobody uses.
    for i in 0..4 * STALE {
        case.run(&s, &[100 + i % 2, 200 + i % 2, 3]);
    }
    assert_eq!(case.run(&s, &[100, 200, 3]), [Launched]);
    assert_eq!(case.run(&s, &[101, 201, 3]), [Launched]);
    assert_eq!(case.pool.graphs.len(), KEPT);
}

#[test]
fn sizes_that_change_at_every_call_are_patched() {
    let mut case = Case::new();
    assert_eq!(case.run(&sixteen(4), &[1, 2, 3]), [Separately]);
    assert_eq!(case.run(&sixteen(5), &[1, 2, 3]), [Built, Launched]);
    assert_eq!(case.run(&sixteen(6), &[1, 2, 3]), [Patched((0..16).collect()), Launched]);
    assert_eq!(case.run(&sixteen(6), &[1, 2, 3]), [Launched], "recorded anew, but the same");
}

#[test]
fn each_stream_has_its_own() {
    let (mut case, s) = (Case::new(), sixteen(4));
    case.run(&s, &[1, 2, 3]);
    case.run(&s, &[1, 2, 3]);
    case.driver.stream.set(9);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Built, Launched]);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Launched]);
    case.driver.stream.set(0);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Launched]);
    // More streams than graphs: they share.
    for i in 0..40 {
        case.driver.stream.set(i);
        case.run(&s, &[1, 2, 3]);
    }
    assert_eq!(case.pool.graphs.len(), KEPT);
}

#[test]
fn a_driver_that_refuses_is_named_and_not_asked_again() {
    let (mut case, s) = (Case::new(), sixteen(4));
    case.run(&s, &[1, 2, 3]);
    case.driver.broken.set(true);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Built, Separately]);
    assert_eq!(case.run(&s, &[1, 2, 3]), [Separately]);
    assert!(case.pool.explain().ends_with("broken"), "{}", case.pool.explain());

    let mut case = Case::new();
    case.run(&s, &[1, 2, 3]);
    case.run(&s, &[1, 2, 3]);
    case.driver.broken.set(true);
    assert_eq!(case.run(&s, &[1, 2, 4]), [Patched(vec![15]), Separately]);
    assert_eq!(case.pool.graphs.len(), 0, "half patched");
}

#[test]
fn few_launches_are_no_graph() {
    let mut case = Case::new();
    let launch = Launch { kernel: 0, args: vec![Spot::of(0, 0)], symbols: vec![], grid: [1; 3], after: None };
    let s = Arc::new(Stretch::new(vec![Node::Launch(launch); LEAST - 1]));
    (0..4).for_each(|_| assert_eq!(case.run(&s, &[1]), [Separately]));
    assert!(case.pool.explain().ends_with("a graph takes 2"));
}
