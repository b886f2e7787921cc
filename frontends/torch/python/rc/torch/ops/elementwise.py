"""Elementwise operations. Floats narrower than float32 are computed in float32 and rounded once, as PyTorch does."""

from __future__ import annotations

import math

import torch

from rc.torch.build import Build, T
from rc.torch.dtypes import INTEGERS, compute, is_float, saturates
from rc.torch.errors import Unsupported
from rc.torch.ops.table import dtype_name, float_input, operand, out, out_dtype, translates, translates_of_library

# Functions of floats, one of rc's operations each.

FLOAT_UNARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "ceil": "ceil", "cos": "cos",
    "cosh": "cosh", "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "floor": "floor", "lgamma": "lgamma", "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2", "round": "round",
    "rsqrt": "rsqrt", "sigmoid": "logistic", "sin": "sin", "sinh": "sinh", "special_digamma": "digamma", "special_erfc": "erfc",
    "special_erfinv": "erfinv", "special_gammaln": "lgamma", "special_psi": "digamma", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
    "trunc": "trunc",
}  # fmt: skip


def _float_unary(name: str):
    def translate(b: Build, x: T) -> T:
        result = out_dtype(b)
        if not is_float(result):
            return b.convert(x, result)  # ceil, floor, round, trunc of integers
        return b.convert(b.unary(name, float_input(b, x, result)), result)

    return translate


for aten, core in FLOAT_UNARY.items():
    translates(aten)(_float_unary(core))


def float_function(*names: str):
    """Registers a function of one float tensor in the type of computation, and its rounding to the result's type."""

    def register(f):
        @translates(*names)
        def translate(b: Build, x: T, *args, **kwargs) -> T:
            result = out_dtype(b)
            return b.convert(f(b, float_input(b, x, result), *args, **kwargs), result)

        return f

    return register


def copy_sign(b: Build, size: T, sign: T) -> T:
    """`size` with the sign of `sign`, of zero too."""
    magnitude = b.unary("abs", size)
    magnitude, sign = b.broadcast(magnitude, sign)
    return b.select(signbit(b, sign), b.unary("neg", magnitude), magnitude)


@float_function("reciprocal")
def reciprocal(b, x):
    return b.binary("div", b.like(1, x), x)


@translates("round.decimals")
def round_decimals(b: Build, x: T, decimals: int = 0) -> T:
    if not is_float(x.dtype):
        return x
    c = b.upcast(x)
    scale = b.like(10.0 ** abs(decimals), c)
    to, back = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return b.convert(b.binary(back, b.unary("round", b.binary(to, c, scale)), scale), x.dtype)


# Identities and conversions.


@translates("clone", "alias", "lift_fresh_copy", "contiguous", "positive")
def identity(b: Build, x: T, **_) -> T:
    return x


@translates("detach")
def detach(b: Build, x: T) -> T:
    return b.op("tensor.stop_gradient", x)


@translates("_to_copy", "to.dtype", "prims::convert_element_type")
def to_copy(b: Build, x: T, dtype=None, **kwargs) -> T:
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type != out(b).device.type:
        raise Unsupported("copies between devices")
    result = out_dtype(b)
    if not isinstance(x, T):
        return b.expand(operand(b, x, result), out_shape_of(b))
    if is_float(x.dtype) and result == "ui8":
        # As C does on the machines that PyTorch runs on: by way of a signed integer, so that -1.0 is 255.
        return b.convert(b.convert(x, "i64"), result)
    if result == "f8E4M3FN" and x.dtype != result and not saturates():
        x = b.upcast(x) if is_float(x.dtype) else b.convert(x, "f32")
        # What is not rounded to 448.
        x = b.select(b.compare("le", b.unary("abs", x), b.like(464.0, x)), x, b.like(math.nan, x))
    return b.cast(x, result)


@translates("fill.Scalar", "fill.Tensor", "full_like", "copy")
def fill(b: Build, x: T, value, *args, **kwargs) -> T:
    return b.expand(operand(b, value, out_dtype(b)), out_shape_of(b))


def out_shape_of(b: Build):
    return b.symbols.dims(out(b).shape)


# Arithmetic.


def _operands(b: Build, x, y) -> tuple[T, T, str]:
    """Both operands in the type of computation of the result, and the result's type."""
    result = out_dtype(b)
    c = compute(result)
    return operand(b, x, c), operand(b, y, c), result


def _scaled(b: Build, y: T, alpha) -> T:
    return y if alpha == 1 else b.scalar("mul", y, alpha)


def _bool(result: str, op: str) -> str:
    # Of bools, a sum is an or and a product an and.
    return {"add": "or", "mul": "and"}[op] if result == "i1" else op


@translates("add.Tensor", "add.Scalar")
def add(b: Build, x, y, alpha=1) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary(_bool(result, "add"), x, _scaled(b, y, alpha)), result)


@translates("sub.Tensor", "sub.Scalar")
def sub(b: Build, x, y, alpha=1) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary("sub", x, _scaled(b, y, alpha)), result)


@translates("rsub.Tensor", "rsub.Scalar")
def rsub(b: Build, x, y, alpha=1) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary("sub", y, _scaled(b, x, alpha)), result)


@translates("mul.Tensor", "mul.Scalar")
def mul(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary(_bool(result, "mul"), x, y), result)


@translates("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary("div", x, y), result)


@translates("div.Tensor_mode", "div.Scalar_mode")
def div_mode(b: Build, x, y, rounding_mode=None) -> T:
    if rounding_mode is None:
        return div(b, x, y)
    x, y, result = _operands(b, x, y)
    if rounding_mode == "floor":
        return b.convert(floor_divide(b, x, y), result)
    if not is_float(result):
        return b.convert(b.binary("div", x, safe_divisor(b, y)), result)
    q = b.binary("div", x, y)
    negative = b.compare("lt", q, b.like(0, q))
    return b.convert(b.select(negative, b.unary("ceil", q), b.unary("floor", q)), result)


@translates("floor_divide", "floor_divide.Scalar")
def floor_divide_op(b: Build, x, y) -> T:
    return div_mode(b, x, y, rounding_mode="floor")


def safe_divisor(b: Build, y: T) -> T:
    """The divisor with zeros as ones: integer division by zero is undefined in a kernel, and an error in PyTorch's own."""
    return b.select(b.compare("eq", y, b.like(0, y)), b.like(1, y), y)


def floor_divide(b: Build, x: T, y: T) -> T:
    x, y = b.broadcast(x, y)
    if is_float(x.dtype):
        # PyTorch's way (c10::div_floor_floating): exact where the quotient is near an integer.
        mod = b.binary("rem", x, y)
        div = b.binary("div", b.binary("sub", x, mod), y)
        opposite = b.compare("ne", b.compare("lt", y, b.like(0, y)), b.compare("lt", mod, b.like(0, mod)))
        adjust = b.binary("and", b.compare("ne", mod, b.like(0, mod)), opposite)
        div = b.select(adjust, b.scalar("sub", div, 1), div)
        floor = b.unary("floor", div)
        near = b.compare("gt", b.binary("sub", div, floor), b.like(0.5, div))
        floor = b.select(near, b.scalar("add", floor, 1), floor)
        quotient = b.binary("div", x, y)
        zero = copy_sign(b, b.like(0, div), quotient)
        whole = b.select(b.compare("ne", div, b.like(0, div)), floor, zero)
        return b.select(b.compare("eq", y, b.like(0, y)), quotient, whole)
    safe = safe_divisor(b, y)
    q = b.binary("div", x, safe)
    r = b.binary("sub", x, b.binary("mul", q, safe))
    if x.dtype == "ui8":
        return q
    opposite = b.compare("ne", b.compare("lt", r, b.like(0, r)), b.compare("lt", safe, b.like(0, safe)))
    adjust = b.binary("and", b.compare("ne", r, b.like(0, r)), opposite)
    return b.select(adjust, b.scalar("sub", q, 1), q)


@translates("fmod.Tensor", "fmod.Scalar")
def fmod(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    y = y if is_float(y.dtype) else safe_divisor(b, y)
    return b.convert(b.binary("rem", x, y), result)


@translates("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(b: Build, x, y) -> T:
    """The remainder with the sign of the divisor."""
    x, y, result = _operands(b, x, y)
    x, y = b.broadcast(x, y)
    y = y if is_float(y.dtype) else safe_divisor(b, y)
    r = b.binary("rem", x, y)
    if r.dtype == "ui8":
        return r
    opposite = b.compare("ne", b.compare("lt", r, b.like(0, r)), b.compare("lt", y, b.like(0, y)))
    adjust = b.binary("and", b.compare("ne", r, b.like(0, r)), opposite)
    return b.convert(b.select(adjust, b.binary("add", r, y), r), result)


@translates("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def pow_(b: Build, x, y) -> T:
    result = out_dtype(b)
    if not is_float(result):
        return _integer_pow(b, x, y, result)
    c = compute(result)
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        x = operand(b, x, c)
        simple = {0: lambda: b.like(1, x), 1: lambda: x, 2: lambda: b.binary("mul", x, x), 0.5: lambda: b.unary("sqrt", x),
                  -1: lambda: b.binary("div", b.like(1, x), x), -0.5: lambda: b.unary("rsqrt", x),
                  3: lambda: b.binary("mul", b.binary("mul", x, x), x)}  # fmt: skip
        if y in simple:
            return b.convert(simple[y](), result)
    return b.convert(b.binary("pow", operand(b, x, c), operand(b, y, c)), result)


def _integer_pow(b: Build, x, y, result: str) -> T:
    """By squaring; a negative exponent gives 0, but for bases of 1 and -1."""
    if isinstance(y, int) and not isinstance(y, bool) and 0 <= y < 64:
        x = operand(b, x, result)
        power, base, n = b.like(1, x), x, y
        while n:
            if n & 1:
                power = b.binary("mul", power, base)
            n >>= 1
            base = b.binary("mul", base, base) if n else base
        return power
    if result == "i1":
        raise Unsupported("powers of bool")
    x, y = b.broadcast(operand(b, x, result), operand(b, y, result))
    power, base, n = b.like(1, x), x, y
    for _ in range(6):  # exponents of 64 and more overflow every base but 0, 1 and -1
        odd = b.compare("ne", b.binary("and", n, b.like(1, n)), b.like(0, n))
        power = b.select(odd, b.binary("mul", power, base), power)
        base = b.binary("mul", base, base)
        n = b.binary("shr", n, b.like(1, n))
    if result != "ui8":
        one, minus = b.compare("eq", x, b.like(1, x)), b.compare("eq", x, b.like(-1, x))
        odd = b.compare("ne", b.binary("and", y, b.like(1, y)), b.like(0, y))
        sign = b.select(odd, b.like(-1, x), b.like(1, x))
        inverse = b.select(one, b.like(1, x), b.select(minus, sign, b.like(0, x)))
        power = b.select(b.compare("lt", y, b.like(0, y)), inverse, power)
    return power


@translates("atan2")
def atan2(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary("atan2", x, y), result)


@translates("neg", "negative", "_neg_view")
def neg(b: Build, x: T) -> T:
    return b.unary("neg", x)


@translates("abs")
def abs_(b: Build, x: T) -> T:
    return b.unary("abs", x) if x.dtype != "i1" else x


@translates("sign", "sgn")
def sign(b: Build, x: T) -> T:
    if x.dtype == "i1":
        return x
    one, zero, none = b.like(1, x), b.like(0, x), b.like(0, x)
    above, below = b.compare("gt", x, zero), b.compare("lt", x, zero)
    if x.dtype == "ui8":
        return b.select(above, one, none)
    return b.select(above, one, b.select(below, b.like(-1, x), none))


@translates("signbit")
def signbit(b: Build, x: T) -> T:
    if not is_float(x.dtype):
        return b.compare("lt", x, b.like(0, x)) if x.dtype not in ("ui8", "i1") else b.full(0, "i1", x.shape)
    bits = b.op("core.bitcast", x, result=(INTEGERS[x.dtype], x.shape))
    return b.compare("lt", bits, b.like(0, bits))


@translates("copysign.Tensor", "copysign.Scalar")
def copysign(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(copy_sign(b, x, y), result)


# Comparisons and logic.


def common_dtype(b: Build, x, y) -> str:
    """The type in which PyTorch compares or combines two arguments."""
    node = b.node
    values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args[:2]]
    return dtype_name(torch.result_type(*values))


def _comparison(kind: str):
    def translate(b: Build, x, y) -> T:
        c = common_dtype(b, x, y)
        return b.compare(kind, operand(b, x, c), operand(b, y, c))

    return translate


for kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    translates(f"{kind}.Tensor", f"{kind}.Scalar")(_comparison(kind))


def _logical(name: str):
    def translate(b: Build, x: T, y: T) -> T:
        return b.binary(name, b.truth(x), b.truth(y))

    return translate


for name in ("and", "or", "xor"):
    translates(f"logical_{name}")(_logical(name))


@translates("logical_not")
def logical_not(b: Build, x: T) -> T:
    return b.not_(b.truth(x))


def _bitwise(name: str):
    def translate(b: Build, x, y) -> T:
        result = out_dtype(b)
        return b.binary(name, operand(b, x, result), operand(b, y, result))

    return translate


for name in ("and", "or", "xor"):
    translates(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"bitwise_{name}.Scalar_Tensor")(_bitwise(name))


@translates("bitwise_not")
def bitwise_not(b: Build, x: T) -> T:
    return b.not_(x)


def _shift(name: str):
    def translate(b: Build, x, y) -> T:
        result = out_dtype(b)
        if is_float(result):
            raise Unsupported("shifts of floats")
        return b.binary(name, operand(b, x, result), operand(b, y, result))

    return translate


for aten, python, core in (("left", "l", "shl"), ("right", "r", "shr")):
    overloads = [f"bitwise_{aten}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")]
    translates(*overloads, f"__{python}shift__.Scalar", f"__{python}shift__.Tensor")(_shift(core))


@translates("isnan")
def isnan(b: Build, x: T) -> T:
    return b.is_nan(x) if is_float(x.dtype) else b.full(0, "i1", x.shape)


@translates("isinf")
def isinf(b: Build, x: T) -> T:
    if not is_float(x.dtype):
        return b.full(0, "i1", x.shape)
    size = b.unary("abs", x)
    return b.compare("eq", size, b.like(math.inf, size))


@translates("isfinite")
def isfinite(b: Build, x: T) -> T:
    return b.unary("is_finite", x) if is_float(x.dtype) else b.full(1, "i1", x.shape)


# Choices.


@translates("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(b: Build, condition: T, x, y) -> T:
    result = out_dtype(b)
    return b.select(b.truth(condition), operand(b, x, result), operand(b, y, result))


@translates("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Build, x: T, mask: T, value) -> T:
    return b.select(mask, operand(b, value, x.dtype), x)


def _extremum(name: str):
    def translate(b: Build, x, y) -> T:
        result = out_dtype(b)
        x, y = operand(b, x, result), operand(b, y, result)
        if result == "i1":
            return b.binary("or" if name == "max" else "and", x, y)
        return b.binary(name, x, y)

    return translate


translates("maximum")(_extremum("max"))
translates("minimum")(_extremum("min"))


def _ignoring_nan(name: str):
    def translate(b: Build, x, y) -> T:
        result = out_dtype(b)
        x, y = b.broadcast(operand(b, x, result), operand(b, y, result))
        if not is_float(result):
            return _extremum(name)(b, x, y)
        best = b.binary(name, x, y)
        return b.select(b.is_nan(x), y, b.select(b.is_nan(y), x, best))

    return translate


translates("fmax")(_ignoring_nan("max"))
translates("fmin")(_ignoring_nan("min"))


@translates("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def clamp(b: Build, x: T, low=None, high=None) -> T:
    result = out_dtype(b)
    x = b.convert(x, result)
    if low is not None:
        x = _extremum("max")(b, x, operand(b, low, result))
    if high is not None:
        x = _extremum("min")(b, x, operand(b, high, result))
    return x


@translates("clamp_min", "clamp_min.Tensor")
def clamp_min(b: Build, x: T, low) -> T:
    return clamp(b, x, low)


@translates("clamp_max", "clamp_max.Tensor")
def clamp_max(b: Build, x: T, high) -> T:
    return clamp(b, x, None, high)


@translates("hardtanh")
def hardtanh(b: Build, x: T, low=-1.0, high=1.0) -> T:
    return clamp(b, x, low, high)


@translates("ldexp.Tensor")
def ldexp(b: Build, x, y) -> T:
    x, y, result = _operands(b, x, y)
    return b.convert(b.binary("mul", x, b.unary("exp2", y)), result)


@translates("angle")
def angle(b: Build, x: T) -> T:
    x = b.convert(x, out_dtype(b))
    below = b.select(b.compare("lt", x, b.like(0, x)), b.like(math.pi, x), b.like(0, x))
    return b.select(b.is_nan(x), x, below)


@translates("_conj", "_conj_physical", "conj_physical", "resolve_conj", "resolve_neg", "real")
def real(b: Build, x: T) -> T:
    return x


# Activations.


@translates("relu")
def relu(b: Build, x: T) -> T:
    return b.op("tensor.relu", x) if is_float(x.dtype) else b.scalar("max", x, 0)


@translates("relu6")
def relu6(b: Build, x: T) -> T:
    return clamp(b, x, 0, 6)


@translates("gelu")
def gelu(b: Build, x: T, approximate: str = "none") -> T:
    return b.op("tensor.gelu", x, approximate=approximate)


@translates("silu")
def silu(b: Build, x: T) -> T:
    return b.op("tensor.silu", x)


@float_function("leaky_relu")
def leaky_relu(b, x, slope=0.01):
    return b.select(b.compare("gt", x, b.like(0, x)), x, b.scalar("mul", x, slope))


@float_function("elu")
def elu(b, x, alpha=1.0, scale=1.0, input_scale=1.0):
    positive = b.scalar("mul", x, scale)
    negative = b.scalar("mul", b.unary("expm1", b.scalar("mul", x, input_scale)), alpha * scale)
    return b.select(b.compare("gt", x, b.like(0, x)), positive, negative)


@translates("addcmul")
def addcmul(b: Build, x, y, z, value=1) -> T:
    result = out_dtype(b)
    c = compute(result)
    product = b.binary("mul", operand(b, y, c), operand(b, z, c))
    return b.convert(b.binary("add", operand(b, x, c), _scaled(b, product, value)), result)


@translates_of_library("prims.fma.default")
def fma(b: Build, x, y, z) -> T:
    """x y + z, rounded once: what Dynamo writes for `addcmul` and its like."""
    result = out_dtype(b)
    x, y, z = b.broadcast(*(operand(b, t, compute(result)) for t in (x, y, z)))
    return b.convert(b.op("core.fma", x, y, z), result)


@translates("addcdiv")
def addcdiv(b: Build, x, y, z, value=1) -> T:
    result = out_dtype(b)
    c = compute(result)
    quotient = b.binary("div", operand(b, y, c), operand(b, z, c))
    return b.convert(b.binary("add", operand(b, x, c), _scaled(b, quotient, value)), result)


