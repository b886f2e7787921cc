"""A training step's joint graph: what computes the same is computed once, and what only looks the same is not."""

import pytest
import torch
from rc.torch import decompose, joint
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("ignored", [False, True])
def test_of_a_cross_entropy_rows_are_kept(dtype, ignored):
    """Nothing of the logits' shape is kept in a wider type than theirs."""
    x, w = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((6, 8), (40, 8))]
    t = torch.tensor([0, 39, -100 if ignored else 3, 7, 7, 20])
    f = lambda x, w, t: torch.nn.functional.cross_entropy((x @ w.t()).to(torch.promote_types(x.dtype, torch.float32)), t)
    kept = []

    def part(gm, inputs, *, num_fwd_outputs, **options):
        forward, backward = joint.part(gm, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        kept.extend(n.meta["val"] for n in forward.graph.output_node().args[0] if hasattr(n, "meta"))
        return forward, backward

    compiler = lambda gm, _: make_boxed_func(gm.forward)
    loss = aot_function(f, compiler, compiler, part, decompositions=decompose.table())(x, w, t)
    assert not any(v.shape == (6, 40) and v.dtype != dtype for v in kept)
    exact = [v.detach().double().requires_grad_() for v in (x, w)]
    expected = f(*exact, t)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-2, atol=1e-2)
    tolerance = {torch.bfloat16: 3e-2, torch.float32: 1e-5}[dtype]
    for g, e in zip(torch.autograd.grad(loss, (x, w)), torch.autograd.grad(expected, exact)):
        torch.testing.assert_close(g.double(), e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("turned", [lambda at: at.expand(-1, -1, 8) % 9, lambda at: at.repeat(1, 1, 8)], ids=["expand", "repeat"])
def test_of_indices_of_whole_rows_one_column_is_kept(turned):
    kept = []

    def compiler(gm, _):
        kept.extend(n.meta["val"].shape for n in gm.graph.find_nodes(op="placeholder") if n.meta["val"].dtype == torch.int64)
        return make_boxed_func(gm.forward)

    x, at = torch.randn(4, 9, 8, requires_grad=True), torch.randint(0, 9, (4, 5, 1))
    f = lambda x, at: (x.gather(1, turned(at)),)
    results = aot_function(f, lambda gm, _: make_boxed_func(gm.forward), compiler, joint.part)(x, at), f(x, at)
    grads = [torch.autograd.grad((r * r).sum(), x)[0] for (r,) in results]
    torch.testing.assert_close(*grads)
    assert kept == [(4, 5, 1)]
