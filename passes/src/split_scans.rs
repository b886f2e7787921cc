//! `split-scans`: scans of long rows as scans of pieces.
//!
//! A GPU's program scans a contiguous row; others element by element. A few long rows would leave most of the machine idle, so a
//! row is cut into pieces. Their totals are formed and scanned first; what comes before a piece is combined with its first element, and
//! the pieces are scanned at once.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::interfaces::ReductionInfo;
use rc_dialects::op;
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Attr, Body, Builder, Diagnostic, Dim, Loc, Op, Result, Type, Value};
use rc_machine::Target;

pub static SPLIT_SCANS: PassDef = PassDef {
    summary: "Makes scans of long rows scans of pieces.",
    doc: "For machines with many more threads than there are rows. The totals of the pieces are scanned, in pieces again where they are many, and \
combined with the first element of the piece that follows; then each piece is scanned by itself. Rows that lie contiguous are cut into as many pieces \
as occupy the machine, others, where they are few or long, into pieces of about the root of their length. Sums of floats are formed in another order, in the type of accumulation.",
    options: &[
        option("min-length", OptionKind::Int { min: 4, max: 1 << 30 }, "128", "Rows shorter than this stay whole."),
        option(
            "min-piece",
            OptionKind::Int { min: 4, max: 1 << 30 },
            "2048",
            "Contiguous pieces are not shorter than this.",
        ),
    ],
    requires: &["decompose"],
    ..PassDef::new("split-scans", |options| {
        let (length, piece) = (options.int("min-length"), options.int("min-piece"));
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let target = Target::of("cuda", "", cx.module.attrs).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?;
            let scans = &target.gpu().scans;
            let least = Least {
                length,
                piece,
                pieces: scans.pieces,
                columns: 16 * target.cores,
                steps: scans.block / 2 * scans.each,
            };
            let scans: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::core::SCAN).collect();
            for scan in scans {
                if let Some(piece) = piece_of(body, scan, least) {
                    cx.remark(body.loc(scan), format!("the scan is made of pieces of {piece} elements"));
                    split(body, scan, piece, least)?;
                }
            }
            Ok(())
        }))
    })
};

/// What is not cut further.
#[derive(Clone, Copy)]
struct Least {
    length: i64,
    piece: i64,
    /// Pieces of contiguous rows that occupy the machine.
    pieces: i64,
    /// Columns that keep all cores busy, each with half a warp of them, and the length of those that take their programs a few steps.
    columns: i64,
    steps: i64,
}

/// The length of a row's pieces. None where the row stays whole.
fn piece_of(body: &Body, scan: Op, least: Least) -> Option<i64> {
    let info = ReductionInfo::of(body.op_ref(scan))?;
    info.combiner.core_op()?;
    let shape = body.ty(body.operand(scan, 0)).shape();
    let dim = *info.dims.first()?;
    let n = shape[dim].as_static()?;
    if n < least.length {
        return None;
    }
    if dim + 1 < shape.len() && shape[dim + 1..].iter().any(|&d| d != Dim::Static(1)) {
        let others = shape.iter().enumerate().filter(|(d, _)| *d != dim);
        let columns = others.map(|(_, n)| *n).fold(Dim::Static(1), |all, n| all * n).as_static();
        if n <= least.steps && columns.is_some_and(|columns| columns >= least.columns) {
            return None;
        }
        return (2..).map(|bits| 1i64 << bits).find(|c| c * c >= n).map(|piece| piece.min(64));
    }
    let rows = shape[..dim].iter().try_fold(1i64, |rows, d| rows.checked_mul(d.as_static()?))?;
    let pieces = (least.pieces / rows.max(1)).min(n / least.piece);
    if pieces < 2 {
        return None;
    }
    // Pieces that divide the row leave nothing to fill up.
    let divides = (pieces / 2 + 1..=pieces).rev().find(|pieces| n % pieces == 0);
    Some((n + divides.unwrap_or(pieces) - 1) / divides.unwrap_or(pieces))
}

fn split(body: &mut Body, scan: Op, piece: i64, least: Least) -> Result {
    let Some(info) = ReductionInfo::of(body.op_ref(scan)) else { return Ok(()) };
    let (dim, name) = (info.dims[0], info.combiner.core_op().expect("asked before"));
    let attrs = body.attrs(scan);
    let flag = |key: &str| attrs.get(key).unwrap_or(Attr::bool(false));
    let (reverse, exclusive, kind) = (flag("reverse"), flag("exclusive"), Attr::str(info.combiner.kind()));
    let (x, ty) = (body.operand(scan, 0), body.ty(body.result(scan, 0)));
    let identity = info.combiner.identity(info.acc).expect("asked before");
    let mut b = Builder::before(body, scan);
    let x = b.convert(x, info.acc);
    let shape = b.ty(x).shape().to_vec();
    let n = shape[dim].as_static().expect("asked before");
    let pieces = (n + piece - 1) / piece;
    let x = extended(&mut b, x, dim, pieces * piece - n, identity);
    let padded = b.ty(x).shape().to_vec();
    let mut cut = padded.clone();
    cut.splice(dim..=dim, [Dim::Static(pieces), Dim::Static(piece)]);
    let x = b.reshape(x, &cut);
    let scanned = |b: &mut Builder, x: Value, dim: usize, exclusive: Attr| {
        let op = b.op(op::core::SCAN).operand(x).attr("dim", Attr::i64(dim as i64)).attr("kind", kind);
        op.attr("reverse", reverse).attr("exclusive", exclusive).value()
    };
    let totals = b.reduce(info.combiner.kind(), x, &[dim as i64 + 1]);
    let before = scanned(&mut b, totals, dim, Attr::bool(true));
    let rest = b.body.defining_op(before).expect("just made");
    let kept: Vec<i64> = (0..cut.len() as i64).filter(|&d| d != dim as i64 + 1).collect();
    let before = b.broadcast(before, &cut, &kept);
    let y = if exclusive.as_bool() == Some(true) {
        let inside = scanned(&mut b, x, dim + 1, exclusive);
        b.op(name).operand(before).operand(inside).value()
    } else {
        let place = Type::tensor(&cut, Type::int(32));
        let at = b.op(op::core::IOTA).attr("dim", Attr::i64(dim as i64 + 1)).result(place).value();
        let first = b.splat(if reverse.as_bool() == Some(true) { (piece - 1) as f64 } else { 0.0 }, place);
        let is_first = b.compare("eq", at, first);
        let with = b.op(name).operand(before).operand(x).value();
        let x = b.select(is_first, with, x);
        scanned(&mut b, x, dim + 1, exclusive)
    };
    let y = b.reshape(y, &padded);
    let y = b.slice(y, &vec![Dim::Static(0); shape.len()], &shape);
    let y = b.convert(y, ty.elem());
    body.replace_op(scan, &[y]);
    match piece_of(body, rest, least) {
        Some(piece) => split(body, rest, piece, least),
        None => Ok(()),
    }
}

/// `count` elements that change nothing, after the others.
fn extended(b: &mut Builder, x: Value, dim: usize, count: i64, identity: Attr) -> Value {
    if count == 0 {
        return x;
    }
    let ty = b.ty(x);
    let mut shape = ty.shape().to_vec();
    shape[dim] = Dim::Static(count);
    let fill = b.op(op::core::CONSTANT).attr("value", identity).result(ty.elem()).value();
    let fill = b.broadcast(fill, &shape, &[]);
    b.concat(&[x, fill], dim as i64)
}
