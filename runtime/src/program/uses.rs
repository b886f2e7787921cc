//! From which step to which a program needs each input and each result.

use super::{Memory, Place, Program, Step, Until};

/// The numbers of a program's outermost steps that use its caller's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uses {
    /// The first step that uses each result; none that does.
    pub first_output: Vec<Option<usize>>,
    /// The last step that uses each input; none that does.
    pub last_input: Vec<Option<usize>>,
}

impl Program {
    pub fn uses(&self) -> Uses {
        let mut uses = Uses {
            first_output: vec![None; self.signature.outputs.len()],
            last_input: vec![None; self.signature.inputs.len()],
        };
        for (number, step) in self.steps.iter().enumerate() {
            visit(step, &mut |place| match place.memory {
                Memory::Input(i) => uses.last_input[i] = Some(number),
                Memory::Output(i) => _ = uses.first_output[i].get_or_insert(number),
                Memory::Arena | Memory::Constant(_) => {}
            });
        }
        uses
    }
}

/// Calls `f` with every place that a step names.
fn visit(step: &Step, f: &mut dyn FnMut(&Place)) {
    let all = |steps: &[Step], f: &mut dyn FnMut(&Place)| steps.iter().for_each(|step| visit(step, f));
    match step {
        Step::Launch { args, .. } => args.iter().for_each(f),
        Step::Copy { from, to, .. } => [from, to].into_iter().for_each(f),
        Step::Foreign(call) => call.args.iter().chain(&call.results).for_each(|passed| f(&passed.place)),
        Step::If { condition, branches } => {
            f(condition);
            branches.iter().for_each(|branch| all(branch, f));
        }
        Step::Loop(inner) => {
            inner.body.iter().chain([&inner.back]).for_each(|steps| all(steps, f));
            if let Until::False { test, flag } = &inner.until {
                test.iter().for_each(|steps| all(steps, f));
                f(flag);
            }
        }
    }
}
