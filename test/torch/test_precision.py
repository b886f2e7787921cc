"""Precision between operations on 16 bits: float32's inside of a kernel, unless eager's roundings are asked for."""

import pytest
import torch
import torch.nn.functional as F


def chain(x, y):
    z = torch.tanh(x * y) + x
    return F.silu(z) * y - z


def compiled(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, backend="rc", fullgraph=True, options=options or None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_keeps_the_precision_of_float32(dtype):
    torch.manual_seed(0)
    x, y = (torch.randn(64, 33, dtype=dtype) for _ in range(2))
    exact = chain(x.double(), y.double())
    error = lambda got: ((got.double() - exact).norm() / exact.norm()).item()
    assert error(compiled(chain)(x, y)) < 0.8 * error(chain(x, y))


def test_eagers_roundings_where_they_are_asked_for():
    torch.manual_seed(0)
    x, y = (torch.randn(64, 33, dtype=torch.bfloat16) for _ in range(2))
    torch.testing.assert_close(compiled(chain, emulate_precision_casts=True)(x, y), chain(x, y), rtol=0, atol=0)


def test_a_cast_of_the_program_rounds():
    x = torch.randn(1000)
    f = lambda x: (x * 3).to(torch.bfloat16).float() - x
    torch.testing.assert_close(compiled(f)(x), f(x), rtol=0, atol=0)
