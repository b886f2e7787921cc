"""Normalizations. Computed in float32 for narrower types."""

from __future__ import annotations

from rc.torch.build import Build, T, numel
from rc.torch.ops.product import unused
from rc.torch.ops.reduce import variance
from rc.torch.ops.table import out_dtype, out_shape, translates


def _rstd(b: Build, var: T, eps: float) -> T:
    return b.unary("rsqrt", b.scalar("add", var, eps))


def _affine(b: Build, y: T, weight: T | None, bias: T | None, shape) -> T:
    """y weight + bias, both in `shape`, which broadcasts to y's."""
    if weight is not None:
        y = b.binary("mul", y, b.reshape(b.convert(weight, y.dtype), shape))
    if bias is not None:
        y = b.binary("add", y, b.reshape(b.convert(bias, y.dtype), shape))
    return y


@translates("native_layer_norm")
def native_layer_norm(b: Build, x: T, shape, weight, bias, eps: float) -> list:
    first = x.rank - len(shape)
    dims = list(range(first, x.rank))
    of_one_type = all(t is None or t.dtype == x.dtype for t in (weight, bias))
    if unused(b, 1, 2) and len(shape) == 1 and of_one_type:
        return [b.op("tensor.layer_norm", x, weight, bias, eps=eps), None, None]
    c = b.upcast(x)
    mean, var = variance(b, c, dims, 0)
    rstd = _rstd(b, var, eps)
    y = b.binary("mul", b.binary("sub", c, b.expand(mean, c.shape)), b.expand(rstd, c.shape))
    y = b.convert(_affine(b, y, weight, bias, tuple(shape)), x.dtype)
    stats = [b.convert(b.reshape(s, out_shape(b, i)), out_dtype(b, i)) for i, s in ((1, mean), (2, rstd))]
    return [y, *stats]


@translates("native_group_norm")
def native_group_norm(b: Build, x: T, weight, bias, n, c_, hxw, groups: int, eps: float) -> list:
    c, own = b.upcast(x), numel([c_]) // groups
    # A dimension of its own for a group's channels: weight and bias run along it, and no place divides.
    rows = b.reshape(c, [n, groups, own, hxw])
    mean, var = variance(b, rows, [2, 3], 0)
    rstd = _rstd(b, var, eps)
    y = b.binary("mul", b.binary("sub", rows, b.expand(mean, rows.shape)), b.expand(rstd, rows.shape))
    y = b.reshape(_affine(b, y, weight, bias, (groups, own, 1)), x.shape)
    stats = [b.convert(b.reshape(s, out_shape(b, i)), out_dtype(b, i)) for i, s in ((1, mean), (2, rstd))]
    return [b.convert(y, x.dtype), *stats]


def _batch_norm(b: Build, x: T, weight, bias, mean: T, var: T, eps: float) -> tuple[T, T]:
    """The normalized tensor, and 1/sqrt(var + eps); statistics of shape [channels] in the type of computation."""
    shape = (x.shape[1],) + (1,) * (x.rank - 2)
    rstd = _rstd(b, var, eps)
    y = b.binary("mul", b.binary("sub", x, b.reshape(mean, shape)), b.reshape(rstd, shape))
    return _affine(b, y, weight, bias, shape), rstd


@translates("_native_batch_norm_legit_no_training")
def batch_norm_inference(b: Build, x: T, weight, bias, mean, var, momentum: float, eps: float) -> list:
    c = b.upcast(x)
    y, _ = _batch_norm(b, c, weight, bias, b.convert(mean, c.dtype), b.convert(var, c.dtype), eps)
    return [b.convert(y, x.dtype), *(b.full(0, out_dtype(b, i), out_shape(b, i)) for i in (1, 2))]


def _batch_statistics(b: Build, x: T) -> tuple[T, T]:
    mean, var = variance(b, x, [d for d in range(x.rank) if d != 1], 0)
    return b.reshape(mean, [x.shape[1]]), b.reshape(var, [x.shape[1]])


@translates("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(b: Build, x: T, weight, bias, training: bool, momentum: float, eps: float) -> list:
    c = b.upcast(x)
    mean, var = _batch_statistics(b, c)
    y, rstd = _batch_norm(b, c, weight, bias, mean, var, eps)
    return [b.convert(y, x.dtype), b.convert(mean, out_dtype(b, 1)), b.convert(rstd, out_dtype(b, 2))]


def _running(b: Build, x: T, mean: T, var: T, old_mean: T, old_var: T, momentum: float) -> tuple[T, T]:
    """The running statistics; the variance that is kept is that of the population which the batch is a sample of."""
    c = mean.dtype
    n = b.size(numel([s for d, s in enumerate(x.shape) if d != 1]), c, ())
    unbiased = b.binary("mul", var, b.binary("div", n, b.scalar("sub", n, 1)))
    blend = lambda old, new: b.binary("add", b.scalar("mul", b.convert(old, c), 1 - momentum), b.scalar("mul", new, momentum))
    return blend(old_mean, mean), blend(old_var, unbiased)


@translates("_native_batch_norm_legit_functional")
def batch_norm_functional(b: Build, x: T, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float) -> list:
    c = b.upcast(x)
    if not training:
        mean, var = b.convert(running_mean, c.dtype), b.convert(running_var, c.dtype)
        y, _ = _batch_norm(b, c, weight, bias, mean, var, eps)
        empty = [b.full(0, out_dtype(b, i), out_shape(b, i)) for i in (1, 2)]
        return [b.convert(y, x.dtype), *empty, b.convert(running_mean, out_dtype(b, 3)), b.convert(running_var, out_dtype(b, 4))]
    mean, var = _batch_statistics(b, c)
    y, rstd = _batch_norm(b, c, weight, bias, mean, var, eps)
    rest = [mean, rstd, *_running(b, x, mean, var, running_mean, running_var, momentum)]
    return [b.convert(y, x.dtype), *(b.convert(t, out_dtype(b, i)) for i, t in enumerate(rest, 1))]


@translates("_batch_norm_with_update_functional")
def batch_norm_with_update(b: Build, x: T, weight, bias, running_mean, running_var, momentum: float, eps: float) -> list:
    c = b.upcast(x)
    mean, var = _batch_statistics(b, c)
    y, rstd = _batch_norm(b, c, weight, bias, mean, var, eps)
    new_mean, new_var = _running(b, x, mean, var, running_mean, running_var, momentum)
    reserve = b.full(0, out_dtype(b, 3), out_shape(b, 3))
    rest = [mean, rstd, reserve, new_mean, new_var]
    return [b.convert(y, x.dtype), *(b.convert(t, out_dtype(b, i)) for i, t in enumerate(rest, 1))]


@translates("_batch_norm_no_update")
def batch_norm_no_update(b: Build, x: T, weight, bias, running_mean, running_var, momentum: float, eps: float) -> list:
    y = batch_norm_inference(b, x, weight, bias, running_mean, running_var, momentum, eps)
    return [*y, b.full(0, out_dtype(b, 3), out_shape(b, 3))]
