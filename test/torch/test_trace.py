"""Graphs that rc traces itself, beside AOTAutograd's graphs and eager; and those that it leaves to AOTAutograd."""

import random
from collections import Counter

import pytest
import torch
from rc.torch import decompose
from rc.torch.backend import rc
from rc.torch.trace import trace
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F


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


VIEWS = ("view", "_unsafe_view", "slice", "select", "alias", "detach")


def operations(gm):
    """How many there are of each that computes; functionalization takes views of a changed tensor again, which rc does not."""
    return Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function" and n.target.__name__.split(".")[0] not in VIEWS)


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


def own_and_eager(f, *args):
    """What the graph gives that rc traces, run by PyTorch, and what eager gives; None where AOTAutograd traces it."""
    found = {}

    def backend(gm, inputs):
        found["own"] = trace(gm, inputs)
        if found["own"] is not None:
            found["results"] = found["own"](*inputs)
        return gm.forward

    torch._dynamo.reset()
    expected = torch.compile(f, backend=backend, fullgraph=True)(*args)
    return found.get("results"), expected if isinstance(expected, tuple) else (expected,)


def whole_by_part(x):
    y = x * 2
    y[1:3, 0] += 1
    y[0].mul_(3)
    return y + 1


def alias_of_the_whole(x):
    y = x * 2
    z = y.detach()
    z[1] = 5
    z.relu_()
    return z * 1


def over_a_part(x):
    y = x * 2
    y[:, 1:] = y[:, :-1] + 1
    y[1] = y[0]
    return y * 1


def narrower(x):
    y = (x * 3).to(torch.int32)
    y += torch.ones(4, dtype=torch.int64)
    z = x * 1
    z += x.double().sum()
    return y, z * 1


def copied(x):
    y, z = torch.empty(4, 4), torch.zeros(4, 4)
    y.copy_(x)
    z[:2].copy_(y[2:])
    return y, z


def filled(x):
    y = torch.zeros_like(x)
    y.fill_(3).add_(x).clamp_(0, 4).masked_fill_(x > 0, -1)
    y.zero_() if x.shape[0] == 5 else y.sub_(1)
    return y


def the_first_keeps_its_value(x):
    y = x * 2
    z = y + 1
    y.relu_()
    return z * y


def repeated(x):
    for i in range(3):
        y = torch.nn.functional.relu(x, inplace=False)
        z = torch.nn.functional.hardswish(y + i, inplace=True)
        x = y * z
    return x


RIGHT = [whole_by_part, alias_of_the_whole, over_a_part, narrower, copied, filled, the_first_keeps_its_value, repeated]


@pytest.mark.parametrize("f", RIGHT, ids=lambda f: f.__name__)
def test_operations_in_place(f):
    found, expected = own_and_eager(f, torch.randn(4, 4))
    assert found is not None
    torch.testing.assert_close(tuple(found), expected)


OPERANDS = {
    "rows": lambda: (torch.randn(3, 5), torch.randn(3, 5)),
    "broadcast": lambda: (torch.randn(3, 1), torch.randn(5)),
    "transposed": lambda: (torch.randn(5, 3).t(), torch.randn(3, 5)),
    "channels last": lambda: (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(2, 3, 4, 5)),
    "with gaps": lambda: (torch.randn(3, 10)[:, ::2], torch.randn(3, 5)),
    "none": lambda: (torch.randn(0, 5), torch.randn(0, 5)),
    "one": lambda: (torch.randn(1, 5).expand(1, 5), torch.randn(5, 1).t()),
    "numbers": lambda: (torch.tensor(1.5), torch.randint(0, 9, (3, 5))),
    "types": lambda: (torch.randn(3, 5).half(), torch.randint(1, 9, (3, 5), dtype=torch.int8)),
}


@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
def test_metadata_is_that_of_eager(operands):
    def each(x, y):
        return x + y, x * 2, y / 3, (x > y).to(x.dtype), x.clamp(0, 6), x.sigmoid() - y, torch.where(x > 0, x, y), x.clone(), -(y + 1)

    def f(x, y):
        return each(x.contiguous(), y.contiguous()) + each(x, y)  # the second time its dtypes are known

    def backend(gm, inputs):
        found.extend(n.meta["val"] for n in trace(gm, inputs).graph.output_node().args[0])
        return gm.forward

    found, args = [], operands()
    torch.compile(f, backend=backend, fullgraph=True)(*args)
    about = lambda t: (t.dtype, t.shape, [stride for size, stride in zip(t.shape, t.stride()) if size != 1])
    assert [about(t) for t in found] == [about(t) for t in f(*args)]


def part_before_whole(x):
    y = x * 2
    z = y[0]
    y.add_(1)
    return z * 1


def whole_by_transposed(x):
    y = x * 2
    y.t().add_(x)
    return y * 1


def beside(x):
    y = x * 2
    a, b = y[0], y[1:]
    a.add_(1)
    return b * 1


def number(x):
    y = torch.tensor(1)
    y.add_(1)
    return x * y.item()


@pytest.mark.parametrize("f", [part_before_whole, whole_by_transposed, beside], ids=lambda f: f.__name__)
def test_memory_that_another_view_changed(f):
    found, expected = own_and_eager(f, x := torch.randn(4, 4))
    assert found is None
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="rc", fullgraph=True)(x), expected[0])


def test_numbers_that_change():
    found, expected = own_and_eager(number, torch.randn(3))
    assert found is None or torch.equal(found[0], expected[0])


def step(draw, tensors):
    """One operation on some tensors of a program: a view, one in place (which does not read the memory it writes), or a new tensor.
    `draw(n)` is a number below n."""
    x, y = tensors[draw(len(tensors))], tensors[draw(len(tensors))]
    match draw(9):
        case 0:
            return x[draw(x.shape[0])].expand(2, 4, 4) if x.dim() > 2 else x.expand(2, 4, 4)[0]
        case 1:
            return x.select(0, 1).unsqueeze(0).expand(4, 4) if x.dim() == 2 else x[1]
        case 2:
            x.select(-1, draw(4)).add_(1.5)
        case 3:
            x[..., 1:3] = y[..., :2] * 1 if y.dim() <= x.dim() and draw(2) else 0.5
        case 4:
            return x * y if x.dim() == y.dim() else x + 1
        case 5:
            return torch.nn.functional.relu(x, inplace=True)
        case 6:
            return x.transpose(-1, -2)
        case 7:
            x += y * 1 if x.dim() >= y.dim() else 1
        case _:
            return (x.detach(), x.clone(), x.contiguous(), x.reshape(x.shape))[draw(4)]
    return None


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """What rc traces itself is right."""
    rng = random.Random(seed)
    numbers = [rng.randrange(2520) for _ in range(50)]

    def program(x):
        left = list(numbers)
        tensors = [x * 2, x.expand(2, 4, 4) + 1]
        for _ in range(7):
            made = step(lambda n: left.pop() % n, tensors)
            if made is not None:
                tensors.append(made)
        return tuple([t * 1 for t in tensors[-3:]])

    x = torch.randn(4, 4)
    try:
        program(x)
    except RuntimeError:
        pytest.skip("eager refuses it: a write to elements that share memory")
    found, expected = own_and_eager(program, x)
    if found is not None:
        torch.testing.assert_close(tuple(found), expected)


SYMBOLIC = {
    "elementwise": lambda x: (x * 2).relu() + x.sum(0),
    "sizes": lambda x: (x / x.shape[0], torch.arange(x.shape[0] * 2), x.reshape(x.shape[1], -1) + 1, x.new_zeros(x.shape[0] // 2 + 1, 3)),
    "parts": lambda x: (x[:, 1:3] * 2, x[1:].exp(), torch.cat([x, x[:1]]), x[x.shape[0] - 2 :] + 1),
    "in place": lambda x: (x * 2).add_(1).index_put_((torch.arange(x.shape[0]),), x),
    "a part in place": lambda x: torch.zeros_like(x).index_fill_(1, torch.tensor([1]), 3.0) + F.pad(x, (0, 0, 1, 0))[1:],
    "products": lambda x: F.softmax(x @ x.t() / 4, -1) @ x,
    "repeated": lambda x: F.layer_norm(F.layer_norm(x, (8,)), (8,)).unsqueeze(1).expand(-1, 3, -1).sum(1),
    "masks": lambda x: torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril().logical_not().float() @ x,
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_that_are_known_by_name(name):
    f = SYMBOLIC[name]
    assert graphs(f, torch.randn(5, 8), dynamic=True)[0] is not None
    torch._dynamo.reset()
    g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (5, 9, 4, 13):
            x = torch.randn(n, 8)
            torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-5)


def test_what_pytorch_runs_gets_sizes_of_the_call():
    """A size in the arguments of an operation that rc does not compile is no constant."""
    f = lambda x: torch.ops.aten.histc.default(x, x.shape[0] + 2, -1, 1) * 2
    torch._dynamo.reset()
    g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True, options={"fallback": True})
    for n in (5, 8, 13):
        x = torch.rand(n)
        torch.testing.assert_close(g(x), f(x))


def test_floats_of_sizes_do_not_fix_the_sizes():
    f = lambda x: x * (1 / x.shape[0] ** 0.5) + F.softplus(x, beta=1 + x.shape[0] / 8)
    torch._dynamo.reset()
    g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    for n in (5, 8, 13):
        x = torch.randn(n, 4)
        torch.testing.assert_close(g(x), f(x))


class Scaled(nn.Module):
    """Numbers of the program: those of arithmetic may change without a new graph, those that an operation takes as constants have guards."""

    def __init__(self):
        super().__init__()
        self.scale, self.temperature, self.eps = 2.5, 3.0, 1e-5

    def forward(self, x):
        return F.layer_norm(x * self.scale + 1 / self.temperature, (4,), eps=self.eps)


def test_numbers_of_the_program():
    torch._dynamo.reset()
    model, count = Scaled(), CompileCounterWithBackend("rc")
    f = torch.compile(model, backend=count, dynamic=True)
    for scale, temperature, eps, graphs_ in ((2.5, 3.0, 1e-5, 1), (0.5, 7.0, 1e-5, 1), (0.5, 7.0, 0.1, 2), (1.5, -2.0, 0.1, 2)):
        model.scale, model.temperature, model.eps = scale, temperature, eps
        x = torch.randn(3, 4)
        torch.testing.assert_close(f(x), model(x))
        assert count.frame_count == graphs_


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
