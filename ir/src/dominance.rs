//! Dominators of the blocks of a region: Cooper, Harvey and Kennedy's iteration over reverse postorder.

use crate::body::{Block, Body, Op, Region};
use rustc_hash::FxHashMap;

/// The dominator tree of a region's control-flow graph.
pub struct Dominators {
    /// Reachable blocks in reverse postorder, the entry first.
    order: Vec<Block>,
    number: FxHashMap<Block, u32>,
    /// By number: the number of the immediate dominator; the entry's is itself.
    idom: Vec<u32>,
}

impl Dominators {
    pub fn new(body: &Body, region: Region) -> Dominators {
        let order = reverse_postorder(body, region);
        let number: FxHashMap<Block, u32> = order.iter().enumerate().map(|(i, &b)| (b, i as u32)).collect();
        let mut predecessors: Vec<Vec<u32>> = vec![Vec::new(); order.len()];
        for (i, &block) in order.iter().enumerate() {
            for successor in successors(body, block) {
                if let Some(&s) = number.get(&successor) {
                    predecessors[s as usize].push(i as u32);
                }
            }
        }
        let idom = iterate(&predecessors);
        Dominators { order, number, idom }
    }
    /// Whether the entry leads to the block.
    pub fn is_reachable(&self, block: Block) -> bool {
        self.number.contains_key(&block)
    }
    /// Reachable blocks, each after its dominators.
    pub fn order(&self) -> &[Block] {
        &self.order
    }
    /// The immediate dominator; `None` for the entry and for unreachable blocks.
    pub fn idom(&self, block: Block) -> Option<Block> {
        let &n = self.number.get(&block)?;
        (n != 0).then(|| self.order[self.idom[n as usize] as usize])
    }
    /// Whether every path from the entry to `b` passes `a`. Any block dominates an unreachable one.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let Some(&b) = self.number.get(&b) else { return true };
        let Some(&a) = self.number.get(&a) else { return false };
        let mut at = b;
        while at > a {
            at = self.idom[at as usize];
        }
        at == a
    }
}

/// The blocks that a block's last op may branch to.
pub fn successors(body: &Body, block: Block) -> impl Iterator<Item = Block> {
    body.last_op(block).map(|op| body.successors(op)).unwrap_or_default().into_iter()
}

fn reverse_postorder(body: &Body, region: Region) -> Vec<Block> {
    let Some(entry) = body.first_block(region) else { return Vec::new() };
    let mut seen = rustc_hash::FxHashSet::from_iter([entry]);
    let mut out = Vec::new();
    let mut stack = vec![(entry, successors(body, entry).collect::<Vec<_>>())];
    while let Some((block, rest)) = stack.last_mut() {
        match rest.pop() {
            Some(next) if seen.insert(next) => stack.push((next, successors(body, next).collect())),
            Some(_) => {}
            None => {
                out.push(*block);
                stack.pop();
            }
        }
    }
    out.reverse();
    out
}

fn iterate(predecessors: &[Vec<u32>]) -> Vec<u32> {
    const UNKNOWN: u32 = u32::MAX;
    let mut idom = vec![UNKNOWN; predecessors.len()];
    if let Some(entry) = idom.first_mut() {
        *entry = 0;
    }
    loop {
        let mut changed = false;
        for b in 1..idom.len() {
            let known = predecessors[b].iter().copied().filter(|&p| idom[p as usize] != UNKNOWN);
            let Some(new) = known.reduce(|a, b| intersect(&idom, a, b)) else { continue };
            changed |= idom[b] != new;
            idom[b] = new;
        }
        if !changed {
            return idom;
        }
    }
}

fn intersect(idom: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        if a > b {
            a = idom[a as usize];
        } else {
            b = idom[b as usize];
        }
    }
    a
}

/// The op of `region` that is `op` or holds it; `None` where `op` is not in the region.
pub fn ancestor_in(body: &Body, region: Region, op: Op) -> Option<Op> {
    let in_region = |&op: &Op| body.parent(op).and_then(|b| body.block_region(b)) == Some(region);
    std::iter::successors(Some(op), |&op| body.parent_op(op)).find(in_region)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::OpState;
    use crate::loc::Loc;

    fn branch(body: &mut Body, from: Block, to: &[Block]) {
        let mut state = OpState::new("t.br", Loc::UNKNOWN);
        state.successors = to.into();
        let op = body.create(state);
        body.append(from, op);
    }

    #[test]
    fn loops_diamonds_and_unreachable_blocks() {
        let mut state = OpState::new("t.root", Loc::UNKNOWN);
        state.regions = 1;
        let mut body = Body::new(state);
        let region = body.regions(body.root())[0];
        let b: Vec<Block> = (0..7).map(|_| body.add_block(region, &[])).collect();
        // 0 -> 1, 2; 1 -> 3; 2 -> 3; 3 -> 4; 4 -> 3, 5; 6 -> 5 is unreachable.
        for (from, to) in [(0, vec![1, 2]), (1, vec![3]), (2, vec![3]), (3, vec![4]), (4, vec![3, 5]), (6, vec![5])] {
            let to: Vec<Block> = to.iter().map(|&i| b[i]).collect();
            branch(&mut body, b[from], &to);
        }
        let dom = Dominators::new(&body, region);
        let idom: Vec<Option<usize>> = b.iter().map(|&x| dom.idom(x).map(|d| d.index())).collect();
        assert_eq!(idom, [None, Some(0), Some(0), Some(0), Some(3), Some(4), None]);
        assert!(dom.dominates(b[3], b[5]) && !dom.dominates(b[1], b[3]) && dom.dominates(b[4], b[4]));
        assert!(!dom.is_reachable(b[6]) && dom.dominates(b[1], b[6]) && !dom.dominates(b[6], b[5]));
    }
}
