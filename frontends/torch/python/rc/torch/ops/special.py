"""Special functions, computed in float64 for float32 and narrower types by series whose error is far below float32's rounding; the modified
Bessel functions in float32 by minimax polynomials.

Each states the formula it comes from (Abramowitz and Stegun, Handbook of Mathematical Functions, by number).
"""

from __future__ import annotations

import math

from rc.torch.build import Build, T
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import float_input, out_dtype, translates


def in_double(*names: str):
    """Registers a function of a float64 tensor, for results that are narrower."""

    def register(f):
        @translates(*names)
        def translate(b: Build, x: T) -> T:
            result = out_dtype(b)
            if not is_float(result) or result == "f64":
                raise Unsupported("this function in float64")
            return b.convert(f(b, b.convert(x, "f64")), result)

        return translate

    return register


def horner(b: Build, x: T, coefficients) -> T:
    """A polynomial, the coefficient of the highest power first."""
    y = b.like(coefficients[0], x)
    for c in coefficients[1:]:
        y = b.scalar("add", b.binary("mul", y, x), c)
    return y


def where(b: Build, condition: T, x: T, y: T) -> T:
    return b.select(condition, x, y)


def below(b: Build, x: T, limit: float) -> T:
    return b.compare("lt", x, b.like(limit, x))


# B_2k, of Euler and Maclaurin's formula.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _reflected(b: Build, x: T) -> tuple[T, T]:
    """Whether x is below 1/2, and there 1 - x instead of it."""
    low = below(b, x, 0.5)
    return low, where(b, low, b.binary("sub", b.like(1, x), x), x)


def _pole(b: Build, x: T) -> T:
    """Whether x is an integer that is not positive."""
    whole = b.compare("eq", x, b.unary("floor", x))
    return b.binary("and", whole, b.compare("le", x, b.like(0, x)))


def _sin_pi(b: Build, x: T) -> tuple[T, T]:
    """sin and cos of pi x, by the nearest integer, so that nothing cancels at large x."""
    near = b.unary("round", x)
    angle = b.scalar("mul", b.binary("sub", x, near), math.pi)
    return b.unary("sin", angle), b.unary("cos", angle)


def _hurwitz(b: Build, x: T, s: int) -> T:
    """The sum of (x + k)^-s over all k from 0, for x of at least 1/2 and s of at least 2 (Euler and Maclaurin's formula)."""
    steps = 16
    power = lambda y: b.binary("div", b.like(1, y), _power(b, y, s))
    total = power(x)
    for k in range(1, steps):
        total = b.binary("add", total, power(b.scalar("add", x, k)))
    w = b.scalar("add", x, steps)
    inverse = b.binary("div", b.like(1, w), w)
    coefficients, rising = [], 1.0
    for j, v in enumerate(BERNOULLI, 1):
        rising = math.prod(range(s, s + 2 * j - 1))
        coefficients.append(v * rising / math.factorial(2 * j))
    series = b.binary("mul", inverse, horner(b, b.binary("mul", inverse, inverse), coefficients[::-1]))
    tail = b.binary("add", b.scalar("add", b.scalar("div", w, s - 1), 0.5), series)
    return b.binary("add", total, b.binary("mul", tail, power(w)))


def _power(b: Build, x: T, n: int) -> T:
    y = x
    for _ in range(n - 1):
        y = b.binary("mul", y, x)
    return y


def _cotangent_derivative(n: int) -> list[float]:
    """The n-th derivative of cot as a polynomial in cot, the coefficient of the highest power first."""
    p = [0.0, 1.0]
    for _ in range(n):
        d = [k * c for k, c in enumerate(p)][1:]
        p = [-(c1 + c2) for c1, c2 in zip(d + [0.0, 0.0], [0.0, 0.0] + d)]
    return p[::-1]


@translates("polygamma")
def polygamma(b: Build, n: int, x: T) -> T:
    """Derivatives of digamma (6.4.10), reflected below 1/2 (6.4.7)."""
    result = out_dtype(b)
    if n == 0:
        return b.convert(b.unary("digamma", float_input(b, x, result)), result)
    if not is_float(result) or result == "f64" or n > 20:
        raise Unsupported("polygamma in float64, or of an order above 20")
    x = b.convert(x, "f64")
    low, z = _reflected(b, x)
    sign = -1 if n % 2 == 0 else 1
    y = b.scalar("mul", _hurwitz(b, z, n + 1), sign * math.factorial(n))
    sine, cosine = _sin_pi(b, x)
    derivative = horner(b, b.binary("div", cosine, sine), _cotangent_derivative(n))
    reflected = b.binary("add", b.scalar("mul", derivative, -(math.pi ** (n + 1))), b.scalar("mul", y, -sign))
    y = where(b, low, reflected, y)
    y = where(b, _pole(b, x), b.like(sign * math.inf, x), y)
    if n == 1:
        y = where(b, b.compare("eq", x, b.like(math.inf, x)), b.like(0, x), y)
    return b.convert(y, result)


def _erfc_tail(b: Build, w: T) -> T:
    """exp(w²) erfc(w) for w of at least 2: the continued fraction (7.1.14)."""
    tail = w
    for k in range(60, 0, -1):
        tail = b.binary("add", w, b.binary("div", b.like(k / 2, w), tail))
    return b.binary("div", b.like(1, w), b.scalar("mul", tail, math.sqrt(math.pi)))


@in_double("special_erfcx", "prims::erfcx")
def erfcx(b, x):
    """exp(x²) erfc(x): by erf below 2, the continued fraction above."""
    low = b.scalar("min", x, 2)
    near = b.binary("mul", b.unary("exp", b.binary("mul", low, low)), b.binary("sub", b.like(1, low), b.unary("erf", low)))
    return where(b, below(b, x, 2), near, where(b, b.is_nan(x), x, _erfc_tail(b, b.scalar("max", x, 2))))


@in_double("special_ndtri")
def ndtri(b, p):
    """Where the normal distribution reaches p: by 26.2.23, and three of Halley's steps on the lower half."""
    low = b.binary("min", p, b.binary("sub", b.like(1, p), p))
    inner = b.scalar("max", low, 1e-300)
    t = b.unary("sqrt", b.scalar("mul", b.unary("log", inner), -2))
    top = horner(b, t, (0.010328, 0.802853, 2.515517))
    y = b.binary("sub", b.binary("div", top, horner(b, t, (0.001308, 0.189269, 1.432788, 1.0))), t)
    for _ in range(3):
        cdf = b.scalar("mul", b.unary("erfc", b.scalar("mul", y, -math.sqrt(0.5))), 0.5)
        density = b.scalar("mul", b.unary("exp", b.scalar("mul", b.binary("mul", y, y), -0.5)), 1 / math.sqrt(2 * math.pi))
        step = b.binary("div", b.binary("sub", cdf, inner), density)
        half = b.scalar("mul", b.binary("mul", y, step), 0.5)
        y = b.binary("sub", y, b.binary("div", step, b.scalar("add", half, 1)))
    y = where(b, b.compare("gt", p, b.like(0.5, p)), b.unary("neg", y), y)
    y = where(b, b.compare("eq", p, b.like(0, p)), b.like(-math.inf, p), y)
    y = where(b, b.compare("eq", p, b.like(1, p)), b.like(math.inf, p), y)
    outside = b.binary("or", b.compare("lt", p, b.like(0, p)), b.compare("gt", p, b.like(1, p)))
    return where(b, b.binary("or", outside, b.is_nan(p)), b.like(math.nan, p), y)


# I_n(x) = (x / 2)^n P(x² / 4) up to 8, exp(x) / sqrt(x) Q(1 / x) beyond, the coefficient of the highest power first: minimax
# polynomials by order and by whether the result has 16 bits, relative errors 2^-26.7 and 2^-17.
BESSEL = {
    (0, False): ((1.498434841e-11, 3.811337743e-10, 4.3158516e-08, 1.893794201e-06, 6.963708546e-05, 0.001735504335, 0.02777880458, 0.2499991882, 1.000000224, 0.9999999911),
         (0.3884193864, -0.01400841274, 0.03380519292, 0.02789767845, 0.04986961189, 0.3989422768)),
    (0, True): ((8.87910182e-08, 7.764427274e-07, 8.199945545e-05, 0.00166646254, 0.02796939625, 0.2497683056, 1.000092538, 0.9999949669),
         (0.03537544837, 0.04948387289, 0.3989451934)),
    (1, False): ((1.442024556e-12, 4.593491071e-11, 5.301281047e-09, 2.718337553e-07, 1.159599299e-05, 0.0003471470604, 0.0069445858, 0.08333320568, 0.5000000417, 0.9999999979),
         (-0.4528861521, 0.009876640358, -0.04617905495, -0.04657448829, -0.1496054772, 0.3989422846)),
    (1, True): ((1.051067774e-08, 1.386470089e-07, 1.316806175e-05, 0.0003375854619, 0.006974081764, 0.08329187791, 0.5000200728, 0.9999985891),
         (-0.06417900727, -0.04458738415, -0.1496640396, 0.3989425468)),
}  # fmt: skip


def _fused_horner(b: Build, x: T, coefficients) -> T:
    y = b.like(coefficients[0], x)
    for c in coefficients[1:]:
        y = b.op("core.fma", y, x, b.like(c, x))
    return y


def _bessel(b: Build, x: T, order: int, scaled: bool, narrow: bool) -> T:
    """I of order 0 or 1 in float32, times exp(-|x|) where scaled."""
    near_terms, far_terms = BESSEL[order, narrow]
    a = b.unary("abs", x)
    small = b.scalar("min", a, 8)
    near = _fused_horner(b, b.binary("mul", small, b.scalar("mul", small, 0.25)), near_terms)
    near = b.binary("mul", near, b.scalar("mul", small, 0.5)) if order else near
    large = b.scalar("max", a, 8)
    # Unscaled, it is infinite from 92 on, where exp(x - 4) is not.
    large = large if scaled else b.scalar("min", large, 200)
    root = b.unary("rsqrt", large)
    grown = 1 if scaled else math.exp(4)
    far = _fused_horner(b, b.binary("mul", root, root), [c * grown for c in far_terms])
    far = b.binary("mul", far, root)
    if scaled:
        near = b.binary("mul", near, b.unary("exp", b.unary("neg", small)))
    else:
        far = b.binary("mul", far, b.unary("exp", b.scalar("sub", large, 4)))
    y = where(b, below(b, a, 8), near, far)
    return where(b, below(b, x, 0), b.unary("neg", y), y) if order else y


def _translate_bessel(name: str, order: int, scaled: bool):
    @translates(name)
    def translate(b: Build, x: T) -> T:
        result = out_dtype(b)
        if not is_float(result) or result == "f64":
            raise Unsupported("this function in float64")
        return b.convert(_bessel(b, b.convert(x, "f32"), order, scaled, result != "f32"), result)


for name, order, scaled in (
    ("i0", 0, False), ("special_i0", 0, False), ("special_modified_bessel_i0", 0, False), ("special_i0e", 0, True),
    ("special_i1", 1, False), ("special_modified_bessel_i1", 1, False), ("special_i1e", 1, True),
    ("prims::bessel_i0", 0, False), ("prims::bessel_i0e", 0, True), ("prims::bessel_i1", 1, False), ("prims::bessel_i1e", 1, True),
):  # fmt: skip
    _translate_bessel(name, order, scaled)


def _power_series(b: Build, x: T, order: int, harmonic: bool) -> T:
    """J of order 0 or 1 below 12 (9.1.10), or with `harmonic` the sum beside the logarithm of Y (9.1.11 to 13)."""
    quarter = b.scalar("mul", b.binary("mul", x, x), -0.25)
    h = lambda n: sum(1 / i for i in range(1, n + 1))
    weight = lambda k: h(k) + h(k + order) if harmonic else 1.0
    terms = [weight(k) / (math.factorial(k) * math.factorial(k + order)) for k in range(45)]
    y = horner(b, quarter, terms[::-1])
    return b.binary("mul", y, b.scalar("mul", x, 0.5)) if order else y


def _hankel(b: Build, x: T, order: int) -> tuple[T, T]:
    """J and Y of order 0 or 1 from 12 on (9.2.5, 9.2.6)."""
    mu, coefficient, even, odd = 4 * order * order, 1.0, [1.0], []
    for k in range(1, 22):
        coefficient *= (mu - (2 * k - 1) ** 2) / (8 * k)
        (odd if k % 2 else even).append(coefficient * (-1) ** (k // 2))
    inverse = b.binary("div", b.like(1, x), x)
    square = b.binary("mul", inverse, inverse)
    p, q = horner(b, square, even[::-1]), b.binary("mul", inverse, horner(b, square, odd[::-1]))
    angle = b.scalar("sub", x, (0.5 * order + 0.25) * math.pi)
    cosine, sine = b.unary("cos", angle), b.unary("sin", angle)
    size = b.unary("sqrt", b.scalar("mul", inverse, 2 / math.pi))
    j = b.binary("sub", b.binary("mul", p, cosine), b.binary("mul", q, sine))
    y = b.binary("add", b.binary("mul", p, sine), b.binary("mul", q, cosine))
    return b.binary("mul", size, j), b.binary("mul", size, y)


def _bessel_j(b: Build, x: T, order: int) -> T:
    a = b.unary("abs", x)
    far, _ = _hankel(b, b.scalar("max", a, 12), order)
    y = where(b, below(b, a, 12), _power_series(b, b.scalar("min", a, 12), order, False), far)
    y = where(b, b.is_nan(x), x, y)
    return where(b, below(b, x, 0), b.unary("neg", y), y) if order else y


def _bessel_y(b: Build, x: T, order: int) -> T:
    near = b.scalar("min", x, 12)
    positive = b.compare("gt", near, b.like(0, near))
    safe = where(b, positive, near, b.like(1, near))
    j = _power_series(b, safe, order, False)
    log = b.unary("log", b.scalar("mul", safe, 0.5))
    # psi(k + 1) = H_k - gamma: the constant goes with the logarithm.
    first = b.scalar("mul", b.binary("mul", b.scalar("add", log, 0.5772156649015329), j), 2 / math.pi)
    y = b.binary("sub", first, b.scalar("mul", _power_series(b, safe, order, True), 1 / math.pi))
    if order:
        y = b.binary("sub", y, b.binary("div", b.like(2 / math.pi, safe), safe))
    _, far = _hankel(b, b.scalar("max", x, 12), order)
    y = where(b, below(b, x, 12), y, far)
    y = where(b, b.compare("eq", x, b.like(0, x)), b.like(-math.inf, x), y)
    return where(b, b.binary("or", below(b, x, 0), b.is_nan(x)), b.like(math.nan, x), y)


for order in (0, 1):
    in_double(f"special_bessel_j{order}", f"prims::bessel_j{order}")(lambda b, x, order=order: _bessel_j(b, x, order))
    in_double(f"special_bessel_y{order}")(lambda b, x, order=order: _bessel_y(b, x, order))
