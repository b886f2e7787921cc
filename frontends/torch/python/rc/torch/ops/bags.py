"""Bags of embeddings: sums, means and maxima of rows of a table."""

from __future__ import annotations

from rc.torch.build import Build, T
from rc.torch.errors import Unsupported
from rc.torch.ops.index import scatter_line, wrapped
from rc.torch.ops.product import unused
from rc.torch.ops.table import out_dtype, out_shape, translates

SUM, MEAN, MAX = range(3)


def _bag_of(b: Build, ids: T, offsets: T, bags) -> T:
    """The bag of each index: the last that begins at it or before."""
    space = [ids.shape[0], bags]
    starts = b.narrow(b.convert(offsets, "i64"), 0, 0, bags)
    begun = b.compare("le", b.broadcast_in(starts, space, [1]), b.iota(space, 0))
    return b.scalar("sub", b.reduce("add", b.convert(begun, "i64"), [1]), 1)


def _sizes(b: Build, bag: T, keep: T, bags) -> T:
    """The number of indices in each bag that count."""
    return scatter_line(b, b.full(0, "i64", [bags]), bag, b.convert(keep, "i64"), "add")


def _kept(b: Build, rows: T, keep: T, otherwise) -> T:
    return b.select(b.broadcast_in(keep, rows.shape, [0]), rows, b.like(otherwise, rows))


def _weighed(b: Build, rows: T, weights: T | None) -> T:
    return rows if weights is None else b.binary("mul", rows, b.broadcast_in(b.convert(weights, rows.dtype), rows.shape, [0]))


@translates("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    b: Build, table: T, ids: T, offsets: T, by_frequency=False, mode=0, sparse=False, weights=None, include_last_offset=False, padding=-1
) -> list:
    """Sums, means or maxima of bags of rows; a bag begins at each offset."""
    out = [out_shape(b, i) for i in range(4)]
    bags, width, count = out[0][0], table.shape[1], ids.shape[0]
    if bags == 0 or count == 0:
        raise Unsupported("no bags, or no indices in them")
    if mode == MAX and not unused(b, 3):
        raise Unsupported("gradients of the maxima of bags")
    ids = b.convert(ids, "i64")
    bag = _bag_of(b, ids, offsets, bags)
    rows = _weighed(b, b.upcast(b.take(table, wrapped(b, ids, table.shape[0]))), weights)
    keep = b.compare("ne", ids, b.like(padding, ids))
    nothing = float("-inf") if mode == MAX else 0
    y = scatter_line(b, b.full(nothing, rows.dtype, [bags, width]), bag, _kept(b, rows, keep, nothing), "max" if mode == MAX else "add")
    size = _sizes(b, bag, keep, bags)
    column = b.broadcast_in(size, y.shape, [0])
    if mode == MEAN:
        y = b.binary("div", y, b.convert(b.scalar("max", column, 1), y.dtype))
    elif mode == MAX:
        y = b.select(b.compare("eq", column, b.like(0, column)), b.like(0, y), y)
    # The rest is for gradients, which compute it from the offsets.
    return [b.convert(y, table.dtype), *(b.full(0, out_dtype(b, i), out[i]) for i in (1, 2, 3))]


@translates("_embedding_bag_backward")
def embedding_bag_backward(
    b: Build, grad: T, ids: T, offsets: T, bags_of, sizes, maxima, count: int, by_frequency: bool, mode: int, sparse: bool, weights, padding=-1
) -> T:
    if by_frequency or sparse or mode == MAX:
        raise Unsupported("gradients of bags that are scaled by frequency, sparse, or of maxima")
    bags, width = grad.shape
    if bags == 0 or ids.shape[0] == 0:
        return b.full(0, grad.dtype, [count, width])
    ids = b.convert(ids, "i64")
    bag, keep, g = _bag_of(b, ids, offsets, bags), b.compare("ne", ids, b.like(padding, ids)), b.upcast(grad)
    if mode == MEAN:
        size = b.scalar("max", _sizes(b, bag, keep, bags), 1)
        g = b.binary("div", g, b.broadcast_in(b.convert(size, g.dtype), g.shape, [0]))
    rows = _kept(b, _weighed(b, b.take(g, bag), weights), keep, 0)
    y = scatter_line(b, b.full(0, rows.dtype, [count, width]), wrapped(b, ids, count), rows, "add")
    return b.convert(y, grad.dtype)


@translates("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(b: Build, grad: T, table: T, ids: T, offsets: T, bags_of, mode: int, padding=-1) -> T:
    bags = grad.shape[0]
    if bags == 0 or ids.shape[0] == 0:
        return b.full(0, grad.dtype, ids.shape)
    ids = b.convert(ids, "i64")
    rows, bag = b.take(table, wrapped(b, ids, table.shape[0])), _bag_of(b, ids, offsets, bags)
    products = b.reduce("add", b.binary("mul", b.upcast(rows), b.take(b.upcast(grad), bag)), [1])
    keep = b.compare("ne", ids, b.like(padding, ids))
    return b.convert(b.select(keep, products, b.like(0, products)), grad.dtype)
