"""8-bit floats: conversions to the bit, what moves them, products of them."""

import pytest
import torch
import torch.nn.functional as F

FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2]
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INF, NAN = float("inf"), float("nan")
# Zeros, powers of two, ties, the largest of each format and what lies beyond, subnormal numbers.
EDGES = [0.0, -0.0, 1, -1, 1.0625, 1.125, 448, 449, 464, 465, 480, 57344, 61439, 61440, 65536, 1e9, -1e9, INF, -INF, NAN]
EDGES += [2.0**-k * x for k in (6, 7, 9, 10, 14, 16, 17, 30) for x in (1, 1.01, 1.5, -1.99)]


def bits(x):
    """The codes of 8-bit floats, those of NaN as one."""
    codes = x.contiguous().view(torch.uint8)
    return torch.where(x.float().isnan(), 0x7F, codes)


def same(f, x):
    got, want = torch.compile(f, backend="rc", dynamic=False)(x), f(x)
    assert got.dtype == want.dtype
    if want.dtype in FORMATS:
        got, want = bits(got), bits(want)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return request.param


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("other", FLOATS)
def test_conversions(device, dtype, other):
    for n in (1, 61, 4096):
        far = torch.randn(n) * torch.exp2(torch.randint(-18, 18, (n,)))
        x = torch.cat([torch.tensor(EDGES), far]).to(device, other)
        if other != torch.float64:  # which PyTorch rounds twice
            same(lambda x: x.to(dtype), x)
        codes = torch.arange(256, dtype=torch.uint8).repeat(16)[-n:].view(dtype).to(device)
        same(lambda codes: codes.to(other), codes)


def test_what_is_too_large_as_older_pytorch_has_it(device, monkeypatch):
    monkeypatch.setattr("rc.torch.ops.elementwise.saturates", lambda: False)
    torch._dynamo.reset()
    x = torch.tensor([448, 464, 464.1, -465, INF, -INF, NAN, 2.0], device=device)
    got = torch.compile(lambda x: x.to(torch.float8_e4m3fn), backend="rc")(x)
    assert bits(got).tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x40]
    got = torch.compile(lambda x: x.to(torch.float8_e4m3fn), backend="rc")(torch.tensor([3, 500], device=device))
    assert bits(got).tolist() == [0x44, 0x7F]


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_between_operations(device, dtype):
    x = torch.randn(1000, device=device) * 30
    same(lambda x: x.to(dtype).float() * 2 + 1, x)
    same(lambda x: (x.to(dtype).float() * 1.3).to(dtype), x)
    scaled = lambda x: ((s := 448 / x.abs().amax(-1, keepdim=True)), (x * s).clamp(-448, 448).to(dtype).view(torch.uint8))[1]
    same(scaled, torch.randn(16, 100, device=device))


@pytest.mark.parametrize("dtype", FORMATS)
def test_moves(device, dtype):
    x = torch.randn(6, 35, device=device).to(dtype)
    same(lambda x: x.t().contiguous(), x)
    same(lambda x: torch.cat([x, x[1:3]]), x)
    same(lambda x: x[:, 2::3].clone(), x)
    same(lambda x: x.index_select(0, torch.tensor([4, 0, 4], device=x.device)), x)
    same(lambda x: x.to(FORMATS[1 - FORMATS.index(dtype)]), x)
    same(lambda x: x == x.flip(0), x)


@pytest.mark.parametrize("shape", [(16, 64, 32), (48, 128, 80), (512, 1024, 256)])
def test_products(device, shape):
    m, k, n = shape
    x, w = torch.randn(m, k, device=device).to(FORMATS[0]), torch.randn(n, k, device=device).to(FORMATS[0])
    exact = x.double() @ w.double().t()
    scales = [(torch.tensor(0.5, device=device), torch.tensor(0.25, device=device))]
    if device == "cuda":
        scales.append((torch.rand(m, 1, device=device) + 0.5, torch.rand(1, n, device=device) + 0.5))
    for a, b in scales:
        f = lambda x, w: torch._scaled_mm(x, w.t(), scale_a=a, scale_b=b, out_dtype=torch.bfloat16)
        got = torch.compile(f, backend="rc", dynamic=False)(x, w).double()
        torch.testing.assert_close(got, exact * a * b, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("rows", [1, 16, 500])
@pytest.mark.parametrize("dtype", FORMATS)
def test_weights(device, rows, dtype):
    x, w = torch.randn(rows, 256, device=device).bfloat16(), torch.randn(384, 256, device=device).to(dtype)
    scale = torch.rand(384, 1, device=device).bfloat16() + 0.5
    f = lambda x, w: F.linear(x, w.to(torch.bfloat16) * scale)
    got = torch.compile(f, backend="rc", dynamic=False)(x, w).double()
    exact = x.double() @ (w.double() * scale).t()
    # Each of 256 products may be rounded once, and so is the result.
    torch.testing.assert_close(got, exact, rtol=2**-7, atol=2**-8 * 256**0.5 * 4)
