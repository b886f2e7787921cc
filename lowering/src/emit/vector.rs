//! Fixed vectors.

use super::{Builder, Value, element, lanes};
use melior::ir::ValueLike;

/// A horizontal reduction of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizontal {
    /// Sum of floats; a tree inside [`Builder::with_fast_math`] with `reassoc`, else in lane order.
    FAdd,
    /// Product of floats; order as for the sum.
    FMul,
    /// Largest float; NaN where any is NaN.
    FMaximum,
    /// Smallest float; NaN where any is NaN.
    FMinimum,
    Add,
    And,
    Or,
    SMax,
    SMin,
    UMax,
    UMin,
}

impl<'m> Builder<'m> {
    /// A vector of `lanes` copies.
    pub fn splat(&self, x: Value<'m>, lanes: usize) -> Value<'m> {
        let r#type = self.ty.vector(lanes, x.r#type());
        let first = self.insert(self.poison(r#type), x, 0);
        self.shuffle(first, first, &vec![0; lanes])
    }

    /// One lane.
    pub fn extract(&self, vector: Value<'m>, lane: usize) -> Value<'m> {
        self.extract_at(vector, self.i32(lane as i32))
    }

    /// The lane at an `i32` index.
    pub fn extract_at(&self, vector: Value<'m>, lane: Value<'m>) -> Value<'m> {
        self.op1("llvm.extractelement", &[vector, lane], element(vector.r#type()), &[])
    }

    /// The vector with one lane replaced.
    pub fn insert(&self, vector: Value<'m>, x: Value<'m>, lane: usize) -> Value<'m> {
        self.insert_at(vector, x, self.i32(lane as i32))
    }

    /// The vector with the lane at an `i32` index replaced.
    pub fn insert_at(&self, vector: Value<'m>, x: Value<'m>, lane: Value<'m>) -> Value<'m> {
        self.op1("llvm.insertelement", &[vector, x, lane], vector.r#type(), &[])
    }

    /// The lanes of `x` and then `y` that `mask` numbers, -1 for any.
    pub fn shuffle(&self, x: Value<'m>, y: Value<'m>, mask: &[i32]) -> Value<'m> {
        let result = self.ty.vector(mask.len(), element(x.r#type()));
        self.op1("llvm.shufflevector", &[x, y], result, &[("mask", self.i32_array(mask))])
    }

    /// A vector of these scalars.
    pub fn vector(&self, scalars: &[Value<'m>]) -> Value<'m> {
        let r#type = self.ty.vector(scalars.len(), scalars[0].r#type());
        let insert = |vector, (lane, &scalar): (usize, &Value<'m>)| self.insert(vector, scalar, lane);
        scalars.iter().enumerate().fold(self.poison(r#type), insert)
    }

    /// All lanes as scalars.
    pub fn scalars(&self, vector: Value<'m>) -> Vec<Value<'m>> {
        (0..lanes(vector.r#type()).unwrap_or(1)).map(|lane| self.extract(vector, lane)).collect()
    }

    /// `count` lanes from `first` on.
    pub fn slice(&self, vector: Value<'m>, first: usize, count: usize) -> Value<'m> {
        let mask: Vec<i32> = (first..first + count).map(|lane| lane as i32).collect();
        self.shuffle(vector, vector, &mask)
    }

    /// The lanes of two vectors of equal type, one after the other.
    pub fn concat(&self, x: Value<'m>, y: Value<'m>) -> Value<'m> {
        let lanes = lanes(x.r#type()).unwrap_or(1);
        let mask: Vec<i32> = (0..2 * lanes as i32).collect();
        self.shuffle(x, y, &mask)
    }

    /// The lanes 0, 1, 2, … of an integer type.
    pub fn lane_numbers(&self, lanes: usize, element: super::Type<'m>) -> Value<'m> {
        let numbers: Vec<_> = (0..lanes).map(|lane| self.int(element, lane as i64)).collect();
        self.vector(&numbers)
    }

    /// Reduces a vector to a scalar.
    pub fn reduce(&self, kind: Horizontal, vector: Value<'m>) -> Value<'m> {
        let scalar = element(vector.r#type());
        let name = |suffix: &str| format!("llvm.intr.vector.reduce.{suffix}");
        let integer = |suffix: &str| self.op1(&name(suffix), &[vector], scalar, &[]);
        let flags = self.fast_math_attributes();
        let float = |suffix: &str, operands: &[Value<'m>]| self.op1(&name(suffix), operands, scalar, flags.as_slice());
        match kind {
            Horizontal::FAdd => float("fadd", &[self.float(scalar, -0.0), vector]),
            Horizontal::FMul => float("fmul", &[self.float(scalar, 1.0), vector]),
            Horizontal::FMaximum => float("fmaximum", &[vector]),
            Horizontal::FMinimum => float("fminimum", &[vector]),
            Horizontal::Add => integer("add"),
            Horizontal::And => integer("and"),
            Horizontal::Or => integer("or"),
            Horizontal::SMax => integer("smax"),
            Horizontal::SMin => integer("smin"),
            Horizontal::UMax => integer("umax"),
            Horizontal::UMin => integer("umin"),
        }
    }
}
