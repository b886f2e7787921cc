"""Operations that PyTorch runs in the middle of a compiled program: custom ones, collectives, and with `fallback` those that rc has not.

A program holds such a call as `core.foreign`: the operation's name, and its arguments as text, in which tensors are numbers of operands and sizes are
numbers of `sizes`. When the program comes to it, `run` reads them back, calls the operation on tensors that lie in the program's memory, and copies what it
gives to the results' places. An operation's exception is that of the call.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import weakref

import torch
from torch.fx import Node

from rc._native import Dim, serve
from rc.torch import layout
from rc.torch.build import Build, C, T
from rc.torch.dtypes import PARTS, element
from rc.torch.errors import Unsupported
from rc.torch.ops.complexes import interleaved, view_as_complex
from rc.torch.ops.table import lookup, translates

_OWN = ("aten", "prims", "prim", "rc", "higher_order", "profiler")
"""Namespaces of PyTorch's own operations, which rc compiles, or refuses."""

_COLLECTIVES = "_c10d_functional"
"""Operations that give tensors which are written to later, and `wait_tensor`, which waits for one: a call waits before it ends."""

_HIGHER_ORDER = ("auto_functionalized", "auto_functionalized_v2")
"""What PyTorch wraps an operation in that mutates its arguments: gives them as results."""

_WORDS = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def is_custom(target) -> bool:
    """Whether somebody else than PyTorch has defined an operation, or one that it wraps."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name() in _HIGHER_ORDER
    return isinstance(target, torch._ops.OpOverload) and target.namespace not in _OWN


def call(b: Build, node: Node, device: torch.device, value) -> object:
    """What an operation gives, called from the program. `value` gives that of an argument's node."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) and not is_custom(op):
        raise Unsupported("no operation that a program can call")
    if op is _WAIT:
        raise Unsupported(_FROM_OUTSIDE)
    writing = _Writing(b, device, value)
    config = {"args": writing.text(node.args), "kwargs": writing.text(node.kwargs)}
    leaves = _leaves(node.meta.get("val"))
    if any(leaf is not None and not isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise Unsupported("a result that is no tensor")
    tensors = [leaf for leaf in leaves if leaf is not None]
    if any(t.device != device for t in tensors):
        raise Unsupported(f"a result on another device than {device}")
    types = [(element(t.dtype), [*b.symbols.dims(t.shape), *[2] * (t.dtype in PARTS)]) for t in tensors]
    made = b.op(
        "core.foreign",
        writing.tensors,
        results=types,
        function=f"torch:{_name(op)}",
        config=json.dumps(config, separators=(",", ":")),
        sizes=writing.sizes or None,
        effects="none" if _is_pure(op) else "ordered",
    )
    made = iter(made if isinstance(made, list) else [made])
    take = lambda t: view_as_complex(b, next(made)) if t.dtype in PARTS else next(made)
    given = [take(leaf) if leaf is not None else None for leaf in leaves]
    return given if isinstance(node.meta.get("val"), (tuple, list)) else given[0] if given else None


_WAIT = lookup(f"{_COLLECTIVES}::wait_tensor")
_FROM_OUTSIDE = "a wait for what was begun before this graph"


@translates(f"{_COLLECTIVES}::wait_tensor")
def wait_tensor(b: Build, x: T) -> T:
    """What a graph computes is there: a collective's call waits itself."""
    source = b.node.args[0]
    while source.target is operator.getitem:
        source = source.args[0]
    if source.op != "call_function":
        raise Unsupported(_FROM_OUTSIDE)
    return x


def _is_pure(op) -> bool:
    """Whether equal calls of an operation give the same. What others write may give another result each time, whatever it declares."""
    own = isinstance(op, torch._ops.OpOverload) and op.namespace in _OWN
    return own and torch.Tag.nondeterministic_seeded not in op.tags and not op._schema.is_mutable


def _name(op) -> str:
    return op.name() if isinstance(op, torch._ops.HigherOrderOperator) else f"{op.namespace}::{op._opname}.{op._overloadname}"


def _leaves(val) -> list:
    """An operation's results, as a flat list."""
    if not isinstance(val, (tuple, list)):
        return [] if val is None else [val]
    if any(isinstance(v, (tuple, list)) for v in val):
        raise Unsupported("lists of tensors among several results")
    return list(val)


class _Writing:
    """Arguments as text, and what it refers to."""

    def __init__(self, b: Build, device: torch.device, value):
        self.b, self.device, self.value = b, device, value
        self.tensors: list[T] = []
        self.sizes: list = []

    def text(self, x):
        if isinstance(x, Node):
            return self._node(x)
        if isinstance(x, (tuple, list)):
            return [self.text(v) for v in x]
        if isinstance(x, dict):
            return {"dict": {k: self.text(v) for k, v in x.items()}}
        if x is None or type(x) in (bool, int, str):
            return x
        if type(x) is float:
            return x if math.isfinite(x) else {"float": repr(x)}
        if isinstance(x, torch._ops.OpOverload):
            return {"operation": _name(x)}
        if isinstance(x, torch.device):
            return {"device": str(x)}
        for kind, word in _WORDS.items():
            if isinstance(x, kind):
                return {word: str(x).removeprefix("torch.")}
        raise Unsupported(f"an argument of type {type(x).__name__} of an operation that PyTorch runs")

    def _node(self, node: Node):
        val, value = node.meta.get("val"), self.value(node)
        if isinstance(value, (list, tuple)):
            return [self._tensor(v, t) for v, t in zip(value, val, strict=True)]
        if isinstance(value, (T, C)):
            return self._tensor(value, val)
        if isinstance(value, (Dim, int)) and not isinstance(value, bool):
            self.sizes.append(value)
            return {"size": len(self.sizes) - 1}
        raise Unsupported(f"an argument of type {type(value).__name__} of an operation that PyTorch runs")

    def _tensor(self, value, val):
        if val.device != self.device:
            raise Unsupported(f"a tensor on {val.device} as an argument of an operation that PyTorch runs on {self.device}")
        order = layout.dense_order(val, self.b.symbols) or layout.row_major(val.dim())
        says: dict = {"tensor": len(self.tensors)}
        if order != layout.row_major(val.dim()):
            says["order"] = [order.index(d) for d in range(len(order))]
        if isinstance(value, C):
            says["complex"] = True
            self.tensors.append(self.b.permute(interleaved(self.b, value), [*order, len(order)]))
        else:
            self.tensors.append(self.b.permute(value, order))
        return says


# When a program runs.


def run(name: str, config: str, sizes: list[int], args: list[torch.Tensor], results: list[torch.Tensor]):
    """Calls an operation and leaves what it gives in `results`."""
    # Looked up anew: who defines an operation once more frees the one before.
    op, says = _operation(name), _parsed(config)
    lent = [*map(weakref.ref, args), *map(weakref.ref, results)]
    try:
        made = _called(op, _read(says["args"], sizes, args, lent), _read(says["kwargs"], sizes, args, lent))
        if name.startswith(f"{_COLLECTIVES}::"):
            made = [torch.ops._c10d_functional.wait_tensor(t) for t in made]
        _give(name, made, results)
    finally:
        args.clear()
        results.clear()
        # Whoever keeps a tensor, the frames of an exception for one, keeps it with memory of its own.
        for ref in lent:
            if (tensor := ref()) is not None:
                tensor.set_(tensor.clone())


def _called(op, args: list, kwargs: dict) -> list[torch.Tensor]:
    made = op(*args, **kwargs)
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    return [t for t in made if t is not None]


def _give(name: str, made: list[torch.Tensor], results: list[torch.Tensor]):
    if len(made) != len(results):
        raise RuntimeError(f"{name} gives {len(made)} tensors, where its fake kernel gives {len(results)}")
    for i, (from_, to) in enumerate(zip(made, results)):
        from_ = torch.view_as_real(from_.resolve_conj()) if from_.is_complex() else from_
        if (from_.shape, from_.dtype, from_.device) != (to.shape, to.dtype, to.device):
            found, expected = (f"{t.dtype} {list(t.shape)} on {t.device}" for t in (from_, to))
            raise RuntimeError(f"{name} gives {found} as result {i}, where its fake kernel gives {expected}")
        to.copy_(from_.detach())


@functools.lru_cache(maxsize=4096)
def _parsed(config: str) -> dict:
    return json.loads(config)


def _operation(name: str):
    if "::" not in name:
        return getattr(torch.ops.higher_order, name)
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.rpartition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    found = getattr(found, overload, None) if found is not None else None
    if found is None:
        raise RuntimeError(f"the program calls the operation {name}, which is not registered in this process")
    return found


def _read(x, sizes: list[int], args: list[torch.Tensor], lent: list[weakref.ref]):
    """An argument from its text. Appends the tensors in it to `lent`."""
    if isinstance(x, list):
        return [_read(v, sizes, args, lent) for v in x]
    if not isinstance(x, dict):
        return x
    if (number := x.get("tensor")) is not None:
        tensor = torch.view_as_complex(args[number]) if x.get("complex") else args[number]
        tensor = tensor.permute(x["order"]) if "order" in x else tensor
        lent.append(weakref.ref(tensor))
        return tensor
    ((kind, value),) = x.items()
    match kind:
        case "dict":
            return {k: _read(v, sizes, args, lent) for k, v in value.items()}
        case "size":
            return sizes[value]
        case "float":
            return float(value)
        case "operation":
            return _operation(value)
        case "device":
            return torch.device(value)
    return getattr(torch, value)


serve(run)
