"""Training steps that rc differentiates itself, beside eager; and those that it leaves to AOTAutograd."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rc.torch.backend as backend
import rc.torch.derivatives as derivatives
from rc.torch.behind import Behind
from rc.torch.compile import Compiling
from rc.torch.errors import UnsupportedOps
from rc.torch.lower import Problems


@pytest.fixture
def own(monkeypatch):
    """AOTAutograd is not to be called."""

    def refuse(*_):
        raise AssertionError("left to AOTAutograd")

    monkeypatch.setattr(backend, "_autograd", refuse)


def close(ours, theirs, rtol=1e-4, atol=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def gradients(f, args, weigh=None):
    """The results of a function, and gradients of a weighted sum of them."""
    args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    results = f(*args)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum((r * torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).reshape(r.shape)).sum() for r in results)
    wanted = [a for a in args if a.requires_grad]
    return [r.detach() for r in results], torch.autograd.grad(loss, wanted, allow_unused=True)


def check(f, *args, **tolerance):
    torch._dynamo.reset()
    ours, theirs = gradients(torch.compile(f, backend="rc", fullgraph=True), args), gradients(f, args)
    close(ours[0], theirs[0], **tolerance)
    close(ours[1], theirs[1], **tolerance)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 2.0, 20.0, 25.0, -25.0, 100.0, -100.0, float("inf"), float("-inf"), float("nan")]
"""Kinks, and where exponentials overflow."""

FINITE = [x for x in SPECIAL if abs(x) < 1e30]

POINTWISE = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x * 1, inplace=True),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-1, 3),
    "clamp below": lambda x: x.clamp(min=-1),
    "clamp above": lambda x: x.clamp(max=3),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.5),
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "floor": lambda x: x.floor() * x,
    "square": lambda x: x**2,
    "logsigmoid": F.logsigmoid,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "where": lambda x: torch.where(x > 0, x, 2 * x),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3])),
    "threshold": lambda x: F.threshold(x, 1, 7),
    "nan_to_num": lambda x: x.nan_to_num(1, 2),
    "norm": lambda x: x[:, None].norm(dim=1),
    "spread": lambda x: torch.stack([x, x], 1).std(1),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_kinks_and_limits(name, own):
    check(POINTWISE[name], torch.tensor(SPECIAL))


SMOOTH = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "abs": torch.abs,
    "sin": torch.sin,
    "erf": torch.erf,
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: x.logsumexp(0),
    "amax": lambda x: torch.cat([x, x]).amax(),
    "max": lambda x: torch.cat([x, x]).max() + torch.cat([x, x]).min(),
    "max of rows": lambda x: torch.stack([x, x]).max(0)[0] + torch.stack([x, x.flip(0)], 1).min(1, keepdim=True).values[:, 0],
    "mish": F.mish,
    "glu": lambda x: F.glu(torch.cat([x, x.flip(0)])),
    "norm": torch.norm,
    "norm of none": lambda x: (x * 0).norm(),
    "sum of sizes": lambda x: x[:, None].norm(1, dim=1, keepdim=True),
    "largest": lambda x: x.norm(float("inf")),
    "variance": torch.var,
    "spread": lambda x: torch.stack([*torch.std_mean(x, 0, keepdim=True), *torch.var_mean(x, 0, correction=0, keepdim=True)]),
    "cumsum": lambda x: x.cumsum(0),
    "mean": torch.mean,
    "power": lambda x: (x.abs() + 0.1) ** 2.5,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.flip(0), reduction="none"),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.3), reduction="none"),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_functions(name, own):
    check(SMOOTH[name], torch.tensor(FINITE))


NORMS = {
    "batch": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), 6),
    "batch of statistics": (lambda x, w, b: F.batch_norm(x, x.new_zeros(6), x.new_ones(6), w, b), 6),
    "instance": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), 6),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), 6),
    "group alone": (lambda x, w, b: F.group_norm(x * w[:, None, None], 3) + b.sum(), 6),
    "layer": (lambda x, w, b: F.layer_norm(x, (6, 7, 5), w[:, None, None].expand(6, 7, 5), b[:, None, None].expand(6, 7, 5)), 6),
    "row": (lambda x, w, b: F.layer_norm(x, (5,), w, b), 5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, count, dtype, own):
    """Beside float64 gradients; of bfloat16 no further from them than twice what eager is."""
    f, width = NORMS[name]
    torch.manual_seed(0)
    args = [torch.randn(count, 6, 7, 5) * 2 + 3, torch.randn(width), torch.randn(width)]
    args = [a.to(dtype) for a in args]
    torch._dynamo.reset()
    ours = gradients(torch.compile(f, backend="rc", fullgraph=True), args)
    eager, right = gradients(f, args), gradients(f, [a.double() for a in args])
    for a, b, c in zip([*ours[0], *ours[1]], [*eager[0], *eager[1]], [*right[0], *right[1]], strict=True):
        far = lambda x: (x.double() - c).abs().max()
        assert far(a) <= 2 * far(b) + (1e-4 if dtype == torch.float32 else 2e-2) * c.abs().max(), (far(a), far(b), c.abs().max())



@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types(dtype, own):
    f = lambda x, w, b: F.layer_norm(F.gelu(F.linear(x, w, b)), (7,)).softmax(-1)
    shapes = [(3, 5), (7, 5), (7,)]
    tolerance = {torch.float64: 1e-9, torch.bfloat16: 6e-2, torch.float16: 1e-2}[dtype]
    check(f, *(torch.randn(s, dtype=dtype) for s in shapes), rtol=tolerance, atol=tolerance)


SHAPES = {
    "one": ((1, 1), (1, 1)),
    "none": ((0, 5), (5, 3)),
    "primes": ((11, 13), (13, 17)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_products(name, own):
    x, w = (torch.randn(s) for s in SHAPES[name])
    check(lambda x, w: (x @ w).tanh() @ w.t(), x, w)


def test_views_and_parts(own):
    def f(x, y):
        a, b, c = x.split([1, 3, 2], dim=-1)
        z = torch.cat([b.transpose(0, 1).reshape(3, -1), y[:, 1:5].expand(3, 4)], dim=1)
        return z.unsqueeze(0) * 2, a.squeeze(-1) + c.sum(-1), F.pad(x, (1, 2))[..., ::2], torch.stack([x, x * x], 1)

    check(f, torch.randn(4, 6), torch.randn(1, 7))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_padding_by_what_is_there(rank, mode, own):
    padding = [2, 1, 0, 3, 1, 0][: 2 * rank]
    check(lambda x: F.pad(x, padding, mode) ** 2, torch.randn(2, 3, *(5, 4, 6)[:rank]))


def test_windows(own):
    check(lambda x: x.unfold(1, 3, 2) * 2, torch.randn(2, 8))
    check(lambda x: x.unfold(2, 4, 2).unfold(3, 4, 1) ** 2, torch.randn(1, 2, 8, 7))


def test_rows_that_are_added(own):
    at = torch.tensor([0, 2, 2, 1])
    check(lambda x, u: x.index_add(0, at, u, alpha=2) ** 2, torch.randn(4, 3), torch.randn(4, 3))
    check(lambda x, u: x.scatter_add(1, at.expand(2, 4), u) ** 2, torch.randn(3, 3), torch.randn(2, 4))


def test_normalized_weights(own):
    check(lambda v, g, x: F.conv1d(x, torch._weight_norm(v, g, 2)), torch.randn(4, 3, 5), torch.rand(1, 1, 5), torch.randn(2, 3, 9))


def test_chance_of_a_half(own):
    f = torch.compile(lambda x: x * torch.empty_like(x).bernoulli_(0.5), backend="rc", fullgraph=True)
    x = torch.ones(999, requires_grad=True)
    y = f(x)
    y.sum().backward()
    assert torch.equal(x.grad, y) and 0.4 < y.mean() < 0.6


def test_parts_of_tensors_that_look_the_same(own):
    check(lambda x, y: (x * 2)[1:] * (y * 2)[1:], torch.randn(3, 8), torch.randn(3, 8))


def test_in_place_operations(own):
    def f(x):
        y = x * 2
        y[1:3] += x[:2].exp()
        y[:, 0] = 5
        y[3, 2:4].zero_()
        y.mul_(3).sub_(x)
        return y.relu_()

    check(f, torch.randn(4, 3))


class Net(nn.Module):
    """Convolutions, running statistics, pools, and a shared weight."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.group, self.second = nn.Conv2d(8, 8, 3, groups=4), nn.BatchNorm2d(8, momentum=None, affine=False)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x)), inplace=True), 2)
        x = F.avg_pool2d(self.second(self.group(x)), 2).mean((2, 3))
        return self.out(x) @ self.out.weight


@pytest.mark.parametrize("train", [True, False])
def test_convolutions_and_running_statistics(train, own):
    theirs = Net().train(train)
    ours = copy.deepcopy(theirs)
    net = torch.compile(ours, backend="rc", fullgraph=True)
    if train:
        theirs.second.momentum = ours.second.momentum = 0.3
    for _ in range(2):
        x = torch.randn(4, 3, 17, 19)
        for m in (net, theirs):
            m(x).square().sum().backward()
    close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], rtol=1e-3, atol=1e-3)
    close(ours.buffers(), theirs.buffers())


def test_images_with_channels_last_in_bfloat16(own):
    """Pooling to one pixel sets strides, and running statistics are kept in the weights' type."""

    def net():
        torch.manual_seed(3)
        layers = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(1), nn.Linear(8, 5)
        return nn.Sequential(*layers).to(torch.bfloat16, memory_format=torch.channels_last)

    theirs, ours = net(), net()
    f = torch.compile(ours, backend="rc", fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 3, 9, 9, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        f(x).float().square().sum().backward()
        theirs(x).float().square().sum().backward()
    close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], rtol=5e-2, atol=5e-2)
    close(ours.buffers(), theirs.buffers(), rtol=2e-2, atol=2e-2)


def test_versions_of_updated_buffers(own):
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = ours[1].running_mean._version
    torch.compile(ours, backend="rc", fullgraph=True)(torch.randn(5, 3)).sum().backward()
    assert ours[1].running_mean._version > before


def attention(q, k, v, causal=False, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(heads, causal, own):
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, 5)
    check(lambda q, k, v: attention(q, k, v, causal), q, k, v)


def grids(dims):
    """Images, and places in and beyond them and on their borders."""
    x, at = torch.randn(2, 3, *(5, 7, 4)[:dims]), torch.rand(2, *(4, 6, 3)[:dims], dims) * 3.4 - 1.7
    at[0, 0] = at[0, 0].round().clamp(-1, 1)
    return x, at


GRIDS = [(dims, mode) for dims in (2, 3) for mode in ("bilinear", "nearest", "bicubic") if (dims, mode) != (3, "bicubic")]


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("dims, mode", GRIDS)
def test_sampled_places(dims, mode, padding, align_corners, own):
    f = lambda x, at: F.grid_sample(x, at, mode=mode, padding_mode=padding, align_corners=align_corners)
    check(f, *grids(dims), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("dims, mode", GRIDS)
def test_sampled_places_left_to_autograd(dims, mode, padding, monkeypatch):
    monkeypatch.setattr(derivatives, "_SMOOTH", derivatives._SMOOTH - derivatives._operations("grid_sampler_2d grid_sampler_3d"))
    f = lambda x, at: F.grid_sample(x, at, mode=mode, padding_mode=padding, align_corners=padding == "border")
    check(f, *grids(dims), rtol=1e-3, atol=1e-4)


def test_sampled_places_of_symbolic_sizes():
    f = torch.compile(lambda x, at: F.grid_sample(x, at, padding_mode="reflection", align_corners=False), backend="rc", dynamic=True)
    for n in (4, 6):
        x, at = torch.randn(2, 3, n, n + 1, requires_grad=True), (torch.rand(2, n, 5, 2) * 3 - 1.5).requires_grad_()
        expected = torch.autograd.grad(F.grid_sample(x, at, padding_mode="reflection", align_corners=False).sin().sum(), [x, at])
        close(torch.autograd.grad(f(x, at).sin().sum(), [x, at]), expected)


def test_gradients_where_a_size_is_a_number_of_the_call(own):
    f = lambda x, n: (x[:, n:] * 2).sum(1) + x[:, : x.shape[1] // 2].sum(1)
    compiled = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    for length, n in ((8, 3), (9, 5), (6, 0)):
        x = torch.randn(2, length, 4, requires_grad=True)
        (expected,), (found,) = (torch.autograd.grad(g(x, n).sin().sum(), x) for g in (f, compiled))
        torch.testing.assert_close(found, expected)


def test_attention_with_a_bias_that_learns(own):
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    check(lambda q, k, v, m: attention(q, k, v, mask=m), q, k, v, torch.randn(1, 3, 1, 5))


def test_embeddings_and_losses(own):
    ids, labels = torch.tensor([[0, 3, 3], [6, 0, 1]]), torch.tensor([1, -100, 0, 2, -100, 6])
    f = lambda t, w: F.cross_entropy((F.embedding(ids, t, padding_idx=0) @ w).flatten(0, 1), labels, label_smoothing=0.1)
    check(f, torch.randn(7, 4), torch.randn(4, 7))
    check(lambda x: F.cross_entropy(x, torch.full((2,), -100)), torch.randn(2, 3))


def test_dropout_is_the_same_in_both_directions(own):
    f = torch.compile(lambda x: F.dropout(x * 1, 0.4), backend="rc", fullgraph=True)
    x = torch.ones(50, 31, requires_grad=True)
    torch.manual_seed(5)
    y = f(x)
    y.sum().backward()
    assert torch.equal(x.grad, y) and 0.3 < (y == 0).float().mean() < 0.5
    torch.manual_seed(5)
    assert torch.equal(f(x), y) and not torch.equal(f(x), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_softmax_of_attention_with_dropout(dtype, own):
    """Rows that are masked as a whole give zeros, and have no gradient."""
    inf = float("inf")
    x = torch.tensor([[1.0, -2, 3], [-inf, 0, 1], [-inf, -inf, -inf], [100, -100, 5]], dtype=dtype)
    exact = {"rtol": 0.02, "atol": 0.01} if dtype == torch.bfloat16 else {}
    for dim in (0, -1):
        check(lambda x, dim=dim: torch.ops.aten._safe_softmax(x * 1, dim), x, **exact)
    check(lambda x: torch.ops.aten._safe_softmax(x * 1, 1), torch.tensor([[float("nan"), 1, 2], [0, 1, 2]], dtype=dtype), **exact)


def test_attention_with_dropout(own):
    """What is dropped is dropped in both directions."""
    q, k = torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    v = torch.eye(7, 8).expand(2, 4, 7, 8).clone().requires_grad_()
    y = torch.compile(lambda v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=True), backend="rc", fullgraph=True)(v)
    weights = y.detach()[..., :7]
    assert 0.2 < (weights.tril()[weights.tril() != 0].numel() / (8 * 28)) < 0.8
    torch.testing.assert_close(torch.autograd.grad(y.sum(), v)[0], weights.sum(-2).unsqueeze(-1).expand(2, 4, 7, 8))


def test_layers_with_dropout_share_kernels(own, tmp_path):
    """Their numbers are others, by a key that is an argument."""

    def kernels(layers):
        def f(x, w):
            for _ in range(layers):
                x = F.dropout((x @ w).tanh(), 0.5)
            return x

        torch._dynamo.reset()
        folder = tmp_path / str(layers)
        x, w = torch.randn(8, 16), torch.randn(16, 16, requires_grad=True)
        torch.compile(f, backend="rc", fullgraph=True, options={"dump": str(folder)})(x, w).sum().backward()
        return [file.read_text().count("host.binary @") for file in sorted(folder.glob("*.compiled.ir"))]

    assert kernels(7) == kernels(12)

    masks = torch.compile(lambda x: [F.dropout(x, 0.5) for _ in range(3)], backend="rc", fullgraph=True)(torch.ones(1000))
    for i in range(3):
        for j in range(i):
            assert 0.4 < (masks[i] == masks[j]).float().mean() < 0.6


def test_noise_that_is_made_in_place_again_and_again(own):
    def f(x, w):
        for _ in range(3):
            noise = torch.empty([x.shape[0], 1], dtype=x.dtype).bernoulli_(0.8)
            noise.div_(0.8)
            x = x * w * noise
        return x

    torch._dynamo.reset()
    x, w = torch.rand(64, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    y = torch.compile(f, backend="rc", fullgraph=True)(x, w)
    y.sum().backward()
    assert 0 < (y == 0).sum() < y.numel()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    torch.testing.assert_close(w.grad, 3 * y.detach().sum(0))


def detached(x, w):
    y = x * w
    with torch.no_grad():
        z = y.exp()
    return y * z + y.detach().sin() * w + (y * 2).data


def partly(x, w):
    y = x.clone()
    with torch.no_grad():
        scale = y.abs().max() + 1
    y = y / scale
    return torch.where(y > 0, y, w), (y > 0).sum(), torch.arange(3)


@pytest.mark.parametrize("f", [detached, lambda x, w: (x.detach() * 2, x * 3)], ids=["detached", "unused"])
def test_what_needs_no_gradients(f, own):
    check(f, torch.randn(3), torch.randn(3))


def test_results_without_gradients(own):
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    ours, theirs = torch.compile(partly, backend="rc", fullgraph=True)(x, w), partly(x, w)
    assert [r.requires_grad for r in ours] == [r.requires_grad for r in theirs]
    close(ours, theirs)


def test_logits_beside_a_loss_with_symbolic_sizes(own, monkeypatch):
    def f(x, w, t):
        y = x @ w
        return F.cross_entropy(y, t), y

    zeroed, count = torch.Tensor.zero_, []
    monkeypatch.setattr(torch.Tensor, "zero_", lambda x: (count.append(x.shape), zeroed(x))[1])
    g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    w = torch.randn(7, 13, requires_grad=True)
    for n in 5, 6, 9:
        x, t = torch.randn(n, 7, requires_grad=True), torch.randint(13, (n,))
        # The logits' gradient comes in some calls only.
        for weight in None, 0.3, None:
            found = []
            for h in g, f:
                loss, y = h(x, w, t)
                found.append(torch.autograd.grad(loss if weight is None else loss + weight * y.tanh().sum(), (x, w)))
            close(*found)
        g(x, w, t)[1].sum().backward()
        torch.testing.assert_close(w.grad, x.sum(0)[:, None].expand(7, 13))
        w.grad = None
    assert all(not shape for shape in count), "zeros are made of logits' size"


def test_gradients_of_some_results(own):
    f = lambda x: (x.sin(), x.cos(), x.exp())
    compiled = torch.compile(f, backend="rc", fullgraph=True)
    x = torch.randn(5, requires_grad=True)
    for i in range(3):
        close(torch.autograd.grad(compiled(x)[i].sum(), x), torch.autograd.grad(f(x)[i].sum(), x))


def test_gradients_that_are_one_tensor(own):
    f = torch.compile(lambda x, y, z: F.layer_norm(x + y, (6,)) + z.t().sin(), backend="rc", fullgraph=True)
    x, y, z = (torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True), torch.randn(6, 4, requires_grad=True))
    weights = torch.randn(4, 6)
    ours = torch.autograd.grad(f(x, y, z), (x, y, z), weights)
    theirs = torch.autograd.grad(F.layer_norm(x + y, (6,)) + z.t().sin(), (x, y, z), weights)
    close(ours, theirs)
    assert ours[0].data_ptr() == ours[1].data_ptr()
    f(x, y, z).backward(weights)
    x.grad.zero_()
    close((y.grad, z.grad), theirs[1:])


def test_equal_gradients_of_other_layouts(own):
    f = torch.compile(lambda x, y: (x.t() + y).sin(), backend="rc", fullgraph=True)
    x, y = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4).t().requires_grad_()
    ours = torch.autograd.grad(f(x, y).sum(), (x, y))
    close(ours, torch.autograd.grad((x.t() + y).sin().sum(), (x, y)))
    assert ours[0].shape == x.shape and ours[1].shape == y.shape


def test_gradients_that_lie_otherwise(own):
    f = torch.compile(lambda x: (x @ x.t()).sin(), backend="rc", fullgraph=True)
    x = torch.randn(4, 6, requires_grad=True)
    for g in (torch.randn(4, 4).t(), torch.ones(()).expand(4, 4), torch.randn(4, 8)[:, ::2], torch._neg_view(torch.randn(4, 4))):
        close(torch.autograd.grad(f(x), x, g), torch.autograd.grad((x @ x.t()).sin(), x, g))


def step_of(f=lambda x: x.sin() * x.exp()):
    return torch.compile(f, backend="rc", fullgraph=True), torch.randn(5, requires_grad=True)


def test_graphs_that_are_retained(own):
    f, x = step_of()
    y = f(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)
    close(torch.autograd.grad(y.sum(), x), first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y.sum(), x)


def test_second_gradients_are_errors(own):
    f, x = step_of()
    (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        g.sum().backward()


def test_saved_tensors_that_change(own):
    f, x = step_of(lambda x, w: (x * w).sin())[0], torch.randn(5, requires_grad=True)
    w = torch.randn(5, requires_grad=True)
    y = f(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks(own):
    f, x = step_of()
    expected = torch.autograd.grad((x.sin() * x.exp()).sum(), x)[0]
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    y = f(x)
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    close(seen, [3 * expected, 6 * expected])


def test_hooks_of_saved_tensors_and_checkpoints(own):
    f, x = step_of()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t):
        y = f(x)
    close(torch.autograd.grad(y.sum(), x), torch.autograd.grad((x.sin() * x.exp()).sum(), x))
    assert packed
    g = torch.compile(lambda x: F.dropout(x.sin(), 0.5) * x, backend="rc", fullgraph=True)
    torch.manual_seed(3)
    plain = torch.autograd.grad(g(x).sum(), x)
    torch.manual_seed(3)
    close(torch.autograd.grad(torch.utils.checkpoint.checkpoint(g, x, use_reentrant=False).sum(), x), plain)


def test_accumulated_gradients(own):
    theirs = nn.Linear(4, 3)
    ours = copy.deepcopy(theirs)
    net = torch.compile(ours, backend="rc", fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 4)
        net(x).sum().backward()
        theirs(x).sum().backward()
    close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])


def test_autocast(own):
    theirs = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    ours = copy.deepcopy(theirs)
    x = torch.randn(5, 16)
    for net in (torch.compile(ours, backend="rc", fullgraph=True), theirs):
        with torch.autocast("cpu", torch.bfloat16):
            y = net(x)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in ours.parameters())
    close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], rtol=6e-2, atol=6e-2)


def test_frozen_weights_and_layout(own):
    theirs = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 3)).to(memory_format=torch.channels_last)
    theirs[1].requires_grad_(False)
    ours = copy.deepcopy(theirs)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    torch.compile(ours, backend="rc", fullgraph=True)(x).square().sum().backward()
    theirs(x).square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert a.grad.stride() == b.grad.stride()
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 7


def under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y.sin()


def by_detached(x):
    y = x * 2
    y.detach()[0] = 1
    return y.sin()


def choosing():
    return torch.utils.checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.sin.default])


LEFT = {
    "its own derivative": Doubled.apply,
    "a write without gradients": under_no_grad,
    "a write to what is detached": by_detached,
    "a checkpoint that chooses": lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x * 2, use_reentrant=False, context_fn=choosing),
    "a view of an argument": lambda x: (x.view(-1), x.sin()),
    "complex numbers": lambda x: torch.complex(x, x).abs(),
    "a function that rc does not differentiate": torch.lgamma,
}


def saved(f, *args):
    """The gradients of a sum, and how many elements are kept for them besides those of arguments."""
    torch._dynamo.reset()
    args, packed = [a.clone().requires_grad_() for a in args], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = torch.compile(f, backend="rc", fullgraph=True)(*args)
    known = {a.data_ptr() for a in args}
    return torch.autograd.grad(y.sum(), args), sum(t.numel() for t in packed if t.data_ptr() not in known)


@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_checkpoints_inside_of_a_graph(drop, own):
    """Of each block its input is kept, and its random numbers' key, and the seed; the numbers are the same when it is computed again."""

    def block(x, w):
        return F.dropout((x @ w).softmax(-1) @ w.t(), drop).tanh() @ w

    def f(again, x, w):
        for _ in range(3):
            x = torch.utils.checkpoint.checkpoint(block, x, w, use_reentrant=False) if again else block(x, w)
        return x

    x, w = torch.randn(5, 16), torch.randn(16, 16) / 4
    found = []
    for again in (False, True):
        torch.manual_seed(7)
        found.append(saved(lambda x, w: f(again, x, w), x, w))
    close(found[1][0], found[0][0])
    if not drop:
        args = [a.clone().requires_grad_() for a in (x, w)]
        close(found[1][0], torch.autograd.grad(f(False, *args).sum(), args))
    assert found[1][1] <= 2 * x.numel() + (4 if drop else 0) < found[0][1]


SYMBOLIC = {
    "product": lambda x, w: (x @ w).tanh(),
    "norm": lambda x, w: F.layer_norm(x, (6,)) @ w + x.shape[0],
    "attention": lambda x, w: F.scaled_dot_product_attention(*(x[None, None] for _ in range(3)), is_causal=True) @ w,
    "parts": lambda x, w: torch.cat([x[1:] @ w, (x[:1] * x.shape[0]) @ w]).reshape(-1, 2).softmax(-1),
    "convolution": lambda x, w: F.avg_pool1d(F.conv1d(x.t().unsqueeze(0), w.t().unsqueeze(2), padding=1), 2),
    "two results": lambda x, w: (x * 2, (x @ w).sum(0)),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name, own):
    torch._dynamo.reset()
    compiled = torch.compile(SYMBOLIC[name], backend="rc", fullgraph=True)

    def f(x, w):
        torch._dynamo.mark_dynamic(x, 0)
        return compiled(x, w)

    w = torch.randn(6, 4)
    for n in (4, 6, 9, 2):
        x = torch.randn(n, 6)
        ours, theirs = gradients(f, (x, w)), gradients(SYMBOLIC[name], (x, w))
        close(ours[0], theirs[0])
        close(ours[1], theirs[1])


def test_results_of_symbolic_sizes_that_nothing_follows(own):
    torch._dynamo.reset()
    f = torch.compile(lambda x: (x.sin(), x.cos()), backend="rc", fullgraph=True, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4, requires_grad=True)
        close(torch.autograd.grad(f(x)[1].sum(), x), [-x.sin()])


RESIZED = [
    ("nearest", (5, 7), {}),
    ("nearest-exact", (5, 7), {}),
    ("linear", (7,), {}),
    ("bilinear", (5, 7), {}),
    ("bilinear", (5, 7), {"align_corners": True}),
    ("trilinear", (3, 2, 5), {}),
    ("bicubic", (5, 7), {}),
]


@pytest.mark.parametrize("mode, elements, options", RESIZED)
@pytest.mark.parametrize("how", [{"scale_factor": 2.0}, {"size": 11}, {"size": 3}, {"size": 1}], ids=["twice", "more", "less", "one"])
def test_resizing(mode, elements, options, how, own):
    f = lambda x: F.interpolate(x * 2, mode=mode, **how, **options).sin()
    check(f, torch.randn(2, 3, *elements, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    check(f, torch.randn(2, 3, *(1 for _ in elements), dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEFT)
def test_left_to_aot_autograd(name, caplog, monkeypatch):
    monkeypatch.setenv("RC_LOGS", "autograd")
    check(LEFT[name], torch.randn(5))
    assert "left to AOTAutograd" in caplog.text


def test_differentiate_is_an_option(caplog, monkeypatch):
    monkeypatch.setenv("RC_LOGS", "autograd")
    f = torch.compile(lambda x: x.sin(), backend="rc", options={"differentiate": False})
    x = torch.randn(3, requires_grad=True)
    close(torch.autograd.grad(f(x).sum(), x), [x.cos()])
    assert "differentiate is False" in caplog.text


def test_memory_budget(own):
    """A budget keeps less, and the gradients stay what they are."""
    f = lambda x, w: ((x @ w).tanh() @ w).tanh().exp().sin().sum()
    kept = {}
    for budget in (1.0, 0.0):
        with torch._functorch.config.patch(activation_memory_budget=budget):
            packed = []
            torch._dynamo.reset()
            x, w = (torch.randn(16, 16).requires_grad_() for _ in range(2))
            with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
                y = torch.compile(f, backend="rc", fullgraph=True)(x, w)
            close(torch.autograd.grad(y, (x, w)), torch.autograd.grad(f(x, w), (x, w)))
            kept[budget] = sum(t.numel() for t in packed)
    assert kept[0.0] == 2 * 256 < kept[1.0]


def test_a_backward_pass_without_memory(own, monkeypatch):
    """The allocator's error comes through; gradients and saved tensors are as they were, and a second try succeeds."""
    make, full = torch._C._dynamo.guards._empty_strided_cpu, [False]

    def made(sizes, strides, dtype):
        if full[0]:
            raise torch.OutOfMemoryError("no memory")
        return make(sizes, strides, dtype)

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", made)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x = torch.randn(4, 5)
    f = torch.compile(net, backend="rc", fullgraph=True)
    f(x).sum().backward()
    before = [p.grad.clone() for p in net.parameters()]
    loss = f(x).sum()
    full[0] = True
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        loss.backward(retain_graph=True)
    full[0] = False
    close([p.grad for p in net.parameters()], before, rtol=0, atol=0)
    assert torch.is_grad_enabled()
    loss.backward()
    close([p.grad for p in net.parameters()], [2 * g for g in before])


def test_gradients_that_are_nan_and_clipping(own):
    def step(compiled):
        torch.manual_seed(5)
        net = nn.Linear(3, 2)
        f = lambda x: net(x).sub(net(x)).sqrt().sum()
        (torch.compile(f, backend="rc", fullgraph=True) if compiled else f)(torch.randn(4, 3)).backward()
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(RuntimeError, match="non-finite"):
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
        close(net.parameters(), before, rtol=0, atol=0)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        return [norm, *(p.grad for p in net.parameters())]

    ours, theirs = step(True), step(False)
    assert ours[0].isnan()
    close(ours, theirs)


def test_gradients_of_a_loss_alone(own, monkeypatch):
    """Of what a model returns beside its loss no zeros are made; where it has a gradient too, another backward function is compiled."""
    made = []
    compiled_step = backend.compile_step
    monkeypatch.setattr(backend, "compile_step", lambda *args: made.append(compiled_step(*args)) or made[-1])
    f = lambda x, w: ((x @ w).exp().mean(), x @ w, x.sin())
    torch.manual_seed(0)
    x, w = torch.randn(4, 5), torch.randn(5, 3)
    g = torch.compile(f, backend="rc", fullgraph=True)
    for chosen in ([0], [0, 1], [2], [0, 1, 2], [0]):
        found = []
        for h in (g, f):
            a, b = (t.clone().requires_grad_() for t in (x, w))
            results = h(a, b)
            found.append(torch.autograd.grad(sum((results[i] * 3).sum() for i in chosen), [a, b], allow_unused=True, materialize_grads=True))
        close(*found)
        assert [list(step.backwards) for step in made] == [[(0,)] if chosen == [0] and len(made[0].backwards) == 1 else [(0,), (0, 1, 2)]]


def test_machine_code_is_made_behind(own, monkeypatch):
    """What rc cannot do is known when the backend returns; machine code is waited for where it is called."""
    backend_returned, program, step = threading.Event(), Compiling.program, backend.compile_step

    def held(self, *args):
        assert backend_returned.wait(20), "the backend waits for machine code"
        return program(self, *args)

    def returning(*args):
        made = step(*args)
        backend_returned.set()
        return made

    monkeypatch.setattr(Compiling, "program", held)
    monkeypatch.setattr(backend, "compile_step", returning)
    check(lambda x: x.sin() * 2, torch.randn(8))


def test_machine_code_that_cannot_be_made(own, monkeypatch):
    def program(self, *args):
        raise Problems([(next(iter(self.lowered.nodes.values())), "a defect")])

    monkeypatch.setattr(Compiling, "program", program)
    x, g = torch.randn(8, requires_grad=True), torch.compile(lambda x: x.sin() * 2, backend="rc")
    for _ in range(2):
        with pytest.raises(UnsupportedOps, match="a defect"):
            g(x)


def test_a_forked_process_computes_itself_what_its_parent_was_computing():
    go, calls = threading.Event(), []

    def work():
        calls.append(len(calls))
        return calls[-1] or go.wait(20)

    behind = Behind(work)
    behind.process = -1
    try:
        assert behind.result() == 1
    finally:
        go.set()


UNFOLDED = [
    ((2, 3, 7, 9), {"kernel_size": (3, 2), "padding": (1, 0)}),
    ((3, 8, 10), {"kernel_size": 3, "dilation": 2, "padding": 2}),
    ((1, 2, 9, 9), {"kernel_size": 3, "dilation": (1, 2), "padding": (2, 1), "stride": (2, 3)}),
]


@pytest.mark.parametrize("shape, windows", UNFOLDED)
def test_windows_as_columns(shape, windows, own):
    check(lambda x: F.unfold(x, **windows).sin(), torch.randn(shape))


FOLDED = [
    ((2, 27, 30), {"output_size": (5, 6), "kernel_size": 3, "padding": 1}),
    ((2, 8, 30), {"output_size": (10, 12), "kernel_size": (4, 2), "stride": 2, "padding": (1, 0)}),
    ((16, 13), {"output_size": (1, 64), "kernel_size": (1, 16), "stride": (1, 4)}),
    ((2, 4, 9), {"output_size": 8, "kernel_size": 2, "stride": 3}),
    ((1, 9, 16), {"output_size": 8, "kernel_size": 3, "dilation": 2}),
]


@pytest.mark.parametrize("shape, windows", FOLDED)
def test_columns_as_images(shape, windows, own):
    check(lambda x: F.fold(x, **windows).sin(), torch.randn(shape))


@pytest.mark.parametrize("size, size_of_window, step", [(40, 16, 8), (41, 5, 2), (40, 3, 4), (33, 7, 7), (20, 6, 4)])
def test_windows_apart(size, size_of_window, step, own):
    check(lambda x: x.unfold(1, size_of_window, step).sin(), torch.randn(3, size, 2))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("zeros", [0, 1, 6])
def test_cumulative_products_with_zeros(dim, zeros, own):
    """Zeros end what follows of a product, and of its gradient, whatever stands behind them."""
    x = torch.randn(7, 13, dtype=torch.float64)
    x.view(-1)[torch.randperm(x.numel())[:zeros]] = 0
    if zeros:
        x[-1, -1], x[3, 5] = float("nan"), float("inf")
        # Before each of them, and after the infinity, along both dimensions.
        for place in [(2, -1), (-1, 2), (1, 5), (5, 5), (3, 1), (3, 9)]:
            x[place] = 0
    weights, gradients = torch.randn(7, 13, dtype=torch.float64), []
    for f in (torch.cumprod, torch.compile(torch.cumprod, backend="rc", fullgraph=True)):
        a = x.clone().requires_grad_()
        (f(a, dim) * weights).sum().backward()
        gradients.append(a.grad)
    torch.testing.assert_close(gradients[1], gradients[0], equal_nan=True, rtol=1e-12, atol=1e-12)
