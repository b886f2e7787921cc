"""Where tensors lie in memory: the order of their dimensions, and views of one another."""

import torch

from rc.torch.build import simplify
from rc.torch.symbols import Symbols


def hint(size) -> int:
    """A size's value at the time of tracing; it decides nothing but an order."""
    if isinstance(size, torch.SymInt):
        value = size.node.hint
        return int(value) if value is not None else 2
    return int(size)


def dense_order(val, symbols: Symbols) -> list[int] | None:
    """The dimensions from slowest to fastest, where the elements lie one after another; None where they do not."""
    rank = val.dim()
    strides = val.stride()
    order = sorted(range(rank), key=lambda d: (-hint(strides[d]), d))
    # Dimensions of size 1 have any stride: they go where they are in a row-major tensor.
    if any(hint(s) == 1 for s in val.shape):
        moving = [d for d in order if hint(val.shape[d]) != 1]
        order = _with_units(moving, rank)
    expected = 1
    for d in reversed(order):
        size = symbols.dim(val.shape[d])
        if size != 1 and symbols.dim(strides[d]) != expected:
            return None
        expected = simplify(expected * size)
    return order


def hinted_order(val) -> list[int] | None:
    """As `dense_order`, for the sizes at the time of tracing."""
    sizes, strides = [hint(s) for s in val.shape], [hint(s) for s in val.stride()]
    order = sorted(range(val.dim()), key=lambda d: (-strides[d], d))
    dense, expected = True, 1
    for d in reversed(order):
        dense = dense and (sizes[d] == 1 or strides[d] == expected)
        expected *= sizes[d]
    return order if dense else None


def _with_units(moving: list[int], rank: int) -> list[int]:
    if moving == sorted(moving):
        return list(range(rank))
    order = list(moving)
    for d in range(rank):
        if d not in order:
            order.insert(0, d)
    return order


def row_major(rank: int) -> list[int]:
    return list(range(rank))


def strides_of(sizes: list, order: list[int]) -> list:
    """The strides of a dense tensor with these sizes and this order."""
    strides = [1] * len(sizes)
    expected = 1
    for d in reversed(order):
        strides[d] = expected
        size = sizes[d]
        expected = simplify(expected * size)
    return strides


def storage(val) -> int:
    """A key that tensors share which are views of one memory."""
    return val.untyped_storage()._cdata
