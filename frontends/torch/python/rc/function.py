"""Functions under construction."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from rc import _native
from rc._native import Dim
from rc.module import Module
from rc.types import Shape, TensorType, sizes

Range = Union[tuple[int, int], tuple[int, int, int]]
"""A symbol's least and greatest value, and what its values are multiples of."""

Number = Union[int, float, bool]


class Value:
    """A value of the function that it was made for. Arithmetic with values of the same type, and with numbers, makes operations."""

    __slots__ = ("_value", "function")

    def __init__(self, function: Function, value: _native.Value):
        self.function = function
        self._value = value

    @property
    def dtype(self) -> str:
        return self.function._graph.dtype(self._value)

    @property
    def shape(self) -> tuple[int | Dim, ...]:
        return tuple(self.function._graph.shape(self._value))

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, self.dtype)

    def named(self, name: str) -> Value:
        """The same value, with this name in the module's text."""
        self.function._graph.name(self._value, name)
        return self

    def _with(self, op: str, other: Value | Number, swapped: bool = False) -> Value:
        if isinstance(other, (bool, int, float)):
            other = self.function.constant(other, self.dtype, self.shape)
        elif not isinstance(other, Value):
            return NotImplemented
        pair = [other, self] if swapped else [self, other]
        return self.function._make(f"core.{op}", pair, {}, None)

    def __add__(self, other: Value | Number) -> Value:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Value:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Value | Number) -> Value:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Value | Number) -> Value:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Value:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._with("div", other, swapped=True)

    def __neg__(self) -> Value:
        return self.function._make("core.neg", [self], {}, None)

    def __repr__(self) -> str:
        return f"<rc.Value of type {self.type}>"


class Function:
    """A function under construction: its arguments by name, and ranges for the symbols in their shapes.

    `symbols` gives for each its least and greatest value and, where all are multiples of a number, that: `{"n": (1, 1024), "s": (8, 512, 8)}`.
    """

    def __init__(self, name: str = "main", symbols: Mapping[str, Range] | None = None, /, **args: Any):
        # An argument of the function may be called as these are.
        symbols = args.pop("symbols", symbols) if not isinstance(args.get("symbols"), TensorType) else symbols
        for arg, kind in args.items():
            if not isinstance(kind, TensorType):
                raise TypeError(f"the argument '{arg}' is of no type: give rc.tensor(shape, dtype)")
        self.name = name
        self._symbols = [(s, *_range(s, values)) for s, values in (symbols or {}).items()]
        numbered = list(enumerate(args.values()))
        self._graph = _native.Graph(
            name,
            [(arg, kind.dtype, list(kind.shape or ())) for arg, kind in args.items()],
            [i for i, kind in numbered if kind.constant],
            [i for i, kind in numbered if kind.donated],
        )
        self._args = dict(zip(args, (Value(self, v) for v in self._graph.args())))

    @property
    def args(self) -> tuple[Value, ...]:
        """The arguments, in order."""
        return tuple(self._args.values())

    def __getitem__(self, name: str) -> Value:
        """The argument of a name."""
        return self._args[name]

    def constant(self, value: Any, dtype: str | None = None, shape: Shape | None = None) -> Value:
        """A constant: one number in every element of a shape, or the elements of an array."""
        self._here("constant")
        if isinstance(value, (bool, int, float)):
            dtype = dtype or ("i1" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32")
            number = float(value) if dtype.startswith(("f", "bf")) else _integer(value)
            return Value(self, self._graph.splat(number, dtype, list(sizes(() if shape is None else shape))))
        array = _native.array(value)
        if dtype is not None and dtype != array.dtype or shape is not None and sizes(shape) != array.shape:
            raise ValueError(f"the array has the type {TensorType(array.shape, array.dtype)}: convert it first")
        return Value(self, self._graph.dense(array.tobytes(), array.dtype, list(array.shape)))

    def returns(self, *results: Value, calls: Iterable[Module] = ()) -> Module:
        """Ends the function, and gives its module, with the functions that it calls."""
        for i, result in enumerate(results):
            if not isinstance(result, Value) or result.function is not self:
                raise TypeError(f"result {i} is no value of the function '{self.name}'")
        return Module(self._graph.finish([r._value for r in results], self._symbols, [m._module for m in calls]))

    def _here(self, what: str) -> None:
        """Gives what is built next the position of the caller outside of this package."""
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "rc":
            frame = frame.f_back
        self._graph.at(what, frame.f_code.co_filename, frame.f_lineno)

    def _make(self, name: str, groups: Sequence[Any], attrs: Mapping[str, Any], out: Any) -> Any:
        """An operation: operands by groups, attributes, and the types of results that it does not infer."""
        self._here(name)
        values = [[self._own(name, v) for v in group] if isinstance(group, (list, tuple)) else self._own(name, group) for group in groups]
        if isinstance(out, TensorType):
            out = _type(out)
        elif out is not None:
            out = [_type(one) for one in out]
        made = self._graph.op(name, values, dict(attrs), out)
        return [Value(self, v) for v in made] if isinstance(made, list) else Value(self, made)

    def _own(self, name: str, value: Any) -> _native.Value | None:
        if value is None:
            return None
        if not isinstance(value, Value):
            raise TypeError(f"'{name}' takes values as operands, not {type(value).__name__}: make a constant with Function.constant")
        if value.function is not self:
            raise TypeError(f"'{name}' is given a value of the function '{value.function.name}', and one of '{self.name}'")
        return value._value


def _type(kind: TensorType) -> tuple[str, list[int | Dim] | None]:
    return kind.dtype, None if kind.shape is None else list(kind.shape)


def _range(symbol: str, values: Any) -> tuple[int, int, int]:
    if not isinstance(values, (tuple, list)) or len(values) not in (2, 3):
        raise TypeError(f"the symbol '{symbol}' has the range {values!r}: it is (least, greatest), or (least, greatest, divisor)")
    return (*values, 1) if len(values) == 2 else tuple(values)


def _integer(value: Number) -> int:
    if isinstance(value, float) and not (math.isfinite(value) and value == int(value)):
        raise ValueError(f"{value} is no integer")
    return int(value)
