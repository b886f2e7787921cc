"""Control flow: branches and bodies become functions of their own, which take all that they use as arguments."""

from __future__ import annotations

import contextlib

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx

from rc._native import Dim, Graph
from rc.torch.build import Build, T
from rc.torch.errors import Unsupported, name_of
from rc.torch.ops.table import TABLE

higher_order = torch.ops.higher_order


class Functions:
    """The functions that those of a module call."""

    def __init__(self, device: torch.device):
        self.device = device
        self.modules: list = []
        self.count = 0
        self.node = None
        """The operation of the graph itself that is being translated."""
        self.nodes: dict = {}
        """Operations inside of it, by the names that the compiler has for them."""

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}_{self.count - 1}"

    def add(self, module):
        """A module of a function and all those before it, which it may call."""
        self.modules = [module]


def _function(b: Build, name: str, inputs: list[T], f) -> tuple[str, list[T]]:
    """A function of the module with arguments like `inputs` and the results of `f(build, arguments)`: its name and these."""
    name = b.functions.name(name)
    graph = Graph(name, [(f"x{i}", x.dtype, list(x.shape)) for i, x in enumerate(inputs)])
    inner = Build(graph)
    inner.symbols, inner.functions = b.symbols, b.functions
    outermost = b.functions.node is None
    if outermost:
        b.functions.node = b.node
    results = f(inner, [inner.wrap(v) for v in graph.args()])
    if outermost:
        b.functions.node = None
    if not all(isinstance(r, T) for r in results):
        raise Unsupported("results of branches and loops that are no tensors")
    b.functions.add(graph.finish([r.value for r in results], b.symbols.declarations(), b.functions.modules))
    return name, results


def _graph(b: Build, gm: GraphModule, args: list) -> list[T]:
    """The operations of a subgraph, in the function under construction."""
    from rc.torch.lower import Inner, Problems

    try:
        return Inner(decomposed(gm), b, args).run()
    except Problems as e:
        node, why = e.problems[0]
        raise Unsupported(f"{name_of(node)} inside of it: {why}") from None


def decomposed(gm: GraphModule) -> GraphModule:
    """A subgraph in operations that rc has: those of gradients come as autograd writes them."""
    from rc.torch import decompose

    table = decompose.table()
    if not any(n.op == "call_function" and n.target not in TABLE and n.target in table for n in gm.graph.nodes):
        return gm
    values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    with detect_fake_mode(values) or contextlib.nullcontext():
        return make_fx(Interpreter(gm).run, decomposition_table=table)(*values)


def _tensors(args) -> list[T]:
    return [x for x in args if isinstance(x, T)]


def _with(args, tensors: list[T]) -> list:
    """The arguments with other tensors in the places of theirs; sizes are the same everywhere."""
    rest = iter(tensors)
    return [next(rest) if isinstance(x, T) else x for x in args]


def _bind(b: Build) -> list | None:
    """Symbols have one name in all functions."""
    return [(name, Dim.symbol(name)) for name, *_ in b.symbols.declarations()] or None


def _listed(results) -> list:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _types(results: list[T]) -> list:
    return [(r.dtype, list(r.shape)) for r in results]


def _op(b: Build, name: str, *groups, results: list, **attrs) -> list[T]:
    return _listed(b.op(name, *groups, results=results, bind=_bind(b), **attrs))


def cond(b: Build, predicate, then: GraphModule, otherwise: GraphModule, operands) -> list[T]:
    if not isinstance(predicate, T):
        raise Unsupported("a condition that is no tensor")
    inputs = _tensors(operands)
    branch = lambda name, gm: _function(b, name, inputs, lambda inner, xs: _graph(inner, gm, _with(operands, xs)))
    (first, a), (second, c) = branch("then", then), branch("else", otherwise)
    if _types(a) != _types(c):
        raise Unsupported("branches whose results have other types")
    return _op(b, "core.if", b.truth(b.reshape(predicate, ())), inputs, then=first, results=_types(a), **{"else": second})


def while_loop(b: Build, condition: GraphModule, body: GraphModule, carried, more=()) -> list[T]:
    carried, more = list(carried), list(more)
    if not all(isinstance(x, T) for x in carried):
        raise Unsupported("a loop that changes numbers that are no tensors")
    given = carried + more

    def test(inner: Build, xs: list[T]) -> list[T]:
        (p,) = _graph(inner, condition, _with(given, xs))
        if not isinstance(p, T):
            raise Unsupported("a condition that is no tensor")
        return [inner.truth(inner.reshape(p, ()))]

    go_on, _ = _function(b, "condition", _tensors(given), test)
    step, results = _function(b, "body", _tensors(given), lambda inner, xs: _graph(inner, body, _with(given, xs)))
    if _types(results) != _types(carried):
        raise Unsupported("a loop whose values change their types")
    return _op(b, "core.while", carried, _tensors(more), condition=go_on, body=step, results=_types(carried))


def _for(b: Build, init: list[T], sliced: list[T], more: list, step) -> list[T]:
    """`core.for`: `step(build, values, slices, more)` gives the next values and slices of results."""
    times = sliced[0].shape[0]
    args = _tensors(more)
    rows = [T(x.value, x.dtype, x.shape[1:]) for x in sliced]

    def body(inner: Build, xs: list[T]) -> list[T]:
        n, m = len(init), len(init) + len(sliced)
        return step(inner, xs[:n], xs[n:m], _with(more, xs[m:]))

    name, results = _function(b, "body", init + rows + args, body)
    if _types(results[: len(init)]) != _types(init):
        raise Unsupported("a loop whose values change their types")
    stacked = [(r.dtype, [times, *r.shape]) for r in results[len(init) :]]
    return _op(b, "core.for", init, sliced, args, body=name, times=[times], results=_types(init) + stacked)


def scan(b: Build, combine: GraphModule, init, xs, more=()) -> list[T]:
    return _for(b, list(init), list(xs), list(more), lambda inner, values, rows, more: _graph(inner, combine, values + rows + more))


def map_(b: Build, body: GraphModule, xs, more=()) -> list[T]:
    return _for(b, [], list(xs), list(more), lambda inner, _, rows, more: _graph(inner, body, rows + more))


for _name, _translation in (("cond", cond), ("while_loop", while_loop), ("scan", scan), ("map_impl", map_)):
    _operator = getattr(higher_order, _name, None)
    if _operator is not None:
        TABLE[_operator] = _translation
