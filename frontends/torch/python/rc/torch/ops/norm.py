"""Normalizations. Computed in float32 for narrower types."""

from __future__ import annotations

from rc.torch.build import Build, T, numel
from rc.torch.dtypes import compute
from rc.torch.ops.product import unused
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


def _normalize(b: Build, x: T, weight: T | None, bias: T | None, row, dims: list[int], eps: float) -> list[T]:
    """The normalized tensor, and mean and variance without the dimensions `dims`. `row`: the shape of weight and bias, of x's rank."""
    weight, bias = (t if t is None else b.reshape(t, row) for t in (weight, bias))
    return b.op("tensor.normalize", x, weight, bias, dims=dims, eps=eps)


@translates("native_layer_norm")
def native_layer_norm(b: Build, x: T, shape, weight, bias, eps: float) -> list:
    first = x.rank - len(shape)
    of_one_type = all(t is None or t.dtype == x.dtype for t in (weight, bias))
    if unused(b, 1, 2) and len(shape) == 1 and of_one_type:
        return [b.op("tensor.layer_norm", x, weight, bias, eps=eps), None, None]
    row = (1,) * first + tuple(x.shape[first:])
    y, mean, var = _normalize(b, x, weight, bias, row, list(range(first, x.rank)), eps)
    return [y, *(b.convert(b.reshape(s, out_shape(b, i)), out_dtype(b, i)) for i, s in ((1, mean), (2, _rstd(b, var, eps))))]


@translates("native_group_norm")
def native_group_norm(b: Build, x: T, weight, bias, n, c_, hxw, groups: int, eps: float) -> list:
    # A dimension of its own for the channels of one of several groups: weight and bias run along it, and no place divides. Places stay as they are, so that
    # images may lie with channels last.
    channels = [groups, numel([c_]) // groups] if groups > 1 else [c_]
    places = list(x.shape[2:])
    rows = b.reshape(x, [n, *channels, *places])
    y, mean, var = _normalize(b, rows, weight, bias, (1, *channels, *(1 for _ in places)), list(range(len(channels), rows.rank)), eps)
    stats = [b.convert(b.reshape(s, out_shape(b, i)), out_dtype(b, i)) for i, s in ((1, mean), (2, _rstd(b, var, eps)))]
    return [b.reshape(y, x.shape), *stats]


def _by_statistics(b: Build, x: T, weight, bias, mean: T, var: T, eps: float) -> T:
    """x normalized by given statistics, of shape [channels], in their type."""
    shape, c = (x.shape[1],) + (1,) * (x.rank - 2), mean.dtype
    y = b.binary("mul", b.binary("sub", b.convert(x, c), b.reshape(mean, shape)), b.reshape(_rstd(b, var, eps), shape))
    return b.convert(_affine(b, y, weight, bias, shape), x.dtype)


def _by_batch(b: Build, x: T, weight, bias, eps: float) -> list[T]:
    """x normalized by its own statistics, which follow: mean and variance of each channel."""
    row = [1] * x.rank
    row[1] = x.shape[1]
    return _normalize(b, x, weight, bias, row, [d for d in range(x.rank) if d != 1], eps)


@translates("_native_batch_norm_legit_no_training")
def batch_norm_inference(b: Build, x: T, weight, bias, mean, var, momentum: float, eps: float) -> list:
    c = compute(x.dtype)
    y = _by_statistics(b, x, weight, bias, b.convert(mean, c), b.convert(var, c), eps)
    return [y, *(b.full(0, out_dtype(b, i), out_shape(b, i)) for i in (1, 2))]


@translates("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(b: Build, x: T, weight, bias, training: bool, momentum: float, eps: float) -> list:
    y, mean, var = _by_batch(b, x, weight, bias, eps)
    return [y, b.convert(mean, out_dtype(b, 1)), b.convert(_rstd(b, var, eps), out_dtype(b, 2))]


def _running(b: Build, x: T, mean: T, var: T, old_mean: T, old_var: T, momentum: float) -> tuple[T, T]:
    """The running statistics; the variance that is kept is that of the population which the batch is a sample of."""
    c = mean.dtype
    n = b.size(numel([s for d, s in enumerate(x.shape) if d != 1]), c, ())
    unbiased = b.binary("mul", var, b.binary("div", n, b.scalar("sub", n, 1)))
    blend = lambda old, new: b.binary("add", b.scalar("mul", b.convert(old, c), 1 - momentum), b.scalar("mul", new, momentum))
    return blend(old_mean, mean), blend(old_var, unbiased)


@translates("_native_batch_norm_legit_functional")
def batch_norm_functional(b: Build, x: T, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float) -> list:
    if not training:
        c = compute(x.dtype)
        y = _by_statistics(b, x, weight, bias, b.convert(running_mean, c), b.convert(running_var, c), eps)
        empty = [b.full(0, out_dtype(b, i), out_shape(b, i)) for i in (1, 2)]
        return [y, *empty, b.convert(running_mean, out_dtype(b, 3)), b.convert(running_var, out_dtype(b, 4))]
    y, mean, var = _by_batch(b, x, weight, bias, eps)
    rest = [mean, _rstd(b, var, eps), *_running(b, x, mean, var, running_mean, running_var, momentum)]
    return [y, *(b.convert(t, out_dtype(b, i)) for i, t in enumerate(rest, 1))]


@translates("_batch_norm_with_update_functional")
def batch_norm_with_update(b: Build, x: T, weight, bias, running_mean, running_var, momentum: float, eps: float) -> list:
    y, mean, var = _by_batch(b, x, weight, bias, eps)
    new_mean, new_var = _running(b, x, mean, var, running_mean, running_var, momentum)
    reserve = b.full(0, out_dtype(b, 3), out_shape(b, 3))
    rest = [mean, _rstd(b, var, eps), reserve, new_mean, new_var]
    return [y, *(b.convert(t, out_dtype(b, i)) for i, t in enumerate(rest, 1))]


@translates("_batch_norm_no_update")
def batch_norm_no_update(b: Build, x: T, weight, bias, running_mean, running_var, momentum: float, eps: float) -> list:
    y = batch_norm_inference(b, x, weight, bias, running_mean, running_var, momentum, eps)
    return [*y, b.full(0, out_dtype(b, 3), out_shape(b, 3))]
