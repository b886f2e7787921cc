"""Regions that PyTorch traces once (`torch.compiler.nested_compile_region`), put in the places of their calls.

Their kernels are compiled once as it is: equal ones are one in rc. In place, what surrounds a region is fused with it, and the weights of each call are packed.
"""

from __future__ import annotations

import contextlib
import operator

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node

from rc.torch.ops.control import decomposed

_CALL = getattr(torch.ops.higher_order, "invoke_subgraph", None)


def expand(gm: GraphModule):
    """Puts the operations of regions in the places of their calls, in place."""
    calls = [n for n in gm.graph.nodes if n.op == "call_function" and n.target is _CALL]
    known: dict[str, GraphModule] = {}
    for call in calls:
        region, _, *operands = call.args
        if region.target not in known:
            known[region.target] = decomposed(getattr(gm, region.target))
            expand(known[region.target])
        _inline(gm, call, known[region.target], operands)
    if calls:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def _inline(gm: GraphModule, call: Node, region: GraphModule, operands: list):
    at: dict[Node, object] = dict(zip((n for n in region.graph.nodes if n.op == "placeholder"), operands, strict=True))
    given = set(operands)
    with gm.graph.inserting_before(call):
        for node in region.graph.nodes:
            if node.op == "get_attr":
                at[node] = gm.graph.get_attr(_attribute(gm, getattr(region, node.target)))
                at[node].meta = dict(node.meta)
            elif node.op not in ("placeholder", "output"):
                at[node] = gm.graph.node_copy(node, lambda n: at[n])
                at[node].meta = {**node.meta, **{k: v for k, v in call.meta.items() if k in ("stack_trace", "nn_module_stack")}}
    results = region.graph.output_node().args[0]
    results = [at[r] if isinstance(r, Node) else r for r in (results if isinstance(results, (list, tuple)) else [results])]
    for item in list(call.users):
        if item.target is not operator.getitem:
            raise NotImplementedError(f"a region's results that {item.target} takes whole")
        result = results[item.args[1]]
        if isinstance(result, Node) and result not in given:
            result.meta["val"] = _apart(item.meta["val"])
            given.add(result)
        item.replace_all_uses_with(result)
        gm.graph.erase_node(item)
    gm.graph.erase_node(call)


def _apart(val):
    """What is known of a result, in memory of its own: PyTorch may give those of two calls the same."""
    if not isinstance(val, torch.Tensor):
        return val
    with detect_fake_mode([val]) or contextlib.nullcontext():
        return torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=val.device)


def _attribute(gm: GraphModule, value) -> str:
    """The name of an attribute that holds a value."""
    name = f"_region_{sum(key.startswith('_region_') for key in gm.__dict__) + sum(key.startswith('_region_') for key in gm._modules)}"
    setattr(gm, name, value)
    return name
