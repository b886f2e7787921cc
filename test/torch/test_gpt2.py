"""GPT-2's logits from rc beside PyTorch's, both against float64; and its training.

usage: test_gpt2.py BIN [--work FOLDER] [--device cpu|cuda] [--only training|tiny|symbolic|fixed] [--long]

BIN holds rc-opt, rc-run, gpt2 and gpt2-train. Four parts:
    training  two layers, 64 wide, in float32: each of 50 losses is within 2e-3 of PyTorch's (bench/gpt2_training.py: GPT-2 small)
    tiny      two layers, 64 wide: interpreted and compiled
    symbolic  GPT-2 small with a symbolic length: one compiled module at 1, 7, 128, 1000 and 1024 tokens
    fixed     GPT-2 small at 1 x 128 and 4 x 1024
the last three in float32 and bfloat16. Bounds: float32's largest error is 1e-4 of the largest logit; bfloat16's errors, the largest
and the root mean square, are 1.5 times those of PyTorch's eager mode in bfloat16. The reference is PyTorch in float64 with
the same weights (for bfloat16, the rounded ones). PyTorch runs on the same device.
"""
import argparse
import copy
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# Threads that wait do not spin: the machine may be shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch

import gpt2_training
from gpt2_model import SMALL, TINY, build, column_major, load_array, save_ids, save_weights, token_ids

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
F32_BOUND = 1e-4
BF16_BOUND = 1.5


class Failed(Exception):
    """A program's message."""


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).splitlines()
        shown = lines if len(lines) <= 20 else lines[:20] + [f"... {len(lines) - 20} more lines"]
        raise Failed(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n" + "\n".join(shown))
    return done.stdout


def errors(logits, reference):
    """The largest error and the root mean square error, over the largest magnitude in the reference."""
    largest = reference.abs().max()
    difference = (logits.double() - reference).div_(largest)
    if not torch.isfinite(difference).all():
        return float("inf"), float("inf")
    return difference.abs().max().item(), difference.square_().mean().sqrt().item()


def judge(dtype, rc, eager):
    if dtype == "f32":
        return rc[0] <= F32_BOUND
    return all(ours <= BF16_BOUND * theirs for ours, theirs in zip(rc, eager))


class Suite:
    def __init__(self, options, work):
        self.bin, self.device, self.long, self.work = options.bin, options.device, options.long, work
        self.failures, self.models = 0, {}

    def model(self, size, dtype):
        """The model in this dtype and in float64 with the same weights, and the file of its weights."""
        if self.models.get("key") != (size, dtype):
            self.models.clear()
            model = build(size).to(DTYPES[dtype])
            path = self.work / f"model-{dtype}.safetensors"
            save_weights(model, path)
            model = column_major(model) if self.device == "cpu" else model.to(self.device)
            self.models.update(key=(size, dtype), found=(model, copy.deepcopy(model).double(), path))
        return self.models["found"]

    def graph(self, size, dtype, *arguments):
        path = self.work / f"gpt2-{dtype}.ir"
        run(self.bin / "gpt2", *size.arguments(), f"--dtype={dtype}", *arguments, "-o", path)
        return path

    def compiled(self, graph):
        """The graph lowered to machine code, once; what this takes is reported."""
        path = graph.with_suffix(".compiled.ir")
        start = time.perf_counter()
        lower = "--lower-cpu" if self.device == "cpu" else "--lower-cuda"
        run(self.bin / "rc-opt", "--fuse", lower, graph, "-o", path)
        print(f"      lowered to machine code in {time.perf_counter() - start:.2f} s, as text", flush=True)
        return path

    def compare(self, size, dtype, module, batch, length, *flags):
        """Runs the module on random ids and compares."""
        eager, exact, weights = self.model(size, dtype)
        tokens = token_ids(size, batch, length)
        ids, out = self.work / "ids.npy", self.work / "logits.npy"
        save_ids(tokens, ids)
        start = time.perf_counter()
        run(self.bin / "rc-run", module, "--input", ids, "--weights", weights, f"--device={self.device}", *flags, "-o", out)
        seconds = time.perf_counter() - start
        with torch.no_grad():
            reference = exact(tokens.to(self.device)).logits
            eager = errors(eager(tokens.to(self.device)).logits, reference)
        rc = errors(load_array(out).to(self.device), reference)
        out.unlink()
        good = judge(dtype, rc, eager)
        self.failures += not good
        print(f"{'ok' if good else 'FAIL':4}  {dtype:4} {batch} x {length:4} {' '.join(flags):12}"
              f"largest error {rc[0]:.2e} (eager {eager[0]:.2e})  rms {rc[1]:.2e} (eager {eager[1]:.2e})  rc-run {seconds:.1f} s", flush=True)

    def attempt(self, part, dtype):
        """A part in one dtype; a program that fails ends it, and the next one goes on."""
        print(f"{part}, {dtype}", flush=True)
        try:
            getattr(self, part)(dtype)
        except Failed as message:
            self.failures += 1
            print(f"FAIL  {message}", flush=True)

    def training(self, dtype):
        """Weights of float32 alone are trained."""
        if dtype != "f32":
            return
        size = dataclasses.replace(TINY, vocab=257)
        plan = gpt2_training.Plan(size, batch=2, length=32, rate=3e-3)
        ours, _ = gpt2_training.rc(plan, self.bin / "gpt2-train", self.work, self.device)
        theirs, _ = gpt2_training.pytorch(plan, self.device)
        difference = gpt2_training.largest_difference(ours, theirs)
        good = difference <= gpt2_training.BOUND and theirs[-1] < theirs[0]
        self.failures += not good
        print(f"{'ok' if good else 'FAIL':4}  {plan.steps} losses, {theirs[0]:.3f} to {theirs[-1]:.3f}: largest difference {difference:.1e}", flush=True)

    def tiny(self, dtype):
        graph = self.graph(TINY, dtype, "--batch=2", "--symbolic=1..32")
        if self.device == "cpu":
            for length in (1, 7, 32):
                self.compare(TINY, dtype, graph, 2, length, "--interpret")
        compiled = self.compiled(graph)
        for length in (1, 7, 32):
            self.compare(TINY, dtype, compiled, 2, length)

    def fits(self, dtype, batch, length):
        """Whether the comparison ends in time here: PyTorch's bfloat16 on the CPU takes minutes for long inputs."""
        fits = self.device == "cuda" or dtype == "f32" and batch == 1 or batch * length <= 128 or self.long
        if not fits:
            print(f"skipped: {batch} x {length} in {dtype} on the CPU (--long runs it)", flush=True)
        return fits

    def symbolic(self, dtype):
        compiled = self.compiled(self.graph(SMALL, dtype, "--symbolic=1..1024"))
        for length in (1, 7, 128, 1000, 1024):
            if self.fits(dtype, 1, length):
                self.compare(SMALL, dtype, compiled, 1, length)

    def fixed(self, dtype):
        for batch, length in ((1, 128), (4, 1024)):
            if not self.fits(dtype, batch, length):
                continue
            compiled = self.compiled(self.graph(SMALL, dtype, f"--batch={batch}", f"--length={length}"))
            self.compare(SMALL, dtype, compiled, batch, length)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bin", type=pathlib.Path, help="the folder with rc-opt, rc-run and gpt2")
    p.add_argument("--work", type=pathlib.Path, help="where to put weights and arrays (1.5 GB), removed at the end")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--only", choices=["training", "tiny", "symbolic", "fixed"])
    p.add_argument("--dtype", choices=list(DTYPES))
    p.add_argument("--long", action="store_true", help="also what takes minutes on a CPU")
    options = p.parse_args()
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        suite = Suite(options, pathlib.Path(work))
        for part in [options.only] if options.only else ["training", "tiny", "symbolic", "fixed"]:
            for dtype in [options.dtype] if options.dtype else DTYPES:
                suite.attempt(part, dtype)
    if suite.failures:
        sys.exit(f"{suite.failures} comparisons failed")
    print("all comparisons hold")


if __name__ == "__main__":
    main()
