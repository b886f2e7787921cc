"""Order: sorting, searching, extremes so far.

What compares all pairs of a row (a mode) does at most `MOST` comparisons.
"""

from __future__ import annotations

import math

from rc._native import Dim
from rc.torch.build import Build, T, normalize, numel
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out_dtype, out_shape, translates

MOST = 2**31
"""Comparisons at most."""


def check(x: T, dim: int, what: str):
    n, all_ = x.shape[dim], numel(x.shape)
    if isinstance(all_, Dim) or all_ * n > MOST:
        raise Unsupported(f"{what} along a dimension of {n} in {list(x.shape)}: at most {MOST} comparisons")


def _before(b: Build, x: T, y: T, descending: bool) -> T:
    """Whether elements of `x` come before those of `y` by their values; NaN is greatest."""
    less = b.compare("gt" if descending else "lt", x, y)
    if not is_float(x.dtype):
        return less
    nan_x, nan_y = b.is_nan(x), b.is_nan(y)
    first, second = (nan_x, nan_y) if descending else (nan_y, nan_x)
    return b.binary("or", less, b.binary("and", first, b.not_(second)))


def along(b: Build, x: T, dim: int, index: T) -> T:
    """`torch.gather`."""
    from rc.torch.ops.shape import gather_along

    return gather_along(b, x, dim, index)


def sorted_(b: Build, x: T, dim: int, descending: bool) -> list[T]:
    if x.rank == 0:
        return [x, b.full(0, "i64", ())]
    dim = normalize(dim, x.rank)
    if any(s == 0 for s in x.shape):
        return [x, b.full(0, "i64", x.shape)]
    if x.dtype == "i1":
        values, at = b.op("tensor.sort", b.convert(x, "i32"), dim=dim, descending=descending)
        return [b.convert(values, "i1"), at]
    return b.op("tensor.sort", x, dim=dim, descending=descending)


@translates("sort")
def sort(b: Build, x: T, dim: int = -1, descending: bool = False) -> list[T]:
    return sorted_(b, x, dim, descending)


@translates("sort.stable")
def sort_stable(b: Build, x: T, *, stable=None, dim: int = -1, descending: bool = False) -> list[T]:
    return sorted_(b, x, dim, descending)


@translates("topk")
def topk(b: Build, x: T, k, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[T]:
    if x.rank == 0 or x.dtype == "i1" or isinstance(k, Dim) or any(s == 0 for s in x.shape):
        values, at = sorted_(b, x, dim, largest)
        dim = normalize(dim, x.rank) if x.rank else 0
        return [b.narrow(values, dim, 0, k), b.narrow(at, dim, 0, k)] if x.rank else [values, at]
    dim = normalize(dim, x.rank)
    return b.op("tensor.topk", x, dim=dim, k=k, largest=bool(largest))


def _nth(b: Build, x: T, n, dim: int, keepdim: bool) -> list[T]:
    """The n-th smallest along a dimension, and where it is."""
    if x.rank == 0:
        return [x, b.full(0, "i64", ())]
    dim = normalize(dim, x.rank)
    values, at = sorted_(b, x, dim, False)
    shape = [1 if d == dim else s for d, s in enumerate(x.shape)]
    if isinstance(n, T):
        index = b.reshape(n, shape)
        values, at = along(b, values, dim, index), along(b, at, dim, index)
    else:
        values, at = b.narrow(values, dim, n, 1), b.narrow(at, dim, n, 1)
    kept = shape if keepdim else [s for d, s in enumerate(x.shape) if d != dim]
    return [b.reshape(values, kept), b.reshape(at, kept)]


@translates("kthvalue")
def kthvalue(b: Build, x: T, k, dim: int = -1, keepdim: bool = False) -> list[T]:
    return _nth(b, x, k - 1, dim, keepdim)


def _median(b: Build, x: T, dim: int, keepdim: bool, ignore: bool) -> list[T]:
    if x.rank == 0:
        return [x, b.full(0, "i64", ())]
    dim = normalize(dim, x.rank)
    if not is_float(x.dtype):
        return _nth(b, x, (x.shape[dim] - 1) // 2, dim, keepdim)
    nan = b.convert(b.is_nan(x), "i64")
    count = b.reduce("add", nan, [dim])
    length = b.size(x.shape[dim], "i64", count.shape)
    if ignore:
        # The middle of those that are numbers; NaN where none is, which is then the first.
        numbers = b.binary("sub", length, count)
        middle = b.scalar("max", b.scalar("div", b.scalar("sub", numbers, 1), 2), 0)
        return _nth(b, x, middle, dim, keepdim)
    # The first NaN where there is one: NaNs sort last, in their order.
    any_nan = b.compare("gt", count, b.like(0, count))
    middle = b.like((x.shape[dim] - 1) // 2, count)
    return _nth(b, x, b.select(any_nan, b.binary("sub", length, count), middle), dim, keepdim)


@translates("median.dim")
def median_dim(b: Build, x: T, dim: int, keepdim: bool = False) -> list[T]:
    return _median(b, x, dim, keepdim, ignore=False)


@translates("nanmedian.dim")
def nanmedian_dim(b: Build, x: T, dim: int, keepdim: bool = False) -> list[T]:
    return _median(b, x, dim, keepdim, ignore=True)


@translates("median")
def median(b: Build, x: T) -> T:
    return _median(b, b.reshape(x, [numel(x.shape)]), 0, False, ignore=False)[0]


@translates("nanmedian")
def nanmedian(b: Build, x: T) -> T:
    return _median(b, b.reshape(x, [numel(x.shape)]), 0, False, ignore=True)[0]


@translates("mode")
def mode(b: Build, x: T, dim: int = -1, keepdim: bool = False) -> list[T]:
    """The most frequent value, the least of several, and the last place that has it."""
    if x.rank == 0:
        return [x, b.full(0, "i64", ())]
    dim = normalize(dim, x.rank)
    n = x.shape[dim]
    check(x, dim, "the mode")
    values, _ = sorted_(b, x, dim, False)
    shape = list(x.shape) + [n]
    order = [d for d in range(x.rank) if d != dim]
    spread = lambda y: b.broadcast_in(b.permute(y, order + [dim]), shape, order + [x.rank])
    equal = b.compare("eq", b.broadcast_in(values, shape, range(x.rank)), spread(values))
    count = b.reduce("add", b.convert(equal, "i64"), [x.rank])
    at = b.op("core.reduce", count, dims=[dim], kind="argmax")
    kept = [1 if d == dim else s for d, s in enumerate(x.shape)]
    best = along(b, values, dim, b.reshape(at, kept))
    here = b.compare("eq", x, b.expand(best, x.shape))
    last = b.reduce("max", b.select(here, b.iota(x.shape, dim), b.full(-1, "i64", x.shape)), [dim])
    final = kept if keepdim else [s for d, s in enumerate(x.shape) if d != dim]
    return [b.reshape(best, final), b.reshape(last, final)]


@translates("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(b: Build, line: T, x, *, out_int32=False, right=False, side=None, sorter=None) -> T:
    """How many elements of a sorted row are before a value."""
    from rc.torch.ops.table import operand

    right = right or side == "right"
    if sorter is not None:
        line = along(b, line, line.rank - 1, sorter)
    x = operand(b, x, line.dtype) if not isinstance(x, T) else x
    if x.dtype != line.dtype:
        raise Unsupported("searching among values of another type")
    n = line.shape[-1]
    if not isinstance(n, Dim) and n > 64 and all(s != 0 for s in x.shape):
        return b.convert(_bisected(b, line, x, right), out_dtype(b))
    shape = list(x.shape) + [n]
    if line.rank == 1:
        row = b.broadcast_in(line, shape, [x.rank])
    else:
        row = b.broadcast_in(line, shape, [*range(line.rank - 1), x.rank])
    value = b.broadcast_in(x, shape, range(x.rank))
    ahead = b.not_(_before(b, value, row, False)) if right else _before(b, row, value, False)
    return b.convert(b.reduce("add", b.convert(ahead, "i64"), [x.rank]), out_dtype(b))


def _bisected(b: Build, line: T, x: T, right: bool) -> T:
    """The number of elements before a value by steps of powers of two: as many as are before it are passed over.

    The first step leads to the last elements, as many as the others can pass over, so that no step leads past the end.
    """
    n = line.shape[-1]
    batch = line.rank - 1
    counter = "i32" if n < 2**31 else "i64"

    def is_ahead(at: T) -> T:
        element = b.op("core.gather", line, at, axis=batch, batch=batch)
        return b.not_(_before(b, x, element, False)) if right else _before(b, element, x, False)

    step = 1 << (n.bit_length() - 1)
    number = lambda k: b.full(k, counter, x.shape)
    found = b.select(is_ahead(number(step - 1)), number(n + 1 - step), number(0))
    while step := step // 2:
        found = b.select(is_ahead(b.scalar("add", found, step - 1)), b.scalar("add", found, step), found)
    return found


@translates("repeat_interleave.Tensor")
def repeat_interleave(b: Build, repeats: T, *, output_size=None) -> T:
    """Each place as often as its element says: at place i of the result, how many of the running sums i has reached."""
    if output_size is None:
        raise Unsupported("a size that depends on data")
    count, ends = out_shape(b)[0], b.op("core.scan", b.convert(repeats, "i64"), dim=0, kind="add")
    if 0 in (count, repeats.shape[0]):
        return b.full(0, out_dtype(b), [count])
    return searchsorted(b, ends, b.iota([count], 0), right=True)


@translates("bucketize.Tensor", "bucketize.Scalar")
def bucketize(b: Build, x, boundaries: T, *, out_int32=False, right=False) -> T:
    return searchsorted(b, boundaries, x, right=right)


@translates("cummax")
def cummax(b: Build, x: T, dim: int) -> list[T]:
    return _cumulative(b, x, dim, "max")


@translates("cummin")
def cummin(b: Build, x: T, dim: int) -> list[T]:
    return _cumulative(b, x, dim, "min")


def _cumulative(b: Build, x: T, dim: int, kind: str) -> list[T]:
    """The extreme so far and its place, the last of several."""
    if x.rank == 0:
        return [x, b.full(0, "i64", ())]
    dim = normalize(dim, x.rank)
    values = b.op("core.scan", b.convert(x, "i32") if x.dtype == "i1" else x, dim=dim, kind=kind)
    values = b.convert(values, x.dtype)
    hit = b.compare("eq", x, values)
    if is_float(x.dtype):
        hit = b.binary("or", hit, b.is_nan(x))
    at = b.op("core.scan", b.select(hit, b.iota(x.shape, dim), b.full(0, "i64", x.shape)), dim=dim, kind="max")
    return [values, at]


@translates("logcumsumexp")
def logcumsumexp(b: Build, x: T, dim: int) -> T:
    """log of the sum of all exp so far, each place by its own maximum."""
    if x.rank == 0:
        return x
    dim = normalize(dim, x.rank)
    if isinstance(x.shape[dim], Dim):
        raise Unsupported("a cumulative logsumexp along a dimension whose size varies")
    return b.convert(_log_scan(b, b.upcast(x), dim), x.dtype)


PIECE = 8
"""Elements whose prefixes are summed one by one: fewer are more passes, more are more exponentials."""


def _log_scan(b: Build, x: T, dim: int) -> T:
    """`logcumsumexp` in pieces: what comes before a piece is one more element of it."""
    n = x.shape[dim]
    if n <= 2 * PIECE:
        return _log_prefixes(b, x, dim)
    count = -(-n // PIECE)
    pieces = _padded(b, x, dim, 0, count * PIECE - n)
    pieces = b.reshape(pieces, [*x.shape[:dim], count, PIECE, *x.shape[dim + 1 :]])
    inside, of = dim + 1, dim
    if inside == pieces.rank - 1:
        # Pieces side by side: what is computed alike for all of them lies contiguous.
        pieces, inside, of = b.permute(pieces, [*range(dim), dim + 1, dim]), dim, dim + 1
    ends = _log_scan(b, _log_sum(b, pieces, b.reduce("max", pieces, [inside]), inside), dim)
    before = b.unsqueeze(b.narrow(_padded(b, ends, dim, 1, 0), dim, 0, count), inside)
    y = b.narrow(_log_prefixes(b, b.concat([before, pieces], inside), inside), inside, 1, PIECE)
    if of > inside:
        y = b.permute(y, [*range(dim), of, inside])
    return b.narrow(b.reshape(y, [*x.shape[:dim], count * PIECE, *x.shape[dim + 1 :]]), dim, 0, n)


def _padded(b: Build, x: T, dim: int, low: int, high: int) -> T:
    """With so many logarithms of 0 before and after."""
    at = lambda n: [n if d == dim else 0 for d in range(x.rank)]
    return b.pad(x, at(low), at(high), -math.inf)


def _log_prefixes(b: Build, x: T, dim: int) -> T:
    """`logcumsumexp` of a few elements: of each prefix the sum of all that it has."""
    n = x.shape[dim]
    shape = [*x.shape[: dim + 1], n, *x.shape[dim + 1 :]]
    others = b.broadcast_in(x, shape, [d + (d >= dim) for d in range(x.rank)])
    seen = b.compare("le", b.iota(shape, dim + 1), b.iota(shape, dim))
    others = b.select(seen, others, b.like(-math.inf, others))
    return _log_sum(b, others, b.op("core.scan", x, dim=dim, kind="max"), dim + 1)


def _log_sum(b: Build, x: T, top: T, dim: int) -> T:
    """log of the sum of exp along a dimension, by its greatest elements `top`."""
    infinite = b.compare("eq", b.unary("abs", top), b.like(math.inf, top))
    shift = b.select(infinite, b.like(0, top), top)
    kept = [d for d in range(x.rank) if d != dim]
    e = b.unary("exp", b.binary("sub", x, b.broadcast_in(shift, x.shape, kept)))
    return b.binary("add", b.unary("log", b.reduce("add", e, [dim])), shift)


@translates("histc")
def histc(b: Build, x: T, bins: int = 100, min=0, max=0) -> T:
    """Counts of values in equal bins; the last holds its upper end too."""
    line = b.reshape(x, [numel(x.shape)])
    if line.shape[0] == 0:
        return b.full(0, x.dtype, [bins])
    c = b.convert(line, "f64" if not is_float(x.dtype) else b.upcast(line).dtype)
    if min == max:
        if min != 0:
            raise Unsupported("a histogram of no width")
        low, high = b.reduce("min", c, [0]), b.reduce("max", c, [0])
        same = b.compare("eq", low, high)
        low, high = b.select(same, b.scalar("sub", low, 1), low), b.select(same, b.scalar("add", high, 1), high)
    else:
        low, high = b.full(min, c.dtype, ()), b.full(max, c.dtype, ())
    at = b.binary("div", b.scalar("mul", b.binary("sub", c, low), bins), b.binary("sub", high, low))
    inside = b.binary("and", b.compare("ge", c, low), b.compare("le", c, high))
    at = b.scalar("min", b.convert(at, "i64"), bins - 1)
    shape = [bins, line.shape[0]]
    hit = b.compare("eq", b.broadcast_in(at, shape, [1]), b.iota(shape, 0))
    hit = b.binary("and", hit, b.broadcast_in(inside, shape, [1]))
    return b.convert(b.reduce("add", b.convert(hit, "i64"), [1]), out_dtype(b))


