#!/usr/bin/env python3
"""What the models of schedules predict beside what is measured, on random kernels.

    python3 bench/candidates.py target/release [--count=60] [--seed=1] [--device=cpu] [--top=8] [--threads=1] [--seconds=S]
        [--target-file=FILE] [--csv=FILE]

Draws kernels (products, reductions, elementwise chains, attention, normalizations), has rc-tune run the best candidates of each, and prints by family
how often the model's pick is within 10 % of the best, how much slower it is on the average, and the rank correlation (Spearman) of predicted and
measured times: of the candidates of a kernel, where there are several, and of all picks. Times are the shortest of their runs, which candidates take
in turns; --target-file tries other figures of the machine.

Kernels for a GPU are larger: it takes them several to hundreds of microseconds, since launches are what smaller ones take.
"""

import argparse
import csv
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Sizes:
    """What is drawn for a machine."""

    elem: str
    scale: int
    """Of the largest sizes."""
    us: tuple[float, float] = (0, math.inf)
    """Microseconds that a kernel takes, by the rates below."""
    flops: float = math.inf
    rate: float = math.inf
    bytes: float = math.inf
    """Of operands and result, at most: they are made on the host."""

    def fit(self, text, flops):
        head = text[: text.index("{")]
        shapes = re.findall(r"<([0-9x]+)x[a-z]", head)
        moved = 2 * sum(math.prod(map(int, shape.split("x"))) for shape in shapes)
        return moved <= self.bytes and self.us[0] <= 1e6 * max(flops / self.flops, moved / self.rate) <= self.us[1]


SIZES = {"cpu": Sizes("f32", 1), "cuda": Sizes("bf16", 8, (5, 300), 600e12, 5e12, 128e6)}


def function(args, lines, result):
    given = ", ".join(f"%{name}: tensor<{shape}>" for name, shape in args)
    body = "".join(f"  {line}\n" for line in lines)
    return f"func.func @main({given}) -> tensor<{result}> {{\n{body}  func.return %out\n}}\n"


def size(rng, low, high):
    """Of any magnitude; mostly a multiple of 8, as sizes are."""
    n = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    return n if rng.random() < 0.3 else max(8, n // 8 * 8)


def product(rng, sizes):
    elem = sizes.elem
    batch = rng.choice([1, 1, 1, size(rng, 2, 24)])
    m, n, k = (size(rng, 16, sizes.scale * (1024 if batch == 1 else 192)) for _ in range(3))
    turned = rng.random() < 0.5
    right = f"{batch}x{n}x{k}x{elem}" if turned else f"{batch}x{k}x{n}x{elem}"
    attrs = f"{{lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [{2 if turned else 1}]}}"
    shape = f"{batch}x{m}x{n}x{elem}"
    lines = [f"%z = core.dot %x, %y {attrs} : tensor<{shape}>", f"%out = core.tanh %z : tensor<{shape}>"]
    if rng.random() < 0.6:
        lines = [lines[0].replace("%z", "%out")]
    return function([("x", f"{batch}x{m}x{k}x{elem}"), ("y", right)], lines, shape), 2 * batch * m * n * k


def reduction(rng, sizes):
    elem = sizes.elem
    shape = [size(rng, 1, 512 * sizes.scale), size(rng, 8, 2048 * sizes.scale), rng.choice([1, size(rng, 2, 64)])]
    dims = rng.choice([[0], [1], [2], [1, 2], [0, 2]])
    out = "x".join([str(n) for i, n in enumerate(shape) if i not in dims] + [elem])
    given = "x".join(map(str, shape)) + f"x{elem}"
    lines = [f"%e = core.abs %x : tensor<{given}>", f"%out = core.reduce %e {{dims = {dims}, kind = {rng.choice(['add', 'max'])}}} : tensor<{out}>"]
    return function([("x", given)], lines, out), 0


def pointwise(rng, sizes):
    elem = sizes.elem
    shape = [size(rng, 1, 1024 * sizes.scale), size(rng, 8, 4096 * sizes.scale)]
    given = "x".join(map(str, shape)) + f"x{elem}"
    lines, value = [], "%x"
    for i in range(rng.randint(1, 5)):
        op = rng.choice(["exp", "tanh", "abs", "neg", "add", "mul"])
        operands = f"{value}, %y" if op in ("add", "mul") else value
        lines.append(f"%v{i} = core.{op} {operands} : tensor<{given}>")
        value = f"%v{i}"
    if rng.random() < 0.3:
        out = f"{shape[1]}x{shape[0]}x{elem}"
        lines.append(f"%out = core.transpose {value} {{perm = [1, 0]}} : tensor<{out}>")
    else:
        out = given
        lines.append(f"%out = core.add {value}, %y : tensor<{out}>")
    return function([("x", given), ("y", given)], lines, out), 0


def attention(rng, sizes):
    elem = sizes.elem
    batch, heads, width = rng.choice([1, 2, 4]), rng.choice([2, 4, 12]), rng.choice([32, 64, 128])
    queries, keys = size(rng, 1, 512 * sizes.scale), size(rng, 16, 1024 * sizes.scale)
    shape = [f"{batch}x{heads}x{n}x{width}x{elem}" for n in (queries, keys)]
    causal = str(queries <= keys and rng.random() < 0.5).lower()
    line = f"%out = core.attention %q, %k, %v {{causal = {causal}, scale = {width**-0.5:.6f}}} : tensor<{shape[0]}>"
    text = function([("q", shape[0]), ("k", shape[1]), ("v", shape[1])], [line], shape[0])
    return text, 4 * batch * heads * queries * keys * width / (2 if causal == "true" else 1)


def norm(rng, sizes):
    elem = sizes.elem
    rows, n = size(rng, 1, 2048 * sizes.scale), size(rng, 16, 4096 * sizes.scale)
    given, row = f"{rows}x{n}x{elem}", f"{rows}x{elem}"
    again = f"core.broadcast {{}} {{{{dims = [0]}}}} : tensor<{given}>"
    lines = [
        f"%top = core.reduce %x {{dims = [1], kind = max}} : tensor<{row}>",
        "%tops = " + again.format("%top"),
        f"%d = core.sub %x, %tops : tensor<{given}>",
        f"%e = core.{rng.choice(['exp', 'abs'])} %d : tensor<{given}>",
        f"%sum = core.reduce %e {{dims = [1], kind = add}} : tensor<{row}>",
        "%sums = " + again.format("%sum"),
        f"%out = core.div %e, %sums : tensor<{given}>",
    ]
    return function([("x", given)], lines, given), 0


FAMILIES = [product, reduction, pointwise, attention, norm]


def drawn(rng, family, sizes):
    """The text of a kernel that takes as long as it should."""
    while True:
        text, flops = family(rng, sizes)
        if sizes.fit(text, flops):
            return text


def ranks(values):
    """Ranks from 0, of equal values their mean."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at : end + 1]:
            out[i] = (at + end) / 2
        at = end + 1
    return out


def correlation(a, b):
    """Spearman's; None where one of them is the same everywhere."""
    a, b = ranks(a), ranks(b)
    means = [sum(x) / len(x) for x in (a, b)]
    spread = [sum((v - m) ** 2 for v in x) for x, m in zip((a, b), means)]
    if not all(spread):
        return None
    return sum((x - means[0]) * (y - means[1]) for x, y in zip(a, b)) / math.sqrt(spread[0] * spread[1])


def measured(rc_tune, path, options, env):
    command = [rc_tune, "--candidates", f"--device={options.device}", f"--top={options.top}", path]
    command += [f"--target-file={options.target_file}"] if options.target_file else []
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{path.read_text()}\n{done.stderr}")
    kernels = {}
    for row in csv.DictReader(done.stdout.splitlines(), delimiter="\t"):
        kernels.setdefault(row["kernel"], []).append((float(row["model_us"]), float(row["us"]), row["origin"], row["candidate"]))
    return kernels.values()


def summary(name, kernels):
    """A line; `kernels` have the candidates' predicted and measured times, the pick's first."""
    chosen = [c for c in kernels if len(c) > 1]
    if not chosen:
        return
    slower = [c[0][1] / min(x[1] for x in c) for c in chosen]
    inside = [r for c in chosen if (r := correlation([x[0] for x in c], [x[1] for x in c])) is not None]
    across = correlation([c[0][0] for c in kernels], [c[0][1] for c in kernels])
    mean = math.exp(sum(map(math.log, slower)) / len(slower))
    print(
        f"{name:10} {len(chosen):4} kernels with a choice: pick within 10 % of the best {sum(s <= 1.1 for s in slower) / len(slower):5.1%}, "
        f"slower by {mean - 1:5.1%}, at worst {max(slower):.2f}; rank correlation of candidates {sum(inside) / max(1, len(inside)):.2f}, "
        f"of picks {across if across is not None else float('nan'):.2f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where rc-tune is")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after so many no further kernel is begun")
    parser.add_argument("--target-file", type=Path, help="the figures of the machine at hand")
    parser.add_argument("--csv", type=Path, help="all times, as text")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    env = {**os.environ, "RC_NUM_THREADS": str(options.threads)}
    families, rows = {f.__name__: [] for f in FAMILIES}, []
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ir"
        for i in range(options.count):
            if time.monotonic() > end:
                break
            family = FAMILIES[i % len(FAMILIES)]
            path.write_text(drawn(rng, family, SIZES[options.device]))
            for candidates in measured(options.folder / "rc-tune", path, options, env):
                families[family.__name__].append(candidates)
                rows += [(i, family.__name__, *c) for c in candidates]
    if options.csv:
        with options.csv.open("w", newline="") as out:
            csv.writer(out).writerows([("number", "family", "model_us", "us", "origin", "candidate"), *rows])
    for name, kernels in families.items():
        summary(name, kernels)
    summary("all", [k for kernels in families.values() for k in kernels])


if __name__ == "__main__":
    main()
