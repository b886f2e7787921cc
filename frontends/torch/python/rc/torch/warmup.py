"""Compiling a model before its first use."""

from __future__ import annotations

import sys
import time

import torch


def warmup(model, shapes, *, dtype: torch.dtype | None = None, show: bool | None = None) -> float:
    """Calls a model once for each of `shapes`, so that what its later calls need is compiled: seconds that it took.

    Each of `shapes` is the arguments of a call, in a tuple or list: a tensor is passed as it is; a tuple of integers is the shape of a tensor of
    zeros, of `dtype` (by default that of the model's first parameter); `(shape, dtype)` is one of another type. Zeros lie on the device of the
    model's first parameter. `model` is what `torch.compile` gave, or a module that `rc` is then to compile. A bar on standard error shows how
    far it is: where that is a terminal, or as `show` says.
    """
    shapes = list(shapes)
    if not isinstance(model, torch._dynamo.OptimizedModule) and isinstance(model, torch.nn.Module):
        model.compile(backend="rc")
    like = next(iter(model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    device = like.device if like is not None else torch.device("cpu")
    dtype = dtype or (like.dtype if like is not None else torch.get_default_dtype())
    calls = [_arguments(call, dtype, device) for call in shapes]
    start = time.perf_counter()
    bar = _Bar(len(calls)) if (sys.stderr.isatty() if show is None else show) else None
    for done, call in enumerate(calls):
        if bar is not None:
            bar.draw(done, call)
        model(*call)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    if bar is not None:
        bar.draw(len(calls), None)
    return time.perf_counter() - start


def _arguments(call, dtype: torch.dtype, device: torch.device) -> list:
    if not isinstance(call, (tuple, list)):
        raise TypeError(f"each of shapes is a call's arguments in a tuple or list, not {type(call).__name__}")
    return [_argument(x, dtype, device) for x in call]


def _argument(x, dtype: torch.dtype, device: torch.device):
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], torch.dtype):
        x, dtype = x
    if isinstance(x, (tuple, list)) and all(type(n) is int for n in x):
        return torch.zeros(tuple(x), dtype=dtype, device=device)
    raise TypeError(f"an argument is a tensor, a shape or (shape, dtype), not {x!r}")


class _Bar:
    """How many of the calls are done, and which is next."""

    WIDTH = 30

    def __init__(self, count: int):
        self.count = count

    def draw(self, done: int, call: list | None):
        filled = self.WIDTH * done // max(self.count, 1)
        what = ", ".join("x".join(map(str, x.shape)) or "scalar" for x in call) if call is not None else ""
        sys.stderr.write(f"\r\x1b[Krc warms up [{'#' * filled}{'.' * (self.WIDTH - filled)}] {done}/{self.count} {what}")
        if call is None:
            sys.stderr.write("\n")
        sys.stderr.flush()
