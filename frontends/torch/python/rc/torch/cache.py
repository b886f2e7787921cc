"""Programs of graphs that another process compiled: found by the graph that Dynamo captured, without tracing or lowering it.

A key holds all that the program follows from: each node with its target and arguments, what is known of the inputs, PyTorch's modes and version, the
options, the processor, and rc's own sources. A graph with anything else in it (modules, functions of the user's, symbolic sizes) has no key, and
takes the longer way, at whose end the cache of compiled modules stands.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from torch.fx import GraphModule, Node

from rc._native import cached_graph
from rc.torch import layout, logs, precision
from rc.torch.options import Options, dumps
from rc.torch.trace import known_metadata

_TRUSTED = ("torch", "_operator", "builtins", "math", "rc.torch")
"""Modules whose functions mean the same wherever PyTorch's and rc's versions do."""

_PLAIN = (int, bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)


class NoKey(Exception):
    """What of a graph no key tells apart."""


def key_of(gm: GraphModule, example_inputs, options: Options, weights: frozenset[int]) -> str | None:
    """The key of a graph, None where it has none, or where what compiling says is asked for."""
    if dumps(options) or os.environ.get("RC_VIEW") or any(logs.wants(topic) for topic in logs.TOPICS if topic not in ("time", "recompiles")):
        return None
    try:
        parts = [_sources(), torch.__version__, repr(options), repr(sorted(weights)), *_modes(), *_inputs(gm, example_inputs)]
        index = {node: i for i, node in enumerate(gm.graph.nodes)}
        parts += [_node(node, index) for node in gm.graph.nodes]
    except NoKey as why:
        logs.say("time", f"no look at the cache before tracing: {why}")
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _sources() -> str:
    """A hash of this package."""
    whole = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        text = file.read_bytes()
        whole.update(f"{file.name} {len(text)}\n".encode() + text)
    return whole.hexdigest()


def _modes() -> list[str]:
    """What PyTorch's operations depend on besides their arguments."""
    autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")]
    backends = torch.backends
    return [
        repr(autocast),
        repr((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())),
        repr(torch.are_deterministic_algorithms_enabled()),
        precision.setting(),
        repr((backends.cuda.flash_sdp_enabled(), backends.cuda.math_sdp_enabled())),
        repr((backends.cuda.mem_efficient_sdp_enabled(), backends.cudnn.enabled, backends.mkldnn.enabled)),
    ]


def _inputs(gm: GraphModule, example_inputs) -> list[str]:
    """What is known of each input, and which share memory."""
    storages: dict[int, int] = {}
    parts = []
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, given in zip(placeholders, example_inputs, strict=True):
        fake = node.meta.get("example_value")
        for x in (given, fake):
            if not isinstance(x, torch.Tensor) or any(type(s) is not int for s in (*x.shape, *x.stride())):
                raise NoKey("an input that is no tensor of fixed sizes")
        shared = storages.setdefault(layout.storage(fake), len(storages))
        parts.append(f"{known_metadata(given)} {known_metadata(fake)} {shared} {type(given).__name__}")
    return parts


def _node(node: Node, index: dict[Node, int]) -> str:
    if node.op == "call_function":
        target = _function(node.target)
    elif node.op in ("call_method", "placeholder", "output"):
        target = str(node.target)
    else:
        raise NoKey(f"a node {node.op}")
    # A placeholder's name is that of an argument in messages and nothing else.
    target = "" if node.op == "placeholder" else target
    return f"{node.op} {target} {_argument(node.args, index)} {_argument(node.kwargs, index)}"


def _function(target) -> str:
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in ("aten", "prims", "rc"):
            raise NoKey(f"the operation {target}")
        return f"{target.namespace}.{target._schema}"
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", getattr(target, "__name__", None))
    # Functions in C have no module of their own.
    module = module or getattr(getattr(target, "__self__", None), "__name__", None) or getattr(target, "__objclass__", type(None)).__module__
    # What PyTorch makes of two functions, such as `max_pool2d`, is known by its name in the module.
    if name and "<" in name and getattr(sys.modules.get(module), target.__name__, None) is target:
        name = target.__name__
    if not name or "<" in name or not any(module == trusted or module.startswith(f"{trusted}.") for trusted in _TRUSTED):
        raise NoKey(f"the function {target}")
    return f"{module}.{name}"


def _argument(x, index: dict[Node, int]) -> str:
    kind = type(x)
    if kind is Node:
        return f"%{index[x]}"
    if kind in _PLAIN:
        return f"{kind.__name__} {x!r}"
    if kind is float:
        return f"float {x.hex()}"
    if kind is complex:
        return f"complex {x.real.hex()} {x.imag.hex()}"
    if kind in (tuple, list, torch.Size) or isinstance(x, (tuple, list)) and kind.__module__.startswith("torch.fx"):
        return f"{kind.__name__}({', '.join(_argument(v, index) for v in x)})"
    if isinstance(x, dict):
        return f"dict({', '.join(f'{k!r}: {_argument(v, index)}' for k, v in x.items())})"
    if kind is slice:
        return f"slice({', '.join(_argument(v, index) for v in (x.start, x.stop, x.step))})"
    raise NoKey(f"an argument of type {kind.__name__}")


# How a call maps to a program, as text.


def written(lowered) -> str | None:
    """What `Program.layout` takes for a lowered graph; None where it holds more than numbers."""
    if len(lowered.captured) > lowered.keys or not lowered.results:
        return None
    try:
        return json.dumps(
            {
                "inputs": lowered.inputs,
                "results": [(sizes, strides, str(dtype).removeprefix("torch.")) for sizes, strides, dtype in lowered.results],
                "returns": lowered.returns,
                "lazy": lowered.lazy,
                "repeated": lowered.repeated,
                "moved": lowered.moved,
                "fetched": lowered.fetched,
                "seeded": lowered.seeded,
                "keys": lowered.keys,
                "operations": len(lowered.nodes),
                "device": str(lowered.device),
                "integers": lowered.integers,
            }
        )
    except TypeError:
        # A size with symbols, or a constant that is no number.
        return None


def found(key: str, device: torch.device):
    """The program of a key, with how a call maps to it, as `Lowered` says it; None where there is none."""
    from rc.torch.lower import Lowered
    from rc.torch.ops import random

    name = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
    program, text, warnings, seconds = cached_graph(key, name)
    for warning in warnings:
        logs.warn(warning)
    if program is None:
        return None
    says = json.loads(text)
    if torch.device(says["device"]).type != device.type:
        return None
    logs.say("time", f"{says['operations']} operations: found in the cache by their graph, loaded in {seconds:.3f} s")
    lowered = Lowered(
        None,
        inputs=[tuple(x) for x in says["inputs"]],
        integers=[tuple(x) for x in says["integers"]],
        results=[(sizes, strides, getattr(torch, dtype)) for sizes, strides, dtype in says["results"]],
        returns=[_return(*x) for x in says["returns"]],
        lazy=says["lazy"],
        repeated=[(i, dims) for i, dims in says["repeated"]],
        moved=says["moved"],
        fetched=says["fetched"],
        seeded=says["seeded"],
        keys=says["keys"],
        captured=random.keys(says["keys"], torch.device(says["device"])),
        device=torch.device(says["device"]),
        nodes=dict.fromkeys(range(says["operations"])),
    )
    return program, lowered


def _return(kind: str, value):
    if kind != "view":
        return kind, value
    base, sizes, strides, offset = value
    return kind, (tuple(base), sizes, strides, offset)

