"""Attention as PyTorch has it on CUDA: of its kernels' operations rc asks for the memory-efficient one, whose results are plain tensors."""

from __future__ import annotations

from rc.torch.build import Build, T
from rc.torch.errors import Unsupported
from rc.torch.ops.product import attention, attention_backward, mask_gradient, unused
from rc.torch.ops.table import translates


@translates("_scaled_dot_product_efficient_attention")
def efficient_attention(
    b: Build, q: T, k: T, v: T, mask, compute_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, *, scale=None
) -> list:
    y, sums = attention(b, q, k, v, mask, dropout_p, is_causal, scale)
    if sums is not None:
        # PyTorch's kernel has room for whole blocks of queries.
        size = b.node.meta["val"][1].shape[-1]
        sums = b.pad(sums, [0, 0, 0], [0, 0, size - sums.shape[-1]])
    # The seed and offset of dropout, of which there is none.
    seed, offset = (None if unused(b, i) else b.full(0, "i64", []) for i in (2, 3))
    return [y, sums, seed, offset]


@translates("_scaled_dot_product_efficient_attention_backward")
def efficient_attention_backward(
    b: Build, grad: T, q: T, k: T, v: T, mask, y: T, sums: T, seed, offset, dropout_p: float, wanted, is_causal: bool = False, *, scale=None
) -> list:
    if dropout_p:
        raise Unsupported("attention with dropout")
    sums = b.narrow(sums, 2, 0, q.shape[2])
    of_mask = None
    if mask is not None and wanted[3] and not unused(b, 3):
        of_mask = mask_gradient(b, grad, q, k, v, y, sums, mask, is_causal, scale)
    return [*attention_backward(b, grad, q, k, v, y, sums, mask, is_causal, scale), of_mask]
