"""`torch._foreach_*`, which optimizers and `clip_grad_norm_` call on lists of tensors: the operation of each tensor."""

from __future__ import annotations

import torch

aten = torch.ops.aten

_EACH = {
    "_foreach_copy": lambda x, source, non_blocking=False: source.to(x.dtype).expand(x.shape).clone(),
    "_foreach_maximum": lambda x, y: aten.maximum(x, y) if isinstance(y, torch.Tensor) else aten.clamp_min(x, y),
    "_foreach_minimum": lambda x, y: aten.minimum(x, y) if isinstance(y, torch.Tensor) else aten.clamp_max(x, y),
    "_foreach_norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),
    "_foreach_powsum": lambda x, ord=2, dtype=None: x.to(dtype or x.dtype).abs().pow(ord).sum(),
    "_foreach_zero": torch.zeros_like,
    "_foreach_addcmul": lambda x, y, z, value=1: aten.addcmul(x, y, z, value=value),
    "_foreach_addcdiv": lambda x, y, z, value=1: aten.addcdiv(x, y, z, value=value),
}
"""Those that are not called as the operation of one tensor is."""


def _decomposition(packet: str):
    each = _EACH.get(packet) or getattr(aten, packet.removeprefix("_foreach_"), None)
    if each is None:
        return None

    def decomposed(*args, **kwargs):
        count = len(next(a for a in args if isinstance(a, (list, tuple))))
        at = lambda a, i: a[i] if isinstance(a, (list, tuple)) else a
        return [each(*(at(a, i) for a in args), **kwargs) for i in range(count)]

    return decomposed


def decompositions() -> dict:
    """A decomposition for each functional overload that this PyTorch has."""
    found = {}
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        packet, _, overload = full.removeprefix("aten::").partition(".")
        if not packet.startswith("_foreach_") or packet.endswith("_") or "out" in overload:
            continue
        decomposition = _decomposition(packet)
        if decomposition is not None:
            found[getattr(getattr(aten, packet), overload or "default")] = decomposition
    return found
