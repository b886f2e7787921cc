"""Which of PyTorch's operations are decomposed before rc sees a graph."""

import functools

import torch
import torch.nn.functional as F
from torch._decomp import _core_aten_decompositions_post_autograd, core_aten_decompositions, get_decompositions

from rc.torch import foreach, parts
from rc.torch.attention import sdpa
from rc.torch.ops import TABLE

aten = torch.ops.aten

# Beyond PyTorch's core set: what decomposes into operations that rc has.
MORE = (
    aten.addmv, aten.aminmax, aten.binary_cross_entropy_with_logits, aten.bucketize, aten.cumprod_backward, aten.diag_embed, aten.dist,
    aten.fmod, aten.hardtanh, aten.index_copy, aten.index_fill, aten.leaky_relu, aten.lerp, aten.linspace,
    aten.logaddexp, aten.log_sigmoid_forward, aten.masked_scatter, aten.nan_to_num, aten.native_dropout_backward,
    aten.native_layer_norm_backward, aten.norm, aten.rrelu_with_noise_functional, aten.rsub, aten.smooth_l1_loss,
    aten.softplus, aten.tril, aten.triu, aten.tril_indices, aten.triu_indices, aten.upsample_bicubic2d, aten.upsample_bilinear2d,
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d, aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d, aten.upsample_trilinear3d, aten.upsample_linear1d,
    aten._cdist_forward, aten._euclidean_dist, aten.native_group_norm_backward,
    aten.native_batch_norm_backward, aten.batch_norm_backward, aten.nll_loss_backward, aten.nll_loss_forward, aten.nll_loss2d_forward,
    aten.nll_loss2d_backward, aten.split_with_sizes, aten.std_mean, aten.var_mean, aten.unfold_backward, aten.special_bessel_j0,
    aten.special_bessel_j1, aten.special_i0e, aten.special_i1, aten.special_erfcx, aten.special_ndtr, aten.reflection_pad1d_backward,
    aten.reflection_pad2d_backward, aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d, aten.pixel_shuffle,
    aten.pixel_unshuffle, aten.channel_shuffle, aten.narrow, aten.heaviside, aten.logspace, aten.trace,
    aten.hypot, aten.deg2rad, aten.rad2deg, aten.logcumsumexp, aten.vdot, aten.multi_margin_loss, aten.block_diag,
    aten.permute_copy, aten.view_copy, aten.multilabel_margin_loss_forward, aten._weight_norm_interface, aten.isposinf, aten.isneginf,
)  # fmt: skip


def _polar(length, angle):
    return torch.complex(length * angle.cos(), length * angle.sin())


def _eye(n, m=None, *, dtype=None, layout=None, device=None, pin_memory=None):
    """PyTorch counts to 256 and beyond in uint16, which rc does not have."""
    rows, columns = (torch.arange(size, device=device) for size in (n, n if m is None else m))
    return (rows[:, None] == columns).to(dtype or torch.get_default_dtype())


def _unique_consecutive(x, return_inverse=False, return_counts=False, dim=None):
    """PyTorch takes the result to have another shape where the dimension is counted from the end."""
    if dim is None or dim >= 0:
        return NotImplemented
    return aten.unique_consecutive(x, return_inverse, return_counts, dim + x.dim())


def _self_attention(x, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, mask_type):
    """Attention of a sequence [b, n, e] to itself. The mask is true where nothing is seen; its type 0 is [n, n], 1 [b, n], 2 for each head."""
    b, n, e = x.shape
    q, k, v = F.linear(x, qkv_weight, qkv_bias).view(b, n, 3, heads, e // heads).permute(2, 0, 3, 1, 4).unbind()
    if mask is not None:
        mask = ~mask.to(torch.bool)
        mask = mask[:, None, None] if mask_type == 1 else mask
    y = sdpa(q, k, v, attn_mask=mask)
    return F.linear(y.transpose(1, 2).reshape(b, n, e), out_weight, out_bias)


def _transformer_encoder_layer(
    x, e, heads, qkv_weight, qkv_bias, out_weight, out_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2,
    weight_1, bias_1, weight_2, bias_2, mask=None, mask_type=None,
):  # fmt: skip
    """What `nn.TransformerEncoderLayer` calls where no gradients are asked for."""
    first = lambda x: F.layer_norm(x, (e,), norm_weight_1, norm_bias_1, eps)
    second = lambda x: F.layer_norm(x, (e,), norm_weight_2, norm_bias_2, eps)
    attend = lambda x: _self_attention(x, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, mask_type)
    forward = lambda x: F.linear((F.gelu if use_gelu else F.relu)(F.linear(x, weight_1, bias_1)), weight_2, bias_2)
    if norm_first:
        x = x + attend(first(x))
        return x + forward(second(x))
    x = first(x + attend(x))
    return second(x + forward(x))


def _weight_norm_backward(grad, v, g, norms, dim):
    """Gradients of v and g, where w = v g / norm(v), the norm taken over all dimensions but one."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    wide = lambda x: x.to(norms.dtype)
    along = (wide(grad) * wide(v)).sum(others, keepdim=True) if others else wide(grad) * wide(v)
    of_v = (wide(g) / norms) * (wide(grad) - wide(v) * (along / (norms * norms)))
    return of_v.to(v.dtype), (along / norms).to(g.dtype)


# Instead of PyTorch's own, or where it has none.
OWN = {
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.polar.default: _polar,
    aten.eye.default: _eye,
    aten.eye.m: _eye,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.native_channel_shuffle.default: aten.native_channel_shuffle.default.decompose,
    aten._transformer_encoder_layer_fwd.default: _transformer_encoder_layer,
}


def _or(first, second):
    """One decomposition, or the other where the first does not know its arguments."""

    def either(*args, **kwargs):
        result = first(*args, **kwargs)
        return second(*args, **kwargs) if result is NotImplemented and second is not None else result

    return either


@functools.cache
def table() -> dict:
    """The decompositions: PyTorch's core table and some more, but for the operations that rc translates itself. Composite operations are not in
    it, which PyTorch's tracers decompose of themselves: to list them all takes a third of a second."""
    return _without_own(_core_aten_decompositions_post_autograd())


def exported() -> dict:
    """The decompositions for `torch.export`, which keeps composite operations that no table names."""
    return _without_own(core_aten_decompositions().items())


def _without_own(core) -> dict:
    decompositions = dict(core)
    decompositions.update(get_decompositions(MORE) | foreach.decompositions() | OWN)
    decompositions.update((op, _or(pad, decompositions.get(op))) for op, pad in parts.ALWAYS.items())
    return {op: f for op, f in decompositions.items() if op not in TABLE}
