"""Arguments that a graph writes to: parameters in an optimizer's step, caches, counters, running statistics.

AOTAutograd ends such a graph by copying each new value into its argument. The compiled function leaves the new value there itself. Where the new value
is the old one with new elements at some places, as a cache's is after a token, only these are written: by the function too, where nothing else
reads the old value; else the graph gives them as results, and they are put in place after the function.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from rc.torch.foreign import is_custom
from rc.torch.lower import device_of, is_direct
from rc.torch.symbols import Symbols

aten = torch.ops.aten

_VIEW_OF = {aten.slice_scatter.default: aten.slice.Tensor, aten.select_scatter.default: aten.select.int}
_PUT = {aten.index_put.default: aten.index_put_.default, aten._unsafe_index_put.default: aten.index_put_.default}


@dataclass(frozen=True)
class Result:
    """A result of the graph in the arguments of an operation."""

    position: int


@dataclass(frozen=True)
class Write:
    """Views of an argument, one of another, and what writes to the last: operations with their further arguments."""

    argument: int
    views: list[tuple]
    target: object
    args: tuple

    def run(self, argument: torch.Tensor, results: list):
        for view, args in self.views:
            argument = view(argument, *_filled(args, results))
        self.target(argument, *_filled(self.args, results))


def _filled(args, results: list):
    """Arguments with the results in their places. It runs at every call."""
    if isinstance(args, (tuple, list)):
        return [_filled(arg, results) for arg in args]
    return results[args.position] if isinstance(args, Result) else args


class Writing:
    """A compiled function, and what is written to its arguments after it."""

    def __init__(self, function, writes: list[Write], count: int):
        self._boxed_call = True
        self.function, self.writes, self.count = function, writes, count
        self.counted: tuple[int, ...] = ()
        """Arguments whose writes are counted here."""

    def count_writes(self, arguments: list[int]):
        """Has calls count writes to these arguments, as AOTAutograd does: autograd finds by them that what it kept was changed."""
        by_pytorch = {write.argument for write in self.writes}
        self.counted = tuple(i for i in arguments if i not in by_pytorch)

    def __call__(self, *args):
        """Takes the arguments, or one list of them, which it empties; gives the first results, those of the graph's own."""
        given = args[0] if len(args) == 1 and isinstance(args[0], list) else list(args)
        if self.counted:
            torch.autograd.graph.increment_version([given[i] for i in self.counted])
        written = [given[write.argument] for write in self.writes]
        results = self.function(given)
        if written:
            with torch.no_grad():
                for write, argument in zip(self.writes, written):
                    write.run(argument, results)
        return results[: self.count]


def separate(gm: GraphModule) -> tuple[list[Write], int]:
    """Takes the writes out of a graph, whose results are then what they need too; gives them, and the number of its results before. The output's
    `rc.updates` says which results are to be left in which arguments."""
    copies = [n for n in gm.graph.nodes if n.op == "call_function" and n.target is aten.copy_.default and n.args[0].op == "placeholder"]
    output = gm.graph.output_node()
    results = list(output.args[0])
    count = len(results)
    if not copies:
        return [], count
    placeholders = {n: i for i, n in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    written = {n.args[0] for n in copies}
    device = device_of(gm)
    # A program writes to no argument before the last call of such an operation, which may fail.
    calls_nothing = not any(n.op == "call_function" and is_custom(n.target) for n in gm.graph.nodes)

    def given(arg):
        """The argument as the operation after the graph gets it."""
        if isinstance(arg, (list, tuple)):
            return [given(x) for x in arg]
        if not isinstance(arg, Node):
            return arg
        if _root(arg) in written:
            # It is read before anything is written.
            with gm.graph.inserting_before(output):
                copy = gm.graph.call_function(aten.clone.default, (arg,))
            copy.meta = dict(arg.meta)
            copy.meta["val"] = aten.clone.default(arg.meta["val"])
            arg = copy
        results.append(arg)
        return Result(len(results) - 1)

    writes = []
    updated = {}
    for node in copies:
        argument, value = node.args[:2]
        in_place = calls_nothing and _puts_in_place(argument, value, node) and is_direct(argument, device, Symbols())
        for views, target, args in [_whole(value)] if in_place else _writes(argument, value):
            views = [(view, given(more)) for view, more in views]
            writes.append(Write(placeholders[argument], views, target, tuple(given(list(args)))))
            if target is aten.copy_.default and not views and _alike(argument, value):
                updated[len(results) - 1] = argument
        # What the graph returns as the written argument is the argument.
        results[:count] = [argument if r is node else r for r in results[:count]]
        node.replace_all_uses_with(value, delete_user_cb=lambda user: user is not output)
    output.args = (tuple(results),)
    output.meta["rc.updates"] = updated
    for node in copies:
        gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return writes, count


def remaining(writes: list[Write], function) -> list[Write]:
    """The writes that the compiled function has not done itself."""
    done = getattr(function, "updated", ())
    return [write for write in writes if write.argument not in done]


def _alike(argument: Node, value) -> bool:
    """Whether the value can be left in the argument's memory: it has the same sizes and elements of the same type."""
    old, new = argument.meta["val"], value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(new, torch.Tensor) and old.dtype == new.dtype and old.device == new.device and tuple(old.shape) == tuple(new.shape)


def _root(node: Node) -> Node:
    """The tensor whose memory a view shows."""
    while node.op == "call_function" and (node.target is operator.getitem or _is_view(node.target)) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _is_view(target) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _writes(argument: Node, value: Node) -> list[tuple]:
    """What makes the argument this value, in order: (views, operation, further arguments)."""
    writes = []
    while value is not argument:
        step = _step([], value)
        if step is None:
            return [_whole(value)]
        before, *write = step
        writes.insert(0, tuple(write))
        value = before
    return writes


def _whole(value: Node) -> tuple:
    return [], aten.copy_.default, (value,)


def _puts_in_place(argument: Node, value: Node, copy: Node) -> bool:
    """Whether a value is the argument with new elements at some places, and nothing else reads what was there before."""
    while value.op == "call_function" and value.target in _PUT and not value.kwargs:
        before = value.args[0]
        if before is argument:
            return set(argument.users) == {value, copy}
        if not isinstance(before, Node) or set(before.users) != {value}:
            return False
        value = before
    return False


def _step(views: list[tuple], value: Node) -> tuple | None:
    """The value before new elements were put into these views of it, and what puts them; None where it is not made so."""
    if value.op != "call_function":
        return None
    if value.target in _PUT and not (len(value.args) > 3 and value.args[3]) and not value.kwargs:
        before = _base(value.args[0], views)
        return (before, views, _PUT[value.target], value.args[1:3]) if before is not None else None
    view = _VIEW_OF.get(value.target)
    if view is None or value.kwargs:
        return None
    base, source, *more = value.args
    before = _base(base, views)
    if before is None:
        return None
    inner = [*views, (view, list(more))]
    if isinstance(source, Node) and (step := _step(inner, source)) is not None and step[0] is before:
        return step
    return before, inner, aten.copy_.default, (source,)


def _base(node: Node, views: list[tuple]) -> Node | None:
    """What a node shows these views of; None where it shows others."""
    for view, more in reversed(views):
        if node.op != "call_function" or node.target is not view or list(node.args[1:]) != more or node.kwargs:
            return None
        node = node.args[0]
    return node
