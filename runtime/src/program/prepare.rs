//! A program's steps for given sizes: every expression a number.

use super::pace::Pace;
use super::signature::{Bindings, evaluate};
use super::{After, Foreign, Loop, Memory, Passed, Place, Program, Step, Until};
use crate::foreign::{self, Buffer, Call, Function, On};
use crate::{DType, Error, Result};
use rc_ir::Dim;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;

/// A place in memory.
#[derive(Clone, Debug)]
pub struct At {
    pub memory: Memory,
    offset: usize,
    turns: SmallVec<[(usize, usize); 1]>,
    /// The bytes of the buffer here, where bands lie around it.
    pub guarded: Option<usize>,
}

impl At {
    /// Bytes from the memory's start, in these turns of the loops around it, the outermost first.
    pub fn offset(&self, turns: &[usize]) -> usize {
        self.turns.iter().fold(self.offset, |sum, &(depth, bytes)| sum + turns[depth] * bytes)
    }
}

/// Steps with every size known.
pub enum PreparedStep {
    Launch { kernel: usize, args: Vec<At>, symbols: Vec<i64>, grid: [u64; 3], after: After, pace: Pace },
    Copy { from: At, to: At, bytes: usize, pace: Pace },
    If { condition: At, branches: [Vec<PreparedStep>; 2] },
    Loop(Box<PreparedLoop>),
    Foreign(Box<PreparedForeign>),
}

/// As [`Foreign`].
pub struct PreparedForeign {
    pub function: usize,
    pub config: String,
    pub sizes: Vec<i64>,
    pub args: Vec<PreparedPassed>,
    pub results: Vec<PreparedPassed>,
}

/// As [`Passed`].
pub struct PreparedPassed {
    at: At,
    dtype: DType,
    shape: Vec<usize>,
}

impl PreparedForeign {
    /// Calls the function of this name, `address` being what says where a place is.
    pub fn run(&self, (name, function): (&str, &Function), on: On, address: impl Fn(&At) -> u64) -> Result<()> {
        let buffer = |passed: &PreparedPassed| Buffer {
            address: address(&passed.at) as *mut u8,
            dtype: passed.dtype,
            shape: passed.shape.clone(),
        };
        let buffers = |passed: &[PreparedPassed]| passed.iter().map(buffer).collect::<Vec<Buffer>>();
        let (args, results) = (buffers(&self.args), buffers(&self.results));
        let call =
            Call { function: name, config: &self.config, sizes: &self.sizes, args: &args, results: &results, on };
        foreign::call(function, &call)
    }
}

/// As [`Loop`].
pub struct PreparedLoop {
    pub until: PreparedUntil,
    pub body: [Vec<PreparedStep>; 2],
    pub back: Vec<PreparedStep>,
}

pub enum PreparedUntil {
    Times(usize),
    /// After so many turns it is an error that it goes on.
    False {
        test: [Vec<PreparedStep>; 2],
        flag: At,
        limit: Option<usize>,
    },
}

/// Whether the host has to take part while it runs: to call a function, or to count turns.
pub fn needs_host(steps: &[PreparedStep]) -> bool {
    let any = |all: &[Vec<PreparedStep>]| all.iter().any(|steps| needs_host(steps));
    steps.iter().any(|step| match step {
        PreparedStep::Launch { .. } | PreparedStep::Copy { .. } => false,
        PreparedStep::If { branches, .. } => any(branches),
        // What it does may be none of the graph's: memory that it takes, other streams.
        PreparedStep::Foreign(_) => true,
        PreparedStep::Loop(inner) => {
            any(&inner.body)
                || match &inner.until {
                    PreparedUntil::Times(_) => false,
                    PreparedUntil::False { test, limit, .. } => limit.is_some() || any(test),
                }
        }
    })
}

impl Program {
    /// The steps where the symbols have these values.
    ///
    /// # Errors
    /// If sizes differ that the program assumes to be equal.
    pub fn prepare(&self, bindings: &Bindings) -> Result<Vec<PreparedStep>> {
        for &(size, expected) in &self.asserts {
            let (is, wanted) = (evaluate(size, bindings)?, evaluate(expected, bindings)?);
            if is != wanted {
                return Err(Error::Invalid(format!(
                    "the program assumes that {size} = {expected}, and for these arguments it is {is}, not {wanted}"
                )));
            }
        }
        Prepare { bindings, while_limit: self.while_limit, known: RefCell::default() }.steps(&self.steps)
    }

    /// Bytes of the arena where the symbols have these values.
    pub fn arena_bytes(&self, bindings: &Bindings) -> Result<usize> {
        evaluate(self.arena, bindings).map(|n| n as usize)
    }
}

struct Prepare<'a> {
    bindings: &'a Bindings,
    /// Turns that a loop may take whose end data decides.
    while_limit: Option<usize>,
    /// Expressions that were evaluated: steps share most of them.
    known: RefCell<FxHashMap<Dim, i64>>,
}

impl Prepare<'_> {
    fn number(&self, dim: Dim) -> Result<i64> {
        if let Some(value) = dim.as_static() {
            return evaluate(Dim::Static(value), self.bindings);
        }
        if let Some(&value) = self.known.borrow().get(&dim) {
            return Ok(value);
        }
        let value = evaluate(dim, self.bindings)?;
        self.known.borrow_mut().insert(dim, value);
        Ok(value)
    }

    fn at(&self, place: &Place) -> Result<At> {
        let turns = place.turns.iter().map(|&(depth, bytes)| Ok((depth, self.number(bytes)? as usize)));
        let turns = turns.collect::<Result<_>>()?;
        let guarded = place.guarded.map(|bytes| self.number(bytes)).transpose()?.map(|bytes| bytes as usize);
        Ok(At { memory: place.memory, offset: self.number(place.offset)? as usize, turns, guarded })
    }

    fn steps(&self, steps: &[Step]) -> Result<Vec<PreparedStep>> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn both(&self, [first, second]: &[Vec<Step>; 2]) -> Result<[Vec<PreparedStep>; 2]> {
        Ok([self.steps(first)?, self.steps(second)?])
    }

    fn step(&self, step: &Step) -> Result<PreparedStep> {
        Ok(match step {
            Step::Launch { kernel, args, symbols, grid, after } => {
                let mut extents = [0; 3];
                for (extent, &dim) in extents.iter_mut().zip(grid) {
                    *extent = self.number(dim)? as u64;
                }
                PreparedStep::Launch {
                    kernel: *kernel,
                    args: args.iter().map(|place| self.at(place)).collect::<Result<_>>()?,
                    symbols: symbols.iter().map(|&d| self.number(d)).collect::<Result<_>>()?,
                    grid: extents,
                    after: after.clone(),
                    pace: Pace::default(),
                }
            }
            Step::Copy { from, to, bytes } => {
                let (from, to, bytes) = (self.at(from)?, self.at(to)?, self.number(*bytes)? as usize);
                PreparedStep::Copy { from, to, bytes, pace: Pace::default() }
            }
            Step::If { condition, branches } => {
                PreparedStep::If { condition: self.at(condition)?, branches: self.both(branches)? }
            }
            Step::Loop(inner) => PreparedStep::Loop(Box::new(self.turns(inner)?)),
            Step::Foreign(call) => PreparedStep::Foreign(Box::new(self.foreign(call)?)),
        })
    }

    fn foreign(&self, call: &Foreign) -> Result<PreparedForeign> {
        let passed = |passed: &Passed| {
            let shape = passed.shape.iter().map(|&d| Ok(self.number(d)? as usize)).collect::<Result<_>>()?;
            Ok(PreparedPassed { at: self.at(&passed.place)?, dtype: passed.dtype, shape })
        };
        Ok(PreparedForeign {
            function: call.function,
            config: call.config.clone(),
            sizes: call.sizes.iter().map(|&d| self.number(d)).collect::<Result<_>>()?,
            args: call.args.iter().map(passed).collect::<Result<_>>()?,
            results: call.results.iter().map(passed).collect::<Result<_>>()?,
        })
    }

    fn turns(&self, inner: &Loop) -> Result<PreparedLoop> {
        let until = match &inner.until {
            Until::Times(times) => PreparedUntil::Times(self.number(*times)? as usize),
            Until::False { test, flag } => {
                PreparedUntil::False { test: self.both(test)?, flag: self.at(flag)?, limit: self.while_limit }
            }
        };
        Ok(PreparedLoop { until, body: self.both(&inner.body)?, back: self.steps(&inner.back)? })
    }
}

/// What runs steps: a machine's launches, copies and foreign calls, and reading a byte.
pub trait Machine {
    /// Runs or queues a launch, a copy or a foreign call, in these turns of the loops around it.
    fn simple(&mut self, step: &PreparedStep, turns: &[usize]) -> Result<()>;

    /// Whether the byte at a place is not 0 once all steps before are done.
    fn truth(&mut self, at: &At, turns: &[usize]) -> Result<bool>;

    /// Runs the first branch where a byte is not 0, else the second.
    fn choose(&mut self, condition: &At, branches: &[Vec<PreparedStep>; 2], turns: &mut Vec<usize>) -> Result<()>
    where
        Self: Sized,
    {
        let [holds, otherwise] = branches;
        let branch = if self.truth(condition, turns)? { holds } else { otherwise };
        run_steps(self, branch, turns)
    }

    /// Runs a loop that ends when a test leaves 0; its turn is the last of `turns`.
    fn repeat(&mut self, test: &Test, inner: &PreparedLoop, turns: &mut Vec<usize>) -> Result<()>
    where
        Self: Sized,
    {
        let mut turn = 0;
        loop {
            run_steps(self, &test.steps[turn % 2], turns)?;
            if !self.truth(test.flag, turns)? {
                break;
            }
            if let Some(limit) = test.limit.filter(|&limit| turn >= limit) {
                return Err(Error::Invalid(format!("a core.while has not ended after {limit} turns")));
            }
            run_steps(self, &inner.body[turn % 2], turns)?;
            turn += 1;
            *turns.last_mut().expect("of this loop") = turn;
        }
        if turn % 2 == 1 { run_steps(self, &inner.back, turns) } else { Ok(()) }
    }
}

/// What ends a loop: [`PreparedUntil::False`].
pub struct Test<'a> {
    pub steps: &'a [Vec<PreparedStep>; 2],
    pub flag: &'a At,
    limit: Option<usize>,
}

/// Runs steps in order; `turns` are those of the loops around them.
pub fn run_steps(machine: &mut impl Machine, steps: &[PreparedStep], turns: &mut Vec<usize>) -> Result<()> {
    for step in steps {
        match step {
            PreparedStep::Launch { .. } | PreparedStep::Copy { .. } | PreparedStep::Foreign(_) => {
                machine.simple(step, turns)?;
            }
            PreparedStep::If { condition, branches } => machine.choose(condition, branches, turns)?,
            PreparedStep::Loop(inner) => run_loop(machine, inner, turns)?,
        }
    }
    Ok(())
}

fn run_loop(machine: &mut impl Machine, inner: &PreparedLoop, turns: &mut Vec<usize>) -> Result<()> {
    let depth = turns.len();
    turns.push(0);
    match &inner.until {
        PreparedUntil::False { test, flag, limit } => {
            machine.repeat(&Test { steps: test, flag, limit: *limit }, inner, turns)?;
        }
        PreparedUntil::Times(times) => {
            for turn in 0..*times {
                turns[depth] = turn;
                run_steps(machine, &inner.body[turn % 2], turns)?;
            }
            turns[depth] = *times;
            if times % 2 == 1 {
                run_steps(machine, &inner.back, turns)?;
            }
        }
    }
    turns.pop();
    Ok(())
}
