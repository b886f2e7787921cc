"""Which of PyTorch's operations are decomposed before rc sees a graph."""

import functools

import torch
from torch._decomp import get_decompositions

from rc.torch.ops import TABLE

aten = torch.ops.aten

# Beyond PyTorch's core set: what decomposes into operations that rc has.
MORE = (
    aten.addmv, aten.aminmax, aten.binary_cross_entropy_with_logits, aten.bucketize, aten.cumprod_backward, aten.diag_embed, aten.dist,
    aten.fmod, aten.hardtanh, aten.index_add, aten.index_copy, aten.index_fill, aten.leaky_relu, aten.lerp, aten.linspace,
    aten.logaddexp, aten.log_sigmoid_forward, aten.masked_scatter, aten.nan_to_num, aten.native_dropout_backward,
    aten.native_layer_norm_backward, aten.norm, aten.rrelu_with_noise_functional, aten.rsub, aten.smooth_l1_loss,
    aten.softplus, aten.tril, aten.triu, aten.tril_indices, aten.triu_indices, aten.upsample_bicubic2d, aten.upsample_bilinear2d,
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d, aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d, aten.upsample_trilinear3d, aten.upsample_linear1d,
    aten.grid_sampler_2d, aten._cdist_forward, aten._euclidean_dist, aten.native_group_norm_backward,
    aten.native_batch_norm_backward, aten.batch_norm_backward, aten.nll_loss_backward, aten.nll_loss_forward, aten.nll_loss2d_forward,
    aten.nll_loss2d_backward, aten.split_with_sizes, aten.std_mean, aten.var_mean, aten.unfold_backward, aten.special_bessel_j0,
    aten.special_bessel_j1, aten.special_i0e, aten.special_i1, aten.special_erfcx, aten.special_ndtr, aten.reflection_pad1d_backward,
    aten.reflection_pad2d_backward, aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d, aten.pixel_shuffle,
    aten.pixel_unshuffle, aten.channel_shuffle, aten.narrow, aten.eye, aten.heaviside, aten.logspace, aten.trace,
    aten.hypot, aten.deg2rad, aten.rad2deg, aten.logcumsumexp, aten.vdot, aten.multi_margin_loss, aten.block_diag,
    aten.permute_copy, aten.view_copy, aten.multilabel_margin_loss_forward, aten._weight_norm_interface, aten.isposinf, aten.isneginf,
)  # fmt: skip


def _polar(length, angle):
    return torch.complex(length * angle.cos(), length * angle.sin())


def _unique_consecutive(x, return_inverse=False, return_counts=False, dim=None):
    """PyTorch takes the result to have another shape where the dimension is counted from the end."""
    if dim is None or dim >= 0:
        return NotImplemented
    return aten.unique_consecutive(x, return_inverse, return_counts, dim + x.dim())


# Instead of PyTorch's own, or where it has none.
OWN = {aten.polar.default: _polar, aten.unique_consecutive.default: _unique_consecutive}


@functools.cache
def table() -> dict:
    """The decompositions: PyTorch's core table and some more, but for the operations that rc translates itself."""
    from torch._decomp import core_aten_decompositions

    decompositions = dict(core_aten_decompositions().items())
    decompositions.update(get_decompositions(MORE) | OWN)
    return {op: f for op, f in decompositions.items() if op not in TABLE}
