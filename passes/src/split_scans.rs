//! `split-scans`: scans of long rows as scans of pieces.
//!
//! A scan goes along its row element by element. On a GPU a few long rows would leave most of the machine idle, so a row is
//! cut into pieces that are scanned at once, and what comes before a piece, a scan of the pieces' totals, is combined with each of its elements.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::interfaces::{Reduction, ReductionInfo};
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Attr, Body, Builder, Dim, Op, Result, Value};

pub static SPLIT_SCANS: PassDef = PassDef {
    summary: "Makes scans of long rows scans of pieces.",
    doc: "For machines with many more threads than there are rows. Each piece is scanned by itself; the totals of the pieces are scanned, \
in pieces again where they are many, and combined with the elements of the piece that follows. Sums of floats are formed in \
another order, in the type of accumulation.",
    options: &[option(
        "min-length",
        OptionKind::Int { min: 4, max: 1 << 30 },
        "128",
        "Rows shorter than this stay whole.",
    )],
    requires: &["decompose"],
    ..PassDef::new("split-scans", |options| {
        let least = options.int("min-length");
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let scans: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == "rc.core.scan").collect();
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

fn info(body: &Body, scan: Op) -> Option<ReductionInfo> {
    let op = body.op_ref(scan);
    (op.def()?.interface::<Reduction>()?.0)(op)
}

/// The length of a row's pieces: about the root of its length. None where the row stays whole.
fn piece_of(body: &Body, scan: Op, least: i64) -> Option<i64> {
    let info = info(body, scan)?;
    info.combiner.core_op()?;
    let n = body.ty(body.operand(scan, 0)).shape()[*info.dims.first()?].as_static()?;
    (n >= least).then(|| (2..).map(|bits| 1i64 << bits).find(|c| c * c >= n).unwrap_or(64).min(64))
}

fn split(body: &mut Body, scan: Op, piece: i64, least: i64) -> Result {
    let Some(info) = info(body, scan) else { return Ok(()) };
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
        let op = b.op("rc.core.scan").operand(x).attr("dim", Attr::i64(dim as i64)).attr("kind", kind);
        op.attr("reverse", reverse).attr("exclusive", exclusive).value()
    };
    let inside = scanned(&mut b, x, dim + 1, exclusive);
    let totals = match exclusive.as_bool() {
        // The last that is scanned has all of its piece.
        Some(false) => {
            let mut starts = vec![Dim::Static(0); cut.len()];
            starts[dim + 1] = Dim::Static(if reverse.as_bool() == Some(true) { 0 } else { piece - 1 });
            let mut sizes = cut.clone();
            sizes[dim + 1] = Dim::Static(1);
            let last = b.slice(inside, &starts, &sizes);
            sizes.remove(dim + 1);
            b.reshape(last, &sizes)
        }
        _ => b.reduce(info.combiner.kind(), x, &[dim as i64 + 1]),
    };
    let before = scanned(&mut b, totals, dim, Attr::bool(true));
    let rest = b.body.defining_op(before).expect("just made");
    let kept: Vec<i64> = (0..cut.len() as i64).filter(|&d| d != dim as i64 + 1).collect();
    let before = b.broadcast(before, &cut, &kept);
    let y = b.op(name).operands(&[before, inside]).value();
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
    let fill = b.op("rc.core.constant").attr("value", identity).result(ty.elem()).value();
    let fill = b.broadcast(fill, &shape, &[]);
    b.concat(&[x, fill], dim as i64)
}
