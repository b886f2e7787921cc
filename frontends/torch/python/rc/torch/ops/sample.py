"""Sampling at computed places, `grid_sample`, and its gradients."""

from __future__ import annotations

import functools
import itertools

from rc._native import Dim
from rc.torch.build import Build, T, numel
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import translates


def _reflected(b: Build, at: T, low: float, span: float) -> tuple[T, T]:
    """A place, folded back if it is beyond either end, and how it moves with the one that is given."""
    if not isinstance(span, Dim) and span <= 0:
        return b.like(0, at), b.like(0, at)
    t = b.scalar("sub", at, low)
    below = b.compare("lt", t, b.like(0, t))
    t = b.select(below, b.unary("neg", t), t)
    extra = b.scalar("rem", t, span)
    flips = b.unary("floor", b.scalar("div", t, span))
    even = b.compare("eq", b.scalar("rem", flips, 2), b.like(0, flips))
    place = b.scalar("add", b.select(even, extra, b.binary("sub", b.like(span, extra), extra)), low)
    rising, falling = b.like(1, at), b.like(-1, at)
    return place, b.select(even, b.select(below, falling, rising), b.select(below, rising, falling))


def _scaled(b: Build, at: T, size: int, align_corners: bool) -> T:
    """A place in [-1, 1] as one among `size` elements."""
    if align_corners:
        return b.scalar("mul", b.scalar("mul", b.scalar("add", at, 1), 0.5), size - 1)
    return b.scalar("mul", b.scalar("sub", b.scalar("mul", b.scalar("add", at, 1), size), 1), 0.5)


def _within(b: Build, at: T, size: int, padding: int, align_corners: bool) -> tuple[T, T]:
    """A place among `size` elements, and how it moves with the one that is given; padding 1 is the border's, 2 reflection. As PyTorch has it, the
    border itself has no slope, and its reflection one."""
    slope = b.like(1, at)
    if padding == 0:
        return at, slope
    if padding == 2:
        at, slope = _reflected(b, at, 0, size - 1) if align_corners else _reflected(b, at, -0.5, size)
    first, last = b.like(0, at), b.like(size - 1, at)
    inner = b.binary("and", b.compare("gt", at, first), b.compare("lt", at, last))
    at = b.select(b.compare("le", at, first), first, at)
    return b.select(b.compare("ge", at, last), last, at), b.select(inner, slope, b.like(0, at))


@translates("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(b: Build, x: T, grid: T, mode: int, padding: int, align_corners: bool) -> T:
    """x [n, c, sizes] at places [n, points, dimensions], each in [-1, 1], of the last dimension first. What is computed of a place holds for all of its
    channels."""
    total = None
    table, along = _sampled(b, x, grid, mode, padding, align_corners)
    for taps in itertools.product(*along):
        weights = [weight for _, weight, _ in taps if weight is not None]
        part = _element(b, table, [at for at, _, _ in taps], x.shape[2:], _product(b, weights))
        total = part if total is None else b.binary("add", total, part)
    return b.convert(b.reshape(total, [*x.shape[:2], *grid.shape[1:-1]]), x.dtype)


@translates("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(b: Build, grad: T, x: T, grid: T, mode: int, padding: int, align_corners: bool, output_mask) -> list:
    sizes, dims = x.shape[2:], x.rank - 2
    table, along = _sampled(b, x, grid, mode, padding, align_corners)
    grad = b.reshape(b.upcast(grad), [*x.shape[:2], numel(grid.shape[1:-1])])
    spread = lambda t: b.broadcast_in(t, grad.shape, [0, 2])
    of_table, of_places = b.like(0, table), [None] * dims
    for taps in itertools.product(*along):
        places, weights = [at for at, _, _ in taps], [weight for _, weight, _ in taps]
        inside, linear = _inside(b, places, sizes)
        if output_mask[0]:
            weight = _product(b, [w for w in weights if w is not None])
            part = b.binary("mul", grad, spread(weight)) if weight is not None else grad
            part = b.select(spread(inside), part, b.like(0, part))
            of_table = b.op("core.scatter", of_table, linear, part, axis=2, batch=1, kind="add")
        if output_mask[1] and mode != 1:
            found = b.reduce("add", b.binary("mul", grad, _element(b, table, places, sizes, None)), [1])
            for d, (_, _, slope) in enumerate(taps):
                part = _product(b, [found, slope, *weights[:d], *weights[d + 1 :]])
                of_places[d] = part if of_places[d] is None else b.binary("add", of_places[d], part)
    of_x = b.convert(b.reshape(of_table, x.shape), x.dtype) if output_mask[0] else None
    if not output_mask[1]:
        return [of_x, None]
    if mode == 1:
        return [of_x, b.like(0, grid)]
    line = b.concat([b.unsqueeze(t, 2) for t in reversed(of_places)], 2)
    return [of_x, b.convert(b.reshape(line, grid.shape), grid.dtype)]


def _product(b: Build, factors: list) -> T | None:
    return functools.reduce(lambda u, v: b.binary("mul", u, v), factors) if factors else None


def _sampled(b: Build, x: T, grid: T, mode: int, padding: int, align_corners: bool) -> tuple[T, list]:
    """The elements as a table [n, c, all], and what each place reads along each dimension."""
    if not is_float(x.dtype):
        raise Unsupported("sampling of integers")
    sizes, dims = x.shape[2:], x.rank - 2
    points = [x.shape[0], numel(grid.shape[1:-1])]
    line = b.reshape(b.upcast(grid), [*points, dims])
    coordinate = lambda d: b.reshape(b.narrow(line, 2, dims - 1 - d, 1), points)
    along = [list(_taps(b, coordinate(d), size, mode, padding, align_corners)) for d, size in enumerate(sizes)]
    return b.reshape(b.upcast(x), [*x.shape[:2], numel(sizes)]), along


def _taps(b: Build, place: T, size: int, mode: int, padding: int, align_corners: bool):
    """The whole places along one dimension that a place reads, their weights, and the weights' slopes: 0 between two, 1 the nearest, 2 a cubic of four."""
    within = lambda at: _within(b, at, size, padding, align_corners)
    at = _scaled(b, place, size, align_corners)
    if mode == 1:
        yield b.unary("round", within(at)[0]), None, None
        return
    slope = b.scalar("mul", b.like(size - 1 if align_corners else size, at), 0.5)
    if mode == 0:
        at, moves = within(at)
        slope = b.binary("mul", slope, moves)
    low = b.unary("floor", at)
    t = b.binary("sub", at, low)
    if mode == 0:
        yield low, b.binary("sub", b.like(1, t), t), b.unary("neg", slope)
        yield b.scalar("add", low, 1), t, slope
        return
    distances = (b.scalar("add", t, 1), t, b.binary("sub", b.like(1, t), t), b.binary("sub", b.like(2, t), t))
    for n, distance in enumerate(distances):
        weight, rises = _cubic_weight(b, distance, near=n in (1, 2))
        yield within(b.scalar("add", low, n - 1))[0], weight, b.binary("mul", rises, slope if n < 2 else b.unary("neg", slope))


def _cubic_weight(b: Build, t: T, near: bool) -> tuple[T, T]:
    """PyTorch's cubic, whose a is -0.75, at distances below 1 or from 1 to 2, and its slope."""
    powers = (1.25, -2.25, 0, 1) if near else (-0.75, 3.75, -6, 3)
    total, slope = b.like(powers[0], t), b.like(0, t)
    for power in powers[1:]:
        slope = b.binary("add", b.binary("mul", slope, t), total)
        total = b.scalar("add", b.binary("mul", total, t), power)
    return total, slope


def _inside(b: Build, at, sizes) -> tuple[T, T]:
    """Whether places [n, points] are those of elements, and the elements' numbers; 0 outside."""
    inside, linear = None, None
    for place, size in zip(at, sizes):
        here = b.binary("and", b.compare("ge", place, b.like(0, place)), b.compare("le", place, b.like(size - 1, place)))
        inside = here if inside is None else b.binary("and", inside, here)
        number = b.convert(b.select(here, place, b.like(0, place)), "i64")
        linear = number if linear is None else b.binary("add", b.scalar("mul", linear, size), number)
    return inside, linear


def _element(b: Build, table: T, at, sizes, weight) -> T:
    """The elements [n, c, points] at whole places [n, points], zero outside, times weights."""
    inside, linear = _inside(b, at, sizes)
    found = b.op("core.gather", table, linear, axis=2, batch=1)
    spread = lambda t: b.broadcast_in(t, found.shape, [0, 2])
    found = b.select(spread(inside), found, b.like(0, found))
    return b.binary("mul", found, spread(weight)) if weight is not None else found
