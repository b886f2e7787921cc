"""Operations in parts whose derivative, op by op, is PyTorch's: at kinks, at limits, and where a branch that is not taken overflows."""

from __future__ import annotations

import math

import torch

from rc.torch.ops.table import lookup

aten = torch.ops.aten

PARTS: dict[object, object] = {}
"""By operation. A part that does not know its arguments is NotImplemented."""


def _in_parts(*names: str):
    def register(f):
        PARTS.update((op, f) for op in map(lookup, names) if op is not None)
        return f

    return register


def _wide(x):
    """What half precision is computed in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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


@_in_parts("zero")
def _zero(x):
    """Zeros that follow no element, of a tensor that may need gradients all the same."""
    return aten.masked_fill.Scalar(x, torch.ones((), dtype=torch.bool, device=x.device), 0)


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
    wide = _wide(x)
    y = aten.clamp.default(wide.detach() + 3, 0, 6)
    return (torch.where((wide > -3) & (wide < 3), wide + 3, y) / 6).to(x.dtype)


@_in_parts("hardswish")
def _hardswish(x):
    wide = _wide(x)
    inner = torch.where(wide.abs() < 3, wide, 0.0)
    y = torch.where(wide < 3, inner * (inner + 3) / 6, wide)
    return torch.where(wide <= -3, wide.detach() * 0, y).to(x.dtype)


@_in_parts("elu")
def _elu(x, alpha=1.0, scale=1.0, input_scale=1.0):
    wide = _wide(x)
    low = torch.where(wide <= 0, wide, 0.0)
    return torch.where(wide <= 0, (low * input_scale).expm1() * (alpha * scale), wide * scale).to(x.dtype)


@_in_parts("celu")
def _celu(x, alpha=1.0):
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@_in_parts("softplus")
def _softplus(x, beta=1, threshold=20):
    wide = _wide(x)
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


@_in_parts("_prelu_kernel")
def _prelu(x, slope):
    return torch.where(x > 0, x, slope * torch.where(x > 0, 0.0, x))


@_in_parts("threshold")
def _threshold(x, threshold, value):
    return torch.where(x <= threshold, value, x)


@_in_parts("mish")
def _mish(x):
    wide = _wide(x)
    return (wide * _softplus(wide).tanh()).to(x.dtype)


@_in_parts("glu")
def _glu(x, dim=-1):
    a, b = _wide(x).chunk(2, dim)
    return (a * b.sigmoid()).to(x.dtype)


@_in_parts("nan_to_num")
def _nan_to_num(x, nan=None, posinf=None, neginf=None):
    return torch.where(x.abs() < float("inf"), x, aten.nan_to_num.default(x.detach(), nan, posinf, neginf))


# Norms and variances


def _dims(x, dims: list | None) -> list:
    """The dimensions that are reduced; all where none is named."""
    return list(dims) if dims else list(range(x.dim()))


def _root(x):
    """The square root, whose slope at zero is zero."""
    return torch.where(x == 0, x.detach(), torch.where(x == 0, 1.0, x).sqrt())


@_in_parts("linalg_vector_norm")
def _vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    if x.numel() == 0 or not x.is_floating_point() or ord not in (1, 2, math.inf):
        return NotImplemented
    dims = _dims(x, dim)
    wide, result = _wide(x if dtype is None else x.to(dtype)), dtype or x.dtype
    if ord == 2:
        return _root((wide * wide).sum(dims, keepdim)).to(result)
    return (wide.abs().sum(dims, keepdim) if ord == 1 else wide.abs().amax(dims, keepdim)).to(result)


def _variance(x, dim, correction, keepdim):
    """Of the distances from the mean, which has no part in the gradient: they add up to zero."""
    dims = _dims(x, dim)
    count = math.prod(x.shape[d] for d in dims)
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    apart = wide - mean.detach()
    variance = (apart * apart).sum(dims, keepdim) / max(0, count - (1 if correction is None else correction))
    return variance, mean if keepdim or not dims else mean.squeeze(dims)


def _spread(name: str, root: bool, with_mean: bool):
    @_in_parts(name)
    def parts(x, dim=None, *, correction=None, keepdim=False):
        if x.numel() == 0 or not x.is_floating_point():
            return NotImplemented
        variance, mean = _variance(x, dim, correction, keepdim)
        spread = (_root(variance) if root else variance).to(x.dtype)
        return (spread, mean.to(x.dtype)) if with_mean else spread


_spread("var.correction", root=False, with_mean=False)
_spread("std.correction", root=True, with_mean=False)
_spread("var_mean.correction", root=False, with_mean=True)
_spread("std_mean.correction", root=True, with_mean=True)


# Extremes with their places, to which gradients go


def _extreme(kind: str):
    operation = getattr(aten, kind)

    @_in_parts(f"{kind}.dim")
    def of_rows(x, dim, keepdim=False):
        if x.dim() == 0 or x.numel() == 0:
            return NotImplemented
        places = operation.dim(x.detach(), dim, True)[1]
        values = x.gather(dim, places)
        return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))

    @_in_parts(kind)
    def of_all(x):
        return x.amax() if kind == "max" else x.amin()


_extreme("max")
_extreme("min")


# Padding by what is there


ALWAYS: dict[object, object] = {}
"""Of these, those that are in parts without gradients too: one kernel, which copies runs, where indices would be looked up for every element."""


def _padding(mode: str, rank: int):
    name = f"{mode}_pad{rank}d"

    @_in_parts(name)
    def parts(x, padding):
        if any(not isinstance(p, int) for p in padding):
            return NotImplemented
        for i in range(rank):
            dim, (low, high) = x.dim() - 1 - i, padding[2 * i : 2 * i + 2]
            before, after = (_reflected if mode == "reflection" else _replicated)(x, dim, max(low, 0), max(high, 0))
            x = torch.cat([y for y, count in ((before, low), (x, 1), (after, high)) if count > 0], dim)
            x = x.narrow(dim, max(-low, 0), x.shape[dim] + min(low, 0) + min(high, 0))
        return x

    ALWAYS[lookup(name)] = parts


def _reflected(x, dim, low, high):
    return x.narrow(dim, 1, low).flip(dim), x.narrow(dim, x.shape[dim] - 1 - high, high).flip(dim)


def _replicated(x, dim, low, high):
    size = lambda count: [count if d == dim else -1 for d in range(x.dim())]
    return x.narrow(dim, 0, 1).expand(size(low)), x.narrow(dim, x.shape[dim] - 1, 1).expand(size(high))


for _mode in ("reflection", "replication"):
    for _rank in (1, 2, 3):
        _padding(_mode, _rank)


@_in_parts("im2col")
def _windows(x, sizes, dilations, padding, strides):
    """The windows of images [(b,) c, h, w] as columns [(b,) c * elements of a window, windows]."""
    if x.dim() == 3:
        return _windows(x[None], sizes, dilations, padding, strides)[0]
    y = torch.nn.functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    for d in (0, 1):
        y = y.unfold(2 + d, dilations[d] * (sizes[d] - 1) + 1, strides[d])[..., :: dilations[d]]
    count = y.shape[2] * y.shape[3]
    return y.permute(0, 1, 4, 5, 2, 3).reshape(x.shape[0], x.shape[1] * sizes[0] * sizes[1], count)


ALWAYS[aten.im2col.default] = _windows


@_in_parts("col2im")
def _images(x, size, sizes, dilations, padding, strides):
    """Windows of images, as `im2col` gives them, added where they came from."""
    if x.dim() == 2:
        return _images(x[None], size, sizes, dilations, padding, strides)[0]
    height, width = (size[d] + 2 * padding[d] for d in (0, 1))
    count = [(n - dilations[d] * (sizes[d] - 1) - 1) // strides[d] + 1 for d, n in ((0, height), (1, width))]
    y = x.reshape(x.shape[0], -1, *sizes, *count)
    y = _added_windows(_spread(y.movedim(3, -1), dilations[1]), 4, width, strides[1])
    y = _added_windows(_spread(y.movedim(2, -1), dilations[0]), 2, height, strides[0])
    return y[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]


def _spread(x, step):
    """With zeros between the elements of the last dimension."""
    return x if step == 1 else torch.nn.functional.pad(x[..., None], (0, step - 1)).flatten(-2)[..., : 1 - step]


def _added_windows(x, dim, size, stride):
    """Windows along `dim`, whose elements are the last dimension, added: the neighbours between one and the next at once."""
    parts = []
    for first in range(0, x.shape[-1], stride):
        block = x[..., first : first + stride]
        block = torch.nn.functional.pad(block, (0, stride - block.shape[-1]))
        row = block.movedim(-1, dim + 1).flatten(dim, dim + 1)
        rest = size - first - row.shape[dim]
        parts.append(torch.nn.functional.pad(row, (0, 0) * (row.dim() - 1 - dim) + (first, rest)))
    return sum(parts[1:], parts[0])


ALWAYS[aten.col2im.default] = _images
