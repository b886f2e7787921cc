"""The smallest graph that still fails, or still gives other results than PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from rc.torch import decompose
from rc.torch.compile import build
from rc.torch.lower import Lowering, Problems
from rc.torch.options import Options

RELATIVE = 1e-2
"""How far results may differ, relative to the largest of each: far beyond rounding."""


@dataclass
class Minified:
    """A graph of ATen operations, the arguments that it fails for, and how it fails."""

    graph: GraphModule
    inputs: list
    failure: str

    def __str__(self) -> str:
        inputs = ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in self.inputs)
        return f"{self.failure}\nfor arguments {inputs}\n{self.graph.code.strip()}"

    def text(self) -> str:
        """The graph as rc's text, for `rc-opt`."""
        return Lowering(_with_values(self.graph, self.inputs)).run().module.text()


def minify(model, *args, tolerance: float = RELATIVE, **kwargs) -> Minified | None:
    """Runs a model's graph by rc and by PyTorch, for inference; where rc fails or its results differ, takes operations out for as long as that
    stays so, and gives what is left. None where nothing is wrong.

    `tolerance`: how far a result may be from PyTorch's, relative to the largest element. Random operations differ always.
    """
    from torch._functorch.fx_minifier import minifier

    with torch.no_grad():
        gm, inputs = _capture(model, args, kwargs)
        failure = _failure(gm, inputs, tolerance)
        if failure is None:
            return None
        kind = failure.split(":")[0]

        def fails(candidate, values):
            found = _failure(candidate, values, tolerance)
            return found is not None and found.split(":")[0] == kind

        quiet = lambda *args, **kwargs: None
        smallest, values = minifier(gm, inputs, fails, dump_state=quiet)
        return Minified(smallest, list(values), _failure(smallest, values, tolerance) or failure)


def _capture(model, args, kwargs):
    """The graph that Dynamo and AOTAutograd make of a call, with its arguments."""
    from torch._dynamo.backends.common import aot_autograd

    graphs = []

    def backend(gm, inputs):
        def keep(traced, _):
            def run(values):
                graphs.append((traced, [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in values]))
                return traced(*values)

            run._boxed_call = True
            return run

        return aot_autograd(fw_compiler=keep, decompositions=decompose.table())(gm, inputs)

    torch._dynamo.reset()
    try:
        torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*args, **kwargs)
    finally:
        torch._dynamo.reset()
    if not graphs:
        raise ValueError("Dynamo captures no graph of this call")
    return graphs[0]


def _failure(gm: GraphModule, inputs, tolerance: float) -> str | None:
    """How a graph fails: a kind, and the particulars after a colon."""
    expected = gm(*inputs)
    try:
        program = build(_with_values(gm, inputs), Options())
        found = program(*inputs)
    except Problems as e:
        return f"not supported: {e}"
    except Exception as e:  # noqa: BLE001 - any failure is what is looked for
        return f"{type(e).__name__}: {e}"
    for i, (a, b) in enumerate(zip(found, expected)):
        if isinstance(b, torch.Tensor) and (off := _off(a, b)) > tolerance:
            return f"differs: result {i} is off by {off:.3g} of its largest element"
    return None


def _off(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not b.numel():
        return 0.0
    x, y = a.double(), b.double()
    if not torch.equal(x.isfinite(), y.isfinite()):
        return float("inf")
    x, y = (v.nan_to_num(0.0, 0.0, 0.0) for v in (x, y))
    return ((x - y).abs().max() / y.abs().max().clamp_min(1e-30)).item()


def _with_values(gm: GraphModule, inputs) -> GraphModule:
    """The graph with what each node gives noted as the lowering wants it."""
    FakeTensorProp(gm).propagate(*inputs)
    output = gm.graph.output_node()
    if not isinstance(output.args[0], (list, tuple)):
        output.args = ([output.args[0]],)
        gm.recompile()
    return gm
