//! Operations of `tensor`, which are decomposed.

use super::Step;
use super::build::{Builder, Value};
use super::numbers::{Numbers, rounding};
use super::shapes::{MOST, Size, Symbols};

/// Whether there is always an element.
fn is_full(sizes: &[Size]) -> bool {
    sizes.iter().all(|d| d.at(Symbols { s: 0, t: 1 }) > 0)
}

impl Builder {
    pub fn family(&mut self, step: &Step) -> Option<()> {
        match step.choices[0] % 8 {
            0 => self.activation(step),
            1 | 2 => self.summary(step),
            3 => self.cumulative(step),
            4 => self.placed(step),
            5 => self.greatest(step),
            6 => self.pooled(step),
            _ => self.loss(step),
        }
    }

    fn activation(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], Value::is_float)?;
        let value = match step.choices[1] % 3 {
            0 => self.op(&format!("tensor.relu {}", x.name), x.elem, &x.shape.clone(), x.numbers),
            n => {
                let form = ["tanh", "none"][usize::from(n - 1)];
                let numbers = x.numbers.through(x.numbers.bound, 1.2, x.elem);
                // GELU and its approximation differ; each is itself.
                self.op(&format!("tensor.gelu {} {{approximate = {form}}}", x.name), x.elem, &x.shape.clone(), numbers)
            }
        };
        self.keep(value)
    }

    /// A number for each row.
    fn summary(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.is_float() && v.rank() > 0 && is_full(&v.shape))?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let (n, bound) = (x.shape[dim].at(MOST) as f64, x.numbers.bound);
        let sums = x.numbers.times(n, x.elem);
        let rounded = 4.0 * rounding(x.elem) * bound * n.sqrt();
        let (name, numbers) = match step.choices[2] % 5 {
            0 => ("mean", Numbers { bound, grid: None, error: sums.error + rounded }),
            1 => {
                let error = 4.0 * bound.max(1.0) * (x.numbers.error + rounded) * n.sqrt();
                ("var", Numbers::rounded(2.0 * bound * bound, None, error, x.elem))
            }
            2 => ("logsumexp", x.numbers.through(bound + n.ln(), 2.0, x.elem)),
            3 => ("amax", x.numbers),
            _ => ("amin", x.numbers),
        };
        let mut shape = x.shape.clone();
        let keep = step.choices[3].is_multiple_of(2);
        if keep {
            shape[dim] = Size::number(1);
        } else {
            shape.remove(dim);
        }
        let correction = if name == "var" { ", correction = 0" } else { "" };
        let text = format!("tensor.{name} {} {{dims = [{dim}], keepdim = {keep}{correction}}}", x.name);
        let value = self.op(&text, x.elem, &shape, numbers);
        self.keep(value)
    }

    fn cumulative(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1")?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let n = x.shape[dim].at(MOST) as f64;
        let numbers = if x.is_float() { x.numbers.times(n, x.elem) } else { Numbers::integers() };
        let value = self.op(&format!("tensor.cumsum {} {{dim = {dim}}}", x.name), x.elem, &x.shape.clone(), numbers);
        self.keep(value)
    }

    /// Elements elsewhere, or zeros instead.
    fn placed(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.rank() > 1 && v.elem != "i1" && is_full(&v.shape))?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let by = i64::from(step.choices[2] % 9) - 4;
        let text = match step.choices[3] % 4 {
            0 if x.shape[dim].as_number().is_some() => {
                format!("tensor.roll {} {{dims = [{dim}], shifts = [{by}]}}", x.name)
            }
            1 => format!("tensor.tril {} {{diagonal = {by}}}", x.name),
            2 => format!("tensor.triu {} {{diagonal = {by}}}", x.name),
            _ => format!("tensor.flip {} {{dims = [{dim}]}}", x.name),
        };
        let value = self.op(&text, x.elem, &x.shape.clone(), x.numbers);
        self.keep(value)
    }

    fn greatest(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1" && v.numbers.is_exact())?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let n = x.shape[dim].as_number().filter(|&n| n > 0)?;
        let k = 1 + i64::from(step.choices[2]) % n;
        let mut shape = x.shape.clone();
        shape[dim] = Size::number(k);
        let text = format!("tensor.topk {} {{dim = {dim}, k = {k}}}", x.name);
        let both = vec![(x.elem, shape.clone(), x.numbers), ("i64", shape, Numbers::integers())];
        self.ops(&text, both).into_iter().try_for_each(|value| self.keep(value))
    }

    fn pooled(&mut self, step: &Step) -> Option<()> {
        let spatial = |d: &Size| d.as_number().is_some_and(|n| n > 2);
        let fits = |v: &Value| v.is_float() && v.rank() > 2 && v.rank() < 5 && v.shape[2..].iter().all(spatial);
        let x = self.pick(step.operands[0], |v| fits(v) && v.numbers.is_exact())?;
        let rank = x.rank() - 2;
        let (window, stride) = (2 + i64::from(step.choices[1]) % 2, 1 + i64::from(step.choices[2]) % 2);
        let padding = i64::from(step.choices[3]) % 2;
        let mut shape = x.shape.clone();
        shape[2..].iter_mut().for_each(|d| *d = Size::number((d.c + 2 * padding - window) / stride + 1));
        let text = format!(
            "tensor.max_pool {} {{window = {:?}, strides = {:?}, padding = {:?}}}",
            x.name,
            vec![window; rank],
            vec![stride; rank],
            vec![padding; rank]
        );
        let both = vec![(x.elem, shape.clone(), x.numbers), ("i64", shape, Numbers::integers())];
        self.ops(&text, both).into_iter().try_for_each(|value| self.keep(value))
    }

    fn loss(&mut self, step: &Step) -> Option<()> {
        let fits = |v: &Value| v.is_float() && v.rank() == 2 && is_full(&v.shape) && v.numbers.bound <= 16.0;
        let x = self.pick(step.operands[0], fits)?;
        let classes = x.shape[1].as_number()?;
        let target = self.indices(step, classes, &x.shape[..1]);
        let bound = 2.0 * x.numbers.bound + (classes as f64).ln();
        let error = x.numbers.through(bound, 2.0, x.elem).error * 8.0;
        let text = format!("tensor.cross_entropy {}, {}", x.name, target.name);
        let value = self.op(&text, x.elem, &[], Numbers { bound, grid: None, error });
        self.keep(value)
    }
}
