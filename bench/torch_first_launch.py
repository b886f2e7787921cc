"""Seconds from the entry of `torch.compile`'s backend to the first launch, for whole models with random weights.

    python bench/torch_first_launch.py [--only gpt2,bert] [--device cpu] [--dtype float32] [--backend rc] [--rounds 3] [--train]
                                        [--profile FILE]

What Dynamo does before it calls the backend is not counted; its guards, which it makes before the first call, are. `time` of RC_LOGS says what of
it rc's own steps take. `--train` asks for gradients too, which are compiled with the forward pass. A second run says what a start from the cache
takes. `--profile` writes a cProfile of the last round.
"""

import argparse
import cProfile
import os
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from torch._dynamo.backends.registry import lookup_backend
from torch.utils._pytree import tree_map

from zoo import MODELS, Size


def first_launch(model, inputs, keywords, name, train, profile=None):
    """Seconds of a cold compile: backend entry to its return, and to the first call of what it gave."""
    times = {}
    backend = lookup_backend(name)

    def timed(gm, inputs):
        times["entry"] = time.perf_counter()
        if profile is not None:
            profile.enable()
        f = backend(gm, inputs)
        if profile is not None:
            profile.disable()
        times["compiled"] = time.perf_counter()

        def call(*args):
            times.setdefault("launch", time.perf_counter())
            return f(*args)

        return call

    torch._dynamo.reset()
    start = time.perf_counter()
    with torch.set_grad_enabled(train):
        torch.compile(model, backend=timed, fullgraph=True)(*inputs, **keywords)
    end = time.perf_counter()
    return times["compiled"] - times["entry"], times["launch"] - times["entry"], end - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="gpt2,bert", help="models of bench/zoo.py, with commas between them, or all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backend", default="rc")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2, help="of LLaMA")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--profile")
    args = parser.parse_args()
    size = Size(args.batch, args.batch, args.tokens, args.layers)
    for name in MODELS if args.only == "all" else args.only.split(","):
        measure(name, size, args)


def measure(name, size, args):
    dtype = getattr(torch, args.dtype)
    model, inputs, keywords = MODELS[name].make(size)
    model = model.train(args.train).to(args.device, dtype)
    inputs, keywords = tree_map(lambda x: x.to(args.device, dtype if x.is_floating_point() else x.dtype), (inputs, keywords))
    rounds = []
    for i in range(args.rounds):
        profile = cProfile.Profile() if args.profile and i == args.rounds - 1 else None
        rounds.append(first_launch(model, inputs, keywords, args.backend, args.train, profile))
        if profile is not None:
            profile.dump_stats(args.profile)
    later = "; again " + line([statistics.median(times) for times in zip(*rounds[1:])]) if rounds[1:] else ""
    print(f"{name} on {args.device}, {args.backend}: the process's first {line(rounds[0])}{later}", flush=True)


def line(times):
    compiled, launch, call = times
    return f"{launch:.2f} s to the first launch ({compiled:.2f} s in the backend; the whole call {call:.2f} s)"


if __name__ == "__main__":
    main()
