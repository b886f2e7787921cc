"""Complex numbers: pairs of real tensors.

In memory, and so in arguments and results, the parts of a number lie one after the other. What moves elements or is linear in them is done
to each part by the translation for real tensors; the other operations are written here.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Callable

import torch

from rc._native import Dim
from rc.torch.build import Build, C, T
from rc.torch.errors import Unsupported
from rc.torch.ops.bits import hypot_of
from rc.torch.ops.elementwise import copy_sign, signbit
from rc.torch.ops.table import COMPLEX, TABLE, lookup, operand, out, out_dtype, out_shape, translates

aten = torch.ops.aten
# Registers a translation of operations where an operand or the result is complex.
of_complex = partial(translates, table=COMPLEX)


def parts(b: Build, x, dtype: str) -> C:
    """A tensor or number as a complex tensor with parts of this type."""
    if isinstance(x, C):
        return C(b.convert(x.re, dtype), b.convert(x.im, dtype))
    if isinstance(x, complex):
        return C(operand(b, x.real, dtype), operand(b, x.imag, dtype))
    re = operand(b, x, dtype)
    return C(re, b.like(0, re))


# Part by part


def _part(x, which: int):
    """A part of what stands at an operand's place: real tensors and numbers have no imaginary one."""
    if isinstance(x, (list, tuple)):
        return [_part(y, which) for y in x]
    if isinstance(x, C):
        return (x.re, x.im)[which]
    if isinstance(x, complex):
        return (x.real, x.imag)[which]
    return x if which == 0 else 0


def _part_wise(op, places: tuple[int, ...]) -> Callable:
    real = TABLE[op]

    def translate(b: Build, *args, **kwargs):
        def once(which: int):
            # A real tensor among complex ones has an imaginary part of zeros.
            given = [_of(b, x) if i in places else x for i, x in enumerate(args)]
            given = [_part(x, which) if i in places else x for i, x in enumerate(given)]
            if any(isinstance(x, (C, complex)) for x in [*given, *kwargs.values()]):
                raise Unsupported("complex numbers in this operation")
            return real(b, *given, **kwargs)

        re, im = once(0), once(1)
        return [C(x, y) for x, y in zip(re, im, strict=True)] if isinstance(re, list) else C(re, im)

    return translate


def _of(b: Build, x):
    if isinstance(x, (list, tuple)):
        return [_of(b, y) for y in x]
    return C(x, b.like(0, x)) if isinstance(x, T) else x


# The places of the operands that are taken apart, by operation; the first where nothing is said.
PART_WISE = {
    (0,): (
        "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "permute", "transpose.int",
        "t", "numpy_T", "expand", "slice.Tensor", "select.int", "split_with_sizes", "split.Tensor", "unsafe_split.Tensor", "unbind.int", "flip",
        "narrow_copy", "repeat", "diagonal", "as_strided", "unfold", "roll", "clone", "alias", "detach", "lift_fresh_copy", "contiguous",
        "positive", "neg", "negative", "_neg_view", "resolve_conj", "resolve_neg", "sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "cumsum",
        "index.Tensor", "_unsafe_index.Tensor", "index_select", "gather", "take", "embedding", "tril", "triu", "constant_pad_nd",
        "alias_copy", "view_copy", "unsqueeze_copy", "squeeze_copy", "permute_copy", "transpose_copy.int", "expand_copy", "slice_copy.Tensor",
        "select_copy.int", "split_with_sizes_copy", "unbind_copy.int", "diagonal_copy", "as_strided_copy", "unfold_copy",
        "empty.memory_format", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted",
        "zeros", "zeros_like", "new_zeros", "_efficientzerotensor",
    ),
    (0, 1): ("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", "copy", "fill.Scalar", "fill.Tensor", "full_like"),
    (1,): ("full", ),
    (0, 2): ("new_full", "masked_fill.Scalar", "masked_fill.Tensor", "index_put", "_unsafe_index_put", "put"),
    (0, 3): ("scatter.src", "scatter.value", "scatter_add", "index_add"),
    (1, 2): ("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"),
}  # fmt: skip

for _places, _names in PART_WISE.items():
    for _name in _names:
        _op = lookup(_name)
        if _op is not None and _op in TABLE:
            COMPLEX[_op] = _part_wise(_op, _places)
COMPLEX[aten.cat.default] = _part_wise(aten.cat.default, (0,))
COMPLEX[aten.scalar_tensor.default] = _part_wise(aten.scalar_tensor.default, (0,))


@of_complex("ones", "ones_like", "new_ones")
def ones(b: Build, *_, **__) -> C:
    return C(b.full(1, out_dtype(b), out_shape(b)), b.full(0, out_dtype(b), out_shape(b)))


# From parts, and to them


@of_complex("view_as_complex")
def view_as_complex(b: Build, x: T) -> C:
    last = x.rank - 1
    return C(*(b.reshape(b.narrow(x, last, i, 1), x.shape[:-1]) for i in (0, 1)))


@of_complex("view_as_real", "view_as_real_copy")
def view_as_real(b: Build, x: C) -> T:
    return interleaved(b, x)


def interleaved(b: Build, x: C) -> T:
    """A real tensor with one dimension more, of the two parts."""
    return b.concat([b.unsqueeze(x.re, x.re.rank), b.unsqueeze(x.im, x.im.rank)], x.re.rank)


@of_complex("complex")
def complex_(b: Build, re: T, im: T) -> C:
    return C(*b.broadcast(re, im))


@of_complex("polar")
def polar(b: Build, length: T, angle: T) -> C:
    return C(b.binary("mul", length, b.unary("cos", angle)), b.binary("mul", length, b.unary("sin", angle)))


@of_complex("real")
def real(b: Build, x: C) -> T:
    return x.re


@of_complex("imag")
def imag(b: Build, x: C) -> T:
    return x.im


@of_complex("_conj", "_conj_physical", "conj_physical")
def conj(b: Build, x: C) -> C:
    return C(x.re, b.unary("neg", x.im))


@of_complex("_to_copy", "to.dtype", "prims::convert_element_type")
def to_copy(b: Build, x, dtype=None, **kwargs):
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type != out(b).device.type:
        raise Unsupported("copies between devices")
    if out(b).is_complex():
        return parts(b, x, out_dtype(b))
    return TABLE[aten._to_copy.default](b, x.re) if out_dtype(b) != "i1" else nonzero(b, x)


def nonzero(b: Build, x: C) -> T:
    return b.binary("or", b.truth(x.re), b.truth(x.im))


@of_complex("abs")
def abs_(b: Build, x: C) -> T:
    return hypot_of(b, x.re, x.im)


@of_complex("angle")
def angle(b: Build, x: C) -> T:
    return b.binary("atan2", x.im, x.re)


# Arithmetic


def product(b: Build, x: C, y: C) -> C:
    re = b.binary("sub", b.binary("mul", x.re, y.re), b.binary("mul", x.im, y.im))
    return C(re, b.binary("add", b.binary("mul", x.re, y.im), b.binary("mul", x.im, y.re)))


def each(b: Build, name: str, x: C, y: C) -> C:
    return C(b.binary(name, x.re, y.re), b.binary(name, x.im, y.im))


def scaled(b: Build, x: C, alpha) -> C:
    if alpha == 1:
        return x
    if isinstance(alpha, complex):
        return product(b, x, parts(b, alpha, x.re.dtype))
    return C(b.scalar("mul", x.re, alpha), b.scalar("mul", x.im, alpha))


def is_real(x) -> bool:
    return isinstance(x, (T, Dim, int, float))


def times(b: Build, x, y, dtype: str) -> C:
    """Of a real factor, each part is multiplied, as PyTorch does for numbers."""
    if is_real(x):
        x, y = y, x
    if is_real(y) and not isinstance(y, T):
        x = parts(b, x, dtype)
        return scaled(b, x, y) if not isinstance(y, Dim) else each(b, "mul", x, C(*[operand(b, y, dtype)] * 2))
    return product(b, parts(b, x, dtype), parts(b, y, dtype))


@of_complex("add.Tensor", "add.Scalar")
def add(b: Build, x, y, alpha=1) -> C:
    dtype = out_dtype(b)
    return each(b, "add", parts(b, x, dtype), scaled(b, parts(b, y, dtype), alpha))


@of_complex("sub.Tensor", "sub.Scalar")
def sub(b: Build, x, y, alpha=1) -> C:
    dtype = out_dtype(b)
    return each(b, "sub", parts(b, x, dtype), scaled(b, parts(b, y, dtype), alpha))


@of_complex("rsub.Tensor", "rsub.Scalar")
def rsub(b: Build, x, y, alpha=1) -> C:
    return sub(b, y, x, alpha)


@of_complex("mul.Tensor", "mul.Scalar")
def mul(b: Build, x, y) -> C:
    return times(b, x, y, out_dtype(b))


def quotient(b: Build, x: C, y: C) -> C:
    """By the larger part of the divisor, so that no square overflows."""
    x, y = C(*b.broadcast(x.re, y.re)[:1], *b.broadcast(x.im, y.im)[:1]), C(*b.broadcast(y.re, x.re)[:1], *b.broadcast(y.im, x.im)[:1])
    real_first = b.compare("ge", b.unary("abs", y.re), b.unary("abs", y.im))
    choose = lambda p, q: b.select(real_first, p, q)
    large, small = choose(y.re, y.im), choose(y.im, y.re)
    # 0 / 0 for a divisor of zero: each part is then divided by it.
    zero = b.binary("and", b.compare("eq", y.re, b.like(0, y.re)), b.compare("eq", y.im, b.like(0, y.im)))
    ratio = b.binary("div", small, b.select(zero, b.like(1, large), large))
    scale = b.binary("add", large, b.binary("mul", small, ratio))
    first, second = choose(x.re, x.im), choose(x.im, x.re)
    re = b.binary("div", b.binary("add", first, b.binary("mul", second, ratio)), scale)
    im = b.binary("sub", b.binary("mul", first, ratio), second)
    im = b.binary("div", b.select(real_first, b.unary("neg", im), im), scale)
    im = b.select(zero, b.binary("div", x.im, b.unary("abs", y.im)), im)
    re = b.select(zero, b.binary("div", x.re, b.unary("abs", y.re)), re)
    return C(re, im)


@of_complex("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(b: Build, x, y) -> C:
    dtype = out_dtype(b)
    if isinstance(y, (int, float)):
        x = parts(b, x, dtype)
        return C(b.scalar("div", x.re, y), b.scalar("div", x.im, y))
    return quotient(b, parts(b, x, dtype), parts(b, y, dtype))


@of_complex("reciprocal")
def reciprocal(b: Build, x: C) -> C:
    return quotient(b, C(b.like(1, x.re), b.like(0, x.re)), x)


@of_complex("addcmul")
def addcmul(b: Build, x, y, z, value=1) -> C:
    dtype = out_dtype(b)
    y, z = parts(b, y, dtype), parts(b, z, dtype)
    return each(b, "add", parts(b, x, dtype), scaled(b, product(b, y, z), value))


@of_complex("addcdiv")
def addcdiv(b: Build, x, y, z, value=1) -> C:
    dtype = out_dtype(b)
    y, z = parts(b, y, dtype), parts(b, z, dtype)
    return each(b, "add", parts(b, x, dtype), scaled(b, quotient(b, y, z), value))


@of_complex("pow.Tensor_Scalar")
def pow_(b: Build, x: C, n) -> C:
    if not isinstance(n, int) or not 1 <= n <= 8:
        raise Unsupported("powers of complex numbers other than 1 to 8")
    y = x
    for _ in range(n - 1):
        y = product(b, y, x)
    return y


@of_complex("sgn")
def sgn(b: Build, x: C) -> C:
    size = hypot_of(b, x.re, x.im)
    zero = b.compare("eq", size, b.like(0, size))
    safe = b.select(zero, b.like(1, size), size)
    return C(b.binary("div", x.re, safe), b.binary("div", x.im, safe))


# Comparisons


@of_complex("eq.Tensor", "eq.Scalar")
def eq(b: Build, x, y) -> T:
    x, y = _alike(b, x, y)
    return b.binary("and", b.compare("eq", x.re, y.re), b.compare("eq", x.im, y.im))


@of_complex("ne.Tensor", "ne.Scalar")
def ne(b: Build, x, y) -> T:
    return b.not_(eq(b, x, y))


def _alike(b: Build, x, y) -> tuple[C, C]:
    dtype = "f64" if any(isinstance(z, C) and z.re.dtype == "f64" for z in (x, y)) else "f32"
    return parts(b, x, dtype), parts(b, y, dtype)


@of_complex("isnan")
def isnan(b: Build, x: C) -> T:
    return b.binary("or", b.is_nan(x.re), b.is_nan(x.im))


@of_complex("isinf")
def isinf(b: Build, x: C) -> T:
    infinite = lambda t: b.compare("eq", b.unary("abs", t), b.like(float("inf"), t))
    return b.binary("or", infinite(x.re), infinite(x.im))


@of_complex("logical_not")
def logical_not(b: Build, x: C) -> T:
    return b.not_(nonzero(b, x))


def _logical(name: str):
    def translate(b: Build, x, y) -> T:
        return b.binary(name, *(nonzero(b, z) if isinstance(z, C) else b.truth(z) for z in (x, y)))

    return translate


for _name in ("and", "or", "xor"):
    of_complex(f"logical_{_name}")(_logical(_name))


@of_complex("isfinite")
def isfinite(b: Build, x: C) -> T:
    return b.binary("and", b.unary("is_finite", x.re), b.unary("is_finite", x.im))


# Functions


@of_complex("exp")
def exp(b: Build, x: C) -> C:
    size = b.unary("exp", x.re)
    # exp of a real number is real, of an infinite one too.
    real = b.compare("eq", x.im, b.like(0, x.im))
    im = b.binary("mul", size, b.unary("sin", x.im))
    return C(b.binary("mul", size, b.unary("cos", x.im)), b.select(real, x.im, im))


@of_complex("log")
def log(b: Build, x: C) -> C:
    """log |z| with |z|² - 1 where |z| is near 1, so that little of it cancels."""
    size = hypot_of(b, x.re, x.im)
    re, im = b.unary("abs", x.re), b.unary("abs", x.im)
    large, small = b.binary("max", re, im), b.binary("min", re, im)
    excess = b.binary("mul", b.scalar("sub", large, 1), b.scalar("add", large, 1))
    near = b.scalar("mul", b.unary("log1p", b.binary("add", excess, b.binary("mul", small, small))), 0.5)
    close = b.compare("lt", b.unary("abs", b.scalar("sub", size, 1)), b.like(0.25, size))
    return C(b.select(close, near, b.unary("log", size)), b.binary("atan2", x.im, x.re))


@of_complex("sqrt")
def sqrt(b: Build, x: C) -> C:
    """Half of |z| + |re| is the square of the larger part; the other is half the imaginary part by it."""
    half = lambda t: b.scalar("mul", t, 0.5)
    a = b.unary("abs", x.re)
    root = b.unary("sqrt", b.binary("add", half(hypot_of(b, x.re, x.im)), half(a)))
    zero = b.compare("eq", root, b.like(0, root))
    other = b.binary("div", half(b.unary("abs", x.im)), b.select(zero, b.like(1, root), root))
    negative = signbit(b, x.re)
    return C(b.select(negative, other, root), copy_sign(b, b.select(negative, root, other), x.im))


@of_complex("rsqrt")
def rsqrt(b: Build, x: C) -> C:
    return reciprocal(b, sqrt(b, x))


@of_complex("log2")
def log2(b: Build, x: C) -> C:
    return scaled(b, log(b, x), 1 / math.log(2))


@of_complex("log10")
def log10(b: Build, x: C) -> C:
    return scaled(b, log(b, x), 1 / math.log(10))


def hyperbolic(b: Build, x: T) -> tuple[T, T]:
    """cosh and sinh."""
    e = b.unary("expm1", b.unary("abs", x))
    down = b.binary("div", e, b.scalar("add", e, 1))
    half = lambda t: b.scalar("mul", t, 0.5)
    cosh = b.scalar("add", half(b.binary("sub", e, down)), 1)
    return cosh, copy_sign(b, half(b.binary("add", e, down)), x)


@of_complex("cos")
def cos(b: Build, x: C) -> C:
    cosh, sinh = hyperbolic(b, x.im)
    return C(b.binary("mul", b.unary("cos", x.re), cosh), b.unary("neg", b.binary("mul", b.unary("sin", x.re), sinh)))


@of_complex("sin")
def sin(b: Build, x: C) -> C:
    cosh, sinh = hyperbolic(b, x.im)
    return C(b.binary("mul", b.unary("sin", x.re), cosh), b.binary("mul", b.unary("cos", x.re), sinh))


@of_complex("cosh")
def cosh_(b: Build, x: C) -> C:
    cosh, sinh = hyperbolic(b, x.re)
    return C(b.binary("mul", cosh, b.unary("cos", x.im)), b.binary("mul", sinh, b.unary("sin", x.im)))


@of_complex("sinh")
def sinh_(b: Build, x: C) -> C:
    cosh, sinh = hyperbolic(b, x.re)
    return C(b.binary("mul", sinh, b.unary("cos", x.im)), b.binary("mul", cosh, b.unary("sin", x.im)))


# Products


def _product(op) -> Callable:
    """Four products of real matrices."""
    real = TABLE[op]

    def translate(b: Build, x, y, **_) -> C:
        dtype = out_dtype(b)
        x, y = parts(b, x, dtype), parts(b, y, dtype)
        re = b.binary("sub", real(b, x.re, y.re), real(b, x.im, y.im))
        return C(re, b.binary("add", real(b, x.re, y.im), real(b, x.im, y.re)))

    return translate


for _name in ("mm", "bmm", "mv", "dot"):
    COMPLEX[lookup(_name)] = _product(lookup(_name))


@of_complex("vdot")
def vdot(b: Build, x, y) -> C:
    return COMPLEX[aten.dot.default](b, conj(b, parts(b, x, out_dtype(b))), y)


def _sum_with(name: str):
    def translate(b: Build, addend, x, y, *, beta=1, alpha=1, **_) -> C:
        dtype = out_dtype(b)
        xy = scaled(b, COMPLEX[lookup(name)](b, x, y), alpha)
        return xy if beta == 0 else each(b, "add", scaled(b, parts(b, addend, dtype), beta), xy)

    return translate


for _name, _of_product in (("addmm", "mm"), ("baddbmm", "bmm"), ("addmv", "mv")):
    COMPLEX[lookup(_name)] = _sum_with(_of_product)


@of_complex("linalg_vector_norm")
def vector_norm(b: Build, x: C, *args, **kwargs) -> T:
    return TABLE[aten.linalg_vector_norm.default](b, hypot_of(b, x.re, x.im), *args, **kwargs)

