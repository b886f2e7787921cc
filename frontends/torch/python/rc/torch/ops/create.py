"""Tensors out of nothing: constants, counters."""

from __future__ import annotations

import operator

import torch

from rc.torch.build import Build, T
from rc.torch.dtypes import compute, is_float
from rc.torch.ops.table import TABLE, operand, out_dtype, out_shape, translates


@translates("full", "new_full", "scalar_tensor", "zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones", "_efficientzerotensor")
def full(b: Build, *args, **kwargs) -> T:
    name = b.node.target._opname
    if name == "scalar_tensor":
        value = args[0]
    elif "full" in name:
        value = args[-1] if len(args) > 1 else kwargs["fill_value"]
    else:
        value = 1 if "ones" in name else 0
    return b.expand(operand(b, value, out_dtype(b)), out_shape(b))


@translates("empty.memory_format", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")
def empty(b: Build, *args, **kwargs) -> T:
    """Memory without contents: zeros here, which is one of the contents that it may have."""
    return b.full(0, out_dtype(b), out_shape(b))


@translates("arange.start_step", "arange.start", "arange.default", "prims::iota")
def arange(b: Build, *args, **kwargs) -> T:
    result, shape = out_dtype(b), out_shape(b)
    start, step = 0, 1
    if b.node.target._opname == "iota":
        start, step = kwargs.get("start", 0), kwargs.get("step", 1)
    elif len(args) >= 2:
        start, step = args[0], args[2] if len(args) > 2 else kwargs.get("step", 1)
    c = compute(result) if is_float(result) else "i64"
    if isinstance(start, float) or isinstance(step, float):
        if is_float(c):
            # PyTorch counts in float64 and rounds once.
            c = "f64"
        else:
            # It counts integers from a whole start in whole steps, which may be zero, as many as the fractions give.
            start, step = int(start), int(step)
    i = b.convert(b.iota(shape, 0), c)
    i = b.binary("mul", i, operand(b, step, c)) if step != 1 else i
    return b.convert(b.binary("add", i, operand(b, start, c)) if start != 0 else i, result)


def _number(b: Build, x) -> T:
    """A number that sizes give, as a tensor in float64: Python's own arithmetic."""
    return x if isinstance(x, T) else operand(b, x, "f64")


def _of_numbers(name: str):
    return lambda b, x, y: b.binary(name, _number(b, x), _number(b, y))


for _operator, _name in ((operator.truediv, "div"), (operator.mul, "mul"), (operator.add, "add"), (operator.sub, "sub")):
    TABLE[_operator] = _of_numbers(_name)
TABLE[torch.sym_float] = _number


@translates("_assert_async", "_assert_async.msg")
def assert_values(b: Build, *args) -> None:
    """As for places outside of a tensor, what follows from values that it forbids is undefined."""


@translates("_assert_tensor_metadata")
def assert_metadata(b: Build, *args, **kwargs) -> None:
    """What tracing found to be so, and the compiled function takes no other arguments."""
