"""Adaptive maximum pooling: windows whose sizes differ by one."""

from __future__ import annotations

import math

from rc.torch.build import Build, T, numel
from rc.torch.ops.convolution import fixed
from rc.torch.ops.index import scatter_line
from rc.torch.ops.table import translates


def _inside(b: Build, size: int, result: int) -> tuple[T, int]:
    """For `result` windows along `size` elements, each as long as the longest, which of their elements count, [result, longest]; and how long that is."""
    longest = max(math.ceil((o + 1) * size / result) - o * size // result for o in range(result))
    o, k = (b.iota([result, longest], d) for d in range(2))
    first = b.scalar("mul", o, size)
    start = b.scalar("div", first, result)
    last = b.scalar("div", b.scalar("add", first, size - 1), result)  # ceil((o + 1) size / result) - 1
    return b.compare("le", b.binary("add", start, k), last), longest


def _adaptive_max_pool(b: Build, x: T, sizes) -> list[T]:
    rank = len(sizes)
    sizes, spatial = fixed(sizes), fixed(x.shape[-rank:])
    lead = list(x.shape[:-rank])
    if all(r and s % r == 0 for s, r in zip(spatial, sizes)):
        window = [s // r for s, r in zip(spatial, sizes)]
        return b.op("tensor.max_pool", x, window=window, strides=window, padding=[0] * rank, dilations=[1] * rank, ceil=False)
    if 0 in sizes or numel(lead) == 0:
        return [b.full(0, x.dtype, lead + sizes), b.full(0, "i64", lead + sizes)]
    # Each dimension becomes windows and their elements; a window's elements together, and its greatest.
    tables, windows = zip(*(_inside(b, s, r) for s, r in zip(spatial, sizes)))
    first = len(lead)
    steps = {"strides": spatial, "divisors": sizes, "offsets": [0] * rank, "counts": sizes}
    y = b.op("core.window", x, dims=[first + d for d in range(rank)], sizes=list(windows), **steps)
    for d, inside in enumerate(tables):
        inside = b.broadcast_in(inside, y.shape, [first + d, first + rank + d])
        y = b.select(inside, y, b.full(-math.inf, y.dtype, y.shape))
    at = b.op("core.reduce", b.reshape(y, lead + sizes + [math.prod(windows)]), dims=[first + rank], kind="argmax")
    place, rest = None, at
    for d in reversed(range(rank)):
        quotient = b.scalar("div", rest, windows[d])
        k = b.binary("sub", rest, b.scalar("mul", quotient, windows[d]))
        rest = quotient
        o = b.iota(at.shape, first + d)
        start = b.scalar("div", b.scalar("mul", o, spatial[d]), sizes[d])
        term = b.scalar("mul", b.binary("add", start, k), math.prod(spatial[d + 1 :]))
        place = term if place is None else b.binary("add", place, term)
    return [b.reduce("max", y, [*range(first + rank, first + 2 * rank)]), place]


def _adaptive_max_pool_backward(rank: int):
    def translate(b: Build, grad: T, x: T, indices: T) -> T:
        lead, spatial = list(x.shape[:-rank]), list(x.shape[-rank:])
        rows, size = numel(lead), numel(spatial)
        if any(s == 0 for s in grad.shape):
            return b.full(0, x.dtype, x.shape)
        flat = lambda t: b.reshape(t, [rows, numel(t.shape[-rank:])])
        y = scatter_line(b, b.full(0, grad.dtype, [rows, size]), flat(indices), flat(grad), "add", axis=1, batch=1)
        return b.reshape(y, x.shape)

    return translate


for rank in (1, 2, 3):
    translates(f"adaptive_max_pool{rank}d")(_adaptive_max_pool)
    translates(f"adaptive_max_pool{rank}d_backward")(_adaptive_max_pool_backward(rank))
