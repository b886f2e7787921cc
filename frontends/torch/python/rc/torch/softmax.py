"""log_softmax in a training step's graph as the numbers of each row that it is made of.

Between the forward and the backward graph then only these are kept, besides its operand, in the operand's own type: not as many numbers in f32 as
there are classes.
"""

from __future__ import annotations

import math

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten


def part_rows(gm: GraphModule) -> None:
    """Replaces each log_softmax of f32 or f64 by its parts, in place; of elements that are picked from it only these are computed."""
    for node in gm.graph.find_nodes(op="call_function", target=aten._log_softmax.default):
        x, dim, _ = node.args
        val = x.meta["val"]
        if val.dtype == node.meta["val"].dtype and val.dtype in (torch.float32, torch.float64) and val.dim() > 0:
            _replace(gm.graph, node, x, dim)


def _replace(graph: Graph, node: Node, x: Node, dim: int) -> None:
    add = _Adding(graph, node)
    top = add(aten.amax.default, x, [dim], True)
    shifted = add(aten.sub.Tensor, x, top)
    # exp(x) as 2^(x / ln 2), as rc computes log_softmax.
    powers = add(aten.exp2.default, add(aten.mul.Tensor, shifted, math.log2(math.e)))
    log = add(aten.log.default, add(aten.sum.dim_IntList, powers, [dim], True))
    whole = add(aten.sub.Tensor, shifted, log)
    for user in list(node.users):
        if _picks(user, node, dim):
            here = _Adding(graph, user)
            picked = _gathered(here, x, dim, user.args[2])
            picked = here(aten.sub.Tensor, here(aten.sub.Tensor, picked, top), log)
            user.replace_all_uses_with(picked)
            graph.erase_node(user)
    node.replace_all_uses_with(whole)
    graph.erase_node(node)


def _picks(user: Node, node: Node, dim: int) -> bool:
    """Whether it takes elements of rows, as many as there are rows in each place."""
    if user.target is not aten.gather.default or user.args[0] is not node or user.kwargs:
        return False
    sizes, wanted = node.meta["val"].shape, user.args[2].meta["val"].shape
    rank = len(sizes)
    same = len(wanted) == rank and all(a == b for d, (a, b) in enumerate(zip(sizes, wanted)) if d != dim % rank)
    return same and user.args[1] % rank == dim % rank


def _gathered(add: _Adding, x: Node, dim: int, index: Node) -> Node:
    """Elements of `x`, taken before they are converted."""
    if x.target is aten._to_copy.default and set(x.kwargs) <= {"dtype", "layout", "device"}:
        return add(aten._to_copy.default, add(aten.gather.default, x.args[0], dim, index), **x.kwargs)
    return add(aten.gather.default, x, dim, index)


class _Adding:
    """Adds operations before a node, with their results' types."""

    def __init__(self, graph: Graph, before: Node):
        self.graph, self.before = graph, before
        self.mode = detect_fake_mode([before.meta["val"]])

    def __call__(self, target, *args, **kwargs) -> Node:
        with self.graph.inserting_before(self.before):
            new = self.graph.call_function(target, args, kwargs)
        of = lambda x: x.meta["val"] if isinstance(x, Node) else x
        with self.mode:
            new.meta["val"] = target(*(of(x) for x in args), **kwargs)
        return new
