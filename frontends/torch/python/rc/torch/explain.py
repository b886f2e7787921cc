"""What the backend would do with a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch

from rc._native import Program
from rc.torch import decompose
from rc.torch.compile import problems_of
from rc.torch.errors import place
from rc.torch.weights import programs


@dataclass
class Explanation:
    """The graphs that Dynamo captures from a call, and what of each rc compiles."""

    graphs: list[dict] = field(default_factory=list)
    """For each graph: `operations` (a count by name) and `foreign` (operation, reason, Python line)."""

    breaks: list[tuple[str, str]] = field(default_factory=list)
    """Where Dynamo ended a graph before the function did: its reason, and the Python line."""

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} {'graph' if len(self.graphs) == 1 else 'graphs'}"]
        lines += [f"break: {why}" + (f"\n    at {where}" if where else "") for why, where in self.breaks]
        for i, graph in enumerate(self.graphs):
            count, foreign = sum(graph["operations"].values()), graph["foreign"]
            lines.append(f"graph {i}: {count} operations, {len(foreign)} that rc cannot compile")
            lines += [f"  {op}: {why}" + (f"\n    at {where}" if where else "") for op, why, where in foreign]
        return "\n".join(lines)


def variants() -> dict[str, list[str]]:
    """Of each compiled graph with symbolic sizes on a GPU the programs that there are, a line each: for which sizes, the calls that they served, and why
    they were made. The first line is the one for all sizes. The option `variants` says how many there may be."""
    found = {program.name: program.variants() for program in programs() if isinstance(program, Program)}
    return {name: lines for name, lines in sorted(found.items()) if lines}


def graphs() -> dict[str, list[str]]:
    """Of each compiled graph on a GPU what became of its launches, a line for each stretch of them between which the host has something to do: how many calls were one CUDA
    graph, how many launches were patched, and why there is none."""
    found = {program.name: program.graphs() for program in programs() if isinstance(program, Program)}
    return {name: lines for name, lines in sorted(found.items()) if lines}


def explain(model, *args, **kwargs) -> Explanation:
    """Runs a model once, by PyTorch, and says which graphs it gives and which of their operations rc cannot compile, with their
    reasons and Python lines. More than one graph means that Dynamo broke the model apart, at the breaks that it names."""
    from torch._dynamo.backends.common import aot_autograd

    found = Explanation()

    def look(gm, inputs):
        operations = Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        foreign = [(str(node.target), why, place(node)) for node, why in problems_of(gm)]
        found.graphs.append({"operations": dict(operations), "foreign": foreign})
        return gm.forward

    traced = aot_autograd(fw_compiler=look, decompositions=decompose.table())

    def backend(gm, inputs):
        reason = getattr(gm, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            last = reason.user_stack[-1] if reason.user_stack else None
            found.breaks.append((reason.reason.strip().splitlines()[0], f"{last.filename}:{last.lineno}" if last else ""))
        return traced(gm, inputs)

    torch._dynamo.reset()
    try:
        torch.compile(model, backend=backend)(*args, **kwargs)
    finally:
        torch._dynamo.reset()
    return found
