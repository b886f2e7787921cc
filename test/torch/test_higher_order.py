"""Control flow, transforms and custom operations: compiled, run by PyTorch where `fallback` allows it, or named with their lines."""

import logging

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


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


FOREIGN = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)),
    "while_loop": lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64), x)),
    "scan": lambda x: scan(lambda a, b: (a + b, a * b), x[0], x),
    "map_impl": lambda x: map_(lambda a, b: a * b + 1, x, x[0] + 1),
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
def test_foreign_with_fallback(name, sign, caplog):
    f, x = FOREIGN[name], sign * torch.rand(4, 8)
    with caplog.at_level(logging.WARNING, logger="rc.torch"):
        found = torch.compile(f, backend="rc", fullgraph=True, options={"fallback": True})(x)
    torch.testing.assert_close(found, f(x))
    assert f"{name}" in caplog.text and f"{__file__}:" in caplog.text and "getitem" not in caplog.text


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_is_named_with_its_line(name):
    with pytest.raises(BackendCompilerFailed) as e:
        torch.compile(FOREIGN[name], backend="rc", fullgraph=True)(torch.rand(4, 8))
    assert f"1 operation of this graph\n  {name}" in str(e.value) and f"{__file__}:" in str(e.value)


@pytest.mark.parametrize("name", NATIVE)
def test_native(name):
    f, x = NATIVE[name], torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(x), f(x))


def test_gradients_through_a_function_of_the_users():
    x = torch.randn(4, 8, requires_grad=True)
    (g,) = torch.autograd.grad(torch.compile(NATIVE["function"], backend="rc", fullgraph=True)(x).sum(), x)
    torch.testing.assert_close(g, 2 * x.cos())
