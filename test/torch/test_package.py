"""Models in one file: compiled here, run by `rc-run` without PyTorch."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import rc.torch
from rc import RcError

BIN = Path(os.environ.get("RC_BIN", Path(__file__).parents[2] / "target" / "release"))
needs_tools = pytest.mark.skipif(not (BIN / "rc-run").exists(), reason=f"there is no rc-run in {BIN} (RC_BIN)")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
        self.out = torch.nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, tokens, scale):
        return self.out(self.norm(self.table(tokens))) * scale


def example(rows=4):
    return torch.arange(rows * 3).reshape(rows, 3) % 11, torch.full((rows, 3, 1), 0.5)


def run(path, *arguments, folder):
    inputs = []
    for i, x in enumerate(arguments):
        np.save(folder / f"in{i}.npy", x.numpy())
        inputs += [f"--input={folder / f'in{i}.npy'}"]
    done = subprocess.run([BIN / "rc-run", path, *inputs, "-o", folder / "out.npy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return torch.from_numpy(np.load(folder / "out.npy"))


@needs_tools
@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_a_package_gives_what_the_model_does(tmp_path, weights):
    model, args = Model().eval(), example()
    path = tmp_path / "model.rcp"
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows}, {0: rows})
    rc.torch.package(model, args, str(path), dynamic_shapes=shapes, archs=["x86-64-v2", "host"], weights=weights)
    assert (tmp_path / "model.safetensors").exists() == (weights == "beside")
    assert {p.name for p in tmp_path.iterdir()} <= {"model.rcp", "model.safetensors"}
    for given in (args, example(7)):
        with torch.no_grad():
            torch.testing.assert_close(run(path, *given, folder=tmp_path), model(*given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_weights_whose_names_begin_with_a_number(tmp_path, weights):
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)).eval(), torch.randn(4, 3)
    path = str(tmp_path / "model.rcp")
    rc.torch.package(model, (x,), path, weights=weights)
    model_there = rc.load(path)
    assert "weight" not in str(model_there.signature)
    torch.testing.assert_close(torch.from_dlpack(model_there(x)), model(x).detach())


def test_what_cannot_be_packaged_is_said(tmp_path):
    model, path = Model().eval(), str(tmp_path / "model.rcp")
    with pytest.raises(RcError, match="sm_70"):
        rc.torch.package(model, example(), path, archs=["sm_70"])
    with pytest.raises(RcError, match="unknown CPU 'none'"):
        rc.torch.package(model, example(), path, archs="none")
    with pytest.raises(ValueError, match="inside"):
        rc.torch.package(model, example(), path, weights="elsewhere")
    assert not list(tmp_path.iterdir())


def test_warmup_compiles_what_later_calls_need(capsys):
    model = torch.compile(torch.nn.Linear(5, 3), backend="rc", dynamic=False)
    seconds = rc.torch.warmup(model, [((2, 5),), (torch.zeros(4, 5),), [((6, 5), torch.float32)]], show=True)
    assert seconds > 0 and "3/3" in capsys.readouterr().err
    with torch.compiler.set_stance("fail_on_recompile"):
        for rows in (2, 4, 6):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(model(x), model._orig_mod(x))
    with pytest.raises(TypeError, match="arguments in a tuple"):
        rc.torch.warmup(model, [7])
    with pytest.raises(TypeError, match="a shape"):
        rc.torch.warmup(model, [("x",)])
