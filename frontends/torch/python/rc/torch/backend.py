"""The backend of `torch.compile`, found by its entry point: `torch.compile(model, backend="rc")`."""

from __future__ import annotations

import contextlib
import time

import torch
import torch._dynamo.compiled_autograd
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import PlainTensorMeta
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from rc._native import Program, prepare, share_threads
from rc.torch import attention, cache, decompose, joint, logs, resize
from rc.torch.compile import compile_graph, compiled_before
from rc.torch.options import Options
from rc.torch.trace import has_key, needs_gradients, trace
from rc.torch.training import compile_step
from rc.torch.updates import Writing, remaining, separate
from rc.torch.weights import weights_of


share_threads()

_OURS = {F.scaled_dot_product_attention: attention.sdpa, F.interpolate: resize.interpolate}
"""Functions that are one operation of rc's where it can do them, and many of PyTorch's."""


def _call_ours(gm: GraphModule) -> None:
    """Has the graph and those in it call rc's functions, in place."""
    for module in gm.modules():
        if isinstance(module, GraphModule):
            nodes = [n for n in module.graph.nodes if n.op == "call_function" and n.target in _OURS]
            for node in nodes:
                node.target = _OURS[node.target]
            if nodes:
                module.recompile()


def rc(gm: GraphModule, example_inputs, *, options: dict | None = None, mode: str | None = None):
    """Compiles a graph that Dynamo captured: forward, and backward where gradients are asked for."""
    chosen = Options.of(options, mode)
    logs.recompile()
    weights = weights_of(gm, example_inputs)
    key = cache.key_of(gm, example_inputs, chosen, weights) if has_key(gm, example_inputs) and chosen.measured() is None else None
    if key is not None and (found := compiled_before(key, example_inputs, chosen)) is not None:
        return found
    prepare()
    _call_ours(gm)
    on_gpu = any(getattr(x, "is_cuda", False) for x in example_inputs)
    bare: list[Program | Writing] = []
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]) if on_gpu else contextlib.nullcontext():
        start = time.perf_counter()
        training = needs_gradients(example_inputs)
        traced = trace(gm, example_inputs) if not training or _may_differentiate(chosen) else None
        logs.say("time", f"{'traced' if traced else 'not traced'} without AOTAutograd in {time.perf_counter() - start:.3f} s")
        if traced is not None and training:
            step = compile_step(traced, chosen)
            if step is not None:
                return step.function()
        elif traced is not None:
            return compile_graph(traced, chosen, "inference", weights, key)
        # Nobody runs the graphs on the way: no Python code is generated for them.
        with _use_lazy_graph_module(True):
            wrapped = _autograd(chosen, len(example_inputs), weights, bare)(gm, example_inputs)
    return bare[0] if len(bare) == 1 else wrapped


def _may_differentiate(options: Options) -> bool:
    """Whether rc may differentiate a graph. Compiled autograd wants the backward graph itself."""
    compiled = torch._dynamo.config.compiled_autograd or torch._dynamo.compiled_autograd.compiled_autograd_enabled
    if compiled or not options.differentiate:
        logs.say("autograd", f"left to AOTAutograd: {'compiled autograd' if compiled else 'differentiate is False'}")
    return options.differentiate and not compiled


def _autograd(options: Options, count: int, weights: frozenset[int], bare: list[Program]):
    def compiled(gm: GraphModule, kind: str, weights: frozenset[int] = frozenset()):
        writes, results = separate(gm)
        weights -= {write.argument for write in writes}
        # A training step's graphs come here when they are called first.
        with _use_lazy_graph_module(True):
            function = compile_graph(gm, options, kind, weights)
        return Writing(function, remaining(writes, function), results) if writes else function

    def inference(gm: GraphModule, inputs):
        function = compiled(gm, "inference", weights if len(inputs) == count else frozenset())
        if isinstance(function, (Program, Writing)) and len(inputs) == count and _plain():
            bare.append(function)
            if isinstance(function, Writing):
                function.count_writes(TracingContext.get().fw_metadata.mutated_graph_handled_indices_seen_by_autograd)
        return function

    return aot_autograd(
        fw_compiler=lambda gm, inputs: compiled(gm, "forward"),
        bw_compiler=lambda gm, inputs: compiled(gm, "backward"),
        inference_compiler=inference,
        partition_fn=joint.part,
        decompositions=decompose.table(),
        keep_inference_input_mutations=True,
    )


def _plain() -> bool:
    """Whether AOTAutograd does nothing before and after the graph that is being compiled for inference: it mutates no argument, its results
    are new, and neither are tensor subclasses. The compiled function may then be called without AOTAutograd's wrappers."""
    context = TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    if about is None or context.fakify_first_call:
        return False
    subclasses = [*about.subclass_inp_meta, *about.subclass_fw_graph_out_meta]
    return not (
        about.num_mutated_inp_runtime_indices
        or about.num_outputs_aliased
        or about.num_intermediate_bases
        or about.dynamic_outputs
        or about.grad_enabled_mutation is not None
        or about.tokens
        or any(not isinstance(m, PlainTensorMeta) for m in subclasses)
    )
