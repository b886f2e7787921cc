//! On a GPU, whose registers do not hold a long row: what several nests of a group read of it waits in the program's shared memory. A nest of its own
//! copies it there, which the others read.

use super::access::{Access, mentions};
use super::group::{Class, Group};
use super::nest::Nest;
use super::row::in_registers;
use super::share::{nest_of, read_instead};
use super::target::Target;
use rc_dialects::loop_::NEST;
use rc_ir::{Body, Value};

/// Bytes of shared memory for what reductions exchange: a number of each of 32 warps for up to 64 results at once.
const EXCHANGE: i64 = 8 << 10;

/// Makes a copy of what several nests read of their row, where it fits; whether there was any: then the groups are others.
pub fn keep(body: &mut Body, group: &Group, target: &Target) -> bool {
    let Some((value, access)) = row_to_keep(body, group, target) else { return false };
    let argument = |body: &Body, nest: &Nest| {
        let i = body.operands(nest.op).zip(&nest.inputs).position(|read| read == (value, &access))?;
        body.op_ref(nest.op).entry(0).map(|entry| body.block_arg(entry, i))
    };
    let readers: Vec<&Nest> = group.nests.iter().filter(|n| argument(body, n).is_some()).collect();
    let first = readers.first().and_then(|n| Some((*n, argument(body, n)?)));
    let Some((copy, map)) = first.and_then(|(nest, arg)| nest_of(body, group, nest, arg)) else { return false };
    for nest in readers {
        let arg = argument(body, nest).expect("it reads the row");
        read_instead(body, nest.op, arg, copy, &map);
    }
    true
}

/// An argument of the kernel whose row is to wait: it is too long for registers, is read at the same place by several nests, lies contiguous along the
/// row, and fits beside those that wait already.
pub fn row_to_keep(body: &Body, group: &Group, target: &Target) -> Option<(Value, Access)> {
    if target.is_cpu() || group.class != Class::Rows || in_registers(body, group, target) {
        return None;
    }
    let reads = |nest: &Nest| -> Vec<(Value, Access)> {
        let plain = body.operands(nest.op).zip(&nest.inputs).zip(&nest.zero_outside).filter(|(_, zero)| !**zero);
        plain.map(|((value, access), _)| (value, access.clone())).collect()
    };
    let all: Vec<Vec<(Value, Access)>> = group.nests.iter().map(reads).collect();
    let several = |read: &(Value, Access)| all.iter().filter(|reads| reads.contains(read)).count() > 1;
    let waiting = waiting_bytes(body, group).unwrap_or(0);
    let fits = |(nest, read): &(&Nest, &(Value, Access))| {
        let argument = body.defining_op(read.0).is_none();
        let elem = body.ty(read.0).elem().byte_width().unwrap_or(8) as i64;
        let exchange = if is_turned(nest, &read.1) { target.exchange_bytes() } else { EXCHANGE };
        let room = target.shared_bytes - exchange - waiting;
        let long = |n: i64| n > target.gpu().rows.longest && n.saturating_mul(elem) <= room;
        argument && several(read) && row_elements(group, nest, &read.1).is_some_and(long)
    };
    let each = group.nests.iter().zip(&all).flat_map(|(nest, reads)| reads.iter().map(move |read| (nest, read)));
    each.into_iter().find(fits).map(|(_, read)| read.clone())
}

/// Whether a copy of what is read lies in another order: threads exchange its elements as they copy them.
fn is_turned(nest: &Nest, access: &Access) -> bool {
    let last = nest.iters.iter().rfind(|i| access.mentions(i.name));
    last.is_some_and(|i| access.innermost() != Some(i.name))
}

/// Elements of an access that belong to a program's row, where it is contiguous along the row and the program is alone in reading it.
fn row_elements(group: &Group, nest: &Nest, access: &Access) -> Option<i64> {
    let rows = group.rows();
    let along = access.innermost()?;
    if rows.contains(&along) || !rows.iter().all(|&r| access.mentions(r)) {
        return None;
    }
    access.exprs.iter().try_fold(1i64, |n, &e| {
        let of_rows = nest.iters.iter().all(|i| rows.contains(&i.name) || !mentions(e, i.name));
        let own = || nest.iter(e.as_symbol()?)?.extent.as_static();
        if of_rows { Some(n) } else { n.checked_mul(own()?) }
    })
}

/// Whether a nest copies what other nests of its kernel read, and nothing else does.
pub fn is_copy(body: &Body, nest: &Nest) -> bool {
    let copies = body.op_ref(nest.op).entry(0).is_some_and(|entry| body.ops(entry).count() == 1);
    let mut uses = body.uses(body.result(nest.op, 0));
    nest.is_pointwise() && copies && body.operand_count(nest.op) == 1 && uses.all(|(user, _)| body.name(user) == &NEST)
}

/// Bytes of the rows that wait in shared memory; `None` where none do.
pub fn waiting_bytes(body: &Body, group: &Group) -> Option<i64> {
    let copies = group.nests.iter().filter(|n| is_copy(body, n));
    let bytes = copies.filter_map(|n| {
        let elem = body.ty(body.result(n.op, 0)).elem().byte_width().unwrap_or(8) as i64;
        Some(row_elements(group, n, &n.outputs[0])? * elem)
    });
    bytes.reduce(|a, b| a + b)
}
