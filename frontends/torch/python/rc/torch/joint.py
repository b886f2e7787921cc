"""The graph of a training step, forward and backward in one, parted in two."""

from __future__ import annotations

import torch
import torch._functorch.config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node

from rc.torch import layout
from rc.torch.fold import settle_masks
from rc.torch.lower import device_of
from rc.torch.ops.index import is_repeated
from rc.torch.softmax import part_rows

aten = torch.ops.aten
_INDEXED = (aten.gather.default, aten.scatter_add.default, aten.scatter.src, aten.scatter.value)
"""Operations whose third argument is indices of the first one's shape."""
_UNDEFINED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")


def part(joint: GraphModule, inputs, *, num_fwd_outputs: int, **options) -> tuple[GraphModule, GraphModule]:
    """PyTorch's partition, by the least memory that is kept between the two. PyTorch's own elimination of common subexpressions would import
    all of Inductor for one of its helpers, which takes more than a second."""
    settle_masks(joint)
    part_rows(joint)
    _narrow_indices(joint)
    _merge(joint, num_fwd_outputs)
    with torch._functorch.config.patch(cse=False):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    _keep_on_device(forward, backward, num_fwd_outputs)
    return forward, backward


def _keep_on_device(forward: GraphModule, backward: GraphModule, num_fwd_outputs: int):
    """What is computed on the CPU, places from `arange` say, a GPU computes with the rest; what is kept of it for the backward graph stays there."""
    device = device_of(forward)
    arguments = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    for node in forward.graph.output_node().args[0][num_fwd_outputs:]:
        if isinstance(node, Node) and node.op == "call_function" and _is_strided(node) and node.meta["val"].device != device:
            value = node.meta["val"]
            with value.fake_mode:
                value = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            for kept in (node, arguments[node.name]):
                kept.meta["val"] = value


def _narrow_indices(joint: GraphModule):
    """Indices that are the same along a dimension, by which whole rows are gathered, are computed and kept once for all of it."""
    for node in list(joint.graph.nodes):
        if node.target not in _INDEXED or not isinstance(index := node.args[2], Node) or index.op == "placeholder":
            continue
        val = index.meta["val"]
        repeated = [d for d in range(val.dim()) if val.stride(d) != 0 and val.shape[d] != 1 and is_repeated(index, d)]
        if not repeated or 0 in val.shape:
            continue
        with joint.graph.inserting_before(node), val.fake_mode:
            narrow, value = index, val
            for d in repeated:
                value = aten.slice.Tensor(value, d, 0, 1)
                narrow = joint.graph.call_function(aten.slice.Tensor, (narrow, d, 0, 1))
                narrow.meta["val"] = value
            wide = joint.graph.call_function(aten.expand.default, (narrow, [-1 if d not in repeated else s for d, s in enumerate(val.shape)]))
            wide.meta["val"] = aten.expand.default(value, val.shape)
        node.replace_input_with(index, wide)


def _merge(joint: GraphModule, num_fwd_outputs: int):
    """Makes one of operations that compute the same; not of what only the forward graph needs and what the backward graph needs too."""
    outputs = joint.graph.output_node()
    results = [x for x in outputs.args[0] if isinstance(x, Node)]
    returned = {layout.storage(x.meta["val"]) for x in results if _is_strided(x)}
    backward = _needed(x for x in outputs.args[0][num_fwd_outputs:] if isinstance(x, Node))
    first: dict[tuple, Node] = {}
    for node in joint.graph.nodes:
        # What lies in a result's memory stays apart: results that compute the same are tensors of their own.
        if not _is_pure(node) or layout.storage(node.meta["val"]) in returned:
            continue
        key = (node.target, node in backward, _key(node.args), _key(node.kwargs))
        known = first.setdefault(key, node)
        if known is not node:
            node.replace_all_uses_with(known)
            joint.graph.erase_node(node)


def _needed(nodes) -> set[Node]:
    found, stack = set(), list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _is_strided(node: Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.layout == torch.strided


def _is_pure(node: Node) -> bool:
    """Whether a call gives one tensor of memory of its own, or a view, and the same at each call."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    random = torch.Tag.nondeterministic_seeded in target.tags
    # A higher-order operation may write to what it takes.
    read = all(user.op == "output" or isinstance(user.target, torch._ops.OpOverload) for user in node.users)
    return read and _is_strided(node) and not (random or target._schema.is_mutable or target._opname in _UNDEFINED or node.is_impure())


def _key(x):
    """What makes two arguments the same: numbers by their type too, and floats by their bits."""
    kind = type(x)
    if isinstance(x, (tuple, list)):
        return kind, *[_key(v) for v in x]
    if isinstance(x, dict):
        return kind, *[(k, _key(v)) for k, v in x.items()]
    if isinstance(x, slice):
        return kind, _key(x.start), _key(x.stop), _key(x.step)
    return kind, x.hex() if kind is float else x
