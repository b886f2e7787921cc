"""What follows from weights alone is kept between calls on the CPU, and made anew when they change."""

import copy

import pytest
import torch

import rc.torch


def model():
    layers = [torch.nn.Linear(77, 131), torch.nn.BatchNorm1d(131), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(131, 50)]
    return torch.nn.Sequential(*layers).eval()


def check(compiled, m, x):
    with torch.no_grad():
        want = copy.deepcopy(m).double()(x.double())
        assert (compiled(x) - want).abs().max() < 1e-5 * want.abs().max()


def load(m):
    m.load_state_dict({k: torch.rand_like(v) + 0.5 if v.is_floating_point() else v for k, v in m.state_dict().items()})


def step(m):
    m(torch.randn(5, 77)).square().mean().backward()
    torch.optim.SGD(m.parameters(), lr=0.1).step()


def replace(m):
    m[3].weight = torch.nn.Parameter(torch.randn(50, 131))


def move(m):
    m[0].weight.data = torch.randn(131, 77)


def write_data(m):
    m[0].weight.data.mul_(1.5)


def write_one(m):
    with torch.no_grad():
        m[3].weight[7, 3] = 10.0


def statistics(m):
    m[1].running_mean.add_(1.0)


@pytest.mark.parametrize("change", [load, step, replace, move, write_data, write_one, statistics])
def test_changed_weights_are_seen(change):
    m, x = model(), torch.randn(37, 77)
    compiled = torch.compile(m, backend="rc", fullgraph=True)
    for _ in range(2):
        check(compiled, m, x)
    assert rc.torch.kept_bytes() > 0
    change(m)
    for _ in range(2):
        check(compiled, m, x)


def test_arguments_that_are_no_weights_are_not_kept():
    before = rc.torch.kept_bytes()
    f = torch.compile(lambda x, w: x @ w, backend="rc", fullgraph=True)
    x, w = torch.randn(40, 64), torch.randn(64, 64)
    for _ in range(2):
        torch.testing.assert_close(f(x, w), x @ w)
        w = torch.randn(64, 64)
    assert rc.torch.kept_bytes() == before


def test_memory_is_given_back():
    before = rc.torch.kept_bytes()
    m, x = model(), torch.randn(37, 77)
    compiled = torch.compile(m, backend="rc", fullgraph=True)
    check(compiled, m, x)
    kept = rc.torch.kept_bytes() - before
    assert 0 < kept < 2 * sum(4 * p.numel() for p in m.parameters())
    rc.torch.free_kept()
    assert rc.torch.kept_bytes() == 0
    check(compiled, m, x)
    assert rc.torch.kept_bytes() == kept
    # Values of weights that are no more are of no use.
    load(m)
    for i in (0, 3):
        m[i].weight = torch.nn.Parameter(torch.randn_like(m[i].weight))
    assert rc.torch.kept_bytes() == 0
    check(compiled, m, x)


def test_tensors_whose_writes_are_not_counted():
    with torch.inference_mode():
        m, x = torch.nn.Linear(33, 65), torch.randn(9, 33)
        compiled = torch.compile(m, backend="rc", fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), m(x))
            m.weight[64, 32] += 1.0


def test_a_graph_that_writes_to_its_buffers():
    m, x = model().train(), torch.randn(37, 77)
    other = copy.deepcopy(m)
    compiled = torch.compile(m, backend="rc", fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), other(x))
    torch.testing.assert_close(m[1].running_var, other[1].running_var)
