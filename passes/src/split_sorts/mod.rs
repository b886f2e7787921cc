//! `split-sorts`: sorts of long rows as sorts of runs that are merged, and of few different keys as counts.

mod counted;
pub mod price;

use price::{Sizes, Way};
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::sort::BELOW;
use rc_dialects::core::value_range::bound_of;
use rc_dialects::op;
use rc_dialects::tensor::{merge, sort};
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Body, Builder, Diagnostic, Dim, Loc, Op, Type, Value};
use rc_machine::Target;

pub static SPLIT_SORTS: PassDef = PassDef {
    summary: "Makes sorts of long rows sorts of runs that are merged, and sorts of few different keys counts.",
    doc: "For machines on which a program sorts a row in registers and shared memory. Rows of a fixed length are cut into runs, where they are too long for that or where \
programs would be few; each pass over them then merges pairs. What is beyond the row's end, where runs do not divide it, stands after all others. Natural numbers \
that are known to be small are counted instead.",
    options: &[option(
        "run",
        OptionKind::Int { min: 0, max: 1 << 20 },
        "0",
        "Elements of a run, a power of two, for rows of more than twice as many; 0: as the target says what takes less time.",
    )],
    requires: &["decompose"],
    ..PassDef::new("split-sorts", |options| {
        let run = (options.int("run") as u64).max(2).next_power_of_two() as i64;
        let given = (options.int("run") > 0).then_some(run);
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let target = Target::of("", "", cx.module.attrs).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?;
            let sorts: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::core::SORT).collect();
            for op in sorts {
                let Some(sizes) = sizes(body, op, &target) else { continue };
                let (way, us) = match given {
                    Some(run) if sizes.length > 2 * run => (Way::Merged(run), 0.0),
                    Some(_) => continue,
                    None => sizes.cheapest(&target),
                };
                let about = if given.is_none() { format!(", in about {us:.0} us") } else { String::new() };
                match way {
                    Way::Whole => continue,
                    Way::Merged(run) => {
                        cx.remark(body.loc(op), format!("the rows are merged from runs of {run} elements{about}"))
                    }
                    Way::Counted => {
                        let keys = sizes.below.unwrap_or(0);
                        cx.remark(body.loc(op), format!("the rows are sorted by counts of {keys} keys{about}"));
                    }
                }
                split(body, op, (way, sizes));
            }
            Ok(())
        }))
    })
};

/// The sizes of a sort on a GPU, of rows of a fixed length.
fn sizes(body: &Body, op: Op, target: &Target) -> Option<Sizes> {
    target.gpu.as_ref()?;
    let at = body.op_ref(op);
    let ty = body.ty(at.operand(0));
    let shape = ty.shape();
    let (length, lead) = shape.split_last()?;
    let length = length.as_static().filter(|&n| 0 < n && n < i64::from(i32::MAX))?;
    let rows = lead.iter().fold(Dim::Static(1), |n, &d| n * d).as_static();
    let below = at.int(BELOW.name).or_else(|| bound_of(body, at.operand(0)));
    let key_bytes = ty.elem().byte_width().map_or(8, |bytes| bytes as i64);
    // A symbolic number of rows is taken to occupy the machine.
    Some(Sizes { rows: rows.unwrap_or(target.cores), length, key_bytes, below })
}

fn split(body: &mut Body, op: Op, (way, sizes): (Way, Sizes)) {
    let at = body.op_ref(op);
    let (x, places, descending) = (at.operand(0), at.operands().nth(1), at.bool("descending"));
    let (shape, indices) = (body.ty(at.result(0)).shape().to_vec(), at.result_types()[1].elem());
    let mut b = Builder::before(body, op);
    let all = match (way, sizes.below) {
        (Way::Counted, Some(below)) => {
            let keys = b.convert(x, Type::int(32));
            let keys = if descending { turned(&mut b, keys, below) } else { keys };
            counted::sorted(&mut b, keys, below)
        }
        (Way::Merged(run), _) => {
            let keys = sort::keys(&mut b, x, descending);
            let greatest = sort::greatest(b.ty(keys).elem().bit_width().unwrap_or(64));
            merge::sorted(&mut b, keys, greatest, run)
        }
        _ => return,
    };
    let from = b.slice(all, &vec![Dim::Static(0); shape.len()], &shape);
    let values = merge::along(&mut b, x, from);
    let found = match places {
        Some(places) => merge::along(&mut b, places, from),
        None => from,
    };
    let found = b.convert(found, if places.is_some() { indices } else { Type::i64() });
    body.replace_op(op, &[values, found]);
}

/// The greatest keys first.
fn turned(b: &mut Builder, keys: Value, below: i64) -> Value {
    let greatest = b.splat((below - 1) as f64, b.ty(keys));
    b.binary("sub", greatest, keys)
}
