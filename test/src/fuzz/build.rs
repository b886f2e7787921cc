//! The text of a module out of [`Seeds`].

use super::numbers::{FLOATS, INTEGERS, Numbers, is_float};
use super::shapes::{MOST, Size, Symbols, elements, tensor};
use super::{Random, Seeds, Step};
use std::fmt::Write;

/// A value of the function that is being written.
#[derive(Clone, Debug)]
pub struct Value {
    pub name: String,
    pub elem: &'static str,
    pub shape: Vec<Size>,
    pub numbers: Numbers,
}

/// A module with one public function, `@main`, and what to run it on.
#[derive(Clone, Debug)]
pub struct Case {
    pub text: String,
    pub args: Vec<Value>,
    pub results: Vec<Value>,
    pub symbols: Symbols,
    pub seed: u64,
}

/// The most elements of a value.
pub const MOST_ELEMENTS: i64 = 6000;

pub struct Builder {
    pub values: Vec<Value>,
    /// Whether sizes may be symbols.
    symbolic: bool,
    body: String,
    /// Functions that `@main` calls.
    pub functions: String,
    fresh: usize,
}

/// Sizes of dimensions: what tiles and vectors divide, and what they do not.
const SIZES: [i64; 14] = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 33, 0, 64];

/// Writes a module.
pub fn build(seeds: &Seeds) -> Case {
    let mut random = Random(seeds.start);
    let s = if random.below(8) == 0 { 0 } else { 1 + random.below(MOST.s as u64) as i64 };
    let symbols = Symbols { s, t: 1 + random.below(MOST.t as u64) as i64 };
    let symbolic = random.below(5) > 1;
    let mut b = Builder { values: Vec::new(), symbolic, body: String::new(), functions: String::new(), fresh: 0 };
    let mut arguments = Vec::new();
    for i in 0..2 + random.below(3) {
        let value = b.argument(i, &mut random);
        let constant = if random.below(5) == 0 { " {rc.constant = true}" } else { "" };
        arguments.push(format!("{}: {}{constant}", value.name, value.ty()));
        b.values.push(value);
    }
    if symbolic {
        // An argument that says what the symbols are.
        let shape = vec![Size { s: 1, t: 0, c: 0 }, Size { s: 0, t: 1, c: 0 }];
        let value = Value { name: "%sizes".into(), elem: "i64", shape, numbers: Numbers::integers() };
        arguments.push(format!("{}: {}", value.name, value.ty()));
        b.values.insert(0, value);
        arguments.rotate_right(1);
    }
    let args = b.values.clone();
    for step in &seeds.steps {
        b.step(step);
    }
    let results: Vec<Value> = b.values[args.len().min(b.values.len() - 1)..].iter().rev().take(3).cloned().collect();
    let types: Vec<String> = results.iter().map(Value::ty).collect();
    let names: Vec<&str> = results.iter().map(|v| v.name.as_str()).collect();
    let text = format!(
        "func.func @main({}) -> ({}) {}{{\n{}  func.return {}\n}}\n{}",
        arguments.join(", "),
        types.join(", "),
        Builder::declared(&b.values[0].shape),
        b.body,
        names.join(", "),
        b.functions
    );
    Case { text, args, results, symbols, seed: seeds.start }
}

impl Value {
    pub fn ty(&self) -> String {
        tensor(&self.shape, self.elem)
    }
    pub fn is_float(&self) -> bool {
        is_float(self.elem)
    }
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

impl Builder {
    fn argument(&mut self, i: u64, random: &mut Random) -> Value {
        let elem = match random.below(10) {
            0 => "f64",
            1 => INTEGERS[random.below(INTEGERS.len() as u64) as usize],
            _ => FLOATS[random.below(FLOATS.len() as u64) as usize],
        };
        let rank = [0, 1, 1, 2, 2, 2, 3, 3, 4][random.below(9) as usize];
        let mut shape: Vec<Size> = (0..rank).map(|_| self.size(random.draw() as u16)).collect();
        // Other arguments often have the first one's shape.
        if let (Some(first), true) = (self.values.first(), random.below(3) > 0) {
            shape = first.shape.clone();
        }
        while elements(&shape, MOST) > MOST_ELEMENTS {
            shape.pop();
        }
        Value { name: format!("%x{i}"), elem, shape, numbers: input_numbers(elem) }
    }

    /// The symbols, as a function declares them that takes a value of this shape.
    pub fn declared(shape: &[Size]) -> String {
        match shape.iter().any(|d| d.as_number().is_none()) {
            true => format!("attributes {{rc.symbols = #rc.symbols<s = [0, {}, 1], t = [1, {}, 1]>}} ", MOST.s, MOST.t),
            false => String::new(),
        }
    }

    /// What the symbols of a callee that takes such a value are: its caller's, if it has any.
    pub fn bind(&self, shape: &[Size]) -> &'static str {
        match shape.iter().all(|d| d.as_number().is_some()) {
            true => "",
            false => ", bind = <s = #rc.shape<[s]>, t = #rc.shape<[t]>>",
        }
    }

    pub fn size(&self, choice: u16) -> Size {
        match choice % 20 {
            0..=5 if !self.symbolic => Size::number(SIZES[usize::from(choice / 20) % SIZES.len()]),
            0..=2 => Size { s: 1, t: 0, c: 0 },
            3 => Size { s: 0, t: 1, c: 0 },
            4 => Size { s: 0, t: 4, c: 0 },
            5 => Size { s: 1, t: 0, c: 3 },
            n => Size::number(SIZES[(usize::from(n) + usize::from(choice / 20)) % SIZES.len()]),
        }
    }

    fn step(&mut self, step: &Step) {
        let before = (self.values.len(), self.body.len(), self.functions.len());
        let made = match step.kind % 11 {
            0 | 1 => self.elementwise(step),
            2..=4 => self.moved(step),
            5..=7 => self.contracted(step),
            10 => self.family(step),
            _ => self.whole(step),
        };
        let small = |v: &Value| elements(&v.shape, MOST) <= MOST_ELEMENTS && v.numbers.bound < 1e3;
        if made.is_none() || !self.values[before.0..].iter().all(small) {
            self.values.truncate(before.0);
            self.body.truncate(before.1);
            self.functions.truncate(before.2);
        }
    }

    /// A value that `fits`, the latest ones most often.
    pub fn pick(&self, choice: u16, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let found: Vec<&Value> = self.values.iter().rev().filter(|v| fits(v)).collect();
        let among = if choice & 1 == 0 { found.len().min(2) } else { found.len() };
        let at = usize::from(choice / 2) % among.max(1);
        found.get(at).map(|v| (*v).clone())
    }

    /// Writes an operation and gives its result.
    pub fn op(&mut self, text: &str, elem: &'static str, shape: &[Size], numbers: Numbers) -> Value {
        let name = format!("%v{}", self.fresh);
        self.fresh += 1;
        let value = Value { name, elem, shape: shape.to_vec(), numbers };
        let _ = writeln!(self.body, "  {} = {text} : {}", value.name, value.ty());
        value
    }

    /// Writes an operation with several results, whose names `text` is preceded by.
    pub fn ops(&mut self, text: &str, results: Vec<(&'static str, Vec<Size>, Numbers)>) -> Vec<Value> {
        let mut values = Vec::new();
        for (elem, shape, numbers) in results {
            values.push(Value { name: format!("%v{}", self.fresh), elem, shape, numbers });
            self.fresh += 1;
        }
        let names: Vec<&str> = values.iter().map(|v| v.name.as_str()).collect();
        let types: Vec<String> = values.iter().map(Value::ty).collect();
        let _ = writeln!(self.body, "  {} = {text} : {}", names.join(", "), types.join(", "));
        values
    }

    /// The same number everywhere.
    pub fn splat(&mut self, number: f64, elem: &'static str, shape: &[Size]) -> Value {
        let text = if is_float(elem) { format!("{number:?}") } else { format!("{number}") };
        let scalar = format!("%k{}", self.fresh);
        self.fresh += 1;
        let _ = writeln!(self.body, "  {scalar} = core.constant {{value = {text} : {elem}}} : {elem}");
        let numbers = Numbers { bound: number.abs(), grid: Some(2), error: 0.0 };
        self.op(&format!("core.broadcast {scalar} {{dims = []}}"), elem, shape, numbers)
    }

    /// A scalar constant's name.
    pub fn scalar(&mut self, number: f64, elem: &'static str) -> String {
        let text = if is_float(elem) { format!("{number:?}") } else { format!("{number}") };
        let name = format!("%k{}", self.fresh);
        self.fresh += 1;
        let _ = writeln!(self.body, "  {name} = core.constant {{value = {text} : {elem}}} : {elem}");
        name
    }

    /// Keeps a value for later steps.
    pub fn keep(&mut self, value: Value) -> Option<()> {
        self.values.push(value);
        Some(())
    }
}

/// Inputs are quarters from -2 to 2, integers from 0 to 9.
fn input_numbers(elem: &str) -> Numbers {
    if is_float(elem) { Numbers { bound: 2.0, grid: Some(2), error: 0.0 } } else { Numbers::integers() }
}
