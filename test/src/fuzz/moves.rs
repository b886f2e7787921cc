//! Operations that move elements.

use super::Step;
use super::build::{Builder, Value};
use super::numbers::Numbers;
use super::shapes::{MOST, Size, Symbols, elements, list};

/// Whether a symbol decides that there is nothing.
fn may_be_empty(size: &Size) -> bool {
    size.as_number().is_none() && size.at(Symbols { s: 0, t: 1 }) == 0
}

impl Builder {
    pub fn moved(&mut self, step: &Step) -> Option<()> {
        let value = match step.choices[0] % 12 {
            0 => self.broadcast(step)?,
            1 => self.transposed(step)?,
            2 | 3 => self.reshaped(step)?,
            4 => self.sliced(step)?,
            5 => self.padded(step)?,
            6 => self.joined(step)?,
            7 => self.windows(step)?,
            8 | 9 => self.gathered(step)?,
            10 => self.reversed(step)?,
            _ => self.counted(step)?,
        };
        self.keep(value)
    }

    fn move_to(&mut self, text: String, x: &Value, shape: &[Size]) -> Value {
        self.op(&text, x.elem, shape, x.numbers)
    }

    pub fn broadcast(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() < 4)?;
        let at = usize::from(step.choices[1]) % (x.rank() + 1);
        let mut shape = x.shape.clone();
        shape.insert(at, self.size(step.choices[2]));
        let dims: Vec<String> = (0..shape.len()).filter(|&d| d != at).map(|d| d.to_string()).collect();
        Some(self.move_to(format!("core.broadcast {} {{dims = [{}]}}", x.name, dims.join(", ")), &x, &shape))
    }

    fn transposed(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 1)?;
        let mut perm: Vec<usize> = (0..x.rank()).collect();
        perm.rotate_left(usize::from(step.choices[1]) % x.rank());
        perm.swap(0, usize::from(step.choices[2]) % x.rank());
        Some(self.permuted(&x, &perm))
    }

    pub fn permuted(&mut self, x: &Value, perm: &[usize]) -> Value {
        let shape: Vec<Size> = perm.iter().map(|&d| x.shape[d]).collect();
        let perm: Vec<String> = perm.iter().map(usize::to_string).collect();
        self.move_to(format!("core.transpose {} {{perm = [{}]}}", x.name, perm.join(", ")), x, &shape)
    }

    /// Two dimensions as one, one as two, or another of a single element.
    fn reshaped(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |_| true)?;
        let mut shape = x.shape.clone();
        let at = usize::from(step.choices[1]) % (x.rank() + 1);
        match step.choices[2] % 3 {
            0 if at + 1 < x.rank() => {
                let (a, b) = (shape[at], shape[at + 1]);
                let product = match (a.as_number(), b.as_number()) {
                    (Some(n), _) => b.times(n),
                    (_, Some(n)) => a.times(n),
                    _ => return None,
                };
                shape.splice(at..at + 2, [product]);
            }
            1 if at < x.rank() => {
                let whole = shape[at];
                let divides = |n: &i64| whole.s % n == 0 && whole.t % n == 0 && whole.c % n == 0;
                let parts: Vec<i64> = [2, 3, 4, 8, 11].into_iter().filter(divides).collect();
                let n = *parts.get(usize::from(step.choices[3]) % parts.len().max(1))?;
                let rest = Size { s: whole.s / n, t: whole.t / n, c: whole.c / n };
                let pair = if step.choices[3] & 64 == 0 { [rest, Size::number(n)] } else { [Size::number(n), rest] };
                shape.splice(at..at + 1, pair);
            }
            _ => shape.insert(at, Size::number(1)),
        }
        (shape.len() <= 5).then(|| self.move_to(format!("core.reshape {}", x.name), &x, &shape))
    }

    fn sliced(&mut self, step: &Step) -> Option<Value> {
        let long = |d: &Size| d.as_number().is_some_and(|n| n > 1);
        let x = self.pick(step.operands[0], |v| v.shape.iter().any(long))?;
        let at = (0..x.rank()).filter(|&d| long(&x.shape[d])).max_by_key(|d| (d + usize::from(step.choices[1])) % 5)?;
        let n = x.shape[at].c;
        let stride = 1 + i64::from(step.choices[2]) % 3;
        let start = i64::from(step.choices[3]) % n;
        let most = (n - start - 1) / stride + 1;
        let size = 1 + i64::from(step.choices[1] / 8) % most;
        let (mut starts, mut strides) = (vec![Size::number(0); x.rank()], vec![Size::number(1); x.rank()]);
        let mut shape = x.shape.clone();
        (starts[at], strides[at], shape[at]) = (Size::number(start), Size::number(stride), Size::number(size));
        let text = format!(
            "core.slice {} {{starts = [{}], sizes = [{}], strides = [{}]}}",
            x.name,
            list(&starts),
            list(&shape),
            list(&strides)
        );
        Some(self.move_to(text, &x, &shape))
    }

    fn padded(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1" && !v.shape.iter().any(may_be_empty))?;
        let value = self.scalar(f64::from(step.choices[1] % 2), x.elem);
        let at = usize::from(step.choices[2]) % x.rank();
        let (mut low, mut high) = (vec![Size::number(0); x.rank()], vec![Size::number(0); x.rank()]);
        low[at] = Size::number(i64::from(step.choices[3]) % 4);
        high[at] = self.size(step.choices[3] / 4);
        let shape: Vec<Size> = (0..x.rank()).map(|d| x.shape[d].plus(low[d]).plus(high[d])).collect();
        let text = format!("core.pad {}, {value} {{low = [{}], high = [{}]}}", x.name, list(&low), list(&high));
        let numbers = Numbers { bound: x.numbers.bound.max(1.0), ..x.numbers };
        Some(self.op(&text, x.elem, &shape, numbers))
    }

    fn joined(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && !v.shape.iter().any(may_be_empty))?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let mut parts = vec![x.clone()];
        let fits = |v: &Value| {
            v.elem == x.elem && v.rank() == x.rank() && (0..x.rank()).all(|d| d == dim || v.shape[d] == x.shape[d])
        };
        for &choice in &step.operands[1..2 + usize::from(step.choices[2] % 2)] {
            parts.extend(self.pick(choice, fits));
        }
        let mut shape = x.shape.clone();
        shape[dim] = parts.iter().fold(Size::number(0), |n, v| n.plus(v.shape[dim]));
        let numbers = parts.iter().fold(x.numbers, |n, v| n.either(v.numbers));
        let names: Vec<&str> = parts.iter().map(|v| v.name.as_str()).collect();
        let text = format!("core.concat {} {{dim = {dim}}}", names.join(", "));
        Some(self.op(&text, x.elem, &shape, numbers))
    }

    fn windows(&mut self, step: &Step) -> Option<Value> {
        let long = |d: &Size| d.as_number().is_some_and(|n| n > 2);
        let x = self.pick(step.operands[0], |v| v.rank() < 4 && v.shape.iter().any(long))?;
        let at = (0..x.rank()).rfind(|&d| long(&x.shape[d]))?;
        let (size, stride) = (1 + i64::from(step.choices[1]) % 3, 1 + i64::from(step.choices[2]) % 2);
        let mut shape = x.shape.clone();
        shape[at] = Size::number((x.shape[at].c - size) / stride + 1);
        shape.push(Size::number(size));
        let text = format!(
            "core.window {} {{dims = [{at}], sizes = [{size}], strides = [{stride}], dilations = [1]}}",
            x.name
        );
        Some(self.move_to(text, &x, &shape))
    }

    /// Indices into `n` rows, of a shape: of integers that a value has, or of counting.
    pub fn indices(&mut self, step: &Step, n: i64, shape: &[Size]) -> Value {
        let found = self.pick(step.operands[1], |v| v.elem == "i64" && v.shape == shape);
        let from = match found {
            Some(found) => found,
            None if shape.is_empty() => self.splat(5.0, "i64", shape),
            None => {
                let dim = usize::from(step.choices[3]) % shape.len();
                self.op(&format!("core.iota {{dim = {dim}}}"), "i64", shape, Numbers::integers())
            }
        };
        // The least integer is its own absolute value.
        let most = self.splat(65535.0, "i64", shape);
        let (low, rows) = (self.call2("and", &from, &most), self.splat(n as f64, "i64", shape));
        self.call2("rem", &low, &rows)
    }

    fn gathered(&mut self, step: &Step) -> Option<Value> {
        let rows = |d: &Size| d.as_number().is_some_and(|n| n > 0);
        let x = self.pick(step.operands[0], |v| v.shape.iter().any(rows))?;
        let axis =
            (0..x.rank()).filter(|&d| rows(&x.shape[d])).min_by_key(|d| (d + usize::from(step.choices[1])) % 3)?;
        let rank = usize::from(step.choices[2] % 3);
        let shape: Vec<Size> = (0..rank).map(|d| self.size(step.choices[3].rotate_left(5 * d as u32))).collect();
        if elements(&shape, MOST) > 300 {
            return None;
        }
        let at = self.indices(step, x.shape[axis].c, &shape);
        let mut result = x.shape.clone();
        result.splice(axis..axis + 1, shape);
        (result.len() <= 5)
            .then(|| self.move_to(format!("core.gather {}, {} {{axis = {axis}}}", x.name, at.name), &x, &result))
    }

    fn reversed(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0)?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let shape = x.shape.clone();
        Some(self.move_to(format!("core.reverse {} {{dims = [{dim}]}}", x.name), &x, &shape))
    }

    /// Numbers that count, or the bits of others.
    fn counted(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0)?;
        if step.choices[1].is_multiple_of(2) && x.is_float() && x.numbers.is_exact() {
            let to = match x.elem {
                "f64" => "i64",
                "f32" => "i32",
                _ => "i16",
            };
            return Some(self.op(&format!("core.bitcast {}", x.name), to, &x.shape, Numbers::integers()));
        }
        let elem = ["i64", "i32", "f32"][usize::from(step.choices[2]) % 3];
        let dim = usize::from(step.choices[1] / 2) % x.rank();
        let numbers = Numbers { bound: if elem == "f32" { 100.0 } else { 0.0 }, grid: Some(0), error: 0.0 };
        Some(self.op(&format!("core.iota {{dim = {dim}}}"), elem, &x.shape, numbers))
    }
}
