"""Modes, options and PyTorch's own switches around a compiled function."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import rc.torch


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def refusal(**kwargs) -> str:
    with pytest.raises(BackendCompilerFailed) as e:
        torch.compile(lambda x: x + 1, backend="rc", **kwargs)(torch.randn(2))
    return str(e.value)


def test_what_inductor_calls_otherwise():
    assert 'no mode "max-autotun"; did you mean "max-autotune"?' in refusal(mode="max-autotun")
    assert 'options={"graphs": True}' in refusal(options={"triton.cudagraphs": True})
    assert "Inductor's: rc measures nothing" in refusal(options={"max_autotune": True})
    assert "there are fallback, dump, graphs" in refusal(options={"foo": 1})


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_that_measure_say_that_nothing_is_measured(mode, caplog):
    x = torch.randn(3, 5)
    with caplog.at_level("WARNING", logger="rc.torch"):
        torch.testing.assert_close(torch.compile(lambda x: x.softmax(-1), backend="rc", mode=mode)(x), x.softmax(-1))
    assert "measures nothing" in caplog.text


def test_stances():
    f = torch.compile(lambda x: x * 2, backend="rc")
    x = torch.randn(3)
    f(x)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(f(torch.ones(2, 2)), torch.full((2, 2), 2.0))
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(f(x), x * 2)
        with pytest.raises(RuntimeError, match="recompile"):
            f(torch.randn(2, 2))


@torch._dynamo.config.patch(error_on_recompile=True)
def test_error_on_recompile():
    f = torch.compile(lambda x: x * 2, backend="rc")
    f(torch.randn(3))
    with pytest.raises(torch._dynamo.exc.RecompileError, match="rank mismatch"):
        f(torch.randn(2, 2))


def test_breaks_are_explained():
    def f(x):
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
        return y * 2

    found = rc.torch.explain(f, torch.randn(3))
    assert len(found.graphs) == 2 and len(found.breaks) == 1
    assert f"{__file__}:" in found.breaks[0][1] and "break: " in str(found)
