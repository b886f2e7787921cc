"""Types of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from rc._native import Dim
from rc._native import shape as parse_shape

Size = Union[int, str, Dim]
"""An integer, or an expression over symbols: `"n"`, `"2 * n"`, or a `Dim`."""

Shape = Union[str, Sequence[Size]]
"""Sizes, or one text of them: `(8, "n")`, `"8, n"`."""


@dataclass(frozen=True)
class TensorType:
    """A tensor's element type, as the IR writes it, and shape; a scalar's where that is None."""

    shape: tuple[int | Dim, ...] | None
    dtype: str = "f32"
    constant: bool = False
    """Of an argument: the same at every call, so that what follows from such arguments alone is computed once."""
    donated: bool = False
    """Of an argument: the function may write to its memory."""

    def __str__(self) -> str:
        if self.shape is None:
            return self.dtype
        return f"tensor<{''.join(f'{size} x ' for size in self.shape)}{self.dtype}>"


def sizes(shape: Shape) -> tuple[int | Dim, ...]:
    """A shape's sizes: integers, and expressions over symbols."""
    if isinstance(shape, str):
        return tuple(parse_shape(shape))
    return tuple(size(s) for s in shape)


def size(one: Size) -> int | Dim:
    if not isinstance(one, str):
        return one
    parsed = parse_shape(one)
    if len(parsed) != 1:
        raise ValueError(f"'{one}' is not one size")
    return parsed[0]


def tensor(shape: Shape, dtype: str = "f32", *, constant: bool = False, donated: bool = False) -> TensorType:
    """The type of a tensor: `tensor("n, 784")`, `tensor((8, 64), "bf16")`, `tensor((), "i64")`."""
    return TensorType(sizes(shape), dtype, constant, donated)
