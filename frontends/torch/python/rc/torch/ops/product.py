"""Matrix products, attention, convolution."""

from __future__ import annotations

import math

import torch

from rc.torch.build import Build, T
from rc.torch.dtypes import compute, is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import out_dtype, out_shape, translates, translates_of_library


@translates("mm")
def mm(b: Build, x: T, y: T, **_) -> T:
    return b.dot(x, y, contract=(1, 0))


@translates("mm.dtype", "bmm.dtype")
def product_of_type(b: Build, x: T, y: T, dtype, **_) -> T:
    batch = x.rank - 2
    return b.dot(x, y, contract=(batch + 1, batch), batch=batch, dtype=out_dtype(b))


@translates("_int_mm")
def int_mm(b: Build, x: T, y: T) -> T:
    return b.dot(b.convert(x, "i32"), b.convert(y, "i32"), contract=(1, 0))


@translates("_scaled_mm")
def scaled_mm(b: Build, x: T, y: T, scale_x: T, scale_y: T, bias: T | None = None, scale_result: T | None = None, dtype=None, use_fast_accum=False) -> T:
    """A product of 8-bit floats times scales: one of all of x, or one of each row; one of all of y, or one of each column."""
    # bf16 holds 8-bit floats exactly.
    product = b.dot(b.convert(x, "bf16"), b.convert(y, "bf16"), contract=(1, 0), dtype="f32")
    rows, columns = product.shape
    for scale, of_each in ((scale_x, [rows, 1]), (scale_y, [1, columns])):
        if list(scale.shape) != of_each and any(n != 1 for n in scale.shape):
            raise Unsupported("scales of blocks")
        product = b.binary("mul", product, scale if scale.rank else b.expand(scale, product.shape))
    if bias is not None:
        product = b.binary("add", product, b.convert(bias, "f32"))
    if scale_result is not None:
        product = b.binary("mul", product, scale_result)
    return b.cast(product, out_dtype(b))


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


@translates("_grouped_mm")
@translates_of_library("transformers.grouped_mm_fallback.default")
def grouped_mm(b: Build, x: T, y: T, offs: T | None = None, bias=None, dtype=None) -> T:
    """Row i of x times the matrix of y whose group it is in: group g ends before row offs[g]. Of two matrices, the columns of x and the rows of y are
    in groups, and each gives a product."""
    if bias is not None:
        raise Unsupported("grouped products with a bias")
    if x.rank == 3 and y.rank == 3:
        return b.dot(x, y, contract=(2, 1), batch=1, dtype=out_dtype(b))
    if x.rank != 2 or offs is None:
        raise Unsupported("grouped products whose groups are of columns")
    # Products of narrower elements are exact in the type of the result; rounding comes once.
    dtype = out_dtype(b)
    if y.rank == 2:
        return b.op("tensor.ragged_outer", b.convert(b.permute(x, [1, 0]), dtype), b.convert(y, dtype), offs)
    return b.op("tensor.ragged_dot", b.convert(x, dtype), b.convert(y, dtype), offs)


@translates_of_library("transformers.grouped_mm_fallback_backward.default")
def grouped_mm_backward(b: Build, x: T, y: T, offs: T, grad: T) -> list:
    return [
        b.op("tensor.ragged_dot", grad, b.permute(y, [0, 2, 1]), offs),
        b.op("tensor.ragged_outer", x, grad, offs),
    ]


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
    q, k, v, mask = _agreeing(b, q, k, v, mask)
    if unused(b, 1):
        return [b.op("tensor.sdpa", q, k, v, mask, causal=bool(causal), scale=scale), None]
    results = [(q.dtype, [*q.shape[:-1], v.shape[-1]]), (compute(q.dtype), q.shape[:-1])]
    return b.op("tensor.sdpa", q, k, v, mask, causal=bool(causal), scale=scale, sums=True, results=results)


@translates_of_library("rc.attention.default")
def attention_of_rc(b: Build, q: T, k: T, v: T, mask, causal: bool, scale: float):
    return attention(b, q, k, v, mask, 0.0, causal, scale)


@translates_of_library("rc.attention_backward.default")
def attention_backward_of_rc(b: Build, grad: T, q: T, k: T, v: T, mask, y: T, sums: T, causal: bool, scale: float):
    return attention_backward(b, grad, q, k, v, y, sums, mask, causal, scale)


def _agreeing(b: Build, q: T, k: T, v: T, mask: T | None) -> tuple:
    """The operands by one name for each size; the mask with a dimension for each of the scores."""
    q, k = b.agree(q, k, [(0, 0), (3, 3)])
    k, v = b.agree(k, v, [(0, 0), (1, 1), (2, 2)])
    if mask is not None:
        mask = b.reshape(mask, (1,) * (q.rank - mask.rank) + mask.shape)
        places = [(q, 0), (q, 1), (q, 2), (k, 2)]
        mask = b.assume(mask, [1 if s == 1 else x.shape[d] for s, (x, d) in zip(mask.shape, places)])
    return q, k, v, mask


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


@translates("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_cpu_backward(
    b: Build, grad, q, k, v, y, sums, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None
) -> list[T]:
    if dropout_p:
        raise Unsupported("attention with dropout")
    return attention_backward(b, grad, q, k, v, y, sums, attn_mask, is_causal, scale)


def attention_backward(b: Build, grad: T, q: T, k: T, v: T, y: T, sums: T, mask, causal: bool, scale) -> list[T]:
    """Gradients of q, k and v from the logarithms of each query's sum of exponentials: probabilities are formed anew, and not stored."""
    if q.shape[1] == k.shape[1]:
        return _attention_backward(b, grad, q, k, v, y, sums, mask, causal, scale)
    # Heads that share keys: the sum of what each adds.
    group = q.shape[1] // k.shape[1]
    apart = lambda x: (*x.shape[:2], group, *x.shape[2:])
    repeated = lambda x: b.reshape(b.expand(b.unsqueeze(x, 2), apart(x)), (x.shape[0], q.shape[1], *x.shape[2:]))
    grads = _attention_backward(b, grad, q, repeated(k), repeated(v), y, sums, mask, causal, scale)
    summed = lambda g, x: b.convert(b.reduce("add", b.upcast(b.reshape(g, apart(x))), [2]), x.dtype)
    return [grads[0], summed(grads[1], k), summed(grads[2], v)]


def _attention_backward(b: Build, grad: T, q: T, k: T, v: T, y: T, sums: T, mask, causal: bool, scale) -> list[T]:
    """Where each head has keys of its own."""
    q, k, v, mask = _agreeing(b, q, k, v, mask)
    sums = b.convert(sums, compute(q.dtype))
    operands = (q, k, v, grad, sums, _delta(b, grad, y), mask)
    return b.op("core.attention_backward", *operands, causal=bool(causal), scale=scale, results=[(x.dtype, x.shape) for x in (q, k, v)])


def _delta(b: Build, grad: T, y: T) -> T:
    """For each query the sum of result times gradient [batch, heads, queries], which the derivative of the softmax subtracts."""
    c = compute(y.dtype)
    return b.reduce("add", b.binary("mul", b.convert(grad, c), b.convert(y, c)), [3])


def mask_gradient(b: Build, grad: T, q: T, k: T, v: T, y: T, sums: T, mask: T, causal: bool, scale) -> T:
    """The gradient of what is added to the scores, which has an element for each of them."""
    q, k, v, mask = _agreeing(b, q, k, v, mask)
    s = scores(b, q, k, mask, causal, scale)
    rows = lambda x: b.expand(b.reshape(b.convert(x, s.dtype), tuple(s.shape[:3]) + (1,)), s.shape)
    p = b.unary("exp", b.binary("sub", s, rows(sums)))
    # A query that sees no key has sums of -inf, or next to the lowest number, and no gradient.
    lowest = torch.finfo(torch.float64 if s.dtype == "f64" else torch.float32).min * math.log(2)
    p = b.select(b.compare("le", rows(sums), b.like(lowest, p)), b.like(0, p), p)
    grad_p = b.dot(grad, v, contract=(3, 3), batch=2, dtype=s.dtype)
    return b.convert(b.binary("mul", p, b.binary("sub", grad_p, rows(_delta(b, grad, y)))), mask.dtype)


@translates("addbmm")
def addbmm(b: Build, addend: T, x: T, y: T, *, beta=1, alpha=1) -> T:
    c = compute(x.dtype)
    dims = dict(lhs_contract=[0, 2], rhs_contract=[0, 1], precision=b.precision("matmul", x, y))
    return _plus(b, addend, b.op("core.dot", x, y, **dims, result=(c, [x.shape[1], y.shape[2]])), beta, alpha)


@translates("_trilinear")
def trilinear(b: Build, x: T, y: T, z: T, expand1, expand2, expand3, sumdim, unroll_dim: int = 1) -> T:
    """The product of three tensors, broadcast, summed over dimensions."""
    for dims, which in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for d in sorted(dims):
            x, y, z = [b.unsqueeze(t, d) if i == which else t for i, t in enumerate((x, y, z))]
    c = b.binary("mul", b.binary("mul", b.upcast(x), b.upcast(y)), b.upcast(z))
    return b.convert(b.reduce("add", c, sumdim), out_dtype(b))


def _norm_of(b: Build, difference: T, p: float) -> T:
    """The p-norm of the last dimension."""
    size = b.unary("abs", difference)
    last = [size.rank - 1]
    if p == 0:
        return b.reduce("add", b.convert(b.compare("ne", size, b.like(0, size)), size.dtype), last)
    if p == 1:
        return b.reduce("add", size, last)
    if p == 2:
        return b.unary("sqrt", b.reduce("add", b.binary("mul", size, size), last))
    if p == float("inf"):
        return b.reduce("max", size, last)
    return b.scalar("pow", b.reduce("add", b.scalar("pow", size, p), last), 1 / p)


@translates("_cdist_forward")
def cdist(b: Build, x: T, y: T, p: float, mode=None) -> T:
    """Distances of the rows of [.., p, m] and [.., r, m]."""
    x, y = b.unsqueeze(x, x.rank - 1), b.unsqueeze(y, y.rank - 2)
    if x.shape[-1] == 0:
        return b.full(0, out_dtype(b), out_shape(b))
    x, y = b.broadcast(x, y)
    return b.convert(_norm_of(b, b.binary("sub", b.upcast(x), b.upcast(y)), p), out_dtype(b))


@translates("_pdist_forward")
def pdist(b: Build, x: T, p: float = 2.0) -> T:
    n = x.shape[0]
    if not isinstance(n, int) or n < 2 or x.shape[1] == 0:
        raise Unsupported("distances of no pairs, or of a symbolic number")
    rows, columns = torch.triu_indices(n, n, 1)
    take = lambda places: b.take(x, b.dense(places.contiguous(), "i64"))
    return _norm_of(b, b.binary("sub", take(rows), take(columns)), p)


@translates("_cdist_backward")
def cdist_backward(b: Build, grad: T, x: T, y: T, p: float, distances: T) -> T:
    """The gradient of x: of each distance, along the difference of the rows that it is between."""
    if 0 in x.shape or 0 in y.shape or p == 0:
        return b.full(0, out_dtype(b), out_shape(b))
    up = lambda t: b.unsqueeze(t, t.rank)
    rows, others = b.unsqueeze(x, x.rank - 1), b.unsqueeze(y, y.rank - 2)
    rows, others = b.broadcast(rows, others)
    difference = b.binary("sub", rows, others)
    size, distance = b.unary("abs", difference), b.expand(up(distances), difference.shape)
    apart = b.compare("ne", distance, b.like(0, distance))
    safe = b.select(apart, distance, b.like(1, distance))
    sign = b.unary("sign", difference)
    if p == float("inf"):
        slope = b.select(b.compare("eq", size, distance), sign, b.like(0, sign))
    elif p == 1:
        slope = sign
    elif p == 2:
        slope = b.binary("div", difference, safe)
    else:
        moved = b.compare("ne", size, b.like(0, size))
        ratio = b.binary("div", b.select(moved, size, b.like(1, size)), safe)
        slope = b.select(moved, b.binary("mul", sign, b.scalar("pow", ratio, p - 1)), b.like(0, sign))
    slope = b.select(apart, slope, b.like(0, slope))
    total = b.reduce("add", b.binary("mul", slope, b.expand(up(grad), slope.shape)), [slope.rank - 2])
    lead = [d for d in range(x.rank - 2) if x.shape[d] == 1 and total.shape[d + total.rank - x.rank] != 1]
    return b.convert(b.reduce("add", total, lead, keepdim=True), out_dtype(b)) if lead else b.convert(total, out_dtype(b))
