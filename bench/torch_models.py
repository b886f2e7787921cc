"""Whole models through torch.compile: rc beside eager and Inductor, in one run on one machine.

usage: torch_models.py [--only resnet50,bert] [--device cpu|cuda] [--dtype f32|bf16|f16] [--inductor] [--train] [--rounds N]

For each model, random weights and `fullgraph=True`, in a process of its own: the error against float64 of rc and of eager
(the root of the mean square of the differences over that of the values) and their ratio; seconds from the backend's entry to
the end of the first call, less a later call's; the median time of a call, of each in turn. With --train, of the models that
train: the error of one training step's gradients, and the times of a step. A model that is not here (a package lacks) is
named with the reason, and so is one that fails; the exit status is then 1.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--only", type=lambda text: text.split(","), help="models' names, with commas between them")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--dtype", choices=DTYPES, help="f32 on the CPU and bf16 on CUDA by default")
    p.add_argument("--inductor", action="store_true", help="compile with Inductor too, from a cold cache")
    p.add_argument("--train", action="store_true", help="a training step, of the models that train")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2, help="cores, on the CPU")
    p.add_argument("--images", type=int, help="in a batch: 1 on the CPU and 8 on CUDA by default")
    p.add_argument("--sequences", type=int, help="in a batch: 1 on the CPU and 4 on CUDA by default")
    p.add_argument("--tokens", type=int, help="in a sequence: 128 on the CPU and 512 on CUDA by default")
    p.add_argument("--layers", type=int, help="of LLaMA 7B: 2 on the CPU and 8 on CUDA by default")
    p.add_argument("--timeout", type=float, default=900, help="seconds for a model")
    p.add_argument("--json", help="a file that gets every figure")
    p.add_argument("--here", help=argparse.SUPPRESS)  # the one model that this process measures
    o = p.parse_args()
    cpu = o.device == "cpu"
    o.dtype = o.dtype or ("f32" if cpu else "bf16")
    o.images, o.sequences = o.images or (1 if cpu else 8), o.sequences or (1 if cpu else 4)
    o.tokens, o.layers = o.tokens or (128 if cpu else 512), o.layers or (2 if cpu else 8)
    return o


class Timed:
    """A backend that notes when it is entered first, and when the first call of what it compiled ends."""

    def __init__(self, name: str, synchronize):
        from torch._dynamo.backends.registry import lookup_backend

        self.backend, self.synchronize = lookup_backend(name), synchronize
        self.entered = self.graphs = None

    def __call__(self, gm, inputs):
        if self.entered is None:
            self.entered, self.graphs = time.perf_counter(), 0
        self.graphs += 1
        return self.backend(gm, inputs)


class Row:
    """One way to run the model."""

    def __init__(self, measure, name: str):
        import torch

        self.measure, self.name, self.times = measure, name, []
        self.timed = None if name == "eager" else Timed(name, measure.synchronize)
        if self.timed:
            torch._dynamo.reset()
        self.run = torch.compile(measure.model, backend=self.timed, fullgraph=True, dynamic=False) if self.timed else measure.model
        start = time.perf_counter()
        self.error = measure.error(self.step())
        measure.synchronize()
        self.first = time.perf_counter() - (self.timed.entered if self.timed else start)

    def step(self):
        return self.measure.step(self.run)

    def time(self):
        self.measure.synchronize()
        start = time.perf_counter()
        self.step()
        self.measure.synchronize()
        self.times.append(time.perf_counter() - start)

    def figures(self) -> dict:
        steady = statistics.median(self.times)
        return dict(error=self.error, first=max(0.0, self.first - self.measure.check - steady), ms=1e3 * steady)


class Measure:
    """One model in this process."""

    def __init__(self, options, name: str):
        import torch
        import zoo

        self.options, self.name = options, name
        torch.set_num_threads(options.threads)
        torch.manual_seed(0)
        size = zoo.Size(options.images, options.sequences, options.tokens, options.layers)
        model, args, kwargs = zoo.MODELS[name].make(size)
        dtype = getattr(torch, DTYPES[options.dtype])
        model.train(options.train)
        self.model = model.to(options.device, dtype)
        move = lambda x: x.to(options.device, dtype if x.is_floating_point() else None)
        self.args, self.kwargs = [move(x) for x in args], {k: move(x) for k, x in kwargs.items()}
        self.check = 0.0
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.weights = None
        self.reference = self._reference(dtype)

    def _reference(self, dtype):
        """float64's results. The model's own weights are widened and narrowed again, which is exact: a copy may not fit."""
        import torch

        buffers = {k: v.clone() for k, v in self.model.named_buffers()}
        self.model.double()
        # PyTorch's grouped products have no float64: experts run one by one.
        experts = getattr(self.model, "set_experts_implementation", None)
        before = getattr(getattr(self.model, "config", None), "_experts_implementation", None)
        if experts and before:
            experts("eager")
        wide = lambda x: x.double() if x.is_floating_point() else x
        args, kwargs = self.args, self.kwargs
        self.args, self.kwargs = [wide(x) for x in args], {k: wide(x) for k, x in kwargs.items()}
        reference = self.step(self.model)
        if experts and before:
            experts(before)
        self.args, self.kwargs = args, kwargs
        self.model.to(dtype)
        with torch.no_grad():
            for k, v in self.model.named_buffers():
                v.data = buffers[k]  # some are wider than the rest
        self.model.zero_grad()
        return reference

    def synchronize(self):
        import torch

        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def step(self, run):
        """The model's results, or the gradients of a training step."""
        import torch

        if not self.options.train:
            with torch.no_grad():
                return tensors(run(*self.args, **self.kwargs))
        y = tensors(run(*self.args, **self.kwargs))[0]
        if self.weights is None:
            self.weights = torch.randn_like(y) / y.numel() ** 0.5
        return torch.autograd.grad((y * self.weights.to(y.dtype)).sum(), self.parameters, allow_unused=True)

    def error(self, results) -> float:
        """The root of the mean square of the differences from float64 over that of float64's values, over all results."""
        start = time.perf_counter()
        square = lambda xs: sum(x.double().square().sum().item() for x in xs)
        pairs = [(a, r) for a, r in zip(results, self.reference, strict=True) if r is not None]
        error = (square(a.double() - r for a, r in pairs) / max(square(r for _, r in pairs), 1e-300)) ** 0.5
        self.check = time.perf_counter() - start
        return error


def tensors(y) -> list:
    """The tensors of a model's results: of floats, at any depth."""
    import torch

    if isinstance(y, torch.Tensor):
        return [y] if y.is_floating_point() else []
    values = y.values() if isinstance(y, dict) else y if isinstance(y, (list, tuple)) else []
    return [t for v in values for t in tensors(v)]


def measure(options) -> dict:
    import torch

    try:
        one = Measure(options, options.here)
    except ImportError as e:
        return {"missing": f"{type(e).__name__}: {e}"}
    rows, failed = [], {}
    for name in ["eager", "rc"] + ["inductor"] * options.inductor:
        try:
            rows.append(Row(one, name))
        except Exception as e:
            failed[name] = traceback.format_exc() if os.environ.get("RC_TRACE") else f"{type(e).__name__}: {e}"
    one.reference = None
    for round in range(options.rounds + 1):
        for row in rows:
            row.time()
            if round == 0:
                row.times.clear()  # warm
    return {"rows": {row.name: row.figures() for row in rows}, "failed": failed}


def in_process(options, name: str) -> dict:
    """The figures of one model, measured in a process of its own: cold caches, and memory that goes back."""
    with tempfile.TemporaryDirectory() as work:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor", "TRITON_CACHE_DIR": f"{work}/triton"}
        out = f"{work}/figures.json"
        command = [sys.executable, __file__, *sys.argv[1:], "--here", name, "--json", out]
        try:
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=options.timeout)
        except subprocess.TimeoutExpired:
            return {"failed": {"process": f"more than {options.timeout:.0f} s"}}
        if os.path.exists(out):
            return json.load(open(out))
        return {"failed": {"process": f"exit status {done.returncode}: {done.stdout[-1500:]}"}}


HEAD = f"{'model':17}{'rc error':>10}{'eager':>10}{'ratio':>7}{'first s':>9}{'inductor':>9}{'rc ms':>10}{'eager':>10}{'inductor':>10}{'rc/eager':>9}"


def line(name: str, figures: dict) -> str:
    rows = figures.get("rows", {})
    get = lambda row, key, form: format(rows[row][key], form) if row in rows else ""
    ratio = lambda key: f"{rows['rc'][key] / max(rows['eager'][key], 1e-300):.2f}" if {"rc", "eager"} <= rows.keys() else ""
    return (
        f"{name:17}{get('rc', 'error', '.2e'):>10}{get('eager', 'error', '.2e'):>10}{ratio('error'):>7}{get('rc', 'first', '.2f'):>9}"
        f"{get('inductor', 'first', '.2f'):>9}{get('rc', 'ms', '.2f'):>10}{get('eager', 'ms', '.2f'):>10}{get('inductor', 'ms', '.2f'):>10}{ratio('ms'):>9}"
    )


def main():
    options = arguments()
    if options.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if options.here:
        figures = measure(options)
        json.dump(figures, open(options.json, "w"))
        return 0
    import zoo

    names = options.only or [n for n, e in zoo.MODELS.items() if e.trains or not options.train]
    if unknown := [n for n in names if n not in zoo.MODELS]:
        sys.exit(f"error: no model {', '.join(unknown)}; there are {', '.join(zoo.MODELS)}")
    what = "a training step" if options.train else "inference"
    print(f"{what}, {options.dtype}, {machine(options)}\n{HEAD}", flush=True)
    every, bad = {}, False
    for name in names:
        figures = every[name] = in_process(options, name)
        print(line(name, figures), flush=True)
        if "missing" in figures:
            bad = True
            print(f"    not measured: {figures['missing']}", flush=True)
        for row, why in figures.get("failed", {}).items():
            bad = True
            print(f"    {row} failed: {why.strip()[:3000]}", flush=True)
    if options.json:
        json.dump(every, open(options.json, "w"), indent=1)
    return int(bad)


def machine(options) -> str:
    import torch

    versions = [f"PyTorch {torch.__version__}"]
    for package in ("torchvision", "timm", "transformers"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{options.threads} cores"
    return f"{where}, {', '.join(versions)}"


if __name__ == "__main__":
    sys.exit(main())
