"""When the tensors of a call are there: results from the first step that writes to them, arguments until the last that reads them."""

import weakref

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from rc.torch import package
from rc.torch.compile import build
from rc.torch.options import Options


def test_results_and_arguments_during_a_call(monkeypatch):
    events, make = [], torch._C._dynamo.guards._empty_strided_cpu

    def made(sizes, strides, dtype):
        events.append(f"made {sizes[0]}")
        return make(sizes, strides, dtype)

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", made)

    def f(a, b, c):
        x = a @ a
        y = b @ b + x.sum()
        return [x, y, c, c @ c + y.sum()]

    example = [torch.rand(n, n) for n in (40, 50, 60)]
    program = build(make_fx(f, tracing_mode="fake")(*example), Options())
    for _ in range(2):
        args = [x.clone() for x in example]
        for x in args:
            weakref.finalize(x, events.append, f"gone {x.shape[0]}")
        events.clear()
        del x
        results = program(args)
        assert args == []
        for result, expected in zip(results, f(*example)):
            torch.testing.assert_close(result, expected)
        assert sorted(events) == ["gone 40", "gone 50", "made 40", "made 50", "made 60"]
        # An argument goes before the result comes that waits for its product.
        assert events.index("gone 40") < events.index("made 50")
        assert events.index("gone 50") < events.index("made 60")
        # The third is given back.
        assert results[2].shape == (60, 60)
        del results


def test_arguments_that_the_caller_holds_stay():
    f = lambda a, b: [a @ a, b @ b]
    a, b = torch.rand(40, 40), torch.rand(50, 50)
    program = build(make_fx(f, tracing_mode="fake")(a, b), Options())
    before = a.clone(), b.clone()
    program(a, b), program([a, b])
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])


def test_what_is_saved_goes_during_the_backward_pass(monkeypatch):
    events, make = [], torch._C._dynamo.guards._empty_strided_cpu

    def made(sizes, strides, dtype):
        result = make(sizes, strides, dtype)
        shape = "x".join(map(str, sizes))
        events.append(f"made {shape}")
        weakref.finalize(result, events.append, f"gone {shape}")
        return result

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", made)
    x = torch.randn(64, 32)
    weights = [(torch.randn(k, n) / 8).requires_grad_() for k, n in ((32, 40), (40, 48), (48, 56))]

    def f(x, a, b, c):
        return (((x @ a).sin() @ b).sin() @ c).sin().sum()

    compiled = torch.compile(f, backend="rc", fullgraph=True)
    for _ in range(3):
        loss = compiled(x, *weights)
        events.clear()
        loss.backward()
        # What the last product read goes before the first weight's gradient is made.
        assert events.index("gone 64x48") < events.index("made 32x40"), events
        expected = torch.autograd.grad(f(x, *weights), weights)
        for weight, gradient in zip(weights, expected):
            torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-4)
            weight.grad = None


def twice(x, w, v, u):
    a = x.exp()
    return a @ w @ v @ u + a


def test_a_memory_limit_is_kept():
    """What is read at the start and at the end is computed again; under less memory products are computed by parts of their rows."""
    x, w, v, u = torch.randn(256, 256) / 16, torch.randn(256, 1024) / 16, torch.randn(1024, 256) / 16, torch.randn(256, 256) / 16
    expected = twice(x, w, v, u)
    for limit in (None, 1310720, 300000):
        torch._dynamo.reset()
        f = torch.compile(twice, backend="rc", fullgraph=True, options={"memory_limit": limit})
        torch.testing.assert_close(f(x, w, v, u), expected, rtol=1e-4, atol=1e-4)


def test_a_memory_limit_that_cannot_be_kept_is_an_error():
    args = torch.randn(256, 256), torch.randn(256, 1024), torch.randn(1024, 256), torch.randn(256, 256)
    for options in ({"memory_limit": 1000}, {"memory_limit": 1000, "fallback": True}):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"the limit of 1000 bytes is not kept: intermediate results take \d{4,6}\n"):
            torch.compile(twice, backend="rc", options=options)(*args)


def test_what_is_no_option_is_named(tmp_path):
    for options in ({"variants": "a"}, {"variants": -1}, {"dump": 3}, {"graphs": "no"}):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=f"rc's option {next(iter(options))} is "):
            torch.compile(torch.sin, backend="rc", options=options)(torch.randn(3))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        package(torch.nn.ReLU(), (torch.randn(3),), str(tmp_path / "absent" / "m.rcp"))


@pytest.mark.parametrize("limit", [0, -1, 2**63, 1e6, "1000", True])
def test_what_is_no_memory_limit_is_an_error(limit):
    torch._dynamo.reset()
    with pytest.raises(Exception, match="memory_limit is a number of bytes from 1 to"):
        torch.compile(torch.sin, backend="rc", options={"memory_limit": limit})(torch.randn(3))


def full_of_nan(device):
    """Leaves the allocator's free memory full of NaN."""
    held = [torch.full((n,), float("nan"), device=device) for n in (1 << 24, *[1 << 20] * 16, *[1 << 16] * 64, *[1 << 10] * 64)]
    del held


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))])
def test_a_training_step_reads_no_memory_that_it_did_not_write(device):
    """On a GPU the arena's slabs come and go during a step."""
    torch.manual_seed(0)
    block = lambda: torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128), torch.nn.LayerNorm(128))
    model = torch.nn.Sequential(*[block() for _ in range(4)]).to(device)
    f, x = torch.compile(model, backend="rc"), torch.randn(512, 128, device=device)
    for _ in range(3):
        found = []
        for call in (f, model):
            model.zero_grad()
            loss = call(x).sin().mean()
            full_of_nan(device)
            loss.backward()
            found.append([p.grad.clone() for p in model.parameters()])
        for a, b in zip(*found):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
