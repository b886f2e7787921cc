"""Models as files that need no Python: text of the IR with their weights as safetensors, or compiled, in one package."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from rc.torch import decompose
from rc.torch.errors import UnsupportedOps, place
from rc.torch.lower import Lowered, Lowering, Problems


def export(model: torch.nn.Module, args: tuple, path: str, *, kwargs: dict | None = None, dynamic_shapes=None) -> None:
    """Writes `path` (text for `rc-opt` and `rc-run`) and, beside it, the weights as `.safetensors`.

    The function `main` takes the weights by their names in `state_dict`, then the arguments; results are the model's, flat. `dynamic_shapes` is
    `torch.export.export`'s. Raises `UnsupportedOps` for operations that rc does not have, and ValueError for models that change buffers.
    """
    _check_folder(path)
    lowered, weights = _lowered(model, args, kwargs, dynamic_shapes)
    file = Path(path)
    file.write_text(lowered.module.text())
    _save(weights, file.with_suffix(".safetensors"))


def package(
    model: torch.nn.Module,
    args: tuple,
    path: str,
    *,
    kwargs: dict | None = None,
    dynamic_shapes=None,
    archs: tuple[str, ...] | list[str] = ("host",),
    weights: str = "inside",
) -> None:
    """Compiles a model for each of `archs` (`host`, LLVM's names of CPUs as `x86-64-v3`, `sm_90a`) and writes it as one file for `rc-run`,
    `librc_runtime` and the crate `rc-runtime`, which need neither PyTorch nor LLVM.

    Its function takes the arguments alone, by their names; weights are `inside` of the file, or `beside` it as `.safetensors`. Otherwise as `export`.
    Raises `RcError` where an architecture is not known or code cannot be generated.
    """
    if weights not in ("inside", "beside"):
        raise ValueError(f'weights are "inside" or "beside", not "{weights}"')
    if isinstance(archs, str):
        archs = (archs,)
    _check_folder(path)
    lowered, values = _lowered(model, args, kwargs, dynamic_shapes)
    # Weights that nothing reads are no arguments.
    taken = set(lowered.module.argument_names())
    values = {name: value for name, value in values.items() if name in taken}
    file = Path(path)
    if weights == "beside":
        _save(values, file.with_suffix(".safetensors"))
        lowered.module.package(str(file), list(archs), str(file.with_suffix(".safetensors")), True)
        return
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        inside = Path(folder) / "weights.safetensors"
        _save(values, inside)
        lowered.module.package(str(file), list(archs), str(inside), False)


def _check_folder(path: str):
    """That a file can be written to its folder, before a model is compiled for it."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {Path(path).parent}")


def _lowered(model, args, kwargs, dynamic_shapes) -> tuple[Lowered, dict[str, torch.Tensor]]:
    """A model as a module, and its weights by the names of their arguments."""
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
    values = {**program.state_dict, **program.constants}
    return lowered, {name: values[name] for name in dict.fromkeys(weights.values()) if name in values}


def _save(weights: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    # The format wants tensors that share no memory: tied weights are written twice.
    save_file({name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}, path)
