"""Which ATen operations rc differentiates as PyTorch does.

rc differentiates what a translation makes of an operation, op by op. That is PyTorch's derivative where both are smooth. At kinks and limits, and where
a branch that is not taken overflows, it is what the translation happens to have there: such operations are written here in parts whose derivative is
PyTorch's, or are left to AOTAutograd.
"""

from __future__ import annotations

import torch

from rc.torch import attention, resize  # noqa: F401 - they declare rc::attention and rc::resize
from rc.torch.ops.table import lookup

aten = torch.ops.aten


def _operations(names: str) -> frozenset:
    return frozenset(op for op in map(lookup, names.split()) if op is not None)


VIEWS = _operations(
    """view _unsafe_view reshape permute transpose.int t unsqueeze squeeze squeeze.dim squeeze.dims expand slice.Tensor select.int
    split.Tensor split_with_sizes unbind.int alias"""
)

_SMOOTH = _operations(
    """clone contiguous _to_copy to.dtype prims::convert_element_type lift_fresh_copy cat stack constant_pad_nd flip roll slice_scatter
    select_scatter copy repeat
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar neg reciprocal
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sigmoid erf abs square
    pow.Tensor_Scalar addcmul addcdiv maximum minimum
    floor ceil round trunc sign
    where.self where.ScalarSelf where.ScalarOther masked_fill.Scalar relu gelu silu leaky_relu
    sum.dim_IntList sum.default mean.dim mean.default amax amin cumsum
    _softmax _log_softmax
    mm bmm addmm baddbmm mv addmv dot _grouped_mm
    embedding index_select gather index.Tensor _unsafe_index.Tensor
    convolution max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d grid_sampler_2d grid_sampler_3d"""
) | {torch.ops.rc.resize.default}

_OF_LIBRARIES = {"transformers.grouped_mm_fallback.default"}
"""Smooth operations that libraries register when they are imported, by name."""

_FIRST = _operations(
    """native_layer_norm native_group_norm _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training native_dropout max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    topk sort sort.stable"""
) | {torch.ops.rc.attention.default}
"""Operations whose first result alone has a gradient."""

_FLAT = _operations(
    """zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty rand_like randn_like detach
    fill.Scalar scalar_tensor"""
)
"""Operations whose results do not follow the elements of their operands."""

_DECOMPOSED = _operations(
    """nll_loss_forward nll_loss2d_forward split_with_sizes split.Tensor log_sigmoid_forward mse_loss smooth_l1_loss huber_loss l1_loss
    tril triu pixel_shuffle pixel_unshuffle squeeze.dims unbind.int stack native_dropout lerp.Scalar lerp.Tensor
    channel_shuffle native_channel_shuffle _unsafe_view t repeat binary_cross_entropy_with_logits rsub.Tensor rsub.Scalar
    addcmul addcdiv square narrow"""
)
"""Operations whose parts, by PyTorch's decompositions, have their derivative."""


def refused(func, args) -> str | None:
    """Why an operation on what needs gradients is left to AOTAutograd."""
    known = func in _SMOOTH or func in _FIRST or func in _FLAT or func in VIEWS
    if not known and str(func) not in _OF_LIBRARIES:
        return "rc does not differentiate it as PyTorch does"
    if func is aten.embedding.default and (len(args) > 2 and args[2] >= 0 or len(args) > 3):
        return "gradients of an embedding with options"
    return None


def passes(func, index: int | None) -> bool:
    """Whether a result follows what needs gradients."""
    return func not in _FLAT and (not index or func not in _FIRST)


def is_right_in_parts(func) -> bool:
    """Whether PyTorch's decomposition of an operation has its derivative."""
    return func in _DECOMPOSED or func in _FIRST or func in _FLAT


# Operations in parts whose derivative, op by op, is PyTorch's.

PARTS: dict[object, object] = {}


def _in_parts(*names: str):
    def register(f):
        PARTS.update((op, f) for op in map(lookup, names) if op is not None)
        return f

    return register


def _slope_at_bound() -> float:
    """That of `clamp`, which is 1 or 0 by PyTorch's version."""
    with torch.enable_grad():
        x = torch.zeros((), requires_grad=True)
        return torch.autograd.grad(x.clamp(min=0), x)[0].item()


_CLOSED = _slope_at_bound() == 1


def _inside(x, low, high):
    """Whether elements are in a range; of NaN it does not hold."""
    above = (lambda: x >= low) if _CLOSED else (lambda: x > low)
    below = (lambda: x <= high) if _CLOSED else (lambda: x < high)
    return below() if low is None else above() if high is None else above() & below()


@_in_parts("clamp_max")
def _clamp_max(x, high):
    return _clamp(x, None, high)


@_in_parts("clamp", "clamp_min")
def _clamp(x, low=None, high=None):
    if low is None and high is None or any(isinstance(bound, torch.Tensor) for bound in (low, high)):
        return NotImplemented
    return torch.where(_inside(x, low, high), x, aten.clamp.default(x.detach(), low, high))


@_in_parts("hardtanh")
def _hardtanh(x, low=-1.0, high=1.0):
    return torch.where((x <= low) | (x >= high), aten.clamp.default(x.detach(), low, high), x)


@_in_parts("relu6")
def _relu6(x):
    return _hardtanh(x, 0, 6)


@_in_parts("hardsigmoid")
def _hardsigmoid(x):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = aten.clamp.default(wide.detach() + 3, 0, 6)
    return (torch.where((wide > -3) & (wide < 3), wide + 3, y) / 6).to(x.dtype)


@_in_parts("hardswish")
def _hardswish(x):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    inner = torch.where(wide.abs() < 3, wide, 0.0)
    y = torch.where(wide < 3, inner * (inner + 3) / 6, wide)
    return torch.where(wide <= -3, wide.detach() * 0, y).to(x.dtype)


@_in_parts("elu")
def _elu(x, alpha=1.0, scale=1.0, input_scale=1.0):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    low = torch.where(wide <= 0, wide, 0.0)
    return torch.where(wide <= 0, (low * input_scale).expm1() * (alpha * scale), wide * scale).to(x.dtype)


@_in_parts("celu")
def _celu(x, alpha=1.0):
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@_in_parts("softplus")
def _softplus(x, beta=1, threshold=20):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    high = wide * beta > threshold
    low = torch.where(high, 0.0, wide)
    return torch.where(high, wide, (low * beta).exp().log1p() / beta).to(x.dtype)


@_in_parts("logsumexp")
def _logsumexp(x, dims, keepdim=False):
    if x.numel() == 0 or not x.is_floating_point():
        return NotImplemented
    top = x.detach().amax(dims, keepdim=True)
    top = torch.where(top.abs() == float("inf"), 0.0, top)
    sums = (x - top).exp().sum(dims, keepdim=True).log() + top
    return sums if keepdim or x.dim() == 0 else sums.squeeze(dims)


@_in_parts("_safe_softmax")
def _safe_softmax(x, dim, dtype=None):
    """The softmax of attention with dropout: rows of -inf give zeros, and have no gradient."""
    if x.numel() == 0 or x.dim() == 0 or not x.is_floating_point():
        return NotImplemented
    wide = x if dtype is None else x.to(dtype)
    masked = wide.detach().amax(dim, keepdim=True) == -float("inf")
    return torch.where(masked, 0.0, torch.softmax(torch.where(masked, 0.0, wide), dim))


@_in_parts("embedding")
def _embedding(table, ids, padding=-1, scaled=False, sparse=False):
    """Rows at the place of padding have no gradient."""
    if padding < 0 or scaled or sparse:
        return NotImplemented
    rows = aten.embedding.default(table, ids)
    return torch.where((ids == padding).unsqueeze(-1), rows.detach(), rows)
