"""Models through torch.compile on the CPU: rc beside PyTorch eager, Inductor (as it comes, and frozen) and ONNX Runtime, in one run on one machine.

usage: models_cpu.py BIN [--only bert,mlp] [--peers eager,freezing,ONNX] [--threads 2] [--rounds N]

BIN holds rc-opt and rc-tune, which measure the machine; the picture lies in BIN/../bench. Each model and way to run it is a process of its own in each round; a figure is the
median over the rounds. The limit is the model's multiply-adds at the rate of registers alone, or its parameters and arguments at the
memory's bandwidth, whichever takes longer. First calls are those of the first round, from a cold cache; memory is the process's peak.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import onnx_graphs
import zoo
from figures import Figures
from limits import Limits

PEERS = ["eager", "default", "freezing", "ONNX"]


class Chain(nn.Module):
    def forward(self, x, y):
        return torch.softmax(F.gelu(x * y + 1.5, approximate="tanh"), -1)


def mlp(size):
    return nn.Sequential(nn.Linear(768, 3072), nn.GELU(approximate="tanh"), nn.Linear(3072, 768)), (torch.randn(size.tokens, 768),), {}


def pointwise(size):
    return Chain(), (torch.randn(4096, 1024), torch.randn(4096, 1024)), {}


SIZE = zoo.Size(images=1, sequences=1, tokens=128, layers=0)
MODELS = {name: zoo.MODELS[name].make for name in ("resnet50", "bert", "gpt2")}
MODELS |= {"vit": zoo.timm_model("vit_base_patch16_224"), "mlp": mlp, "pointwise": pointwise}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bin", type=pathlib.Path)
    p.add_argument("--only", type=lambda text: text.split(","), default=list(MODELS), help="models' names, with commas between them")
    p.add_argument("--peers", type=lambda text: text.split(","), default=PEERS, help="with commas between them")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--here", nargs=2, help=argparse.SUPPRESS)  # the one model and mode that this process measures
    return p.parse_args()


def compiled(mode: str, model, args, threads: int):
    """A function that runs the model in one way."""
    if mode == "ONNX":
        from onnx_graphs import onnxruntime

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            torch.onnx.export(model, args, path, dynamo=True, verbose=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args)}
        return lambda: session.run(None, feed)
    ways = {"rc": dict(backend="rc"), "default": {}, "freezing": dict(options={"freezing": True})}
    run = torch.compile(model, **ways[mode]) if mode in ways else model
    return lambda: run(*args)


def work(model, args) -> tuple[float, float]:
    """Operations of products and convolutions, and bytes of parameters, arguments and results."""
    with FlopCounterMode(display=False) as counter:
        results = torch.utils._pytree.tree_leaves(model(*args))
    tensors = [*model.parameters(), *args, *(r for r in results if isinstance(r, torch.Tensor))]
    return counter.get_total_flops(), sum(t.nbytes for t in {id(t): t for t in tensors}.values())


def measure(name: str, mode: str, threads: int) -> dict:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, args, _ = MODELS[name](SIZE)
    model.eval()
    with torch.no_grad():
        start = time.perf_counter()
        step = compiled(mode, model, args, threads)
        step()
        first = time.perf_counter() - start
        for _ in range(3):
            step()
        times = []
        for _ in range(20):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        operations, nbytes = work(model, args) if mode == "rc" else (None, None)
    return dict(ms=statistics.median(times), first=first, mib=mib, operations=operations, bytes=nbytes)


def in_process(name: str, mode: str, options) -> dict:
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "RC_CACHE": "off"}
        command = [sys.executable, __file__, str(options.bin), "--threads", str(options.threads), "--here", name, mode]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{name}, {mode}: exit status {done.returncode}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    if options.here:
        print(json.dumps(measure(*options.here, options.threads)))
        return 0
    if unknown := [n for n in options.only if n not in MODELS] + [p for p in options.peers if p not in PEERS]:
        sys.exit(f"error: no {', '.join(unknown)}; there are {', '.join([*MODELS, *PEERS])}")
    peers = [p for p in options.peers if p != "ONNX" or onnx_graphs.onnx]
    limits, failed = Limits(options.bin), False
    table = Figures(f"models, f32, {options.threads} cores, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {onnx_graphs.version()}: {limits}")
    for name in options.only:
        runs = {}
        for _ in range(options.rounds):
            for mode in ["rc", *peers]:
                try:
                    runs.setdefault(mode, []).append(in_process(name, mode, options))
                except RuntimeError as error:
                    failed = True
                    print(f"not measured: {error}", flush=True)
        if "rc" not in runs:
            continue
        ms = {mode: statistics.median(r["ms"] for r in rows) for mode, rows in runs.items()}
        own = runs["rc"][0]
        first = ", ".join(f"{rows[0]['first']:.1f}" for rows in runs.values())
        note = f"first calls {first} s, rc's peak {own['mib']:.0f} MiB"
        table.add("models", name, ms, limits.milliseconds(own["operations"], own["bytes"]), note)
    table.close(options.bin.parent / "bench" / "models_cpu.svg")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
