//! Loops around the products of warpgroups, in either role: they carry the stage at hand and the parity of its barriers' phase.

use super::warpgroup::Role;
use super::{Distribute, Mapped};
use rc_dialects::op;
use rc_ir::{Op, OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
    /// A loop around the product, in either role: it carries the stage and the parity beside its values.
    pub(super) fn piped_loop(&mut self, op: OpRef<'s>) -> Result {
        let consumes = self.roles().role == Role::Consumer;
        let innermost = self.roles().loops[0] == op.op;
        let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        let carried: Vec<Value> = if consumes { op.operands().skip(3).collect() } else { Vec::new() };
        // What products in flight accumulate into stays one vector for 64 rows.
        let flies = |i: usize| innermost && self.roles().flight.carries(i);
        let flies: Vec<bool> = (0..carried.len()).map(flies).collect();
        let mut init = Vec::new();
        for (&value, &flies) in carried.iter().zip(&flies) {
            let registers = self.registers(value).to_vec();
            match flies {
                true => init.extend(self.in_flight(value, &registers)?),
                false => init.extend(registers),
            }
        }
        let bounds = [0, 1, 2].map(|i| self.ix(op.operand(i)));
        let mut values = [self.emit.get(bounds[0])?, self.emit.get(bounds[1])?, self.emit.get(bounds[2])?];
        let own_tiles = consumes && !innermost && self.takes_turns();
        if own_tiles {
            values = self.own_tiles(values)?;
        }
        init.extend(self.phases(innermost));
        let in_turn = consumes && innermost && self.takes_turns();
        if in_turn {
            self.await_turn()?;
        }
        let types: Vec<Type> = init.iter().map(|&v| self.emit.ty(v)).collect();
        let at = self.emit.block;
        let groups: [&[Value]; 4] = [&values[..1], &values[1..2], &values[2..], &init];
        let made = self.emit.op(op::kernel::FOR, &groups, &[], Some(&types))?;
        let region = self.emit.body.add_region(made);
        let arguments: Vec<Type> = std::iter::once(Type::index()).chain(types).collect();
        self.emit.block = self.emit.body.add_block(region, &arguments);
        let args: Vec<Value> = self.emit.body.block_args(self.emit.block).collect();
        self.indices.enter(self.src, op.op, crate::lower_tiles::indices::Part::All);
        self.bind(self.src.block_arg(entry, 0), args[0]);
        self.set_phases(&args, innermost);
        let last = self.src.last_op(entry).expect("a loop yields");
        self.loops += 1;
        match consumes {
            true => {
                let inner: Vec<Value> = self.src.block_args(entry).skip(1).collect();
                self.bind_piped(&inner, &args[1..], &flies);
                if innermost {
                    self.take_off();
                }
                for inner in self.src.ops(entry).filter(|&o| o != last) {
                    self.op(self.src.op_ref(inner))?;
                }
                if innermost {
                    self.land_before_the_next_step()?;
                    self.release_what_is_read()?;
                }
            }
            false => self.produce(entry)?,
        }
        self.loops -= 1;
        if innermost {
            self.next_stage()?;
        } else if self.roles().loads_by_tile() {
            self.next_tile()?;
        }
        if own_tiles {
            self.pass_others_tiles()?;
        }
        let mut next = if consumes { self.flatten(self.src.operands(last)) } else { Vec::new() };
        next.extend(self.phases(innermost));
        self.emit.op(op::kernel::YIELD, &[&next], &[], None)?;
        self.emit.block = at;
        let results: Vec<Value> = self.emit.body.results(made).collect();
        self.set_phases(&results, innermost);
        if in_turn {
            self.end_turn()?;
        }
        if consumes {
            let outer: Vec<Value> = op.results().collect();
            self.bind_piped(&outer, &results, &flies);
            if innermost {
                self.finish_products(op)?;
            }
        }
        Ok(())
    }
    fn bind_piped(&mut self, values: &[Value], flat: &[Value], flies: &[bool]) {
        let mut rest = flat;
        for (&value, &flies) in values.iter().zip(flies) {
            let count = match self.spreads.get(&self.src.ty(value)) {
                _ if flies => self.row_blocks(value),
                Some(spread) => spread.registers,
                None => 1,
            };
            let (these, tail) = rest.split_at(count);
            rest = tail;
            match flies {
                true => drop(self.values.insert(value, Mapped::Sums(these.into()))),
                false => self.bind_carried(std::iter::once(value), these),
            }
        }
    }
    /// Whether this loop is around the product.
    pub(super) fn is_piped(&self, op: Op) -> bool {
        self.roles.as_ref().is_some_and(|r| r.loops.contains(&op))
    }
}
