"""Convolutions and pooling."""

from __future__ import annotations

from rc._native import Dim
from rc.torch.build import Build, T
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out_dtype, out_shape, translates


def each(value, n: int) -> list[int]:
    """A number for each of `n` dimensions, of a list that may hold one for all."""
    value = [value] if isinstance(value, (int, Dim)) else list(value)
    value = value * n if len(value) == 1 else value
    if any(isinstance(v, Dim) for v in value):
        raise Unsupported("windows with symbolic sizes, strides or padding")
    return value


def fixed(sizes) -> list[int]:
    if any(isinstance(s, Dim) for s in sizes):
        raise Unsupported("adaptive pooling of symbolic sizes")
    return list(sizes)


def _precision(b: Build, x: T, w: T, strides, padding, dilations, groups) -> str | None:
    """What operands may be rounded to. Windows side by side are a matrix product, and filters of few channels (edges, blurs) have no use for matrix
    units: cuDNN 9 rounds neither patches of 16 x 16 nor filters of one channel on an H200."""
    window, channels = list(w.shape[2:]), (w.shape[0] // groups, w.shape[1])
    few = lambda most: [isinstance(n, int) and n < most for n in channels]
    if any(few(3)) or all(few(8)):
        return None
    side_by_side = window == strides and all(n == 1 for n in dilations) and not any(padding)
    patches = side_by_side and any(n != 1 for n in window) and groups == 1
    return b.precision("matmul" if patches else "conv", x, w)


@translates("convolution")
def convolution(b: Build, x: T, w: T, bias, stride, padding, dilation, transposed: bool, output_padding, groups: int) -> T:
    rank = w.rank - 2
    single = x.rank == rank + 1
    x = b.unsqueeze(x, 0) if single else x
    if any(s == 0 for s in (*x.shape, *w.shape)):
        raise Unsupported("convolutions of empty tensors")
    steps = dict(strides=each(stride, rank), padding=each(padding, rank), dilations=each(dilation, rank), groups=groups)
    steps |= dict(precision=_precision(b, x, w, **steps))
    if transposed:
        y = b.op("tensor.conv_transpose", x, w, bias, sizes=out_shape(b)[-rank:], **steps)
    else:
        y = b.op("tensor.conv", x, w, bias, **steps)
    return b.reshape(y, y.shape[1:]) if single else y


@translates("convolution_backward")
def convolution_backward(
    b: Build, grad: T, x: T, w: T, bias_sizes, stride, padding, dilation, transposed: bool, output_padding, groups: int, mask
) -> list:
    rank = w.rank - 2
    if x.rank == rank + 1:
        raise Unsupported("gradients of convolutions without a batch")
    if any(s == 0 for s in (*x.shape, *w.shape)):
        raise Unsupported("convolutions of empty tensors")
    steps = dict(strides=each(stride, rank), padding=each(padding, rank), dilations=each(dilation, rank), groups=groups)
    steps |= dict(precision=_precision(b, x, w, **steps))
    grad_x = grad_w = grad_bias = None
    if mask[0] and transposed:
        grad_x = b.op("tensor.conv", grad, w, None, **steps)
    elif mask[0]:
        grad_x = b.op("tensor.conv_transpose", grad, w, None, sizes=list(x.shape[2:]), **steps)
    if mask[1]:
        # In a transposed convolution the result and the argument change places.
        ends = (grad, x) if transposed else (x, grad)
        grad_w = b.op("tensor.conv_weight_grad", *ends, window=each(w.shape[2:], rank), **steps)
    if mask[2]:
        grad_bias = b.convert(b.reduce("add", b.upcast(grad), [0, *range(2, 2 + rank)]), out_dtype(b, 2))
    return [grad_x, grad_w, grad_bias]


def _windows(rank: int, kernel, stride, padding, ceil: bool) -> dict:
    kernel = each(kernel, rank)
    strides = each(stride, rank) if stride not in ([], (), None) else kernel
    return dict(window=kernel, strides=strides, padding=each(padding, rank), ceil=bool(ceil))


def _max_pool(rank: int):
    def translate(b: Build, x: T, kernel, stride=(), padding=0, dilation=1, ceil_mode=False) -> list[T]:
        return b.op("tensor.max_pool", x, dilations=each(dilation, rank), **_windows(rank, kernel, stride, padding, ceil_mode))

    return translate


def _max_pool_backward(rank: int):
    def translate(b: Build, grad: T, x: T, kernel, stride, padding, dilation, ceil_mode, indices: T) -> T:
        steps = _windows(rank, kernel, stride, padding, ceil_mode)
        return b.op("tensor.max_pool_grad", grad, indices, sizes=list(x.shape[-rank:]), dilations=each(dilation, rank), **steps)

    return translate


def _averages(rank: int, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) -> dict:
    steps = _windows(rank, kernel, stride, padding, ceil_mode)
    return steps | dict(count_padding=bool(count_include_pad), divisor=divisor_override)


def _avg_pool(rank: int):
    def translate(b: Build, x: T, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None) -> T:
        if not is_float(x.dtype):
            raise Unsupported("averages of integers")
        return b.op("tensor.avg_pool", x, **_averages(rank, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override))

    return translate


def _avg_pool_backward(rank: int):
    def translate(b: Build, grad: T, x: T, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) -> T:
        steps = _averages(rank, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return b.op("tensor.avg_pool_grad", grad, sizes=list(x.shape[-rank:]), **steps)

    return translate


def _adaptive(b: Build, x: T, sizes) -> T:
    fixed(x.shape[-len(sizes) :])
    return b.op("tensor.adaptive_avg_pool", x, sizes=fixed(sizes))


def _adaptive_backward(rank: int):
    def translate(b: Build, grad: T, x: T) -> T:
        return b.op("tensor.adaptive_avg_pool_grad", grad, sizes=fixed(x.shape[-rank:]))

    return translate


for rank in (1, 2, 3):
    translates(f"max_pool{rank}d_with_indices")(_max_pool(rank))
    translates(f"max_pool{rank}d_with_indices_backward")(_max_pool_backward(rank))
    translates(f"avg_pool{rank}d")(_avg_pool(rank))
    translates(f"avg_pool{rank}d_backward")(_avg_pool_backward(rank))
    translates(f"_adaptive_avg_pool{rank}d", f"adaptive_avg_pool{rank}d")(_adaptive)
    translates(f"_adaptive_avg_pool{rank}d_backward")(_adaptive_backward(rank))
