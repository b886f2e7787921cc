"""Functions that are ready to run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from rc import _native
from rc._native import Array
from rc.types import TensorType


@dataclass(frozen=True)
class Symbol:
    """A size that arguments decide: a multiple of `divisor` from `min` to `max`."""

    name: str
    min: int
    max: int
    divisor: int


@dataclass(frozen=True)
class Signature:
    """What a function takes and gives, by name; a result's name may be empty. Weights of a package are not among the arguments."""

    arguments: tuple[tuple[str, TensorType], ...]
    results: tuple[tuple[str, TensorType], ...]
    symbols: tuple[Symbol, ...]

    def __str__(self) -> str:
        lines = [f"symbol {s.name}: {s.min} to {s.max}{f', multiples of {s.divisor}' if s.divisor > 1 else ''}" for s in self.symbols]
        lines += [f"argument {name}: {kind}" for name, kind in self.arguments]
        lines += [f"result {i}{f' {name}:' if name else ''} {kind}" for i, (name, kind) in enumerate(self.results)]
        return "\n".join(lines)


class Model:
    """A function of a package, or of a module that was compiled. Several threads may call it: its runs are one after the other."""

    def __init__(self, native: _native.Model):
        self._model = native
        inputs, results, symbols = native.signature()
        named = lambda specs: tuple((name, TensorType(tuple(shape), dtype)) for name, dtype, shape in specs)
        self.signature = Signature(named(inputs), named(results), tuple(Symbol(*s) for s in symbols))
        self._names = [name for name, _ in self.signature.arguments]

    @property
    def device(self) -> str:
        """Where it runs: `cpu`, `cuda:0`."""
        return self._model.device

    def variants(self) -> list[str]:
        """The programs for ranges of symbolic sizes that `Module.compile` allowed for, a line each: for which sizes, the calls that they served, and why
        they were made. The first line is the one for all sizes."""
        return self._model.variants()

    def result_types(self, *args: TensorType) -> list[TensorType]:
        """The types of the results for arguments of these."""
        results = self._model.result_types([(kind.dtype, list(kind.shape or ())) for kind in args])
        return [TensorType(tuple(shape), dtype) for dtype, shape in results]

    def run(self, *args: Any, out: Any = None, stream: Any = None, **named: Any) -> list[Any]:
        """Runs the function on arrays, given in order or by name, and gives its results: new arrays, or `out`, arrays for all of them that are
        written to (where there is one result, the array itself will do). Arguments are read where they lie; what is not row-major or not aligned to its elements is copied first.

        With a `stream` of the model's GPU (a number, 0 being the default one, or a stream of PyTorch, CuPy or whatever has `__cuda_stream__`), arguments
        and `out` are arrays in its memory, the work is queued on it, and the call returns at once. Without one, a model on a GPU takes arrays in
        the host's memory and copies them there and back."""
        if named:
            args = self._in_order(args, named)
        if out is not None and not isinstance(out, (list, tuple)):
            out = [out] if hasattr(out, "__dlpack__") or hasattr(out, "__array_interface__") else list(out)
        if stream is not None:
            if out is None:
                raise TypeError("on a stream, results need arrays of the GPU: give `out`")
            self._model.run_on(_handle(stream), args, list(out))
            return list(out)
        if out is None:
            return self._model.run(args)
        self._model.run_into(args, list(out))
        return list(out)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs the function: its one result, or a list of them."""
        results = self.run(*args, **named)
        return results[0] if len(results) == 1 else results

    def _in_order(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        rest = self._names[len(args) :]
        for name in named:
            if name not in rest:
                why = "was given by position too" if name in self._names else f"is not one of {', '.join(self._names)}"
                raise TypeError(f"the argument '{name}' {why}")
        missing = [name for name in rest if name not in named]
        if missing:
            raise TypeError(f"the argument '{missing[0]}' was not given")
        return (*args, *(named[name] for name in rest))

    def __repr__(self) -> str:
        return f"<rc.Model on {self.device}\n{self.signature}>"


def _handle(stream: Any) -> int:
    """The `CUstream` of a stream of some library."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return (protocol() if callable(protocol) else protocol)[1]
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return getattr(stream, name)
    raise TypeError(f"a {type(stream).__name__} is no stream: give its number, or an object with __cuda_stream__")


def load(path: str | os.PathLike[str], function: str | None = None, device: str | None = None) -> Model:
    """Loads a function of a package: the first, where none is named; on the CPU, if there is code for one, else on the first GPU, where no
    device is named."""
    return Model(_native.Model.load(os.fspath(path), function, device))


__all__ = ["Array", "Model", "Signature", "Symbol", "load"]
