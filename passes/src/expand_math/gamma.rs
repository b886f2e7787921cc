//! `lgamma` and `digamma` of f32.
//!
//! On (-4, 4), where nearly all numbers of a normal distribution are, the recurrence goes up to [1, 4), where the function over its roots is a ratio of minimax
//! polynomials. Beyond, and near the poles, it is Stirling's series, for negative numbers by reflection: a branch of its own.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;
use std::f64::consts::PI;

/// lgamma(1 + z) = z (z - 1) R(z) on [0, 3], relative error of R 2^-26.1, rounded to 16 bits 2^-18.8.
const LGAMMA: [&[f64]; 2] = [
    &[0.5772156569272189, 0.6310371283241607, 0.1524549662350717, 0.0034955589803745304, -7.175101166444855e-05],
    &[1.0, 1.518128945527601, 0.6398881027563597, 0.06852533950985379],
];
const LGAMMA_NARROW: [&[f64]; 2] = [
    &[0.5772144542683987, 0.3811793197998386, 0.01956468039822699, -0.0006460320910786544],
    &[1.0, 1.0851636047057776, 0.2264414625299804],
];
/// digamma(1 + z) = (z - r) R(z) on [0, 3], with the root 1 + r; relative error of R 2^-28.1, rounded to 16 bits 2^-18.9.
const DIGAMMA: [&[f64]; 2] = [
    &[1.2503801331685054, 1.2321317208893308, 0.2919573325000491, 0.013301584910481919],
    &[1.0, 1.6689522304777387, 0.772514123238977, 0.10576423758077759, 0.0026790222236087713],
];
const DIGAMMA_NARROW: [&[f64]; 2] = [
    &[1.2503776663714743, 0.7679771237414242, 0.031373776037296554, -0.0011193711821108673],
    &[1.0, 1.297648405004617, 0.31101779093438303],
];
const DIGAMMA_ROOT: [f64; 2] = [0.461_632_132_530_212_4, 1.243_814_993_891_890_9e-8];
/// log gamma(z) - (z - 1/2) log z + z - log(2 pi) / 2 = S(1 / z^2) / z for z >= 3, within 2^-28.2.
const STIRLING: &[f64] = &[0.08333326587831534, -0.002772726907991494, 0.000696713827348441];
/// log z - 1 / (2 z) - digamma(z) = D(1 / z^2) / z^2 for z >= 3, within 2^-27.9.
const DIGAMMA_FAR: &[f64] = &[0.08333260550299598, -0.008291663897900077, 0.0032648986153088542];
/// How often the recurrence goes up.
const STEPS: i32 = 5;

impl Math<'_> {
    /// Within 8 ulp of the result, for negative numbers of the larger of it and 1.
    pub fn lgamma(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.lgamma_f64(x);
        }
        let (product, one) = (self.rising(x), self.c(1.0));
        let size = self.abs(product);
        let usual = |m: &mut Math| {
            let (in_range, least) = (m.is_in_range(x), m.c(f64::from(f32::MIN_POSITIVE)));
            let normal = m.compare("ge", size, least);
            m.op(op::core::AND, &[in_range, normal])
        };
        let short = |m: &mut Math| {
            let z = m.above_one(x);
            let ratio = m.ratio(z, if m.rounded { LGAMMA_NARROW } else { LGAMMA });
            let next = m.sub(z, one);
            let roots = m.mul(z, next);
            let value = m.mul(roots, ratio);
            let log = if m.rounded { m.log_to_base_narrow(size, 1.0) } else { m.log_inside(size) };
            m.sub(value, log)
        };
        self.either(x, usual, short, |m, x| m.lgamma_far(x))
    }
    /// Within 8 ulp of the result, for negative numbers of the larger of it and 1.
    pub fn digamma(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.digamma_f64(x);
        }
        let usual = |m: &mut Math| {
            // Neither a pole nor subnormal.
            let (in_range, whole) = (m.is_in_range(x), m.op(op::core::FLOOR, &[x]));
            let (rest, size) = (m.sub(x, whole), m.abs(x));
            let (zero, least) = (m.c(0.0), m.c(f64::from(f32::MIN_POSITIVE)));
            let (some, normal) = (m.op(op::core::MAX, &[rest, x]), m.compare("ge", size, least));
            let some = m.compare("gt", some, zero);
            let usual = m.op(op::core::AND, &[in_range, normal]);
            m.op(op::core::AND, &[usual, some])
        };
        let short = |m: &mut Math| {
            let z = m.above_one(x);
            let ratio = m.ratio(z, if m.rounded { DIGAMMA_NARROW } else { DIGAMMA });
            let [high, low] = DIGAMMA_ROOT.map(|part| m.c(part));
            let from_root = m.sub(z, high);
            let from_root = m.sub(from_root, low);
            let mut value = m.mul(from_root, ratio);
            for inverse in m.inverses(x) {
                value = m.sub(value, inverse);
            }
            value
        };
        self.either(x, usual, short, |m, x| m.digamma_far(x))
    }
    fn is_in_range(&mut self, x: Value) -> Value {
        let (limit, size) = (self.c(4.0), self.abs(x));
        self.compare("lt", size, limit)
    }
    /// x, x + 1, …: `STEPS` numbers.
    fn steps(&mut self, x: Value) -> Vec<Value> {
        let step = |k: i32| {
            let k = self.c(f64::from(k));
            self.add(x, k)
        };
        (0..STEPS).map(step).collect()
    }
    /// The product of x, x + 1, … as far as they are below 1.
    fn rising(&mut self, x: Value) -> Value {
        let steps = self.steps(x);
        let factors: Vec<Value> = steps.into_iter().map(|y| self.at_most(y, 1.0)).collect();
        factors.into_iter().reduce(|a, b| self.mul(a, b)).expect("there are steps")
    }
    /// The inverses of x, x + 1, … that are below 1, and 0 for the others.
    fn inverses(&mut self, x: Value) -> Vec<Value> {
        let (steps, one, infinity) = (self.steps(x), self.c(1.0), self.c(f64::INFINITY));
        let inverse = |y: Value| {
            let below = self.compare("lt", y, one);
            let y = self.select(below, y, infinity);
            self.reciprocal(y)
        };
        steps.into_iter().map(inverse).collect()
    }
    /// x raised by integers to [1, 4), less 1.
    fn above_one(&mut self, x: Value) -> Value {
        let (one, whole) = (self.c(1.0), self.op(op::core::FLOOR, &[x]));
        let whole = self.op(op::core::MIN, &[whole, one]);
        self.sub(x, whole)
    }

    /// For |x| >= 3, near the poles, and for what is no number.
    fn lgamma_far(&mut self, x: Value) -> Value {
        let (a, half, one, zero) = (self.abs(x), self.c(0.5), self.c(1.0), self.c(0.0));
        let (log, inverse) = (self.log(a), self.div(one, a));
        let square = self.mul(inverse, inverse);
        let series = self.polynomial(square, STIRLING);
        let constant = self.c(0.5 * (2.0 * PI).ln() - 0.5);
        let (power, less) = (self.sub(a, half), self.sub(log, one));
        let rest = self.fma(series, inverse, constant);
        let value = self.fma(power, less, rest);
        // log(pi / (a |sin(pi a)|)) - log gamma(a)
        let (pi, [sine, _]) = (self.c(PI), self.sine_and_cosine_of_pi(a));
        let sine = self.abs(sine);
        let below = self.mul(a, sine);
        let ratio = self.div(pi, below);
        let mirror = self.log(ratio);
        let (mirror, is_pole, infinity) =
            (self.sub(mirror, value), self.compare("eq", sine, zero), self.c(f64::INFINITY));
        let mirror = self.select(is_pole, infinity, mirror);
        let negative = self.compare("lt", x, zero);
        let value = self.select(negative, mirror, value);
        // Near 0 the logarithm is all there is.
        let (tiny, minus) = (self.compare("lt", a, half), self.neg(log));
        let value = self.select(tiny, minus, value);
        let endless = self.compare("eq", a, infinity);
        self.select(endless, infinity, value)
    }
    /// The same.
    fn digamma_far(&mut self, x: Value) -> Value {
        let (one, zero, half, minus_half) = (self.c(1.0), self.c(0.0), self.c(0.5), self.c(-0.5));
        let (negative, other) = (self.compare("lt", x, zero), self.sub(one, x));
        let z = self.select(negative, other, x);
        let (log, inverse) = (self.log(z), self.div(one, z));
        let square = self.mul(inverse, inverse);
        let series = self.polynomial(square, DIGAMMA_FAR);
        let value = self.fma(inverse, minus_half, log);
        let series = self.mul(series, square);
        let value = self.sub(value, series);
        // digamma(1 - x) - pi / tan(pi x)
        let (pi, [sine, cosine], nan) = (self.c(PI), self.sine_and_cosine_of_pi(x), self.c(f64::NAN));
        let above = self.mul(cosine, pi);
        let cotangent = self.div(above, sine);
        let (mirror, is_pole) = (self.sub(value, cotangent), self.compare("eq", sine, zero));
        let mirror = self.select(is_pole, nan, mirror);
        let value = self.select(negative, mirror, value);
        // Near 0 it is -1 / x.
        let (a, minus_one) = (self.abs(x), self.c(-1.0));
        let (tiny, pole) = (self.compare("lt", a, half), self.div(minus_one, x));
        self.select(tiny, pole, value)
    }
    /// sin(pi x) and cos(pi x), but for their sign, which is that of x less the nearest integer for both together.
    fn sine_and_cosine_of_pi(&mut self, x: Value) -> [Value; 2] {
        let (whole, pi, half) = (self.op(op::core::ROUND, &[x]), self.c(PI), self.c(0.5));
        let rest = self.sub(x, whole);
        let size = self.abs(rest);
        let other = self.sub(half, size);
        [rest, other].map(|turns| {
            let angle = self.mul(turns, pi);
            self.sine_of_half_turn(angle)
        })
    }
}
