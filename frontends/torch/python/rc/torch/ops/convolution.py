"""Convolutions and pooling, as products and reductions over windows."""

from __future__ import annotations

import math

from rc._native import Dim
from rc.torch.build import Build, T, numel, simplify
from rc.torch.dtypes import compute, is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out, out_dtype, out_shape, translates


def _each(value, n: int) -> list[int]:
    """A number for each of `n` dimensions, of a list that may hold one for all."""
    value = [value] if isinstance(value, (int, Dim)) else list(value)
    value = value * n if len(value) == 1 else value
    if any(isinstance(v, Dim) for v in value):
        raise Unsupported("a convolution with symbolic strides or paddings")
    return value


def windows(b: Build, x: T, dims, sizes, strides, dilations) -> T:
    """Windows along dimensions; their elements are the last dimensions."""
    return b.op("core.window", x, dims=list(dims), sizes=list(sizes), strides=list(strides), dilations=list(dilations))


def dilate(b: Build, x: T, dims, steps) -> T:
    """Zeros between the elements along dimensions."""
    for d, step in zip(dims, steps):
        if step == 1:
            continue
        size = x.shape[d]
        wide = b.reshape(x, x.shape[: d + 1] + (1,) + x.shape[d + 1 :])
        high = [0] * wide.rank
        high[d + 1] = step - 1
        wide = b.pad(wide, [0] * wide.rank, high)
        x = b.reshape(wide, x.shape[:d] + (simplify(size * step),) + x.shape[d + 1 :])
        x = b.narrow(x, d, 0, simplify((size - 1) * step + 1))
    return x


def crop_or_pad(b: Build, x: T, dims, low, high, value=0) -> T:
    """Adds elements before and after, or, for negative numbers, takes them away."""
    starts, sizes = [0] * x.rank, list(x.shape)
    below, above = [0] * x.rank, [0] * x.rank
    for d, l, h in zip(dims, low, high):
        starts[d] = max(-l, 0)
        sizes[d] = simplify(sizes[d] - max(-l, 0) - max(-h, 0))
        below[d], above[d] = max(l, 0), max(h, 0)
    return b.pad(b.slice(x, starts, sizes), below, above, value)


def flip(b: Build, x: T, dims) -> T:
    return b.op("core.reverse", x, dims=list(dims)) if dims else x


def correlate(b: Build, x: T, w: T, strides, low, high, dilations, groups: int) -> T:
    """x [n, c, s..], w [o, c / groups, k..]: the convolution of machine learning, in the type of computation."""
    rank = x.rank - 2
    dims = list(range(2, 2 + rank))
    c = compute(x.dtype)
    x = crop_or_pad(b, x, dims, low, high)
    n, channels = x.shape[:2]
    o, per_group = w.shape[:2]
    x = windows(b, x, dims, w.shape[2:], strides, dilations)  # [n, c, out.., k..]
    places, kernel = list(x.shape[2 : 2 + rank]), list(w.shape[2:])
    if groups == 1:
        over = [1, *range(2 + rank, 2 + 2 * rank)]
        y = b.op("core.dot", x, w, lhs_contract=over, rhs_contract=list(range(1, 2 + rank)), result=(c, [n, *places, o]))
        return b.permute(y, [0, 1 + rank, *range(1, 1 + rank)])
    x = b.reshape(x, [n, groups, per_group, *places, *kernel])
    w = b.reshape(w, [groups, o // groups, per_group, *kernel])
    over = [2, *range(3 + rank, 3 + 2 * rank)]
    y = b.op(
        "core.dot", x, w, lhs_batch=[1], rhs_batch=[0], lhs_contract=over, rhs_contract=list(range(2, 3 + rank)),
        result=(c, [groups, n, *places, o // groups]),
    )  # fmt: skip
    y = b.permute(y, [1, 0, 2 + rank, *range(2, 2 + rank)])
    return b.reshape(y, [n, o, *places])


def transposed_weights(b: Build, w: T, groups: int) -> T:
    """[c, o / groups, k..] to [o, c / groups, k..], every kernel turned round."""
    rank = w.rank - 2
    c, per_group = w.shape[:2]
    w = flip(b, w, range(2, 2 + rank))
    if groups == 1:
        return b.permute(w, [1, 0, *range(2, 2 + rank)])
    w = b.reshape(w, [groups, c // groups, per_group, *w.shape[2:]])
    w = b.permute(w, [0, 2, 1, *range(3, 3 + rank)])
    return b.reshape(w, [groups * per_group, c // groups, *w.shape[3:]])


def transposed_correlate(b: Build, x: T, w: T, strides, paddings, dilations, output_paddings, groups: int) -> T:
    """The transposed convolution: a convolution of what has zeros between its elements."""
    rank = x.rank - 2
    dims = range(2, 2 + rank)
    x = dilate(b, x, dims, strides)
    reach = [d * (k - 1) - p for d, k, p in zip(dilations, w.shape[2:], paddings)]
    high = [r + o for r, o in zip(reach, output_paddings)]
    return correlate(b, x, transposed_weights(b, w, groups), [1] * rank, reach, high, dilations, groups)


@translates("convolution")
def convolution(b: Build, x: T, w: T, bias, stride, padding, dilation, transposed: bool, output_padding, groups: int) -> T:
    result = out_dtype(b)
    rank = w.rank - 2
    unbatched = x.rank == rank + 1
    if unbatched:
        x = b.unsqueeze(x, 0)
    stride, padding, dilation, output_padding = (_each(v, rank) for v in (stride, padding, dilation, output_padding))
    if any(s == 0 for s in (*x.shape, *w.shape)):
        raise Unsupported("convolutions of empty tensors")
    if transposed:
        y = transposed_correlate(b, x, w, stride, padding, dilation, output_padding, groups)
    else:
        y = correlate(b, x, w, stride, padding, padding, dilation, groups)
    if bias is not None:
        bias = b.reshape(b.convert(bias, y.dtype), [bias.shape[0]] + [1] * rank)
        y = b.binary("add", y, bias)
    y = b.reshape(y, y.shape[1:]) if unbatched else y
    return b.convert(y, result)


def weight_gradient(b: Build, x: T, grad: T, kernel, strides, paddings, dilations, groups: int) -> T:
    """The gradient of the weights [o, c / groups, k..] of a convolution of x [n, c, s..], from that of its result."""
    rank = x.rank - 2
    dims = list(range(2, 2 + rank))
    n, c, o = x.shape[0], x.shape[1], grad.shape[1]
    acc = compute(x.dtype)
    x = crop_or_pad(b, x, dims, paddings, paddings)
    x = windows(b, x, dims, kernel, strides, dilations)  # [n, c, out.., k..]
    places = list(grad.shape[2:])
    x = b.slice(x, [0] * x.rank, [n, c, *places, *kernel])
    if groups == 1:
        over = [0, *range(2, 2 + rank)]
        return b.op("core.dot", grad, x, lhs_contract=over, rhs_contract=over, result=(acc, [o, c, *kernel]))
    x = b.reshape(x, [n, groups, c // groups, *places, *kernel])
    grad = b.reshape(grad, [n, groups, o // groups, *places])
    over = [0, *range(3, 3 + rank)]
    y = b.op(
        "core.dot", grad, x, lhs_batch=[1], rhs_batch=[1], lhs_contract=over, rhs_contract=over,
        result=(acc, [groups, o // groups, c // groups, *kernel]),
    )  # fmt: skip
    return b.reshape(y, [o, c // groups, *kernel])


@translates("convolution_backward")
def convolution_backward(
    b: Build, grad: T, x: T, w: T, bias_sizes, stride, padding, dilation, transposed: bool, output_padding, groups: int, mask
) -> list:
    rank = w.rank - 2
    if x.rank == rank + 1:
        raise Unsupported("gradients of convolutions without a batch")
    if any(isinstance(s, Dim) for s in (*x.shape[2:], *grad.shape[2:])):
        raise Unsupported("gradients of convolutions of symbolic sizes")
    stride, padding, dilation, output_padding = (_each(v, rank) for v in (stride, padding, dilation, output_padding))
    grad_x = grad_w = grad_bias = None
    if mask[0]:
        grad_x = _input_gradient(b, grad, x, w, stride, padding, dilation, transposed, groups)
        grad_x = b.convert(grad_x, x.dtype)
    if mask[1]:
        # In a transposed convolution the result and the argument change places.
        ends = (grad, x) if transposed else (x, grad)
        grad_w = b.convert(weight_gradient(b, *ends, list(w.shape[2:]), stride, padding, dilation, groups), w.dtype)
    if mask[2]:
        over = [0, *range(2, 2 + rank)]
        grad_bias = b.convert(b.reduce("add", b.upcast(grad), over), out_dtype(b, 2))
    return [grad_x, grad_w, grad_bias]


def _input_gradient(b: Build, grad: T, x: T, w: T, stride, padding, dilation, transposed: bool, groups: int) -> T:
    if transposed:
        return correlate(b, grad, w, stride, padding, padding, dilation, groups)
    # What the windows did not reach at the end has no gradient.
    rest = [
        s + 2 * p - d * (k - 1) - 1 - (o - 1) * t
        for s, p, d, k, o, t in zip(x.shape[2:], padding, dilation, w.shape[2:], grad.shape[2:], stride)
    ]
    return transposed_correlate(b, grad, w, stride, padding, dilation, rest, groups)


# Pooling.


def _pool(b: Build, x: T, rank: int, kernel, stride, padding, dilation, ceil: bool, fill) -> tuple[T, list[int]]:
    """Windows of the last `rank` dimensions, padded by `fill`; as many as the operation has."""
    dims = list(range(x.rank - rank, x.rank))
    count = out_shape(b, 0 if isinstance(out(b), (list, tuple)) else None)[-rank:]
    high = list(padding)
    for i, d in enumerate(dims):
        size = x.shape[d]
        if isinstance(size, Dim) or isinstance(count[i], Dim):
            if ceil:
                raise Unsupported("pooling with ceil_mode over a symbolic size")
            continue
        # The last window may reach beyond the padding (ceil_mode).
        needed = (count[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
        high[i] = max(padding[i], needed - size - padding[i])
    x = crop_or_pad(b, x, dims, padding, high, fill)
    x = windows(b, x, dims, kernel, stride, dilation)
    sizes = list(x.shape)
    for d, n in zip(dims, count):
        sizes[d] = n
    return b.slice(x, [0] * x.rank, sizes), dims


def _arguments(rank: int, kernel, stride, padding, dilation=1):
    kernel = _each(kernel, rank)
    return kernel, _each(stride, rank) if stride not in ([], (), None) else kernel, _each(padding, rank), _each(dilation, rank)


def _max_pool(rank: int):
    def translate(b: Build, x: T, kernel, stride=(), padding=0, dilation=1, ceil_mode=False) -> list[T]:
        kernel, stride, padding, dilation = _arguments(rank, kernel, stride, padding, dilation)
        low = -math.inf if is_float(x.dtype) else -(2 ** (int(x.dtype[1:]) - 1)) if x.dtype != "ui8" else 0
        w, dims = _pool(b, x, rank, kernel, stride, padding, dilation, ceil_mode, low)
        inner = numel(kernel)
        flat = b.reshape(w, [*w.shape[: x.rank], inner])
        y = b.reduce("max", flat, [x.rank])
        at = b.op("core.reduce", flat, dims=[x.rank], kind="argmax")
        return [y, _place_in_plane(b, at, x, dims, kernel, stride, padding, dilation)]

    return translate


def _place_in_plane(b: Build, at: T, x: T, dims, kernel, stride, padding, dilation) -> T:
    """The place in x's plane of an element of a window, numbered within its window."""
    linear, rest, steps = None, at, 1
    parts = []
    for k in reversed(kernel):
        quotient = b.scalar("div", rest, k)
        parts.append(b.binary("sub", rest, b.scalar("mul", quotient, k)))
        rest = quotient
    for i, d in enumerate(dims):
        inside = parts[len(dims) - 1 - i]
        place = b.binary("add", b.scalar("mul", b.iota(at.shape, d), stride[i]), b.scalar("mul", inside, dilation[i]))
        place = b.scalar("sub", place, padding[i])
        linear = place if linear is None else b.binary("add", b.binary("mul", linear, b.size(x.shape[d], "i64", at.shape)), place)
    return linear


translates("max_pool2d_with_indices")(_max_pool(2))
translates("max_pool3d_with_indices")(_max_pool(3))


def _avg_pool(rank: int):
    def translate(
        b: Build, x: T, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ) -> T:
        kernel, stride, padding, dilation = _arguments(rank, kernel, stride, padding)
        if not is_float(x.dtype):
            raise Unsupported("averages of integers")
        c = b.upcast(x)
        w, dims = _pool(b, c, rank, kernel, stride, padding, dilation, ceil_mode, 0)
        inner = list(range(x.rank, x.rank + rank))
        total = b.reduce("add", w, inner)
        if divisor_override is not None:
            return b.convert(b.scalar("div", total, divisor_override), x.dtype)
        counted = _counted(b, x, total, dims, kernel, stride, padding, count_include_pad)
        return b.convert(b.binary("div", total, counted), x.dtype)

    return translate


def _counted(b: Build, x: T, y: T, dims, kernel, stride, padding, with_padding: bool) -> T:
    """How many elements each average is of: those inside of the tensor, or of its padding too."""
    count = b.like(1, y)
    for i, d in enumerate(dims):
        start = b.scalar("sub", b.scalar("mul", b.iota(y.shape, d), stride[i]), padding[i])
        size = x.shape[d]
        top = simplify(size + padding[i]) if with_padding else size
        end = b.binary("min", b.scalar("add", start, kernel[i]), b.size(top, "i64", y.shape))
        begin = start if with_padding else b.scalar("max", start, 0)
        count = b.binary("mul", count, b.convert(b.binary("sub", end, begin), y.dtype))
    return count


translates("avg_pool1d")(_avg_pool(1))
translates("avg_pool2d")(_avg_pool(2))
translates("avg_pool3d")(_avg_pool(3))


def _adaptive_avg_pool(rank: int):
    def translate(b: Build, x: T, sizes) -> T:
        c = b.upcast(x)
        for i in range(rank):
            c = _adaptive_mean(b, c, x.rank - rank + i, sizes[i])
        return b.convert(c, x.dtype)

    return translate


def _adaptive_mean(b: Build, x: T, d: int, count) -> T:
    """Means of `count` parts of a dimension, which may overlap."""
    size = x.shape[d]
    if isinstance(size, Dim) or isinstance(count, Dim):
        raise Unsupported("adaptive pooling over a symbolic size")
    if size % count == 0 and count > 0:
        parts = b.reshape(x, x.shape[:d] + (count, size // count) + x.shape[d + 1 :])
        return b.scalar("div", b.reduce("add", parts, [d + 1]), size // count)
    # Parts of different lengths: a product with the parts' weights.
    import torch

    weights = torch.zeros(count, size, dtype=torch.float64)
    for i in range(count):
        start, end = i * size // count, -(-(i + 1) * size // count)
        weights[i, start:end] = 1 / (end - start)
    w = b.dense(weights.to(torch.float64 if x.dtype == "f64" else torch.float32), x.dtype)
    order = [k for k in range(x.rank) if k != d] + [d]
    y = b.op("core.dot", x, w, lhs_contract=[d], rhs_contract=[1], result=(x.dtype, [s for k, s in enumerate(x.shape) if k != d] + [count]))
    return b.permute(y, [order.index(k) for k in range(x.rank)])


translates("_adaptive_avg_pool2d")(_adaptive_avg_pool(2))
translates("_adaptive_avg_pool3d")(_adaptive_avg_pool(3))
translates("adaptive_avg_pool1d")(_adaptive_avg_pool(1))


@translates("max_pool2d_with_indices_backward")
def max_pool_backward(b: Build, grad: T, x: T, kernel, stride, padding, dilation, ceil_mode, indices: T) -> T:
    """Each element sums the gradients of the windows whose greatest it is."""
    plane = numel(x.shape[-2:])
    lead = numel(x.shape[:-2])
    places = numel(grad.shape[-2:])
    zero = b.full(0, compute(x.dtype), [lead, plane])
    at = b.reshape(indices, [lead, places])
    updates = b.upcast(b.reshape(grad, [lead, places]))
    y = b.op("core.scatter", zero, at, updates, axis=1, batch=1, kind="add")
    return b.convert(b.reshape(y, x.shape), x.dtype)


@translates("avg_pool2d_backward")
def avg_pool_backward(
    b: Build, grad: T, x: T, kernel, stride, padding, ceil_mode, count_include_pad=True, divisor_override=None
) -> T:
    """The gradient of an average as a transposed convolution, with ones, of each window's share."""
    kernel, stride, padding, _ = _arguments(2, kernel, stride, padding)
    if any(isinstance(s, Dim) for s in (*x.shape[-2:], *grad.shape[-2:])):
        raise Unsupported("gradients of pooling over symbolic sizes")
    g = b.upcast(grad)
    dims = [x.rank - 2, x.rank - 1]
    if divisor_override is not None:
        share = b.scalar("div", g, divisor_override)
    else:
        share = b.binary("div", g, _counted(b, x, g, dims, kernel, stride, padding, count_include_pad))
    share = dilate(b, share, dims, stride)
    low = [k - 1 - p for k, p in zip(kernel, padding)]
    # So that there is a window for each element of x.
    high = [x.shape[d] + k - 1 - share.shape[d] - l for d, k, l in zip(dims, kernel, low)]
    share = crop_or_pad(b, share, dims, low, high)
    w = windows(b, share, dims, kernel, [1, 1], [1, 1])
    return b.convert(b.reduce("add", w, [x.rank, x.rank + 1]), x.dtype)


@translates("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(b: Build, grad: T, x: T) -> T:
    for d in (-2, -1):
        if isinstance(x.shape[d], Dim) or isinstance(grad.shape[d], Dim) or x.shape[d] % grad.shape[d]:
            raise Unsupported("gradients of adaptive pooling into uneven parts")
    g = b.upcast(grad)
    lead, (h, w), (oh, ow) = list(x.shape[:-2]), x.shape[-2:], grad.shape[-2:]
    kh, kw = h // oh, w // ow
    g = b.scalar("div", g, kh * kw)
    n = len(lead)
    g = b.broadcast_in(g, [*lead, oh, kh, ow, kw], [*range(n), n, n + 2])
    return b.convert(b.reshape(g, x.shape), x.dtype)
