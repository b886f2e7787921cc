"""Dynamo's symbolic sizes as rc's."""

import sympy
import torch
from torch.utils._sympy import functions as fns

from rc._native import Dim
from rc.torch.errors import Unsupported

# A size beyond this is no size of a tensor in memory; it keeps products of a few sizes inside 64 bits.
LARGEST = 2**31 - 1


class Symbols:
    """The symbols of a graph: their names in rc, with ranges."""

    def __init__(self, bounds: dict | None = None):
        """`bounds`: ranges of symbols that count more than the tracer's own, which are of sizes from 2."""
        self.bounds = bounds or {}
        self.ranges: dict[str, tuple[int, int]] = {}

    def dim(self, size) -> "int | Dim":
        """A size (an int, a SymInt) as one of rc's."""
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        if isinstance(size, torch.SymInt):
            node = size.node
            if node.expr.is_number:
                return int(node.expr)
            return _simplify(self._expr(node.expr, node.shape_env))
        raise Unsupported(f"a size of type {type(size).__name__}")

    def dims(self, sizes) -> list:
        return [self.dim(s) for s in sizes]

    def declarations(self) -> list[tuple[str, int, int, int]]:
        return [(name, low, high, 1) for name, (low, high) in sorted(self.ranges.items())]

    def _symbol(self, symbol, shape_env):
        known = shape_env.replacements.get(symbol) if hasattr(shape_env, "replacements") else None
        if known is not None and known != symbol:
            return self._expr(known, shape_env)
        bounds = self.bounds.get(symbol, shape_env.var_to_range.get(symbol))
        low = max(0, int(bounds.lower)) if bounds is not None and bounds.lower.is_number and bounds.lower > 0 else 0
        high = LARGEST
        if bounds is not None and bounds.upper.is_Integer:
            high = min(LARGEST, int(bounds.upper))
        self.ranges[str(symbol)] = (low, max(low, high))
        return Dim.symbol(str(symbol))

    def _expr(self, e, env):
        if isinstance(e, sympy.Integer):
            return Dim.of(int(e))
        if isinstance(e, sympy.Symbol):
            return self._symbol(e, env)
        args = [self._expr(a, env) for a in e.args] if not isinstance(e, sympy.Pow) else []
        match e:
            case sympy.Add():
                return _fold(lambda a, b: a + b, args)
            case sympy.Mul():
                return _fold(lambda a, b: a * b, args)
            case sympy.Pow() if e.exp.is_Integer and 0 <= int(e.exp) <= 8:
                base = self._expr(e.base, env)
                return _fold(lambda a, b: a * b, [base] * int(e.exp)) if int(e.exp) else Dim.of(1)
            case fns.FloorDiv() | fns.CleanDiv():
                return args[0] // args[1]
            case fns.Mod() | fns.PythonMod() | sympy.Mod():
                return args[0] % args[1]
            case fns.ModularIndexing():
                return (args[0] // args[1]) % args[2]
            case fns.Max() | sympy.Max():
                return _fold(lambda a, b: a.maximum(b), args)
            case fns.Min() | sympy.Min():
                return _fold(lambda a, b: a.minimum(b), args)
        raise Unsupported(f"the symbolic size {e}")


def _fold(f, args):
    result = args[0]
    for a in args[1:]:
        result = f(result, a)
    return result


def _simplify(dim: Dim):
    value = dim.value()
    return dim if value is None else value
