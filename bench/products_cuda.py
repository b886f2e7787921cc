"""Products and attention as rc generates them, beside PyTorch's libraries, in one run on one GPU.

usage: products_cuda.py BIN [--only NAME,…] [--rounds N]

BIN holds rc-run. Every result of rc is compared with float64 before anything is timed: memory that a kernel writes is
filled with NaN first. A figure is the median over rounds, in which rc and its peers take turns; the ratio is to the best peer. Peers:
cuBLAS for products (followed by PyTorch's GELU where rc has it in the epilogue), cuDNN and FlashAttention for attention.
"""
import argparse
import math
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memory_cuda import load, microseconds, save
from turns import medians


def tensor(*shape):
    return f"tensor<{'x'.join(map(str, shape))}xbf16>"


class Product:
    """a b^T, or with `gelu` gelu(a b^T + bias)."""

    def __init__(self, m, n, k, batch=None, gelu=False):
        self.name = f"product {batch or 1}x{m}x{n}x{k}" + (" bias gelu" if gelu else "")
        self.work, self.gelu, self.peers = 2 * (batch or 1) * m * n * k, gelu, {}
        lead = [batch] if batch else []
        shapes = [[*lead, m, k], [*lead, n, k], *([[n]] if gelu else [])]
        self.inputs = [torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in shapes]
        i = len(lead)
        dims = f"lhs_batch = {list(range(i))}, rhs_batch = {list(range(i))}, lhs_contract = [{i + 1}], rhs_contract = [{i + 1}]"
        args = ", ".join(f"%{name}: {tensor(*s)}" for name, s in zip("abc", shapes))
        out = tensor(*lead, m, n)
        tail = "  func.return %d\n"
        if gelu:
            tail = f"""  %e = core.broadcast %c {{dims = [{i + 1}]}} : {out}
  %s = core.add %d, %e : {out}
  %g = tensor.gelu %s {{approximate = tanh}} : {out}
  func.return %g
"""
        self.text = f"func.func @f({args}) -> {out} {{\n  %d = core.dot %a, %b {{{dims}}} : {out}\n{tail}}}\n"
        a, b = self.inputs[:2]
        self.peers["cuBLAS"] = lambda: self.epilogue(a @ b.mT)

    def epilogue(self, product):
        return F.gelu(product + self.inputs[2], approximate="tanh") if self.gelu else product

    def exact(self):
        """The result in float64, rounded where the graph rounds, and what another sum may differ by."""
        a, b = (x.double() for x in self.inputs[:2])
        # Matrix units cut sums off after every 16 terms; partial sums are about as large as |a| |b| / sqrt(k).
        k = a.shape[-1]
        exact, slack = a @ b.mT, a.norm(dim=-1)[..., None] * b.norm(dim=-1)[..., None, :] * (math.sqrt(k) / 16 + 4) * 2.0**-23
        if not self.gelu:
            return exact, slack
        # Sums are rounded to bf16 before the bias and before GELU, whose slope is at most 1.13.
        total = exact + self.inputs[2].double()
        return F.gelu(total, approximate="tanh"), 1.2 * (slack + (exact.abs() + total.abs()) * 2.0**-8)


class Attention:
    def __init__(self, batch, heads, length, size, causal):
        shape = (batch, heads, length, size)
        self.name = f"attention {'causal' if causal else 'full'} {'x'.join(map(str, shape))}"
        self.work = 4 * batch * heads * length * length * size // (2 if causal else 1)
        self.inputs = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.causal, ty = causal, tensor(*shape)
        flag = " {causal = true}" if causal else ""
        self.text = f"""func.func @f(%q: {ty}, %k: {ty}, %v: {ty}) -> {ty} {{
  %o = tensor.sdpa %q, %k, %v{flag} : {ty}
  func.return %o
}}
"""
        self.peers = {name: self.library(backend) for name, backend in
                      [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]}

    def library(self, backend):
        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*self.inputs, is_causal=self.causal)
        return run

    def exact(self):
        """One head after another. Weights are rounded to bf16: each result may be off by as much of the mean of |v|."""
        results, slacks = [], []
        for q, k, v in zip(*(x.double().flatten(0, 1) for x in self.inputs)):
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            if self.causal:
                scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            weights = scores.softmax(-1)
            results.append(weights @ v)
            slacks.append(weights @ v.abs() * 2.0**-8)
        shape = self.inputs[0].shape
        return torch.stack(results).view(shape), torch.stack(slacks).view(shape)


class Rc:
    def __init__(self, options, work, case):
        self.case, self.graph = case, work / "case.ir"
        self.graph.write_text(case.text)
        self.command = [str(options.bin / "rc-run"), str(self.graph), "--device=cuda"]
        self.files, self.out = [work / f"{i}.npy" for i in range(len(case.inputs))], work / "out.npy"

    def run(self, *flags):
        done = subprocess.run([*self.command, *flags], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("rc-run failed:\n" + "\n".join(done.stderr.splitlines()[:12]))
        return done.stdout + done.stderr

    def check(self):
        """The largest error, as a part of what is allowed."""
        for path, value in zip(self.files, self.case.inputs):
            save(path, value)
        self.run(f"--output={self.out}", *[f"--input={path}" for path in self.files])
        exact, slack = self.case.exact()
        allowed = exact.abs() * 2.0**-8 + slack + 1e-30
        got = load(self.out).double().reshape(exact.shape)
        worst = ((got - exact).abs() / allowed).nan_to_num(nan=math.inf).max().item()
        if not worst <= 1.0:
            raise RuntimeError(f"{self.case.name} is wrong: {worst:.3g} of what is allowed")
        return worst

    def microseconds(self):
        return 1e3 * float(re.search(r"median of \d+ runs: ([\d.]+) ms", self.run("--bench=50"))[1])


def random_shapes(count):
    pick = random.Random(7)
    size = lambda low, high: round(math.exp(pick.uniform(math.log(low), math.log(high))))
    return [(size(16, 8192), size(16, 8192), size(16, 8192)) for _ in range(count)]


def cases():
    for m, n, k in [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 11008, 4096)]:
        yield "square", lambda m=m, n=n, k=k: Product(m, n, k)
        yield "gelu", lambda m=m, n=n, k=k: Product(m, n, k, gelu=True)
    for m, n, k in [(1000, 1000, 1000), (127, 129, 131), (4096, 50257, 768), *random_shapes(20)]:
        yield "odd", lambda m=m, n=n, k=k: Product(m, n, k)
    yield "odd", lambda: Product(197, 1024, 768, batch=16)
    yield "attention", lambda: Attention(4, 16, 4096, 128, True)
    yield "attention", lambda: Attention(16, 12, 512, 64, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--only", type=lambda text: text.split(","), help="square, gelu, odd, attention")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    print(f"{'':40}{'rc µs':>9}{'TFLOP/s':>9}   peers, µs")
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for group, make in cases():
            if options.only and group not in options.only:
                continue
            case = make()
            rc = Rc(options, pathlib.Path(folder), case)
            error = rc.check()
            rows = {"rc": rc.microseconds, **{who: lambda f=f: microseconds(f) for who, f in case.peers.items()}}
            us = medians(rows, options.rounds)
            best = min(time for who, time in us.items() if who != "rc")
            ratios.setdefault(group, []).append(best / us["rc"])
            peers = "   ".join(f"{who} {time:.1f}" for who, time in us.items() if who != "rc")
            print(f"{case.name:40}{us['rc']:9.1f}{case.work / us['rc'] / 1e6:9.1f}   {peers}   rc is {best / us['rc']:.2f} of the best, error {error:.2f}", flush=True)
            del case, rc, rows
    for group, all_ratios in ratios.items():
        print(f"{group}: geometric mean {statistics.geometric_mean(all_ratios):.2f} of the best peer")


if __name__ == "__main__":
    main()
