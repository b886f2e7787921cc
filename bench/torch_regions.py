"""First call and time of a call of GPT-2, compiled whole, with its block as a region (`nested_compile_region`), and block by block.

    python bench/torch_regions.py [--backends rc,inductor] [--ways whole,region,blocks] [--device cpu] [--dtype float32] [--layers 12] [--tokens 128]

`region` traces the block once and keeps one graph; `blocks` compiles each block by itself (`block.compile()`), whose code is reused from block to
block. Every row is a process of its own with empty caches; rc's result is compared with eager.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def model_of(args, way, backend):
    """The model, with what makes regions of its blocks, and what compiles it."""
    import torch
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_layer=args.layers, use_cache=False)
    model = GPT2Model(config).eval().to(args.device, getattr(torch, args.dtype))
    if way == "whole":
        return model, torch.compile(model, backend=backend)
    if way == "region":
        block = type(model.h[0])
        block.forward = torch.compiler.nested_compile_region(block.forward)
        return model, torch.compile(model, backend=backend)
    for block in model.h:
        block.compile(backend=backend)
    return model, model


def measure(args, way, backend):
    import torch

    torch.set_num_threads(args.threads)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    expected, _ = model_of(args, "whole", "eager")
    model, compiled = model_of(args, way, backend)
    model.load_state_dict(expected.state_dict())
    tokens = torch.randint(0, 50257, (args.batch, args.tokens), device=args.device)
    with torch.no_grad():
        start = time.perf_counter()
        result = compiled(tokens).last_hidden_state
        wait()
        first = time.perf_counter() - start
        times = []
        for _ in range(args.runs):
            start = time.perf_counter()
            compiled(tokens)
            wait()
            times.append(1e3 * (time.perf_counter() - start))
        reference = expected(tokens).last_hidden_state
    differs = ((result - reference).norm() / reference.norm()).item()
    print(json.dumps({"backend": backend, "way": way, "first_s": round(first, 2), "ms": round(statistics.median(times), 3), "differs": differs}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="rc,inductor")
    parser.add_argument("--ways", default="whole,region,blocks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "BACKEND"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return measure(args, *args.one)
    for backend in args.backends.split(","):
        for way in args.ways.split(","):
            with tempfile.TemporaryDirectory() as cache:
                env = os.environ | {"RC_CACHE": "off", "TORCHINDUCTOR_CACHE_DIR": cache}
                one = subprocess.run([sys.executable, *sys.argv, "--one", way, backend], env=env, capture_output=True, text=True)
            print(one.stdout.strip() if one.returncode == 0 else f"{backend} {way}: {one.stderr.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
