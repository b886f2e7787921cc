"""Whether compiled results are right: beside eager's, and where they differ, against float64."""

from __future__ import annotations

import re

import torch
from torch.utils._pytree import tree_flatten, tree_map

UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
RANDOM = re.compile(r"rand|multi_head_attention|normal|bernoulli|multinomial|dropout|exponential|cauchy|geometric|uniform|rrelu|fractional_max_pool|alpha_dropout")
# Operations that give places of elements, and which of their integers is the dimension.
PLACES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0}
# Eager resizes bytes along one dimension after the other and rounds each time, or with weights of a few bits.
RESIZING = re.compile(r"interpolate|upsample")
# Attention's results from this one on are the state of a generator, which without dropout nothing sets.
UNSET = {"torch.ops.aten._flash_attention_forward": 2, "torch.ops.aten._efficient_attention_forward": 2}
# Factors of a matrix, found by random projections: signs are free, and without full rank the directions too.
FACTORS = {"svd_lowrank", "pca_lowrank"}
NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)


def widened(x):
    """In float64, or in complex128."""
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


def call(op, sample, grad: bool, wrap):
    """The operation's results, and its gradients where they are asked for."""
    fresh = lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
    inputs, extra, kwargs = tree_map(fresh, (sample.input, sample.args, sample.kwargs))
    f = wrap(lambda *a, **k: op(*a, **k))
    out = f(inputs, *extra, **kwargs)
    if not grad:
        return out
    out = sample.output_process_fn_grad(out)
    outs = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [x for x in tree_flatten((inputs, extra, kwargs))[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.manual_seed(2)
    # Drawn row by row: two results that are the same may lie in memory otherwise.
    weights = [torch.randn(o.shape, dtype=o.dtype, device=o.device) for o in outs]
    grads = torch.autograd.grad(outs, leaves, weights, allow_unused=True) if outs and leaves else ()
    return out, grads


def differs(op, sample, grad: bool, expected, actual) -> str | None:
    """What is wrong with the results, if anything."""
    a, b = tree_flatten(actual)[0], tree_flatten(expected)[0]
    if len(a) != len(b):
        return f"{len(a)} results, {len(b)} expected"
    reference = None
    for i, (x, y) in enumerate(zip(a, b)):
        if not isinstance(y, torch.Tensor):
            if x != y and not (isinstance(x, float) and x != x and y != y):
                return f"result {i} is {x}, {y} expected"
            continue
        if not isinstance(x, torch.Tensor) or x.dtype != y.dtype or x.shape != y.shape:
            return f"result {i} is {_type(x)}, {_type(y)} expected"
        if op.name in UNINITIALIZED or op.name.split(".")[-1] in UNINITIALIZED or close(x, y):
            continue
        if i >= UNSET.get(op.name, len(b)) and not sample.kwargs.get("dropout_p"):
            continue
        if op.name in FACTORS and i < 3 and factors_hold(op, sample, a[:3]):
            continue
        if RANDOM.search(op.name) or sample.kwargs.get("dropout_p"):
            if moments_agree(x, y):
                continue
            return f"result {i}: moments differ"
        if op.name in PLACES and x.dtype == torch.int64 and _same_elements(op, sample, x, y):
            continue
        if RESIZING.search(op.name) and y.dtype == torch.uint8 and as_near(op, sample, x, y):
            continue
        if reference is None:
            reference = in_float64(op, sample, grad)
        if i < len(reference) and no_worse(x, y, reference[i]):
            continue
        return f"result {i}: {_difference(x, y)}"
    return None


def _type(x) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__


def close(x, y) -> bool:
    return _difference(x, y) is None


def _difference(x, y) -> str | None:
    try:
        torch.testing.assert_close(x, y, equal_nan=True)
        return None
    except AssertionError as e:
        return " ".join(str(e).split())


def moments_agree(x, y) -> bool:
    if x.numel() < 30:
        return True
    x, y = x.to(torch.float64), y.to(torch.float64)
    spread = max(y.std(unbiased=False).item(), x.std(unbiased=False).item(), 1e-6)
    return abs(x.mean() - y.mean()).item() <= 6 * spread / max(x.numel(), 1) ** 0.5 + 1e-6


def _same_elements(op, sample, x, y) -> bool:
    """Whether two lists of places name equal elements: of equal ones any may be named."""
    at, v = PLACES[op.name], sample.input.detach()
    numbers = [a for a in sample.args if isinstance(a, int) and not isinstance(a, bool)]
    dim = sample.kwargs.get("dim", numbers[at] if len(numbers) > at else None)
    if v.dim() == 0:
        return True
    if dim is None and op.name in ("median", "nanmedian"):
        return False
    dim = -1 if dim is None else dim
    x, y = (t if t.dim() == v.dim() else t.unsqueeze(dim) for t in (x, y))
    return close(v.gather(dim, x), v.gather(dim, y))


def factors_hold(op, sample, actual) -> bool:
    """Whether U, S and V [m, k], [k], [n, k] are orthonormal factors of the sample's matrix A: U' A V = S, and U S V' no farther from A than
    a few times the nearest matrix of rank k."""
    u, s, v = (widened(t) for t in actual)
    a = widened(sample.input @ sample.args[0].mT)
    if sample.kwargs.get("M") is not None:
        a = a - widened(sample.kwargs["M"])
    if op.name == "pca_lowrank" and sample.kwargs.get("center", True):
        a = a - a.mean(-2, keepdim=True)
    k, values = s.shape[-1], torch.linalg.svdvals(a)
    bound = 32 * torch.finfo(actual[1].dtype).eps * max(a.shape[-2:])
    size, rest = values[..., :1, None], values[..., k : k + 1, None] if k < values.shape[-1] else 0.0
    near = lambda x, y, bound: bool(((x - y).abs() <= bound).all())
    one = torch.eye(k, dtype=s.dtype, device=s.device)
    orthonormal = near(u.mH @ u, one, bound) and near(v.mH @ v, one, bound)
    return orthonormal and near(u.mH @ a @ v, s.diag_embed(), bound * size) and near((u * s[..., None, :]) @ v.mH, a, bound * size + 4 * rest)


def as_near(op, sample, x, y) -> bool:
    """Whether bytes are the nearest to the results in float64, or no farther from them than eager's."""
    exact = call(op, sample.transform(lambda t: t.double() if isinstance(t, torch.Tensor) and t.dtype == torch.uint8 else t), False, lambda f: f)
    error = lambda z: (z.double() - exact.clamp(0, 255)).abs().max().item()
    return error(x) <= max(0.5 + 1e-4, error(y))


def in_float64(op, sample, grad: bool) -> list:
    """The results in float64, the reference for what rounding explains."""
    wide = lambda x: widened(x).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) and x.dtype in NARROW else x
    try:
        torch.manual_seed(1)
        return tree_flatten(call(op, sample.transform(wide), grad, lambda f: f))[0]
    except Exception:  # noqa: BLE001 - not every operation takes float64
        return []


def no_worse(x, y, reference) -> bool:
    """Whether rc's error is within four times eager's, or a few units of the dtype's rounding."""
    if not isinstance(reference, torch.Tensor) or reference.shape != x.shape:
        return False
    if not (x.is_floating_point() or x.is_complex()) or x.is_complex() != reference.is_complex():
        return False
    r = widened(reference)
    mine, eager = (widened(x) - r).abs(), (widened(y) - r).abs()
    same = (x.isnan() & r.isnan()) | (widened(x) == r) | (x.isnan() & y.isnan()) | (x == y)
    scale = r[r.isfinite()].abs().max().item() if r.isfinite().any() else 1.0
    allowed = 4 * eager[eager.isfinite()].max().item() if eager.isfinite().any() else 0.0
    allowed = max(allowed, 16 * torch.finfo(x.dtype).eps * scale)
    return bool((same | (mine <= allowed)).all())
