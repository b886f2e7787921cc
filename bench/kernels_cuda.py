"""The kernels written by hand (test/kernels; for generated ones see memory_cuda.py) beside PyTorch's libraries, in one run on one GPU.

usage: kernels_cuda.py BIN [--rounds N]

BIN holds rc-kernel-bench, which checks each kernel against float64 on poisoned outputs before it times it. rc and the
peer take turns in each round; a figure is the median over all rounds of medians over launches. Peers: cuBLAS for
the product, cuDNN and FlashAttention for attention, PyTorch's softmax, and a copy, whose bandwidth is the floor of what moves memory.
"""
import argparse
import pathlib
import re
import statistics
import subprocess

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memory_cuda import microseconds

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "test" / "kernels"


def rc_microseconds(options, kernel, size):
    command = [options.bin / "rc-kernel-bench", KERNELS / f"{kernel}.ir", "--size", ",".join(map(str, size))]
    run = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"([\d.]+) µs", run.stdout)
    if run.returncode or not found:
        raise SystemExit(f"{kernel} {size} failed:\n{run.stdout}{run.stderr}")
    return float(found.group(1))


def row(options, name, kernel, size, peers, unit, work):
    """Prints one line; `work` is what `unit` counts, per microsecond."""
    rounds = {who: [] for who in ["rc", *peers]}
    for _ in range(options.rounds):
        rounds["rc"].append(rc_microseconds(options, kernel, size))
        for who, f in peers.items():
            rounds[who].append(microseconds(f))
    rate = {who: work / statistics.median(times) for who, times in rounds.items()}
    cells = [f"{who} {r:8.1f}" + ("" if who == "rc" else f" (rc is {rate['rc'] / r:.2f} of it)") for who, r in rate.items()]
    print(f"{name:34} {unit}: " + "   ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    device, dtype = "cuda", torch.bfloat16
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for m, n, k in [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 11008, 4096), (1000, 1000, 1000)]:
        a = torch.randn(m, k, device=device, dtype=dtype)
        b = torch.randn(n, k, device=device, dtype=dtype)
        peers = {"cuBLAS": lambda: a @ b.t()}
        row(options, f"product bf16 {m}x{n}x{k}", "matmul-hopper", (m, n, k), peers, "TFLOP/s", 2 * m * n * k / 1e6)
    batch, heads, length, size = 4, 16, 4096, 128
    q, k, v = (torch.randn(batch, heads, length, size, device=device, dtype=dtype) for _ in range(3))

    def attention(backend):
        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return run

    peers = {"cuDNN": attention(SDPBackend.CUDNN_ATTENTION), "flash": attention(SDPBackend.FLASH_ATTENTION)}
    flops = 2 * batch * heads * length * length * size
    row(options, "causal attention 4x16x4096x128", "attention-hopper", (batch * heads, length, size), peers, "TFLOP/s", flops / 1e6)
    x = torch.randn(16384, 8192, device=device, dtype=dtype)
    peers = {"copy": lambda: x.clone(), "PyTorch": lambda: torch.softmax(x, -1)}
    row(options, "softmax bf16 16384x8192", "softmax-cuda", (16384, 8192), peers, "GB/s", 2 * x.nbytes / 1e3)


if __name__ == "__main__":
    main()
