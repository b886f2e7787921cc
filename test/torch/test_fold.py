"""What depends on no argument is computed when a graph is compiled, where that is worth it."""

import pytest
import torch

from rc.torch import compile as compiling
from rc.torch.fold import fold


@pytest.fixture
def folded(monkeypatch):
    """The folded graphs' targets."""
    seen = []

    def noted(gm):
        fold(gm)
        seen.append([str(n.target) for n in gm.graph.nodes if n.op in ("call_function", "get_attr")])

    monkeypatch.setattr(compiling, "fold", noted)
    return seen


def check(f, *args, times=2):
    torch._dynamo.reset()
    g = torch.compile(f, backend="rc", fullgraph=True)
    for _ in range(times):
        torch.testing.assert_close(g(*args), f(*args))
    return g


def buckets(n, device="cpu"):
    distance = torch.arange(n, device=device)[None, :] - torch.arange(n, device=device)[:, None]
    near = distance.abs() < 4
    far = (torch.log(distance.abs().float() / 4 + 1e-6) * 3).long() + 4
    return torch.where(near, distance.abs(), far.clamp(max=11)) + (distance > 0) * 12


@pytest.mark.parametrize("n", [1, 7, 40])  # a number, a constant in the module, an argument of the module
def test_folded(folded, n):
    table = torch.randn(24, 3)
    check(lambda x: x + table[buckets(n)].sum(-1), torch.randn(n, n))
    assert not any("log" in t for t in folded[0])


def test_windows(folded):
    def f(x):
        mask = x.new_zeros(14, 14)
        for i, h in enumerate([slice(0, -7), slice(-7, -3), slice(-3, None)]):
            for j, w in enumerate([slice(0, -7), slice(-7, -3), slice(-3, None)]):
                mask[h, w] = 3 * i + j
        return x + mask

    check(f, torch.randn(14, 14))
    assert not any("scatter" in t for t in folded[0])


def test_cheap_and_random_and_large_are_not(folded):
    check(lambda x: x + torch.arange(9) * 2 + 1, torch.randn(9))
    assert any("arange" in t for t in folded[-1])
    torch._dynamo.reset()
    torch.compile(lambda x: x + torch.rand(9).exp().log().sin().cos().exp().log().sin().cos(), backend="rc")(torch.ones(9))
    assert any("rand" in t for t in folded[-1])
    check(lambda x: x + buckets(600), torch.randn(600, 600), times=1)
    assert any("log" in t for t in folded[-1])


def test_the_same_number_everywhere(folded):
    check(lambda x: x * (buckets(5) * 0 + 3).sum(0), torch.randn(5))
    assert "aten.full.default" in folded[0]


def test_zeros_of_both_signs_are_not_one_number(folded):
    f = lambda x: x / ((buckets(5) * 2 - 23).sum(0).sign().float() * torch.tensor([1.0, -1, 1, -1, 1]) * 0)
    check(f, torch.ones(5))
    assert "aten.full.default" not in folded[0]


def test_a_result_is_new_each_time():
    g = check(lambda x: (x + 1, buckets(6)), torch.randn(3))
    first, second = g(torch.randn(3))[1], g(torch.randn(3))[1]
    assert first.data_ptr() != second.data_ptr()
    first.zero_()
    assert torch.equal(second, buckets(6))


def test_in_parts():
    @torch.library.custom_op("rc_test_fold::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    f = lambda x: twice(x + buckets(9)) + buckets(9)
    x = torch.randn(9, 9)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="rc", options={"fallback": True})(x), f(x))


def test_with_gradients():
    f = lambda x: (x * buckets(8)).sum()
    x = torch.randn(8, 8, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(f, backend="rc", fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, buckets(8).float())


@pytest.mark.parametrize("grad", [False, True])
def test_a_mask_that_turns_out_to_be_causal_is_not_read(grad, monkeypatch, caplog):
    """Sequences that might be packed, and are not: each query sees the keys before it whose sequence is its own."""
    batch, length = 3, 300  # More elements than a constant of a graph may have.

    def f(q, k, v):
        places = torch.arange(length).expand(batch, -1)
        sequence = (places.diff(dim=1, prepend=places[:, :1] - 1) != 1).cumsum(-1)
        before = places[:, None, :] <= places[:, :, None]
        mask = (before & (sequence[:, None, :] == sequence[:, :, None]))[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    make = lambda: torch.randn(batch, 2, length, 8, requires_grad=grad)
    q, k, v = make(), make(), make()
    torch._dynamo.reset()
    monkeypatch.setenv("RC_LOGS", "graph")
    with caplog.at_level("INFO", "rc.torch"):
        y = torch.compile(f, backend="rc", fullgraph=True)(q, k, v)
    torch.testing.assert_close(y, f(q, k, v))
    assert "causal = true" in caplog.text and "mask(" not in caplog.text
    if grad:
        found, expected = (torch.autograd.grad(z.square().sum(), (q, k, v)) for z in (y, f(q, k, v)))
        torch.testing.assert_close(found, expected)
