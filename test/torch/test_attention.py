"""`scaled_dot_product_attention` compiled by rc, forward and backward, beside eager PyTorch in float64."""

import pytest
import torch
import torch.nn.functional as F


def inputs(heads, shared, queries, keys, *mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, n, 16) for h, n in ((heads, queries), (shared, keys), (shared, keys)))
    return q, k, v, *mask


def plain(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


def causal(q, k, v):
    turned = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*turned, is_causal=True).transpose(1, 2).flatten(2)


def places(q, k, v):
    at = torch.arange(q.shape[2])
    return plain(q, k, v, (at[:, None] >= at)[None, None])


def broadcast(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def windowed(q, k, v):
    apart = lambda x: x.unflatten(1, (2, 2))
    p = (apart(q) * 0.3 @ apart(k).mT).softmax(-1)
    return (p @ apart(v)).flatten(1, 2)


def without_heads(q, k, v, mask):
    return F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in (q, k, v)), attn_mask=mask).unflatten(0, q.shape[:2])


def units(q, k, v, mask=None):
    """Heads of units of windows, as hierarchical vision models have them."""
    apart = (x.unflatten(1, (2, 2)) for x in (q, k, v))
    return F.scaled_dot_product_attention(*apart, attn_mask=mask).flatten(1, 2)


def softmax(q, k, v, mask):
    return (q @ k.mT * 0.25 + mask.to(q.dtype)).softmax(-1) @ v


LOWEST = torch.zeros(2, 1, 9, 13).masked_fill(torch.arange(9)[:, None] < torch.tensor([4, 0])[:, None, None, None], torch.finfo(torch.float32).min)
"""A bias as transformers writes it: the first queries of one sequence see no key."""

KEYS = torch.arange(26).reshape(2, 1, 1, 13) % 5 != 3
CASES = {
    "plain": (plain, inputs(4, 4, 9, 13)),
    "causal, turned": (causal, inputs(4, 4, 9, 9)),
    "compared places": (places, inputs(4, 4, 9, 9)),
    "shared heads": (plain, inputs(8, 2, 9, 13)),
    "one head of keys, broadcast": (broadcast, inputs(4, 1, 9, 9)),
    "five dimensions": (windowed, inputs(4, 4, 9, 13)),
    "three dimensions": (without_heads, inputs(4, 4, 9, 13, KEYS[0])),
    "three dimensions, a mask each": (without_heads, inputs(4, 4, 9, 13, torch.arange(8 * 9 * 13).reshape(8, 9, 13) % 7 != 2)),
    "units": (units, inputs(4, 4, 9, 13)),
    "units, a mask of heads": (units, inputs(4, 4, 9, 13, torch.arange(2 * 9 * 13).reshape(2, 9, 13) % 7 != 2)),
    "units, a mask each": (units, inputs(4, 4, 9, 13, torch.arange(4 * 9 * 13).reshape(2, 2, 1, 9, 13) % 7 != 2)),
    "one query of shared heads": (plain, inputs(8, 2, 1, 13, KEYS)),
    "repeated mask of keys": (plain, inputs(4, 4, 9, 13, KEYS.expand(2, 1, 9, 13))),
    "bias": (plain, inputs(4, 4, 9, 13, torch.linspace(-2, 2, 9 * 13).reshape(9, 13))),
    "all keys hidden": (plain, inputs(4, 4, 9, 13, torch.zeros(2, 1, 9, 13, dtype=torch.bool))),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_attention(name, gradients):
    f, args = CASES[name]
    torch._dynamo.reset()

    def run(f, wide):
        given = [x.to(torch.float64) if wide and x.is_floating_point() else x for x in args]
        given = [x.detach().clone().requires_grad_(gradients and i < 3) if i < 3 else x for i, x in enumerate(given)]
        y = f(*given)
        if not gradients:
            return [y]
        return [y, *torch.autograd.grad(y, given[:3], torch.cos(y.detach()))]

    compiled = torch.compile(f, backend="rc", fullgraph=True, dynamic=False)
    for got, want in zip(run(compiled, False), run(f, True), strict=True):
        torch.testing.assert_close(got.to(torch.float64), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("f", [softmax, plain])
def test_keys_hidden_by_the_lowest_number(f, dtype):
    """Queries of which all keys are hidden see them alike, and spoil nothing; their gradient, of padding, is none."""
    torch._dynamo.reset()
    q, k, v, mask = inputs(4, 4, 9, 13, LOWEST.clamp(min=torch.finfo(dtype).min))
    grad = torch.randn(2, 4, 9, 16).masked_fill(mask[:, :, :, :1] < 0, 0)

    def run(f, dtype):
        given = [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
        y = f(*given, mask.to(dtype))
        return [y, *torch.autograd.grad(y, given, grad.to(dtype))]

    exact = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    for got, want in zip(run(torch.compile(f, backend="rc", fullgraph=True), dtype), run(f, torch.float64), strict=True):
        torch.testing.assert_close(got.to(torch.float64), want, **exact)


@pytest.mark.parametrize("learns", [False, True])
def test_hidden_queries_have_no_gradient(learns):
    torch._dynamo.reset()
    q, k, v, mask = inputs(4, 4, 9, 13, LOWEST)
    given = [x.requires_grad_() for x in (q, k, v, torch.zeros(2, 4, 9, 13))][: 3 + learns]
    f = lambda q, k, v, *bias: plain(q, k, v, (bias[0] if bias else 0) + mask)
    found = torch.autograd.grad(torch.compile(f, backend="rc", fullgraph=True)(*given).sin().sum(), given)
    hidden = (mask[:, 0, :, 0] < 0)[:, None].expand(2, 4, 9)
    assert all(not x[hidden].any() and x[~hidden].any() for x in (found[0], *found[3:]))
