"""From a graph of ATen operations to a module of rc."""

from __future__ import annotations

import operator
from collections.abc import Container
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from rc._native import Dim, Graph, Module, RcError
from rc.torch import foreign, layout
from rc.torch.build import Build, C, T
from rc.torch.dtypes import PARTS, element
from rc.torch.errors import Unsupported, python_line
from rc.torch.ops import COMPLEX, random, translation
from rc.torch.ops.complexes import interleaved, view_as_complex
from rc.torch.ops.control import Functions
from rc.torch.symbols import Symbols

# Constants of the graph up to this many elements become part of the module; larger ones are passed at each call.
INLINE = 1024


@dataclass
class Lowered:
    """A module, and how a call's arguments and results map to its inputs and outputs (see `Program.layout`)."""

    module: Module | None
    inputs: list = field(default_factory=list)
    integers: list = field(default_factory=list)
    results: list = field(default_factory=list)
    orders: list = field(default_factory=list)
    """Of each result of the module, its dimensions from slowest to fastest."""
    returns: list = field(default_factory=list)
    captured: list = field(default_factory=list)
    """Tensors of the graph itself, passed after the arguments."""
    lazy: list = field(default_factory=list)
    """Arguments whose negation or conjugation may not be in their memory yet."""
    repeated: list = field(default_factory=list)
    """Arguments that are repeated along dimensions, with these: a call takes one element along each."""
    moved: list = field(default_factory=list)
    """Arguments on the CPU that a GPU's program takes: a call copies them there."""
    fetched: list = field(default_factory=list)
    """Results of the graph that are on the CPU where a GPU computes them: a call copies them there."""
    seeded: bool = False
    """Whether a call draws a seed, passed last."""
    keys: int = 0
    """How many of `captured`, the last, are what random operations add to the seed."""
    device: torch.device = torch.device("cpu")
    nodes: dict[str, Node] = field(default_factory=dict)


class Problems(Exception):
    """Operations that cannot be lowered: (node, reason)."""

    def __init__(self, problems: list[tuple[Node, str]]):
        self.problems = problems
        super().__init__("; ".join(f"{n.target}: {why}" for n, why in problems))


def tensor_problem(val, device: torch.device | None = None) -> str | None:
    """Why rc cannot hold a tensor."""
    if val.layout != torch.strided:
        return f"tensors with the layout {val.layout}"
    if element(val.dtype) is None:
        return f"tensors of {str(val.dtype).removeprefix('torch.')}"
    if val.device.type not in ("cpu", "cuda"):
        return f"tensors on {val.device}"
    if device is not None and val.device != device:
        return f"a tensor on {val.device} among those on {device}"
    return None


def device_of(gm: GraphModule) -> torch.device:
    """The device that a graph computes on: that of most of its values that are not on the CPU, which a GPU computes with the rest."""
    count: dict[torch.device, int] = {}
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and val.device.type != "cpu":
            count[val.device] = count.get(val.device, 0) + 1
    return max(count, key=lambda d: count[d]) if count else torch.device("cpu")


def is_dense(val, symbols: Symbols) -> bool:
    """Whether a tensor's elements lie one after another, in some order of its dimensions."""
    try:
        return layout.dense_order(val, symbols) is not None
    except Unsupported:
        return False


def is_direct(node: Node, device: torch.device, symbols: Symbols) -> bool:
    """Whether every call passes an argument's own memory to the program."""
    val = node.meta["val"]
    own = node.op == "placeholder" and val.device == device
    return own and is_dense(val, symbols) and not (val.is_conj() or val.is_neg())


class Lowering:
    """Lowers one graph; gathers what it cannot, and goes on to find the rest."""

    def __init__(
        self,
        gm: GraphModule,
        names: dict[str, str] | None = None,
        bounds: dict | None = None,
        weights: frozenset[int] = frozenset(),
        called: Container[Node] = frozenset(),
    ):
        """`names`: what placeholders are called in a module that stands alone, whose arguments and results lie row by row; `bounds`: ranges of
        symbols, see `Symbols`; `weights`: the placeholders, by their numbers, that are the same at most calls; `called`: operations that
        PyTorch is to run, beside the custom ones."""
        self.gm = gm
        self.names = names
        self.weights = weights
        self.called = called
        self.symbols = Symbols(bounds)
        self.device = device_of(gm)
        self.env: dict[Node, object] = {}
        self.problems: list[tuple[Node, str]] = []
        self.bound: set[str] = set()
        """Symbols whose values a call gives: sizes of arguments, integers, sizes that a foreign operation brings."""
        self.out = Lowered(None, device=self.device)
        self.placeholders = {n: i for i, n in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
        self.attributes: list[Node] = []
        self.bases: set[Node] = set()
        self.orders: dict[Node, list[int]] = {}
        tensors = [n.meta["val"] for n in self.placeholders if isinstance(n.meta.get("val"), torch.Tensor)]
        self.shared = {layout.storage(val) for val in tensors if tensor_problem(val) is None}
        """Memory of arguments, and of results that calls copy."""

    def run(self) -> Lowered:
        inputs = self._inputs()
        self.updates = self._updates(inputs)
        self.updated = set(self.updates.values())
        plan = self._plan_outputs()
        used = [n for n in inputs if n.users or n in self.bases or n in self.updated]
        args = [self._argument(node) for node in used] + self._seed()
        self.graph = Graph("main", args, self._those(used, self._is_weight), self._those(used, self.updated.__contains__))
        self.build = Build(self.graph)
        self.build.functions = Functions(self.device)
        if self.out.seeded:
            *self.build.keys, self.build.seed = map(self.build.wrap, self.graph.args()[len(used) :])
        for node, value in zip(used, self.graph.args(), strict=False):
            self._bind_argument(node, value)
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                self.out.nodes[node.name] = node
                self._node(node)
        self._finish(plan)
        if self.problems:
            raise Problems(self.problems)
        return self.out

    # Inputs

    def _inputs(self) -> list[Node]:
        """The nodes that become the function's arguments; integers are symbols instead."""
        nodes = []
        for position, node in enumerate(self.placeholders):
            val = node.meta.get("val")
            if isinstance(val, torch.Tensor):
                if (why := self._problem_inside(val)) is None:
                    nodes.append(node)
                else:
                    # Only what uses it is a problem; a graph may pass it through.
                    self.env[node] = Unsupported(why)
            elif isinstance(val, (torch.SymInt, int)) and not isinstance(val, bool):
                dim = self.symbols.dim(val)
                self.env[node] = dim
                if repr(dim) in self.symbols.ranges:
                    self.out.integers.append((position, repr(dim)))
                    self.bound.add(repr(dim))
            else:
                self.env[node] = Unsupported(f"an argument of type {type(val).__name__}")
        for node in self.gm.graph.nodes:
            if node.op == "get_attr":
                value = getattr(self.gm, node.target, None)
                if not isinstance(value, torch.Tensor) or (why := self._problem_inside(value)):
                    self.env[node] = Unsupported(why if isinstance(value, torch.Tensor) else "a submodule")
                elif value.numel() > INLINE or value.device.type != "cpu":
                    node.meta["val"] = value
                    self.attributes.append(node)
                    nodes.append(node)
        return nodes

    def _is_weight(self, node: Node) -> bool:
        """Whether what follows from an argument alone is kept between calls."""
        val = node.meta["val"]
        lazy = val.is_conj() or val.is_neg()
        return self.device.type == "cpu" and node.op == "placeholder" and not lazy and self.placeholders[node] in self.weights

    def _updates(self, inputs: list[Node]) -> dict[int, Node]:
        """The results that are left in arguments, by their places among the graph's, and the arguments."""
        asked, known = self.gm.graph.output_node().meta.get("rc.updates", {}), set(inputs) if self.names is None else set()
        return {place: node for place, node in asked.items() if node in known and is_direct(node, self.device, self.symbols)}

    def _those(self, nodes: list[Node], condition) -> list[int]:
        return [i for i, node in enumerate(nodes) if condition(node)]

    def _argument(self, node: Node):
        val = node.meta["val"]
        repeated = self._repeated(node)
        for d in repeated:
            val = val.narrow(d, 0, 1)
        order = self._order(val)
        self.orders[node] = order
        if node.op == "get_attr":
            position = len(self.placeholders) + len(self.out.captured)
            self.out.captured.append(val.resolve_conj().resolve_neg().to(self.device))
        else:
            position = self.placeholders[node]
            if val.device != self.device:
                self.out.moved.append(position)
            if val.is_conj() or val.is_neg():
                self.out.lazy.append(position)
            if repeated:
                self.out.repeated.append((position, repeated))
        sizes = self.symbols.dims(val.shape)
        physical = [sizes[d] for d in order]
        self._bind(sizes)
        self.out.inputs.append((position, order, physical, val.dtype in PARTS))
        name = (self.names or {}).get(node.name, node.name)
        return (name, element(val.dtype), physical + [2] * (val.dtype in PARTS))

    def _repeated(self, node: Node) -> list[int]:
        """The dimensions along which an argument has one element again and again, as `expand` gives it."""
        if node.op != "placeholder" or self.names is not None or node in self.bases:
            return []
        val = node.meta["val"]
        known = lambda n: type(n) is int
        return [d for d, (size, step) in enumerate(zip(val.shape, val.stride())) if known(size) and known(step) and size > 1 and step == 0]

    def _seed(self) -> list:
        """The arguments that random operations take: what each adds to the seed, and the seed, which each call draws."""
        operations = random.count(self.gm.graph)
        self.out.seeded = operations > 0
        if not self.out.seeded:
            return []
        keys = random.keys(operations, self.device)
        first = len(self.placeholders) + len(self.out.captured)
        self.out.captured += keys
        self.out.keys = len(keys)
        self.out.inputs += [(first + i, [], [], False) for i in range(len(keys) + 1)]
        return [*((f"rc.key{i}", "i64", []) for i in range(len(keys))), ("rc.seed", "i64", [])]

    def _order(self, val) -> list[int]:
        if self.names is not None:
            return layout.row_major(val.dim())
        return layout.dense_order(val, self.symbols) or layout.row_major(val.dim())

    def _bind_argument(self, node: Node, value):
        order = self.orders[node]
        back = [order.index(d) for d in range(len(order))]
        if node.meta["val"].dtype in PARTS:
            self.env[node] = view_as_complex(self.build, self.build.permute(self.build.wrap(value), [*back, len(order)]))
        else:
            moved = self.build.permute(self.build.wrap(value), back)
            self.env[node] = self.build.expand(moved, self.symbols.dims(node.meta["val"].shape)) if self._repeated(node) else moved

    # Operations

    def _node(self, node: Node):
        line = python_line(node)
        self.graph.at(self._name(node), *(line or (None, 0)), node.meta.get("rc.again", False))
        try:
            self.env[node] = self._convert(node)
        except Unsupported as why:
            self._problem(node, str(why))
        except RcError as e:
            self._problem(node, "; ".join(d[0] for d in e.diagnostics))

    def _name(self, node: Node) -> str:
        """What the compiler calls a node in its messages."""
        return node.name

    def _convert(self, node: Node):
        val = node.meta.get("val")
        self._check_symbols(val)
        if isinstance(val, (torch.SymInt, int)) and not isinstance(val, bool):
            return self.symbols.dim(val)
        if node.target is operator.getitem:
            return self._value(node.args[0])[node.args[1]]
        if node in self.called:
            return self._foreign(node)
        is_complex = any(v.is_complex() for v in [*_tensors(val), *(t for n in node.all_input_nodes for t in _tensors(n.meta.get("val")))])
        convert = COMPLEX.get(node.target) if is_complex else translation(node.target)
        if convert is None and foreign.is_custom(node.target):
            return self._foreign(node)
        if convert is None:
            raise Unsupported("rc has no translation of this operation" + " for complex numbers" * is_complex)
        for v in _tensors(val):
            if why := self._problem_inside(v):
                raise Unsupported(why)
        args = torch.fx.node.map_aggregate(node.args, self._value)
        kwargs = torch.fx.node.map_aggregate(node.kwargs, self._value)
        self.build.node = node
        self.build.symbols = self.symbols
        return self._checked(val, convert(self.build, *args, **kwargs))

    def _foreign(self, node: Node):
        """An operation that PyTorch runs."""
        val = node.meta.get("val")
        for v in _tensors(val):
            if why := tensor_problem(v, self.device):
                raise Unsupported(why)
        self.build.symbols = self.symbols
        return self._checked(val, foreign.call(self.build, node, self.device, self._value))

    def _problem_inside(self, val) -> str | None:
        """Why rc cannot hold a tensor that is no result. What PyTorch has on the CPU is on the GPU with the rest."""
        return tensor_problem(val, None if val.device.type == "cpu" else self.device)

    def _check_symbols(self, val):
        """That every symbol in the sizes of a result has a value before the operation runs."""
        known, self.symbols.ranges = self.symbols.ranges, {}
        self._sizes(val)
        used, self.symbols.ranges = self.symbols.ranges, known
        if not self.bound.issuperset(used):
            raise Unsupported("a size that depends on data")
        known.update(used)

    def _sizes(self, val) -> list:
        if isinstance(val, torch.SymInt):
            return [self.symbols.dim(val)]
        return [size for t in _tensors(val) for size in self.symbols.dims(t.shape)]

    def _bind(self, sizes):
        self.bound.update(repr(size) for size in sizes if repr(size) in self.symbols.ranges)

    def _value(self, arg):
        if not isinstance(arg, Node):
            return arg
        if arg.op == "get_attr" and isinstance(value := getattr(self.gm, arg.target), GraphModule):
            return value
        if arg.op == "get_attr" and arg not in self.env:
            self.env[arg] = self._literal(value)
        value = self.env[arg]
        if isinstance(value, Unsupported):
            raise value
        return value

    def _literal(self, value: torch.Tensor):
        if value.is_complex():
            return view_as_complex(self.build, self.build.dense(torch.view_as_real(value.resolve_conj().resolve_neg()), element(value.dtype)))
        return self.build.dense(value.resolve_neg(), element(value.dtype))

    def _checked(self, val, result):
        """That a translation gives what PyTorch says that the operation gives."""
        if isinstance(val, torch.Tensor):
            if val.is_complex() and isinstance(result, C):
                part = torch.empty_like(val, dtype=PARTS[val.dtype], device="meta")
                return C(self._checked(part, result.re), self._checked(part, result.im))
            sizes = tuple(self.symbols.dims(val.shape))
            if isinstance(result, T) and result.dtype == element(val.dtype) and _may_equal(result.shape, sizes):
                # Sizes may be written otherwise here and there; PyTorch knows them to be equal.
                return self.build.assume(result, sizes)
            found = f"{result.dtype} {list(result.shape)}" if isinstance(result, T) else type(result).__name__
            raise Unsupported(f"translated to {found}, where {element(val.dtype)} {list(val.shape)} is expected")
        if isinstance(val, (list, tuple)):
            return [self._checked(v, r) if r is not None else None for v, r in zip(val, result, strict=True)]
        return result

    def _problem(self, node: Node, why: str):
        self.problems.append((node, why))
        val = node.meta.get("val")
        try:
            # What runs outside brings its sizes, and an integer that it gives is an argument of what follows.
            self._bind(self._sizes(val))
            if isinstance(val, torch.SymInt):
                self.env[node] = self.symbols.dim(val)
                return
            self.env[node] = self._stand_in(val)
        except (Unsupported, RcError):
            self.env[node] = Unsupported(f"it needs the result of {node.name}")

    def _stand_in(self, val):
        """A value of the right type, so that the rest of the graph can be looked at too."""
        if isinstance(val, torch.Tensor):
            if why := tensor_problem(val):
                raise Unsupported(why)
            zeros = self.build.full(0, element(val.dtype), self.symbols.dims(val.shape))
            return C(zeros, zeros) if val.is_complex() else zeros
        if isinstance(val, (list, tuple)):
            return [self._stand_in(v) for v in val]
        raise Unsupported("no tensor")

    # Results

    def _plan_outputs(self) -> list:
        """For each result of the graph: ("constant", x), ("int", node), ("arg", i), ("view", base node, node), ("update", node,
        argument) or ("new", node)."""
        args = {}
        for i, node in enumerate(self.placeholders):
            val = node.meta.get("val")
            if isinstance(val, torch.Tensor) and tensor_problem(val, self.device) is None and is_dense(val, self.symbols):
                args.setdefault(layout.storage(val), node)
        outputs = list(self.gm.graph.output_node().args[0])
        wholes = self._wholes([out for place, out in enumerate(outputs) if place not in self.updates], args)
        updated = lambda place, out: ("update", out, self.updates[place])
        return [updated(i, out) if i in self.updates else self._plan_output(out, args, wholes) for i, out in enumerate(outputs)]

    def _wholes(self, outputs, args) -> dict[int, Node]:
        """For each new memory among the results, a result that is all of it."""
        wholes = {}
        for out in outputs:
            val = out.meta.get("val") if isinstance(out, Node) else None
            if isinstance(val, torch.Tensor) and tensor_problem(val, self.device) is None and layout.storage(val) not in args:
                if is_dense(val, self.symbols) and self._fills(val):
                    wholes.setdefault(layout.storage(val), out)
        return wholes

    def _fills(self, val) -> bool:
        bytes_ = val.untyped_storage().nbytes()
        offset = val.storage_offset()
        if isinstance(bytes_, torch.SymInt) or isinstance(offset, torch.SymInt):
            return False
        return offset == 0 and all(isinstance(s, int) for s in val.shape) and val.numel() * val.element_size() == bytes_

    def _plan_output(self, out, args, wholes):
        if not isinstance(out, Node):
            return ("constant", out)
        val = out.meta.get("val")
        if self.names is not None:
            return ("new", out)
        if out.op == "placeholder":
            return ("arg", self.placeholders[out])
        if not isinstance(val, torch.Tensor):
            return ("int", out)
        if tensor_problem(val, self.device) is None and out.op != "get_attr":
            for bases in (args, wholes):
                base = bases.get(layout.storage(val))
                if base is not None and base is not out and _alike(val, base.meta["val"]) and _static(val, base.meta["val"]):
                    if base.op == "placeholder":
                        self.bases.add(base)
                    return ("view", base, out)
        return ("new", out)

    def _finish(self, plan):
        values, index, left = [], {}, []
        args = {position: i for i, (position, *_) in enumerate(self.out.inputs)}
        for entry in plan:
            node = entry[1]
            if entry[0] == "int" and isinstance(node.meta.get("val"), torch.SymFloat):
                self.problems.append((node, "a number that depends on sizes and is no integer, as a result"))
            if entry[0] == "update" or entry[0] == "new" and node not in index:
                try:
                    value = self._value(node)
                    self._check_result(node.meta["val"])
                except Unsupported as why:
                    if not self.problems:
                        self.problems.append((node, str(why)))
                    continue
                if entry[0] == "update":
                    left.append((len(values), args[self.placeholders[entry[2]]]))
                    values.append(self._result(node, value, self.orders[entry[2]]))
                    continue
                index[node] = len(values)
                values.append(self._result(node, value))
        if self.problems:
            return
        for place, entry in enumerate(plan):
            self.out.returns.append(self._return(entry, index))
            if entry[0] == "new" and entry[1].meta["val"].device != self.device:
                self.out.fetched.append(place)
        if values or self.out.inputs:
            functions = self.build.functions.modules
            self.out.nodes.update(self.build.functions.nodes)
            self.out.module = self.graph.finish([v.value for v in values], self.symbols.declarations(), functions, left)

    def _check_result(self, val):
        """That a result can be given: one on the CPU, which a GPU computes, is a copy, and must share memory with no other and no argument."""
        if why := self._problem_inside(val):
            raise Unsupported(why)
        if val.device != self.device:
            if layout.storage(val) in self.shared:
                raise Unsupported(f"a result on {val.device} that shares memory with another or with an argument, in a graph on {self.device}")
            self.shared.add(layout.storage(val))

    def _result(self, node: Node, value: T, order: list[int] | None = None) -> T:
        """A result as it lies in memory: with its dimensions in this order, from the slowest to the fastest, or in its own."""
        val = node.meta["val"]
        order = self._order(val) if order is None else order
        sizes = self.symbols.dims(val.shape)
        self.out.results.append((sizes, layout.strides_of(sizes, order), val.dtype))
        self.out.orders.append(order)
        if isinstance(value, C):
            return self.build.permute(interleaved(self.build, value), [*order, len(order)])
        return self.build.permute(value, order)

    def _return(self, entry, index):
        match entry:
            case ("new", node):
                return ("result", index[node])
            case ("update", _, argument):
                return ("arg", self.placeholders[argument])
            case ("int", node):
                return ("int", self._value(node))
            case ("view", base, node):
                val, root = node.meta["val"], base.meta["val"]
                at = ("arg", self.placeholders[base]) if base.op == "placeholder" else ("result", index[base])
                offset = val.storage_offset() - root.storage_offset()
                return ("view", (at, self.symbols.dims(val.shape), self.symbols.dims(val.stride()), self.symbols.dim(offset)))
            case _:
                return entry


class Inner(Lowering):
    """Lowers a subgraph into a function under construction, where all that it uses is there as arguments."""

    def __init__(self, gm: GraphModule, build: Build, args: list):
        self.gm, self.build, self.graph, self.symbols = gm, build, build.graph, build.symbols
        self.device, self.outer = build.functions.device, build.functions.node
        self.called = frozenset()
        self.problems: list[tuple[Node, str]] = []
        self.bound = set(self.symbols.ranges)
        self.env: dict[Node, object] = dict(zip((n for n in gm.graph.nodes if n.op == "placeholder"), args, strict=True))

    def run(self) -> list:
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                if node.target in random.OPERATIONS:
                    self._problem(node, "random numbers inside of branches and loops")
                else:
                    self._node(node)
            elif node.op == "get_attr" and isinstance(value := getattr(self.gm, node.target), torch.Tensor):
                self._constant(node, value)
        results = self.gm.graph.output_node().args[0]
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        if self.problems:
            raise Problems(self.problems)
        return [self._value(r) for r in results]

    def _foreign(self, node: Node):
        raise Unsupported("an operation that PyTorch runs inside of branches and loops")

    def _name(self, node: Node) -> str:
        name = f"{self.outer.name}.{node.name}"
        self.build.functions.nodes[name] = self.outer
        return name

    def _constant(self, node: Node, value):
        why = self._problem_inside(value) or ("a large constant inside of a branch or a loop" if value.numel() > INLINE else None)
        if why:
            self.env[node] = Unsupported(why)


def _may_equal(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(x == y or isinstance(x, Dim) or isinstance(y, Dim) for x, y in zip(a, b))


def _alike(val, base) -> bool:
    """Whether elements mean the same."""
    return (val.dtype, val.is_conj(), val.is_neg()) == (base.dtype, base.is_conj(), base.is_neg())


def _static(*vals) -> bool:
    return all(isinstance(v.storage_offset(), int) for v in vals)


def _tensors(val):
    if isinstance(val, torch.Tensor):
        return [val]
    if isinstance(val, (list, tuple)):
        return [t for v in val for t in _tensors(v)]
    return []
