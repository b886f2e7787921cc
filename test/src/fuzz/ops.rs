//! Elementwise operations.

use super::Step;
use super::build::{Builder, Value};
use super::numbers::{FLOATS, INTEGERS, Numbers, is_float, is_integer};

/// Functions of a float, with a bound of their results and of their slope for arguments from -1 to 1.
const SMOOTH: [(&str, f64, f64); 27] = [
    ("exp", 3.0, 3.0),
    ("exp2", 2.0, 2.0),
    ("tanh", 1.0, 1.0),
    ("logistic", 1.0, 1.0),
    ("sin", 1.0, 1.0),
    ("cos", 1.0, 1.0),
    ("tan", 2.0, 4.0),
    ("atan", 1.0, 1.0),
    ("asinh", 1.0, 1.0),
    ("sinh", 2.0, 2.0),
    ("cosh", 2.0, 2.0),
    ("erf", 1.0, 2.0),
    ("erfc", 2.0, 2.0),
    ("expm1", 2.0, 3.0),
    ("log", 2.0, 2.0),
    ("log2", 2.0, 3.0),
    ("log10", 2.0, 2.0),
    ("log1p", 2.0, 2.0),
    ("sqrt", 2.0, 2.0),
    ("rsqrt", 2.0, 2.0),
    ("lgamma", 2.0, 2.0),
    ("digamma", 3.0, 8.0),
    ("acosh", 2.0, 1.0),
    ("asin", 1.0, 1.0),
    ("acos", 3.0, 1.0),
    ("atanh", 1.0, 1.0),
    ("erfinv", 1.0, 1.0),
];

impl Builder {
    pub fn elementwise(&mut self, step: &Step) -> Option<()> {
        let value = match step.choices[0] % 10 {
            0 | 1 => self.smooth(step)?,
            2 => self.stepped(step)?,
            3..=5 => self.binary(step)?,
            6 => self.chosen(step)?,
            7 => self.converted(step)?,
            8 => self.integral(step)?,
            _ => self.predicate(step)?,
        };
        self.keep(value)
    }

    fn smooth(&mut self, step: &Step) -> Option<Value> {
        let mut x = self.pick(step.operands[0], Value::is_float)?;
        let (name, bound, slope) = SMOOTH[usize::from(step.choices[1]) % SMOOTH.len()];
        if x.numbers.bound > 1.0 {
            x = self.unary("tanh", &x, 1.0, 1.0);
        }
        if ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma"].contains(&name) {
            // From 1 to 2, where they have no poles.
            let (one, square) = (self.splat(1.0, x.elem, &x.shape), self.call2("mul", &x, &x));
            x = self.call2("add", &square, &one);
        }
        if ["asin", "acos", "atanh", "erfinv", "acosh"].contains(&name) {
            // From -1/2 to 1/2, or from 3/2 on, where their slopes are small.
            let half = self.splat(0.5, x.elem, &x.shape);
            x = self.call2("mul", &x, &half);
        }
        if name == "acosh" {
            let two = self.splat(2.0, x.elem, &x.shape);
            x = self.call2("add", &x, &two);
        }
        Some(self.unary(name, &x, bound, slope))
    }

    pub fn unary(&mut self, name: &str, x: &Value, bound: f64, slope: f64) -> Value {
        self.op(&format!("core.{name} {}", x.name), x.elem, &x.shape, x.numbers.through(bound, slope, x.elem))
    }

    /// Functions with steps, of numbers that no pass changes; and signs, of any.
    fn stepped(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], Value::is_float)?;
        let exact = ["floor", "ceil", "round", "trunc", "sign"];
        let name = match x.numbers.is_exact() {
            true => exact[usize::from(step.choices[1]) % 5],
            false => ["neg", "abs"][usize::from(step.choices[1]) % 2],
        };
        let numbers = Numbers { grid: x.numbers.grid.or(x.numbers.is_exact().then_some(0)), ..x.numbers };
        let numbers = Numbers { bound: numbers.bound.max(1.0), ..numbers };
        Some(self.op(&format!("core.{name} {}", x.name), x.elem, &x.shape, numbers))
    }

    /// Another value of the same type, perhaps the same one.
    pub fn partner(&self, choice: u16, of: &Value) -> Value {
        let found = self.pick(choice, |v| v.elem == of.elem && v.shape == of.shape);
        found.unwrap_or_else(|| of.clone())
    }

    pub fn call2(&mut self, name: &str, x: &Value, y: &Value) -> Value {
        let (a, b) = (x.numbers, y.numbers);
        let numbers = match name {
            _ if !x.is_float() => Numbers::integers(),
            "mul" => a.product(b, x.elem),
            "max" | "min" => a.either(b),
            _ => a.sum(b, x.elem),
        };
        self.op(&format!("core.{name} {}, {}", x.name, y.name), x.elem, &x.shape, numbers)
    }

    fn binary(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.elem != "i1")?;
        let y = self.partner(step.operands[1], &x);
        match step.choices[1] % 10 {
            n @ 0..=4 => Some(self.call2(["add", "sub", "mul", "max", "min"][usize::from(n)], &x, &y)),
            _ if !x.is_float() => None,
            5 => {
                let z = self.partner(step.operands[2], &x);
                let numbers = x.numbers.product(y.numbers, x.elem).sum(z.numbers, x.elem);
                let text = format!("core.fma {}, {}, {}", x.name, y.name, z.name);
                Some(self.op(&text, x.elem, &x.shape, numbers))
            }
            6 => {
                // A quotient by at least 1.
                let (one, size) = (self.splat(1.0, x.elem, &x.shape), self.unary("abs", &y, y.numbers.bound, 1.0));
                let below = self.call2("add", &size, &one);
                let error = x.numbers.error + x.numbers.bound * y.numbers.error;
                let numbers = Numbers::rounded(x.numbers.bound, None, error, x.elem);
                Some(self.op(&format!("core.div {}, {}", x.name, below.name), x.elem, &x.shape, numbers))
            }
            7 => {
                let (low, high) = (self.splat(-0.5, x.elem, &x.shape), self.splat(1.0, x.elem, &x.shape));
                let text = format!("core.clamp {}, {}, {}", x.name, low.name, high.name);
                let grid = x.numbers.grid.map(|g| g.max(2));
                let numbers = Numbers { bound: 1.0, grid, error: x.numbers.error };
                Some(self.op(&text, x.elem, &x.shape, numbers))
            }
            8 => {
                // The angle of what has at least 1 along the first axis.
                let (one, size) = (self.splat(1.0, x.elem, &x.shape), self.unary("abs", &x, x.numbers.bound, 1.0));
                let along = self.call2("add", &size, &one);
                let numbers = Numbers::rounded(2.0, None, along.numbers.error + y.numbers.error, x.elem);
                Some(self.op(&format!("core.atan2 {}, {}", y.name, along.name), x.elem, &x.shape, numbers))
            }
            _ => {
                // A power of 1 to 2.
                let (x, y) = (self.unary("tanh", &x, 1.0, 1.0), self.unary("tanh", &y, 1.0, 1.0));
                let (one, square) = (self.splat(1.0, x.elem, &x.shape), self.call2("mul", &x, &x));
                let base = self.call2("add", &square, &one);
                let error = 4.0 * (base.numbers.error + y.numbers.error);
                let numbers = Numbers::rounded(2.0, None, error, x.elem);
                Some(self.op(&format!("core.pow {}, {}", base.name, y.name), x.elem, &x.shape, numbers))
            }
        }
    }

    /// A choice by a comparison of numbers that no pass changes.
    fn chosen(&mut self, step: &Step) -> Option<Value> {
        let condition = self.compared(step)?;
        let x = self.pick(step.operands[1], |v| v.shape == condition.shape && v.elem != "i1")?;
        let y = self.partner(step.operands[2], &x);
        let text = format!("core.select {}, {}, {}", condition.name, x.name, y.name);
        Some(self.op(&text, x.elem, &x.shape, x.numbers.either(y.numbers)))
    }

    pub fn compared(&mut self, step: &Step) -> Option<Value> {
        let a = self.pick(step.operands[0], |v| v.numbers.is_exact() && v.elem != "i1")?;
        let b = self.pick(step.operands[1], |v| v.numbers.is_exact() && v.elem == a.elem && v.shape == a.shape);
        let b = b.unwrap_or_else(|| a.clone());
        let kind = ["lt", "ge", "eq", "ne", "gt", "le"][usize::from(step.choices[2]) % 6];
        let text = format!("core.compare {}, {} {{kind = {kind}}}", a.name, b.name);
        Some(self.op(&text, "i1", &a.shape, Numbers::integers()))
    }

    fn converted(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |_| true)?;
        let to = match step.choices[1] % 8 {
            0 => "f64",
            1 => INTEGERS[usize::from(step.choices[2]) % INTEGERS.len()],
            _ => FLOATS[usize::from(step.choices[2]) % FLOATS.len()],
        };
        // What is not whole is cut, and of what does not fit nothing is said.
        let cut = is_float(x.elem) && !is_float(to) && !(x.numbers.is_exact() && x.numbers.bound < 100.0);
        if cut || is_integer(to) && x.is_float() && to.starts_with("ui") || x.elem == to {
            return None;
        }
        let numbers = match (is_float(x.elem), is_float(to)) {
            (true, true) => Numbers::rounded(x.numbers.bound, x.numbers.grid, x.numbers.error, to),
            // Of integers all digits may count.
            (false, true) if ["i8", "ui8"].contains(&x.elem) => Numbers::rounded(256.0, Some(0), 0.0, to),
            (false, true) if x.elem == "i1" => Numbers { bound: 1.0, grid: Some(0), error: 0.0 },
            (false, true) => return None,
            _ => Numbers::integers(),
        };
        Some(self.op(&format!("core.convert {}", x.name), to, &x.shape, numbers))
    }

    fn integral(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| is_integer(v.elem))?;
        let y = self.partner(step.operands[1], &x);
        let name = ["and", "or", "xor", "shl", "shr", "div", "rem", "max"][usize::from(step.choices[1]) % 8];
        if !["shl", "shr", "div", "rem"].contains(&name) {
            return Some(self.call2(name, &x, &y));
        }
        let (seven, one) = (self.splat(7.0, x.elem, &x.shape), self.splat(1.0, x.elem, &x.shape));
        let low = self.call2("and", &y, &seven);
        let right = if name.starts_with("sh") { low } else { self.call2("add", &low, &one) };
        Some(self.call2(name, &x, &right))
    }

    fn predicate(&mut self, step: &Step) -> Option<Value> {
        if step.choices[3].is_multiple_of(4) {
            let x = self.pick(step.operands[0], Value::is_float)?;
            let name = ["is_nan", "is_finite"][usize::from(step.choices[1]) % 2];
            return Some(self.op(&format!("core.{name} {}", x.name), "i1", &x.shape, Numbers::integers()));
        }
        let x = self.compared(step)?;
        let y = self.partner(step.operands[2], &x);
        match ["and", "or", "xor", "not"][usize::from(step.choices[1]) % 4] {
            "not" => Some(self.op(&format!("core.not {}", x.name), "i1", &x.shape, Numbers::integers())),
            name => Some(self.call2(name, &x, &y)),
        }
    }
}
