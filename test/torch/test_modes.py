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
    assert 'Inductor\'s: mode="max-autotune"' in refusal(options={"max_autotune": True})
    assert "there are fallback, dump, graphs" in refusal(options={"foo": 1})


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 48), torch.nn.LayerNorm(48)).eval()


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_that_measure(mode, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, x = layers(), torch.randn(33, 96)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="rc", mode=mode)(x), model(x), rtol=1e-4, atol=1e-5)
    lines = (tmp_path / "rc" / "torch.tuning").read_text().splitlines()
    assert lines[0] == "// rc tuning 1" and len(lines) >= 2
    assert lines[1:] == sorted(lines[1:]) and all(line.startswith("#rc.tuned<kernel = ") for line in lines[1:])


def test_measured_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("RC_LOGS", "tuning,remarks")
    file = tmp_path / "model.tuning"
    model, x = layers(), torch.randn(33, 96)
    with torch.no_grad():
        torch.compile(model, backend="rc", options={"tune": True, "tuning_file": str(file)})(x)
        assert "[tuning]" in caplog.text
        caplog.clear()
        text = file.read_text()
        torch._dynamo.reset()
        torch.compile(model, backend="rc", options={"tune": True, "tuning_file": str(file)})(x)
        assert "[tuning]" not in caplog.text and file.read_text() == text
        torch._dynamo.reset()
        y = torch.compile(model, backend="rc", options={"tuning_file": str(file)})(x)
    assert "tuned schedule for" in caplog.text or "no schedule was faster" in caplog.text
    torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)


def test_files_of_measured_schedules_that_are_wrong(tmp_path):
    file = tmp_path / "model.tuning"
    assert "cannot read the tuning file" in refusal(options={"tuning_file": str(file)})
    file.write_text("// rc tuning 1\n#rc.tuned<kernel = \n")
    assert "model.tuning:2" in refusal(options={"tuning_file": str(file)})
    assert "model.tuning:2" in refusal(options={"tune": True, "tuning_file": str(file)})
    file.write_text("something else\n")
    assert "no tuning file" in refusal(options={"tune": True, "tuning_file": str(file)})
    assert file.read_text() == "something else\n"


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
