"""`flex_attention`: functions of scores and block masks, beside their definition."""

import pytest
import torch
from torch.nn.attention import flex_attention as module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LENGTH = 19


def causal(b, h, i, j):
    return i >= j


def reference(q, k, v, bias):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    i, j = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    scores = q @ k.mT * q.shape[-1] ** -0.5 * 1.1 + bias[:, None, None] * (i - j)
    return scores.masked_fill(i < j, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("grad", [False, True])
def test_scores_and_mask(grad, monkeypatch):
    # PyTorch has no kernel of its own for gradients on a CPU, and refuses them; its operation is the same on all devices.
    monkeypatch.setattr(module, "_validate_device", lambda *_: None)
    torch._dynamo.reset()
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")

    def f(q, k, v, bias):
        score = lambda s, b, h, i, j: s * 1.1 + bias[h] * (i - j)
        return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)

    shapes = [(2, 4, LENGTH, 8), (2, 2, LENGTH, 8), (2, 2, LENGTH, 8), (4,)]
    args = [torch.randn(shape, requires_grad=grad) for shape in shapes]
    ours, theirs = torch.compile(f, backend="rc", fullgraph=True)(*args), reference(*args)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    if grad:
        for a, b in zip(*(torch.autograd.grad(out.square().sum(), args) for out in (ours, theirs))):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
