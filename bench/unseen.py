"""Models that no one named, drawn from timm, transformers and torchvision: what is wrong, refused or slow there?

    unseen.py timm|transformers|causal|torchvision SEED COUNT [--device cuda|cpu] [--dtype f32|bf16] [--dynamic] [--train-mode] [--channels-last]
              [--inductor] [--no-grad] [--jobs N] [--threads N] [--only NAME,…] [--seconds LIMIT] [--json FILE]

Each model has random weights and runs in a process of its own, a forward and a gradient, each beside eager and beside float64. A row has the
relative error (root mean square; eager's beside it), the first call's seconds and the time of a later call over eager's, with --inductor over
Inductor's too. With --jobs several models compile at once; one is timed when all others wait. On a GPU a call is a CUDA graph, and `with_host` is said where it cannot
be. A CPU gets small models, a GPU ones that fill it.
"""

import argparse
import contextlib
import copy
import fcntl
import io
import json
import logging
import math
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter

import torch

from families import microseconds

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
MOST_PARAMETERS = 120e6


class Skip(Exception):
    """A model that eager cannot run here either, or that is too large."""


class Drawn:
    """A model with its arguments, and what a run asks of it."""

    def __init__(self, options):
        self.device, self.large = options.device, options.device == "cuda"
        self.images = 32 if self.large else 1
        self.sequences, self.tokens = (8, 512) if self.large else (2, 32)


# Makers: names that a library has, and the model of a name with its positional and named arguments.


def timm_names():
    import timm

    files = {}
    for name in timm.list_models():
        files.setdefault(timm.models.model_entrypoint(name).__module__, []).append(name)
    return list(files.values())


def timm_model(name, drawn):
    import timm

    with torch.device("meta"):
        checked_size(timm.create_model(name))
    model = timm.create_model(name)
    shape = model.default_cfg["input_size"]
    if shape[1] > 300:
        raise Skip("large images")
    return model, (torch.randn(drawn.images, *shape),), {}


def torchvision_names():
    import torchvision

    return [[name] for name in torchvision.models.list_models() if "quantized" not in name]


def torchvision_model(name, drawn):
    import torchvision

    try:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    except (TypeError, ValueError):
        model = torchvision.models.get_model(name, weights=None)
    module = type(checked_size(model)).__module__
    if "detection" in module:
        return model, ([torch.rand(3, 128, 160)],), {}
    if "video" in module:
        side = 224 if "swin" in name or "mvit" in name else 112
        return model, (torch.randn(max(1, drawn.images // 8), 3, 16, side, side),), {}
    if "optical" in module:
        return model, (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)), {}
    side = 128 if "segmentation" in module else 299 if name == "inception_v3" else 224
    return model, (torch.randn(drawn.images, 3, side, side),), {}


WIDTHS = {
    "width": ["hidden_size", "d_model", "n_embd", "dim", "embedding_size"],
    "inner": ["intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim", "ffn_dim"],
    "layers": ["num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer", "num_layers", "num_decoder_layers", "n_layers"],
    "heads": ["num_attention_heads", "encoder_attention_heads", "decoder_attention_heads", "n_head", "num_heads", "n_heads"],
    "groups": ["num_key_value_heads", "num_experts_per_tok"],
    "experts": ["num_experts", "n_routed_experts", "num_local_experts"],
    "expert": ["moe_intermediate_size"],
    "head": ["head_dim", "d_kv", "kv_lora_rank", "q_lora_rank", "v_head_dim", "qk_nope_head_dim"],
    "rotary": ["qk_rope_head_dim"],
    "words": ["vocab_size"],
    "positions": ["max_position_embeddings"],
    "side": ["image_size"],
    "patch": ["patch_size"],
}
SMALL = {"width": 64, "inner": 128, "layers": 2, "heads": 4, "groups": 2, "experts": 4, "expert": 64, "head": 16, "rotary": 8}
SMALL |= {"words": 300, "positions": 128, "side": 64, "patch": 8}
LARGE = {"width": 768, "inner": 3072, "layers": 3, "heads": 12, "groups": 4, "experts": 8, "expert": 512, "head": 64, "rotary": 32}
LARGE |= {"words": 8000, "positions": 1024, "side": 224, "patch": 16}


def resize(config, sizes):
    """Sets the fields of a configuration, and of those within, that name sizes; what is dropped by chance is zero."""
    import transformers

    for kind, fields in WIDTHS.items():
        for field in fields:
            if type(getattr(config, field, None)) in (int, float):
                with contextlib.suppress(Exception):
                    setattr(config, field, sizes[kind])
    for field, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            resize(value, sizes)
        elif isinstance(value, float) and ("drop" in field or field.endswith("pdrop")):
            setattr(config, field, 0.0)
    for field, value in (("pad_token_id", 0), ("bos_token_id", 1), ("eos_token_id", 2)):
        if type(getattr(config, field, None)) is int:
            setattr(config, field, value)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: sizes["layers"]]


def transformers_names(causal=False):
    from transformers.models.auto import modeling_auto

    mapping = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING if causal else modeling_auto.MODEL_MAPPING
    return [[config.model_type] for config in mapping]


def transformers_model(name, drawn, causal=False):
    import transformers

    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    config = transformers.AutoConfig.for_model(name)
    resize(config, LARGE if drawn.large else SMALL)
    with torch.device("meta"):
        checked_size(kind.from_config(config))
    model = kind.from_config(config)
    return model, (), transformers_arguments(model, config, drawn, causal)


def causal_names():
    return transformers_names(causal=True)


def causal_model(name, drawn):
    return transformers_model(name, drawn, causal=True)


def transformers_arguments(model, config, drawn, causal):
    """Of a causal model: a row padded on the left, and labels of which the first are ignored."""
    main = model.main_input_name
    if main == "pixel_values":
        side = getattr(config, "image_size", None) or (224 if drawn.large else 64)
        side = side if isinstance(side, int) else side[0]
        return {main: torch.randn(2 * drawn.images, getattr(config, "num_channels", 3), side, side)}
    if main == "input_values":
        return {main: torch.randn(drawn.sequences, 4000)}
    if main == "input_features":
        return {main: torch.randn(drawn.sequences, 80, 128)}
    ids = torch.randint(3, 300, (drawn.sequences, drawn.tokens))
    arguments = {"input_ids": ids}
    if getattr(config, "is_encoder_decoder", False):
        arguments["decoder_input_ids"] = ids[:, : drawn.tokens // 2].clone()
    if causal:
        mask, labels = torch.ones_like(ids), ids.clone()
        mask[0, :7], labels[:, :5] = 0, -100
        arguments |= {"attention_mask": mask, "labels": labels}
    return arguments


def checked_size(model):
    if sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
        raise Skip("large")
    return model


LIBRARIES = {
    "timm": (timm_names, timm_model),
    "torchvision": (torchvision_names, torchvision_model),
    "transformers": (transformers_names, transformers_model),
    "causal": (causal_names, causal_model),
}


# Errors and times.


def floats(results):
    """The tensors of floats among nested results."""
    if isinstance(results, torch.Tensor):
        return [results] if results.is_floating_point() else []
    if isinstance(results, dict):
        return [t for value in results.values() for t in floats(value)]
    return [t for value in results for t in floats(value)] if isinstance(results, (list, tuple)) else []


def distance(got, expected):
    """The worst relative error of a result; infinite where shapes differ, or where one is finite and the other is not."""
    worst = 0.0
    for x, y in zip(got, expected, strict=True):
        if x.shape != y.shape or not torch.equal(torch.isfinite(x), torch.isfinite(y)):
            return math.inf
        worst = max(worst, total_distance([x.nan_to_num(0, 0, 0)], [y.nan_to_num(0, 0, 0)]))
    return worst


def total_distance(got, expected):
    """The relative error of all gradients as one vector: one alone may be rounding of what should be zero."""
    off = norm = 0.0
    for x, y in zip(got, expected, strict=True):
        if (x is None) != (y is None):
            return math.inf
        if x is not None:
            off += (x.double() - y.double()).square().sum().item()
            norm += y.double().square().sum().item()
    return math.inf if math.isnan(off) and not math.isnan(norm) else math.sqrt(off / norm) if norm else math.sqrt(off)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def turn(file):
    """Waits until no process computes but this one; all others have the file's lock together. The wait is no part of a model's time."""
    left = signal.alarm(0)
    fcntl.flock(file, fcntl.LOCK_EX)
    signal.alarm(left)
    yield
    fcntl.flock(file, fcntl.LOCK_SH)


class Run:
    """One model: eager, float64 and rc on the same arguments."""

    def __init__(self, options, name):
        import rc.torch  # noqa: F401

        self.options, self.row, self.weights = options, {"name": name}, []
        torch.manual_seed(options.seed)
        with contextlib.redirect_stdout(io.StringIO()):
            model, args, kwargs = LIBRARIES[options.library][1](name, Drawn(options))
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.model = model.to(options.device, torch.bfloat16 if options.dtype == "bf16" else torch.float32).train(options.train_mode)
        self.args, self.kwargs = self.moved(args), self.moved(kwargs)
        if options.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.args = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in self.args]

    def moved(self, value, dtype=None):
        if isinstance(value, torch.Tensor):
            dtype = dtype or next(self.model.parameters()).dtype
            return value.to(self.options.device, dtype if value.is_floating_point() else None)
        if isinstance(value, dict):
            return {key: self.moved(item, dtype) for key, item in value.items()}
        return [self.moved(item, dtype) for item in value]

    def float64(self):
        """A call in float64; of a model that casts to float32 itself there is none."""
        model = copy.deepcopy(self.model).double()
        args, kwargs = self.moved(self.args, torch.double), self.moved(self.kwargs, torch.double)
        return model, args, kwargs

    def forward(self, call):
        with torch.no_grad():
            return floats(call(*self.args, **self.kwargs))

    def step(self, call, model, args, kwargs):
        """Gradients of the first four results' sum, weighted by chance."""
        model.zero_grad(set_to_none=True)
        results = [y for y in floats(call(*args, **kwargs)) if y.requires_grad][:4]
        if not results:
            raise Skip("nothing has a gradient")
        if not self.weights:
            self.weights = [torch.randn_like(y) for y in results]
        sum((y * w.to(y)).sum() for y, w in zip(results, self.weights, strict=True)).backward()
        return [p.grad for p in model.parameters()]

    def compiled(self, backend):
        return torch.compile(self.model, backend=backend, dynamic=True if self.options.dynamic else None)

    def report(self, prefix, run, eager, reference, measure):
        """Compiles, compares and times `run(call)` beside eager's results."""
        call, start = self.compiled("rc"), time.time()
        got = run(call)
        wait(self.options.device)
        self.row[prefix + "first"] = round(time.time() - start, 2)
        self.row[prefix + "error"] = measure(got, eager if reference is None else reference)
        self.row[prefix + "eager_error"] = 0.0 if reference is None else measure(eager, reference)
        calls = [call, self.model]
        if self.options.inductor:
            calls.append(self.compiled("inductor"))
            run(calls[-1])
        with turn(self.options.busy):
            times = [microseconds(lambda: run(f), self.options.device == "cuda") for f in calls]
        (ours, alone), *peers = times
        self.row[prefix + "ms"] = round(ours / 1e3, 3)
        if self.options.device == "cuda" and not alone:
            self.row[prefix + "with_host"] = True
        self.row |= {prefix + name: round(ours / peer, 3) for name, (peer, _) in zip(("ratio", "inductor"), peers)}

    def inference(self):
        eager = self.forward(self.model)
        reference = None
        with contextlib.suppress(Exception), torch.no_grad():
            model, args, kwargs = self.float64()
            reference = floats(model(*args, **kwargs))
        self.report("", self.forward, eager, reference, distance)

    def training(self):
        def run(call):
            return self.step(call, self.model, self.args, self.kwargs)

        try:
            eager = [None if g is None else g.clone() for g in run(self.model)]
        except Exception as error:
            raise Skip(f"no gradient: {error!s:.80}") from error
        reference = None
        with contextlib.suppress(Exception):
            model, args, kwargs = self.float64()
            reference = self.step(model, model, args, kwargs)
        torch._dynamo.reset()
        self.report("grad_", run, eager, reference, total_distance)


def measured(options, name):
    try:
        run = Run(options, name)
        run.forward(run.model)
    except Exception as error:
        return {"name": name, "skip": f"{type(error).__name__}: {error!s:.100}"}
    try:
        run.inference()
        if options.grad:
            run.training()
    except Skip as error:
        run.row["grad_skip"] = str(error)
    except BaseException as error:
        run.row |= {"fails": f"{type(error).__name__}: {error!s:.400}", "trace": traceback.format_exc()[-1500:]}
    return run.row


# Processes: one for each model, forked from one that has imported PyTorch alone, because what a library does at its import may start CUDA.


def child(options, name, output):
    """Forks; the child writes its row, and ends."""
    pid = os.fork()
    if pid:
        return pid

    def late(*_):
        raise TimeoutError(f"more than {options.seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(options.seconds)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with open(options.lock, "w") as options.busy:
        fcntl.flock(options.busy, fcntl.LOCK_SH)
        row = measured(options, name)
    with open(output, "w") as file:
        json.dump(row, file)
    os._exit(0)


def rows(options, names):
    """The rows of `options.count` models that could run, in the order in which they end."""
    names, running, done = list(names), {}, 0
    with tempfile.TemporaryDirectory() as folder:
        options.lock = os.path.join(folder, "turn")
        while running or (names and done < options.count):
            while names and len(running) < options.jobs and done + len(running) < options.count:
                name = names.pop(0)
                output = os.path.join(folder, name.replace("/", "_"))
                running[child(options, name, output)] = name, output
            pid, status = os.wait()
            name, output = running.pop(pid)
            row = {"name": name, "fails": f"the process ended: {status}"}
            if os.path.exists(output):
                with open(output) as file:
                    row = json.load(file)
            done += "skip" not in row
            yield row


def drawn_names(options):
    if options.only:
        return options.only.split(",")
    chance = random.Random(options.seed)
    with multiprocessing.get_context("fork").Pool(1) as process:
        groups = process.apply(LIBRARIES[options.library][0])
    names = [chance.choice(group) for group in groups]
    chance.shuffle(names)
    return names


def shown(row):
    if "skip" in row:
        return f"{row['name']:32} skipped: {row['skip']}"
    parts = [f"{row['name']:32}"]
    for prefix in ("", "grad_"):
        if prefix + "ratio" in row:
            figures = (row[prefix + key] for key in ("first", "error", "eager_error", "ms", "ratio"))
            beside = f" {row[prefix + 'inductor']:6.3f}" if prefix + "inductor" in row else ""
            host = " with host" if prefix + "with_host" in row else ""
            parts.append("{:6.2f} s  {:8.1e} ({:8.1e})  {:9.3f} ms  {:6.3f}".format(*figures) + beside + host)
    return " | ".join(parts + [row[key] for key in ("grad_skip", "fails") if key in row])


def summary(every):
    ran = [row for row in every if "skip" not in row]
    counts = Counter("fails" in row for row in ran)
    lines = [f"{len(ran)} models, {counts[True]} fail, {len(every) - len(ran)} skipped"]
    for prefix, word in (("", "inference"), ("grad_", "gradient")):
        ratios = [row[prefix + "ratio"] for row in ran if prefix + "ratio" in row]
        wrong = [row["name"] for row in ran if row.get(prefix + "error", 0) > 4 * row.get(prefix + "eager_error", 0) + 1e-5]
        if ratios:
            lines.append(f"{word}: {statistics.geometric_mean(ratios):.3f} of eager's time, worst {max(ratios):.2f}; look at {wrong}")
        beside = [row[prefix + "inductor"] for row in ran if prefix + "inductor" in row]
        if beside:
            lines.append(f"{word}: {statistics.geometric_mean(beside):.3f} of Inductor's time, worst {max(beside):.2f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--train-mode", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--no-grad", dest="grad", action="store_false")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    every = []
    for row in rows(options, drawn_names(options)):
        every.append(row)
        print(shown(row), flush=True)
        if options.json:
            with open(options.json, "a") as file:
                print(json.dumps(row), file=file)
    print(summary(every))
    return any("fails" in row for row in every)


if __name__ == "__main__":
    sys.exit(main())
