"""Operations that PyTorch runs in the middle of one compiled program: custom ones, collectives, and with `fallback` those that rc has not."""

import gc
import logging
import os
import subprocess
import sys

import pytest
import torch

import rc.torch  # noqa: F401
from rc._native import Program


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()


def compiled(f, **options):
    return torch.compile(f, backend="rc", fullgraph=True, **options)


def same(f, *args, **options):
    """That a compiled function gives what it gives uncompiled, and as one program."""
    expected = f(*[a.clone() for a in args])
    with counted() as programs:
        found = compiled(f, **options)(*[a.clone() for a in args])
    torch.testing.assert_close(found, expected, equal_nan=True)
    return programs


class counted:
    """Counts the programs that are made."""

    def __enter__(self):
        self.before = len(_programs())
        return self

    def __exit__(self, *_):
        self.count = len(_programs()) - self.before


def _programs():
    gc.collect()
    return [x for x in gc.get_objects() if type(x) is Program]


@torch.library.custom_op("rc_foreign::scale", mutates_args=())
def scale(x: torch.Tensor, by: float, words: str, n: int = 1, dtype: torch.dtype | None = None) -> torch.Tensor:
    assert words == "a b"
    return (x * by * n).to(dtype)


@scale.register_fake
def _(x, by, words, n=1, dtype=None):
    return torch.empty_like(x, dtype=dtype)


@torch.library.custom_op("rc_foreign::parts", mutates_args=())
def parts(xs: list[torch.Tensor], y: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    total = sum(x.sum(0) for x in xs)
    return total, total.long() if y is None else total * y


@parts.register_fake
def _(xs, y):
    total = xs[0].new_empty(xs[0].shape[1:])
    return total, total.long() if y is None else torch.empty_like(total)


@torch.library.custom_op("rc_foreign::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("rc_foreign::strict", mutates_args=())
def strict(x: torch.Tensor) -> torch.Tensor:
    if x[0] < 0:
        raise KeyError("a negative number")
    return x.clone()


strict.register_fake(torch.empty_like)
kept = []


@torch.library.custom_op("rc_foreign::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    kept.append(x)
    return x + 1


keep.register_fake(torch.empty_like)


@torch.library.custom_op("rc_foreign::keep_view", mutates_args=())
def keep_view(x: torch.Tensor) -> torch.Tensor:
    kept.append(x[:1])
    return x + 1


keep_view.register_fake(torch.empty_like)


@torch.library.custom_op("rc_foreign::wrong", mutates_args=())
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x.double()


wrong.register_fake(torch.empty_like)


@pytest.mark.parametrize("shape", [(4, 8), (1, 3), (0, 5), (7,), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float64])
def test_custom_operations_are_part_of_one_program(shape, dtype):
    x = torch.randn(shape).mul(9).to(dtype)
    f = lambda x: scale(x + 1, 2.0, "a b", 3, torch.float32).exp().sum() + scale(-x, float("inf"), "a b", dtype=torch.float32)
    assert same(f, x).count == 1


def test_lists_several_results_and_none():
    def f(x, y):
        a, b = parts([x, y * 2, x], None)
        c, _ = parts([x], y[0])
        return a + 1, b * 2, c

    assert same(f, torch.randn(5, 3), torch.randn(4, 3)).count == 1


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.expand(2, *x.shape), lambda x: x[1:3]])
def test_an_operation_sees_the_strides_that_it_would_see(view):
    seen = []
    library = torch.library.custom_op("rc_foreign::look", lambda x: seen.append((x.shape, x.stride())) or x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    library.register_fake(torch.empty_like)
    x = torch.randn(6, 4)
    f = lambda x: library(view(x + 1)) * 2
    same(f, x)
    dense = view(x + 1).is_contiguous() or view is not None and view(x + 1).t().is_contiguous() if view(x + 1).dim() == 2 else False
    assert seen[0][0] == seen[-1][0] and (not dense or seen[0][1] == seen[-1][1])


def test_an_operation_that_is_defined_once_more():
    """The one before is freed, and others lie where it was."""

    def define(library, name, by):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x + by, "CompositeExplicitAutograd")

    x = torch.randn(5)
    with torch.library._scoped_library("rc_foreign", "FRAGMENT") as others:
        for n in range(3):
            with torch.library._scoped_library("rc_foreign", "FRAGMENT") as library:
                define(library, "again", n)
                torch.testing.assert_close(compiled(lambda x: torch.ops.rc_foreign.again(x) * 2)(x), (x + n) * 2)
            torch._dynamo.reset()
            for k in range(4):
                define(others, f"other_{n}_{k}", 99)


def test_what_an_operation_mutates():
    def inner(x, y):
        z = x * 2
        add_to(z, y)
        return z + 1

    def argument(x, y):
        add_to(x, y + 1)
        return x * 2

    x, y = torch.randn(5), torch.randn(5)
    assert same(inner, x, y).count == 1
    a, b = x.clone(), x.clone()
    torch.testing.assert_close(compiled(argument)(a, y), argument(b, y))
    torch.testing.assert_close(a, b)


def test_sizes_that_change():
    f = lambda x: scale(x * 2, 1.5, "a b", x.shape[0] + 1, torch.float32).sum(1)
    with counted() as programs:
        g = torch.compile(f, backend="rc", fullgraph=True, dynamic=True)
        for n in (3, 5, 8):
            x = torch.randn(n, 4)
            torch.testing.assert_close(g(x), f(x))
    assert programs.count == 1


def test_gradients():
    @torch.library.custom_op("rc_foreign::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    square.register_fake(torch.empty_like)
    square.register_autograd(lambda ctx, grad: scale(grad * ctx.saved_tensors[0], 2.0, "a b", dtype=torch.float32), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    x = torch.randn(4, 3, requires_grad=True)
    f = lambda x: square(x.sin()).sum()
    (found,) = torch.autograd.grad(compiled(f)(x), x)
    (expected,) = torch.autograd.grad(f(x), x)
    torch.testing.assert_close(found, expected)


def test_an_exception_is_that_of_the_call_and_changes_nothing():
    total = torch.zeros(3)

    def f(x):
        total.add_(x)
        return strict(x * 2) + total

    g = compiled(f)
    torch.testing.assert_close(g(torch.ones(3)), torch.full((3,), 3.0))
    before = total.clone()
    with pytest.raises(KeyError, match="a negative number") as e:
        g(-torch.ones(3))
    torch.testing.assert_close(total, before)
    # What its frames hold is there to be looked at.
    frames, x = e.value.__traceback__, None
    while frames is not None:
        x = frames.tb_frame.f_locals.get("x", x) if frames.tb_frame.f_code.co_name == "strict" else x
        frames = frames.tb_next
    g(torch.ones(3))
    assert x is not None
    torch.testing.assert_close(x, torch.full((3,), -2.0))


def test_what_an_operation_keeps_is_its_own():
    kept.clear()
    g = compiled(lambda x: keep(x * 2) + 1)
    g(torch.ones(1000))
    g(torch.zeros(1000))
    assert [x.unique().tolist() for x in kept] == [[2.0], [0.0]]
    kept.clear()
    with pytest.raises(RuntimeError, match="rc_foreign::keep_view.default keeps a view"):
        compiled(lambda x: keep_view(x * 2) + 1)(torch.ones(1000))
    kept.clear()


def test_what_is_not_what_its_fake_says_is_an_error():
    with pytest.raises(RuntimeError, match=r"rc_foreign::wrong.default gives torch.float64 \[3\] on cpu as result 0, where its fake kernel gives torch.float32 \[3\]"):
        compiled(lambda x: wrong(x) + 1)(torch.ones(3))


def test_fallback_calls_from_inside_of_the_program(caplog):
    def f(x):
        y = torch.relu(x) + 1
        return y * torch.linalg.det(y @ y.T), torch.linalg.svdvals(x) * 2

    with caplog.at_level(logging.WARNING, logger="rc.torch"):
        assert same(f, torch.randn(3, 3), options={"fallback": True}).count == 1
    assert "_linalg_det" in caplog.text and "runs in PyTorch" in caplog.text


def test_complex_numbers():
    f = lambda z: torch.linalg.det(z * 2) + z.sum()
    assert same(f, torch.randn(3, 3, dtype=torch.complex64), options={"fallback": True}).count == 1


def test_several_threads():
    import threading

    f = compiled(lambda x: scale(x + 1, 2.0, "a b", 1, torch.float32) + 1)
    f(torch.zeros(64))
    wrong_ones = []

    def work(n):
        for _ in range(50):
            if not torch.equal(f(torch.full((64,), float(n))), torch.full((64,), 2.0 * n + 3)):
                wrong_ones.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong_ones


RANK = """
import os, sys, torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn

rank, world, device = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
dist.init_process_group("nccl" if device == "cuda" else "gloo")
if device == "cuda":
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
torch.manual_seed(0)
group = dist.group.WORLD
first, second = torch.randn(32, 16, device=device), torch.randn(16, 32, device=device)
x = torch.randn(5, 16, device=device)


def parallel(x, a, b):
    "Rows of the first matrix, columns of the second, and one sum over all."
    return collectives.all_reduce(torch.relu(x @ a.t()) @ b.t(), "sum", group) + x


def all_of_them(x):
    y = collectives.all_gather_tensor(x + rank, 0, group)
    z = collectives.reduce_scatter_tensor(y * 2, "sum", 0, group)
    return y.sum(0), collectives.all_reduce(z, "max", group), collectives.broadcast(x * (rank + 1), 0, group)


share = 32 // world
mine = (first[rank * share : (rank + 1) * share].contiguous(), second[:, rank * share : (rank + 1) * share].contiguous())
expected = torch.relu(x @ first.t()) @ second.t() + x
with torch.no_grad():
    compiled = torch.compile(parallel, backend="rc", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, *mine), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.compile(all_of_them, backend="rc", fullgraph=True)(x), all_of_them(x))

# PyTorch's own layers.
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

whole = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
with torch.no_grad():
    expected = whole(x)
mesh = init_device_mesh(torch.device(device).type, (world,))
layers = parallelize_module(whole, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
compiled = torch.compile(layers, backend="rc", fullgraph=True)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)
given = layers(x).square().sum()
given.backward()
wanted = [p.grad.to_local().clone() for p in layers.parameters()]
layers.zero_grad()
compiled(x).square().sum().backward()
for p, w in zip(layers.parameters(), wanted):
    torch.testing.assert_close(p.grad.to_local(), w, rtol=1e-3, atol=1e-3)
dist.destroy_process_group()
print("right", flush=True)
# Gloo's threads may still hold tensors, and to let go of one while the interpreter shuts down aborts the process (pytorch/pytorch#190489).
os._exit(0)
"""


def ranks(tmp_path, device, count=2):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    port = 29500 + os.getpid() % 400
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, str(script), device], env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(count)
    ]
    said = [process.communicate(timeout=560)[0] for process in started]
    for process, text in zip(started, said):
        assert process.returncode == 0 and text.rstrip().endswith("right"), "\n".join(said)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")
def test_collectives_of_two_processes(tmp_path):
    ranks(tmp_path, "cpu")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="takes two GPUs")
def test_collectives_of_two_gpus(tmp_path):
    ranks(tmp_path, "cuda")
