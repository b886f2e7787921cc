"""Models as files that need no Python: text of the IR, and their weights as safetensors."""

from __future__ import annotations

from pathlib import Path

import torch

from rc.torch import decompose
from rc.torch.errors import UnsupportedOps, place
from rc.torch.lower import Lowering, Problems


def export(model: torch.nn.Module, args: tuple, path: str, *, kwargs: dict | None = None, dynamic_shapes=None) -> None:
    """Writes `path` (text for `rc-opt` and `rc-run`) and, beside it, the weights as `.safetensors`.

    The function `main` takes the weights by their names in `state_dict`, then the arguments; results are the model's, flat. `dynamic_shapes` is
    `torch.export.export`'s. Raises `UnsupportedOps` for operations that rc does not have, and ValueError for models that change buffers.
    """
    from safetensors.torch import save_file

    program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes).run_decompositions(decompose.exported())
    signature = program.graph_signature
    if changed := {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}:
        raise ValueError(f"the model changes {', '.join(changed.values())}: export it in eval mode, or return the new values")
    for node in program.graph.nodes:
        val = node.meta.get("val")
        if node.op == "placeholder" and isinstance(val, torch.Tensor) and val.is_complex():
            raise ValueError(f"not supported: complex arguments and weights in a file ({node.name}): pass torch.view_as_real of them")
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    names = {n.name: weights.get(n.name, n.name) for n in program.graph.nodes if n.op == "placeholder"}
    try:
        lowered = Lowering(program.graph_module, names, program.range_constraints).run()
    except Problems as e:
        raise UnsupportedOps([(str(node.target), why, place(node)) for node, why in e.problems]) from None
    if lowered.seeded or lowered.captured:
        raise ValueError("the model draws random numbers or holds large constants in its graph, which a file does not carry")
    file = Path(path)
    file.write_text(lowered.module.text())
    values = {**program.state_dict, **program.constants}
    used = {name: values[name].detach().cpu().contiguous() for name in dict.fromkeys(weights.values()) if name in values}
    save_file({name: _own(value) for name, value in used.items()}, file.with_suffix(".safetensors"))


def _own(value: torch.Tensor) -> torch.Tensor:
    """A tensor that shares memory with no other, as the format wants: tied weights are written twice."""
    return value.clone()
