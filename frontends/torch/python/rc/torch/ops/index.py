"""Operations with tensors of indices."""

from __future__ import annotations

import torch
from torch.fx import Node

from rc.torch.build import Build, T, broadcast_shapes, normalize, numel, simplify
from rc.torch.dtypes import is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.shape import gather_along
from rc.torch.ops.table import operand, out_shape, translates, translates_of_library


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


@translates("take")
def take(b: Build, x: T, index: T) -> T:
    size = numel(x.shape)
    if numel(index.shape) == 0:
        return b.full(0, x.dtype, index.shape)
    return b.take(b.reshape(x, [size]), wrapped(b, index, size))


@translates("gather")
def gather(b: Build, x: T, dim: int, index: T, **_) -> T:
    if x.rank == 0 or index.rank == 0:
        line, at = b.reshape(x, [numel(x.shape)]), b.reshape(b.convert(index, "i64"), [numel(index.shape)])
        return b.reshape(b.take(line, at), out_shape(b))
    dim, index = normalize(dim, x.rank), b.convert(index, "i64")
    rows = Rows(b, dim, index)
    if not rows.whole or 0 in index.shape:
        return gather_along(b, x, dim, index)
    part = b.slice(x, [0] * x.rank, rows.part_of(x))
    y = b.op("core.gather", rows.first(b, part), rows.indices(b, index), axis=rows.order.index(dim), batch=len(rows.batch))
    return b.permute(y, [rows.order.index(d) for d in range(x.rank)])


def is_repeated(node: Node, dim: int, seen: set | None = None) -> bool:
    """Whether a tensor is the same all along a dimension: expanded or repeated, or computed of such tensors element by element."""
    val, seen = node.meta["val"], set() if seen is None else seen
    if (node, dim) in seen:
        return True
    seen.add((node, dim))
    if dim < 0 or type(val.shape[dim]) is int and val.shape[dim] == 1:
        return True
    step = val.stride(dim)
    if type(step) is int and step == 0:
        return True
    tags = getattr(node.target, "tags", ())
    copied = node.target in (torch.ops.aten.repeat.default, torch.ops.aten.clone.default)
    operands = [x for x in node.all_input_nodes if isinstance(x.meta["val"], torch.Tensor)]
    return (copied or torch.Tag.pointwise in tags) and all(is_repeated(x, dim - val.dim() + x.meta["val"].dim(), seen) for x in operands)


class Rows:
    """The dimensions of a gather's or scatter's operands, where indices are the same along some, as `expand` gives them: whole rows are meant there. The others
    come first, as a batch whose members have indices of their own."""

    def __init__(self, b: Build, dim: int, index: T):
        node = b.node.args[2] if len(b.node.args) > 2 else b.node.kwargs["index"]
        self.dim, self.shape = dim, index.shape
        self.whole = [d for d in range(index.rank) if d != dim and index.shape[d] != 1 and is_repeated(node, d)]
        self.batch = [d for d in range(index.rank) if d != dim and d not in self.whole]
        self.order = self.batch + sorted([dim, *self.whole])

    def part_of(self, x: T) -> list:
        """Where the indices are fewer, a corner of `x` is meant."""
        return [s if d == self.dim else self.shape[d] for d, s in enumerate(x.shape)]

    def first(self, b: Build, x: T) -> T:
        return b.permute(x, self.order)

    def indices(self, b: Build, index: T) -> T:
        """[batch, indices]"""
        one = b.slice(index, [0] * index.rank, [1 if d in self.whole else s for d, s in enumerate(index.shape)])
        return b.reshape(b.permute(one, self.order), [index.shape[d] for d in [*self.batch, self.dim]])


def line_places(b: Build, x: T, indices: list, used: list) -> tuple[T, int]:
    """The places that indices name in their dimensions as one, and how many these have."""
    common = broadcast_shapes(*(indices[d].shape for d in used))
    linear, stride = None, 1
    for d in reversed(used):
        at = b.expand(wrapped(b, indices[d], x.shape[d]), common)
        at = at if stride == 1 else b.binary("mul", at, b.size(stride, "i64", common))
        linear = at if linear is None else b.binary("add", linear, at)
        stride = simplify(stride * x.shape[d])
    return linear, stride


def places_apart(b: Build, x: T, indices: list, used: list) -> T:
    """Where dimensions that are not beside one another are indexed, the indices' dimensions come first: the place in `x` (as a line) of each element."""
    strides, stride = [0] * x.rank, 1
    for d in reversed(range(x.rank)):
        strides[d] = stride
        stride = simplify(stride * x.shape[d])
    common = broadcast_shapes(*(indices[d].shape for d in used))
    rest = [d for d in range(x.rank) if d not in used]
    shape = [*common, *(x.shape[d] for d in rest)]
    linear = b.full(0, "i64", shape)
    for d in used + rest:
        if d in used:
            place = b.expand(wrapped(b, indices[d], x.shape[d]), common)
            place = b.broadcast_in(place, shape, range(len(common)))
        else:
            place = b.iota(shape, len(common) + rest.index(d))
        linear = b.binary("add", linear, b.binary("mul", place, b.size(strides[d], "i64", shape)))
    return linear


@translates("index.Tensor", "_unsafe_index.Tensor")
def index(b: Build, x: T, indices: list) -> T:
    used = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].dtype in ("i1", "ui8") for d in used):
        raise Unsupported("indexing by a mask, whose number of elements depends on data")
    if not used:
        return x
    first, last = used[0], used[-1]
    if used != list(range(first, last + 1)):
        return b.take(b.reshape(x, [numel(x.shape)]), places_apart(b, x, indices, used))
    at, count = line_places(b, x, indices, used)
    return b.take(b.reshape(x, [*x.shape[:first], count, *x.shape[last + 1 :]]), at, first)


def scatter_line(b: Build, x: T, at: T, updates: T, kind: str, axis: int = 0, batch: int = 0) -> T:
    if x.dtype == "i1" and kind != "set":
        raise Unsupported("accumulating in bool")
    return b.op("core.scatter", x, at, updates, axis=axis, batch=batch, kind=kind)


@translates("index_put", "_unsafe_index_put")
def index_put(b: Build, x: T, indices: list, values: T, accumulate: bool = False) -> T:
    used = [i for i in indices if i is not None]
    if len(used) == 1 and used[0].dtype in ("i1", "ui8") and indices[0] is not None:
        return put_masked(b, x, b.truth(used[0]), b.convert(values, x.dtype), accumulate)
    if not used:
        raise Unsupported("index_put without indices")
    if any(i.dtype in ("i1", "ui8") for i in used):
        raise Unsupported("indexing by a mask, whose number of elements depends on data")
    return put(b, x, list(indices), b.convert(values, x.dtype), "add" if accumulate else "set")


@translates_of_library("flex_lib.zeros_and_scatter.default")
def zeros_and_scatter(b: Build, shape, indices: list, values: T) -> T:
    """The gradient of what a function of scores reads from a tensor."""
    return put(b, b.full(0, values.dtype, out_shape(b)), list(indices), values, "add")


def put_masked(b: Build, x: T, mask: T, values: T, accumulate: bool) -> T:
    """Where a mask of the first dimensions holds, values: the same at each place, or one after the other."""
    row = list(x.shape[mask.rank :])
    wide = b.broadcast_in(mask, x.shape, range(mask.rank))
    if values.rank <= len(row) or values.shape[0] == 1:
        taken = b.expand(b.reshape(values, values.shape[1:]) if values.rank > len(row) else values, x.shape)
    else:
        count = numel(mask.shape)
        if values.rank > len(row) + 1:
            raise Unsupported("values of this shape where a mask holds")
        if 0 in (count, values.shape[0]):
            return x
        line = b.convert(b.reshape(mask, [count]), "i64")
        nth = b.scalar("min", b.op("core.scan", line, dim=0, kind="add", exclusive=True), simplify(values.shape[0] - 1))
        rows = b.expand(values, [values.shape[0], *row])
        taken = b.reshape(b.take(rows, nth), x.shape)
    if not accumulate:
        return b.select(wide, taken, x)
    if x.dtype == "i1":
        raise Unsupported("accumulating in bool")
    c = b.upcast(x)
    return b.select(wide, b.convert(b.binary("add", c, b.convert(taken, c.dtype)), x.dtype), x)


def put(b: Build, x: T, indices: list, values: T, kind: str) -> T:
    """The indexed dimensions come first, as one; the others are rows that are updated whole. One dimension stays where it is."""
    indices += [None] * (x.rank - len(indices))
    used = [d for d, i in enumerate(indices) if i is not None]
    if len(used) == 1:
        (d,) = used
        common = list(indices[d].shape)
        updates = b.expand(values, [*x.shape[:d], *common, *x.shape[d + 1 :]])
        updates = b.reshape(updates, [*x.shape[:d], numel(common), *x.shape[d + 1 :]])
        return scatter_line(b, x, b.reshape(wrapped(b, indices[d], x.shape[d]), [numel(common)]), updates, kind, axis=d)
    rest = [d for d in range(x.rank) if indices[d] is None]
    linear, count = line_places(b, x, indices, used)
    common = list(linear.shape)
    places, row = numel(common), [x.shape[d] for d in rest]
    moved = b.permute(x, used + rest)
    lines = b.reshape(moved, [count, *row])
    # The updates' own order: the indices' dimensions are where the first of them is, or in front if they are apart.
    first = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    before = [d for d in rest if d < first]
    shape = [x.shape[d] for d in before] + common + [x.shape[d] for d in rest if d not in before]
    updates = b.expand(values, shape)
    n, m = len(before), len(common)
    updates = b.permute(updates, [*range(n, n + m), *range(n), *range(n + m, len(shape))])
    updates = b.reshape(updates, [places, *row])
    y = scatter_line(b, lines, b.reshape(linear, [places]), updates, kind)
    order = used + rest
    return b.permute(b.reshape(y, moved.shape), [order.index(d) for d in range(x.rank)])


def scatter_along(b: Build, x: T, dim: int, index: T, updates: T, kind: str) -> T:
    """`x` with updates [same shape as index] at `index` along a dimension."""
    index = b.convert(index, "i64")
    if x.rank == 0 or index.rank == 0:
        line = b.reshape(x, [numel(x.shape)])
        y = scatter_line(b, line, b.reshape(index, [numel(index.shape)]), b.reshape(updates, [numel(index.shape)]), kind)
        return b.reshape(y, x.shape)
    dim = normalize(dim, x.rank)
    if any(s == 0 for s in index.shape):
        return x
    # Of several batch dimensions one is made.
    rows = Rows(b, dim, index)
    part_shape = rows.part_of(x)
    part = b.slice(x, [0] * x.rank, part_shape)
    count = numel([index.shape[d] for d in rows.batch])
    batch = [] if count == 1 else [count]
    rest = rows.order[len(rows.batch) :]
    flat = lambda y: b.reshape(rows.first(b, y), [*batch, *(y.shape[d] for d in rest)])
    at = b.reshape(rows.indices(b, index), [*batch, index.shape[dim]])
    y = scatter_line(b, flat(part), at, flat(updates), kind, axis=len(batch) + rest.index(dim), batch=len(batch))
    y = b.permute(b.reshape(y, [part_shape[d] for d in rows.order]), [rows.order.index(d) for d in range(x.rank)])
    return y if tuple(part_shape) == x.shape else with_corner(b, x, y)


def with_corner(b: Build, x: T, corner: T) -> T:
    """`x` with its first elements along each dimension replaced."""
    inside = None
    for d in range(x.rank):
        if corner.shape[d] != x.shape[d]:
            here = b.compare("lt", b.iota(x.shape, d), b.size(corner.shape[d], "i64", x.shape))
            inside = here if inside is None else b.binary("and", inside, here)
    wide = b.pad(corner, [0] * x.rank, [simplify(s - c) for s, c in zip(x.shape, corner.shape)])
    return b.select(inside, wide, x)


@translates("scatter.src", "scatter.value", "scatter_add", "scatter.reduce", "scatter.value_reduce")
def scatter(b: Build, x: T, dim: int, index: T, source, *, reduce: str | None = None) -> T:
    kind = "add" if b.node.target._opname == "scatter_add" else {None: "set", "add": "add", "multiply": "mul"}[reduce]
    return scatter_along(b, x, dim, index, _updates(b, x, index, source), kind)


def _updates(b: Build, x: T, index: T, source) -> T:
    if not isinstance(source, T):
        return b.expand(operand(b, source, x.dtype), index.shape)
    source = b.convert(source, x.dtype)
    if index.rank and source.rank:
        source = b.slice(source, [0] * source.rank, list(index.shape))
    return b.reshape(source, index.shape)


@translates("index_add")
def index_add(b: Build, x: T, dim: int, index: T, source: T, *, alpha=1) -> T:
    """Unlike `index_put`, without indices from the end."""
    at = b.reshape(b.convert(index, "i64"), [numel(index.shape)])
    dim = normalize(dim, x.rank) if x.rank else 0
    line = b.reshape(x, x.shape or (1,))
    updates = source if alpha == 1 else b.convert(b.scalar("mul", b.upcast(source), alpha), x.dtype)
    updates = b.reshape(updates, [*line.shape[:dim], at.shape[0], *line.shape[dim + 1 :]])
    return b.reshape(scatter_line(b, line, at, updates, "add", axis=dim), x.shape)


@translates("put")
def put_flat(b: Build, x: T, index: T, source: T, accumulate: bool = False) -> T:
    count = numel(index.shape)
    at = b.reshape(wrapped(b, index, numel(x.shape)), [count])
    y = scatter_line(b, b.reshape(x, [numel(x.shape)]), at, b.reshape(source, [count]), "add" if accumulate else "set")
    return b.reshape(y, x.shape)


def reduce_into(b: Build, x: T, updates: T, reduce: str, include_self: bool, into, counted) -> T:
    """A scatter that sums, multiplies, averages or takes extremes; `into(x, updates, kind)` scatters, `counted()` has the number of each element's updates."""
    kind = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}[reduce]
    count = None
    if not include_self or reduce == "mean":
        count = counted()
    start = x
    if not include_self:
        least = {"add": 0, "mul": 1, "max": _least(x.dtype), "min": _greatest(x.dtype)}[kind]
        start = b.select(b.compare("gt", count, b.like(0, count)), b.like(least, x), x)
    y = into(start, updates, kind)
    if reduce != "mean":
        return y
    from rc.torch.ops.elementwise import floor_divide

    n = b.scalar("add", count, 1) if include_self else b.scalar("max", count, 1)
    n = b.convert(n, x.dtype)
    return b.binary("div", y, n) if is_float(x.dtype) else floor_divide(b, y, n)


@translates("scatter_reduce.two")
def scatter_reduce(b: Build, x: T, dim: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> T:
    updates = _updates(b, x, index, source)
    into = lambda to, what, kind: scatter_along(b, to, dim, index, what, kind)
    return reduce_into(b, x, updates, reduce, include_self, into, lambda: updates_of(b, x, dim, index))


def updates_of(b: Build, x: T, dim: int, index: T) -> T:
    """How many updates each element has, counted once for whole rows."""
    whole = [d for d in Rows(b, normalize(dim, x.rank), index).whole if index.shape[d] == x.shape[d]] if x.rank else []
    first = lambda shape: [1 if d in whole else s for d, s in enumerate(shape)]
    one = b.slice(index, [0] * index.rank, first(index.shape))
    count = scatter_along(b, b.full(0, "i64", first(x.shape)), dim, one, b.full(1, "i64", one.shape), "add")
    return b.expand(count, x.shape)


@translates("index_reduce")
def index_reduce(b: Build, x: T, dim: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> T:
    if x.rank == 0:
        y = index_reduce(b, b.reshape(x, [1]), 0, index, b.reshape(source, [1]), reduce, include_self=include_self)
        return b.reshape(y, ())
    dim = normalize(dim, x.rank)
    index = b.reshape(b.convert(index, "i64"), [numel(index.shape)])
    into = lambda to, what, kind: scatter_line(b, to, index, what, kind, axis=dim)
    line = lambda: scatter_line(b, b.full(0, "i64", [x.shape[dim]]), index, b.full(1, "i64", index.shape), "add")
    return reduce_into(b, x, b.convert(source, x.dtype), reduce, include_self, into, lambda: b.broadcast_in(line(), x.shape, [dim]))


def _least(dtype: str):
    if is_float(dtype):
        return float("-inf")
    return 0 if dtype == "ui8" else -(2 ** (int(dtype[1:]) - 1))


def _greatest(dtype: str):
    if is_float(dtype):
        return float("inf")
    return 255 if dtype == "ui8" else 2 ** (int(dtype[1:]) - 1) - 1


FEW_WORDS = 4
"""Words up to which their gradients are sums over all rows, of which those of other words are left out: in order, rows of one word would
wait for each other."""


def _sums_of_words(b: Build, ids: T, rows: T, count: int) -> T:
    """For each word the sum of the rows [places, width] whose id it is."""
    shape = (count, *rows.shape)
    words = b.broadcast_in(b.iota((count,), 0), shape, [0])
    own = b.compare("eq", b.broadcast_in(ids, shape, [1]), words)
    rows = b.broadcast_in(rows, shape, [1, 2])
    return b.reduce("add", b.select(own, rows, b.like(0, rows)), [1])


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
    if isinstance(count, int) and count <= FEW_WORDS:
        return b.convert(_sums_of_words(b, ids, rows, count), grad.dtype)
    y = scatter_line(b, b.full(0, rows.dtype, [count, width]), ids, rows, "add")
    return b.convert(y, grad.dtype)


@translates("masked_scatter")
def masked_scatter(b: Build, x: T, mask: T, source: T) -> T:
    """Where the mask holds, the next elements of the source, in order."""
    mask, x = b.broadcast(b.truth(mask), x)
    count = numel(x.shape)
    if count == 0 or numel(source.shape) == 0:
        return x
    line = b.reshape(mask, [count])
    nth = b.op("core.scan", b.convert(line, "i64"), dim=0, kind="add", exclusive=True)
    nth = b.select(line, nth, b.like(0, nth))
    taken = b.take(b.reshape(b.convert(source, x.dtype), [numel(source.shape)]), nth)
    return b.reshape(b.select(line, taken, b.reshape(x, [count])), x.shape)


@translates("masked_scatter_backward")
def masked_scatter_backward(b: Build, grad: T, mask: T, sizes) -> T:
    """The gradient of the source: its n-th element went where the mask holds for the n-th time."""
    count, size = numel(grad.shape), numel(out_shape(b))
    if count == 0 or size == 0:
        return b.full(0, grad.dtype, out_shape(b))
    line = b.reshape(b.expand(b.truth(mask), grad.shape), [count])
    nth = b.op("core.scan", b.convert(line, "i64"), dim=0, kind="add", exclusive=True)
    nth = b.scalar("min", nth, simplify(size - 1))
    flat = b.reshape(grad, [count])
    taken = b.select(line, flat, b.like(0, flat))
    return b.reshape(scatter_line(b, b.full(0, grad.dtype, [size]), nth, taken, "add"), out_shape(b))


@translates("nonzero_static")
def nonzero_static(b: Build, x: T, *, size: int, fill_value: int = -1) -> T:
    """The places of what is not zero, cut or filled up to a size."""
    count, rank = numel(x.shape), x.rank
    if rank == 0 or 0 in (count, size):
        return b.full(fill_value, "i64", [size, rank])
    line = b.truth(b.reshape(x, [count]))
    sums = b.op("core.scan", b.convert(line, "i64"), dim=0, kind="add")
    # Each goes to the place of its number; the others, and those beyond the size, to one more that is cut off.
    nth = b.scalar("sub", sums, 1)
    kept = b.binary("and", line, b.compare("lt", nth, b.like(size, nth)))
    nth = b.select(kept, nth, b.like(size, nth))
    at = scatter_line(b, b.full(-1, "i64", [size + 1]), nth, b.iota([count], 0), "set")
    at = b.narrow(at, 0, 0, size)
    found = b.compare("ge", at, b.like(0, at))
    columns, rest = [], b.scalar("max", at, 0)
    for s in reversed(x.shape):
        s = b.size(s, "i64", [size])
        quotient = b.binary("div", rest, s)
        columns.insert(0, b.reshape(b.binary("sub", rest, b.binary("mul", quotient, s)), [size, 1]))
        rest = quotient
    y = b.concat(columns, 1)
    return b.select(b.broadcast_in(found, y.shape, [0]), y, b.like(fill_value, y))
