"""Reductions, cumulative operations, softmax."""

from __future__ import annotations

import math

from rc.torch.build import Build, T, normalize, numel
from rc.torch.dtypes import compute
from rc.torch.ops.table import out_dtype, out_shape, translates


def dims_of(x: T, dims) -> list[int]:
    """The dimensions that `dims` means; all where it is None or empty."""
    if isinstance(dims, int):
        dims = [dims]
    if not dims:
        return list(range(x.rank))
    return sorted({normalize(d, x.rank) for d in dims}) if x.rank else []


def count_of(b: Build, x: T, dims, dtype: str) -> T:
    """The number of elements along dimensions, as a tensor of rank 0."""
    return b.size(numel([x.shape[d] for d in dims]), dtype, ())


@translates("sum.dim_IntList", "sum.default")
def sum_(b: Build, x: T, dims=None, keepdim=False, dtype=None) -> T:
    result = out_dtype(b)
    y = b.reduce("add", b.convert(x, compute(result)), dims_of(x, dims), keepdim)
    return b.convert(y, result)


@translates("mean.dim", "mean.default")
def mean(b: Build, x: T, dims=None, keepdim=False, dtype=None) -> T:
    result = out_dtype(b)
    x = b.convert(x, compute(result))
    dims = dims_of(x, dims)
    y = b.reduce("add", x, dims, keepdim)
    return b.convert(b.binary("div", y, count_of(b, x, dims, x.dtype)), result)


@translates("prod.dim_int", "prod.default")
def prod(b: Build, x: T, dim=None, keepdim=False, dtype=None) -> T:
    result = out_dtype(b)
    return b.convert(b.reduce("mul", b.convert(x, compute(result)), dims_of(x, dim), keepdim), result)


def _extreme(kind: str):
    def translate(b: Build, x: T, dims=None, keepdim=False) -> T:
        if x.dtype == "i1":
            return b.reduce("or" if kind == "max" else "and", x, dims_of(x, dims), keepdim)
        return b.reduce(kind, x, dims_of(x, dims), keepdim)

    return translate


translates("amax", "max.default")(_extreme("max"))
translates("amin", "min.default")(_extreme("min"))


@translates("linalg_vector_norm")
def vector_norm(b: Build, x: T, ord=2, dim=None, keepdim=False, *, dtype=None) -> T:
    result = out_dtype(b)
    size = b.unary("abs", b.convert(x, compute(result)))
    dims, total = dims_of(x, dim), lambda y: b.reduce("add", y, dims_of(x, dim), keepdim)
    if ord in (math.inf, -math.inf):
        y = b.reduce("max" if ord > 0 else "min", size, dims, keepdim)
    elif ord == 0:
        y = total(b.convert(b.compare("ne", size, b.like(0, size)), size.dtype))
    elif ord == 1:
        y = total(size)
    elif ord == 2:
        y = b.unary("sqrt", total(b.binary("mul", size, size)))
    else:
        y = total(b.scalar("pow", size, ord))
        y = b.scalar("pow", y, 1 / ord)
    return b.convert(y, result)


def _truth(kind: str):
    def translate(b: Build, x: T, dims=None, keepdim=False) -> T:
        y = b.reduce(kind, b.truth(x), dims_of(x, dims), keepdim)
        return b.convert(y, out_dtype(b))

    return translate


translates("any.default", "any.dim", "any.dims")(_truth("or"))
translates("all.default", "all.dim", "all.dims")(_truth("and"))


def arg_extreme(b: Build, kind: str, x: T, dim, keepdim: bool) -> T:
    """The place of the first extreme element."""
    if x.dtype == "i1":
        x = b.convert(x, "i32")
    if x.rank == 0:
        return b.full(0, "i64", ())
    if dim is None:
        flat = b.reshape(x, [numel(x.shape)])
        y = b.op("core.reduce", flat, dims=[0], kind=kind)
        return b.reshape(y, [1] * x.rank) if keepdim else y
    dim = normalize(dim, x.rank)
    y = b.op("core.reduce", x, dims=[dim], kind=kind)
    return b.reshape(y, [1 if d == dim else s for d, s in enumerate(x.shape)]) if keepdim else y


@translates("argmax")
def argmax(b: Build, x: T, dim=None, keepdim=False) -> T:
    return arg_extreme(b, "argmax", x, dim, keepdim)


@translates("argmin")
def argmin(b: Build, x: T, dim=None, keepdim=False) -> T:
    return arg_extreme(b, "argmin", x, dim, keepdim)


@translates("max.dim")
def max_dim(b: Build, x: T, dim: int, keepdim=False) -> list[T]:
    return [_extreme("max")(b, x, [dim], keepdim), arg_extreme(b, "argmax", x, dim, keepdim)]


@translates("min.dim")
def min_dim(b: Build, x: T, dim: int, keepdim=False) -> list[T]:
    return [_extreme("min")(b, x, [dim], keepdim), arg_extreme(b, "argmin", x, dim, keepdim)]


def moments(b: Build, x: T, dims) -> tuple[T, T]:
    """Mean and sum of squared differences from it, dimensions kept; two passes, so that nothing cancels."""
    mean = b.binary("div", b.reduce("add", x, dims, keepdim=True), count_of(b, x, dims, x.dtype))
    centered = b.binary("sub", x, b.expand(mean, x.shape))
    return mean, b.reduce("add", b.binary("mul", centered, centered), dims, keepdim=True)


def variance(b: Build, x: T, dims, correction) -> tuple[T, T]:
    """Mean and variance, dimensions kept."""
    mean, squares = moments(b, x, dims)
    count = count_of(b, x, dims, x.dtype)
    over = b.binary("max", b.scalar("sub", count, correction), b.full(0, x.dtype, ()))
    return mean, b.binary("div", squares, over)


def _variance_op(names: tuple, root: bool, with_mean: bool):
    @translates(*names)
    def translate(b: Build, x: T, dim=None, correction=None, keepdim=False, unbiased=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            correction = int(unbiased)
        correction = 1 if correction is None else correction
        result = out_dtype(b, 0 if with_mean else None)
        shape = out_shape(b, 0 if with_mean else None)
        c = b.upcast(x)
        mean, var = variance(b, c, dims_of(c, dim), correction)
        var = b.unary("sqrt", var) if root else var
        var = b.reshape(b.convert(var, result), shape)
        return [var, b.reshape(b.convert(mean, result), shape)] if with_mean else var


_variance_op(("var.correction", "var.dim", "var"), root=False, with_mean=False)
_variance_op(("std.correction", "std.dim", "std"), root=True, with_mean=False)
_variance_op(("var_mean.correction", "var_mean.dim", "var_mean"), root=False, with_mean=True)
_variance_op(("std_mean.correction", "std_mean.dim", "std_mean"), root=True, with_mean=True)


def _scan(kind: str):
    def translate(b: Build, x: T, dim: int, dtype=None) -> T:
        result = out_dtype(b)
        x = b.convert(x, result)
        return x if x.rank == 0 else b.op("core.scan", x, dim=normalize(dim, x.rank), kind=kind)

    return translate


translates("cumsum")(_scan("add"))
translates("cumprod")(_scan("mul"))


@translates("_softmax", "softmax.int", "_safe_softmax")
def softmax(b: Build, x: T, dim: int, *args, **kwargs) -> T:
    result = out_dtype(b)
    c = b.convert(x, compute(result))
    if x.rank == 0:
        return b.convert(b.binary("sub", b.like(1, c), b.binary("sub", c, c)), result)
    y = b.op("tensor.softmax", c, dim=dim)
    if b.node.target._opname == "_safe_softmax":
        # A row of -inf gives zeros.
        low = b.reduce("max", c, [dim], keepdim=True)
        masked = b.compare("eq", low, b.like(-math.inf, low))
        y = b.select(b.expand(masked, y.shape), b.like(0, y), y)
    return b.convert(y, result)


@translates("_log_softmax", "log_softmax.int")
def log_softmax(b: Build, x: T, dim: int, *args, **kwargs) -> T:
    result = out_dtype(b)
    c = b.convert(x, compute(result))
    if x.rank == 0:
        return b.convert(b.binary("sub", c, c), result)
    return b.convert(b.op("tensor.log_softmax", c, dim=dim), result)
