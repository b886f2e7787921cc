"""What helps to look inside: `minify`, the topics of RC_LOGS, the line for long compiles, ranges in PyTorch's profiler."""

import io
import time

import rc.torch
import torch
from rc.torch import progress
from rc.torch.ops import TABLE
from torch import nn


def test_minify_finds_nothing_in_what_is_right():
    assert rc.torch.minify(nn.Sequential(nn.Linear(3, 4), nn.GELU()), torch.randn(2, 3)) is None


def test_minify_finds_the_operation_that_is_not_supported():
    def f(x):
        y = torch.relu(x @ x.T + 1)
        return (torch.linalg.svdvals(y) * 2).sum() + y.exp().sum()

    found = rc.torch.minify(f, torch.randn(4, 4))
    calls = [n for n in found.graph.graph.nodes if n.op == "call_function"]
    assert found.failure.startswith("not supported") and "_linalg_svd" in str(found)
    assert any("_linalg_svd" in str(n.target) for n in calls) and len(calls) <= 2


def test_minify_finds_a_wrong_result(monkeypatch):
    """A translation that is wrong by a tenth."""
    right = TABLE[torch.ops.aten.tanh.default]
    monkeypatch.setitem(TABLE, torch.ops.aten.tanh.default, lambda b, x: b.scalar("mul", right(b, x), 1.1))

    def f(x):
        y = (x @ x.T).softmax(-1)
        for _ in range(3):
            y = torch.relu(y * 3 + 1)
        return y.sum(0) + torch.tanh(y[0]) * 100

    found = rc.torch.minify(f, torch.randn(5, 5))
    calls = [str(n.target) for n in found.graph.graph.nodes if n.op == "call_function"]
    assert found.failure.startswith("differs") and "aten.tanh.default" in calls and len(calls) <= 3
    assert "func.func @main" in found.text()


def test_topics_of_logs(monkeypatch, caplog):
    monkeypatch.setenv("RC_LOGS", "recompiles,buffers,fusion")
    f = torch.compile(lambda x: (x * 2 + 1).softmax(-1) @ x.T, backend="rc", dynamic=False)
    f(torch.randn(3, 4))
    f(torch.randn(5, 4))
    text = caplog.text
    assert "[buffers]" in text and "arena" in text and "[fusion]" in text and "[graph]" not in text
    assert text.count("[recompiles]") == 1 and "size mismatch" in text.split("[recompiles]")[1]


def test_a_line_for_what_takes_long(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    for seconds, shown in ((0.0, False), (0.3, True)):
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        with progress.progress("rc compiles 7 operations"):
            time.sleep(seconds)
        assert ("rc compiles 7 operations: 0 s" in terminal.getvalue()) == shown
        assert not shown or terminal.getvalue().endswith("\r\x1b[K")


def test_calls_are_ranges_of_the_profiler():
    f = torch.compile(lambda x: x * 2 + 1, backend="rc")
    f(torch.randn(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        f(torch.randn(3))
    assert any(e.key.startswith("rc: inference") for e in profile.key_averages())


def test_a_page_for_each_graph(monkeypatch, tmp_path):
    """RC_VIEW writes one, cached or not, with the lines of the model."""
    monkeypatch.setenv("RC_VIEW", str(tmp_path / "pages"))

    def f(x):
        return torch.nn.functional.gelu(x @ x.T)

    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(f, backend="rc")(torch.randn(5, 5))
    pages = [page.read_text() for page in (tmp_path / "pages").iterdir()]
    assert len(pages) == 2 and all("test_tools.py" in page for page in pages)
