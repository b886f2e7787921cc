"""The backend of `torch.compile`, found by its entry point: `torch.compile(model, backend="rc")`."""

from __future__ import annotations

import contextlib
import functools

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from rc.torch import decompose
from rc.torch.compile import compile_graph
from rc.torch.options import Options


def rc(gm: GraphModule, example_inputs, *, options: dict | None = None, mode: str | None = None):
    """Compiles a graph that Dynamo captured: forward, and backward where gradients are asked for."""
    chosen = Options.of(options, mode)
    on_gpu = any(getattr(x, "is_cuda", False) for x in example_inputs)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]) if on_gpu else contextlib.nullcontext():
        return _autograd(chosen)(gm, example_inputs)


def _autograd(options: Options):
    compiler = lambda kind: functools.partial(_compile, options=options, kind=kind)
    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompose.table(),
    )


def _compile(gm: GraphModule, example_inputs, *, options: Options, kind: str):
    return compile_graph(gm, options, kind)
