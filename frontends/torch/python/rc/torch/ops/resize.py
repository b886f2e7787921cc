"""Resizing, as weighted sums of windows or, with antialiasing, as products with matrices of weights."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from rc.torch.build import Build, T
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.convolution import fixed
from rc.torch.ops.table import translates, translates_of_library


def _triangle(t: torch.Tensor) -> torch.Tensor:
    return (1 - t.abs()).clamp(min=0)


def _cubic(t: torch.Tensor) -> torch.Tensor:
    a, t = -0.5, t.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t)))


FILTERS = {"bilinear": (_triangle, 2), "bicubic": (_cubic, 4)}


def _weights(size: int, result: int, align_corners: bool, scale, name: str) -> torch.Tensor:
    """The weight [result, size] of each element in each of the result."""
    filter_, width = FILTERS[name]
    if align_corners:
        step = (size - 1) / (result - 1) if result > 1 else 0.0
    else:
        step = 1 / scale if scale else size / result
    support = width / 2 * max(step, 1.0)
    center = step * (torch.arange(result, dtype=torch.float64) + 0.5)
    start = (center - support + 0.5).trunc().clamp(min=0)
    end = (center + support + 0.5).trunc().clamp(max=size)
    at = torch.arange(size, dtype=torch.float64)
    w = filter_((at - center[:, None] + 0.5) / max(step, 1.0))
    w = torch.where((at >= start[:, None]) & (at < end[:, None]), w, torch.zeros_like(w))
    return w / w.sum(1, keepdim=True)


def _along_both(b: Build, x: T, rows: torch.Tensor, columns: torch.Tensor) -> T:
    """x [n, c, h, w] times a matrix [h', h] and one [w', w]."""
    c = b.upcast(x)
    # As PyTorch, that resizes along the width first.
    dtype = {"f32": torch.float32, "f64": torch.float64}[c.dtype]
    matrix = lambda m: b.dense(m.to(dtype), c.dtype)
    y = b.dot(c, matrix(columns), contract=(3, 1))
    y = b.dot(y, matrix(rows), contract=(2, 1))
    return b.convert(b.permute(y, [0, 1, 3, 2]), x.dtype)


def _antialiased(name: str):
    def forward(b: Build, x: T, sizes, align_corners: bool, scale_h=None, scale_w=None) -> T:
        if not is_float(x.dtype):
            raise Unsupported("resizing of integers")
        (h, w), (to_h, to_w) = fixed(x.shape[2:]), fixed(sizes)
        return _along_both(b, x, _weights(h, to_h, align_corners, scale_h, name), _weights(w, to_w, align_corners, scale_w, name))

    def backward(b: Build, grad: T, sizes, input_sizes, align_corners: bool, scale_h=None, scale_w=None) -> T:
        (h, w), (to_h, to_w) = fixed(input_sizes[2:]), fixed(sizes)
        rows, columns = _weights(h, to_h, align_corners, scale_h, name), _weights(w, to_w, align_corners, scale_w, name)
        return _along_both(b, grad, rows.T.contiguous(), columns.T.contiguous())

    translates(f"_upsample_{name}2d_aa")(forward)
    translates(f"_upsample_{name}2d_aa_backward")(backward)


_antialiased("bilinear")
_antialiased("bicubic")


@dataclass(frozen=True)
class _Windows:
    """Along one dimension, the windows of `size` elements whose sums with `weights`, [result, size], are the result; window o starts at element
    `(o * stride + offset) // divisor`, and the elements at the ends count for those beyond. No weights where windows have one element."""

    stride: int
    offset: int
    divisor: int
    size: int
    weights: np.ndarray | None


def _linear_weights(t: np.ndarray) -> list[np.ndarray]:
    """The weights of the elements before and after a place, from its distance to the first."""
    return [1 - t, t]


def _cubic_weights(t: np.ndarray, a: float = -0.75) -> list[np.ndarray]:
    """The same of two elements before and two after it, by Keys' cubic convolution (1981)."""
    near = lambda d: ((a + 2) * d - (a + 3)) * d * d + 1
    far = lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _places(kind: str, size: int, result: int, align_corners: bool, scale, dtype) -> np.ndarray:
    """Where each element of the result lies among `size` elements, in PyTorch's arithmetic."""
    at = np.arange(result, dtype=dtype)
    if align_corners:
        return at * dtype((size - 1) / (result - 1) if result > 1 else 0.0)
    step, half = dtype(1 / scale if scale else size / result), dtype(0.5)
    if kind.startswith("nearest"):
        return np.floor((at + half) * step if kind == "nearest-exact" else at * step)
    at = step * (at + half) - half
    return np.maximum(at, dtype(0)) if kind == "linear" else at


def _steps(kind: str, size: int, result: int, align_corners: bool, scale) -> tuple[int, int, int]:
    """Integers with which `(o * stride + offset) // divisor` is the element at or before the place of o."""
    if align_corners:
        return (size - 1, 0, result - 1) if result > 1 else (0, 0, 1)
    step = Fraction(1 / scale).limit_denominator(1 << 12) if scale else Fraction(size, result)
    p, q = step.numerator, step.denominator
    if kind == "nearest":
        return p, 0, q
    # (o + 1/2) p / q, less 1/2 where elements are points in the middle of their cells.
    return 2 * p, p - (0 if kind == "nearest-exact" else q), 2 * q


def _windows(kind: str, size: int, result: int, align_corners: bool, scale, dtype) -> _Windows | None:
    """The windows and weights of a dimension; None where the elements are not those at regular steps, which the rounding of places may cause."""
    places = _places(kind, size, result, align_corners, scale, dtype)
    stride, offset, divisor = _steps(kind, size, result, align_corners, scale)
    starts = (np.arange(result) * stride + offset) // divisor
    if kind.startswith("nearest"):
        same = np.array_equal(starts.clip(0, size - 1), places.astype(np.int64).clip(0, size - 1))
        return _Windows(stride, offset, divisor, 1, None) if same else None
    t = (places - starts).astype(dtype)
    if (t < -1e-2).any() or (t > 1.01).any():
        return None
    parts = (_linear_weights if kind == "linear" else _cubic_weights)(t.clip(0, 1))
    before = 1 if kind == "cubic" else 0
    return _Windows(stride, offset - before * divisor, divisor, len(parts), np.stack(parts, 1))


def _resized(b: Build, x: T, sizes: list[int], windows: list[_Windows]) -> T:
    """x [n, c, ...] resized to `sizes`, its last dimensions, each by its windows."""
    rank, first = x.rank, x.rank - len(sizes)
    line = lambda f: [f(w) for w in windows]
    y = b.op(
        "core.window", x, dims=list(range(first, rank)), counts=list(sizes), sizes=line(lambda w: w.size),
        strides=line(lambda w: max(w.stride, 1)), offsets=line(lambda w: w.offset), divisors=line(lambda w: w.divisor),
    )  # fmt: skip
    weights = None
    for d, w in enumerate(windows):
        if w.weights is not None:
            table = b.dense(torch.from_numpy(w.weights), "f64" if w.weights.dtype == np.float64 else "f32")
            part = b.broadcast_in(table, y.shape, [first + d, rank + d])
            weights = part if weights is None else b.binary("mul", weights, part)
    if weights is None:
        return b.reshape(y, y.shape[:rank])
    y = b.reduce("add", b.binary("mul", b.convert(y, weights.dtype), weights), list(range(rank, y.rank)))
    return b.convert(y, x.dtype)


KINDS = {"nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def plan(shape, dtype: torch.dtype, sizes, mode: str, align_corners: bool, scales) -> list[_Windows] | None:
    """The windows with which the last dimensions of `shape` are resized to `sizes`; a scale of 0 is one that was not given. None where there are
    no such windows, or for what is rounded otherwise than floats."""
    kind, elements = KINDS[mode], shape[len(shape) - len(sizes) :]
    if min(*elements, *sizes) < 1 or not (dtype.is_floating_point or kind.startswith("nearest")):
        return None
    wide = np.float64 if dtype == torch.float64 else np.float32
    found = [_windows(kind, n, r, align_corners, s, wide) for n, r, s in zip(elements, sizes, scales)]
    return found if all(found) else None


@translates_of_library("rc.resize.default")
def resize(b: Build, x: T, sizes, mode: str, align_corners: bool, scales) -> T:
    sizes = fixed(sizes)
    windows = plan(fixed(x.shape), torch.float64 if x.dtype == "f64" else torch.float32, sizes, mode, align_corners, scales)
    return _resized(b, x, sizes, windows)
