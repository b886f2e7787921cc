"""Kernels on the CPU as rc generates them, beside PyTorch, in one run on one machine.

usage: kernels_cpu.py BIN [--threads 2] [--rounds N]

BIN holds rc-run, and rc-opt and rc-tune, which measure the machine; the picture lies in BIN/../bench. Every result of rc is compared
with float64 before anything is timed. A figure is the median over rounds, in which rc and its peers take turns. Peers: PyTorch's own product (MKL or OpenBLAS) and attention, torch.compile, and ONNX Runtime
where it is installed (bench/run.sh does that).
"""
import argparse
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

import onnx_graphs
from figures import Figures
from limits import Limits
from turns import medians

EPS = 2.0**-24


def tensor(shape):
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


class Product:
    def __init__(self, m, n, k):
        self.name, self.work, self.bytes = f"product {m}x{n}x{k}", 2 * m * n * k, 4 * (m * k + k * n + m * n)
        self.inputs = [torch.randn(m, k), torch.randn(k, n)]
        out = tensor((m, n))
        self.text = f"""func.func @f(%a: {tensor((m, k))}, %b: {tensor((k, n))}) -> {out} {{
  %c = core.dot %a, %b {{lhs_contract = [1], rhs_contract = [0]}} : {out}
  func.return %c
}}
"""
        self.peers = {"PyTorch": lambda: self.inputs[0] @ self.inputs[1]}
        self.onnx = onnx_graphs.product

    def exact(self):
        a, b = (x.double() for x in self.inputs)
        return a @ b, (a.abs() @ b.abs()) * EPS * a.shape[1]


class Chain:
    """softmax(tanh-GELU(x y + 1.5)): what moves memory and takes exponentials."""

    def __init__(self, m, n):
        self.name, self.work, self.bytes, ty = f"gelu softmax {m}x{n}", 0, 12 * m * n, tensor((m, n))
        self.inputs = [torch.randn(m, n), torch.randn(m, n)]
        self.text = f"""func.func @f(%x: {ty}, %y: {ty}) -> {ty} {{
  %p = core.mul %x, %y : {ty}
  %c = core.constant {{value = dense<1.5> : {ty}}} : {ty}
  %s = core.add %p, %c : {ty}
  %g = tensor.gelu %s {{approximate = tanh}} : {ty}
  %r = tensor.softmax %g {{dim = 1}} : {ty}
  func.return %r
}}
"""
        compiled = torch.compile(self.step)
        self.peers = {"eager": lambda: self.step(*self.inputs), "compile": lambda: compiled(*self.inputs)}
        self.onnx = onnx_graphs.chain

    @staticmethod
    def step(x, y):
        return torch.softmax(F.gelu(x * y + 1.5, approximate="tanh"), -1)

    def exact(self):
        exact = self.step(*(x.double() for x in self.inputs))
        return exact, exact * 64 * EPS


class Attention:
    def __init__(self, heads, length, size):
        shape = (1, heads, length, size)
        self.name, self.work, self.bytes = f"causal attention {heads}x{length}x{size}", 2 * heads * length * length * size, 16 * heads * length * size
        self.inputs, ty = [torch.randn(shape) for _ in range(3)], tensor(shape)
        self.text = f"""func.func @f(%q: {ty}, %k: {ty}, %v: {ty}) -> {ty} {{
  %o = tensor.sdpa %q, %k, %v {{causal = true}} : {ty}
  func.return %o
}}
"""
        self.peers = {"PyTorch": lambda: F.scaled_dot_product_attention(*self.inputs, is_causal=True)}
        self.onnx = onnx_graphs.attention

    def exact(self):
        q, k, v = (x.double() for x in self.inputs)
        exact = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return exact, F.scaled_dot_product_attention(q, k, v.abs(), is_causal=True) * 128 * EPS


class Rc:
    def __init__(self, options, work, case):
        self.case, self.graph = case, work / "case.ir"
        self.graph.write_text(case.text)
        self.command = [str(options.bin / "rc-run"), str(self.graph)]
        self.files, self.out = [work / f"{i}.npy" for i in range(len(case.inputs))], work / "out.npy"

    def run(self, *flags):
        done = subprocess.run([*self.command, *flags], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("rc-run failed:\n" + "\n".join(done.stderr.splitlines()[:12]))
        return done.stdout + done.stderr

    def check(self):
        for path, value in zip(self.files, self.case.inputs):
            np.save(path, value.numpy())
        self.run(f"--output={self.out}", *[f"--input={path}" for path in self.files])
        exact, slack = self.case.exact()
        got = torch.from_numpy(np.load(self.out)).double()
        worst = ((got - exact).abs() / (exact.abs() * EPS + slack + 1e-300)).nan_to_num(nan=math.inf).max().item()
        if not worst <= 1.0:
            raise RuntimeError(f"{self.case.name} is wrong: {worst:.3g} of what is allowed")

    def milliseconds(self):
        return float(re.search(r"median of \d+ runs: ([\d.]+) ms", self.run("--bench=20"))[1])


def milliseconds(f, runs=20):
    for _ in range(3):
        f()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        f()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def cases():
    pick = random.Random(7)
    size = lambda: round(math.exp(pick.uniform(math.log(16), math.log(2048))))
    shapes = [(512,) * 3, (1024,) * 3, (2048,) * 3, (128, 3072, 768), *[(size(), size(), size()) for _ in range(20)]]
    for shape in shapes:
        yield "product", lambda shape=shape: Product(*shape)
    yield "chain", lambda: Chain(4096, 1024)
    yield "attention", lambda: Attention(12, 512, 64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), help="product, chain, attention")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    limits = Limits(options.bin)
    table = Figures(f"kernels, f32, {options.threads} cores, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {onnx_graphs.version()}: {limits}")
    with tempfile.TemporaryDirectory() as folder:
        for group, make in cases():
            if options.only and group not in options.only:
                continue
            case = make()
            rc = Rc(options, pathlib.Path(folder), case)
            rc.check()
            peers = dict(case.peers)
            if onnx_graphs.onnx:
                peers["ONNX"] = case.onnx(*(x.numpy() for x in case.inputs), options.threads)
            rows = {"rc": rc.milliseconds, **{who: lambda f=f: milliseconds(f) for who, f in peers.items()}}
            ms = medians(rows, options.rounds)
            rate = f"{case.work / ms['rc'] / 1e6:.0f} GFLOP/s" if case.work else ""
            table.add(group, case.name, ms, limits.milliseconds(case.work, case.bytes), rate)
    table.close(options.bin.parent / "bench" / "kernels_cpu.svg")


if __name__ == "__main__":
    main()
