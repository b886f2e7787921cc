//! Rows of few different keys: an element's place is the number of those with lesser keys, and of those before it with its own (counting sort; Seward, 1954).
//!
//! Elements are counted by key and block, and the counts are summed in that order: so the blocks' first places for each key are known. In its block an element is
//! compared with all others.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_dialects::tensor::merge::{along, count};
use rc_ir::{Attr, Builder, Dim, Type, Value};

/// Elements of a block.
pub const TOGETHER: i64 = 128;

/// For i32 keys [.., n], each from 0 to `below` - 1, the i32 places that they are sorted from.
pub fn sorted(b: &mut Builder, keys: Value, below: i64) -> Value {
    let shape = b.ty(keys).shape().to_vec();
    let (&length, lead) = shape.split_last().expect("rows");
    let n = length.as_static().expect("a fixed length");
    let blocks = (n - 1) / TOGETHER + 1;
    // What fills the last block has a key of its own, after all others.
    let counts = if n % TOGETHER == 0 { below } else { below + 1 };
    let line = |sizes: &[i64]| [lead, &sizes.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>()].concat();
    let none = vec![Dim::Static(0); shape.len()];
    let high = [&none[1..], &[Dim::Static(blocks * TOGETHER - n)]].concat();
    let filled = b.pad_or_crop(keys, below as f64, &none, &high);
    let in_blocks = b.reshape(filled, &line(&[blocks, TOGETHER]));
    let firsts = first_places(b, in_blocks, (lead, counts));
    let among = among_equal(b, in_blocks, lead.len());
    let among = b.reshape(among, &line(&[blocks * TOGETHER]));
    let at = {
        let key = b.binary_scalar("mul", in_blocks, blocks as f64);
        let block = count(b, &line(&[blocks, TOGETHER]), lead.len());
        let at = b.binary("add", key, block);
        b.reshape(at, &line(&[blocks * TOGETHER]))
    };
    let first = along(b, firsts, at);
    let place = b.binary("add", first, among);
    let place = b.slice(place, &none, &shape);
    inverse(b, place)
}

/// For blocks [.., blocks, n] the places [.., keys * blocks] of the first element of each key and block.
fn first_places(b: &mut Builder, keys: Value, (lead, counts): (&[Dim], i64)) -> Value {
    let outer: Vec<i64> = (0..lead.len() as i64).collect();
    let d = lead.len() as i64;
    let of_block = b.ty(keys).shape()[lead.len()..].to_vec();
    let space = [lead, &[Dim::Static(counts)], &of_block].concat();
    let all = b.broadcast(keys, &space, &[outer.as_slice(), &[d + 1, d + 2]].concat());
    let key = count(b, &space, lead.len());
    let same = b.compare("eq", all, key);
    let ones = b.convert(same, Type::int(32));
    let found = b.reduce("add", ones, &[d + 2]);
    let found = b.reshape(found, &[lead, &[Dim::Static(counts) * of_block[0]]].concat());
    let scan = b.op(op::core::SCAN).operand(found).attr("dim", Attr::i64(d)).attr("kind", Attr::str("add"));
    let until = scan.value();
    b.binary("sub", until, found)
}

/// For blocks [.., n] how many before an element have its key.
fn among_equal(b: &mut Builder, keys: Value, outer: usize) -> Value {
    let shape = b.ty(keys).shape().to_vec();
    let d = outer as i64;
    let space = [&shape[..], &shape[outer + 1..]].concat();
    let lead: Vec<i64> = (0..=d).collect();
    let mine = b.broadcast(keys, &space, &[lead.as_slice(), &[d + 1]].concat());
    let other = b.broadcast(keys, &space, &[lead.as_slice(), &[d + 2]].concat());
    let (here, there) = (count(b, &space, outer + 1), count(b, &space, outer + 2));
    let (same, earlier) = (b.compare("eq", mine, other), b.compare("lt", there, here));
    let before = b.binary("and", same, earlier);
    let ones = b.convert(before, Type::int(32));
    b.reduce("add", ones, &[d + 2])
}

/// The permutation [.., n] back.
fn inverse(b: &mut Builder, places: Value) -> Value {
    let shape = b.ty(places).shape().to_vec();
    let last = shape.len() - 1;
    let (number, none) = (count(b, &shape, last), b.splat(0.0, b.ty(places)));
    let scatter = b.op(op::core::SCATTER).operand(none).operand(places).operand(number);
    let scatter = scatter.attr("axis", Attr::i64(last as i64)).attr("batch", Attr::i64(last as i64));
    // Each place has one update.
    scatter.attr("kind", Attr::str("add")).attr("any_order", Attr::bool(true)).value()
}
