"""Graphs for a GPU, lowered without one: tensors are fake."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rc.torch.lower import Lowering, Problems

NUMBER = torch.tensor(3.0)
TABLE = torch.ones(5)


def lowered(f, *devices):
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = [torch.empty((4,) if device == "cuda" else (), device=device) for device in devices]
        gm = make_fx(torch.func.functionalize(f))(*args)
    return Lowering(gm).run().module.text()


def test_numbers_on_the_cpu_are_constants_of_a_gpus_graph():
    def f(x):
        y = torch.zeros_like(x)
        y[1:].fill_(torch.ops.aten.lift_fresh_copy(NUMBER))
        return (y + x,)

    assert "dense<3.000000e+00>" in lowered(f, "cuda")


@pytest.mark.parametrize(
    "f, devices",
    [
        (lambda x, n: (x + n,), ("cuda", "cpu")),
        (lambda x: (x + 1, torch.ops.aten.lift_fresh_copy(NUMBER) * 2), ("cuda",)),
        (lambda x: (x + torch.ops.aten.lift_fresh_copy(TABLE)[2],), ("cuda",)),
    ],
    ids=["argument", "result", "table"],
)
def test_other_tensors_on_the_cpu_are_named(f, devices):
    with pytest.raises(Problems, match="on cpu among those on cuda"):
        lowered(f, *devices)
