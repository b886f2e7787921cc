"""Which ATen operations rc differentiates as PyTorch does.

rc differentiates what a translation makes of an operation, op by op. That is PyTorch's derivative where both are smooth. At kinks and limits, and where
a branch that is not taken overflows, it is what the translation happens to have there: such operations are written in parts whose derivative is
PyTorch's (`parts.py`), or are left to AOTAutograd.
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
    split.Tensor split_with_sizes unbind.int alias unfold"""
)

_SMOOTH = _operations(
    """clone contiguous _to_copy to.dtype prims::convert_element_type lift_fresh_copy cat stack constant_pad_nd flip roll slice_scatter
    select_scatter copy repeat
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar neg reciprocal
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sigmoid erf abs square
    pow.Tensor_Scalar addcmul addcdiv maximum minimum
    floor ceil round trunc sign
    where.self where.ScalarSelf where.ScalarOther masked_fill.Scalar relu gelu silu leaky_relu
    sum.dim_IntList sum.default mean.dim mean.default amax amin cumsum cumprod
    _softmax _log_softmax
    mm bmm addmm baddbmm mv addmv dot _grouped_mm
    embedding index_select gather index.Tensor _unsafe_index.Tensor scatter_add index_add
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
    addcmul addcdiv square narrow _weight_norm_interface"""
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
