"""RC_LOGS: what the backend says while it compiles, by topic: `RC_LOGS=graph,remarks`."""

from __future__ import annotations

import functools
import logging
import os
import sys

import torch

TOPICS = {
    "graph": "each graph as rc's text",
    "aten": "each graph as ATen operations",
    "remarks": "what the passes decided, and why",
    "fusion": "the remarks of fusion",
    "buffers": "the remarks on memory: what the plan of buffers takes",
    "recompiles": "why Dynamo compiles a function again",
    "output_code": "the compiled module: the host program, and the kernels in their last stage",
    "tuning": "what was measured of each kernel",
    "autograd": "who differentiates a graph, and why not rc; what is kept between forward and backward",
    "time": "how long each step took",
}


def _chosen() -> frozenset[str]:
    return _topics(os.environ.get("RC_LOGS", ""))


@functools.cache
def _topics(text: str) -> frozenset[str]:
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in TOPICS:
            raise ValueError(f"RC_LOGS: there is no topic '{name}'; there are {', '.join(TOPICS)}")
    return frozenset(names)


log = logging.getLogger("rc.torch")


_output_code = torch._logging.getArtifactLogger("torch._dynamo.backends.rc", "output_code")
"""What TORCH_LOGS=output_code and `torch._logging.set_logs(output_code=True)` ask for; a logger below PyTorch's own has their handlers."""


def wants(topic: str) -> bool:
    return topic in _chosen() or topic == "output_code" and _output_code.isEnabledFor(logging.DEBUG)


def remark(text: str):
    """Logs a remark of the compiler under the topics that it belongs to."""
    say("remarks", text)
    if "fuse" in text:
        say("fusion", text)
    if "buffer" in text or "arena" in text:
        say("buffers", text)


def recompile():
    """Logs the guard that failed, where Dynamo compiles a function again."""
    from torch._dynamo.utils import get_metrics_context

    if wants("recompiles"):
        reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")
        if reason:
            say("recompiles", str(reason))


@functools.cache
def warn(text: str):
    """Warns of something that is the same for every graph, once."""
    log.warning("%s", text.strip())


def say(topic: str, text: str):
    """Logs a text under a topic, where RC_LOGS asks for it: to standard error, unless the program handles the logger."""
    if topic == "output_code":
        _output_code.debug("%s", text)
    if topic not in _chosen():
        return
    if not log.hasHandlers():
        print(f"[rc.{topic}] {text}", file=sys.stderr)
    log.log(logging.WARNING if log.hasHandlers() else logging.INFO, "[%s] %s", topic, text)
