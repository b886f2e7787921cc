"""Graphs that rc traces itself, beside AOTAutograd's graphs and eager; and those that it leaves to AOTAutograd."""

from collections import Counter

import pytest
import torch
from rc.torch import decompose
from rc.torch.backend import rc
from rc.torch.trace import trace
from torch import nn
from torch._dynamo.backends.common import aot_autograd


def graphs(f, *args, **kwargs):
    """The graph that rc traces, and AOTAutograd's."""
    found = {}

    def keep(name, gm, result):
        found[name] = gm
        return result

    def backend(gm, inputs):
        found["own"] = trace(gm, inputs)
        compiler = lambda g, _: keep("aot", g, g.forward)
        return aot_autograd(fw_compiler=compiler, decompositions=decompose.table())(gm, inputs)

    torch.compile(f, backend=backend, fullgraph=True, **kwargs)(*args)
    return found["own"], found["aot"]


def operations(gm):
    same = {torch.ops.aten._unsafe_view.default: torch.ops.aten.view.default}
    return Counter(str(same.get(n.target, n.target)) for n in gm.graph.nodes if n.op == "call_function")


class Blocks(nn.Module):
    """In-place operations, pooling to one pixel in channels last, products of four dimensions."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.mix, self.out = nn.Linear(8, 8), nn.Linear(8, 5)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        y = self.act(self.norm(self.conv(x))).permute(0, 2, 3, 1).contiguous()
        y = self.mix(y)
        y[:, 1:3] = 0.5
        y[:, 0] += 1
        return self.out(self.pool(y.permute(0, 3, 1, 2)).flatten(1))


def inputs_of(model):
    return torch.randn(2, 3, 9, 7) if isinstance(model, Blocks) else torch.randn(2, 5, 16)


@pytest.mark.parametrize("make", [Blocks, lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)], ids=["blocks", "transformer"])
def test_the_same_graph(make):
    model = make()
    model.train(not isinstance(model, Blocks))  # a transformer's layer in eval mode is one operation, which rc does not have
    x = inputs_of(model)
    with torch.no_grad():
        own, aot = graphs(model, x)
        assert own is not None and operations(own) == operations(aot)
        f = torch.compile(model, backend="rc", fullgraph=True)
        torch.testing.assert_close(f(x), model(x))


def test_positions_are_kept():
    model = Blocks().eval()
    with torch.no_grad():
        own, _ = graphs(model, inputs_of(model))
    nodes = [n for n in own.graph.nodes if n.op == "call_function"]
    assert all(__file__ in (n.meta.get("stack_trace") or "") for n in nodes)
    assert any("conv" in str(n.meta.get("nn_module_stack")) for n in nodes)


@pytest.mark.parametrize(
    "f",
    [lambda x: x.add_(1), lambda x: x.t(), lambda x: (x + 1, x[0]), lambda x: (lambda y: (y, y.view(-1)))(x * 2)],
    ids=["mutated", "view", "part", "two of one memory"],
)
def test_left_to_aot_autograd(f):
    x = torch.randn(3, 3)
    own, _ = graphs(f, x.clone())
    assert own is None
    torch._dynamo.reset()
    a, b = x.clone(), x.clone()
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(a), f(b))
    torch.testing.assert_close(a, b)


def test_gradients_and_symbols_are_left_to_aot_autograd():
    assert graphs(lambda x: x * 2, torch.randn(3, requires_grad=True))[0] is None
    torch._dynamo.reset()
    assert graphs(lambda x: x * 2, torch.randn(3), dynamic=True)[0] is None


def test_modes_around_the_call():
    model = nn.Linear(8, 4)
    x = torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        f = torch.compile(model, backend="rc", fullgraph=True)
        assert f(x).dtype == model(x).dtype == torch.bfloat16
        torch.testing.assert_close(f(x), model(x), rtol=0.02, atol=0.02)
    with torch.inference_mode():
        y = torch.randn(3, 8)
        torch.testing.assert_close(torch.compile(model, backend=lambda gm, i: rc(gm, i), fullgraph=True)(y), model(y))


def test_random_state_is_not_drawn_from_by_tracing():
    f = torch.compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand(3), backend="rc", fullgraph=True)
    torch.manual_seed(7)
    first = f(torch.ones(3))
    torch.manual_seed(7)
    assert torch.equal(f(torch.ones(3)), first)
