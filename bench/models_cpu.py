"""Models through torch.compile on the CPU: rc beside PyTorch eager, Inductor (as it comes, and frozen) and ONNX Runtime, in one run on one machine.

usage: models_cpu.py BIN [--only bert,mlp] [--modes eager,freezing,ONNX] [--threads 2] [--rounds N] [--picture FILE.svg]

BIN holds rc-opt and rc-tune, which measure the machine. Each model and way to run it is a process of its own in each round; a figure is the
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

MODES = ["rc", "eager", "default", "freezing", "ONNX"]


def resnet50():
    import torch
    import torchvision

    return torchvision.models.resnet50(weights=None), torch.randn(1, 3, 224, 224)


def bert():
    import torch
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), torch.randint(0, 30000, (1, 128))


def gpt2():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)), torch.randint(0, 50000, (1, 128))


def vit():
    import timm
    import torch

    return timm.create_model("vit_base_patch16_224"), torch.randn(1, 3, 224, 224)


def mlp():
    import torch
    from torch import nn

    return nn.Sequential(nn.Linear(768, 3072), nn.GELU(approximate="tanh"), nn.Linear(3072, 768)), torch.randn(128, 768)


def pointwise():
    import torch
    import torch.nn.functional as F

    class Chain(torch.nn.Module):
        def forward(self, x, y):
            return torch.softmax(F.gelu(x * y + 1.5, approximate="tanh"), -1)

    return Chain(), torch.randn(4096, 1024), torch.randn(4096, 1024)


MODELS = {f.__name__: f for f in (resnet50, bert, gpt2, vit, mlp, pointwise)}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bin", type=pathlib.Path)
    p.add_argument("--only", type=lambda text: text.split(","), default=list(MODELS), help="models' names, with commas between them")
    p.add_argument("--modes", type=lambda text: text.split(","), default=MODES[1:], help="peers, with commas between them")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--picture", type=pathlib.Path, default=pathlib.Path("target/bench/models_cpu.svg"))
    p.add_argument("--here", nargs=2, help=argparse.SUPPRESS)  # the one model and mode that this process measures
    return p.parse_args()


def compiled(mode: str, model, args, threads: int):
    """A function that runs the model in one way."""
    import torch

    if mode == "ONNX":
        import onnxruntime

        path = tempfile.mkdtemp() + "/model.onnx"
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
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        results = torch.utils._pytree.tree_leaves(model(*args))
    tensors = [*model.parameters(), *args, *(r for r in results if isinstance(r, torch.Tensor))]
    return counter.get_total_flops(), sum(t.nbytes for t in {id(t): t for t in tensors}.values())


def measure(name: str, mode: str, threads: int) -> dict:
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, *args = MODELS[name]()
    model.eval()
    with torch.no_grad():
        figures = dict(zip(("operations", "bytes"), work(model, args))) if mode == "rc" else {}
        start = time.perf_counter()
        step = compiled(mode, model, tuple(args), threads)
        step()
        figures["first"] = time.perf_counter() - start
        for _ in range(3):
            step()
        times = []
        for _ in range(20):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
    return figures | {"ms": statistics.median(times), "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


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
    if unknown := [n for n in options.only if n not in MODELS] + [m for m in options.modes if m not in MODES]:
        sys.exit(f"error: no {', '.join(unknown)}; there are {', '.join([*MODELS, *MODES[1:]])}")
    import torch
    from figures import Figures
    from limits import Limits

    limits, failed = Limits(options.bin), False
    table = Figures(f"models, f32, {options.threads} cores, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}: {limits}")
    for name in options.only:
        runs = {}
        for _ in range(options.rounds):
            for mode in ["rc", *options.modes]:
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
    table.close(options.picture)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
