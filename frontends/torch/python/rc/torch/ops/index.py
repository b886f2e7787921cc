"""Operations with tensors of indices."""

from __future__ import annotations

from rc.torch.build import Build, T, broadcast_shapes, normalize, numel, simplify
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.shape import gather_along, linearize
from rc.torch.ops.table import operand, out_shape, translates


def wrapped(b: Build, index: T, size) -> T:
    """Indices from the end, where they are negative."""
    index = b.convert(index, "i64")
    return b.select(b.compare("lt", index, b.like(0, index)), b.binary("add", index, b.size(size, "i64", index.shape)), index)


@translates("embedding")
def embedding(b: Build, table: T, ids: T, *_, **__) -> T:
    return b.op("tensor.embedding", table, b.convert(ids, "i64"))


@translates("index_select")
def index_select(b: Build, x: T, dim: int, index: T) -> T:
    index = b.convert(index, "i64")
    if x.rank == 0:
        return b.reshape(x, out_shape(b))
    if index.rank == 0:
        index = b.reshape(index, [1])
    return b.take(x, index, normalize(dim, x.rank))


@translates("gather")
def gather(b: Build, x: T, dim: int, index: T, **_) -> T:
    if x.rank == 0 or index.rank == 0:
        line, at = b.reshape(x, [numel(x.shape)]), b.reshape(b.convert(index, "i64"), [numel(index.shape)])
        return b.reshape(b.take(line, at), out_shape(b))
    return gather_along(b, x, normalize(dim, x.rank), b.convert(index, "i64"))


def index_places(b: Build, x: T, indices: list) -> tuple[list, T]:
    """For advanced indexing: the result's shape, and the place in `x` (as a line) of each of its elements."""
    if any(i is not None and i.dtype in ("i1", "ui8") for i in indices):
        raise Unsupported("indexing by a mask, whose number of elements depends on data")
    indices = list(indices) + [None] * (x.rank - len(indices))
    used = [d for d, i in enumerate(indices) if i is not None]
    common = broadcast_shapes(*(indices[d].shape for d in used))
    together = used == list(range(used[0], used[-1] + 1))
    at = used[0] if together else 0
    rest = [d for d in range(x.rank) if indices[d] is None]
    before = [d for d in rest if d < at] if together else []
    after = [d for d in rest if d not in before]
    shape = [x.shape[d] for d in before] + list(common) + [x.shape[d] for d in after]
    strides, stride = [0] * x.rank, 1
    for d in reversed(range(x.rank)):
        strides[d] = stride
        stride = simplify(stride * x.shape[d])
    linear = b.full(0, "i64", shape)
    for i, d in enumerate(before + used + after):
        if indices[d] is not None:
            place = b.expand(wrapped(b, indices[d], x.shape[d]), common)
            place = b.broadcast_in(place, shape, range(len(before), len(before) + len(common)))
        else:
            place = b.iota(shape, before.index(d) if d in before else len(before) + len(common) + after.index(d))
        linear = b.binary("add", linear, b.binary("mul", place, b.size(strides[d], "i64", shape)))
    return shape, linear


@translates("index.Tensor", "_unsafe_index.Tensor")
def index(b: Build, x: T, indices: list) -> T:
    used = [d for d, i in enumerate(indices) if i is not None]
    if not used:
        return x
    if len(used) == 1 and indices[used[0]].dtype not in ("i1", "ui8"):
        return b.take(x, wrapped(b, indices[used[0]], x.shape[used[0]]), used[0])
    _, linear = index_places(b, x, indices)
    return b.take(b.reshape(x, [numel(x.shape)]), linear)


def scattered(b: Build, x: T, linear: T, updates: T, kind: str) -> T:
    """`x` with updates at places on it as a line."""
    line = b.reshape(x, [numel(x.shape)])
    count = numel(linear.shape)
    if x.dtype == "i1" and kind != "set":
        raise Unsupported("accumulating in bool")
    y = b.op("core.scatter", line, b.reshape(linear, [count]), b.reshape(updates, [count]), axis=0, kind=kind)
    return b.reshape(y, x.shape)


@translates("index_put", "_unsafe_index_put")
def index_put(b: Build, x: T, indices: list, values: T, accumulate: bool = False) -> T:
    used = [i for i in indices if i is not None]
    if len(used) == 1 and used[0].dtype in ("i1", "ui8") and values.rank == 0 and indices[0] is not None and not accumulate:
        mask = used[0]
        mask = b.truth(mask)
        mask = b.broadcast_in(mask, x.shape, range(mask.rank))
        return b.select(mask, b.convert(values, x.dtype), x)
    shape, linear = index_places(b, x, indices)
    updates = b.expand(b.convert(values, x.dtype), shape)
    return scattered(b, x, linear, updates, "add" if accumulate else "set")


def _along(b: Build, x: T, dim: int, index: T) -> T:
    """Places on `x` as a line for `scatter` along a dimension."""
    index = b.convert(index, "i64")
    if x.rank == 0 or index.rank == 0:
        return b.reshape(index, [numel(index.shape)])
    return linearize(b, x, {normalize(dim, x.rank): index}, index.shape)[1]


@translates("scatter.src", "scatter.value", "scatter_add", "scatter.reduce", "scatter.value_reduce")
def scatter(b: Build, x: T, dim: int, index: T, source, *, reduce: str | None = None) -> T:
    kind = "add" if b.node.target._opname == "scatter_add" else {None: "set", "add": "add", "multiply": "mul"}[reduce]
    linear = _along(b, x, dim, index)
    return scattered(b, x, linear, _updates(b, x, index, source, linear), kind)


def _updates(b: Build, x: T, index: T, source, linear: T) -> T:
    if not isinstance(source, T):
        return b.expand(operand(b, source, x.dtype), linear.shape)
    source = b.convert(source, x.dtype)
    if index.rank and source.rank:
        source = b.slice(source, [0] * source.rank, list(index.shape))
    return b.reshape(source, linear.shape)


@translates("scatter_reduce.two")
def scatter_reduce(b: Build, x: T, dim: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> T:
    linear = _along(b, x, dim, index)
    updates = _updates(b, x, index, source, linear)
    kind = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}[reduce]
    count = None
    if not include_self or reduce == "mean":
        ones = b.full(1, "i64", updates.shape)
        count = scattered(b, b.full(0, "i64", x.shape), linear, ones, "add")
    if not include_self:
        least = {"add": 0, "mul": 1, "max": _least(x.dtype), "min": _greatest(x.dtype)}[kind]
        hit = b.compare("gt", count, b.like(0, count))
        start = b.select(hit, b.like(least, x), x)
    else:
        start = x
    y = scattered(b, start, linear, updates, kind)
    if reduce == "mean":
        n = b.scalar("add", count, 1) if include_self else b.scalar("max", count, 1)
        n = b.convert(n, x.dtype)
        from rc.torch.ops.elementwise import floor_divide

        y = b.binary("div", y, n) if is_float(x.dtype) else floor_divide(b, y, n)
    return y


def _least(dtype: str):
    if is_float(dtype):
        return float("-inf")
    return 0 if dtype == "ui8" else -(2 ** (int(dtype[1:]) - 1))


def _greatest(dtype: str):
    if is_float(dtype):
        return float("inf")
    return 255 if dtype == "ui8" else 2 ** (int(dtype[1:]) - 1) - 1


@translates("embedding_dense_backward")
def embedding_dense_backward(b: Build, grad: T, ids: T, count: int, padding: int, by_frequency: bool) -> T:
    if by_frequency:
        raise Unsupported("gradients scaled by frequency")
    width = grad.shape[-1]
    places = numel(ids.shape)
    ids = b.reshape(b.convert(ids, "i64"), [places])
    rows = b.upcast(b.reshape(grad, [places, width]))
    if padding >= 0:
        keep = b.compare("ne", ids, b.like(padding, ids))
        rows = b.select(b.broadcast_in(keep, rows.shape, [0]), rows, b.like(0, rows))
    y = b.op("core.scatter", b.full(0, rows.dtype, [count, width]), ids, rows, axis=0, kind="add")
    return b.convert(y, grad.dtype)
