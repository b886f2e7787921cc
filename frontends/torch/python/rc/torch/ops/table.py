"""The table of translations.

A translation takes the graph under construction and the operation's arguments as PyTorch declares them, with tensors as
`T` and sizes as integers or `Dim`s, and gives a `T` or a list of them. It raises `Unsupported` for what it does not do.
The lowering checks element type and shape of what it gives.
"""

from __future__ import annotations

from typing import Callable

import torch

from rc.torch.build import Build, T
from rc.torch.dtypes import compute, element, is_float
from rc.torch.errors import Unsupported

TABLE: dict[object, Callable] = {}

COMPLEX: dict[object, Callable] = {}
"""Translations where an operand or the result is complex."""

OF_LIBRARIES: dict[str, Callable] = {}
"""Operations that libraries register when they are imported, by name: `library.name.overload`."""


def translation(op) -> Callable | None:
    return TABLE.get(op) or OF_LIBRARIES.get(str(op))


def translates_of_library(name: str):
    """Registers a translation for an operation of a library that need not be there."""

    def register(f):
        OF_LIBRARIES[name] = f
        return f

    return register


def lookup(name: str):
    """An operation by its name: `add.Tensor`, `prims::iota`; None where this PyTorch lacks it."""
    packet, _, overload = name.partition(".")
    namespace, _, packet = packet.rpartition("::")
    found = getattr(getattr(torch.ops, namespace or "aten"), packet, None)
    return getattr(found, overload or "default", None) if found is not None else None


def translates(*names: str, table: dict = TABLE):
    """Registers a translation for ATen operations: `add.Tensor`, or `relu` for its default overload. What this PyTorch lacks is left out."""

    def register(f):
        for name in names:
            op = lookup(name)
            if op is not None:
                table[op] = f
        return f

    return register


def translates_copies():
    """What gives a copy instead of a view is the same here."""
    for op, f in list(TABLE.items()):
        packet = getattr(torch.ops.aten, f"{getattr(op, '_opname', '')}_copy", None) if str(op).startswith("aten.") else None
        copy = getattr(packet, op._overloadname, None) if packet is not None else None
        if copy is not None:
            TABLE.setdefault(copy, f)


def out(b: Build, i: int | None = None):
    """What PyTorch says that the operation gives."""
    val = b.node.meta["val"]
    return val if i is None else val[i]


def out_dtype(b: Build, i: int | None = None) -> str:
    return element(out(b, i).dtype)


def out_shape(b: Build, i: int | None = None) -> list:
    return b.symbols.dims(out(b, i).shape)


def dtype_name(dtype) -> str:
    name = element(dtype)
    if name is None:
        raise Unsupported(f"tensors of {str(dtype).removeprefix('torch.')}")
    return name


def operand(b: Build, x, dtype: str) -> T:
    """A tensor or number as a tensor of this element type."""
    from rc._native import Dim

    if isinstance(x, T):
        return b.convert(x, dtype)
    if isinstance(x, Dim):
        return b.size(x, dtype)
    if isinstance(x, complex):
        raise Unsupported("complex numbers")
    return b.full(x, dtype, ())


def float_input(b: Build, x: T, result: str) -> T:
    """The operand of a function of floats, in the type it is computed in for a result of type `result`."""
    return b.convert(x, compute(result) if is_float(result) else "f32")
