"""`scaled_dot_product_attention` as one operation, on every device: which of PyTorch's kernels would run, and what that one asks of masks,
sizes and heads, decides nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from rc.torch import layout

_library = torch.library.Library("rc", "DEF")
_library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> (Tensor, Tensor)")
_library.define(
    "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor y, Tensor sums, bool causal, float scale) "
    "-> (Tensor, Tensor, Tensor)"
)

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def sdpa(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """As `F.scaled_dot_product_attention`, by `rc.attention` where that can do it."""
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        lower = lambda x: x.to(dtype) if x is not None and x.is_floating_point() and x.dtype != torch.float64 else x
        q, k, v, attn_mask = (lower(x) for x in (q, k, v, attn_mask))
    folded = _with_heads(q, k, v, attn_mask)
    if folded is None or not _fits(*folded, dropout_p, is_causal, enable_gqa):
        return F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return torch.ops.rc.attention.default(*folded, is_causal, float(scale))[0].reshape(*q.shape[:-1], v.shape[-1])


def _with_heads(q, k, v, mask):
    """The operands with one dimension for a batch and one for heads, which is one where they have three dimensions; None where they have other ones each."""
    rank = q.dim()
    if rank < 3 or not rank == k.dim() == v.dim() or mask is not None and mask.dim() > rank:
        return None
    if mask is not None:
        mask = mask[(None,) * (rank - mask.dim())]
    if rank == 4:
        return q, k, v, mask
    lead = q.shape[:-2]
    if not all(_equal(x.shape[:-2], lead) for x in (k, v)):
        return None

    def fold(x):
        return x.unsqueeze(1) if rank == 3 else x.flatten(0, -4)

    if mask is not None:
        # One mask for all stays one.
        alike = all(_equal([m], [1]) for m in mask.shape[:-3])
        mask = fold(mask if alike or rank == 3 else mask.expand(*lead, *mask.shape[-2:]))
    return fold(q), fold(k), fold(v), mask


def _fits(q, k, v, mask, dropout_p, is_causal, enable_gqa) -> bool:
    plain = all(x.layout == torch.strided and not x.is_nested for x in (q, k, v))
    if not plain or dropout_p or q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype or is_causal and mask is not None:
        return False
    # The heads and their widths are not symbolic; batch and lengths may be.
    if not (q.dim() == k.dim() == v.dim() == 4) or any(not isinstance(s, int) for x in (q, k, v) for s in x.shape[1::2]):
        return False
    batch, heads, queries, depth = q.shape
    shared, keys = k.shape[1], k.shape[2]
    if not _equal(k.shape, (batch, shared, keys, depth)) or not _equal(v.shape[:3], k.shape[:3]):
        return False
    if not all(statically_known_true(s > 0) for s in (*q.shape, *k.shape, *v.shape)):
        return False
    # One head of keys is broadcast in any case.
    if heads != shared and not (shared == 1 or enable_gqa and heads % shared == 0):
        return False
    if mask is None:
        return True
    fits = all(_equal([m], [1]) or _equal([m], [s]) for m, s in zip(mask.shape, (batch, heads, queries, keys)))
    return fits and mask.dtype in (torch.bool, q.dtype) and not mask.requires_grad


def _equal(a, b) -> bool:
    """Whether sizes are known to be the same, without a guard."""
    return all(statically_known_true(m == n) for m, n in zip(a, b, strict=True))


def _like(q, size: int):
    """A result whose dimensions lie in memory as those of the queries do, as PyTorch's kernels give it."""
    order = sorted(range(4), key=lambda d: (-layout.hint(q.stride(d)), d))
    return torch.empty_permuted((*q.shape[:3], size), order, dtype=q.dtype, device=q.device)


def _attention(q, k, v, mask, causal, scale):
    sums = torch.empty(q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32, device=q.device)
    return _like(q, v.shape[-1]), sums


def _attention_backward(grad, q, k, v, mask, y, sums, causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


# As `register_fake` has it, which looks through all modules of the process for the caller's first.
_library.impl("attention", _attention, "Meta")
_library.impl("attention_backward", _attention_backward, "Meta")


def _scores(q, k, mask, causal, scale):
    """In the type of computation, with the keys of each head."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    s = q.to(wide) @ k.to(wide).mT * scale
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else s + mask
    return s


def _eager(q, k, v, mask, causal, scale):
    """For what rc leaves to PyTorch."""
    s = _scores(q, k, mask, causal, scale)
    sums = s.logsumexp(-1)
    p = (s - sums.unsqueeze(-1)).exp().nan_to_num(0.0)
    y = p @ v.to(s.dtype).repeat_interleave(q.shape[1] // v.shape[1], 1)
    return _like(q, v.shape[-1]).copy_(y), sums


def _eager_backward(grad, q, k, v, mask, y, sums, causal, scale):
    group = q.shape[1] // k.shape[1]
    s = _scores(q, k, mask, causal, scale)
    wide, heads = s.dtype, lambda x: x.unflatten(1, (-1, group)).sum(2)
    p = (s - sums.unsqueeze(-1)).exp().nan_to_num(0.0)
    grad, repeated = grad.to(wide), lambda x: x.to(wide).repeat_interleave(group, 1)
    inner = grad @ repeated(v).mT - (grad * y.to(wide)).sum(-1, keepdim=True)
    of_s = p * inner * scale
    return (of_s @ repeated(k)).to(q.dtype), heads(of_s.mT @ q.to(wide)).to(k.dtype), heads(p.mT @ grad).to(v.dtype)


_library.impl("attention", _eager, "CompositeExplicitAutograd")
_library.impl("attention_backward", _eager_backward, "CompositeExplicitAutograd")


def _keep(ctx, inputs, output):
    q, k, v, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, _):
    if grad is None:
        return (None,) * 6
    q, k, v, mask, y, sums = ctx.saved_tensors
    grads = torch.ops.rc.attention_backward.default(grad, q, k, v, mask, y, sums, ctx.causal, ctx.scale)
    return (*grads, None, None, None)


torch.library.register_autograd("rc::attention", _backward, setup_context=_keep, lib=_library)


_MASKS = {torch.ops.rc.attention.default: (3, 4), torch.ops.rc.attention_backward.default: (4, 7)}
"""Where the operations have their mask and whether they are causal."""


def is_mask(node: Node) -> bool:
    """Whether attention uses the value as its mask, and nothing else uses it."""
    return bool(node.users) and all(_masks(user, node) for user in node.users)


def _masks(user: Node, node: Node) -> bool:
    at = _MASKS.get(user.target)
    return at is not None and user.args[at[0]] is node and user.args.count(node) == 1


def settle_masks(node: Node, value: torch.Tensor) -> None:
    """Has attention that is masked by a constant do without it: where that shows each query all keys, or those up to its own place."""
    if value.dtype != torch.bool or value.dim() != 4 or value.shape[-2] != value.shape[-1]:
        return
    causal = torch.equal(value, torch.ones_like(value).tril())
    if not causal and not bool(value.all()):
        return
    for user in [user for user in node.users if _masks(user, node)]:
        (mask, is_causal), args = _MASKS[user.target], list(user.args)
        args[mask], args[is_causal] = None, causal or args[is_causal]
        user.args = tuple(args)
