//! The consistency of the arena's own lists: what every other check takes for granted.

use super::{ARGUMENT, Body, NIL};
use crate::loc::Loc;

impl Body {
    /// Checks that use-lists, block lists and owners agree with one another. An `Err` names the first place
    /// where they do not, which is a mistake of the program that built the body, not of its input.
    pub(crate) fn check_links(&self) -> Result<(), (Loc, String)> {
        self.check_uses()?;
        self.check_blocks()?;
        self.check_values()
    }

    fn broken<T>(&self, op: u32, what: &str) -> Result<T, (Loc, String)> {
        let (loc, name) = self.ops.get(op as usize).map_or((Loc::UNKNOWN, "?"), |o| (o.loc, o.name.pretty()));
        Err((loc, format!("'{name}' op {what}")))
    }

    /// Every operand is in the list of the value that it uses, exactly once.
    fn check_uses(&self) -> Result<(), (Loc, String)> {
        let mut linked = 0;
        for (v, value) in self.values.iter().enumerate() {
            let (mut id, mut prev) = (value.first_use, NIL);
            while id != NIL {
                let Some(entry) = self.uses.get(id as usize) else {
                    return self.broken(NIL, "has a use-list that leads nowhere");
                };
                let owner = &self.ops[entry.owner as usize];
                let range = owner.operands..owner.operands + u32::from(owner.operand_count);
                if entry.value != v as u32 || entry.prev != prev || !range.contains(&id) {
                    return self.broken(entry.owner, "is in the use-list of a value that it does not use");
                }
                linked += 1;
                (prev, id) = (id, entry.next);
            }
        }
        if linked != self.uses.iter().filter(|u| u.value != NIL).count() {
            let lost = self.uses.iter().find(|u| u.value != NIL && u.prev == NIL && u.next == NIL);
            return self.broken(lost.map_or(NIL, |u| u.owner), "has an operand that its value's use-list lacks");
        }
        Ok(())
    }

    /// The lists of ops in blocks and of blocks in regions run both ways.
    fn check_blocks(&self) -> Result<(), (Loc, String)> {
        for (b, block) in self.blocks.iter().enumerate() {
            let (mut op, mut prev) = (block.first, NIL);
            while op != NIL {
                let data = &self.ops[op as usize];
                if data.block != b as u32 || data.prev != prev {
                    return self.broken(op, "is in a block's list, but not linked to it");
                }
                (prev, op) = (op, data.next);
            }
            if prev != block.last {
                return self.broken(block.last, "is the last of a block's list, but not reached in it");
            }
        }
        for (r, region) in self.regions.iter().enumerate() {
            if region.blocks.iter().any(|&b| self.blocks[b as usize].region != r as u32) {
                return self.broken(region.owner, "has a region with a block of another region");
            }
        }
        Ok(())
    }

    /// Results and arguments know where they are defined, and operands are set.
    fn check_values(&self) -> Result<(), (Loc, String)> {
        for (o, op) in self.ops.iter().enumerate() {
            if op.block == NIL && o != 0 {
                continue;
            }
            let results = op.results as usize..op.results as usize + usize::from(op.result_count);
            if self.values[results].iter().enumerate().any(|(i, v)| (v.def, v.def_index) != (o as u32, i as u32)) {
                return self.broken(o as u32, "has a result that says it is defined elsewhere");
            }
            let operands = op.operands as usize..op.operands as usize + usize::from(op.operand_count);
            if self.uses[operands].iter().any(|u| u.value == NIL || u.owner != o as u32) {
                return self.broken(o as u32, "has an operand that is not set");
            }
        }
        for (b, block) in self.blocks.iter().enumerate() {
            let value = |v: u32| &self.values[v as usize];
            let wrong = |(i, &v): (usize, &u32)| (value(v).def, value(v).def_index) != (b as u32, i as u32 | ARGUMENT);
            if block.region != NIL && block.args.iter().enumerate().any(wrong) {
                let owner = self.regions[block.region as usize].owner;
                return self.broken(owner, "has a block argument that says it is defined elsewhere");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::test_dialect::*;
    use crate::types::Type;

    /// Whether a body of two ops fails the check after `corrupt`.
    fn fails(corrupt: impl FnOnce(&mut Body)) -> bool {
        let mut f = func("f", &[Type::i64()]);
        let mut b = Builder::at_end(&mut f.body, f.entry);
        let sum = add(&mut b, f.args[0], f.args[0]);
        ret(&mut b, &[sum]);
        assert!(f.body.check_links().is_ok());
        corrupt(&mut f.body);
        let errors = crate::verify::verify_body(&f.body);
        f.body.check_links().is_err() && errors.len() == 1
    }

    #[test]
    fn finds_broken_links() {
        assert!(fails(|b| b.values[0].first_use = NIL));
        assert!(fails(|b| b.values[0].first_use = 77));
        assert!(fails(|b| b.uses[0].prev = NIL));
        assert!(fails(|b| b.uses[2].value = NIL));
        assert!(fails(|b| b.uses[2].value = 0));
        assert!(fails(|b| b.ops[1].block = 7));
        assert!(fails(|b| b.ops[2].prev = NIL));
        assert!(fails(|b| b.blocks[0].last = 1));
        assert!(fails(|b| b.blocks[0].region = 3));
        assert!(fails(|b| b.values[1].def = 2));
        assert!(fails(|b| b.values[0].def_index = ARGUMENT | 1));
        // A use-list that runs in a circle ends, too.
        assert!(fails(|b| b.uses[0].next = 1));
    }
}
