//! Elementwise ops of `core` on scalars and arrays, by the functions that the dialect declares.

use rayon::prelude::*;
use rc_dialects::core::scalar::{self, IntType, Scalar};
use rc_dialects::interfaces::{self, FloatFn, IntFn};
use rc_dialects::op;
use rc_ir::attr::{float_from_bits, float_to_bits};
use rc_ir::types::FloatKind;
use rc_ir::{OpRef, Result, Type};

use super::Mode;
use super::value::{Array, Class, Element, Format, Value};

/// An element of each operand.
type Operands = smallvec::SmallVec<[Element; 3]>;

/// Below this many elements an op runs on one thread.
const PARALLEL: usize = 1 << 15;

/// An elementwise op made ready to run.
#[derive(Clone, Copy)]
pub(crate) struct Elementwise {
    function: Function,
    /// Format of the last operand.
    input: Format,
    output: Format,
}

#[derive(Clone, Copy)]
enum Function {
    Float(FloatFn),
    Int(IntFn, IntType),
    /// The answers for less, equal, greater and unordered.
    Compare([bool; 4]),
    Select,
    Convert,
    /// To `i1`: whether it is not zero.
    Truth,
    /// The kinds of the operand and of the result, where they are floats.
    Bitcast(Option<FloatKind>, Option<FloatKind>),
}

impl Elementwise {
    /// Reads an op with the trait `ELEMENTWISE`.
    pub fn of(op: OpRef, mode: Mode) -> Result<Elementwise> {
        let format = |value| {
            let ty = op.body.ty(value).elem();
            Format::of(ty, mode).ok_or_else(|| op.unsupported(format!("on elements of type {ty}")))
        };
        let last = op.operands().next_back().ok_or_else(|| op.unsupported("without operands"))?;
        let (input, output) = (format(last)?, format(op.result(0))?);
        let function = match op.name().as_str() {
            op::core::COMPARE => {
                compare(op.str("kind").unwrap_or_default()).ok_or_else(|| op.error("has an unknown 'kind'"))?
            }
            op::core::SELECT => Function::Select,
            op::core::CONVERT if output.ty == Type::i1() => Function::Truth,
            op::core::CONVERT => Function::Convert,
            op::core::BITCAST => Function::Bitcast(input.ty.float_kind(), output.ty.float_kind()),
            op::core::FMA if mode == Mode::Typed && input.ty == Type::f32() => {
                Function::Float(FloatFn::Ternary(|a, b, c| f64::from((a as f32).mul_add(b as f32, c as f32))))
            }
            _ => regular(op, input)?,
        };
        Ok(Elementwise { function, input, output })
    }

    /// Applies the op. Scalars beside arrays stand for themselves everywhere; arrays have one shape.
    /// `None` is an error of the program: an integer divided by zero.
    pub fn apply(&self, args: &[&Value]) -> Option<Value> {
        let Some(shape) = args.iter().find_map(|a| if let Value::Array(a) = a { Some(&a.shape) } else { None }) else {
            return self.element(&args.iter().map(|a| scalar_of(a)).collect::<Operands>()).map(Element::value);
        };
        let count = shape.iter().product();
        let result = match (self.function, args) {
            (Function::Float(f), _) => self.apply_float(f, args, count),
            (Function::Select, [c, a, b]) => select(c, a, b, self.output.is_float(), count),
            (Function::Compare(table), [a, b]) if self.input.is_float() => {
                let (a, b) = (Floats::of(a), Floats::of(b));
                Elements::Ints(build(count, |i| i64::from(table[order(a.at(i).partial_cmp(&b.at(i)))])))
            }
            (Function::Compare(table), [a, b]) => {
                let (a, b, f) = (Ints::of(a), Ints::of(b), self.input);
                Elements::Ints(build(count, |i| i64::from(table[order(Some(f.wide(a.at(i)).cmp(&f.wide(b.at(i)))))])))
            }
            (Function::Int(IntFn::Binary(f), int), [a, b]) => {
                let (a, b, t, out) = (Ints::of(a), Ints::of(b), self.input, self.output);
                Elements::Ints(try_build(count, |i| Some(out.wrap(f(t.wide(a.at(i)), t.wide(b.at(i)), int)?)))?)
            }
            (Function::Convert, [x]) if self.input.is_float() && self.output.is_float() => {
                let (x, out) = (Floats::of(x), self.output);
                Elements::Floats(build(count, |i| out.round(x.at(i))))
            }
            _ => return self.apply_each(args, shape.clone(), count),
        };
        Some(Value::Array(match result {
            Elements::Floats(values) => Array::floats(shape.clone(), values),
            Elements::Ints(values) => Array::ints(shape.clone(), values),
        }))
    }

    fn apply_float(&self, f: FloatFn, args: &[&Value], count: usize) -> Elements {
        let out = self.output;
        let arg = |i: usize| Floats::of(args[i]);
        match f {
            FloatFn::Unary(f) => {
                let a = arg(0);
                Elements::Floats(build(count, |i| out.round(f(a.at(i)))))
            }
            FloatFn::Binary(f) => {
                let (a, b) = (arg(0), arg(1));
                Elements::Floats(build(count, |i| out.round(f(a.at(i), b.at(i)))))
            }
            FloatFn::Ternary(f) => {
                let (a, b, c) = (arg(0), arg(1), arg(2));
                Elements::Floats(build(count, |i| out.round(f(a.at(i), b.at(i), c.at(i)))))
            }
            FloatFn::Test(f) => {
                let a = arg(0);
                Elements::Ints(build(count, |i| i64::from(f(a.at(i)))))
            }
        }
    }

    /// Element by element, for what has no loop of its own: integers, and conversions that change the class.
    fn apply_each(&self, args: &[&Value], shape: Vec<usize>, count: usize) -> Option<Value> {
        let at = |i: usize| -> Option<Element> {
            let element = |a: &&Value| if let Value::Array(a) = a { a.at(i) } else { scalar_of(a) };
            self.element(&args.iter().map(element).collect::<Operands>())
        };
        if self.output.is_float() {
            let values = try_build(count, |i| if let Element::Float(x) = at(i)? { Some(x) } else { None })?;
            return Some(Value::Array(Array::floats(shape, values)));
        }
        let values = try_build(count, |i| if let Element::Int(n) = at(i)? { Some(n) } else { None })?;
        Some(Value::Array(Array::ints(shape, values)))
    }

    /// Applies the op to one element of each operand.
    pub fn element(&self, args: &[Element]) -> Option<Element> {
        let float = |i: usize| match args[i] {
            Element::Float(x) => x,
            Element::Int(n) => self.input.wide(n) as f64,
        };
        let out = self.output;
        Some(match self.function {
            Function::Float(FloatFn::Unary(f)) => Element::Float(out.round(f(float(0)))),
            Function::Float(FloatFn::Binary(f)) => Element::Float(out.round(f(float(0), float(1)))),
            Function::Float(FloatFn::Ternary(f)) => Element::Float(out.round(f(float(0), float(1), float(2)))),
            Function::Float(FloatFn::Test(f)) => Element::Int(i64::from(f(float(0)))),
            Function::Int(f, int) => {
                let arg = |i: usize| if let Element::Int(n) = args[i] { self.input.wide(n) } else { 0 };
                let result = match f {
                    IntFn::Unary(f) => f(arg(0)),
                    IntFn::Binary(f) => f(arg(0), arg(1), int)?,
                    IntFn::Ternary(f) => f(arg(0), arg(1), arg(2)),
                };
                Element::Int(out.wrap(result))
            }
            Function::Compare(table) => {
                let answer = match (args[0], args[1]) {
                    (Element::Int(a), Element::Int(b)) => Some(self.input.wide(a).cmp(&self.input.wide(b))),
                    _ => float(0).partial_cmp(&float(1)),
                };
                Element::Int(i64::from(table[order(answer)]))
            }
            Function::Select => args[if matches!(args[0], Element::Int(n) if n != 0) { 1 } else { 2 }],
            Function::Truth => Element::Int(i64::from(args[0].scalar(self.input).is_true())),
            Function::Convert => self.convert(args[0])?,
            Function::Bitcast(from, to) => {
                let bits = match (args[0], from, self.input.class) {
                    (Element::Float(x), Some(kind), _) => float_to_bits(kind, x),
                    (Element::Int(n), None, Class::Int(int)) => n as u64 & (u64::MAX >> (64 - int.width)),
                    _ => return None,
                };
                match to {
                    Some(kind) => Element::Float(float_from_bits(kind, bits)),
                    None => Element::Int(out.wrap(i128::from(bits))),
                }
            }
        })
    }

    fn convert(&self, x: Element) -> Option<Element> {
        Some(match (x, self.output.class) {
            (Element::Float(x), Class::Float(round)) => Element::Float(round(x)),
            // In float64 mode nothing is rounded to the type.
            (Element::Int(n), Class::Float(round)) if round(0.1) == 0.1 => Element::Float(self.input.wide(n) as f64),
            (Element::Int(n), Class::Int(int)) => Element::Int(int.wrap(self.input.wide(n)) as i64),
            _ => Element::from(x.scalar(self.input).convert(self.output.ty)?),
        })
    }
}

/// Memory stands for 0: no op that verifies has it as an operand here.
fn scalar_of(value: &Value) -> Element {
    Element::of(value).unwrap_or(Element::Int(0))
}

fn regular(op: OpRef, input: Format) -> Result<Function> {
    let declared = op.def().and_then(|d| d.interface::<interfaces::Elementwise>());
    let function = declared.and_then(|d| match input.class {
        Class::Float(_) => d.float.map(Function::Float),
        Class::Int(int) => d.int.map(|f| Function::Int(f, int)),
    });
    function.ok_or_else(|| op.unsupported(format!("on elements of type {}", input.ty)))
}

fn compare(kind: &str) -> Option<Function> {
    let float = |a: f64, b: f64| scalar::compare(kind, Scalar::Float(a), Scalar::Float(b));
    Some(Function::Compare([float(0.0, 1.0)?, float(0.0, 0.0)?, float(1.0, 0.0)?, float(f64::NAN, 0.0)?]))
}

/// The place of an answer in [`Function::Compare`].
fn order(answer: Option<std::cmp::Ordering>) -> usize {
    answer.map_or(3, |o| (o as i8 + 1) as usize)
}

fn select(cond: &Value, a: &Value, b: &Value, float: bool, count: usize) -> Elements {
    let cond = Ints::of(cond);
    if float {
        let (a, b) = (Floats::of(a), Floats::of(b));
        Elements::Floats(build(count, |i| if cond.at(i) != 0 { a.at(i) } else { b.at(i) }))
    } else {
        let (a, b) = (Ints::of(a), Ints::of(b));
        Elements::Ints(build(count, |i| if cond.at(i) != 0 { a.at(i) } else { b.at(i) }))
    }
}

enum Elements {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

fn build<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    if count < PARALLEL {
        (0..count).map(f).collect()
    } else {
        (0..count).into_par_iter().with_min_len(4096).map(f).collect()
    }
}
fn try_build<T: Send>(count: usize, f: impl Fn(usize) -> Option<T> + Sync + Send) -> Option<Vec<T>> {
    if count < PARALLEL {
        (0..count).map(f).collect()
    } else {
        (0..count).into_par_iter().with_min_len(4096).map(f).collect()
    }
}

/// An operand: elements, or one for all.
enum Operand<'a, T: Copy> {
    Each(std::borrow::Cow<'a, [T]>),
    All(T),
}
type Floats<'a> = Operand<'a, f64>;
type Ints<'a> = Operand<'a, i64>;

impl<'a> Operand<'a, f64> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Array(a) => Operand::Each(a.as_floats()),
            Value::Float(x) => Operand::All(*x),
            Value::Int(n) => Operand::All(*n as f64),
            Value::Memory(_) | Value::TensorMap(_) | Value::InFlight(..) => Operand::All(0.0),
        }
    }
}
impl<'a> Operand<'a, i64> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Array(a) => Operand::Each(a.as_ints()),
            Value::Int(n) => Operand::All(*n),
            Value::Float(x) => Operand::All(*x as i64),
            Value::Memory(_) | Value::TensorMap(_) | Value::InFlight(..) => Operand::All(0),
        }
    }
}
impl<T: Copy> Operand<'_, T> {
    #[inline]
    fn at(&self, i: usize) -> T {
        match self {
            Operand::Each(values) => values[i],
            Operand::All(value) => *value,
        }
    }
}
