"""Training loops as users write them, beside eager: optimizers compiled too, mixed precision, gradients accumulated and clipped, frozen layers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from rc.torch.options import Options
from rc.torch.training import compile_step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(13, 17), nn.LayerNorm(17), nn.Linear(17, 5)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


def batches(count, size=11):
    return [(torch.randn(size, 13), torch.randint(0, 5, (size,))) for _ in range(count)]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def close(ours, theirs, rtol=1e-4, atol=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adamw, foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_step(name):
    theirs = Net()
    ours = copy.deepcopy(theirs)
    make = OPTIMIZERS[name]
    eager, optimizer = make(theirs.parameters()), make(ours.parameters())
    counter = CompileCounterWithBackend("rc")
    steps = [(theirs, eager, eager.step), (ours, optimizer, torch.compile(optimizer.step, backend=counter))]
    for x, y in batches(4):
        for net, opt, step in steps:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            step()
    close(ours.parameters(), theirs.parameters())
    assert counter.frame_count <= 2


def test_lists_of_tensors():
    xs, ys = [torch.randn(n, 3) for n in (1, 4, 7)], [torch.randn(n, 3) for n in (1, 4, 7)]

    def f(xs, ys):
        out = torch._foreach_add(xs, ys, alpha=2)
        torch._foreach_addcmul_(out, xs, ys, [0.5, 1.5, 2.5])
        torch._foreach_addcdiv_(out, xs, [y.exp() for y in ys], 0.25)
        torch._foreach_mul_(out, torch.tensor(3.0))
        out += torch._foreach_pow(2.0, xs) + torch._foreach_maximum(xs, 0.1) + torch._foreach_lerp(xs, ys, 0.3)
        return out + torch._foreach_norm(xs) + torch._foreach_norm(ys, 1)

    close(torch.compile(f, backend="rc", fullgraph=True)(xs, ys), f(xs, ys))


def test_fma_rounds_once():
    """`addcmul` as Dynamo writes it: the product is not rounded, by itself or to float32."""
    from torch._inductor.inductor_prims import fma

    x, y = torch.tensor([1 + 2.0**-12]), torch.tensor([1 - 2.0**-12])
    f = lambda x, y: fma(x, y, torch.full((1,), -1.0))
    assert torch.compile(f, backend="rc", fullgraph=True)(x, y).item() == -(2.0**-24)


@pytest.mark.parametrize("scaled", [False, True])
def test_mixed_precision(scaled):
    dtype = torch.float16 if scaled else torch.bfloat16
    theirs = Net()
    ours = copy.deepcopy(theirs)
    data = batches(3)
    for net, model in ((theirs, theirs), (torch.compile(ours, backend="rc", fullgraph=True), ours)):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    # A few units in the narrow type's last place of weights near 0.3, for each of three steps.
    eps = torch.finfo(dtype).eps
    close(ours.parameters(), theirs.parameters(), rtol=4 * eps, atol=2 * eps)


def test_whole_step_with_accumulated_and_clipped_gradients():
    theirs = Net()
    ours = copy.deepcopy(theirs)

    def step(net, optimizer, parts):
        for x, y in parts:
            (F.cross_entropy(net(x), y) / len(parts)).backward()
        total = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return total

    eager, optimizer = (torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (theirs, ours))
    compiled = torch.compile(step, backend="rc")
    for _ in range(3):
        parts = batches(2)
        close([compiled(ours, optimizer, parts)], [step(theirs, eager, parts)])
    close(ours.parameters(), theirs.parameters())


def test_frozen_tied_and_normalized_weights():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(31, 16)
            self.frozen = nn.Linear(16, 16).requires_grad_(False)
            self.normalized = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
            self.head = nn.Linear(16, 31, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.normalized(torch.tanh(self.frozen(self.table(ids)))))

    theirs = Model()
    ours = copy.deepcopy(theirs)
    ids = torch.randint(0, 31, (3, 7))
    for net in (theirs, torch.compile(ours, backend="rc", fullgraph=True)):
        F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
    assert ours.frozen.weight.grad is None and ours.head.weight is ours.table.weight
    trained = lambda model: [p.grad for p in model.parameters() if p.requires_grad]
    close(trained(ours), trained(theirs))


def test_running_statistics():
    theirs = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.BatchNorm2d(5, momentum=0.3))
    ours = copy.deepcopy(theirs)
    net = torch.compile(ours, backend="rc", fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 3, 9, 9)
        close([net(x)], [theirs(x)])
    close(ours.buffers(), theirs.buffers())


def test_running_statistics_of_any_batch():
    """Variances are corrected by n / (n - 1), a number that follows from a symbolic size."""
    theirs = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5))
    ours = copy.deepcopy(theirs)
    counter = CompileCounterWithBackend("rc")
    net = torch.compile(ours, backend=counter, fullgraph=True)
    for n in (4, 7):
        x = torch.randn(n, 3, 6, 5)
        torch._dynamo.mark_dynamic(x, 0)
        for out in (net(x), theirs(x)):
            out.square().sum().backward()
    close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], rtol=1e-3, atol=1e-3)
    close(ours.buffers(), theirs.buffers())
    assert counter.frame_count == 1


def test_dropout_statistics():
    f = torch.compile(nn.Dropout(0.3), backend="rc", fullgraph=True)
    x = torch.ones(500, 1000, requires_grad=True)
    y = f(x)
    y.sum().backward()
    assert torch.equal(x.grad, y)
    # Six standard deviations of the mean of so many, of all and of each row.
    kept = (y != 0).double()
    deviation = (0.3 * 0.7) ** 0.5
    assert abs(kept.mean().item() - 0.7) < 6 * deviation / kept.numel() ** 0.5
    assert (kept.mean(1) - 0.7).abs().max().item() < 6 * deviation / 1000**0.5
    assert not torch.equal(f(x), y)


def test_a_graph_without_results():
    """As Dynamo makes them between two breaks: AOTAutograd's."""
    graph = torch.fx.Graph()
    graph.placeholder("x").meta["val"] = torch.randn(3, requires_grad=True)
    graph.output(())
    traced = torch.fx.GraphModule({}, graph)
    traced.meta["rc.gradients"] = [], []
    assert compile_step(traced, Options.of(None, None)) is None
