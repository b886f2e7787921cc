//! `rsqrt`, `erf`, `erfc` and `erfinv`.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;

/// log2(1 - erf x) = x Q(x) on [0, 3.95], weighted with what it does to erf: relative error 2^-27.9.
const ERF_EXPONENT: &[f64] = &[
    -1.6279070351259373,
    -0.9184476253022457,
    -0.14827706633131243,
    0.027632030090442797,
    0.00023140303851062224,
    -0.0024050127036189853,
    0.0009129908531280724,
    -0.00016972055544433278,
    1.3353976833199567e-05,
];
/// 2^f - 1 = f E(f) on |f| <= 0.5, relative error 2^-26.4.
const EXP2M1: &[f64] = &[
    0.6931471881045523,
    0.24022649772769863,
    0.05550356575295429,
    0.009618239298291562,
    0.0013391193574090812,
    0.00015403493336847273,
];

/// exp(y^2) erfc(y) on [0, 10.1] as a ratio, relative error 2^-27.4, and for results that are rounded to 16 bits 2^-16.6.
const ERFCX: [&[f64]; 2] = [
    &[1.0000000057373115, 1.2384266844575098, 0.731620769545307, 0.22922656606470407, 0.03279808591556203],
    &[1.0, 2.366806430088527, 2.4022664944720833, 1.3253995692137666, 0.4063199080554757, 0.05813239499675359],
];
const ERFCX_NARROW: [&[f64]; 2] = [
    &[1.0000099433242382, 0.7239730306994729, 0.21685577225830355, -4.3066140330213443e-05],
    &[1.0, 1.8528318031025865, 1.303830778482011, 0.38236434124474533],
];

/// erfinv(x) = x P(w) with w = -log(1 - x^2) on [0, 5], relative error 2^-27.4, and P(w - 10.5) on [5, 16], 2^-24.8.
const ERFINV_NEAR: &[f64] = &[
    0.8862269204948156,
    0.23201381803758295,
    0.011548653902613823,
    -0.0023342961952263794,
    -0.0001274816313113553,
    4.4565205102558815e-05,
    3.983241674282758e-06,
    -1.9764620311426315e-06,
    2.2103059732595817e-07,
    -8.791021079934153e-09,
];
const ERFINV_FAR: &[f64] = &[
    3.0742059186834605,
    0.15509863302567214,
    -0.003562504832880815,
    0.0001555296490377937,
    -7.581210984386468e-06,
    3.045034357701536e-07,
    -4.31458867971101e-09,
    -1.8059169760848835e-09,
    4.952633827658632e-10,
    -4.144198856022182e-11,
];

/// The same two for results that are rounded to 16 bits, 2^-18.8 and 2^-15.4.
const ERFINV_NARROW: [&[f64]; 2] = [
    &[
        0.8862288933005161,
        0.23197452477058542,
        0.011668773069446955,
        -0.002457723276612528,
        -8.336399552475776e-05,
        4.89577346640018e-05,
        -3.308013807138085e-06,
    ],
    &[3.0742372702627625, 0.1550421259964034, -0.0035785047017726033, 0.00016386825549646368, -6.703403522025203e-06],
];

/// For f64: erf(x) = x + x P(x^2) on |x| < 0.875, relative error 2^-61.4, and 1 - exp(-Q(x)); Q of x - 1.5625 on [0.875, 2.25], 2^-61.1, and of
/// x - 4.125 on [2.25, 6], 2^-59.2.
const ERF_NEAR_F64: &[f64] = &[
    0.1283791670955126,
    -0.3761263890318374,
    0.11283791670954368,
    -0.026866170644945554,
    0.005223977623090371,
    -0.0008548326847575023,
    0.00012055324633300542,
    -1.4925388948232012e-05,
    1.645663496598704e-06,
    -1.628950890693101e-07,
    1.4124241914259163e-08,
    -8.669753366413433e-10,
];
const ERF_MIDDLE_F64: &[f64] = &[
    3.6072852302065836,
    3.6206776984829094,
    0.8973445942662067,
    0.024370521687656514,
    -0.005626325683635175,
    0.0011781058117978059,
    -0.00020588764876291752,
    2.3486756532422474e-05,
    1.4496163491452886e-06,
    -1.8990603827886828e-06,
    6.935331013041469e-07,
    -1.713281520928639e-07,
    2.81684976028745e-08,
    -1.0473694140560275e-09,
    -1.915110330357245e-09,
    1.0242694295078079e-09,
];
const ERF_FAR_F64: &[f64] = &[
    19.03254276470786,
    8.47991140700694,
    0.9748141784713535,
    0.0035157553824275013,
    -0.0005285231080399686,
    8.081991378603558e-05,
    -1.280699822374584e-05,
    1.4644123323897827e-06,
    -5.048416524670429e-07,
    -5.244065741515037e-08,
    -2.4052645993770546e-08,
    -1.16145008113922e-09,
];

impl Math<'_> {
    /// Within 2 ulp.
    pub fn rsqrt(&mut self, x: Value) -> Value {
        if !self.approx {
            let root = self.op(op::core::SQRT, &[x]);
            return self.reciprocal(root);
        }
        // Of subnormal numbers too: the assembler scales them.
        self.hardware("rsqrt", x)
    }
    /// Within 4 ulp. In f32 1 - 2^q with q = x Q(x) = n + f: (1 - 2^n) - 2^n (2^f - 1), without branches and masks.
    pub fn erf(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.erf_f64(x);
        }
        let magnitude = self.abs(x);
        // Beyond, it is 1 to the last place.
        let magnitude = self.at_most(magnitude, 3.95);
        let q = self.polynomial(magnitude, ERF_EXPONENT);
        let q = self.mul(q, magnitude);
        let (power, f) = self.power_and_rest(q);
        let e = self.polynomial(f, EXP2M1);
        let (e, one) = (self.mul(e, f), self.c(1.0));
        let (less, minus) = (self.sub(one, power), self.neg(e));
        let value = self.fma(minus, power, less);
        self.with_sign_of(value, x)
    }
    /// f32: within 8 ulp; subnormal results may become zero. f64 likewise.
    pub fn erfc(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.erfc_f64(x);
        }
        let magnitude = self.abs(x);
        // Beyond, it is 0.
        let y = self.at_most(magnitude, 10.1);
        let ratio = self.ratio(y, if self.rounded { ERFCX_NARROW } else { ERFCX });
        let minus = self.neg(y);
        let high = self.mul(minus, y);
        let e = if self.rounded { self.exp_narrow(high) } else { self.exp_of_square(y, high) };
        let (value, two, zero) = (self.mul(e, ratio), self.c(2.0), self.c(0.0));
        let (other, negative) = (self.sub(two, value), self.compare("lt", x, zero));
        self.select(negative, other, value)
    }
    /// exp(-y^2), where `high` is the exponent, rounded: what that loses would cost as many digits as it has before the point.
    fn exp_of_square(&mut self, y: Value, high: Value) -> Value {
        let sum = self.fma(y, y, high);
        let (low, e) = (self.neg(sum), self.exp(high));
        self.fma(e, low, e)
    }
    fn erf_f64(&mut self, x: Value) -> Value {
        let square = self.mul(x, x);
        let p = self.polynomial(square, ERF_NEAR_F64);
        let near = self.fma(p, x, x);
        let magnitude = self.abs(x);
        // Beyond, it is 1 to the last place.
        let clipped = self.at_most(magnitude, 6.0);
        let q = self.erf_exponent_f64(clipped);
        let minus = self.neg(q);
        let (e, one) = (self.exp_inside(minus), self.c(1.0));
        let far = self.sub(one, e);
        let far = self.with_sign_of(far, x);
        // NaN takes the near side: the far one computes with the bits of the number, which a NaN's would disturb.
        let limit = self.c(0.875);
        let is_far = self.compare("ge", magnitude, limit);
        self.select(is_far, far, near)
    }
    /// f32, within 2 ulp; f64 within 8.
    pub fn erfinv(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.erfinv_f64(x);
        }
        let (one, minus) = (self.c(1.0), self.neg(x));
        let rest = self.fma(minus, x, one);
        let (limit, middle) = (self.c(5.0), self.c(10.5));
        let w = if self.rounded {
            let (log, minus_ln2) = (self.hardware("lg2", rest), self.c(-std::f64::consts::LN_2));
            self.mul(log, minus_ln2)
        } else {
            let log = self.log_inside(rest);
            self.neg(log)
        };
        let from_middle = self.sub(w, middle);
        let [near, far] = if self.rounded { ERFINV_NARROW } else { [ERFINV_NEAR, ERFINV_FAR] };
        let (near, far) = (self.polynomial(w, near), self.polynomial(from_middle, far));
        let is_near = self.compare("lt", w, limit);
        let inside = self.select(is_near, near, far);
        let (infinity, nan, magnitude) = (self.c(f64::INFINITY), self.c(f64::NAN), self.abs(x));
        let (is_end, is_inside) = (self.compare("eq", magnitude, one), self.compare("lt", magnitude, one));
        let outside = self.select(is_end, infinity, nan);
        let factor = self.select(is_inside, inside, outside);
        self.mul(x, factor)
    }
    /// Q(x) on [0.875, 6].
    fn erf_exponent_f64(&mut self, x: Value) -> Value {
        let (middle, far, limit) = (self.c(1.5625), self.c(4.125), self.c(2.25));
        let (from_middle, from_far) = (self.sub(x, middle), self.sub(x, far));
        let (low, high) = (self.polynomial(from_middle, ERF_MIDDLE_F64), self.polynomial(from_far, ERF_FAR_F64));
        let below = self.compare("lt", x, limit);
        self.select(below, low, high)
    }
}
