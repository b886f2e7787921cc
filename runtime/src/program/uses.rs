//! From which step to which a program needs each input and each result.

use super::{Memory, Place, Program, Step, Until};

/// The numbers of a program's outermost steps that use its caller's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uses {
    /// The first step that uses each result; none that does.
    pub first_output: Vec<Option<usize>>,
    /// The last step that uses each input; none that does.
    pub last_input: Vec<Option<usize>>,
    /// The first and the last step that use each slab of the arena.
    pub slabs: Vec<Option<(usize, usize)>>,
}

impl Program {
    pub fn uses(&self) -> Uses {
        let mut uses = Uses {
            first_output: vec![None; self.signature.outputs.len()],
            last_input: vec![None; self.signature.inputs.len()],
            slabs: vec![None; self.slabs.len()],
        };
        for (number, step) in self.steps.iter().enumerate() {
            visit(step, &mut |place| match place.memory {
                Memory::Input(i) => uses.last_input[i] = Some(number),
                Memory::Output(i) => _ = uses.first_output[i].get_or_insert(number),
                Memory::Arena(slab) => {
                    if let Some(uses) = uses.slabs.get_mut(slab) {
                        *uses = Some((uses.map_or(number, |uses| uses.0), number));
                    }
                }
                Memory::Constant(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "host.func @main(%x: memref<4xf32>, %y: memref<4xf32>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [512], slabs = array<i64: 0, 256, 0, 512>} {
  %a = host.view %arena {offset = [0], slab = 0} : memref<4xf32>
  host.copy %x, %a
  %b = host.view %arena {offset = [256], slab = 1} : memref<4xf32>
  host.copy %a, %b
  %c = host.view %b {offset = [0]} : memref<2x2xf32>
  %d = host.view %y {offset = [0]} : memref<2x2xf32>
  host.copy %c, %d
  host.return
}";

    fn load(text: &str) -> rc_ir::Result<Program> {
        rc_dialects::register();
        let (module, errors) = rc_parser::parse_module("test", text);
        assert!(errors.is_empty(), "{errors:?}");
        Program::load(&module.expect("it parses"), None)
    }

    #[test]
    fn slabs_are_used_from_their_first_buffer_to_their_last() {
        let program = load(TEXT).unwrap();
        assert_eq!(program.slabs, [(0, 256), (0, 512)]);
        let uses = program.uses();
        assert_eq!(uses.slabs, [Some((0, 1)), Some((1, 2))]);
        assert_eq!((uses.last_input, uses.first_output), (vec![Some(0)], vec![Some(2)]));
    }

    #[test]
    fn views_of_the_arena_name_one_of_its_slabs() {
        for wrong in [TEXT.replace(", slab = 1", ""), TEXT.replace("slab = 1", "slab = 2")] {
            assert!(load(&wrong).unwrap_err().message.contains("names none of the function's 2 slabs"));
        }
        assert!(load(&TEXT.replace("0, 512>", "512>")).unwrap_err().message.contains("malformed pairs"));
    }
}
