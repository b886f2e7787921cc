"""Kernels that move memory, as rc generates them from bench/cases, beside PyTorch, in one run on one GPU.

usage: memory_cuda.py BIN [--only softmax,transpose] [--rounds N] [--odd]

BIN holds rc-run. Every result of rc is compared with float64 before anything is timed: memory that a kernel writes is filled
with NaN first. A figure is the median over rounds, in which rc and its peers take turns; bytes are counted once, what is read and
what is written, and the ratio is to the bandwidth of a copy of the same tensor in the same run. `--odd` checks small and odd sizes, and times nothing.
"""
import argparse
import dataclasses
import pathlib
import re
import statistics
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

from turns import medians

CASES = pathlib.Path(__file__).resolve().parent / "cases"
ROWS, COLUMNS = 16384, 8192
ODD = [(1, 1), (1, 8192), (7, 13), (129, 127), (33, 768), (1000, 1000), (257, 5003), (40, 50257), (4099, 64), (8192, 1), (16384, 136)]
BF16, EPS = 2.0**-8, 2.0**-22


@dataclasses.dataclass
class Case:
    """A kernel: what PyTorch calls it, its inputs, and how far from float64 a right result may be."""
    run: object
    inputs: object
    # What float64 gives, with the roundings in between that the types ask for.
    exact: object
    # From inputs and exact result: how far a result may be off, besides its own rounding.
    slack: object = lambda inputs, exact: 0.0


def matrix(m, n):
    return torch.randn(m, n, device="cuda", dtype=torch.bfloat16)


def row(n):
    return torch.randn(n, device="cuda", dtype=torch.bfloat16)


def rms_norm(h, w):
    return F.rms_norm(h, h.shape[-1:], w, 1e-5)


def add_rms_norm(x, r, w):
    h = x + r
    return h, rms_norm(h, w)


def sum_slack(dim):
    """Rounding in float32: of sums, in any order."""
    return lambda inputs, exact: inputs[0].double().abs().sum(dim) * EPS


def rounded(x):
    return x.bfloat16().double()


def exact_gelu(x, b, r):
    z = rounded(x.double() + b.double())
    return F.gelu(z, approximate="tanh") + r.double()


def exact_add_rms(x, r, w):
    h = rounded(x.double() + r.double())
    return h, rms_norm(h, w.double())


def targets(m, n):
    return torch.randint(0, n, (m,), device="cuda")


def gelu_slack(inputs, exact):
    """GELU is rounded before the sum."""
    return (exact - inputs[2].double()).abs() * BF16


LAYER_SLACK = 2.0**-16
CASE = {
    "softmax": Case(lambda x: torch.softmax(x, -1), lambda m, n: [matrix(m, n)], lambda x: torch.softmax(x.double(), -1)),
    "layer_norm": Case(
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        lambda m, n: [matrix(m, n), row(n), row(n)],
        lambda x, w, b: F.layer_norm(x.double(), x.shape[-1:], w.double(), b.double(), 1e-5),
        lambda inputs, exact: LAYER_SLACK * (1 + inputs[1].double().abs())),
    "add_rms_norm": Case(add_rms_norm, lambda m, n: [matrix(m, n), matrix(m, n), row(n)], exact_add_rms, lambda inputs, exact: LAYER_SLACK),
    "bias_gelu_add": Case(
        lambda x, b, r: F.gelu(x + b, approximate="tanh") + r,
        lambda m, n: [matrix(m, n), row(n), matrix(m, n)], exact_gelu, gelu_slack),
    "row_sum": Case(lambda x: x.sum(1), lambda m, n: [matrix(m, n)], lambda x: x.double().sum(1), sum_slack(1)),
    "column_sum": Case(lambda x: x.sum(0), lambda m, n: [matrix(m, n)], lambda x: x.double().sum(0), sum_slack(0)),
    "transpose": Case(lambda x: x.t().contiguous(), lambda m, n: [matrix(m, n)], lambda x: x.t().double()),
    "cross_entropy": Case(
        F.cross_entropy, lambda m, n: [matrix(m, n), targets(m, n)], lambda x, t: F.cross_entropy(x.double(), t),
        lambda inputs, exact: exact.abs() * 1e-5 + 1e-6),
}


def microseconds(f, launches=30):
    for _ in range(5):
        f()
    times = []
    for _ in range(launches):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def save(path, tensor):
    data = tensor.cpu()
    np.save(path, data.view(torch.int16).numpy().view("V2") if data.dtype == torch.bfloat16 else data.numpy())


def load(path):
    array = np.load(path)
    return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16).reshape(array.shape).cuda()


class Kernel:
    """rc's program for a case at a size, with its inputs on disk."""

    def __init__(self, options, work, name, m, n):
        self.bin, self.name, self.m, self.n, self.case = options.bin, name, m, n, CASE[name]
        self.graph = work / f"{name}.ir"
        text = (CASES / f"{name}.ir").read_text()
        sizes = {str(ROWS): str(m), str(COLUMNS): str(n)}
        self.graph.write_text(re.sub("|".join(sizes), lambda found: sizes[found[0]], text))
        self.inputs = self.case.inputs(m, n)
        self.files = [work / f"{name}.{i}.npy" for i in range(len(self.inputs))]
        for path, tensor in zip(self.files, self.inputs):
            save(path, tensor)
        self.out = [work / f"{name}.out.{i}.npy" for i in range(2 if name == "add_rms_norm" else 1)]

    def run(self, *flags):
        command = [self.bin / "rc-run", self.graph, "--device=cuda", *flags]
        command += [f"--input={path}" for path in self.files]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("rc-run failed:\n" + "\n".join(done.stderr.splitlines()[:12]))
        return done.stdout + done.stderr

    def check(self):
        """The largest error, as a part of what is allowed."""
        for path in self.out:
            path.unlink(missing_ok=True)
        self.run(*[f"--output={path}" for path in self.out])
        exact = self.case.exact(*self.inputs)
        exact = exact if isinstance(exact, tuple) else (exact,)
        worst = 0.0
        for path, want in zip(self.out, exact):
            got = load(path).double().reshape(want.shape)
            allowed = want.abs() * BF16 + self.case.slack(self.inputs, want) + 1e-30
            error = ((got - want).abs() / allowed).nan_to_num(nan=float("inf")).max().item()
            worst = max(worst, error)
        if not worst <= 1.0:
            raise RuntimeError(f"{self.name} {self.m}x{self.n} is wrong: {worst:.3g} of what is allowed")
        return worst

    def microseconds(self):
        return 1e3 * float(re.search(r"median of \d+ runs: ([\d.]+) ms", self.run("--bench=50"))[1])

    def bytes(self):
        exact = self.case.run(*self.inputs)
        return sum(t.nbytes for t in [*self.inputs, *(exact if isinstance(exact, tuple) else (exact,))])


def odd(options, work):
    for name in options.only:
        errors = [Kernel(options, work, name, m, n).check() for m, n in ODD]
        print(f"{name:16} right at {len(ODD)} odd sizes; largest error {max(errors):.2f} of what is allowed", flush=True)


def copy_rate(rounds):
    x, y = matrix(ROWS, COLUMNS), matrix(ROWS, COLUMNS)
    return 2 * x.nbytes / statistics.median(microseconds(lambda: y.copy_(x)) for _ in range(rounds)) / 1e6


def timed(options, work):
    copy = copy_rate(options.rounds)
    print(f"copy of {ROWS}x{COLUMNS} bf16: {copy:.2f} TB/s")
    print(f"{'':16}{'rc µs':>9}{'TB/s':>7}{'of copy':>9}{'eager':>9}{'compile':>9}{'rc/best':>9}{'error':>8}")
    for name in options.only:
        kernel = Kernel(options, work, name, ROWS, COLUMNS)
        error = kernel.check()
        rows = {"rc": kernel.microseconds}
        compiled = torch.compile(kernel.case.run)
        rows["eager"] = lambda: microseconds(lambda: kernel.case.run(*kernel.inputs))
        rows["compile"] = lambda: microseconds(lambda: compiled(*kernel.inputs))
        us = medians(rows, options.rounds)
        rate = kernel.bytes() / us["rc"] / 1e6
        best = min(us["eager"], us["compile"])
        print(f"{name:16}{us['rc']:9.1f}{rate:7.2f}{rate / copy:9.2f}{us['eager']:9.1f}{us['compile']:9.1f}{us['rc'] / best:9.2f}{error:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASE))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--odd", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    with tempfile.TemporaryDirectory() as work:
        (odd if options.odd else timed)(options, pathlib.Path(work))


if __name__ == "__main__":
    main()
