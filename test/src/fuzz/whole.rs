//! Sums, products and what is made of them; sorting; control flow.

use super::Step;
use super::build::{Builder, Value};
use super::numbers::{Numbers, is_integer, rounding};
use super::shapes::{MOST, Size, elements, tensor};
use std::fmt::Write;

impl Builder {
    pub fn contracted(&mut self, step: &Step) -> Option<()> {
        let value = match step.choices[0] % 10 {
            0..=3 => self.reduced(step)?,
            4 => self.scanned(step)?,
            5..=7 => self.dot(step)?,
            8 => self.linear(step)?,
            _ => self.convolved(step)?,
        };
        self.keep(value)
    }

    pub fn whole(&mut self, step: &Step) -> Option<()> {
        match step.choices[0] % 11 {
            0..=2 => self.normalized(step),
            3 => self.attention(step),
            4 => self.sorted(step),
            5 => self.scattered(step),
            6 => self.conditional(step),
            7 => self.repeated(step),
            8 => self.called(step),
            9 => self.continued(step),
            _ => self.random(step),
        }
    }

    fn reduced(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0)?;
        let dims: Vec<usize> = match step.choices[1] % 6 {
            0 if x.rank() > 1 => vec![0, 1],
            1 => (0..x.rank()).collect(),
            2 => vec![x.rank() - 1],
            n => vec![usize::from(n) % x.rank()],
        };
        let count: i64 = dims.iter().map(|&d| x.shape[d].at(MOST)).product();
        let least: i64 = dims.iter().map(|&d| x.shape[d].at(super::shapes::Symbols { s: 0, t: 1 })).product();
        let kinds: &[&str] = match x.elem {
            "i1" => &["or", "and"],
            // The place of the largest is that of the first of equal ones, and of none there is none.
            _ if x.numbers.is_exact() && least > 0 && dims.len() == 1 => {
                &["add", "max", "min", "argmax", "argmin", "add"]
            }
            _ if least > 0 => &["add", "max", "add", "min"],
            _ => &["add"],
        };
        let kind = kinds[usize::from(step.choices[2]) % kinds.len()];
        let elem = if kind.starts_with("arg") { "i64" } else { x.elem };
        let numbers = match kind {
            "add" if x.is_float() => x.numbers.times(count as f64, x.elem),
            "max" | "min" => x.numbers,
            _ => Numbers::integers(),
        };
        let shape: Vec<Size> = (0..x.rank()).filter(|d| !dims.contains(d)).map(|d| x.shape[d]).collect();
        Some(self.op(&format!("core.reduce {} {{dims = {dims:?}, kind = {kind}}}", x.name), elem, &shape, numbers))
    }

    fn scanned(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1")?;
        let dim = usize::from(step.choices[1]) % x.rank();
        let kind = ["add", "max", "add", "min"][usize::from(step.choices[2]) % 4];
        let numbers = match (x.is_float(), kind) {
            (true, "add") => x.numbers.times(x.shape[dim].at(MOST) as f64, x.elem),
            (true, _) => x.numbers,
            _ => Numbers::integers(),
        };
        let shape = x.shape.clone();
        let flags = match (step.choices[3] % 4, kind) {
            (1, _) => ", reverse = true",
            (2, "add") => ", exclusive = true",
            _ => "",
        };
        Some(self.op(&format!("core.scan {} {{dim = {dim}, kind = {kind}{flags}}}", x.name), x.elem, &shape, numbers))
    }

    /// The product of a value with another, which is made of one that is there.
    fn dot(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1")?;
        let along = usize::from(step.choices[1]) % x.rank();
        let batch = step.choices[2].is_multiple_of(3) && x.rank() > 1;
        let batched = if along == 0 { 1 } else { 0 };
        let fits = |v: &Value| v.elem == x.elem && v.rank() < 4 && v.shape.contains(&x.shape[along]);
        let mut y = self.pick(step.operands[1], fits)?;
        if batch && !y.shape.contains(&x.shape[batched]) {
            let mut shape = y.shape.clone();
            shape.insert(0, x.shape[batched]);
            let dims: Vec<usize> = (1..shape.len()).collect();
            y = self.op(&format!("core.broadcast {} {{dims = {dims:?}}}", y.name), y.elem, &shape, y.numbers);
        }
        let at = (0..y.rank()).rfind(|&d| y.shape[d] == x.shape[along])?;
        let other = (0..y.rank()).find(|&d| batch && d != at && y.shape[d] == x.shape[batched]);
        let (mut shape, mut attrs) = (Vec::new(), format!("lhs_contract = [{along}], rhs_contract = [{at}]"));
        if let Some(other) = other {
            shape.push(x.shape[batched]);
            attrs = format!("lhs_batch = [{batched}], rhs_batch = [{other}], {attrs}");
        }
        let is_batch = |d: usize| other.is_some() && d == batched;
        shape.extend((0..x.rank()).filter(|&d| d != along && !is_batch(d)).map(|d| x.shape[d]));
        shape.extend((0..y.rank()).filter(|&d| d != at && Some(d) != other).map(|d| y.shape[d]));
        let numbers = match x.is_float() {
            true => x.numbers.product(y.numbers, "f64").times(x.shape[along].at(MOST) as f64, x.elem),
            false => Numbers::integers(),
        };
        (shape.len() <= 5)
            .then(|| self.op(&format!("core.dot {}, {} {{{attrs}}}", x.name, y.name), x.elem, &shape, numbers))
    }

    /// A value as weights of another.
    fn linear(&mut self, step: &Step) -> Option<Value> {
        let x = self.pick(step.operands[0], |v| v.rank() > 1 && v.is_float())?;
        let k = x.shape[x.rank() - 1];
        let w = self.pick(step.operands[1], |v| v.elem == x.elem && v.rank() == 2 && v.shape[1] == k)?;
        let b = self.pick(step.operands[2], |v| v.elem == x.elem && v.shape == [w.shape[0]]);
        let bias = b.as_ref().map_or(String::new(), |b| format!(" bias({})", b.name));
        let mut shape = x.shape.clone();
        *shape.last_mut()? = w.shape[0];
        let numbers = x.numbers.product(w.numbers, "f64").times(k.at(MOST) as f64, x.elem);
        let numbers = b.map_or(numbers, |b| numbers.sum(b.numbers, x.elem));
        Some(self.op(&format!("tensor.linear {}, {}{bias}", x.name, w.name), x.elem, &shape, numbers))
    }

    /// A convolution of a value's images, or pooling.
    fn convolved(&mut self, step: &Step) -> Option<Value> {
        let spatial = |d: &Size| d.as_number().is_some_and(|n| n > 3);
        let x = self.pick(step.operands[0], |v| v.is_float() && v.rank() > 2 && v.shape[2..].iter().all(spatial))?;
        let rank = x.rank() - 2;
        let of = |choice: u16, n: i64| i64::from(choice) % n;
        let (window, stride) = (1 + of(step.choices[1], 3), 1 + of(step.choices[2], 2));
        if step.choices[3].is_multiple_of(3) {
            return Some(self.averaged(&x, window, stride));
        }
        // Rows of windows along an image, padded or not, next to one another or not.
        let (padding, dilation) =
            (of(step.choices[2] / 2, window), if window < 3 { 1 + of(step.choices[1] / 3, 2) } else { 1 });
        let channels = x.shape[1];
        let groups = match channels.as_number() {
            Some(n) if n % 2 == 0 && n > 0 && (step.choices[2] / 8).is_multiple_of(4) => 2,
            _ => 1,
        };
        // More results than these would have the interpreter busy.
        let among: &[i64] = if elements(&x.shape, MOST) < 1024 { &[1, 3, 8, 16, 24, 48] } else { &[1, 2, 3] };
        let results = groups * among[usize::from(step.choices[3] / 3) % among.len()];
        let mut kernel =
            vec![Size::number(results), channels.as_number().map_or(channels, |n| Size::number(n / groups))];
        kernel.extend(vec![Size::number(window); rank]);
        let w = self.weights(usize::from(step.choices[0]) % kernel.len(), x.elem, &kernel);
        let mut shape = x.shape.clone();
        shape[1] = kernel[0];
        let reach = dilation * (window - 1) + 1;
        shape[2..].iter_mut().for_each(|d| *d = Size::number((d.c + 2 * padding - reach) / stride + 1));
        let count = window.pow(rank as u32) as f64 * channels.at(MOST) as f64;
        let numbers = x.numbers.product(w.numbers, "f64").times(count, x.elem);
        let [strides, paddings, dilations] = [stride, padding, dilation].map(|n| vec![n; rank]);
        let text = format!(
            "tensor.conv {}, {} {{strides = {strides:?}, padding = {paddings:?}, dilations = {dilations:?}, groups = {groups}}}",
            x.name, w.name
        );
        Some(self.op(&text, x.elem, &shape, numbers))
    }

    fn averaged(&mut self, x: &Value, window: i64, stride: i64) -> Value {
        let rank = x.rank() - 2;
        let mut shape = x.shape.clone();
        shape[2..].iter_mut().for_each(|d| *d = Size::number((d.c - window) / stride + 1));
        let numbers = x.numbers.times(window.pow(rank as u32) as f64, x.elem);
        let numbers = Numbers { bound: x.numbers.bound, grid: None, error: numbers.error + rounding(x.elem) };
        let (windows, strides) = (vec![window; rank], vec![stride; rank]);
        let text = format!("tensor.avg_pool {} {{window = {windows:?}, strides = {strides:?}}}", x.name);
        self.op(&text, x.elem, &shape, numbers)
    }

    /// Multiples of a quarter, three of them in turn along a dimension.
    fn weights(&mut self, dim: usize, elem: &'static str, shape: &[Size]) -> Value {
        let at = self.op(&format!("core.iota {{dim = {dim}}}"), "i32", shape, Numbers::integers());
        let three = self.splat(3.0, "i32", shape);
        let rest = self.call2("rem", &at, &three);
        let numbers = Numbers { bound: 2.0, ..Numbers::integers() };
        let turn = self.op(&format!("core.convert {}", rest.name), elem, shape, numbers);
        let quarter = self.splat(0.25, elem, shape);
        self.op(
            &format!("core.mul {}, {}", turn.name, quarter.name),
            elem,
            shape,
            numbers.product(quarter.numbers, elem),
        )
    }

    fn normalized(&mut self, step: &Step) -> Option<()> {
        let mut x = self.pick(step.operands[0], |v| v.is_float() && v.rank() > 0)?;
        if x.numbers.bound > 2.0 {
            x = self.unary("tanh", &x, 1.0, 1.0);
        }
        let dim = usize::from(step.choices[1]) % x.rank();
        let shape = x.shape.clone();
        let n = shape[dim].at(MOST).max(1) as f64;
        let numbers = x.numbers.through(1.0, 2.0, x.elem);
        let value = match step.choices[2] % 5 {
            0 | 1 => self.op(&format!("tensor.softmax {} {{dim = {dim}}}", x.name), x.elem, &shape, numbers),
            2 => {
                let numbers = Numbers { bound: 4.0 + n.ln(), ..x.numbers.through(4.0 + n.ln(), 2.0, x.elem) };
                self.op(&format!("tensor.log_softmax {} {{dim = {dim}}}", x.name), x.elem, &shape, numbers)
            }
            3 => {
                let numbers = x.numbers.through(1.0, 1.0, x.elem);
                self.op(&format!("tensor.silu {}", x.name), x.elem, &shape, numbers)
            }
            _ => {
                // Rows of equal elements have no variance but that of rounding, which 1/sqrt(0.01) makes ten times as large.
                let last = shape[x.rank() - 1];
                let wide = last.at(MOST).max(1) as f64;
                let error = 40.0 * wide.sqrt() * (x.numbers.error + 4.0 * rounding(x.elem) * x.numbers.bound);
                let numbers = Numbers { bound: wide.sqrt().max(1.0), grid: None, error };
                let name = if step.choices[3].is_multiple_of(2) { "layer_norm" } else { "rms_norm" };
                let weight = self.splat(1.0, x.elem, &[last]);
                let text = format!("tensor.{name} {} weight({}) {{eps = 0.01}}", x.name, weight.name);
                self.op(&text, x.elem, &shape, numbers)
            }
        };
        self.keep(value)
    }

    fn attention(&mut self, step: &Step) -> Option<()> {
        let q =
            self.pick(step.operands[0], |v| v.is_float() && (3..=4).contains(&v.rank()) && v.numbers.bound <= 2.0)?;
        let k = self.partner(step.operands[1], &q);
        let v = self.partner(step.operands[2], &k);
        if k.numbers.bound > 2.0 || q.shape[q.rank() - 1].as_number().is_none_or(|d| d == 0) {
            return None;
        }
        let d = q.shape[q.rank() - 1].c as f64;
        let scores = q.numbers.product(k.numbers, "f64").times(d, "f32");
        let error =
            4.0 * v.numbers.bound * (scores.error + rounding(q.elem) * (1.0 + scores.bound)) + 2.0 * v.numbers.error;
        let numbers = Numbers { bound: v.numbers.bound, grid: None, error: error + rounding(q.elem) * v.numbers.bound };
        let causal = step.choices[1].is_multiple_of(2);
        let mut scored = q.shape[..q.rank() - 1].to_vec();
        scored.push(k.shape[k.rank() - 2]);
        let mask = match step.choices[2] % 3 {
            0 => {
                // Every third place of a counter is hidden.
                let at = self.op(&format!("core.iota {{dim = {}}}", q.rank() - 1), "i32", &scored, Numbers::integers());
                let (three, zero) = (self.splat(3.0, "i32", &scored), self.splat(0.0, "i32", &scored));
                let rest = self.call2("rem", &at, &three);
                let text = format!("core.compare {}, {} {{kind = ne}}", rest.name, zero.name);
                format!(" mask({})", self.op(&text, "i1", &scored, Numbers::integers()).name)
            }
            _ => String::new(),
        };
        let text =
            format!("core.attention {}, {}, {}{mask} {{causal = {causal}, scale = 0.5}}", q.name, k.name, v.name);
        let shape = q.shape.clone();
        let value = self.op(&text, q.elem, &shape, numbers);
        self.keep(value)
    }

    fn sorted(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0 && v.elem != "i1" && v.numbers.is_exact())?;
        let dim = usize::from(step.choices[1]) % x.rank();
        x.shape[dim].as_number()?;
        let shape = x.shape.clone();
        let descending = step.choices[2].is_multiple_of(2);
        let text = format!("tensor.sort {} {{dim = {dim}, descending = {descending}}}", x.name);
        let both = self.ops(&text, vec![(x.elem, shape.clone(), x.numbers), ("i64", shape, Numbers::integers())]);
        both.into_iter().try_for_each(|value| self.keep(value))
    }

    fn scattered(&mut self, step: &Step) -> Option<()> {
        let rows = |v: &Value| v.rank() > 0 && v.elem != "i1" && v.shape[0].as_number().is_some_and(|n| n > 0);
        let x = self.pick(step.operands[0], rows)?;
        let count = Size::number(1 + i64::from(step.choices[1]) % 9);
        let at = self.indices(step, x.shape[0].c, &[count]);
        let mut shape = x.shape.clone();
        shape[0] = count;
        let updates = self.pick(step.operands[2], |v| v.elem == x.elem && v.shape == shape);
        let updates = updates.unwrap_or_else(|| self.splat(1.0, x.elem, &shape));
        // Which of several updates stays is not said.
        let kind = ["add", "max", "min"][usize::from(step.choices[2]) % 3];
        let numbers = match (x.is_float(), kind) {
            (true, "add") => x.numbers.sum(updates.numbers.times(count.c as f64, x.elem), x.elem),
            (true, _) => x.numbers.either(updates.numbers),
            _ => Numbers::integers(),
        };
        let text = format!("core.scatter {}, {}, {} {{axis = 0, kind = {kind}}}", x.name, at.name, updates.name);
        let shape = x.shape.clone();
        let value = self.op(&text, x.elem, &shape, numbers);
        self.keep(value)
    }

    /// A private function on one tensor.
    fn function(&mut self, name: &str, x: &Value, body: &str, result: &str) {
        let (ty, symbols) = (x.ty(), Builder::declared(&x.shape));
        let _ = writeln!(
            self.functions,
            "func.func private @{name}(%x: {ty}) -> {result} {symbols}{{\n{body}  func.return %y\n}}"
        );
    }

    fn callee(&self, what: &str) -> String {
        format!("{what}{}", self.functions.matches("func.func").count())
    }

    /// The sum of all elements of integers.
    fn total(&mut self, n: &Value) -> Value {
        let dims: Vec<usize> = (0..n.rank()).collect();
        if dims.is_empty() {
            return n.clone();
        }
        let text = format!("core.reduce {} {{dims = {dims:?}, kind = add}}", n.name);
        self.op(&text, n.elem, &[], Numbers::integers())
    }

    fn conditional(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.is_float())?;
        let n = self.pick(step.operands[1], |v| is_integer(v.elem))?;
        let sum = self.total(&n);
        let limit = self.splat(f64::from(step.choices[1] % 40), n.elem, &[]);
        let text = format!("core.compare {}, {} {{kind = lt}}", sum.name, limit.name);
        let condition = self.op(&text, "i1", &[], Numbers::integers());
        let (first, second) = (self.callee("then"), self.callee("else"));
        self.function(&first, &x, &format!("  %y = core.tanh %x : {}\n", x.ty()), &x.ty());
        self.function(&second, &x, &format!("  %y = core.neg %x : {}\n", x.ty()), &x.ty());
        let text = format!(
            "core.if {}, {} {{then = \"{first}\", else = \"{second}\"{}}}",
            condition.name,
            x.name,
            self.bind(&x.shape)
        );
        let numbers = x.numbers.through(x.numbers.bound.max(1.0), 1.0, x.elem);
        let shape = x.shape.clone();
        let value = self.op(&text, x.elem, &shape, numbers);
        self.keep(value)
    }

    /// A loop over the slices of a value, or so many times.
    fn repeated(&mut self, step: &Step) -> Option<()> {
        let all = self.pick(step.operands[0], |v| v.is_float() && v.rank() > 0 && v.numbers.bound <= 4.0)?;
        let row = &all.shape[1..];
        let start = self.splat(0.0, all.elem, row);
        let name = self.callee("body");
        let (ty, symbols) = (tensor(row, all.elem), Builder::declared(&all.shape));
        let _ = writeln!(
            self.functions,
            "func.func private @{name}(%sum: {ty}, %row: {ty}) -> ({ty}, {ty}) {symbols}{{\n  %y = core.add %sum, %row : {ty}\n  %z = core.mul %row, %row : {ty}\n  func.return %y, %z\n}}"
        );
        let times = all.shape[0];
        let text = format!(
            "core.for init({}) slices({}) {{body = \"{name}\", times = [{}]{}}}",
            start.name,
            all.name,
            times.text(),
            self.bind(&all.shape)
        );
        let n = times.at(MOST) as f64;
        // Each addition rounds to the element type.
        let sums = all.numbers.times(n, all.elem);
        let sums = Numbers { error: if sums.is_exact() { 0.0 } else { sums.error * (1.0 + n) }, ..sums };
        let squares = all.numbers.product(all.numbers, all.elem);
        let results = vec![(all.elem, row.to_vec(), sums), (all.elem, all.shape.clone(), squares)];
        self.ops(&text, results).into_iter().try_for_each(|value| self.keep(value))
    }

    /// A loop that goes on for as long as data says, at most three times.
    fn continued(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.is_float())?;
        let n = self.pick(step.operands[1], |v| is_integer(v.elem))?;
        let sum = self.total(&n);
        let (three, zero) = (self.splat(3.0, n.elem, &[]), self.splat(0.0, n.elem, &[]));
        let most = self.call2("and", &sum, &three);
        let (condition, body) = (self.callee("goes_on"), self.callee("turn"));
        let (ty, symbols) = (x.ty(), Builder::declared(&x.shape));
        let number = n.elem;
        let _ = writeln!(
            self.functions,
            "func.func private @{condition}(%i: tensor<{number}>, %x: {ty}, %most: tensor<{number}>) -> tensor<i1> {symbols}{{
  %y = core.compare %i, %most {{kind = lt}} : tensor<i1>
  func.return %y
}}
func.func private @{body}(%i: tensor<{number}>, %x: {ty}, %most: tensor<{number}>) -> (tensor<{number}>, {ty}) {symbols}{{
  %one = core.constant {{value = 1 : {number}}} : {number}
  %ones = core.broadcast %one {{dims = []}} : tensor<{number}>
  %next = core.add %i, %ones : tensor<{number}>
  %y = core.tanh %x : {ty}
  func.return %next, %y
}}"
        );
        let text = format!(
            "core.while init({}, {}) args({}) {{condition = \"{condition}\", body = \"{body}\"{}}}",
            zero.name,
            x.name,
            most.name,
            self.bind(&x.shape)
        );
        let bound = x.numbers.bound.max(1.0);
        let numbers = (0..3).fold(x.numbers, |numbers, _| numbers.through(bound, 1.0, x.elem));
        let results = vec![(n.elem, Vec::new(), Numbers::integers()), (x.elem, x.shape.clone(), numbers)];
        self.ops(&text, results).into_iter().try_for_each(|value| self.keep(value))
    }

    fn called(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.is_float())?;
        let name = self.callee("called");
        self.function(&name, &x, &format!("  %y = core.add %x, %x : {}\n", x.ty()), &x.ty());
        let text = format!("core.call {} {{callee = \"{name}\"{}}}", x.name, self.bind(&x.shape));
        let shape = x.shape.clone();
        let value = self.op(&text, x.elem, &shape, x.numbers.sum(x.numbers, x.elem));
        self.keep(value)
    }

    fn random(&mut self, step: &Step) -> Option<()> {
        let x = self.pick(step.operands[0], |v| v.rank() > 0)?;
        let (seed, offset) = (self.splat(f64::from(step.choices[1]), "i64", &[]), self.splat(3.0, "i64", &[]));
        let shape = x.shape.clone();
        if elements(&shape, MOST) > 1000 {
            return None;
        }
        let sizes: Vec<String> = shape.iter().map(|d| d.text()).collect();
        let text = format!(
            "tensor.rand_uniform {}, {} {{shape = [{}], elem = f32}}",
            seed.name,
            offset.name,
            sizes.join(", ")
        );
        let numbers = Numbers { bound: 1.0, grid: None, error: rounding("f32") };
        let value = self.op(&text, "f32", &shape, numbers);
        self.keep(value)
    }
}
