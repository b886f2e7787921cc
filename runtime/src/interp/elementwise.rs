//! Elementwise ops of `core` on scalars and arrays, by the functions that the dialect declares.

use rayon::prelude::*;
use rc_dialects::core::scalar::{self, IntType, Scalar};
use rc_dialects::interfaces::{self, FloatFn, IntFn};
use rc_dialects::op;
use rc_ir::{OpRef, Result};

use super::Mode;
use super::value::{Array, Class, Format, Value};

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
    Bitcast,
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
            op::core::CONVERT => Function::Convert,
            op::core::BITCAST => Function::Bitcast,
            op::core::FMA if mode == Mode::Typed && input.ty == rc_ir::Type::f32() => {
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
            return self.apply_scalars(args);
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
        let at = |i: usize| -> Option<Value> {
            let element = |a: &&Value| match a {
                Value::Array(a) => a.element(i),
                other => (*other).clone(),
            };
            let scalars: smallvec::SmallVec<[Value; 3]> = args.iter().map(element).collect();
            let scalars: smallvec::SmallVec<[&Value; 3]> = scalars.iter().collect();
            self.apply_scalars(&scalars)
        };
        if self.output.is_float() {
            let values = try_build(count, |i| if let Value::Float(x) = at(i)? { Some(x) } else { None })?;
            return Some(Value::Array(Array::floats(shape, values)));
        }
        let values = try_build(count, |i| if let Value::Int(n) = at(i)? { Some(n) } else { None })?;
        Some(Value::Array(Array::ints(shape, values)))
    }

    fn apply_scalars(&self, args: &[&Value]) -> Option<Value> {
        let float = |i: usize| args[i].scalar(self.input).float();
        let out = self.output;
        Some(match self.function {
            Function::Float(FloatFn::Unary(f)) => Value::Float(out.round(f(float(0)))),
            Function::Float(FloatFn::Binary(f)) => Value::Float(out.round(f(float(0), float(1)))),
            Function::Float(FloatFn::Ternary(f)) => Value::Float(out.round(f(float(0), float(1), float(2)))),
            Function::Float(FloatFn::Test(f)) => Value::Int(i64::from(f(float(0)))),
            Function::Int(f, int) => {
                let arg = |i: usize| args[i].scalar(self.input).int().unwrap_or(0);
                let result = match f {
                    IntFn::Unary(f) => f(arg(0)),
                    IntFn::Binary(f) => f(arg(0), arg(1), int)?,
                    IntFn::Ternary(f) => f(arg(0), arg(1), arg(2)),
                };
                Value::Int(out.wrap(result))
            }
            Function::Compare(table) => {
                let answer = match (args[0].scalar(self.input), args[1].scalar(self.input)) {
                    (Scalar::Int(a), Scalar::Int(b)) => Some(a.cmp(&b)),
                    (a, b) => a.float().partial_cmp(&b.float()),
                };
                Value::Int(i64::from(table[order(answer)]))
            }
            Function::Select => {
                let chosen = matches!(args[0].scalar(self.input), Scalar::Int(n) if n != 0);
                args[if chosen { 1 } else { 2 }].clone()
            }
            Function::Convert => self.convert(args[0].scalar(self.input))?,
            Function::Bitcast => {
                let bits = args[0].scalar(self.input).to_bits(self.input.ty)?;
                Value::from_scalar(Scalar::from_bits(bits, out.ty)?)
            }
        })
    }

    fn convert(&self, x: Scalar) -> Option<Value> {
        Some(match (x, self.output.class) {
            (Scalar::Float(x), Class::Float(round)) => Value::Float(round(x)),
            (Scalar::Int(n), Class::Float(round)) => {
                let exact = Scalar::Int(n).convert(self.output.ty)?.float();
                // In float64 mode nothing is rounded to the type.
                Value::Float(if round(0.1) == 0.1 { n as f64 } else { exact })
            }
            _ => Value::from_scalar(x.convert(self.output.ty)?),
        })
    }
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
struct Operand<'a, T: Clone>(std::borrow::Cow<'a, [T]>, bool);
type Floats<'a> = Operand<'a, f64>;
type Ints<'a> = Operand<'a, i64>;

impl<'a> Operand<'a, f64> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Array(a) => Operand(a.as_floats(), true),
            Value::Float(x) => Operand(vec![*x].into(), false),
            Value::Int(n) => Operand(vec![*n as f64].into(), false),
            Value::Memory(_) | Value::TensorMap(_) | Value::InFlight(..) => Operand(vec![0.0].into(), false),
        }
    }
}
impl<'a> Operand<'a, i64> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Array(a) => Operand(a.as_ints(), true),
            Value::Int(n) => Operand(vec![*n].into(), false),
            Value::Float(x) => Operand(vec![*x as i64].into(), false),
            Value::Memory(_) | Value::TensorMap(_) | Value::InFlight(..) => Operand(vec![0].into(), false),
        }
    }
}
impl<T: Copy> Operand<'_, T> {
    #[inline]
    fn at(&self, i: usize) -> T {
        self.0[if self.1 { i } else { 0 }]
    }
}
