"""A training step's joint graph: what computes the same is computed once, and what only looks the same is not."""

import pytest
import torch
from rc.torch import joint
from torch._functorch.aot_autograd import aot_function, make_boxed_func


def merged(f, *args):
    """How many operations of each kind the merged joint graph has, and how many it had."""
    count = lambda gm: [n.target.__name__.split(".")[0] for n in gm.graph.nodes if n.op == "call_function" and hasattr(n.target, "_schema")]
    found = []

    def part(gm, inputs, *, num_fwd_outputs, **options):
        before = count(gm)
        joint._merge(gm, num_fwd_outputs)
        found.extend([before, count(gm)])
        return joint.part(gm, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    compiler = lambda gm, _: make_boxed_func(gm.forward)
    results = aot_function(f, compiler, compiler, part)(*args)
    expected = f(*args)
    for r, e in zip(results, expected):
        torch.testing.assert_close(r, e)
    grads = [torch.autograd.grad(sum((r * r).sum() for r in rs), args) for rs in (results, expected)]
    for g, e in zip(*grads):
        torch.testing.assert_close(g, e)
    return found[0], found[1], results


def test_the_same_is_computed_once():
    before, after, _ = merged(lambda x: (x.exp().sin() * x.exp().cos() + 1,), torch.randn(5, requires_grad=True))
    assert before.count("exp") == 2 and after.count("exp") == 1


@pytest.mark.parametrize("f", [lambda x: (x * 0.0 + x, x * -0.0 + x), lambda x: (x + torch.rand(5), x + torch.rand(5))], ids=["zeros", "random"])
def test_what_looks_the_same_is_not(f):
    x = torch.randn(5, requires_grad=True)
    found = []

    def part(gm, inputs, *, num_fwd_outputs, **options):
        size = len(gm.graph.nodes)
        joint._merge(gm, num_fwd_outputs)
        gm.graph.eliminate_dead_code()
        found.append(size - len(gm.graph.nodes))
        return joint.part(gm, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    compiler = lambda gm, _: make_boxed_func(gm.forward)
    aot_function(f, compiler, compiler, part)(x)
    assert found == [0]


def test_results_stay_tensors_of_their_own():
    _, _, results = merged(lambda x: (x.exp(), x.exp(), x.exp().view(-1)), torch.randn(2, 3, requires_grad=True))
    assert len({r.untyped_storage().data_ptr() for r in results}) == 3
