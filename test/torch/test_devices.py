"""Graphs for a GPU, lowered without one: tensors are fake."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rc.torch.joint import part
from rc.torch.lower import Lowering, Problems

NUMBER = torch.tensor(3.0)
TABLE = torch.ones(5)


def graph(f, *devices):
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = [torch.empty((4,), device=device) for device in devices]
        return make_fx(torch.func.functionalize(f))(*args)


def test_numbers_on_the_cpu_are_constants_of_a_gpus_graph():
    def f(x):
        y = torch.zeros_like(x)
        y[1:].fill_(torch.ops.aten.lift_fresh_copy(NUMBER))
        return (y + x,)

    assert "dense<3.000000e+00>" in Lowering(graph(f, "cuda")).run().module.text()


def test_what_is_computed_on_the_cpu_is_computed_with_the_rest():
    def mask(x):
        hidden = torch.zeros(3, 4).to(x.device, torch.bool)
        return ((~hidden).cumsum(1) * torch.ops.aten.lift_fresh_copy(TABLE)[2] + x,)

    done = Lowering(graph(mask, "cuda")).run()
    assert done.device.type == "cuda" and not done.moved


def test_arguments_on_the_cpu_are_copied_at_each_call():
    done = Lowering(graph(lambda n, x, m: (x + n.to(x.device) * m.sum().to(x.device),), "cpu", "cuda", "cpu")).run()
    assert done.device.type == "cuda" and done.moved == [0, 2]


def test_a_number_beside_a_tensor_is_copied():
    def f(x, n):
        return (x + n,)

    with FakeTensorMode():
        gm = make_fx(f)(torch.empty(4, device="cuda"), torch.empty(()))
    assert Lowering(gm).run().moved == [1]


def test_places_from_the_cpu_are_kept_on_the_gpu_for_the_gradient():
    def step(table, x, tangent):
        at = torch.arange(4) * 2.0
        gathered = table[(at + 1.0).long()]
        return x * gathered, tangent * gathered, torch.zeros_like(table).index_put([(at + 1.0).long()], tangent * x, True)

    with FakeTensorMode():
        args = [torch.empty(n, device="cuda") for n in (9, 4, 4)]
        joint = make_fx(lambda primals, tangents: list(step(*primals, *tangents)))(args[:2], args[2:])
    inputs = list(joint.graph.find_nodes(op="placeholder"))
    for node, name in zip(inputs, ("primals_1", "primals_2", "tangents_1"), strict=True):
        node.name = node.target = name
    joint.recompile()
    for graph in part(joint, args, num_fwd_outputs=1):
        done = Lowering(graph).run()
        assert done.device.type == "cuda" and not done.moved


@pytest.mark.parametrize(
    "f, devices",
    [
        (lambda x: (x + 1, torch.ops.aten.lift_fresh_copy(NUMBER) * 2), ("cuda",)),
        (lambda x: (x * 2, (x + 1).cpu()), ("cuda",)),
        (lambda x, n: (x + 1, n * 2), ("cuda", "cpu")),
    ],
    ids=["constant", "copy", "argument"],
)
def test_results_on_the_cpu_are_copied_at_each_call(f, devices):
    assert Lowering(graph(f, *devices)).run().fetched == [1]


@pytest.mark.parametrize("f", [lambda x, n: (x + 1, n[1:]), lambda x, n: (x + 1, m := n * 2, m[1:])], ids=["argument", "result"])
def test_results_on_the_cpu_that_share_memory_are_named(f):
    with FakeTensorMode():
        gm = make_fx(f)(torch.empty(4, device="cuda"), torch.empty(4))
    with pytest.raises(Problems, match="a result on cpu that shares memory"):
        Lowering(gm).run()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_call_takes_arguments_from_where_they_lie():
    def f(x, table, n):
        return x * table.to(x.device)[: x.shape[0]] + n

    compiled = torch.compile(f, backend="rc", fullgraph=True)
    for n in (2.0, 3.0):
        x, table, n = torch.randn(4, device="cuda"), torch.randn(9), torch.tensor(n)
        torch.testing.assert_close(compiled(x, table, n), f(x, table, n))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_call_gives_results_where_they_are_asked_for():
    def f(x, n):
        y = (x + 1).cpu()
        return x * 2, y, y, torch.tensor([2, 3, 4]).cumsum(0), n.sum()

    compiled = torch.compile(f, backend="rc", fullgraph=True)
    for _ in range(2):
        x, n = torch.randn(4, device="cuda"), torch.randn(3)
        results = compiled(x, n)
        torch.testing.assert_close(results, f(x, n))
        assert [r.device.type for r in results] == ["cuda", "cpu", "cpu", "cpu", "cpu"]
