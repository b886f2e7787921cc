"""Control flow, transforms and custom operations: compiled, run by PyTorch where `fallback` allows it, or named with their lines."""

import gc

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import rc.torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@torch.library.custom_op("rc_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("rc_test::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()


def mutating(x):
    y = x * 2
    add_one(y)
    return y + 1


def collatz(n):
    """Steps to 1: a choice inside of a loop."""
    step = lambda i, n: (i + 1, torch.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,)))
    return while_loop(lambda i, n: n > 1, step, (torch.zeros((), dtype=torch.int64, device=n.device), n))


def power(x, w):
    """Towards the largest eigenvalue's vector, of a matrix that the loop only reads."""
    go_on = lambda i, v, far: (far > -1) & (i < 9)

    def step(i, v, far):
        u = w @ v
        u = u / u.norm()
        return i + 1, u, (u - v).abs().max()

    return while_loop(go_on, step, (torch.zeros((), dtype=torch.int64, device=x.device), x, x.new_ones(())))


def recurrent(x, w, h):
    """Steps of a recurrent network: states carried, all of them given."""

    def step(h, row):
        h = torch.tanh(row + h @ w)
        return h, (h * 2).to(torch.bfloat16)

    return scan(step, h, x)


CONTROL = {
    "choice": (lambda x: torch.cond(x.sum() > 0, lambda x: (x.sin() + 1, x.sum(0)), lambda x: (x.cos(), x[0] * 2), (x,)), [(5, 3)]),
    "counted": (lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64, device=x.device), x)), [(4, 7)]),
    "never": (lambda x: while_loop(lambda x: x.sum() < -1e9, lambda x: (x * 2,), (x,)), [(4, 7)]),
    "odd": (lambda x: while_loop(lambda x: x.abs().max() < 40, lambda x: (x * 2,), (x,)), [(4, 7)]),
    "power": (power, [(6,), (6, 6)]),
    "recurrent": (recurrent, [(7, 2, 5), (5, 5), (2, 5)]),
    "reversed": (lambda x: scan(lambda a, b: (a + b, a * b), x[0], x, reverse=True), [(5, 3)]),
    "scan of scans": (lambda x: scan(lambda a, b: (a + b[0], scan(lambda c, d: (c + d, c * d), a, b)[1]), x[0, 0], x), [(3, 4, 2)]),
    "map": (lambda x, y: map_(lambda a, y: (a * y + 1, a > y), x, y), [(5, 3), (3,)]),
    "one": (lambda x: scan(lambda a, b: (a + b, a * b), x[0], x), [(1, 3)]),
}


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow(name, sign):
    f, shapes = CONTROL[name]
    args = [sign * torch.rand(*shape) for shape in shapes]
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(*args), f(*args))


@pytest.mark.parametrize("name", ["choice", "odd", "recurrent", "map"])
def test_control_flow_of_any_size(name):
    f, shapes = CONTROL[name]
    compiled = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    for more in (0, 4, 9):
        args = [torch.randn(*(n + more for n in shape)) / 4 for shape in shapes]
        torch.testing.assert_close(compiled(*args), f(*args))


def test_choices_inside_of_loops():
    compiled = torch.compile(collatz, backend="rc", fullgraph=True)
    for n, steps in ((1, 0), (2, 1), (27, 111), (97, 118)):
        assert [int(x) for x in compiled(torch.tensor(n))] == [steps, 1]


@needs_gpu
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_is_part_of_cuda_graphs(name):
    f, shapes = CONTROL[name]
    compiled = torch.compile(f, backend="rc", fullgraph=True)
    kept = []
    for i in range(8):
        args = [(-1) ** (i // 2) * torch.rand(*shape, device="cuda") for shape in shapes]
        kept.append((compiled(*args), f(*args)))
        args[0].mul_(-3)
    for found, expected in kept:
        torch.testing.assert_close(found, expected)
    assert_graphs(7)


@needs_gpu
def test_choices_inside_of_loops_are_part_of_cuda_graphs():
    compiled = torch.compile(collatz, backend="rc", fullgraph=True)
    for n, steps in ((1, 0), (2, 1), (27, 111), (97, 118), (1, 0), (6, 8)):
        assert [int(x) for x in compiled(torch.tensor(n, device="cuda"))] == [steps, 1]
    assert_graphs(5)


def assert_graphs(calls):
    """All launches were CUDA graphs, but for the first call."""
    gc.collect()
    [lines] = rc.torch.graphs().values()
    assert len(lines) == 1 and f"{calls} calls by a CUDA graph" in lines[0] and "1 calls launch by launch" in lines[0], lines


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_choices(sign):
    x, y = (sign * torch.rand(3, 4)).requires_grad_(), torch.rand(4, 5, requires_grad=True)
    f = lambda x, y: torch.cond(x.sum() > 0, lambda x, y: (x @ y).sin(), lambda x, y: x.exp() @ y, (x, y))
    found = torch.autograd.grad(torch.compile(f, backend="rc", fullgraph=True)(x, y).sum(), (x, y))
    torch.testing.assert_close(found, torch.autograd.grad(f(x, y).sum(), (x, y)))


def test_gradients_of_loops_over_slices():
    shapes = CONTROL["recurrent"][1]
    args = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    f = lambda *args: scan(lambda h, row: (torch.tanh(row + h @ args[1]), h * 2), args[2], args[0])[1].sum()
    g = lambda *args: torch.stack(list(unrolled(*args))).sum()

    def unrolled(x, w, h):
        for row in x:
            yield h * 2
            h = torch.tanh(row + h @ w)

    found = torch.autograd.grad(torch.compile(f, backend="rc", fullgraph=True)(*args), args)
    torch.testing.assert_close(found, torch.autograd.grad(g(*args), args))


def test_what_is_missing_inside_of_a_branch_is_named_with_its_line():
    f = lambda x: torch.cond(x.sum() > 0, lambda x: torch.rand_like(x) + x, lambda x: x + 1, (x,))
    with pytest.raises(BackendCompilerFailed) as e:
        torch.compile(f, backend="rc", fullgraph=True)(torch.rand(4, 8))
    assert "inside of it: random numbers inside of branches" in str(e.value) and f"{__file__}:" in str(e.value)
    compiled = torch.compile(f, backend="rc", fullgraph=True, options={"fallback": True})
    torch.testing.assert_close(compiled(-torch.ones(4)), torch.zeros(4))


FOREIGN = {
    "rc_test.twice": lambda x: twice(x + 1) * 3,
    "rc_test.add_one": mutating,
}

NATIVE = {
    "associative_scan": lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"),
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda x: (x.sin() * 2).exp(), x, use_reentrant=False),
    "vmap": lambda x: torch.vmap(lambda a, b: (a * b).sum())(x, x),
    "grad": lambda x: torch.func.grad(lambda x: (x.sin() * x).sum())(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,)),
    "function": lambda x: Sine.apply(x) * 2,
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("sign", [1, -1])
def test_foreign(name, sign):
    f, x = FOREIGN[name], sign * torch.rand(4, 8)
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(x), f(x))


@pytest.mark.parametrize("name", FOREIGN)
def test_what_cannot_be_called_from_a_branch_is_named_with_its_line(name):
    f = lambda x: torch.cond(x.sum() > 0, lambda x: FOREIGN[name](x), lambda x: x + 1, (x,))
    with pytest.raises(BackendCompilerFailed) as e:
        torch.compile(f, backend="rc", fullgraph=True)(torch.rand(4, 8))
    assert "an operation that PyTorch runs inside of branches" in str(e.value) and f"{__file__}:" in str(e.value)


@pytest.mark.parametrize("name", NATIVE)
def test_native(name):
    f, x = NATIVE[name], torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(x), f(x))


def test_gradients_through_a_function_of_the_users():
    x = torch.randn(4, 8, requires_grad=True)
    (g,) = torch.autograd.grad(torch.compile(NATIVE["function"], backend="rc", fullgraph=True)(x).sum(), x)
    torch.testing.assert_close(g, 2 * x.cos())


@torch.library.custom_op("rc_test::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).t().contiguous().t()


@turned.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("shape", [(5, 3), (1, 4), (0, 3)])
def test_a_result_that_lies_otherwise_than_its_fake(shape):
    """A view of a foreign operation's result takes its strides from the fake kernel, which may be wrong."""
    f = lambda x: turned(x)[:, 1]
    x = torch.randn(shape)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True, options={"fallback": True})(x), f(x))


@torch.library.custom_op("rc_test::strewn", mutates_args=())
def strewn(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).repeat_interleave(2)[::2]


@strewn.register_fake
def _(x):
    return x.new_empty(x.numel())


@torch.library.custom_op("rc_test::conjugate", mutates_args=())
def conjugate(x: torch.Tensor) -> torch.Tensor:
    return x.clone().conj()


@conjugate.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("rc_test::opposite", mutates_args=())
def opposite(x: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(x.clone())


@opposite.register_fake
def _(x):
    return torch.empty_like(x)


OTHERWISE = {
    "dense": lambda z: (strewn(z.real).view(-1, 1)[1:], strewn(z)[1:].view(-1, 2)),
    "conjugated": lambda z: (conjugate(z) + 1, conjugate(z)[:, 1], conjugate(z).imag, conjugate(z).imag.sum(1), conjugate(z)),
    "negated": lambda z: (opposite(z.real) + 1, opposite(z.real)[1:], opposite(z.real)),
}
"""Results that their fakes describe otherwise; views of them, and what is computed from them."""


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_a_fake_says_of_memory_holds(name):
    f, z = OTHERWISE[name], torch.randn(5, 3, dtype=torch.complex64)
    torch._dynamo.reset()
    ours = torch.compile(f, backend="rc", fullgraph=True, options={"fallback": True})(z)
    for a, b in zip(ours, f(z), strict=True):
        torch.testing.assert_close(a, b)
