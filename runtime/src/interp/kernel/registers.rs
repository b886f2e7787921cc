//! Which values share a register: those that are not alive together. A thread's registers then stay few, and near, where the text has thousands of values.

use rc_dialects::op;

use super::code::{Inst, Kind};

/// From the instruction that first writes a value to the last that reads or writes it.
#[derive(Clone, Copy)]
struct Life {
    value: usize,
    first: usize,
    last: usize,
}

/// Makes values, of which there are `count`, registers. Gives those of the `arguments`, which are there at the start, and how many registers there are.
pub(super) fn assign(insts: &mut [Inst], arguments: &[usize], count: usize) -> (Vec<usize>, usize) {
    let mut lives = lives(insts, arguments, count);
    lives.sort_unstable_by_key(|life| (life.first, life.value));
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); insts.len() + 1];
    let (mut register_of, mut free, mut registers, mut at) = (vec![0; count], Vec::new(), 0, 0);
    for life in lives {
        // What an instruction reads is there until it is done: its results lie elsewhere.
        while at < life.first {
            free.append(&mut ends[at]);
            at += 1;
        }
        let register = free.pop().unwrap_or_else(|| (registers, registers += 1).0);
        register_of[life.value] = register;
        ends[life.last].push(register);
    }
    for inst in insts {
        inst.args.iter_mut().chain(&mut inst.outs).for_each(|value| *value = register_of[*value]);
    }
    (arguments.iter().map(|&value| register_of[value]).collect(), registers)
}

/// The lives of all values that instructions name, and of the arguments.
fn lives(insts: &[Inst], arguments: &[usize], count: usize) -> Vec<Life> {
    let mut lives: Vec<Option<Life>> = vec![None; count];
    arguments.iter().for_each(|&value| lives[value] = Some(Life { value, first: 0, last: 0 }));
    for (at, inst) in insts.iter().enumerate() {
        for &value in inst.args.iter().chain(&inst.outs) {
            lives[value].get_or_insert(Life { value, first: at, last: at }).last = at;
        }
    }
    let mut lives: Vec<Life> = lives.into_iter().flatten().collect();
    // What was there before a loop and is read in it is read again in the next turn.
    for (end, inst) in insts.iter().enumerate() {
        let Kind::Jump(head) = inst.kind else { continue };
        if head > end {
            continue;
        }
        for life in lives.iter_mut().filter(|life| life.first < head && head <= life.last) {
            life.last = life.last.max(end);
        }
    }
    // What a wgmma reads from registers it reads until a wait, and these are nothing else's meanwhile.
    let is_wgmma = |inst: &&Inst| inst.op.name().as_str() == op::kernel::WGMMA;
    let held: Vec<usize> = insts.iter().filter(is_wgmma).map(|inst| inst.group(0)[0]).collect();
    for life in lives.iter_mut().filter(|life| held.contains(&life.value)) {
        (life.first, life.last) = (0, insts.len() - 1);
    }
    lives
}
