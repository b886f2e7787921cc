"""What a call of a compiled model costs besides its kernels, at the argument count of GPT-2 (148 parameters and an input).

    python bench/torch_overhead.py [--parameters 148] [--device cpu] [--rounds 30] [--inductor]

The model adds up its parameters, of one element each, so that a call is next to nothing but dispatch. `dispatch` is a backend whose compiled
function only returns a tensor: the guards and the call, which `backend="eager"` has too before its first operation. Times are medians of
microseconds, the backends in turn in every round.
"""

import argparse
import statistics
import time
import types

import torch
from torch import nn


class Sum(nn.Module):
    def __init__(self, count, device):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(1, device=device)) for _ in range(count))

    def forward(self, x):
        for weight in self.weights:
            x = x + weight
        return x


def nothing(gm, inputs):
    """A backend whose function gives a tensor made beforehand."""
    results = tuple(torch.empty_like(n.meta["example_value"], device="cpu") for n in gm.graph.output_node().args[0])
    return lambda *args: results


def own_code(model, name):
    """The model's call as a function with code of its own, so that no backend's guards are tried before another's."""
    code = Sum.forward.__code__.replace(co_name=f"forward_{name}")
    return types.FunctionType(code, globals()).__get__(model)


def measure(f, x, calls, synchronize):
    start = time.perf_counter()
    for _ in range(calls):
        f(x)
    elapsed = time.perf_counter() - start
    synchronize()
    return elapsed / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=148)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--inductor", action="store_true")
    args = parser.parse_args()
    model = Sum(args.parameters, args.device)
    x = torch.randn(1, device=args.device)
    synchronize = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    backends = {"dispatch": nothing, "rc": "rc"} | ({"inductor": "inductor"} if args.inductor else {})
    with torch.no_grad():
        expected = model(x)
        compiled = {}
        for name, backend in backends.items():
            compiled[name] = torch.compile(own_code(model, name), backend=backend, fullgraph=True)
            result = compiled[name](x)
            if name != "dispatch":
                torch.testing.assert_close(result, expected)
        times = {name: [] for name in backends}
        for _ in range(args.rounds):
            for name, f in compiled.items():
                f(x)
                times[name].append(measure(f, x, args.calls, synchronize))
    medians = {name: statistics.median(t) for name, t in times.items()}
    for name, t in medians.items():
        print(f"{name:10} {t:8.1f} us a call   {t - medians['dispatch']:+8.1f} us beside dispatch")


if __name__ == "__main__":
    main()
