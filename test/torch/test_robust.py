"""Threads, forks, interruptions, copies; tensors that rc cannot take. Correct, or an error that names the line; never a dead process."""

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed


def compiled(f, **kwargs):
    return torch.compile(f, backend="rc", fullgraph=True, **kwargs)


def in_child(work, seconds=60):
    """Whether `work()` gives True in a forked process, which must end by itself."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork_after_a_parallel_run():
    f = compiled(lambda x: (x.sin() + x.cos()).sum(1))
    x = torch.randn(512, 1024)
    expected = f(x)
    for _ in range(20):
        f(x)
    assert in_child(lambda: torch.equal(f(x), expected)) == 0
    torch.testing.assert_close(f(x), expected)


def test_compile_in_a_forked_process():
    f = compiled(lambda x: x @ x.T)
    f(torch.randn(70, 30))
    x = torch.randn(64, 64)
    g = lambda x: nn.functional.layer_norm(x @ x.T, (64,)).softmax(-1) * x.sum(0)
    expected = g(x)  # here: PyTorch's own threads do not survive a fork
    assert in_child(lambda: bool((compiled(g)(x) - expected).abs().max() < 1e-4)) == 0


def test_two_threads_compile_and_run_at_once():
    def make(k):
        def f(x):
            return (x * k + 1).softmax(-1) @ x.T

        return f

    functions = [make(k) for k in range(6)]
    x = torch.randn(33, 17)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda f: [compiled(f)(x) for _ in range(3)], functions))
    for f, found in zip(functions, results):
        for y in found:
            torch.testing.assert_close(y, f(x))


def test_one_program_on_many_threads_with_many_sizes():
    f = compiled(lambda x: (x @ x.T).relu().sum(0), dynamic=True)
    xs = [torch.randn(n, 5) for n in (3, 64, 2, 17, 128, 33)] * 6
    f(xs[0])
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(xs, pool.map(f, xs)):
            torch.testing.assert_close(y, (x @ x.T).relu().sum(0))


def test_interrupted_compile():
    """KeyboardInterrupt while rc compiles: it is raised, and the next call compiles."""
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(24 + i, 25 + i), nn.GELU(), nn.LayerNorm(25 + i)) for i in range(12)])
    x = torch.randn(3, 24)
    f = compiled(layers)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with torch.no_grad():
            for delay in (0.05, 0.3, 0.6, 1.0):
                timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
                timer.start()
                try:
                    torch._dynamo.reset()
                    f(x)
                    timer.join()
                except KeyboardInterrupt:
                    pass
                finally:
                    timer.cancel()
            torch._dynamo.reset()
            torch.testing.assert_close(f(x), layers(x))
    finally:
        signal.signal(signal.SIGINT, before)


def test_models_are_copied_and_pickled():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(2, 4)
    wrapped = compiled(model)
    with torch.no_grad():
        wrapped(x)
        other = copy.deepcopy(wrapped)
        other._orig_mod[0].weight.mul_(3)
        torch.testing.assert_close(wrapped(x), model(x))
        torch.testing.assert_close(other(x), other._orig_mod(x))
        again = pickle.loads(pickle.dumps(model))
        torch.testing.assert_close(compiled(again)(x), model(x))
        file = io.BytesIO()
        torch.save(wrapped.state_dict(), file)
        file.seek(0)
        fresh = compiled(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        fresh.load_state_dict(torch.load(file))
        torch.testing.assert_close(fresh(x), model(x))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty_tensors(shape):
    f = lambda x: (x + 1, x.sum(), x.flatten(), torch.cat([x, x]), x.reshape(-1).softmax(0), x.transpose(0, -1) * 2)
    x = torch.randn(shape)
    for a, b in zip(compiled(f)(x), f(x)):
        torch.testing.assert_close(a, b)


def test_products_over_nothing():
    f = lambda a, b: (a @ b, (a @ b).sum(), a.mean(0))
    a, b = torch.randn(3, 0), torch.randn(0, 4)
    for x, y in zip(compiled(f)(a, b), f(a, b)):
        torch.testing.assert_close(x, y)


def test_more_elements_than_31_bits_count():
    x = torch.empty(2**31 + 7, dtype=torch.int8)  # memory that nobody touches is not there
    x[-5:] = torch.arange(5)
    f = lambda x: x[-5:] + 1
    try:
        found = compiled(f)(x)
    except BackendCompilerFailed as e:
        assert "2147483" in str(e) or "not supported" in str(e), e
    else:
        torch.testing.assert_close(found, f(x))


def refused(f, *args, says, line=True):
    with pytest.raises(BackendCompilerFailed) as e:
        compiled(f)(*args)
    text = str(e.value)
    assert says in text, text
    assert not line or f"{__file__}:" in text, text


def test_types_and_layouts_that_are_refused():
    refused(lambda x: x.cumprod(0), torch.randn(3, dtype=torch.complex64), says="complex numbers")
    refused(lambda x: x.to(torch.float8_e5m2fnuz).float(), torch.randn(3), says="float8_e5m2fnuz")
    refused(lambda x, y: x + y.to(torch.device("meta")).cpu(), torch.randn(3), torch.randn(3), says="meta")


def run_alone(code):
    """What a process says that runs this code; it must not be killed by a signal."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode >= 0, done.stderr[-2000:]
    return done


@pytest.mark.parametrize(
    "x",
    [
        "torch.randn(3, 3).to_sparse()",
        "torch.randn(3, 3).to_sparse_csr()",
        "torch.quantize_per_tensor(torch.randn(3, 3), 0.1, 0, torch.qint8)",
        "torch.randn(3, 3).to_mkldnn()",
        "torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])",
        "torch.randn(3, 3, device='meta')",
        "torch.randn(3, 3, dtype=torch.complex128).conj()",
        "torch._neg_view(torch.randn(3, 3))",
    ],
)
def test_strange_tensors_end_no_process(x):
    code = f"""
import torch
x = {x}
f = lambda x: x + x
try:
    y = torch.compile(f, backend="rc")(x)
    assert type(y) is type(f(x)) and (y.is_meta or str(y) == str(f(x))), (y, f(x))
    print("right")
except Exception as e:
    print("refused:", type(e).__name__, str(e)[:300])
"""
    done = run_alone(code)
    assert done.returncode == 0 and ("right" in done.stdout or "refused" in done.stdout), done.stdout + done.stderr
    assert "AssertionError" not in done.stdout, done.stdout


def test_compiles_after_an_error():
    with pytest.raises(BackendCompilerFailed):
        compiled(lambda x: torch.linalg.svdvals(x))(torch.randn(3, 3))
    x = torch.randn(3)
    torch.testing.assert_close(compiled(lambda x: x + 1)(x), x + 1)
