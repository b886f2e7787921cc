"""GPT-2 small's inference: rc beside PyTorch eager and torch.compile, on the CPU also ONNX Runtime, in one run on one machine.

usage: gpt2.py BIN [--device cpu|cuda] [--case 1x128]... [--dtype f32|bf16] [--modes eager,default] [--rounds N]

BIN holds rc-run and gpt2. Rows take turns, one after another in each round, so that they see the same machine; a row's
figure is the median over all rounds. On the CPU everything runs on two cores (--threads). The floor is what the
arithmetic needs at the rate of PyTorch's own large product, measured in the same run, or what reading the weights once
needs at the rate of a large copy (CUDA), whichever is more. `error` is the largest difference from float64's logits over
the largest logit.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = {"cpu": ["eager", "default"], "cuda": ["eager", "default", "reduce-overhead"]}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bin", type=pathlib.Path)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--case", action="append", dest="cases", metavar="BxS", help="batch and length; 1x128 by default")
    p.add_argument("--dtype", choices=["f32", "bf16"], help="f32 on the CPU and bf16 on CUDA by default")
    p.add_argument("--modes", type=lambda text: text.split(","), help="of PyTorch: eager, default, reduce-overhead, max-autotune")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--runs", type=int, help="runs of a row in a round: 5 on the CPU, 30 on CUDA")
    p.add_argument("--threads", type=int, default=2, help="cores, on the CPU")
    options = p.parse_args()
    options.cases = options.cases or ["1x128"]
    options.dtype = options.dtype or ("f32" if options.device == "cpu" else "bf16")
    options.modes = options.modes or MODES[options.device]
    options.runs = options.runs or (5 if options.device == "cpu" else 30)
    return options


class TorchRow:
    """PyTorch in one of its modes."""

    def __init__(self, bench, model, tokens, mode):
        import torch
        self.bench, self.tokens, self.name = bench, tokens, f"torch {mode}"
        start = time.perf_counter()
        if mode != "eager":
            torch._dynamo.reset()
        self.model = model if mode == "eager" else torch.compile(model, mode=None if mode == "default" else mode)
        self.logits = self.step().double().cpu()
        bench.synchronize()
        self.first = time.perf_counter() - start

    def step(self):
        import torch
        with torch.no_grad():
            return self.model(self.tokens).logits

    def round(self):
        """The times of some runs in ms, after three that do not count."""
        return self.bench.times(self.step)


class OnnxRow:
    """ONNX Runtime, with the model's weights as constants of the graph."""

    name = "ONNX Runtime"

    def __init__(self, bench, model, tokens):
        import onnx_graphs
        if not onnx_graphs.onnx:
            raise RuntimeError(onnx_graphs.version())
        start = time.perf_counter()
        self.bench, self.step = bench, onnx_graphs.gpt2(model, tokens.numpy(), bench.options.threads)
        self.logits = bench.tensor(self.step().numpy()).double()
        self.first = time.perf_counter() - start

    def round(self):
        return self.bench.times(self.step)


class RcRow:
    """rc-run in a process of its own, which compiles first and then measures."""

    name = "rc"

    def __init__(self, bench, graph, weights, ids):
        command = [bench.bin / "rc-run", graph, "--weights", weights, "--input", ids, f"--device={bench.device}", "--timing"]
        self.command, self.runs = [str(c) for c in command], bench.runs
        out = graph.with_name("logits.npy")
        self.first = self.compiled_in(self.run("-o", str(out)))
        self.logits = bench.load(out).double()

    def run(self, *flags):
        done = subprocess.run([*self.command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError("rc-run failed:\n" + "\n".join(done.stderr.splitlines()[:12]))
        return done.stdout + done.stderr

    @staticmethod
    def compiled_in(text):
        return float(re.search(r"compiled and loaded in ([\d.]+) ms", text)[1]) / 1e3

    def round(self):
        text = self.run(f"--bench={self.runs}")
        return [float(re.search(r"median of \d+ runs: ([\d.]+) ms", text)[1])]


class Bench:
    def __init__(self, options, work):
        self.bin, self.device, self.runs, self.rounds = options.bin, options.device, options.runs, options.rounds
        self.options, self.work = options, work
        import torch
        torch.set_num_threads(options.threads)
        sys.path.insert(0, str(ROOT / "test/torch"))
        import gpt2_model
        self.model_files = gpt2_model
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
        self.load, self.tensor = gpt2_model.load_array, torch.from_numpy

    def synchronize(self):
        import torch
        if self.device == "cuda":
            torch.cuda.synchronize()

    def times(self, step, warm=3):
        import torch
        times = []
        for i in range(warm + self.runs):
            if self.device == "cuda":
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                step()
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end))
            else:
                start = time.perf_counter()
                step()
                times.append(1e3 * (time.perf_counter() - start))
        return times[warm:]

    def floor(self, size, batch, length):
        """Milliseconds, and what they are made of."""
        import torch
        n = 2048 if self.device == "cpu" else 8192
        a, b = (torch.randn(n, n, dtype=self.dtype, device=self.device) for _ in range(2))
        flops = 2 * n**3 / (min(self.times(lambda: a @ b)) * 1e-3)
        work = size.flops(batch, length)
        arithmetic = 1e3 * work / flops
        if self.device == "cpu":
            return arithmetic, f"{work / 1e9:.1f} GFLOP at {flops / 1e9:.0f} GFLOP/s"
        big = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        other = torch.empty_like(big)
        rate = 2 * big.nbytes / (min(self.times(lambda: other.copy_(big))) * 1e-3)
        nbytes = self.dtype.itemsize * (size.parameters() + batch * length * size.vocab)
        reading = 1e3 * nbytes / rate
        what = f"{work / 1e12:.2f} TFLOP at {flops / 1e12:.0f} TFLOP/s: {arithmetic:.3f} ms, {nbytes / 1e9:.2f} GB at {rate / 1e12:.2f} TB/s: {reading:.3f} ms"
        return max(arithmetic, reading), what

    def case(self, text):
        import copy
        import torch
        batch, length = map(int, text.split("x"))
        files, size, dtype = self.model_files, self.model_files.SMALL, self.options.dtype
        model = files.build(size).to(self.dtype)
        tokens = files.token_ids(size, batch, length)
        weights, ids, graph = self.work / "model.safetensors", self.work / "ids.npy", self.work / "gpt2.ir"
        files.save_weights(model, weights)
        files.save_ids(tokens, ids)
        subprocess.run([str(self.bin / "gpt2"), f"--batch={batch}", f"--length={length}", f"--dtype={dtype}", "-o", str(graph)], check=True)
        model, tokens = model.to(self.device), tokens.to(self.device)
        with torch.no_grad():
            reference = copy.deepcopy(model).double()(tokens).logits.cpu()
        rows, missing = [], []
        makers = {f"torch {mode}": (lambda mode=mode: TorchRow(self, model, tokens, mode)) for mode in self.options.modes}
        if self.device == "cpu" and dtype == "f32":
            makers["ONNX Runtime"] = lambda: OnnxRow(self, model, tokens)
        makers["rc"] = lambda: RcRow(self, graph, weights, ids)
        for name, make in makers.items():
            try:
                row = make()
                row.error = ((row.logits - reference).abs().max() / reference.abs().max()).item()
                row.logits, row.times = None, []
                rows.append(row)
            except Exception as error:
                missing.append((name, str(error)[:2000]))
        for _ in range(self.rounds):
            for row in rows:
                row.times += row.round()
        self.report(text, size, batch, length, rows, missing)

    def report(self, text, size, batch, length, rows, missing):
        floor, what = self.floor(size, batch, length)
        print(f"\nGPT-2 small, {batch} x {length}, {self.options.dtype}, {machine(self.options)}")
        print(f"floor {floor:.3f} ms: {what}")
        rc = next((statistics.median(row.times) for row in rows if row.name == "rc"), None)
        print(f"{'':22}{'median ms':>10}{'min ms':>10}{'x floor':>9}{'x rc':>8}{'first, s':>10}{'error':>10}")
        for row in rows:
            median = statistics.median(row.times)
            against = f"{median / rc:8.2f}" if rc else f"{'':8}"
            print(f"{row.name:22}{median:10.3f}{min(row.times):10.3f}{median / floor:9.2f}{against}{row.first:10.2f}{row.error:10.1e}", flush=True)
        for name, error in missing:
            print(f"{name:22}failed: {error}", flush=True)


def machine(options):
    import torch
    if options.device == "cuda":
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    try:
        model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        model = "CPU"
    return f"{options.threads} cores of {model}, PyTorch {torch.__version__}"


def main():
    options = arguments()
    if options.device == "cpu":
        # Before PyTorch starts its threads; rc-run inherits it.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    with tempfile.TemporaryDirectory() as work:
        # Inductor's cache too, so that `first` is a cold one.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{work}/inductor"
        os.environ["TRITON_CACHE_DIR"] = f"{work}/triton"
        import torch
        if options.device == "cuda" and not torch.cuda.is_available():
            sys.exit("error: no CUDA GPU that PyTorch can use; give --device=cpu")
        bench = Bench(options, pathlib.Path(work))
        for case in options.cases:
            bench.case(case)


if __name__ == "__main__":
    main()
