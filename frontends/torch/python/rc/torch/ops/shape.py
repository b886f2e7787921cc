"""Operations that move elements: views and their like, joining, cutting, padding."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from rc._native import Dim
from rc.torch import layout
from rc.torch.build import Build, T, normalize, numel, simplify
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out, out_shape, translates


@translates("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy")
def view(b: Build, x: T, *_) -> T:
    return b.reshape(x, out_shape(b))


@translates("unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze_copy", "squeeze_copy")
def change_rank(b: Build, x: T, *_) -> T:
    return b.reshape(x, out_shape(b))


@translates("view.dtype", "view_copy.dtype")
def view_dtype(b: Build, x: T, dtype) -> T:
    from rc.torch.ops.table import out_dtype

    result = out_dtype(b)
    if out_shape(b) != list(x.shape) or "i1" in (result, x.dtype):
        raise Unsupported("views as elements of another size")
    return x if result == x.dtype else b.op("core.bitcast", x, result=(result, x.shape))


@translates("permute", "permute_copy")
def permute(b: Build, x: T, dims) -> T:
    return b.permute(x, [normalize(d, x.rank) for d in dims])


@translates("transpose.int", "transpose_copy.int")
def transpose(b: Build, x: T, a: int, c: int) -> T:
    order = list(range(x.rank))
    if x.rank:
        a, c = normalize(a, x.rank), normalize(c, x.rank)
        order[a], order[c] = order[c], order[a]
    return b.permute(x, order)


@translates("t", "numpy_T")
def t(b: Build, x: T) -> T:
    return b.permute(x, list(reversed(range(x.rank))))


@translates("expand", "expand_copy")
def expand(b: Build, x: T, *_, **__) -> T:
    return b.expand(x, out_shape(b))


@translates("slice.Tensor", "slice_copy.Tensor")
def slice_(b: Build, x: T, dim: int = 0, start=None, end=None, step: int = 1) -> T:
    dim = normalize(dim, x.rank)
    size = out_shape(b)[dim]
    start = clamped(start, x.shape[dim], 0)
    return b.narrow(x, dim, start, size, step)


def clamped(start, size, default):
    """A start as Python means it: from the end where it is negative, at most the size."""
    if start is None:
        return default
    if not isinstance(start, Dim) and not isinstance(size, Dim):
        return min(max(start + size if start < 0 else start, 0), size)
    if isinstance(start, int) and start < 0:
        return simplify(Dim.of(0).maximum(size + start))
    if isinstance(start, int) and start == 0:
        return 0
    dim = start if isinstance(start, Dim) else Dim.of(start)
    return simplify(dim.minimum(size))


@translates("select.int", "select_copy.int")
def select(b: Build, x: T, dim: int, index) -> T:
    dim = normalize(dim, x.rank)
    if isinstance(index, int) and index < 0:
        index = simplify(x.shape[dim] + index)
    return b.reshape(b.narrow(x, dim, index, 1), x.shape[:dim] + x.shape[dim + 1 :])


@translates("cat")
def cat(b: Build, xs: list[T], dim: int = 0) -> T:
    from rc.torch.ops.table import out_dtype

    # An empty tensor of rank 1 is left out, whatever the rank of the others.
    rank = out(b).dim()
    parts = [b.convert(x, out_dtype(b)) for x in xs if x.rank == rank and x.shape[normalize(dim, rank)] != 0]
    if not parts:
        return b.full(0, out_dtype(b), out_shape(b))
    return b.concat(parts, normalize(dim, rank))


@translates("split_with_sizes", "split.Tensor", "unsafe_split.Tensor", "split_with_sizes_copy")
def split(b: Build, x: T, _sizes, dim: int = 0) -> list[T]:
    dim = normalize(dim, x.rank)
    parts, start = [], 0
    for i in range(len(out(b))):
        size = out_shape(b, i)[dim]
        parts.append(b.narrow(x, dim, start, size))
        start = simplify(start + size)
    return parts


@translates("unbind.int", "unbind_copy.int")
def unbind(b: Build, x: T, dim: int = 0) -> list[T]:
    return [select(b, x, dim, i) for i in range(x.shape[normalize(dim, x.rank)])]


@translates("flip")
def flip(b: Build, x: T, dims) -> T:
    dims = sorted({normalize(d, x.rank) for d in dims}) if x.rank else []
    return b.op("core.reverse", x, dims=dims) if dims else x


@translates("narrow_copy")
def narrow_copy(b: Build, x: T, dim: int, start, length) -> T:
    dim = normalize(dim, x.rank)
    if isinstance(start, int) and start < 0:
        start = simplify(x.shape[dim] + start)
    return b.narrow(x, dim, start, length)


@translates("repeat")
def repeat(b: Build, x: T, repeats) -> T:
    result = out_shape(b)
    x = b.reshape(x, (1,) * (len(repeats) - x.rank) + x.shape)
    wide, dims = [], []
    for n, s in zip(repeats, x.shape):
        wide += [n, s]
        dims.append(len(wide) - 1)
    return b.reshape(b.broadcast_in(x, wide, dims), result)


@translates("constant_pad_nd")
def constant_pad_nd(b: Build, x: T, pad, value=0) -> T:
    low, high, starts, sizes = [0] * x.rank, [0] * x.rank, [0] * x.rank, list(x.shape)
    for i in range(len(pad) // 2):
        d = x.rank - 1 - i
        (low[d], starts[d]), (high[d], cut) = (added_and_cut(b, 2 * i + j, pad[2 * i + j]) for j in (0, 1))
        sizes[d] = simplify(sizes[d] - starts[d] - cut)
    return b.pad(b.slice(x, starts, sizes), low, high, value)


def added_and_cut(b: Build, i: int, amount) -> tuple:
    """Elements that padding number `i` adds, and those that it cuts off, if it is negative. Of symbolic ones, what PyTorch knows."""
    if not isinstance(amount, Dim):
        return max(amount, 0), max(-amount, 0)
    of = b.node.args[1][i]
    size = of.meta["val"] if isinstance(of, torch.fx.Node) else of
    if statically_known_true(size >= 0):
        return amount, 0
    if statically_known_true(size <= 0):
        return 0, simplify(0 - amount)
    raise Unsupported(f"padding by {size}, which may be negative or not: give its sizes a range by torch._dynamo.mark_dynamic(x, dim, min=…, max=…)")


@translates("slice_scatter")
def slice_scatter(b: Build, x: T, source: T, dim: int = 0, start=None, end=None, step: int = 1) -> T:
    dim = normalize(dim, x.rank)
    start = clamped(start, x.shape[dim], 0)
    count = source.shape[dim]
    if count == 0:
        return x
    if step == 1:
        # A choice between the two, not a concatenation with parts of x: that would compute x once for each part.
        at = b.iota(x.shape, dim)
        inside = b.compare("ge", at, b.size(start, "i64", x.shape))
        inside = b.binary("and", inside, b.compare("lt", at, b.size(simplify(start + count), "i64", x.shape)))
        low, high = [0] * x.rank, [0] * x.rank
        low[dim], high[dim] = start, simplify(x.shape[dim] - start - count)
        return b.select(inside, b.pad(b.convert(source, x.dtype), low, high), x)
    # Each place asks which element of the source it takes, if any.
    at = b.scalar("sub", b.iota(x.shape, dim), start)
    quotient = b.scalar("div", at, step)
    inside = b.binary("and", b.compare("ge", at, b.like(0, at)), b.compare("eq", b.scalar("mul", quotient, step), at))
    inside = b.binary("and", inside, b.compare("lt", quotient, b.size(count, "i64", x.shape)))
    line = b.select(inside, quotient, b.like(0, quotient))
    chosen = gather_along(b, b.convert(source, x.dtype), dim, line)
    return b.select(inside, chosen, x)


def gather_along(b: Build, x: T, dim: int, index: T) -> T:
    """Element i of the result is that of `x` at the same place, but at `index[i]` along `dim`; sizes of `index` are at most those of `x` elsewhere."""
    if dim == x.rank - 1 and tuple(index.shape[:dim]) == tuple(x.shape[:dim]):
        return b.op("core.gather", x, index, axis=dim, batch=dim)
    flat, linear = linearize(b, x, {dim: index}, index.shape)
    return b.take(flat, linear)


def linearize(b: Build, x: T, indices: dict, shape) -> tuple[T, T]:
    """`x` as a line, and places on it: along a dimension with indices these, else the place in `shape` (of the same rank)."""
    stride, linear = 1, None
    for d in reversed(range(x.rank)):
        place = indices[d] if d in indices else b.iota(shape, d)
        term = place if stride == 1 else b.binary("mul", place, b.size(stride, "i64", shape))
        linear = term if linear is None else b.binary("add", linear, term)
        stride = simplify(stride * x.shape[d])
    if linear is None:
        linear = b.full(0, "i64", shape)
    return b.reshape(x, [numel(x.shape)]), linear


@translates("select_scatter")
def select_scatter(b: Build, x: T, source: T, dim: int, index) -> T:
    dim = normalize(dim, x.rank)
    if isinstance(index, int) and index < 0:
        index = simplify(x.shape[dim] + index)
    here = b.compare("eq", b.iota(x.shape, dim), b.size(index, "i64", x.shape))
    kept = [d for d in range(x.rank) if d != dim]
    return b.select(here, b.broadcast_in(b.convert(source, x.dtype), x.shape, kept), x)


@translates("diagonal", "diagonal_copy")
def diagonal(b: Build, x: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    dim1, dim2 = normalize(dim1, x.rank), normalize(dim2, x.rank)
    size = out_shape(b)[-1]
    rest = [d for d in range(x.rank) if d not in (dim1, dim2)]
    moved = b.permute(x, rest + [dim1, dim2])
    lead = [moved.shape[d] for d in range(len(rest))]
    rows, columns = moved.shape[-2:]
    flat = b.reshape(moved, lead + [simplify(rows * columns)])
    if size == 0:
        return b.full(0, x.dtype, out_shape(b))
    i = b.iota([size], 0)
    row = b.scalar("add", i, max(-offset, 0))
    column = b.scalar("add", i, max(offset, 0))
    return b.take(flat, b.binary("add", b.binary("mul", row, b.size(columns, "i64", [size])), column), len(lead))


@translates("diagonal_scatter")
def diagonal_scatter(b: Build, x: T, source: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    dim1, dim2 = normalize(dim1, x.rank), normalize(dim2, x.rank)
    row, column = b.iota(x.shape, dim1), b.iota(x.shape, dim2)
    here = b.compare("eq", b.scalar("add", row, offset), column)
    size = source.shape[-1]
    # The place on the diagonal, and 0 off it, where it is not used.
    at = b.binary("min", row, column)
    at = b.select(b.compare("lt", at, b.size(size, "i64", x.shape)), at, b.like(0, at))
    rest = [d for d in range(x.rank) if d not in (dim1, dim2)]
    flat = b.reshape(source, [numel(source.shape)])
    stride, linear = size, at
    for d in reversed(rest):
        linear = b.binary("add", linear, b.binary("mul", b.iota(x.shape, d), b.size(stride, "i64", x.shape)))
        stride = simplify(stride * x.shape[d])
    return b.select(here, b.take(flat, linear), x) if size != 0 else x


def _in_memory(b: Build) -> list[int]:
    """The dimensions of the first argument in the order in which they lie in memory, which must be all of it."""
    val = b.node.args[0].meta["val"]
    order = layout.row_major(val.dim()) if val.is_contiguous() else layout.dense_order(val, b.symbols)
    if order is None or val.storage_offset() != 0:
        raise Unsupported("as_strided of a part of a tensor's memory")
    return order


def _strided_places(b: Build, shape: list, stride, offset) -> T:
    """Where in memory each element lies."""
    last = simplify((offset or 0) + sum((size - 1) * step for size, step in zip(shape, stride)))
    count = numel(b.node.args[0].meta["val"].shape)
    if isinstance(last, int) and isinstance(count, int) and last >= count:
        raise Unsupported("as_strided beyond a tensor's elements")
    at = b.size(offset or 0, "i64", shape)
    for d, step in enumerate(stride):
        at = b.binary("add", at, b.binary("mul", b.iota(shape, d), b.size(step, "i64", shape)))
    return at


@translates("as_strided", "as_strided_copy")
def as_strided(b: Build, x: T, size, stride, storage_offset=None) -> T:
    order, shape = _in_memory(b), out_shape(b)
    if any(s == 0 for s in shape):
        return b.full(0, x.dtype, shape)
    line = b.reshape(b.permute(x, order), [numel(x.shape)])
    return b.take(line, _strided_places(b, shape, stride, storage_offset))


@translates("as_strided_scatter")
def as_strided_scatter(b: Build, x: T, source: T, size, stride, storage_offset=None) -> T:
    order, shape = _in_memory(b), list(source.shape)
    if any(s == 0 for s in shape):
        return x
    at, count = _strided_places(b, shape, stride, storage_offset), [numel(shape)]
    moved = b.permute(x, order)
    line = b.reshape(moved, [numel(x.shape)])
    y = b.op("core.scatter", line, b.reshape(at, count), b.reshape(b.convert(source, x.dtype), count), axis=0, kind="set")
    return b.permute(b.reshape(y, moved.shape), [order.index(d) for d in range(x.rank)])


@translates("unfold", "unfold_copy")
def unfold(b: Build, x: T, dim: int, size: int, step: int) -> T:
    if x.rank == 0:
        return b.reshape(x, [1]) if size == 1 else b.full(0, x.dtype, [0])
    return b.op("core.window", x, dims=[normalize(dim, x.rank)], sizes=[size], strides=[step], dilations=[1])


@translates("roll")
def roll(b: Build, x: T, shifts, dims=()) -> T:
    shape = x.shape
    if not dims:
        x, dims = b.reshape(x, [numel(x.shape)]), [0]
    for shift, d in zip(shifts, dims):
        d = normalize(d, x.rank)
        size = x.shape[d]
        if isinstance(size, Dim):
            raise Unsupported("a roll along a symbolic size")
        start = (-shift) % size if size else 0
        if start:
            x = b.concat([b.narrow(x, d, start, size - start), b.narrow(x, d, 0, start)], d)
    return b.reshape(x, shape)


def _replication_pad_backward(rank: int):
    def translate(b: Build, grad: T, x: T, padding) -> T:
        if any(isinstance(p, Dim) or p < 0 for p in padding) or any(isinstance(s, Dim) for s in x.shape):
            raise Unsupported("gradients of padding that cuts off, or of symbolic sizes")
        y = b.upcast(grad)
        for i in range(rank):
            d, low, high = x.rank - 1 - i, padding[2 * i], padding[2 * i + 1]
            y = _folded(b, y, d, x.shape[d], low, high)
        return b.convert(y, x.dtype)

    return translate


def _folded(b: Build, y: T, d: int, n: int, low: int, high: int) -> T:
    """What was put before and after a dimension's `n` elements, added to its first and last."""
    total = lambda start, count: b.reduce("add", b.narrow(y, d, start, count), [d], keepdim=True)
    if n == 1:
        return total(0, low + 1 + high)
    parts = [total(0, low + 1), b.narrow(y, d, low + 1, n - 2), total(low + n - 1, high + 1)]
    return b.concat(parts if n > 2 else [parts[0], parts[2]], d)


for rank in (1, 2, 3):
    translates(f"replication_pad{rank}d_backward")(_replication_pad_backward(rank))
