//! Words of several elements: making them, and the products of what they hold.

use rc_dialects::core::scalar::Scalar;
use rc_dialects::kernel::{UNIT_TILE, word_width};
use rc_ir::{Result, Type};

use super::block::{Program, Step};
use super::code::Inst;
use crate::interp::value::{Array, Class, Value};

impl Program<'_, '_> {
    pub fn pack(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let elem = inst.op.body.ty(inst.op.operand(0)).elem();
        let Value::Array(tile) = self.get(t, inst.args[0], inst)?.clone() else {
            return Err(inst.op.error("packs something that is no tile"));
        };
        let (format, shape) = (self.format(inst, elem)?, inst.shape.clone());
        let width = word_width(elem).ok_or_else(|| inst.op.unsupported(format!("of {elem}")))? as usize;
        let inner: usize = shape[inst.op.int("dim").unwrap_or(0) as usize + 1..].iter().product();
        let bits = elem.bit_width().unwrap_or(8) as usize;
        let part = |at: usize, i: usize| {
            let from = at / inner * inner * width + i * inner + at % inner;
            tile.element(from).scalar(format).to_bits(elem).unwrap_or(0) << (i * bits)
        };
        let word = |at: usize| (0..width).fold(0, |word, i| word | part(at, i)) as u32 as i32;
        let words = (0..shape.iter().product()).map(|at| i64::from(word(at))).collect();
        self.set(t, inst.outs[0], Value::Array(Array::ints(shape, words)));
        Ok(Step::Next)
    }

    pub fn dot_words(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let vectors = [0, 1, 2].map(|i| self.elements(t, inst.args[i], inst));
        let [a, b, acc] = vectors;
        let (a, b, acc, format) = (a?, b?, acc?, inst.format()?);
        let of = inst.op.attr("of").and_then(|of| of.as_type()).unwrap_or(Type::bf16());
        let sum = |i: usize| {
            let products = elements(&a[i], of, true).into_iter().zip(elements(&b[i], of, false));
            match (&acc[i], format.class) {
                (Value::Float(c), Class::Float(round)) => {
                    Value::Float(round(c + products.map(|(x, y)| float(x) * float(y)).sum::<f64>()))
                }
                (Value::Int(c), _) => {
                    let sum: i128 = products.map(|(x, y)| int(x) * int(y)).sum();
                    Value::Int(format.wrap(i128::from(*c) + sum))
                }
                (other, _) => other.clone(),
            }
        };
        let sums: Vec<Value> = (0..acc.len()).map(sum).collect();
        self.set_lanes(t, inst, &sums)
    }
}

impl Program<'_, '_> {
    pub fn dot_tiles(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let of = inst.op.attr("of").and_then(|of| of.as_type()).unwrap_or(Type::bf16());
        let shape = inst.op.ints("shape").unwrap_or_default();
        let (rows, columns) = (shape[0] as usize, shape[1] as usize);
        let words = self.int(t, inst.group(6)[0], inst)?.max(0) as usize;
        let depth = words.next_multiple_of(UNIT_TILE as usize);
        let a = self.words_of(t, inst, 0, [rows, depth], of)?;
        let b = self.words_of(t, inst, 2, [depth, columns], of)?;
        let (sums, at) = (self.memref(t, inst.group(4)[0], inst)?, self.ints(t, inst.group(5), inst)?);
        let format = self.format(inst, inst.op.body.ty(inst.op.group("c")[0]).elem())?;
        for i in 0..rows {
            for j in 0..columns {
                let place = self.element(inst, &sums, &moved(&at, i, j), "adds to")?;
                let products = (0..depth).flat_map(|k| a[i * depth + k].iter().zip(&b[k * columns + j]));
                let before = match inst.op.bool("add") {
                    true => self.read(t, &sums, place, inst.op.loc())?,
                    false if of.is_float() => Value::Float(0.0),
                    false => Value::Int(0),
                };
                let sum = match (before, format.class) {
                    (Value::Float(c), Class::Float(round)) => {
                        Value::Float(round(c + products.map(|(x, y)| float(*x) * float(*y)).sum::<f64>()))
                    }
                    (Value::Int(c), _) => {
                        let sum: i128 = products.map(|(x, y)| int(*x) * int(*y)).sum();
                        Value::Int(format.wrap(i128::from(c) + sum))
                    }
                    (other, _) => other,
                };
                self.write(t, &sums, place, &sum, inst.op.loc())?;
            }
        }
        Ok(Step::Next)
    }

    /// The elements of the words `[rows, columns]` from the indices on, of the operand in group `from`: memory of words, or of their elements.
    fn words_of(
        &mut self,
        t: usize,
        inst: &Inst,
        from: usize,
        [rows, columns]: [usize; 2],
        of: Type,
    ) -> Result<Vec<Vec<Scalar>>> {
        let (memory, at) = (self.memref(t, inst.group(from)[0], inst)?, self.ints(t, inst.group(from + 1), inst)?);
        let elem = inst.op.body.ty(inst.op.group(if from == 0 { "a" } else { "b" })[0]).elem();
        let width = if elem == of { word_width(of).unwrap_or(1) as usize } else { 1 };
        let mut words = Vec::with_capacity(rows * columns);
        for i in 0..rows {
            for j in 0..columns {
                let first = self.element(inst, &memory, &moved(&at, i, j * width), "multiplies")?;
                self.element(inst, &memory, &moved(&at, i, j * width + width - 1), "multiplies")?;
                let mut word = Vec::with_capacity(4);
                for element in first..first + width {
                    match self.read(t, &memory, element, inst.op.loc())? {
                        word_of @ Value::Int(_) if elem != of => word.extend(elements(&word_of, of, false)),
                        Value::Int(n) => word.push(Scalar::Int(n.into())),
                        Value::Float(x) => word.push(Scalar::Float(x)),
                        _ => return Err(inst.op.error("multiplies what is no number")),
                    }
                }
                words.push(word);
            }
        }
        Ok(words)
    }
}

/// The place so many rows and columns further.
fn moved(at: &[i64], row: usize, column: usize) -> Vec<i64> {
    let mut at = at.to_vec();
    if let [.., i, j] = at.as_mut_slice() {
        (*i, *j) = (*i + row as i64, *j + column as i64);
    }
    at
}

/// A product's operand whose elements along `dim` are words: with the elements that these hold.
pub fn apart(words: &Array, dim: usize, of: Type, unsigned: bool) -> Array {
    let width = word_width(of).unwrap_or(1) as usize;
    let inner: usize = words.shape[dim + 1..].iter().product();
    let mut shape = words.shape.clone();
    shape[dim] *= width;
    let element = |at: usize| {
        let (row, i) = (at / inner / width, at / inner % width);
        elements(&words.element(row * inner + at % inner), of, unsigned)[i]
    };
    let all = 0..shape.iter().product();
    match of.is_float() {
        true => Array::floats(shape, all.map(|at| float(element(at))).collect()),
        false => Array::ints(shape, all.map(|at| int(element(at)) as i64).collect()),
    }
}

fn elements(word: &Value, of: Type, unsigned: bool) -> Vec<Scalar> {
    let Value::Int(word) = word else { return Vec::new() };
    let bits = of.bit_width().unwrap_or(32);
    let one = |i: u32| {
        let element = *word as u64 >> (i * bits) & ((1 << bits) - 1);
        match unsigned && !of.is_float() {
            true => Scalar::Int(i128::from(element)),
            false => Scalar::from_bits(element, of).unwrap_or(Scalar::Int(0)),
        }
    };
    (0..32 / bits).map(one).collect()
}

fn float(x: Scalar) -> f64 {
    if let Scalar::Float(x) = x { x } else { 0.0 }
}
fn int(x: Scalar) -> i128 {
    if let Scalar::Int(n) = x { n } else { 0 }
}
