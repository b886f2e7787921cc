"""Arguments that a compiled function writes to: the same memory contents as eager, and where elements at some places change, only these are written."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from rc.torch.updates import Write


def cache(c, at, k, q):
    c.index_copy_(2, at, k)
    return attend(q, c, c)


def window(c, at, k, q):
    c[:, :, 3:4] = k
    c[:, 1, 2:6:2, 1:3] = 1.5
    return attend(q, c, c)


def swap(c, at, k, q):
    t = k.clone()
    k.copy_(q)
    q.copy_(t)
    return k + q


def twice(c, at, k, q):
    c[at] = c[at - 1] + 1
    c[at - 1] += 1
    return c.sum()


def whole(c, at, k, q):
    c.mul_(2).index_add_(2, at, k)
    c.permute(3, 2, 1, 0)[1] = 0


@pytest.mark.parametrize(
    ("f", "writes"),
    [(cache, ["index_put_"]), (window, ["copy_", "copy_"]), (swap, ["copy_", "copy_"]), (twice, ["index_put_", "index_put_"]), (whole, ["copy_"])],
)
def test_written_arguments(f, writes, monkeypatch):
    seen, run = [], Write.run
    monkeypatch.setattr(Write, "run", lambda self, *args: seen.append(self.target._opname) or run(self, *args))
    torch._dynamo.reset()
    theirs = [torch.randn(2, 4, 9, 8), torch.tensor([1]), torch.randn(2, 4, 1, 8), torch.randn(2, 4, 1, 8)]
    ours = [x.clone() for x in theirs]
    with torch.no_grad():
        out, expected = torch.compile(f, backend="rc", fullgraph=True)(*ours), f(*theirs)
    for a, b in zip([*ours, out], [*theirs, expected]):
        if b is not None:
            torch.testing.assert_close(a, b)
    assert seen == writes


def test_lengths_that_change():
    def f(c, new):
        c[: new.shape[0]] = new
        return c.sum()

    compiled = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    for n in (3, 5):
        theirs, new = torch.randn(9), torch.randn(n)
        ours = theirs.clone()
        torch.testing.assert_close(compiled(ours, new), f(theirs, new))
        torch.testing.assert_close(ours, theirs)
