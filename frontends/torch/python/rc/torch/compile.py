"""Compiling a graph of ATen operations into a function."""

from __future__ import annotations

import contextlib
import itertools
import operator
import time
from collections.abc import Container
from pathlib import Path

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from rc._native import Module, Program, RcError
from rc.torch import cache, flex, logs, partition, regions
from rc.torch.errors import UnsupportedOps, name_of, place
from rc.torch.fold import fold
from rc.torch.lower import Lowered, Lowering, Problems
from rc.torch.options import Options, dumps
from rc.torch.progress import progress
from rc.torch.weights import keep

log = logs.log
_numbers = itertools.count()


class Part(torch.nn.Module):
    """A compiled part of a graph with foreign operations."""

    def __init__(self, program: Program | Resolved):
        super().__init__()
        self.program = program

    def forward(self, *args):
        return self.program(*args)


class Split:
    """A graph whose parts are compiled, with foreign operations between them."""

    def __init__(self, gm: GraphModule):
        self._boxed_call = True
        self.gm = gm

    def __call__(self, *args):
        """Takes the arguments, or one list of them, which it empties."""
        if len(args) == 1 and isinstance(args[0], list):
            values, args = args[0], tuple(args[0])
            values.clear()
        return self.gm(*args)


class Resolved:
    """A function whose arguments at some positions are conjugated and negated in memory first; of those that are repeated along dimensions
    only one element is passed along each, and those that lie elsewhere are copied to the function's device, as results are that lie on the CPU."""

    def __init__(
        self,
        function: Program | Split | Resolved,
        positions: list[int],
        repeated: list[tuple[int, list[int]]] = (),
        moved=(),
        fetched=(),
        device=None,
    ):
        self._boxed_call = True
        self.function, self.positions, self.repeated = function, positions, repeated
        self.moved, self.fetched, self.device = moved, fetched, device

    @property
    def updated(self) -> list[int]:
        """The arguments that a call updates in place."""
        return getattr(self.function, "updated", [])

    def __call__(self, *args):
        """Takes the arguments, or one list of them, which it empties."""
        values = args[0] if len(args) == 1 and isinstance(args[0], list) else list(args)
        for i in self.positions:
            if values[i] is not None:  # A result without a gradient.
                values[i] = values[i].resolve_conj().resolve_neg()
        for i, dims in self.repeated:
            for d in dims:
                values[i] = values[i].narrow(d, 0, 1)
        for i in self.moved:
            values[i] = values[i].to(self.device)
        results = self.function(values)
        if self.fetched:
            results = list(results)
            copies = {id(x): x.cpu() for x in (results[i] for i in self.fetched)}
            for i in self.fetched:
                results[i] = copies[id(results[i])]
        return results


def build(
    gm: GraphModule,
    options: Options,
    name: str = "graph",
    weights: frozenset[int] = frozenset(),
    key: str | None = None,
    called: Container[Node] = frozenset(),
) -> Program | Resolved:
    """Compiles a graph whole: a function of its arguments, or of one list of them, which it empties. `weights`: the arguments that are the same at
    most calls; `key`: what the cache finds the program by, see `cache.key_of`; `called`: see `Lowering`. Raises `Problems` for operations that rc cannot lower or generate
    code for."""
    start = time.perf_counter()
    lowered = Lowering(gm, weights=weights, called=called).run()
    logs.say("time", f"{len(lowered.nodes)} operations: translated in {time.perf_counter() - start:.3f} s")
    if not lowered.results:
        return _laid_out(Program.empty(), lowered, options, name)
    configure(lowered, options)
    return _laid_out(Compiling(lowered.module, lowered, options, name).program(key), lowered, options, name)


def configure(lowered: Lowered, options: Options):
    """Tells the module how its results are to be computed."""
    if logs.wants("graph"):
        logs.say("graph", lowered.module.text())
    if torch.are_deterministic_algorithms_enabled():
        lowered.module.set_deterministic()
    if not options.emulate_precision_casts:
        lowered.module.set_excess_precision()
    if options.memory_limit is not None:
        lowered.module.set_memory_limit(options.memory_limit)


def device_name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"


class Compiling:
    """A lowered graph's module, or a part of it, compiled to where all is known that rc cannot do; `program` does the rest."""

    def __init__(self, module: Module, lowered: Lowered, options: Options, name: str):
        device, measured, folder = device_name(lowered.device), options.measured(), dump_folder(options)
        self.lowered, self.options, self.name, self.folder = lowered, options, name, folder
        self.what = f"rc compiles {len(lowered.nodes)} operations for {device}"
        if options.tune:
            _tune(module, device, measured)
        anew = folder is not None or any(logs.wants(topic) for topic in ("remarks", "fusion", "buffers"))
        text = folder is not None or logs.wants("output_code")
        self.is_told = options.tune or anew or text
        """Whether more is said of it than times."""
        with progress(self.what), self._blaming():
            self.native = module.compile(device, text, anew, measured)

    def program(self, key: str | None = None) -> Program:
        """Machine code, that the cache finds by `key` too."""
        mapping = cache.written(self.lowered) if key is not None else None
        kept = (key, mapping) if mapping is not None else (None, None)
        with progress(self.what), self._blaming():
            program, remarks, warnings, code, (compiling, loading), cached = self.native.finish(*kept, self.options.programs(self.lowered.device))
        how = "found in the cache" if cached else "compiled"
        logs.say("time", f"{len(self.lowered.nodes)} operations: {how} in {compiling:.3f} s, loaded in {loading:.3f} s")
        for warning in warnings:
            logs.warn(warning)
        for remark in remarks:
            logs.remark(remark)
        if code is not None:
            logs.say("output_code", code)
        if self.folder is not None:
            kind, _, number = self.name.rpartition(" ")
            kind = kind.replace(" ", "_")
            (self.folder / f"{number}_{kind}.compiled.ir").write_text(code)
            (self.folder / f"{number}_{kind}.remarks.txt").write_text("".join(remarks))
        return program

    @contextlib.contextmanager
    def _blaming(self):
        try:
            yield
        except RcError as e:
            raise Problems(_blamed(e, self.lowered)) from e


def compiled_before(key: str, example_inputs, options: Options) -> Program | Resolved | None:
    """The program that another process compiled for a graph of this key."""
    devices = [x.device for x in example_inputs if x.device.type != "cpu"]
    device = max(set(devices), key=devices.count) if devices else torch.device("cpu")
    found = cache.found(key, device)
    return _laid_out(*found, options, f"inference {next_number()}") if found is not None else None


def _tune(module: Module, device: str, file: str):
    """Measures the kernels that the file does not have; Ctrl-C keeps what was found."""
    start = time.perf_counter()
    found, skipped = module.tune(device, file)
    for kernel in found:
        logs.say("tuning", kernel)
    for why in skipped:
        logs.say("tuning", f"skipped: {why}")
    if found:
        logs.say("time", f"{len(found)} kernels tuned in {time.perf_counter() - start:.3f} s: {file}")


def _laid_out(program: Program, lowered: Lowered, options: Options, name: str) -> Program | Resolved:
    like = torch.empty((), dtype=torch.int64, device=lowered.device)
    seed = (lambda: torch.empty_like(like).random_()) if lowered.seeded else None
    shown = f"rc: {name} ({len(lowered.nodes)} operations)"
    program.layout(lowered.inputs, lowered.integers, lowered.results, lowered.returns, lowered.captured, seed, options.graphs, shown, name.startswith("inference"))
    ready(program, shown)
    if not (lowered.lazy or lowered.repeated or lowered.moved or lowered.fetched):
        return program
    return Resolved(program, lowered.lazy, lowered.repeated, lowered.moved, lowered.fetched, lowered.device)


def ready(program: Program, name: str) -> Program:
    """A program with its layout, as callers of compiled functions know it."""
    program._boxed_call = True
    program.name = name
    keep(program)
    return program


def problems_of(gm: GraphModule) -> list[tuple[Node, str]]:
    """The operations of a graph that rc cannot compile, with reasons."""
    try:
        with _disable_current_modes():
            regions.expand(gm)
            flex.expand(gm)
            build(gm, Options())
    except Problems as e:
        return e.problems
    return []


def _blamed(e: RcError, lowered: Lowered) -> list[tuple[Node, str]]:
    """The operations that the compiler's errors are about; an error without a place is about the whole graph."""
    problems = []
    for message, text, names in e.diagnostics:
        nodes = [lowered.nodes[name] for name in names if name in lowered.nodes]
        # Who holds the memory at a peak is no operation that rc cannot compile.
        if not nodes or message.startswith("the limit of "):
            raise e
        problems += [(node, message.removeprefix("not supported: ")) for node in nodes]
    return problems


def compile_graph(gm: GraphModule, options: Options, kind: str, weights: frozenset[int] = frozenset(), key: str | None = None):
    """A function for a graph: compiled whole, with calls of PyTorch's operations where `options.fallback` allows it, or in parts around them. `weights`, `key`: see `build`."""
    # Constants of the graph are read here, which a mode of the tracer would take for computation.
    with _disable_current_modes():
        function, tangents = _compile_graph(gm, options, kind, weights, key), _tangents(gm) if kind == "backward" else []
        return Resolved(function, tangents) if tangents else function


def _tangents(gm: GraphModule) -> list[int]:
    """The arguments of a backward graph that come from outside, conjugated and negated or not, whatever was traced; Dynamo guards a forward
    graph's, and what forward keeps has been resolved."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return [i for i, n in enumerate(placeholders) if n.name.startswith("tangents") and isinstance(n.meta.get("val"), torch.Tensor)]


def _compile_graph(gm: GraphModule, options: Options, kind: str, weights: frozenset[int], key: str | None):
    number = next_number()
    name = f"{kind} {number}"
    prepared(gm, options, f"{number}_{kind}")
    foreign: dict[Node, str] = {}
    while True:
        try:
            function = build(gm, options, name, weights, key if not foreign else None, foreign)
            _warn(foreign)
            return function
        except Problems as e:
            if not options.fallback:
                raise unsupported(e.problems) from None
            problems = dict(e.problems)
            if not foreign.keys().isdisjoint(problems):
                # Nor can the program call it: the graph is cut there.
                break
            foreign.update(problems)
    while True:
        for node, why in problems.items():
            foreign.setdefault(node, why)
        _with_items(gm, foreign)
        found: dict[Node, str] = {}
        parts = itertools.count()

        def part(inner: GraphModule, nodes: dict[str, Node]):
            try:
                return Part(build(inner, options, f"part of {name}.{next(parts)}"))
            except Problems as e:
                found.update({nodes[n.name]: why for n, why in e.problems})
                return Part.__new__(Part)

        whole = partition.split(gm, set(foreign), part)
        if not found:
            break
        problems = found
    _warn(foreign)
    return Split(whole)


def _warn(foreign: dict[Node, str]):
    """Says what PyTorch runs."""
    for node, why in foreign.items():
        if node.target is not operator.getitem:
            log.warning("%s runs in PyTorch: %s%s", name_of(node), why, f" (at {place(node)})" if place(node) else "")


def prepared(gm: GraphModule, options: Options, name: str):
    """Makes a traced graph ready to be lowered, in place."""
    if logs.wants("aten"):
        logs.say("aten", gm.print_readable(print_output=False))
    regions.expand(gm)
    flex.expand(gm)
    fold(gm)
    _dump(gm, options, name)


def next_number() -> int:
    """Of the process's graphs."""
    return next(_numbers)


def _with_items(gm: GraphModule, foreign: dict[Node, str]):
    """What takes a foreign operation's results apart is foreign with it."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem and node.args[0] in foreign:
            foreign.setdefault(node, foreign[node.args[0]])


def unsupported(problems) -> UnsupportedOps:
    """The error that names operations."""
    # What takes the results of an operation apart is no operation of its own.
    named = [(node, why) for node, why in problems if node.target is not operator.getitem] or problems
    return UnsupportedOps([(name_of(node), why, place(node)) for node, why in named])


def _dump(gm: GraphModule, options: Options, name: str):
    if (folder := dump_folder(options)) is None:
        return
    (folder / f"{name}.fx.txt").write_text(gm.print_readable(print_output=False))
    try:
        lowered = Lowering(gm).run()
    except Problems as e:
        (folder / f"{name}.problems.txt").write_text(str(e))
        return
    if lowered.module is not None:
        (folder / f"{name}.ir").write_text(lowered.module.text())


def dump_folder(options: Options) -> Path | None:
    """The directory, made where it is not there, that gets graphs as text."""
    if (directory := dumps(options)) is None:
        return None
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
