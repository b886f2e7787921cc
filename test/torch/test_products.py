"""Products on the CPU in the ways that its schedules have: words of bf16, few rows along k, odd sizes, NaN and infinities."""

import pytest
import torch
import torch.nn.functional as F


def compiled(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="rc", fullgraph=True, dynamic=False)


def check(f, args, k):
    got, exact = compiled(f)(*args), f(*(a.double() for a in args))
    x, w = (a.double().abs() for a in args[:2])
    # The result's rounding, and that of float32 sums.
    bound = torch.finfo(got.dtype).eps * exact.abs() + 2**-23 * k * F.linear(x, w) + 1e-6
    assert ((got.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m,n,k", [(1, 7, 33), (2, 129, 1003), (7, 10, 257), (16, 301, 1000), (33, 64, 77), (131, 257, 771), (64, 1, 100), (5, 3, 1), (128, 512, 512)])
def test_rows_with_rows(dtype, m, n, k):
    torch.manual_seed(m * n + k)
    x, w, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
    check(lambda x, w, b: F.linear(x, w, b), (x, w, b), k)
    check(lambda x, w: F.relu(x @ w.t()), (x, w), k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_a_module_keeps(dtype):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(301, 515).to(dtype), torch.randn(129, 301).to(dtype)
    with torch.no_grad():
        run = compiled(layer)
        for _ in range(3):
            exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
            assert ((run(x).double() - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-4).all()
            layer.weight.mul_(0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [3, 130])
def test_numbers_that_are_none(dtype, m):
    x, w = torch.randn(m, 259).to(dtype), torch.randn(65, 259).to(dtype)
    x[1, 258], x[2, 0], w[7, 258] = float("nan"), float("inf"), float("-inf")
    got, exact = compiled(F.linear)(x, w), F.linear(x.double(), w.double()).to(dtype)
    assert torch.equal(got.isnan(), exact.isnan()) and torch.equal(got.isinf(), exact.isinf())
