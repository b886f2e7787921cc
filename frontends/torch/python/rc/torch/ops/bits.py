"""Functions of a float's bits, and those that must not overflow on the way."""

from __future__ import annotations

import math

from rc.torch.build import Build, T
from rc.torch.dtypes import INTEGERS, compute
from rc.torch.ops.elementwise import copy_sign
from rc.torch.ops.table import operand, out_dtype, translates

# Element type: bits of the fraction, exponent of one.
FORMATS = {"f64": (52, 1023), "f32": (23, 127), "f16": (10, 15), "bf16": (7, 127), "f8E4M3FN": (3, 7), "f8E5M2": (2, 15)}


def to_bits(b: Build, x: T) -> T:
    return b.op("core.bitcast", x, result=(INTEGERS[x.dtype], x.shape))


def from_bits(b: Build, bits: T, dtype: str) -> T:
    return b.op("core.bitcast", bits, result=(dtype, bits.shape))


@translates("nextafter")
def nextafter(b: Build, x: T, y: T) -> T:
    """The next float after x towards y: of one sign, floats are in the order of their bits."""
    dtype = out_dtype(b)
    x, y = b.broadcast(operand(b, x, dtype), operand(b, y, dtype))
    zero, bits = b.like(0, x), to_bits(b, x)
    away = b.compare("eq", b.compare("lt", x, y), b.compare("gt", x, zero))
    stepped = b.select(away, b.scalar("add", bits, 1), b.scalar("sub", bits, 1))
    least = copy_sign(b, from_bits(b, b.like(1, bits), dtype), y)
    moved = b.select(b.compare("eq", x, zero), least, from_bits(b, stepped, dtype))
    result = b.select(b.compare("eq", x, y), y, moved)
    return b.select(b.is_nan(x), x, b.select(b.is_nan(y), y, result))


@translates("frexp.Tensor")
def frexp(b: Build, x: T) -> list[T]:
    """A fraction of at least 1/2 and below 1, and the power of two that it is times; of zeros, infinities and NaN themselves and 0."""
    result = x.dtype
    x = b.upcast(x)
    fraction, one = FORMATS[x.dtype]
    # Numbers below the normal ones are made normal first.
    small = b.compare("lt", b.unary("abs", x), b.like(2.0 ** (1 - one), x))
    shift = fraction + 2
    bits = to_bits(b, b.select(small, b.scalar("mul", x, 2.0**shift), x))
    exponent = b.binary("and", b.binary("shr", bits, b.like(fraction, bits)), b.like(2 * one + 1, bits))
    exponent = b.scalar("sub", exponent, one - 1)
    exponent = b.select(small, b.scalar("sub", exponent, shift), exponent)
    kept = b.binary("and", bits, b.like(~((2 * one + 1) << fraction), bits))
    mantissa = from_bits(b, b.binary("or", kept, b.like((one - 1) << fraction, bits)), x.dtype)
    usual = b.binary("and", b.unary("is_finite", x), b.compare("ne", x, b.like(0, x)))
    return [b.convert(b.select(usual, mantissa, x), result), b.convert(b.select(usual, exponent, b.like(0, exponent)), "i32")]


@translates("hypot", "prims::hypot")
def hypot(b: Build, x: T, y: T) -> T:
    result = out_dtype(b)
    return hypot_of(b, b.convert(x, result), b.convert(y, result))


def _scaled_hypot(b: Build, x: T, y: T) -> T:
    large = b.binary("max", b.unary("abs", x), b.unary("abs", y))
    is_huge, is_tiny = (b.compare(kind, large, b.like(2.0**e, large)) for kind, e in (("gt", 60), ("lt", -40)))
    by = lambda e: b.select(is_huge, b.like(2.0**-e, large), b.select(is_tiny, b.like(2.0**e, large), b.like(1, large)))
    x, y = b.binary("mul", x, by(100)), b.binary("mul", y, by(100))
    return b.binary("mul", b.unary("sqrt", b.op("core.fma", x, x, b.binary("mul", y, y))), by(-100))


def hypot_of(b: Build, x: T, y: T) -> T:
    """sqrt(x² + y²), for float64 by the quotient, else of numbers scaled such that their squares are normal float32 numbers."""
    result = x.dtype
    c = compute(result)
    x, y = b.broadcast(operand(b, x, c), operand(b, y, c))
    if result == "f64":
        x, y = b.unary("abs", x), b.unary("abs", y)
        large, small = b.binary("max", x, y), b.binary("min", x, y)
        zero = b.compare("eq", large, b.like(0, large))
        ratio = b.binary("div", small, b.select(zero, b.like(1, large), large))
        size = b.binary("mul", large, b.unary("sqrt", b.scalar("add", b.binary("mul", ratio, ratio), 1)))
    else:
        size = _scaled_hypot(b, x, y)
    infinite = lambda t: b.compare("eq", b.unary("abs", t), b.like(math.inf, t))
    either = b.binary("or", infinite(x), infinite(y))
    return b.convert(b.select(either, b.like(math.inf, size), size), result)

