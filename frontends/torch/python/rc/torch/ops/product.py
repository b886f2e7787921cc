"""Matrix products, attention, convolution."""

from __future__ import annotations

from rc.torch.build import Build, T
from rc.torch.dtypes import compute, is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out, out_dtype, translates


@translates("mm")
def mm(b: Build, x: T, y: T, **_) -> T:
    return b.dot(x, y, contract=(1, 0))


@translates("bmm")
def bmm(b: Build, x: T, y: T, **_) -> T:
    return b.dot(x, y, contract=(2, 1), batch=1)


@translates("dot", "vdot")
def dot(b: Build, x: T, y: T) -> T:
    return b.dot(x, y, contract=(0, 0))


@translates("mv")
def mv(b: Build, x: T, y: T) -> T:
    return b.dot(x, y, contract=(1, 0))


def _plus(b: Build, addend: T, product: T, beta, alpha) -> T:
    """beta addend + alpha product, where beta = 0 leaves the addend out, be it NaN. Rounded once."""
    c = product.dtype
    result = out_dtype(b)
    if not is_float(result) and (isinstance(beta, float) or isinstance(alpha, float)):
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else b.scalar("mul", product, alpha)
    if beta == 0:
        return b.convert(product, result)
    addend = b.convert(addend, c)
    addend = addend if beta == 1 else b.scalar("mul", addend, beta)
    return b.convert(b.binary("add", b.expand(addend, product.shape), product), result)


@translates("addmm")
def addmm(b: Build, addend: T, x: T, y: T, *, beta=1, alpha=1, **_) -> T:
    return _plus(b, addend, b.dot(x, y, contract=(1, 0), dtype=compute(x.dtype)), beta, alpha)


@translates("baddbmm")
def baddbmm(b: Build, addend: T, x: T, y: T, *, beta=1, alpha=1, **_) -> T:
    return _plus(b, addend, b.dot(x, y, contract=(2, 1), batch=1, dtype=compute(x.dtype)), beta, alpha)


@translates("addmv")
def addmv(b: Build, addend: T, x: T, y: T, *, beta=1, alpha=1) -> T:
    return _plus(b, addend, b.dot(x, y, contract=(1, 0), dtype=compute(x.dtype)), beta, alpha)


def unused(b: Build, *results: int) -> bool:
    """Whether these results of the node are not used."""
    return not any(user.args[1] in results for user in b.node.users if user.target.__name__ == "getitem")


ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


@translates("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_cpu(b: Build, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return attention(b, q, k, v, attn_mask, dropout_p, is_causal, scale)


def attention(b: Build, q: T, k: T, v: T, mask, dropout: float, causal: bool, scale) -> list:
    if dropout:
        raise Unsupported("attention with dropout")
    if not unused(b, 1):
        return [*attention_with_sums(b, q, k, v, mask, causal, scale)]
    if mask is not None:
        mask = b.reshape(mask, (1,) * (q.rank - mask.rank) + mask.shape) if mask.rank < q.rank else mask
    y = b.op("tensor.sdpa", q, k, v, mask, causal=bool(causal), scale=scale)
    return [y, None]


def scores(b: Build, q: T, k: T, mask, causal: bool, scale) -> T:
    """Scaled and masked scores [batch, heads, queries, keys], in the type of computation."""
    c = compute(q.dtype)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = b.dot(q, k, contract=(3, 3), batch=2, dtype=c)
    s = b.scalar("mul", s, scale)
    if causal:
        hidden = b.compare("gt", b.iota(s.shape, 3), b.iota(s.shape, 2))
        s = b.select(hidden, b.like(float("-inf"), s), s)
    if mask is not None and mask.dtype == "i1":
        s = b.select(mask, s, b.like(float("-inf"), s))
    elif mask is not None:
        s = b.binary("add", s, b.convert(mask, c))
    return s


def attention_with_sums(b: Build, q: T, k: T, v: T, mask, causal: bool, scale) -> tuple[T, T]:
    """Attention and the logarithm of each query's sum, which the backward pass starts from."""
    s = scores(b, q, k, mask, causal, scale)
    top = b.reduce("max", s, [3], keepdim=True)
    top = b.select(b.compare("eq", top, b.like(float("-inf"), top)), b.like(0, top), top)
    e = b.unary("exp", b.binary("sub", s, b.expand(top, s.shape)))
    total = b.reduce("add", e, [3], keepdim=True)
    empty = b.compare("eq", total, b.like(0, total))
    p = b.binary("div", e, b.expand(b.select(empty, b.like(1, total), total), e.shape))
    y = b.convert(b.dot(p, b.convert(v, p.dtype), contract=(3, 2), batch=2), q.dtype)
    sums = b.binary("add", b.unary("log", total), top)
    return y, b.reshape(sums, sums.shape[:3])


@translates("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_cpu_backward(
    b: Build, grad, q, k, v, y, sums, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None
) -> list[T]:
    if dropout_p:
        raise Unsupported("attention with dropout")
    return attention_backward(b, grad, q, k, v, y, sums, attn_mask, is_causal, scale)


def attention_backward(b: Build, grad: T, q: T, k: T, v: T, y: T, sums: T, mask, causal: bool, scale) -> list[T]:
    """Gradients of q, k and v: the probabilities are formed anew from the scores and their sums."""
    c = compute(q.dtype)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    s = scores(b, q, k, mask, causal, scale)
    up = lambda x: b.convert(x, c)
    sums = b.reshape(up(sums), tuple(s.shape[:3]) + (1,))
    p = b.unary("exp", b.binary("sub", s, b.expand(sums, s.shape)))
    # A query that sees no key has sums of -inf, and no gradient.
    p = b.select(b.expand(b.compare("eq", sums, b.like(float("-inf"), sums)), p.shape), b.like(0, p), p)
    grad_v = b.dot(p, up(grad), contract=(2, 2), batch=2)
    grad_p = b.dot(up(grad), up(v), contract=(3, 3), batch=2)
    delta = b.reduce("add", b.binary("mul", up(grad), up(y)), [3], keepdim=True)
    grad_s = b.binary("mul", p, b.binary("sub", grad_p, b.expand(delta, p.shape)))
    grad_s = b.scalar("mul", grad_s, factor)
    grad_q = b.dot(grad_s, up(k), contract=(3, 2), batch=2)
    grad_k = b.dot(grad_s, up(q), contract=(2, 2), batch=2)
    return [b.convert(grad_q, q.dtype), b.convert(grad_k, k.dtype), b.convert(grad_v, v.dtype)]
