"""`torch.compile(…, backend="rc")` beside eager: `pytest test/torch/test_compile.py`, where the package in frontends/torch is installed."""

import gc
import logging
import re

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounterWithBackend

import rc.torch

EPS = torch.finfo(torch.float32).eps


def compiled(f, **kwargs):
    return torch.compile(f, backend="rc", fullgraph=True, **kwargs)


def check(f, *args, bound=64, **kwargs):
    """Compiled and eager, both against float64: rc's error is at most twice eager's, or a few units of rounding."""
    wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    reference = f(*map(wide, args))
    eager, actual = f(*args), compiled(f, **kwargs)(*args)
    assert actual.dtype == eager.dtype and actual.shape == eager.shape and actual.stride() == eager.stride()
    scale = max(reference.abs().max().item(), 1e-30) if reference.numel() else 1.0
    error = lambda x: (x.double() - reference).abs().max().item() if x.numel() else 0.0
    assert error(actual) <= max(2 * error(eager), bound * EPS * scale)


def gradients(f, inputs):
    out = f(*inputs)
    return torch.autograd.grad(out.square().sum(), inputs)


class MLP(nn.Module):
    def __init__(self, width=7):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 5), nn.GELU(), nn.LayerNorm(5), nn.Dropout(0.0), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x).softmax(-1)


def test_entry_point():
    assert "rc" in torch._dynamo.list_backends(exclude_tags=())


@pytest.mark.parametrize("batch", [1, 2, 13])
def test_mlp(batch):
    model = MLP()
    x = torch.randn(batch, 7)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))


def test_training_step():
    model = MLP()
    x = torch.randn(11, 7, requires_grad=True)
    leaves = [x, *model.parameters()]
    ours = torch.autograd.grad(compiled(model)(x).square().sum(), leaves)
    theirs = torch.autograd.grad(model(x).square().sum(), leaves)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_weights_stay_pytorchs():
    model = nn.Linear(3, 3, bias=False)
    f = compiled(model)
    x = torch.randn(2, 3)
    with torch.no_grad():
        f(x)
        model.weight.mul_(2)
        torch.testing.assert_close(f(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_float_dtypes(dtype):
    x, y = torch.randn(3, 5).to(dtype), torch.randn(5).to(dtype)
    f = lambda x, y: (x * y + 0.1).sum(1)
    torch.testing.assert_close(compiled(f)(x, y), f(x, y))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integer_dtypes(dtype):
    x, y = torch.randint(0, 100, (3, 5)).to(dtype), torch.randint(1, 9, (5,)).to(dtype)
    f = lambda x, y: (x * y + 7, x // y, x % y, x & y, x.sum(), x > y)
    for a, b in zip(compiled(f)(x, y), f(x, y)):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_strides_in_and_out():
    x = torch.randn(5, 3).t()
    y = torch.randn(4, 6)[::2, 1:4].t()
    z = torch.randn(3, 1).expand(3, 5)
    f = lambda x, y, z: (x + z, (y * 2).t(), x @ torch.ones(5, 2))
    for a, b in zip(compiled(f)(x, y, z), f(x, y, z)):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)


def test_zero_and_one():
    f = lambda x: (x.sum(0), x.softmax(-1), x.relu() + 1)
    for shape in [(0, 3), (1, 1), (3, 0)]:
        x = torch.randn(shape)
        torch._dynamo.reset()
        for a, b in zip(compiled(f)(x), f(x)):
            torch.testing.assert_close(a, b)


def test_nan_and_inf():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40, 3.0])
    f = lambda x: (x.relu(), x.clamp(-1, 1), x.max(), x.sign(), x / 0, x.isnan(), torch.where(x > 0, x, -1.0))
    for a, b in zip(compiled(f)(x), f(x)):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_mutated_input():
    def f(x, y):
        x.add_(y)
        return x * 2

    a, b = torch.randn(3), torch.randn(3)
    expected = a.clone()
    out = f(expected, b)
    mine = a.clone()
    torch.testing.assert_close(compiled(f)(mine, b), out)
    torch.testing.assert_close(mine, expected)


def test_returned_input_and_views():
    def f(x):
        y = x * 2
        return x, x.t(), y, y[1:], y.view(-1)

    x = torch.randn(3, 4)
    ours, theirs = list(compiled(f)(x)), list(f(x))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert ours[0].data_ptr() == x.data_ptr() and ours[1].data_ptr() == x.data_ptr()
    ours[2].add_(1)
    theirs[2].add_(1)
    torch.testing.assert_close(ours[4], theirs[4])


def test_dynamic_sizes_compile_once():
    model = MLP()
    seen = []

    def count(gm, inputs):
        from rc.torch.backend import rc

        seen.append(gm)
        return rc(gm, inputs)

    f = torch.compile(model, backend=count, fullgraph=True, dynamic=True)
    with torch.no_grad():
        # The first call may trace twice: Dynamo starts anew where it takes a number for a symbol at first.
        for i, batch in enumerate((3, 2, 17, 64)):
            x = torch.randn(batch, 7)
            torch.testing.assert_close(f(x), model(x))
            first = len(seen) if i == 0 else first
    assert len(seen) == first


@pytest.mark.skipif(not torch.cuda.is_available(), reason="programs for ranges of sizes are made on a GPU")
@pytest.mark.parametrize("options, programs", [({}, ["65 to 128", "9 to 16"]), ({"variants": 1}, ["65 to 128"]), ({"variants": 0}, [])])
def test_sizes_that_come_back_get_programs(monkeypatch, caplog, options, programs):
    monkeypatch.setenv("RC_LOGS", "time")
    weight = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    f = lambda x: torch.softmax(x @ weight, dim=1).sum(0)
    g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True, options=options)
    for n in (1000, 100, 128, 65, 9, 16, 100):
        x = torch.randn(4, n, 64, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(g(x), f(x), rtol=2e-2, atol=2e-2)
    said = [line for line in caplog.messages if line.startswith("[time] compiled for")]
    assert len(said) == len(programs) and all(program in line for line, program in zip(said, programs))
    assert any("further sizes" in line for line in caplog.messages) == (options.get("variants") == 1)


def test_sizes_are_filled_up_to_buckets():
    weight = torch.randn(64, 16)
    f = lambda x: torch.softmax(torch.nn.functional.gelu(x) @ weight.T, dim=1)
    g = torch.compile(f, backend="rc", fullgraph=True, options={"buckets": [8, 32]})
    for n in (3, 8, 9, 32, 33, 5):
        x = torch.randn(n, 16)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-5)
    lines = [lines for lines in rc.torch.variants().values() if any("filled up to" in line for line in lines)][-1]
    assert lines[0] == "all sizes: 1 call" and len(lines) == 3, lines
    assert ": 3 calls" in lines[1] and ": 2 calls" in lines[2], lines


def test_sizes_that_rows_depend_on_are_not_filled_up(caplog):
    f = lambda x: torch.softmax(x, dim=0) + 0.125
    g = torch.compile(f, backend="rc", fullgraph=True, options={"buckets": [8, 32]})
    for n in (3, 9):
        x = torch.randn(n, 16)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-5)
    assert any("'buckets' has no effect" in line for line in caplog.messages)
    with pytest.raises(ValueError, match="buckets is a list of sizes"):
        rc.torch.Options.of({"buckets": [0]}, None)


def test_padding_by_symbolic_sizes():
    """To a multiple of eight and back, as PyTorch pads masks of attention on CUDA; cutting off by a part of the size."""

    def f(x):
        n = x.shape[1]
        y = nn.functional.pad(x, (0, 8 - n % 8), value=2.0)
        return y * y, y[:, :n] + 1, nn.functional.pad(x, (-(n // 2), 1))

    compiled = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
    for n in (5, 8, 13):
        x = torch.randn(3, n)
        for got, want in zip(compiled(x), f(x)):
            torch.testing.assert_close(got, want)


def test_mark_dynamic_with_gradients():
    model = MLP()
    f = compiled(model)
    for batch in (5, 3, 8):
        x = torch.randn(batch, 7, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        ours = torch.autograd.grad(f(x).square().sum(), [x, *model.parameters()])
        theirs = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_sizes_as_numbers():
    f = lambda x: (x.sum() / x.shape[0], torch.arange(x.shape[0]) * x.shape[0], x.view(-1, x.shape[1] * 2), x.shape[0] * 2)
    g = compiled(f, dynamic=True)
    for n in (4, 6, 10):
        x = torch.randn(n, 3)
        for a, b in zip(g(x), f(x)):
            torch.testing.assert_close(a, b)


def test_unsupported_names_operations_and_lines():
    def f(x):
        return torch.linalg.det(x) + torch.linalg.svdvals(x).sum()

    with pytest.raises(BackendCompilerFailed) as e:
        compiled(f)(torch.randn(3, 3))
    text = str(e.value)
    assert "2 operations" in text and "aten._linalg_svd" in text and "_linalg_det" in text
    assert f"{__file__}:" in text and "fallback" in text


def test_fallback_runs_in_pytorch_and_says_so(caplog):
    def f(x):
        y = torch.relu(x) + 1
        z = torch.linalg.det(y @ y.T)
        return y * z, torch.linalg.svdvals(x) * 2

    x = torch.randn(3, 3)
    with caplog.at_level(logging.WARNING, logger="rc.torch"):
        ours = compiled(f, options={"fallback": True})(x)
    for a, b in zip(ours, f(x)):
        torch.testing.assert_close(a, b)
    assert "aten._linalg_det" in caplog.text and "runs in PyTorch" in caplog.text


def test_fallback_of_what_depends_on_data():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        f = lambda x: x[x > 0].sum() + x.nonzero().shape[0]
        x = torch.randn(7)
        torch.testing.assert_close(compiled(f, options={"fallback": True})(x), f(x))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_options_and_mode_are_checked():
    f = lambda x: x + 1
    with pytest.raises(Exception, match='did you mean "fallback"'):
        compiled(f, options={"falback": True})(torch.randn(2))
    with pytest.raises(Exception, match="no mode"):
        compiled(f, mode="max-speed")(torch.randn(2))
    x = torch.randn(2)
    torch.testing.assert_close(compiled(f, mode="reduce-overhead")(x), f(x))


def test_two_threads():
    from concurrent.futures import ThreadPoolExecutor

    f = lambda x: torch.softmax(x @ x.T, -1)
    g = compiled(f)
    xs = [torch.randn(5, 5) for _ in range(8)]
    g(xs[0])
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(xs, pool.map(g, xs)):
            torch.testing.assert_close(y, f(x))


def test_fork_after_compile():
    import os

    f = compiled(lambda x: (x * 2).sum())
    x = torch.ones(100_000)
    f(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if f(x).item() == 200_000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_export_writes_text_and_weights(tmp_path):
    import rc.torch
    from safetensors.torch import load_file

    model = MLP().eval()
    file = tmp_path / "mlp.ir"
    batch = torch.export.Dim("batch", min=2, max=64)
    rc.torch.export(model, (torch.randn(4, 7),), str(file), dynamic_shapes=((batch, None),))
    text = file.read_text()
    assert "func.func @main" in text and 'rc.name = "layers.0.weight"' in text and "rc.symbols" in text
    weights = load_file(tmp_path / "mlp.safetensors")
    assert set(weights) == set(model.state_dict())


def test_export_refuses_models_that_change_themselves(tmp_path):
    import rc.torch

    with pytest.raises(ValueError, match="running_mean"):
        rc.torch.export(nn.BatchNorm1d(3), (torch.randn(4, 3),), str(tmp_path / "m.ir"))


def test_explain():
    import rc.torch

    def f(x):
        return torch.special.airy_ai(x.relu()).sum()

    found = rc.torch.explain(f, torch.randn(3))
    assert len(found.graphs) == 1
    assert [op for op, *_ in found.graphs[0]["foreign"]] == ["aten.special_airy_ai.default"]
    assert f"{__file__}:" in str(found)


def test_logs(monkeypatch, capfd, caplog):
    monkeypatch.setenv("RC_LOGS", "graph,output_code,time")
    compiled(lambda x: x.exp() + 1)(torch.randn(3))
    out = capfd.readouterr().err + caplog.text
    assert "core.exp" in out and "host.func" in out
    for step in ("translated", "compiled"):
        assert re.search(rf"2 operations: {step} in [\d.]+ s", out)
    monkeypatch.setenv("RC_LOGS", "grph")
    with pytest.raises(Exception, match="no topic 'grph'"):
        compiled(lambda x: x.sin() + 1)(torch.randn(3))


def test_random_tensors_repeat_with_the_seed():
    def f(x):
        return torch.rand_like(x), torch.randn(1000), nn.functional.dropout(x + 1, 0.25), torch.bernoulli(x * 0 + 0.3)

    g = compiled(f)
    x = torch.zeros(1000)
    torch.manual_seed(3)
    first, second = g(x), g(x)
    torch.manual_seed(3)
    again = g(x)
    for a, b, c in zip(first, second, again):
        assert torch.equal(a, c) and not torch.equal(a, b)
    uniform, normal, dropped, coins = first
    for value, expected in [(uniform.mean(), 0.5), (uniform.std(), 12**-0.5), (normal.mean(), 0), (normal.std(), 1),
                            (dropped.mean(), 1), ((dropped == 0).float().mean(), 0.25), (coins.mean(), 0.3)]:  # fmt: skip
        assert abs(value.item() - expected) < 0.15
    assert 0 <= uniform.min() and uniform.max() < 1


def test_dropout_gradient_uses_the_mask_of_the_forward_pass():
    x = torch.ones(1000, requires_grad=True)
    y = compiled(lambda x: nn.functional.dropout(x * 2, 0.5))(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(g != 0, y != 0)


class Skips(nn.Module):
    """Down by two convolutions, up again, and joined with what was skipped: sizes that are equal by PyTorch's guards."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 2, stride=2)
        self.down, self.up = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.norm(self.patch(x))
        z = self.up(self.down(y).relu())
        return torch.cat([y, z], 1) + (y + z).mean((2, 3), keepdim=True).repeat(1, 2, 1, 1)


def test_images_of_any_size():
    model, counted = Skips().eval(), CompileCounterWithBackend("rc")
    f = torch.compile(model, backend=counted, fullgraph=True)
    with torch.no_grad():
        for i, (n, h, w) in enumerate([(2, 16, 24), (3, 8, 32), (5, 40, 12)]):
            x = torch.randn(n, 3, h, w)
            if i == 0:
                for d in (0, 2, 3):
                    torch._dynamo.mark_dynamic(x, d)
            torch.testing.assert_close(f(x), model(x))
    assert counted.frame_count == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")
def test_captured_calls_outlive_their_programs():
    """What a program has is given back while a graph is captured, and the captured one's after it: the capture goes on, and its graph runs."""

    def function(factor):
        scope = {"torch": torch}
        exec(f"def f(x): return torch.softmax(x * {factor} + torch.arange(1000, device=x.device) / 500, 0).cumsum(0)", scope)
        return scope["f"], compiled(scope["f"])

    x = torch.randn(1000, device="cuda")
    (_, first), (f, second) = function(2), function(3)
    expected = f(x)
    for _ in range(2):
        first(x), second(x)
    torch.cuda.synchronize()
    dropped = [first]
    dropped.append(dropped)
    gc.disable()
    del first, dropped
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gc.collect()
        y = second(x)
    gc.enable()
    del second, f, _
    torch._dynamo.reset()
    gc.collect()
    for i in range(20):
        compiled(lambda x: x * i + 1)(x)
    graph.replay()
    torch.testing.assert_close(y, expected)
