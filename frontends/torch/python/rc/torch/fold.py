"""Parts of a graph that depend on no argument, computed once, by PyTorch, when the graph is compiled.

Masks of shifted windows, buckets of relative positions: many operations on few elements, which would be kernels to compile and to launch at
every call. What takes less, such as a counter or a comparison of two, is left to the kernels that use it.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from rc.torch import attention

aten = torch.ops.aten

LEAST = 8
"""Operations that compute (views do not) from which on a value is folded."""

LARGEST = 1 << 18
"""Elements of a folded value at most."""

LARGEST_MASK = 1 << 26
"""Elements of a mask at most that is computed to see whether attention can do without it."""

_VIEWS = ("alias", "as_strided", "detach", "expand", "permute", "reshape", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view")
_UNDEFINED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")

_FILLS = {
    aten.new_zeros.default: lambda node: 0,
    aten.new_ones.default: lambda node: 1,
    aten.new_full.default: lambda node: node.args[2],
    aten.zeros_like.default: lambda node: 0,
    aten.ones_like.default: lambda node: 1,
    aten.full_like.default: lambda node: node.args[1],
}
"""Operations that take no element of their operand, with the number that they fill their result with."""


def fold(gm: GraphModule) -> None:
    """Replaces what is worth it by constants of the graph, in place."""
    computed = _constants(gm)
    roots = [node for node in computed if node.op == "call_function" and _is_worth(node, computed)]
    if not roots:
        return
    known: dict[Node, object] = {}
    with torch.no_grad(), torch.inference_mode(False):
        for i, node in enumerate(roots):
            value = _value(gm, node, known)
            attention.settle_masks(node, value)
            if node.users and value.numel() <= LARGEST:
                _replace(gm, node, value, f"_folded_{i}")
    _erase_unused(gm, computed)


def settle_masks(gm: GraphModule) -> None:
    """Has attention do without masks that turn out to hide nothing, or what is causal, in place."""
    computed = _constants(gm)
    masks = [n for n in computed if attention.is_mask(n) and _has_value(n) and n.meta["val"].numel() <= LARGEST_MASK]
    if not masks:
        return
    known: dict[Node, object] = {}
    with _disable_current_modes(), torch.no_grad():
        for node in masks:
            attention.settle_masks(node, _value(gm, node, known))
    _erase_unused(gm, computed)


def _constants(gm: GraphModule) -> dict[Node, frozenset[Node]]:
    """For each constant node, the operations that compute it."""
    computed: dict[Node, frozenset[Node]] = {}
    for node in gm.graph.nodes:
        if _is_constant(gm, node, computed):
            before = frozenset().union(*(computed[n] for n in node.all_input_nodes if n in computed))
            computed[node] = before | {node} if _computes(node) else before
    return computed


def _erase_unused(gm: GraphModule, computed) -> None:
    for node in reversed(list(computed)):
        if node.op == "call_function" and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()


def _is_constant(gm: GraphModule, node: Node, computed) -> bool:
    if node.op == "get_attr":
        return type(operator.attrgetter(node.target)(gm)) is torch.Tensor
    if node.op != "call_function":
        return False
    if node.target in _FILLS:
        return _has_value(node) and isinstance(_FILLS[node.target](node), (int, float, bool))
    if node.target is not operator.getitem and not _is_pure(node.target):
        return False
    return all(n in computed for n in node.all_input_nodes)


def _is_pure(target) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    random = torch.Tag.nondeterministic_seeded in target.tags
    return not (random or target._schema.is_mutable or target._opname in _UNDEFINED)


def _computes(node: Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and node.target._opname not in _VIEWS


def _has_value(node: Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and all(isinstance(s, int) for s in val.shape)


def _is_worth(node: Node, computed) -> bool:
    """Whether other operations of the graph use it, none gives it to the caller, who may write to it, and it is neither large nor cheap."""
    users = [user for user in node.users if user not in computed]
    return (
        bool(users)
        and all(user.op == "call_function" for user in users)
        and _has_value(node)
        and len(computed[node]) >= LEAST
        and node.meta["val"].numel() <= (LARGEST_MASK if attention.is_mask(node) else LARGEST)
    )


def _value(gm: GraphModule, root: Node, known):
    """The value of a constant node, and of what it is computed from."""
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [] if node.target in _FILLS else [n for n in node.all_input_nodes if n not in known]
        if missing:
            stack += missing
            continue
        stack.pop()
        if node not in known:
            known[node] = _compute(gm, node, known)
    return known[root]


def _compute(gm: GraphModule, node: Node, known):
    if node.op == "get_attr":
        return operator.attrgetter(node.target)(gm)
    if node.target in _FILLS:
        val = node.meta["val"]
        return torch.full(tuple(val.shape), _FILLS[node.target](node), dtype=val.dtype, device=val.device)
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known[n])
    return node.target(*args, **kwargs)


def _is_uniform(value: torch.Tensor) -> bool:
    """Whether all elements are one number; zeros of both signs are two."""
    if value.numel() == 0 or value.is_complex():
        return False
    first = value.reshape(-1)[0]
    signs = (value.signbit() == first.signbit()) if value.is_floating_point() else True
    return bool(((value == first) & signs).all())


def _replace(gm: GraphModule, node: Node, value: torch.Tensor, name: str) -> None:
    """Puts a constant in a node's place: one number where all elements are the same, for kernels to know it."""
    with gm.graph.inserting_before(node):
        if _is_uniform(value):
            args = (list(value.shape), value.reshape(-1)[0].item())
            new = gm.graph.call_function(aten.full.default, args, {"dtype": value.dtype, "device": value.device})
        else:
            # Elements row by row: memory that no view shares, and no repeated elements.
            gm.register_buffer(name, value.contiguous().clone(), persistent=False)
            new = gm.graph.get_attr(name)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
