"""Resizing as one operation, `rc::resize`: PyTorch decomposes it to gathers at computed places before its operation is seen."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rc.torch.ops.resize import KINDS, plan

_library = torch.library.Library("rc", "FRAGMENT")
_library.define("resize(Tensor x, int[] sizes, str mode, bool align_corners, float[] scales) -> Tensor")


def interpolate(
    x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
):  # fmt: skip
    """PyTorch's function. Gradients, unknown sizes and what regular windows do not describe go to PyTorch's own."""
    own = lambda: F.interpolate(x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    fixed = all(isinstance(n, int) for n in x.shape) and not (torch.is_grad_enabled() and x.requires_grad)
    if not (fixed and mode in KINDS and not antialias and x.numel()):
        return own()
    given = size if size is not None else scale_factor
    if not all(isinstance(n, (int, float)) for n in (given if isinstance(given, (list, tuple)) else [given])):
        return own()
    rank = x.dim() - 2
    scales = [0.0] * rank
    if size is not None:
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * rank
    else:
        factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * rank
        sizes = [int(float(n) * f) for n, f in zip(x.shape[2:], factors)]
        scales = scales if recompute_scale_factor else [float(f) for f in factors]
    if len(sizes) != rank or plan(x.shape, x.dtype, sizes, mode, bool(align_corners), scales) is None:
        return own()
    return torch.ops.rc.resize.default(x, sizes, mode, bool(align_corners), scales)


def _eager(x, sizes, mode, align_corners, scales):
    aligned = {} if mode.startswith("nearest") else {"align_corners": align_corners}
    named = {"scale_factor": scales} if all(scales) else {"size": sizes}
    return F.interpolate(x, mode=mode, **named, **aligned)


def _resize(x, sizes, mode, align_corners, scales):
    y = x.new_empty([*x.shape[:2], *sizes])
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return y.to(memory_format=torch.channels_last) if last else y


_library.impl("resize", _resize, "Meta")
_library.impl("resize", _eager, "CompositeExplicitAutograd")
