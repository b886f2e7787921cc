//! Vectors: making them, taking them apart, reducing them; lanes and 32-bit words.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::emit::{FastMath, Horizontal, Type, Value, lanes};
use melior::ir::ValueLike;
use rc_dialects::interfaces::Combiner;
use rc_ir::{self as ir, OpRef, Result};
use smallvec::smallvec;

impl<'a, 'm> Lowering<'a, 'm> {
    /// The lanes of a value as scalars.
    pub fn lanes(&self, value: ir::Value) -> Vec<Value<'m>> {
        let parts = self.values.parts(value);
        match lanes(parts[0].r#type()) {
            Some(_) => self.b.scalars(parts[0]),
            None => parts.into_vec(),
        }
    }

    pub fn splat(&mut self, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let ty = self.body.ty(result);
        if !ty.is_vector() || self.body.ty(value).is_vector() {
            return Err(op.unsupported(format!("from {} to {ty} in a thread", self.body.ty(value))));
        }
        let scalar = self.parts_like(value, result)[0];
        let parts =
            if self.gpu { smallvec![scalar; lanes_of(ty)] } else { smallvec![self.b.splat(scalar, lanes_of(ty))] };
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn extract(&mut self, op: OpRef) -> Result {
        let (parts, lane) = (self.parts_like(op.operand(0), op.result(0)), op.int("lane").unwrap_or(0) as usize);
        let value = match self.gpu {
            true => parts[lane],
            false => self.b.extract(parts[0], lane),
        };
        self.values.set(op.result(0), value);
        Ok(())
    }

    pub fn insert(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let lane = op.int("lane").unwrap_or(-1);
        if !(0..lanes_of(self.body.ty(result)) as i64).contains(&lane) {
            return Err(op.error(format!("replaces lane {lane} of {}", self.body.ty(result))));
        }
        let scalar = self.parts_like(op.operand(0), result)[0];
        let mut parts = self.parts_like(op.operand(1), result);
        match self.gpu {
            true => parts[lane as usize] = scalar,
            false => parts[0] = self.b.insert(parts[0], scalar, lane as usize),
        }
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn concat(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let vectors = op.operands().all(|v| self.body.ty(v).is_vector());
        let halves: Vec<Parts<'m>> = op.operands().map(|v| self.parts_like(v, result)).collect();
        let same = halves.windows(2).all(|w| w[0][0].r#type() == w[1][0].r#type());
        if !self.gpu && vectors && same && halves.len() == 2 {
            let joined = self.b.concat(halves[0][0], halves[1][0]);
            self.values.set(result, joined);
            return Ok(());
        }
        let lanes = halves.iter().flat_map(|parts| match lanes(parts[0].r#type()) {
            Some(_) => self.b.scalars(parts[0]),
            None => parts.to_vec(),
        });
        let parts = self.joined(self.body.ty(result), lanes.collect());
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn slice(&mut self, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let (count, all) = (lanes_of(self.body.ty(result)), lanes_of(self.body.ty(value)));
        let start = op.int("start").unwrap_or(0);
        if start < 0 || start as usize + count > all {
            return Err(op.error(format!("takes lanes {start} to {} of {all}", start + count as i64)));
        }
        let (start, parts) = (start as usize, self.parts_like(value, result));
        let parts = match (self.gpu, self.body.ty(result).is_vector()) {
            (true, _) => Parts::from_slice(&parts[start..start + count]),
            (false, true) => smallvec![self.b.slice(parts[0], start, count)],
            (false, false) => smallvec![self.b.extract(parts[0], start)],
        };
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn permute(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let [first, second] = [0, 1].map(|i| self.parts_like(op.operand(i), result));
        let lanes = op.ints("lanes").unwrap_or_default();
        let parts = match self.gpu {
            true => {
                let all: Vec<Value<'m>> = first.into_iter().chain(second).collect();
                lanes.iter().map(|&lane| all[lane as usize]).collect()
            }
            false => {
                let mask: Vec<i32> = lanes.iter().map(|&lane| lane as i32).collect();
                smallvec![self.b.shuffle(first[0], second[0], &mask)]
            }
        };
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn vector_reduce(&mut self, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let (elem, kind) = (self.body.ty(value).elem(), op.str("kind").unwrap_or("add"));
        let combine = Combiner::from_kind(kind).and_then(Combiner::core_op);
        let combine = combine.ok_or_else(|| op.unsupported(format!("of kind {kind} in machine code")))?;
        let horizontal = (!self.gpu).then(|| horizontal(kind, elem)).flatten();
        let reduced = match horizontal {
            Some(kind) if !self.is_narrow_float(elem) => {
                let vector = self.values.one(value);
                self.b.with_fast_math(FastMath::REDUCE, || self.b.reduce(kind, vector))
            }
            _ => {
                // In any order: pairs, pairs of pairs, …
                let mut lanes = self.lanes(value);
                while lanes.len() > 1 {
                    let pairs = lanes.chunks(2).map(|pair| match pair {
                        [x, y] => self.combine(op, combine, elem, *x, *y),
                        rest => Ok(rest[0]),
                    });
                    lanes = pairs.collect::<Result<_>>()?;
                }
                lanes[0]
            }
        };
        let reduced = if elem.is_index() { self.index_cast(reduced, self.index_type(result), false) } else { reduced };
        self.values.set(result, reduced);
        Ok(())
    }

    // ---- 32-bit words

    /// The lanes in 32-bit words, the first in the lowest bits; lanes narrower than a word fill words.
    pub fn pack(&self, lanes: &[Value<'m>]) -> Vec<Value<'m>> {
        let b = self.b;
        let width = self.element_bytes(lanes[0].r#type());
        let bits = |lane: Value<'m>| match width {
            1 => b.zext(lane, b.ty.i32),
            2 => b.zext(lane, b.ty.i32),
            _ => b.bitcast(lane, b.ty.i32),
        };
        let word = |chunk: &[Value<'m>]| {
            if let Some(&word) = self.values.words.borrow().get(&key(chunk)) {
                return word;
            }
            let shifted = |(i, &lane): (usize, &Value<'m>)| {
                let bits = bits(lane);
                if i == 0 { bits } else { b.shl(bits, b.i32((8 * width * i) as i32)) }
            };
            chunk.iter().enumerate().map(shifted).reduce(|x, y| b.or(x, y)).unwrap_or_else(|| b.i32(0))
        };
        lanes.chunks((4 / width).max(1)).map(word).collect()
    }

    /// The lanes of the LLVM type `to` that lie in 32-bit words.
    pub fn unpack(&self, words: &[Value<'m>], elem: ir::Type, to: Type<'m>) -> Parts<'m> {
        let b = self.b;
        let width = self.element_bytes(to);
        let lane = |word: Value<'m>, i: usize| {
            let bits = if i == 0 { word } else { b.lshr(word, b.i32((8 * width * i) as i32)) };
            b.trunc(bits, to)
        };
        let mut parts = Parts::new();
        for &word in words {
            if width == 4 {
                parts.push(b.bitcast(word, to));
                continue;
            }
            let lanes: Vec<Value<'m>> = (0..4 / width).map(|i| lane(word, i)).collect();
            self.remember_word(&lanes, word);
            parts.extend(lanes);
        }
        if elem == ir::Type::i1() {
            parts = parts.into_iter().map(|lane| b.icmp(crate::emit::ICmp::Ne, lane, b.int(to, 0))).collect();
        }
        parts
    }

    /// Notes that these lanes are a word's, so that packing them gives the word.
    pub fn remember_word(&self, lanes: &[Value<'m>], word: Value<'m>) {
        self.values.words.borrow_mut().insert(key(lanes), word);
    }

    /// Whether arithmetic on `elem` is done in f32.
    pub fn is_narrow_float(&self, elem: ir::Type) -> bool {
        elem.is_float() && elem.bit_width() <= Some(16)
    }
}

/// Identifies lanes by the values that they are.
pub(super) fn key(lanes: &[Value<'_>]) -> Vec<usize> {
    lanes.iter().map(|lane| lane.to_raw().ptr as usize).collect()
}

fn horizontal(kind: &str, elem: ir::Type) -> Option<Horizontal> {
    let unsigned = elem.is_unsigned() || elem == ir::Type::i1();
    Some(match (kind, elem.is_float()) {
        ("add", true) => Horizontal::FAdd,
        ("mul", true) => Horizontal::FMul,
        ("max", true) => Horizontal::FMaximum,
        ("min", true) => Horizontal::FMinimum,
        ("add", false) => Horizontal::Add,
        ("max", false) => {
            if unsigned {
                Horizontal::UMax
            } else {
                Horizontal::SMax
            }
        }
        ("min", false) => {
            if unsigned {
                Horizontal::UMin
            } else {
                Horizontal::SMin
            }
        }
        ("and", false) => Horizontal::And,
        ("or", false) => Horizontal::Or,
        _ => return None,
    })
}
