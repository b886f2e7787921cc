"""Graphs of ATen operations without AOTAutograd, where there is nothing for it to do.

AOTAutograd runs a graph once to see what it mutates and aliases, and once more, functionalized, to trace it. A graph for inference with fixed
sizes that mutates no argument and gives new tensors is traced in one run instead, in half the time.
"""

from __future__ import annotations

import operator

import torch
import torch.fx.traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from rc.torch import decompose, layout

_OPERATORS = ("add", "and", "floordiv", "lshift", "mod", "mul", "matmul", "or", "pow", "rshift", "sub", "truediv", "xor")
_IN_PLACE = {operator.setitem, operator.delitem, *(getattr(operator, f"i{name}") for name in _OPERATORS)}
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def trace(gm: GraphModule, example_inputs) -> GraphModule | None:
    """The graph in ATen operations, with `val` in each node's `meta`, or None where it takes AOTAutograd to be right."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fakify_first_call or not _may(gm, example_inputs):
        return None
    state = _modes()
    fakes = [_fake(x, context) for x in example_inputs]
    if any(isinstance(n, torch.SymInt) for x in fakes for n in (*x.shape, *x.stride(), x.storage_offset())):
        return None
    before = [_state(x) for x in fakes]

    in_place = any(_in_place(node) for node in gm.graph.nodes)

    def run(*args):
        with torch.fx.traceback.preserve_node_meta():
            return tuple((_Functional if in_place else Interpreter)(gm).run(*args))

    if in_place:
        run = torch.func.functionalize(run, remove="mutations")
    try:
        with context.fake_mode, enable_python_dispatcher():
            traced = make_fx(run, decomposition_table=decompose.table(), record_module_stack=True)(*fakes)
    except Exception:  # noqa: BLE001 - AOTAutograd traces it, or says in its own words why not
        _restore(state)
        return None
    _strided_anew(traced)
    if before != [_state(x) for x in fakes] or not _is_plain(traced, fakes):
        return None
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _may(gm: GraphModule, example_inputs) -> bool:
    """Whether a graph and its inputs look as if they need nothing of AOTAutograd."""
    if not all(type(x) in _PLAIN for x in example_inputs) or next(gm.parameters(), None) is not None:
        return False
    if any(_is_transform(node) for node in gm.graph.nodes):
        return False
    return not (torch.is_grad_enabled() and any(x.requires_grad for x in example_inputs))


def _is_transform(node: Node) -> bool:
    """Whether a node enters or leaves `vmap`, `grad` and their like, whose levels a trace that stops half way would leave behind."""
    module = getattr(node.target, "__module__", None) if node.op == "call_function" else None
    return bool(module) and ("_functorch" in module or "functorch" in getattr(node.target, "__qualname__", ""))


def _modes() -> tuple:
    """What a graph's own nodes switch: gradients, and autocast on each device."""
    autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")]
    return torch.is_grad_enabled(), autocast


def _restore(state: tuple):
    torch._C._set_grad_enabled(state[0])
    for device, enabled, dtype in state[1]:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _in_place(node: Node) -> bool:
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    # Python's own `operator.and_` and its like are named for the keyword.
    in_place = name.endswith("_") and not name.endswith("__") and getattr(node.target, "__module__", "") != "_operator"
    return in_place or node.target in _IN_PLACE or "out" in node.kwargs or bool(node.kwargs.get("inplace"))


class _Functional(Interpreter):
    """Runs a graph on functionalized tensors, of which PyTorch's `linear` does not see that they lie row by row."""

    def call_function(self, target, args, kwargs):
        if target is torch.nn.functional.linear and len(args) == 3 and not kwargs and args[0].dim() > 3 and args[0].is_contiguous():
            x, weight, bias = args
            return target(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], weight.shape[0])
        return super().call_function(target, args, kwargs)


def _fake(x: torch.Tensor, context: TracingContext) -> FakeTensor:
    if isinstance(x, FakeTensor):
        return x
    return context.fake_mode.from_tensor(x, symbolic_context=context.tensor_to_context.get(x))


def _strided_anew(traced: GraphModule):
    """What gives a new tensor other strides in place, as pooling to one pixel does, becomes an operation of its own."""
    for node in traced.graph.nodes:
        if node.target is torch.ops.aten.as_strided_.default and len(node.args[0].users) == 1 and node.args[0].op == "call_function":
            node.target = torch.ops.aten.as_strided.default


def _state(x: torch.Tensor) -> tuple:
    """What a mutation of a tensor changes."""
    return x._version, tuple(x.shape), x.stride(), x.storage_offset(), layout.storage(x)


def _is_plain(traced: GraphModule, fakes: list) -> bool:
    """Whether no operation mutates, no size depends on data, and the results are new tensors that need no gradient and share no memory."""
    for node in traced.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is not None and schema.is_mutable:
            return False
        if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return False
    results = [node.meta.get("val") if isinstance(node, torch.fx.Node) else None for node in traced.graph.output_node().args[0]]
    if not all(type(x) is FakeTensor and not x.requires_grad for x in results):
        return False
    memories = [layout.storage(x) for x in (*fakes, *results)]
    return len(set(memories[len(fakes) :])) == len(results) and not set(memories[: len(fakes)]) & set(memories[len(fakes) :])
