"""Complex numbers: pairs of real tensors in rc's graph, PyTorch's own complex tensors at its boundary."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

DTYPES = {torch.complex64: 1e-5, torch.complex128: 1e-12}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(f, *args, tolerance=1e-5, grad=False, **kwargs):
    """Compiled and eager give the same values, types and strides; with `grad`, the same gradients too."""
    differentiable = lambda x: x.is_floating_point() or x.is_complex()
    copies = [[x.detach().clone().requires_grad_(grad and differentiable(x)) for x in args] for _ in range(2)]
    if not grad:
        copies = [list(args), list(args)]
    outs = [g(*xs) for g, xs in zip((torch.compile(f, backend="rc", fullgraph=True, **kwargs), f), copies)]
    ours, theirs = [list(out) if isinstance(out, (tuple, list)) else [out] for out in outs]
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        torch.testing.assert_close(a.resolve_conj(), b.resolve_conj(), rtol=tolerance, atol=tolerance, equal_nan=True)
    if grad:
        for out in (ours, theirs):
            sum((x.abs() ** 2).sum() for x in out).backward()
        for a, b in zip(*copies):
            torch.testing.assert_close(a.grad, b.grad, rtol=10 * tolerance, atol=10 * tolerance)


def frequencies(width: int, length: int):
    step = 1.0 / (10000.0 ** (torch.arange(0, width, 2).float() / width))
    return torch.polar(torch.ones(length, width // 2), torch.outer(torch.arange(length), step))


def rotated(q, k, turns):
    """LLaMA's own rotary embedding."""
    q_, k_ = (torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) for x in (q, k))
    turns = turns.view(1, q_.shape[1], 1, q_.shape[-1])
    return tuple(torch.view_as_real(x * turns).flatten(3).type_as(q) for x in (q_, k_))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_embedding(dtype):
    q, k = torch.randn(2, 7, 3, 10, dtype=dtype), torch.randn(2, 7, 1, 10, dtype=dtype)
    # One rounding to the type of q at the end, on both sides.
    tolerance = max(1e-5, torch.finfo(dtype).eps)
    check(rotated, q, k, frequencies(10, 7), tolerance=tolerance)
    check(lambda q, k: rotated(q, k, frequencies(10, 16)[2:9]), q, k, tolerance=tolerance)
    if dtype == torch.float32:
        check(rotated, q, k, frequencies(10, 7), grad=True)


def test_rotary_embedding_of_any_length():
    f = torch.compile(rotated, backend="rc", fullgraph=True, dynamic=True)
    for n in (3, 8):
        args = torch.randn(2, n, 3, 10), torch.randn(2, n, 1, 10), frequencies(10, n)
        for a, b in zip(f(*args), rotated(*args)):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic(dtype):
    z, w = torch.randn(3, 5, dtype=dtype), torch.randn(3, 5, dtype=dtype)
    x = torch.randn(3, 5, dtype=z.real.dtype)
    tolerance = DTYPES[dtype]
    f = lambda z, w, x: (z + w, z - 2j * w, z * x, x / z, z / w, z * (1 + 2j), -z, z.conj() * w, 1 / z, z**3, 2 - z, z / 3, z.sgn())
    check(f, z, w, x, tolerance=tolerance)
    check(lambda z, w, x: z * w.conj() + x * z / w, z, w, x, tolerance=10 * tolerance, grad=True)
    check(lambda z: (z.exp(), z.log(), z.sqrt(), z.sin(), z.cos(), z.sinh(), z.cosh()), z, tolerance=4 * tolerance)
    check(lambda z, w: (z @ w.T, z @ w.mH, z @ w[0], torch.nn.functional.linear(z, w)), z, w, tolerance=tolerance, grad=True)


def test_extremes():
    inf, nan = float("inf"), float("nan")
    z = torch.tensor([0j, 1e30 + 1e30j, 1e-30 + 1e-30j, -1 + 0j, complex(-1, -0.0), 1 + 1e-4j, complex(inf, 1), complex(nan, 0)])
    check(lambda z: (z.abs(), z.angle(), z.isnan(), z.isfinite(), z == z, z != 0), z)
    check(lambda z: (z.sqrt(), z.log(), z / z), z[:6])


def test_shapes_and_parts():
    z, w = torch.randn(3, 5, dtype=torch.complex64), torch.randn(3, 5, dtype=torch.complex64)
    check(lambda z, w: (torch.cat([z, w.real], 1), torch.stack([z, w]), z[:, 1:3] * 1, z.T.contiguous(), torch.where(z.real > 0, z, w)), z, w)
    check(lambda z: (z.sum(0), z.mean(), z.cumsum(1), z.flip(0), z[[1, 0]], torch.nn.functional.pad(z, (1, 2)), z.to(torch.complex128)), z)
    check(lambda z: (z.real, z.imag, torch.view_as_real(z), z.t(), z[1:], z.conj()), z)
    check(lambda x: (x.to(torch.complex64), torch.complex(x, x + 1), torch.full((2,), 1 + 2j), torch.ones(2, dtype=torch.complex128)), z.real + 0)
    check(lambda z: z * torch.tensor([1 + 1j, 2, 3j, 4, 5]), z)


def test_memory_of_arguments():
    z = torch.randn(4, 6, dtype=torch.complex64)
    f = lambda z: (z * 2, z.sum())
    for x in (z, z.t(), z[:, ::2], z.conj(), z[:0], z[0, 0]):
        torch._dynamo.reset()
        check(f, x)
    torch._dynamo.reset()
    check(lambda x: x * 2 + 1, z.conj().imag)
    ours, theirs = z.clone(), z.clone()
    torch.compile(lambda z: z.mul_(1j).add_(1), backend="rc", fullgraph=True)(ours)
    torch.testing.assert_close(ours, theirs.mul_(1j).add_(1))


def test_gradients_that_come_conjugated_or_negated():
    """Gradients of results are lazily conjugated or negated where what follows the compiled function is."""
    z = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    f = lambda z: (z * z, z.abs() * 3)
    w, lazy, grads = torch.randn(3, 4, dtype=torch.complex64), [], []
    for g in (torch.compile(f, backend="rc", fullgraph=True), f):
        a, b = g(z)
        a.register_hook(lambda y: lazy.append(y.is_conj()))
        b.register_hook(lambda y: lazy.append(y.is_neg()))
        grads += torch.autograd.grad([a.conj(), torch.complex(torch.zeros(3, 4), b).conj()], z, [w, w])
    assert lazy == [True] * 4
    torch.testing.assert_close(*grads)


def test_foreign_operations_get_complex_tensors():
    def f(x):
        y = torch.fft.rfft(x * 2)
        return torch.fft.irfft(y * torch.exp(1j * torch.arange(3)), n=5) + y.abs().sum()

    check(f, torch.randn(3, 5), options={"fallback": True})


def test_what_is_missing_is_named():
    with pytest.raises(BackendCompilerFailed, match="complex32"):
        torch.compile(lambda x: x * 2, backend="rc")(torch.randn(3).to(torch.complex32))
    with pytest.raises(BackendCompilerFailed, match="cumprod.* no translation of this operation for complex numbers"):
        torch.compile(lambda x: x.cumprod(0), backend="rc")(torch.randn(3, dtype=torch.complex64))
