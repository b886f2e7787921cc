"""Graphs of ATen operations without AOTAutograd, where there is nothing for it to do.

AOTAutograd runs a graph twice, under PyTorch's proxies: seconds for a model of some hundred operations. A graph that gives new tensors is run once
instead, by a `Recorder`; for training too, where rc differentiates all of its operations. What models repeat is not run again: a call of the same
function, with arguments of the same metadata, has the operations of the first. A size that is known by name stands in the graph as a node that computes it.
"""

from __future__ import annotations

import operator

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import disable_autocast_cache
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from rc.torch import decompose, layout, logs
from rc.torch.record import GiveUp, Handle, Memory, Op, Recorder, Value, mapped

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
_NUMBERS = (int, torch.SymInt)
_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
_INERT = {torch._C._log_api_usage_once}
"""Functions without tensors that change nothing."""


def trace(gm: GraphModule, example_inputs) -> GraphModule | None:
    """The graph in ATen operations, with `val` in each node's `meta`, or None where it takes AOTAutograd to be right.

    For training, the graph's `meta` has `rc.gradients`: the numbers of the results that have gradients, and those of the arguments that they
    need them for. Arguments that it changes are copied to at its end."""
    training = needs_gradients(example_inputs)
    if (why := _unfit(gm, example_inputs)) is not None:
        _left(training, why)
        return None
    state = _modes()
    try:
        mode = _mode(gm) or TracingContext.get().fake_mode
        with mode, enable_python_dispatcher(), disable_autocast_cache():
            return _Trace(gm, example_inputs, mode, training).run()
    except Exception as e:  # noqa: BLE001 - AOTAutograd traces it, or says in its own words why not
        _left(training, _said(e))
        _restore(state)
        return None


def _left(training: bool, why: str):
    logs.say("autograd" if training else "time", f"left to AOTAutograd: {why}")


def _said(e: Exception) -> str:
    return str(e) if isinstance(e, GiveUp) else f"{type(e).__name__}: {e}"


def needs_gradients(example_inputs) -> bool:
    """Whether a graph is one of training."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)


def has_key(gm: GraphModule, example_inputs) -> bool:
    """Whether a graph is one that is traced without AOTAutograd, and follows from its nodes and inputs alone."""
    numbers = any(isinstance(x, _NUMBERS) for x in example_inputs)
    return not numbers and not needs_gradients(example_inputs) and _unfit(gm, example_inputs) is None


def _mode(gm: GraphModule) -> FakeTensorMode | None:
    """The mode of the fake tensors by which Dynamo knows the arguments, where it is one."""
    examples = [node.meta.get("example_value") for node in gm.graph.nodes if node.op == "placeholder"]
    modes = {id(x.fake_mode): x.fake_mode for x in examples if type(x) is FakeTensor}
    return next(iter(modes.values())) if len(modes) == 1 else None


def _unfit(gm: GraphModule, example_inputs) -> str | None:
    """Why a graph and its inputs need AOTAutograd, as far as they show it."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fakify_first_call:
        return "a graph that Dynamo does not know by fake tensors"
    if not all(type(x) in _PLAIN + _NUMBERS for x in example_inputs):
        return "an argument that is no plain tensor"
    if next(gm.parameters(), None) is not None:
        return "a graph with parameters of its own"
    transform = next((node for node in gm.graph.nodes if _is_transform(node)), None)
    return None if transform is None else f"a transform, {transform.name}"


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


class _Trace:
    """One run of a graph that Dynamo captured."""

    def __init__(self, gm: GraphModule, example_inputs, mode: FakeTensorMode, training: bool):
        self.gm, self.example_inputs, self.mode, self.training = gm, example_inputs, mode, training
        self.recorder = Recorder(decompose.table(), mode, training)
        self.env: dict[Node, object] = {}
        self.templates: dict[tuple, Template] = {}
        self.keys: dict[int, tuple[FakeTensor, tuple]] = {}
        """The metadata of fake tensors, by their identity."""

    def run(self) -> GraphModule:
        arguments, given, inputs = [], [], iter(self.example_inputs)
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                value = self.env[node] = self._argument(node, next(inputs))
                arguments.append(value)
                given.append(value.value if type(value) is Handle else Value(None, None, value))
            elif node.op == "output":
                return self._graph(arguments, given, self._results(node, arguments))
            else:
                self._node(node)
        raise GiveUp("a graph without results")

    def _node(self, node: Node):
        """Runs a node that is neither argument nor result of a graph."""
        if node.op == "get_attr" and self.training and all(user.target is _CHECKPOINT for user in node.users):
            self.env[node] = getattr(node.graph.owning_module, node.target)
        elif node.op in ("call_function", "call_method"):
            self.env[node] = self._checkpoint(node) if node.target is _CHECKPOINT else self._call(node)
        else:
            raise GiveUp(f"a node {node.op}")

    def _checkpoint(self, node: Node):
        """The results of a function whose inner values are computed again for its derivative: its operations are marked."""
        graph, *args = _of_nodes(node.args, self.env)
        if "_checkpoint_context_fn" in graph.meta:
            raise GiveUp("a checkpoint that chooses what is kept")
        recorder, inner = self.recorder, iter(graph.graph.nodes)
        first, versions = len(recorder.ops), [(a, a.memory.version) for a in args if isinstance(a, Handle)]
        for argument, placeholder in zip(args, inner):
            self.env[placeholder] = argument
        for part in inner:
            if part.op == "output":
                break
            self._node(part)
        results = _of_nodes(part.args[0], self.env)
        if any(a.memory.version != version for a, version in versions):
            raise GiveUp("a checkpoint that changes what it is given")
        given = {id(r.read().op) for r in (results if isinstance(results, (tuple, list)) else [results]) if isinstance(r, Handle)}
        for op in recorder.ops[first:]:
            op.again = id(op) not in given
        return results

    def _graph(self, arguments: list, given: list[Value], results: list[tuple[Value, FakeTensor]]) -> GraphModule:
        """`given` are the values of the arguments at the start."""
        handles = [(i, h, value) for i, (h, value) in enumerate(zip(arguments, given)) if type(h) is Handle]
        changed = [(i, h.read()) for i, h, value in handles if h.value is not value]
        gm = graph_of(given, self.recorder.ops, results, changed)
        if self.training:
            wanted = [i for i, (value, _) in enumerate(results) if value.requires_grad]
            reached = _reached([results[i][0] for i in wanted])
            gm.meta["rc.gradients"] = wanted, [i for i, value in enumerate(given) if id(value) in reached]
        return gm

    def _argument(self, node: Node, given: torch.Tensor | int | torch.SymInt) -> Handle | int | torch.SymInt:
        known = node.meta.get("example_value")
        if isinstance(given, _NUMBERS):
            return mapped(known, None) if isinstance(known, _NUMBERS) else given
        fake = given if type(given) is FakeTensor else known
        if type(fake) is not FakeTensor or fake.fake_mode is not self.mode or _hinted(fake) != _hinted(given):
            raise GiveUp("an argument that Dynamo knows otherwise")
        requires_grad = self.training and fake.requires_grad
        fake = fake.detach() if requires_grad else fake
        return Handle(Value(None, None, fake, requires_grad=requires_grad), fake, Memory(is_argument=True))

    def _results(self, node: Node, arguments: list) -> list[tuple[Value, FakeTensor]]:
        """The values of the results, each with a fake tensor of memory that is no other's."""
        results = _of_nodes(list(node.args[0]), self.env)
        if not all(type(r) is Handle and r.read().op is not None and not r.fake.requires_grad for r in results):
            raise GiveUp("a result is no tensor that the graph computes")
        if any(r.memory.is_argument for r in results) or len({id(r.memory) for r in results}) < len(results):
            raise GiveUp("results share memory")
        if len({id(r.value) for r in results}) < len(results):
            raise GiveUp("results are one value")
        taken = {layout.storage(a.fake) for a in arguments if type(a) is Handle}
        found = []
        for r in results:
            fake = r.fake
            if layout.storage(fake) in taken:
                fake = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
            taken.add(layout.storage(fake))
            found.append((r.value, fake))
        return found

    # Calls

    def _call(self, node: Node):
        args, kwargs = _of_nodes(node.args, self.env), _of_nodes(node.kwargs, self.env)
        if node.target is operator.getitem and isinstance(args[0], (tuple, list)):
            return args[0][args[1]]
        if node.target in _INERT:
            return None
        known = node.meta.get("example_value")
        if node.target == "item" and isinstance(known, torch.SymFloat) and known.node.hint is not None:
            self.recorder.numbers[known.node.expr] = args[0]
            return known
        handles: list[Handle] = []
        key = (node.op, node.target, self._key(args, handles), self._key(kwargs, handles))
        template = self.templates.get(key)
        if template is not None and template.fits(handles):
            result = template.instance(handles, node, self.recorder.ops)
        else:
            result = self._run(node, args, kwargs, handles, key)
        self._check(node, result, node.meta.get("example_value"))
        return result

    def _check(self, node: Node, result, example):
        """That a call gives what Dynamo says that it gives, with gradients or without."""
        if isinstance(result, Handle) and isinstance(example, torch.Tensor):
            if [*map(layout.hint, result.fake.shape)] != [*map(layout.hint, example.shape)] or result.fake.dtype != example.dtype:
                raise GiveUp("a result is not what Dynamo expects")
            if self.training and example.requires_grad != result.value.requires_grad:
                if example.requires_grad:
                    raise GiveUp(f"a result needs gradients by operations that rc does not see: {node.name}")
                self.recorder.stopped(result)
        elif isinstance(result, (tuple, list)) and isinstance(example, (tuple, list)) and len(result) == len(example):
            for r, e in zip(result, example):
                self._check(node, r, e)

    def _run(self, node: Node, args: tuple, kwargs: dict, handles: list[Handle], key: tuple):
        """Runs a call on fake tensors, and keeps its operations for further calls with this key."""
        recorder = self.recorder
        first, writes, before = len(recorder.ops), recorder.writes, [h.value for h in handles]
        recorder.origin, recorder.handles = node, {}
        fakes = {id(handle): self._fake_of(handle) for handle in handles}
        args, kwargs = (_of_handles(x, fakes) for x in (args, kwargs))
        with recorder:
            result = node.target(*args, **kwargs) if node.op == "call_function" else getattr(args[0], node.target)(*args[1:], **kwargs)
        if isinstance(result, (torch.SymFloat, torch.SymBool)):
            return result
        found: list[Handle] = []
        result = mapped(result, lambda fake: found.append(recorder.handle(fake)) or found[-1])
        if not found and not handles and not isinstance(result, _NUMBERS):
            # It may have switched a mode.
            self.templates.clear()
        template = Template(handles, before, recorder.ops[first:], result)
        # Views that a call takes before it writes are stale after it: templates do not know of them.
        lasting = bool(found) if writes == recorder.writes else template.fits(handles) and all(h in handles for h in found)
        if lasting and len({id(value) for value in before}) == len(before):
            self.templates[key] = template
        return result

    def _fake_of(self, handle: Handle) -> FakeTensor:
        """A fake tensor that stands for a handle, and no other, in the next call."""
        handle.read()
        fake, handles = handle.fake, self.recorder.handles
        if id(fake) in handles:
            fake = _like(fake)
            if _metadata(fake) != _metadata(handle.fake):
                raise GiveUp("a part of a tensor beside another that looks the same")
        handles[id(fake)] = handle
        return fake

    def _key(self, x, handles: list[Handle]):
        """What of an argument decides which operations a call runs. Appends the handles in it, each once."""
        kind = type(x)
        if kind is Handle:
            if x not in handles:
                handles.append(x)
            return handles.index(x), self._metadata_of(x.fake), x.value.requires_grad
        if kind in _CONSTANT:
            return kind, x
        if kind is tuple or kind is list:
            return kind, *[self._key(v, handles) for v in x]
        if kind is dict:
            return kind, *[(k, self._key(v, handles)) for k, v in x.items()]
        if kind is slice:
            return kind, *[self._key(v, handles) for v in (x.start, x.stop, x.step)]
        if kind in (torch.SymInt, torch.SymFloat):
            return kind, x.node.expr
        # Zeros of both signs are two.
        return kind, x.hex() if kind is float else _Same(x)

    def _metadata_of(self, fake: FakeTensor) -> tuple:
        found = self.keys.get(id(fake))
        if found is None:
            found = self.keys[id(fake)] = (fake, _metadata(fake))
        return found[1]


_CONSTANT = {int, bool, str, type(None), type(...), torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format}


class _Same:
    """Equal to nothing but what holds the same object."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return type(other) is _Same and self.x is other.x

    def __hash__(self):
        return id(self.x)


def known_metadata(x: torch.Tensor) -> tuple:
    """What of a tensor decides which operations a graph has."""
    return _metadata(x)


def _like(x: torch.Tensor) -> torch.Tensor:
    """A tensor of other memory that lies as this one."""
    if not x.storage_offset():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return torch.empty(x.untyped_storage().size() // x.element_size(), dtype=x.dtype, device=x.device).as_strided(x.shape, x.stride(), x.storage_offset())


def _metadata(x: torch.Tensor) -> tuple:
    sizes = _sizes_of(x)
    if x._has_symbolic_sizes_strides:
        sizes = tuple([n.node.expr if isinstance(n, torch.SymInt) else n for n in sizes])
    return sizes, *_kind_of(x)


def _hinted(x: torch.Tensor) -> tuple:
    """As `_metadata`, for the sizes at the time of tracing."""
    return [layout.hint(n) for n in _sizes_of(x)], *_kind_of(x)


def _sizes_of(x: torch.Tensor) -> tuple:
    return *x.shape, *x.stride(), x.storage_offset()


def _kind_of(x: torch.Tensor) -> tuple:
    return x.dim(), x.dtype, x.device, x.requires_grad, x.is_conj(), x.is_neg()


def _of_nodes(x, env):
    """A node's arguments with what their nodes gave."""
    if isinstance(x, Node):
        return env[x]
    if isinstance(x, tuple):
        return tuple([_of_nodes(v, env) for v in x])
    if isinstance(x, list):
        return [_of_nodes(v, env) for v in x]
    if isinstance(x, dict):
        return {k: _of_nodes(v, env) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*[_of_nodes(v, env) for v in (x.start, x.stop, x.step)])
    return x


def _of_handles(x, fakes: dict[int, FakeTensor]):
    """Arguments with a fake tensor for each handle."""
    if type(x) is Handle:
        return fakes[id(x)]
    if isinstance(x, (tuple, list)) and type(x) is not torch.Size:
        return type(x)([_of_handles(v, fakes) for v in x])
    if isinstance(x, dict):
        return {k: _of_handles(v, fakes) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*[_of_handles(v, fakes) for v in (x.start, x.stop, x.step)])
    return x


class Template:
    """The operations of one call, for calls that have the same."""

    def __init__(self, handles: list[Handle], before: list[Value], ops: list[Op], result):
        self.handles, self.values, self.ops = handles, before, ops
        # What the results are now: a later call may write to them.
        self.result = _copied(result, {id(h): h for h in handles}, lambda value: value, lambda op: op)
        self.writes = [(i, h.value) for i, (h, old) in enumerate(zip(handles, before)) if h.value is not old]

    def fits(self, handles: list[Handle]) -> bool:
        """Whether what is written is not a part of something else, nor an argument."""
        alone = all(h.source is None and not h.memory.is_argument for h in handles) and len({id(h.memory) for h in handles}) == len(handles)
        return alone or not self.writes

    def instance(self, handles: list[Handle], origin: Node, ops: list[Op]):
        """The result of a call with these arguments. Appends its operations."""
        values = {id(old): handle.read() for old, handle in zip(self.values, handles)}
        made: dict[int, Op] = {}

        def value(old: Value) -> Value:
            found = values.get(id(old))
            if found is None:
                found = values[id(old)] = old if old.op is None else Value(made[id(old.op)], old.index, old.val, None, old.requires_grad)
            return found

        for old in self.ops:
            op = made[id(old)] = Op(old.target, of_values(old.args, value), of_values(old.kwargs, value), old.val, origin)
            ops.append(op)
        for i, new in self.writes:
            handles[i].write(value(new))
        known = {id(old): handle for old, handle in zip(self.handles, handles)}
        # An alias is no operation of its own.
        return _copied(self.result, known, value, lambda op: made.get(id(op), op))


def _copied(x, known: dict[int, Handle], value, op):
    """A result with a new handle for each that is not `known`."""
    if type(x) is Handle:
        found = known.get(id(x))
        if found is None:
            source = _copied(x.source, known, value, op) if x.source is not None else None
            memory = source.memory if source is not None else Memory()
            found = known[id(x)] = Handle(value(x.value), x.fake, memory, source, op(x.op))
        return found
    if type(x) in (tuple, list):
        return type(x)([_copied(v, known, value, op) for v in x])
    if type(x) is dict:
        return {k: _copied(v, known, value, op) for k, v in x.items()}
    return x


def of_values(x, f, size=lambda x: x):
    """An operation's arguments with each value `v` replaced by `f(v)`, and each size that is known by name by `size` of it."""
    kind = type(x)
    if kind is Value:
        return f(x)
    if kind is tuple or kind is list:
        return kind([of_values(v, f, size) for v in x])
    if kind is dict:
        return {k: of_values(v, f, size) for k, v in x.items()}
    return size(x) if kind is torch.SymInt else x


_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack")
"""What an operation knows of the call that it comes from."""


def _reached(results: list[Value]) -> set[int]:
    """The identities of the values that gradients of these come to."""
    found, stack = set(), list(results)
    while stack:
        value = stack.pop()
        if id(value) not in found and value.requires_grad:
            found.add(id(value))
            if value.op is not None:
                of_values((value.op.args, value.op.kwargs), stack.append)
    return found


def graph_of(arguments: list[Value], ops: list[Op], results: list[tuple[Value, FakeTensor]], changed: list[tuple[int, Value]]) -> GraphModule:
    """A graph of the operations that the results need, and of those that have effects. `changed`: arguments' new values."""
    graph, constants = Graph(), {}
    nodes: dict[int, Node] = {}
    """By the identity of values that are no operation's, and of operations."""
    for i, argument in enumerate(arguments):
        node = nodes[id(argument)] = graph.placeholder(f"arg{i}_1")
        node.meta["val"] = argument.val

    def node_of(value: Value) -> Node:
        key = id(value if value.op is None else value.op)
        if key not in nodes:
            name = f"_tensor_constant{len(constants)}"
            constants[name] = value.target
            nodes[key] = graph.get_attr(name)
        if value.index is None:
            return nodes[key]
        item = nodes.get(id(value))
        if item is None:
            item = nodes[id(value)] = graph.call_function(operator.getitem, (nodes[key], value.index))
            item.meta = {**nodes[key].meta, "val": value.val}
        return item

    sizes = Sizes(graph, arguments, nodes)
    kept: dict[Node, dict] = {}
    for op in _needed(ops, [value for value, _ in results] + [value for _, value in changed]):
        args, kwargs = of_values(op.args, node_of, sizes), of_values(op.kwargs, node_of, sizes)
        node = nodes[id(op)] = graph.create_node("call_function", op.target, args, kwargs, name=op.target._opname)
        about = kept.get(op.origin)
        if about is None:
            about = kept[op.origin] = {k: op.origin.meta[k] for k in _KEPT if k in op.origin.meta}
        node.meta = {**about, "val": op.val, "rc.again": op.again}
    given = []
    for value, fake in results:
        given.append(node_of(value))
        given[-1].meta["val"] = fake
    for i, value in changed:
        placeholder = nodes[id(arguments[i])]
        copy = graph.call_function(torch.ops.aten.copy_.default, (placeholder, node_of(value)))
        copy.meta["val"] = placeholder.meta["val"]
    graph.output(tuple(given))
    return _LazyGraphModule(constants, graph)


class Sizes:
    """The nodes of a graph that compute sizes from those of its arguments."""

    def __init__(self, graph: Graph, arguments: list[Value], nodes: dict[int, Node]):
        self.graph, self.given = graph, [(a.val, nodes[id(a)]) for a in arguments]
        self.nodes: dict[object, Node] = {}
        """By expressions."""

    def __call__(self, size: torch.SymInt) -> Node | int:
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        if expression not in self.nodes:
            symbols = {s: Proxy(self._symbol(s)) for s in expression.free_symbols}
            last = next(iter(reversed(self.graph.nodes)))
            self.nodes[expression] = sympy_interp(PythonReferenceAnalysis, symbols, expression).node
            for node in self._after(last):
                node.meta["val"] = node.target(*torch.fx.map_arg(node.args, lambda n: n.meta["val"]))
        return self.nodes[expression]

    def _after(self, last: Node) -> list[Node]:
        found, node = [], last.next
        while node.op != "root":
            found.append(node)
            node = node.next
        return found

    def _symbol(self, symbol) -> Node:
        """The argument that is this size, or the size of one."""
        if symbol not in self.nodes:
            self.nodes[symbol] = self._found(symbol)
        return self.nodes[symbol]

    def _found(self, symbol) -> Node:
        for val, node in self.given:
            if isinstance(val, torch.SymInt) and val.node.expr == symbol:
                return node
        for val, node in self.given:
            for d, n in enumerate(val.shape if isinstance(val, torch.Tensor) else ()):
                if isinstance(n, torch.SymInt) and n.node.expr == symbol:
                    size = self.graph.call_function(torch.ops.aten.sym_size.int, (node, d))
                    size.meta["val"] = n
                    return size
        raise GiveUp(f"the size {symbol}, which no argument has")


def _needed(ops: list[Op], results: list[Value]) -> list[Op]:
    needed = {id(value.op) for value in results}
    found = []
    for op in reversed(ops):
        if id(op) in needed or op.val is None:
            found.append(op)
            of_values((op.args, op.kwargs), lambda value: needed.add(id(value.op)))
    return found[::-1]
