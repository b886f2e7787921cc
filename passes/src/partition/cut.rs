//! Minimum cuts of graphs with integer capacities, by Dinitz's algorithm.

use std::collections::VecDeque;

/// A capacity that no cut takes.
pub const INFINITE: u64 = u64::MAX / 4;

/// A directed graph. Node 0 is the source, node 1 the sink.
pub struct Graph {
    /// Of each edge: its end, and what may still flow. Edge `i ^ 1` is edge `i` turned round.
    edges: Vec<(usize, u64)>,
    /// Edges by the node that they leave.
    from: Vec<Vec<usize>>,
}

pub const SOURCE: usize = 0;
pub const SINK: usize = 1;

impl Graph {
    pub fn new() -> Graph {
        Graph { edges: Vec::new(), from: vec![Vec::new(); 2] }
    }
    pub fn node(&mut self) -> usize {
        self.from.push(Vec::new());
        self.from.len() - 1
    }
    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.from[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.from[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    /// Which nodes are on the source's side of the minimum cut that is nearest to the source; none where every cut is infinite.
    pub fn cut(mut self) -> Option<Vec<bool>> {
        let mut flow = 0u64;
        loop {
            let levels = self.levels();
            if levels[SINK] == usize::MAX {
                return (flow < INFINITE).then(|| levels.iter().map(|&l| l != usize::MAX).collect());
            }
            let mut next = vec![0; self.from.len()];
            loop {
                let pushed = self.push(&levels, &mut next);
                if pushed == 0 {
                    break;
                }
                flow = flow.saturating_add(pushed);
                if flow >= INFINITE {
                    return None;
                }
            }
        }
    }

    /// The number of edges from the source to each node, over edges with room.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.from.len()];
        levels[SOURCE] = 0;
        let mut queue = VecDeque::from([SOURCE]);
        while let Some(node) = queue.pop_front() {
            for &edge in &self.from[node] {
                let (to, room) = self.edges[edge];
                if room > 0 && levels[to] == usize::MAX {
                    levels[to] = levels[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        levels
    }

    /// Sends what one path takes, from level to level; 0 where none is left. `next` is the first edge of each node that may still lead on.
    fn push(&mut self, levels: &[usize], next: &mut [usize]) -> u64 {
        let mut path: Vec<usize> = Vec::new();
        let mut node = SOURCE;
        while node != SINK {
            let Some(&edge) = self.from[node].get(next[node]) else {
                let Some(back) = path.pop() else { return 0 };
                node = self.edges[back ^ 1].0;
                next[node] += 1;
                continue;
            };
            let (to, room) = self.edges[edge];
            if room > 0 && levels[to] == levels[node] + 1 {
                path.push(edge);
                node = to;
            } else {
                next[node] += 1;
            }
        }
        let least = path.iter().map(|&e| self.edges[e].1).min().unwrap_or(0);
        for edge in path {
            self.edges[edge].1 -= least;
            self.edges[edge ^ 1].1 += least;
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_where_it_is_narrow() {
        let mut graph = Graph::new();
        let [a, b, c] = [graph.node(), graph.node(), graph.node()];
        for (from, to, capacity) in [(SOURCE, a, 7), (SOURCE, b, 2), (a, c, 3), (b, c, 5), (a, SINK, 1), (c, SINK, 9)] {
            graph.edge(from, to, capacity);
        }
        // 3 + 1 + 2: what leaves a, and what enters b.
        assert_eq!(graph.cut().unwrap(), [true, false, true, false, false]);
    }

    #[test]
    fn says_where_nothing_can_be_cut() {
        let mut graph = Graph::new();
        let a = graph.node();
        graph.edge(SOURCE, a, INFINITE);
        graph.edge(a, SINK, INFINITE);
        assert!(graph.cut().is_none());
    }
}
