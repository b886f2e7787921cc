"""Arguments that a compiled function writes to: the same memory contents as eager, and where elements at some places change, only these are written."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from rc.torch.updates import Write


def cache(c, at, k, q):
    c.index_copy_(2, at, k)
    return attend(q, c, c)


def again(c, at, k, q):
    c.index_copy_(2, at, k)
    c.index_put_((torch.zeros_like(at), at), q[0, 0] * 2, accumulate=True)
    return attend(q, c, c)


def before(c, at, k, q):
    old = c.sum()
    c.index_copy_(2, at, k)
    return old + c.sum()


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
    [(cache, []), (again, []), (before, ["index_put_"]), (window, ["copy_", "copy_"]), (swap, []), (twice, ["index_put_", "index_put_"]), (whole, [])],
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


def test_a_cache_with_gaps_is_written_at_its_places():
    """One that is part of a larger tensor: copying all of it would take longer than the step."""
    torch._dynamo.reset()
    theirs, at, k, q = torch.randn(2, 4, 12, 8), torch.tensor([5]), torch.randn(2, 4, 1, 8), torch.randn(2, 4, 1, 8)
    ours = theirs.clone()
    seen, run = [], Write.run
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Write, "run", lambda self, *args: seen.append(self.target._opname) or run(self, *args))
        out = torch.compile(cache, backend="rc", fullgraph=True)(ours[:, :, :9], at, k, q)
        torch.testing.assert_close(out, cache(theirs[:, :, :9], at, k, q))
    torch.testing.assert_close(ours, theirs)
    assert seen == ["index_put_"]


def test_a_cache_that_is_passed_twice():
    torch._dynamo.reset()

    def f(a, b, at, k):
        a.index_copy_(1, at, k)
        return a + b

    compiled = torch.compile(f, backend="rc", dynamic=False)
    first, other, at, k = torch.randn(3, 5), torch.randn(3, 5), torch.tensor([4]), torch.randn(3, 1)
    with torch.no_grad():
        for b in (other, first):
            theirs = first.clone()
            ours = first.clone()
            torch.testing.assert_close(compiled(ours, ours if b is first else b, at, k), f(theirs, theirs if b is first else b, at, k))
            torch.testing.assert_close(ours, theirs)


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


def step(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.mul_(0.999).addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def _agree(f, ours, theirs, dynamic=False):
    """Runs the step twice, compiled and not; gives how often PyTorch wrote to an argument after the compiled function."""
    torch._dynamo.reset()
    compiled, count = torch.compile(f, backend="rc", fullgraph=True, dynamic=dynamic), []
    run = Write.run
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Write, "run", lambda self, *args: count.append(self) or run(self, *args))
        for _ in range(2):
            versions = [x._version for x in ours]
            compiled(*ours), f(*theirs)
            for a, b in zip(ours, theirs):
                torch.testing.assert_close(a, b, **({"rtol": 0.02, "atol": 0.01} if a.dtype == torch.bfloat16 else {}))
            changed = [a._version > before for a, before in zip(ours, versions)]
            assert changed == [f is not step or i != 1 for i in range(len(ours))]
    return len(count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (0, 3), (17, 33), (7, 1, 5)])
def test_an_optimizers_step_is_done_in_place(shape, dtype):
    theirs = [torch.rand(shape, dtype=dtype) for _ in range(4)]
    ours = [x.clone() for x in theirs]
    places = [x.data_ptr() for x in ours]
    assert _agree(step, ours, theirs) == 0
    assert [x.data_ptr() for x in ours] == places


def test_layouts_of_arguments():
    make = lambda i: [torch.rand(5, 7).t(), torch.rand(7, 5), torch.rand(7, 9)[:, 1:6], torch.rand(1, 5, 7).permute(2, 1, 0).squeeze(-1)][i]
    theirs = [make(i) for i in range(4)]
    ours = [x.clone(memory_format=torch.preserve_format) for x in theirs]
    ours[2] = torch.zeros(7, 9)[:, 1:6].copy_(theirs[2])
    _agree(step, ours, theirs)


def test_arguments_of_another_layout_than_was_compiled_for():
    f = torch.compile(step, backend="rc", dynamic=False)
    with torch.no_grad():
        f(*(torch.rand(6, 6) for _ in range(4)))
        theirs = [torch.rand(6, 8)[:, 1:7] for _ in range(4)]
        ours = [torch.zeros(6, 8)[:, 1:7].copy_(x) for x in theirs]
        f(*ours), step(*theirs)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


def test_sizes_that_change():
    def f(p, g):
        p.sub_(g, alpha=0.5)

    compiled = torch.compile(f, backend="rc", dynamic=True)
    for n in (4, 9, 1, 130):
        p, g = torch.rand(n, 3), torch.rand(n, 3)
        expected = p - 0.5 * g
        compiled(p, g)
        torch.testing.assert_close(p, expected)


def test_arguments_that_share_memory():
    """Views that did not overlap when the function was compiled, and do later: all is read before anything is written, the first argument first."""

    def f(a, b):
        a.add_(b.flip(0))
        b.mul_(2)

    compiled = torch.compile(f, backend="rc", dynamic=False)
    memory = torch.arange(32.0)
    compiled(memory[:8], memory[16:24])
    for start in (4, 0, 7, 8, 24):
        ours, expected = memory.clone(), memory.clone()
        compiled(ours[:8], ours[start : start + 8])
        a, b = memory[:8], memory[start : start + 8]
        expected[:8] = a + b.flip(0)
        expected[start : start + 8] = 2 * b
        torch.testing.assert_close(ours, expected)


def test_what_the_argument_held_is_given_back_too():
    def f(p, g):
        old = p * 1
        p.add_(g)
        return old, p.view(-1)

    p, g = torch.rand(3, 5), torch.rand(3, 5)
    before = p.clone()
    old, flat = torch.compile(f, backend="rc", fullgraph=True)(p, g)
    torch.testing.assert_close(old, before)
    torch.testing.assert_close(p, before + g)
    assert flat.data_ptr() == p.data_ptr()


def test_only_overwritten():
    def f(out, x):
        out.copy_(x.cos())

    out, x = torch.zeros(13), torch.rand(13)
    torch.compile(f, backend="rc", fullgraph=True)(out, x)
    torch.testing.assert_close(out, x.cos())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_optimizers(kind):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    twin = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    twin.load_state_dict(model.state_dict())
    ours, theirs = kind(model.parameters(), lr=0.1), kind(twin.parameters(), lr=0.1)
    compiled = torch.compile(ours.step, backend="rc")
    for _ in range(3):
        x = torch.randn(4, 5)
        for m, o, s in ((model, ours, compiled), (twin, theirs, theirs.step)):
            o.zero_grad()
            m(x).square().sum().backward()
            s()
    for a, b in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(a, b)


def test_writes_are_counted_once():
    """A graph that writes to arguments is called without AOTAutograd's wrappers, and counts its writes as PyTorch does."""

    class Cache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 8))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x, i):
            self.cache.index_copy_(0, i, x)
            self.count.add_(1)
            return self.cache.sum(1) + self.count

    eager, own = Cache(), Cache()
    f = torch.compile(own, backend="rc")
    with torch.no_grad():
        for i in range(3):
            args = torch.randn(1, 8), torch.tensor([i])
            before = own.cache._version, own.count._version
            torch.testing.assert_close(f(*args), eager(*args))
            torch.testing.assert_close(own.cache, eager.cache)
            assert (own.cache._version, own.count._version) == (before[0] + 1, before[1] + 1)
