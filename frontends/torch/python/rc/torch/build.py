"""Building rc's graph: tensors as PyTorch's functions see them, over rc's operations.

A [`T`] is a value with its element type and shape; [`Build`] makes operations on them. Element types are written as in
the IR (`f32`, `i64`, `ui8`, `i1`); sizes are integers or `Dim`s.
"""

from __future__ import annotations

from dataclasses import dataclass

from rc._native import Dim, Graph, Value
from rc.torch import precision
from rc.torch.dtypes import compute, is_float
from rc.torch.errors import Unsupported


@dataclass(frozen=True)
class T:
    """A value of the graph: a tensor, or a scalar where `shape` is None."""

    value: Value
    dtype: str
    shape: tuple | None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class C:
    """A complex tensor: its parts, two real tensors of one type and shape."""

    re: T
    im: T


def numel(shape):
    n = 1
    for s in shape:
        n = n * s if isinstance(s, Dim) or isinstance(n, Dim) else n * s
    return simplify(n)


def simplify(size):
    if isinstance(size, Dim):
        value = size.value()
        return size if value is None else value
    return size


def normalize(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


class Build:
    """A graph under construction."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def wrap(self, value: Value) -> T:
        dtype, shape = self.graph.dtype(value), self.graph.shape(value)
        return T(value, dtype, tuple(shape))

    def op(self, name: str, *groups, result=None, results=None, **attrs):
        """Any operation. A group is a T, a list of them or None; `result` is (element type, shape) where it is not inferred, `results` a list
        of them where there are several."""
        values = [[t.value for t in g] if isinstance(g, (list, tuple)) else g.value if g is not None else None for g in groups]
        attrs = {k: v for k, v in attrs.items() if v is not None}
        if result is not None and result[1] is not None:
            result = (result[0], list(result[1]))
        out = self.graph.op(name, values, attrs, results if results is not None else result)
        return [self.wrap(v) for v in out] if isinstance(out, list) else self.wrap(out)

    # Constants

    def full(self, value, dtype: str, shape) -> T:
        """A tensor with one number, or a size, in every element."""
        if isinstance(value, Dim):
            return self.size(value, dtype, shape)
        if dtype == "i1":
            value = int(bool(value))
        elif not is_float(dtype):
            value = int(value)
        return self.wrap(self.graph.splat(value, dtype, list(shape)))

    def like(self, value, x: T) -> T:
        return self.full(value, x.dtype, x.shape)

    def size(self, dim, dtype: str = "i64", shape=()) -> T:
        """A size as a tensor's elements."""
        if not isinstance(dim, Dim):
            return self.full(dim, dtype, shape)
        # The last element of a counter that is one longer: it moves into the kernels that use it, as an index.
        count = self.iota([simplify(dim + 1)], 0)
        one = self.reshape(self.slice(count, [dim], [1]), ())
        return self.convert(self.expand(one, shape), dtype)

    def iota(self, shape, dim: int, dtype: str = "i64") -> T:
        return self.op("core.iota", result=(dtype, shape), dim=dim)

    def dense(self, tensor, dtype: str) -> T:
        """A constant with the elements of a PyTorch tensor on the CPU."""
        import torch

        data = tensor.detach().contiguous()
        raw = data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
        return self.wrap(self.graph.dense(raw, dtype, list(tensor.shape)))

    # Elementwise

    def convert(self, x: T, dtype: str) -> T:
        return x if x.dtype == dtype else self.op("core.convert", x, result=(dtype, x.shape))

    def cast(self, x: T, dtype: str) -> T:
        """A conversion that the program asks for: narrower floats are rounded, whatever follows."""
        narrows = x.dtype == "f32" and dtype in ("bf16", "f16")
        return self.op("core.convert", x, result=(dtype, x.shape), exact=True) if narrows else self.convert(x, dtype)

    def unary(self, name: str, x: T) -> T:
        return self.op(f"core.{name}", x)

    def binary(self, name: str, a: T, b: T) -> T:
        """Operands of one type; shapes broadcast."""
        a, b = self.broadcast(a, b)
        return self.op(f"core.{name}", a, b)

    def scalar(self, name: str, x: T, value) -> T:
        """A binary operation with a number on the right."""
        return self.op(f"core.{name}", x, self.like(value, x))

    def compare(self, kind: str, a: T, b: T) -> T:
        a, b = self.broadcast(a, b)
        return self.op("core.compare", a, b, kind=kind)

    def select(self, condition: T, a: T, b: T) -> T:
        condition, a, b = self.broadcast(condition, a, b)
        return self.op("core.select", condition, a, b)

    def not_(self, x: T) -> T:
        return self.unary("not", x)

    def is_nan(self, x: T) -> T:
        return self.unary("is_nan", x)

    def truth(self, x: T) -> T:
        """Whether elements are not zero (NaN is not)."""
        return self.convert(x, "i1")

    def upcast(self, x: T) -> T:
        """In the type of computation: float32 for narrower floats."""
        return self.convert(x, compute(x.dtype))

    # Shapes

    def broadcast(self, *xs: T) -> list[T]:
        shape = broadcast_shapes(*(x.shape for x in xs))
        return [self.expand(x, shape) for x in xs]

    def expand(self, x: T, shape) -> T:
        """By numpy's rules: aligned at the end, size 1 repeated."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        first = len(shape) - x.rank
        x = self.assume(x, [s if s == 1 else shape[first + d] for d, s in enumerate(x.shape)])
        return x if x.shape == shape else self.op("core.broadcast", x, dims=list(range(first, len(shape))), result=(x.dtype, shape))

    def broadcast_in(self, x: T, shape, dims) -> T:
        """Dimension i of `x` is dimension dims[i] of `shape`."""
        if x.shape == tuple(shape):
            return x
        return self.op("core.broadcast", x, dims=list(dims), result=(x.dtype, shape))

    def reshape(self, x: T, shape) -> T:
        shape = tuple(simplify(s) for s in shape)
        if x.shape == shape:
            return x
        count, known = numel(shape), numel(x.shape)
        if count != known:
            x = self.assume(self.op("core.reshape", x, result=(x.dtype, [known])), [count])
        return self.op("core.reshape", x, result=(x.dtype, shape))

    def assume(self, x: T, shape) -> T:
        """The tensor by sizes that are equal for reasons that PyTorch knows, and expressions do not show: it is checked when a call comes."""
        shape = tuple(shape)
        return x if x.shape == shape else self.op("core.assume_shape", x, result=(x.dtype, shape))

    def permute(self, x: T, order) -> T:
        order = list(order)
        return x if order == list(range(x.rank)) else self.op("core.transpose", x, perm=order)

    def unsqueeze(self, x: T, dim: int) -> T:
        dim = normalize(dim, x.rank + 1)
        return self.reshape(x, x.shape[:dim] + (1,) + x.shape[dim:])

    def slice(self, x: T, starts, sizes, strides=None) -> T:
        if all(s == n for s, n in zip(sizes, x.shape)) and not strides:
            return x
        return self.op("core.slice", x, starts=list(starts), sizes=list(sizes), strides=strides)

    def narrow(self, x: T, dim: int, start, size, step: int = 1) -> T:
        """`size` elements of a dimension, from `start`."""
        starts = [0] * x.rank
        sizes = list(x.shape)
        starts[dim], sizes[dim] = start, size
        steps = [1] * x.rank
        steps[dim] = step
        return self.slice(x, starts, sizes, steps if step != 1 else None)

    def agree(self, x: T, y: T, dims: list[tuple[int, int]]) -> tuple[T, T]:
        """Both by one size for each pair of a dimension of `x` and one of `y`, which PyTorch takes to be equal: the known one, or that of `x`."""
        a, c = list(x.shape), list(y.shape)
        for i, j in dims:
            if isinstance(a[i], Dim) and isinstance(c[j], int):
                a[i] = c[j]
            elif isinstance(c[j], Dim):
                c[j] = a[i]
        return self.assume(x, a), self.assume(y, c)

    def concat(self, xs: list[T], dim: int) -> T:
        sizes = lambda x: [*xs[0].shape[:dim], x.shape[dim], *xs[0].shape[dim + 1 :]]
        return xs[0] if len(xs) == 1 else self.op("core.concat", [self.assume(x, sizes(x)) for x in xs], dim=dim)

    def pad(self, x: T, low, high, value=0) -> T:
        if not any(l != 0 or h != 0 for l, h in zip(low, high)):
            return x
        fill = self.wrap_scalar(value, x.dtype)
        return self.op("core.pad", x, fill, low=list(low), high=list(high))

    def wrap_scalar(self, value, dtype: str) -> T:
        """A scalar, not a tensor."""
        if dtype == "i1":
            value = int(bool(value))
        elif not is_float(dtype):
            value = int(value)
        return T(self.graph.splat(value, dtype, None), dtype, None)

    # Reductions and products

    def reduce(self, kind: str, x: T, dims, keepdim: bool = False, acc: str | None = None) -> T:
        dims = sorted(normalize(d, x.rank) for d in dims)
        if not dims:
            return x
        y = self.op("core.reduce", x, dims=dims, kind=kind, acc=acc)
        if keepdim:
            y = self.reshape(y, [1 if d in dims else s for d, s in enumerate(x.shape)])
        return y

    def dot(self, a: T, b: T, contract=(-1, -2), batch: int = 0, dtype: str | None = None) -> T:
        """Sums products over one dimension of each; the first `batch` dimensions of both are batch dimensions."""
        ca, cb = normalize(contract[0], a.rank), normalize(contract[1], b.rank)
        a, b = self.agree(a, b, [*((d, d) for d in range(batch)), (ca, cb)])
        free = lambda x, c: [s for d, s in enumerate(x.shape) if d >= batch and d != c]
        shape = list(a.shape[:batch]) + free(a, ca) + free(b, cb)
        batches = list(range(batch)) or None
        return self.op(
            "core.dot",
            a,
            b,
            lhs_batch=batches,
            rhs_batch=batches,
            lhs_contract=[ca],
            rhs_contract=[cb],
            precision=self.precision("matmul", a, b),
            result=(dtype or a.dtype, shape),
        )

    def precision(self, kind: str, *operands: T) -> str | None:
        """The attribute `precision` of a product or a convolution, see `rc.torch.precision`."""
        return precision.of(kind, self.functions.device, *(x.dtype for x in operands))

    def take(self, table: T, indices: T, axis: int = 0) -> T:
        """Slices of a table along a dimension, at places inside of it."""
        return self.op("core.gather", table, indices, axis=axis)


def broadcast_shapes(*shapes) -> tuple:
    rank = max(len(s) for s in shapes)
    out = [1] * rank
    for shape in shapes:
        for i, s in enumerate(shape):
            at = rank - len(shape) + i
            if out[at] == 1:
                out[at] = s
            elif s != 1 and s != out[at] and not (isinstance(s, Dim) or isinstance(out[at], Dim)):
                raise Unsupported(f"shapes {[list(map(str, s)) for s in shapes]} that do not broadcast")
    return tuple(out)
