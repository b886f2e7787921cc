//! Recording a program's steps as nodes, with choices and loops among them.

use super::prepare::{At, Machine, PreparedLoop, PreparedStep, Test, run_steps};
use super::stretch::{Launch, Node, Spot, Stretch};
use super::{Memory, Program};
use crate::{Error, Result};

impl Stretch {
    /// What these steps queue, none of which needs the host.
    ///
    /// # Errors
    /// A grid that is too large.
    pub fn record(places: &Places, steps: &[PreparedStep]) -> Result<Stretch> {
        let mut recorder = Recorder { places, nodes: Vec::new() };
        run_steps(&mut recorder, steps, &mut Vec::new())?;
        Ok(Stretch::new(recorder.nodes))
    }
}

/// Where a program's memory is, as bases: inputs, results, the arena's slabs, or the arena. Constants stay where they are.
pub struct Places<'a> {
    pub program: &'a Program,
    pub constants: &'a [u64],
}

impl Places<'_> {
    pub fn spot(&self, at: &At, turns: &[usize]) -> Spot {
        let (inputs, outputs) = (self.program.signature.inputs.len(), self.program.signature.outputs.len());
        let (base, start) = match at.memory {
            Memory::Input(i) => (Some(i), 0),
            Memory::Output(i) => (Some(inputs + i), 0),
            Memory::Arena(slab) => (Some(inputs + outputs + slab), 0),
            Memory::Constant(i) => (None, self.constants[i]),
        };
        Spot { base: base.map(|base| base as u32), offset: start + at.offset(turns) as u64 }
    }

    /// What a step queues, if anything: it is a launch or a copy, or nothing is recorded.
    pub fn node(&self, step: &PreparedStep, turns: &[usize]) -> Result<Option<Node>> {
        Ok(match step {
            PreparedStep::Launch { kernel, args, symbols, grid, after, .. } if !grid.contains(&0) => {
                let name = self.program.kernels[*kernel].name;
                let too_large = |_| Error::Invalid(format!("the kernel {name} has a grid of {grid:?} blocks"));
                let mut extents = [0u32; 3];
                for (extent, &n) in extents.iter_mut().zip(grid) {
                    *extent = u32::try_from(n).map_err(too_large)?;
                }
                let args = args.iter().map(|at| self.spot(at, turns)).collect();
                let (symbols, after) = (symbols.clone(), after.clone());
                Some(Node::Launch(Launch { kernel: *kernel, args, symbols, grid: extents, after }))
            }
            PreparedStep::Copy { from, to, bytes, .. } if *bytes > 0 => {
                Some(Node::Copy { to: self.spot(to, turns), from: self.spot(from, turns), bytes: *bytes })
            }
            _ => None,
        })
    }
}

struct Recorder<'a> {
    places: &'a Places<'a>,
    nodes: Vec<Node>,
}

impl Recorder<'_> {
    /// Records steps, and gives how many nodes they are.
    fn count(&mut self, record: impl FnOnce(&mut Self) -> Result<()>) -> Result<usize> {
        let before = self.nodes.len();
        record(self)?;
        Ok(self.nodes.len() - before)
    }

    /// Puts a node in front of those that follow from here on, which `decide` is told the number of.
    fn decision<T>(
        &mut self,
        record: impl FnOnce(&mut Self) -> Result<T>,
        decide: impl FnOnce(T) -> Node,
    ) -> Result<()> {
        let at = self.nodes.len();
        // Its place is kept by any node.
        self.nodes.push(Node::If { flag: Spot { base: None, offset: 0 }, branches: [0, 0] });
        self.nodes[at] = decide(record(self)?);
        Ok(())
    }
}

impl Machine for Recorder<'_> {
    fn simple(&mut self, step: &PreparedStep, turns: &[usize]) -> Result<()> {
        self.nodes.extend(self.places.node(step, turns)?);
        Ok(())
    }

    fn choose(
        &mut self,
        condition: &At,
        [holds, otherwise]: &[Vec<PreparedStep>; 2],
        turns: &mut Vec<usize>,
    ) -> Result<()> {
        let flag = self.places.spot(condition, turns);
        let record = |this: &mut Self| {
            Ok([
                this.count(|this| run_steps(this, holds, turns))?,
                this.count(|this| run_steps(this, otherwise, turns))?,
            ])
        };
        self.decision(record, |branches| Node::If { flag, branches })
    }

    /// Two turns are one of the graph's. Where the first is the last, the values are brought back, and the flag is 0 already.
    fn repeat(&mut self, test: &Test, inner: &PreparedLoop, turns: &mut Vec<usize>) -> Result<()> {
        let flag = self.places.spot(test.flag, turns);
        run_steps(self, &test.steps[0], turns)?;
        let second = |this: &mut Self, turns: &mut Vec<usize>| {
            run_steps(this, &inner.body[1], turns)?;
            run_steps(this, &test.steps[0], turns)
        };
        let record = |this: &mut Self| {
            this.count(|this| {
                run_steps(this, &inner.body[0], turns)?;
                run_steps(this, &test.steps[1], turns)?;
                let branches = |this: &mut Self| {
                    Ok([
                        this.count(|this| second(this, turns))?,
                        this.count(|this| run_steps(this, &inner.back, turns))?,
                    ])
                };
                this.decision(branches, |branches| Node::If { flag, branches })
            })
        };
        self.decision(record, |inner| Node::While { flag, inner })
    }

    fn truth(&mut self, _: &At, _: &[usize]) -> Result<bool> {
        Err(Error::Invalid("a byte that is read while a graph is made".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bindings;
    use super::super::prepare::needs_host;
    use super::super::stretch::outermost;
    use super::*;
    use std::ops::Range;

    /// While the first byte is not 0, the bytes move on by one; then the choice writes the first byte, or the second branch's mark.
    const TEXT: &str = "host.func @starts(%x: memref<8xi8>, %flag: memref<i1>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0]} {
  %from = host.view %x {offset = [0]} : memref<1xi8>
  %to = host.view %flag {offset = [0]} : memref<1xi8>
  host.copy %from, %to
  host.return
}
host.func @moved(%x: memref<8xi8>, %y: memref<8xi8>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0]} {
  %from = host.view %x {offset = [1]} : memref<7xi8>
  %to = host.view %y {offset = [0]} : memref<7xi8>
  host.copy %from, %to
  host.return
}
host.func @same(%x: memref<8xi8>, %mark: memref<8xi8>, %y: memref<8xi8>, %arena: memref<?xi8>) attributes {inputs = 2, arena = [0]} {
  host.copy %x, %y
  host.return
}
host.func @mark(%x: memref<8xi8>, %mark: memref<8xi8>, %y: memref<8xi8>, %arena: memref<?xi8>) attributes {inputs = 2, arena = [0]} {
  host.copy %mark, %y
  host.copy %x, %mark
  host.return
}
host.func @main(%p: memref<i1>, %x: memref<8xi8>, %mark: memref<8xi8>, %y: memref<8xi8>, %arena: memref<?xi8>) attributes {inputs = 3, arena = [512]} {
  %next = host.view %arena {offset = [0]} : memref<8xi8>
  %flag = host.view %arena {offset = [256]} : memref<i1>
  host.while carried(%x) next(%next) flag(%flag) {condition = \"starts\", body = \"moved\"}
  host.if %p args(%x, %mark) results(%y) {then = \"same\", else = \"mark\"}
  host.return
}";

    fn stretch(limit: Option<usize>) -> Option<Stretch> {
        rc_dialects::register();
        let (module, errors) = rc_parser::parse_module("test", TEXT);
        assert!(errors.is_empty(), "{errors:?}");
        let mut program = Program::load(&module.expect("it parses"), Some("main")).unwrap();
        program.while_limit = limit;
        let steps = program.prepare(&Bindings::default()).unwrap();
        (!needs_host(&steps)).then(|| Stretch::record(&Places { program: &program, constants: &[] }, &steps).unwrap())
    }

    /// Runs nodes on memory as a graph does.
    fn run(nodes: &[Node], range: Range<usize>, memory: &mut [u8], bases: &[u64]) {
        for (at, [first, second]) in outermost(nodes, range) {
            match &nodes[at] {
                Node::Copy { to, from, bytes } => {
                    let from = from.address(bases) as usize;
                    memory.copy_within(from..from + bytes, to.address(bases) as usize);
                }
                Node::If { flag, .. } => {
                    let branch = if memory[flag.address(bases) as usize] != 0 { first } else { second };
                    run(nodes, branch, memory, bases);
                }
                Node::While { flag, .. } => {
                    while memory[flag.address(bases) as usize] != 0 {
                        run(nodes, first.clone(), memory, bases);
                    }
                }
                Node::Launch(_) => unreachable!("there are copies alone"),
            }
        }
    }

    #[test]
    fn loops_end_after_any_number_of_turns() {
        let stretch = stretch(None).unwrap();
        let bases = [0, 8, 16, 24, 1024];
        for turns in 0..6u8 {
            for choice in [0, 1] {
                let mut memory = vec![9; 2048];
                memory[0] = choice;
                memory[8..16].fill(0);
                (0..turns).for_each(|i| memory[8 + usize::from(i)] = turns - i);
                memory[8 + usize::from(turns) + 1] = 7;
                memory[16..24].fill(5);
                run(stretch.nodes(), 0..stretch.nodes().len(), &mut memory, &bases);
                let result = if choice == 1 { [0, 7] } else { [5, 5] };
                assert_eq!((&memory[24..26], &memory[8..10]), (&result[..], &[0, 7][..]), "{turns} turns");
                assert_eq!(memory[16], if choice == 1 { 5 } else { 0 });
            }
        }
    }

    #[test]
    fn what_decides_is_patched_when_its_byte_moves() {
        let stretch = stretch(None).unwrap();
        let decides = |i: &u32| stretch.nodes()[*i as usize].decides();
        let from = [0, 8, 16, 24, 1024];
        let moved = stretch.changes(&[1, 8, 16, 24, 1024], &stretch, &from).unwrap();
        assert!(moved.len() == 1 && decides(&moved[0]), "the choice alone: {moved:?}");
        let moved = stretch.changes(&[0, 8, 16, 24, 2048], &stretch, &from).unwrap();
        assert_eq!(moved.iter().filter(|i| decides(i)).count(), 2, "the loop, and the choice in it");
    }

    #[test]
    fn turns_that_are_counted_need_the_host() {
        assert!(stretch(Some(9)).is_none());
    }
}
