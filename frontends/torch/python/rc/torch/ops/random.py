"""Random numbers: Philox 4x32-10 of a key from the call's seed and the operation's number in the graph, with the element's place as counter.

Each call of a compiled graph draws one seed from PyTorch's default generator, so `torch.manual_seed` makes runs repeat. The numbers
are not eager's own, and do not depend on the device or on fusion.
"""

from __future__ import annotations

import math

import torch

from rc._native import Dim
from rc.torch.build import Build, T, simplify
from rc.torch.dtypes import compute, is_float
from rc.torch.errors import Unsupported
from rc.torch.ops.table import operand, out_dtype, out_shape, translates

OPERATIONS = set()
"""The operations that need a seed."""


def draws(*names: str):
    """Registers a translation of a random operation."""
    from rc.torch.ops.table import TABLE

    def register(f):
        before = set(TABLE)
        translates(*names)(f)
        OPERATIONS.update(set(TABLE) - before)
        return f

    return register


def count(graph) -> int:
    """How many operations of a graph may draw numbers."""
    return sum(node.op == "call_function" and node.target in OPERATIONS for node in graph.nodes)


def keys(operations: int, device) -> list[torch.Tensor]:
    """What each operation adds to the seed, where there are several. It is an argument: as a constant it would make a kernel of its own of each layer's
    dropout. Each has 64 bytes, so that it is aligned as any argument."""
    if operations < 2:
        return []
    numbers = torch.arange(operations) * (0x9E3779B97F4A7C15 - 2**64)
    return list(numbers.unsqueeze(1).repeat(1, 8).to(device)[:, 0].unbind())


def stream(b: Build) -> tuple[T, T]:
    """The key and the first counter of an operation's numbers."""
    b.drawn = getattr(b, "drawn", -1) + 1
    key = b.binary("add", b.seed, b.keys[b.drawn]) if b.keys else b.seed
    return key, b.full(0, "i64", ())


def uniform(b: Build, shape, dtype: str) -> T:
    """Numbers in [0, 1), in the type of computation."""
    return b.op("tensor.rand_uniform", *stream(b), shape=list(shape), elem=compute(dtype))


def normal(b: Build, shape, dtype: str) -> T:
    return b.op("tensor.rand_normal", *stream(b), shape=list(shape), elem=compute(dtype))


@draws("rand", "rand_like", "rand.generator", "prims::_uniform_helper")
def rand(b: Build, *args, **kwargs) -> T:
    return b.convert(uniform(b, out_shape(b), out_dtype(b)), out_dtype(b))


@draws("randn", "randn_like", "randn.generator")
def randn(b: Build, *args, **kwargs) -> T:
    return b.convert(normal(b, out_shape(b), out_dtype(b)), out_dtype(b))


@draws("uniform")
def uniform_op(b: Build, x: T, low=0.0, high=1.0, **_) -> T:
    u = uniform(b, x.shape, x.dtype)
    return b.convert(b.scalar("add", b.scalar("mul", u, high - low), low), x.dtype)


@draws("normal_functional", "normal.float_float", "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_op(b: Build, mean=0.0, std=1.0, *args, **kwargs) -> T:
    result, shape = out_dtype(b), out_shape(b)
    c = compute(result)
    if b.node.target._opname == "normal_functional":
        mean, std = (std, *args)[:2] if args else (std, 1.0)
    z = normal(b, shape, result)
    return b.convert(b.binary("add", b.binary("mul", z, operand(b, std, c)), operand(b, mean, c)), result)


@draws("prims::normal")
def prims_normal(b: Build, shape, *, mean, std, dtype, device, requires_grad, generator=None) -> T:
    z = normal(b, out_shape(b), out_dtype(b))
    return b.convert(b.scalar("add", b.scalar("mul", z, std), mean), out_dtype(b))


@draws("bernoulli", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(b: Build, x: T, p=None, **_) -> T:
    result = out_dtype(b)
    p = x if p is None else operand(b, p, "f32")
    c = compute(p.dtype) if is_float(p.dtype) else "f32"
    shape = out_shape(b)
    return b.convert(b.compare("lt", uniform(b, shape, c), b.expand(b.convert(p, c), shape)), result)


@draws("native_dropout")
def native_dropout(b: Build, x: T, p: float, train) -> list[T]:
    if train is False or p == 0:
        return [x, b.full(1, "i1", x.shape)]
    c = b.upcast(x)
    keep = b.compare("ge", uniform(b, x.shape, "f32"), b.full(p, "f32", x.shape))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    y = b.select(keep, b.scalar("mul", c, scale), b.like(0, c))
    return [b.convert(y, x.dtype), keep]


@draws("randint", "randint.low", "randint_like", "randint_like.low_dtype")
def randint(b: Build, *args, **kwargs) -> T:
    name, overload = b.node.target._opname, b.node.target._overloadname
    numbers = args[1:] if "like" in name else args[:-1]
    low, high = (numbers[0], numbers[1]) if "low" in overload else (0, numbers[0])
    if isinstance(low, Dim) or isinstance(high, Dim):
        raise Unsupported("random integers below a symbolic size")
    y = b.op("tensor.rand_int", *stream(b), shape=out_shape(b), elem="i64", low=low, high=high)
    return b.convert(y, out_dtype(b))


@draws("randperm")
def randperm(b: Build, n, **_) -> T:
    if n == 0:
        return b.full(0, out_dtype(b), [0])
    keys = b.op("tensor.rand_int", *stream(b), shape=[n], elem="i64", low=0, high=2**62)
    return b.convert(b.op("tensor.sort", keys, dim=0)[1], out_dtype(b))


@draws("exponential")
def exponential(b: Build, x: T, lambd=1.0, **_) -> T:
    u = uniform(b, x.shape, x.dtype)
    return b.convert(b.scalar("div", b.unary("neg", b.unary("log", b.binary("sub", b.like(1, u), u))), lambd), x.dtype)


@draws("cauchy")
def cauchy(b: Build, x: T, median=0.0, sigma=1.0, **_) -> T:
    angle = b.scalar("mul", b.scalar("sub", uniform(b, x.shape, x.dtype), 0.5), math.pi)
    tan = b.binary("div", b.unary("sin", angle), b.unary("cos", angle))
    return b.convert(b.scalar("add", b.scalar("mul", tan, sigma), median), x.dtype)


@draws("log_normal")
def log_normal(b: Build, x: T, mean=1.0, std=2.0, **_) -> T:
    z = normal(b, x.shape, x.dtype)
    return b.convert(b.unary("exp", b.scalar("add", b.scalar("mul", z, std), mean)), x.dtype)


@draws("geometric")
def geometric(b: Build, x: T, p, **_) -> T:
    if not is_float(x.dtype):
        raise Unsupported("geometric numbers of integers")
    u = uniform(b, x.shape, x.dtype)
    ratio = b.scalar("div", b.unary("log", b.binary("sub", b.like(1, u), u)), math.log1p(-p))
    return b.convert(b.scalar("max", b.unary("ceil", ratio), 1), x.dtype)


@draws("multinomial")
def multinomial(b: Build, x: T, count, replacement: bool = False, **_) -> T:
    """Numbers of the last dimension, drawn in proportion to what stands there."""
    n = x.shape[-1]
    p = b.upcast(x)
    if isinstance(count, Dim):
        raise Unsupported("a symbolic number of draws")
    if replacement and count != 1:
        # The place of a uniform number among the sums so far.
        sums = b.op("core.scan", p, dim=p.rank - 1, kind="add")
        total = b.narrow(sums, p.rank - 1, simplify(n - 1), 1)
        shape = list(p.shape[:-1]) + [count]
        u = b.binary("mul", uniform(b, shape, p.dtype), b.expand(total, shape))
        space = shape + [n]
        rows = list(range(p.rank - 1))
        before = b.compare("le", b.broadcast_in(sums, space, [*rows, p.rank]), b.broadcast_in(u, space, [*rows, p.rank - 1]))
        at = b.reduce("add", b.convert(before, "i64"), [p.rank])
        return b.binary("min", at, b.size(simplify(n - 1), "i64", at.shape))
    # The winner of a race: exponential times with these rates; without replacement, the first few that come in.
    u = uniform(b, p.shape, p.dtype)
    time = b.unary("neg", b.unary("log", b.binary("sub", b.like(1, u), u)))
    speed = b.binary("div", p, b.scalar("max", time, 1e-30))
    if count == 1:
        return b.unsqueeze(b.op("core.reduce", speed, dims=[p.rank - 1], kind="argmax"), p.rank - 1)
    return b.op("tensor.topk", speed, dim=p.rank - 1, k=count, largest=True)[1]


@draws("rrelu_with_noise_functional")
def rrelu(b: Build, x: T, noise: T, lower=0.125, upper=1 / 3, training: bool = False, **_) -> list[T]:
    """Negative numbers times a slope, drawn for each while training; and the slopes, 1 for what is positive."""
    c = b.upcast(x)
    positive = b.compare("gt", c, b.like(0, c))
    if training:
        slope = b.scalar("add", b.scalar("mul", uniform(b, c.shape, c.dtype), upper - lower), lower)
        slope = b.select(positive, b.like(1, c), slope)
        return [b.convert(b.binary("mul", c, slope), x.dtype), b.convert(slope, noise.dtype)]
    y = b.select(positive, c, b.scalar("mul", c, (lower + upper) / 2))
    return [b.convert(y, x.dtype), noise]
