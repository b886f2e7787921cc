"""A graph as parts that rc compiles and operations that PyTorch runs between them."""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from rc.torch import layout


def stages(gm: GraphModule, foreign: set[Node]) -> dict[Node, int]:
    """For each operation its stage: a stage's compiled part runs first, then its foreign operations.

    A compiled operation comes after the stages of the foreign ones that it needs. Foreign operations that are not pure (random ones)
    keep their order.
    """
    stage: dict[Node, int] = {}
    last_impure = 0
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        needed = [(stage[n], n in foreign) for n in node.all_input_nodes if n in stage]
        if node in foreign:
            stage[node] = max([s for s, _ in needed] + [0])
            if _impure(node):
                stage[node] = last_impure = max(stage[node], last_impure)
        else:
            stage[node] = max([s + 1 if is_foreign else s for s, is_foreign in needed] + [0])
    return stage


def _impure(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return node.is_impure() or torch.Tag.nondeterministic_seeded in tags


def split(gm: GraphModule, foreign: set[Node], compile_part) -> GraphModule:
    """A graph that calls a compiled part for each stage, and the foreign operations themselves.

    `compile_part(part, nodes)` makes a part, a GraphModule, into a function of the same arguments; `nodes` maps its nodes' names to those of
    the whole.
    """
    stage = stages(gm, foreign)
    count = max(stage.values(), default=-1) + 1
    whole = Graph()
    at: dict[Node, Node] = {}
    root: dict[str, object] = {}
    order = {n: i for i, n in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            at[node] = whole.placeholder(node.name)
            at[node].meta = dict(node.meta)
        elif node.op == "get_attr":
            root[node.target] = _attribute(gm, node.target)
            at[node] = whole.get_attr(node.target)
            at[node].meta = dict(node.meta)
    for s in range(count):
        inside = [n for n in gm.graph.nodes if stage.get(n) == s and n not in foreign]
        if inside:
            _add_part(gm, inside, s, whole, at, root, compile_part)
        for node in sorted((n for n in gm.graph.nodes if stage.get(n) == s and n in foreign), key=order.get):
            at[node] = _as_traced(whole, whole.node_copy(node, lambda n: at[n]))
    output = gm.graph.output_node()
    whole.output(_map(output.args[0], at))
    return GraphModule(root, whole)


def _as_traced(whole: Graph, node: Node) -> Node:
    """A foreign operation's result as it lies by its fake kernel, on which compiled parts and their views rely; some kernels do otherwise."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.layout != torch.strided:
        return node
    resolved = not (val.is_conj() or val.is_neg())
    laid = whole.call_function(laid_out, (node, layout.hinted_order(val), resolved))
    laid.meta = dict(node.meta)
    return laid


def laid_out(x, order: list[int] | None, resolved: bool):
    """The tensor, or a copy of it: `resolved`, conjugated and negated in memory; with an order of its dimensions, from slowest to fastest,
    dense and in this order."""
    if not isinstance(x, torch.Tensor):
        return x
    if resolved:
        x = x.resolve_conj().resolve_neg()
    if order is None or x.permute(order).is_contiguous():
        return x
    return x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])


def _attribute(gm: GraphModule, name: str):
    value = gm
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _map(value, at):
    return map_arg(value, lambda n: at[n])


def _add_part(gm, inside, s, whole, at, root, compile_part):
    """A stage's compiled operations as one call of a part."""
    members = set(inside)
    inputs = list(dict.fromkeys(n for node in inside for n in node.all_input_nodes if n not in members and n.op != "get_attr"))
    # Integers bring the values of symbols along, those that data gave too.
    inputs += [n for n in at if n not in inputs and _integer(n)]
    outputs = [n for n in inside if any(u not in members for u in n.users)]
    part = Graph()
    env: dict[Node, Node] = {}
    attributes: dict[str, object] = {}
    for n in inputs:
        env[n] = part.placeholder(n.name)
        env[n].meta = dict(n.meta)
    for node in inside:
        for n in node.all_input_nodes:
            if n.op == "get_attr" and n not in env:
                attributes[n.target] = _attribute(gm, n.target)
                env[n] = part.get_attr(n.target)
                env[n].meta = dict(n.meta)
        env[node] = part.node_copy(node, lambda n: env[n])
    part.output([env[n] for n in outputs])
    function = compile_part(GraphModule(attributes, part), {env[n].name: n for n in inside})
    name = f"rc_{s}"
    root[name] = function
    call = whole.call_module(name, tuple(at[n] for n in inputs))
    for i, n in enumerate(outputs):
        at[n] = whole.call_function(operator.getitem, (call, i))
        at[n].meta = dict(n.meta)


def _integer(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (int, torch.SymInt))
