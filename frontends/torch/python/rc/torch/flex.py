"""`flex_attention`: the functions of scores and masks, and their gradients, as operations on all scores at once."""

from __future__ import annotations

import operator

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def _dense() -> dict:
    """PyTorch's own definitions, by operation."""
    from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward, sdpa_dense, sdpa_dense_backward

    return {flex_attention: sdpa_dense, flex_attention_backward: sdpa_dense_backward}


def expand(gm: GraphModule) -> None:
    """Replaces attention with functions of scores by the operations that it is defined by, in place."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and str(n.target).startswith("flex_attention")]
    if not nodes:
        return
    dense = _dense()
    for node in nodes:
        if node.target in dense:
            results = _inline(gm, node, _traced(gm, node, dense[node.target]))
            _replace(node, results)
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def _is_value(x) -> bool:
    return isinstance(x, Node) and not (x.op == "get_attr" and "val" not in x.meta)


def _traced(gm: GraphModule, node: Node, definition):
    """The definition's graph for a node, over the values among its arguments, and the form of its results."""
    leaves, form = pytree.tree_flatten((node.args, dict(node.kwargs)), is_leaf=lambda x: isinstance(x, Node))
    given = [x for x in leaves if _is_value(x)]
    forms = []

    def run(*values):
        rest = iter(values)
        full = [next(rest) if _is_value(x) else operator.attrgetter(x.target)(gm) if isinstance(x, Node) else x for x in leaves]
        args, kwargs = pytree.tree_unflatten(full, form)
        results, results_form = pytree.tree_flatten(definition(*args, **kwargs))
        forms[:] = [results_form]
        return results

    from rc.torch import decompose

    values = [x.meta["val"] for x in given]
    with detect_fake_mode(values), enable_python_dispatcher():
        traced = make_fx(run, decomposition_table=decompose.table())(*values)
    return traced, given, forms[0]


def _inline(gm: GraphModule, node: Node, traced) -> object:
    """Copies the graph's operations before the node; gives its results."""
    inner, given, form = traced
    env: dict[Node, Node] = dict(zip((n for n in inner.graph.nodes if n.op == "placeholder"), given, strict=True))
    with gm.graph.inserting_before(node):
        for n in inner.graph.nodes:
            if n.op == "get_attr":
                name = f"_{node.name}{n.target}"
                gm.register_buffer(name, getattr(inner, n.target), persistent=False)
                env[n] = gm.graph.get_attr(name)
            elif n.op == "call_function":
                env[n] = gm.graph.node_copy(n, lambda x: env[x])
                if n.target is aten.copy_.default:
                    # It fills memory that the definition made for its results.
                    env[n].target = aten.copy.default
                env[n].meta |= {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
    results = [env.get(r, r) if isinstance(r, Node) else r for r in inner.graph.output_node().args[0]]
    return pytree.tree_unflatten(results, form)


def _replace(node: Node, results):
    """Puts the results in the place of what takes the node's apart."""
    for user in list(node.users):
        part = results[user.args[1]]
        if isinstance(part, Node):
            user.replace_all_uses_with(part)
        else:
            _replace(user, part)
        user.graph.erase_node(user)
