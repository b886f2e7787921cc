"""What is computed of a model's weights alone: packed matrices, folded normalizations. It is kept between calls, and made anew when weights change.

An optimizer's step, `load_state_dict` and whatever else PyTorch counts as a write are seen, and so is a tensor in another's place. So are writes to
`weight.data`, unless they leave alone the 16 elements of it that every call looks at; after such a write, call `free_kept`.
"""

from __future__ import annotations

import threading
import weakref

import torch
from torch.fx import GraphModule

_keeping: weakref.WeakSet = weakref.WeakSet()
_lock = threading.Lock()


def keep(program):
    """Adds to the compiled programs."""
    with _lock:
        _keeping.add(program)


def programs() -> list:
    """The compiled programs."""
    with _lock:
        return list(_keeping)


def weights_of(gm: GraphModule, example_inputs) -> frozenset[int]:
    """The arguments of a graph that are parameters and buffers of modules, by their numbers."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return frozenset(
        i for i, x in enumerate(example_inputs) if _is_weight(x) or i < len(placeholders) and _is_weight(placeholders[i].meta.get("example_value"))
    )


def _is_weight(x) -> bool:
    # Dynamo marks what it finds in modules: it does not expect them to move.
    return isinstance(x, torch.nn.Parameter) or getattr(x, "_dynamo_static_input_type", None) is not None


def kept_bytes() -> int:
    """Bytes that compiled programs keep of their weights, beside the weights themselves, and of large results' memory that nobody else has."""
    return sum(program.kept_bytes() for program in programs())


def free_kept() -> None:
    """Gives these bytes back. Calls that need them compute them anew."""
    for program in programs():
        program.free_kept()
