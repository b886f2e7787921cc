"""PyTorch's own operator tests (OpInfo) through `torch.compile(…, backend="rc", fullgraph=True)`, compared with eager.

    python bench/torch_opinfo.py [--ops REGEX] [--dtype float32] [--samples N] [--grad] [--jobs N] [--table FILE] [--json FILE]

Each operation's first samples run in worker processes, so that a crash is one operation's. An operation counts by its worst sample:

    native    all of it is rc's compiled code, and the results are right
    fallback  right, with some operations run by PyTorch (options={"fallback": True})
    wrong     results differ from eager by more than the dtype allows (and, measured against float64, by much more than eager does)
    error     neither compiles; crash: the process died or hung
    no graph  Dynamo had nothing to compile, or cannot capture the operation

Results of random operations are judged by dtype, shape and moments; those of uninitialized memory by dtype and shape.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import time
import warnings
from collections import Counter

STATES = ("native", "fallback", "wrong", "error", "crash", "no graph", "skipped")
UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
RANDOM = re.compile(r"rand|multi_head_attention|normal|bernoulli|multinomial|dropout|exponential|cauchy|geometric|uniform|rrelu|fractional_max_pool|alpha_dropout")


# The worker: reads an operation's number, writes a line of JSON.


def worker(args):
    warnings.filterwarnings("ignore")
    import logging

    import torch
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.common_methods_invocations import op_db

    # Dynamo cannot trace the fresh generators that some operations' tests wrap around them; the seed is set here instead.
    common_methods_invocations.wrapper_set_seed = lambda op, *a, **k: op(*a, **k)
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch._dynamo.config.suppress_errors = False
    # The channel to the parent is a copy of stdout, which the operations may write to.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    channel.write("ready\n")
    for line in sys.stdin:
        index = int(line)
        channel.write(json.dumps(run_op(op_db[index], args)) + "\n")


def name_of(op) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def run_op(op, args) -> dict:
    import torch

    dtype = getattr(torch, args.dtype)
    result = {"name": name_of(op), "states": [], "notes": []}
    if dtype not in op.supported_dtypes("cpu") or (args.grad and not op.supports_autograd):
        return result | {"state": "skipped"}
    torch.manual_seed(0)
    try:
        samples = op.sample_inputs("cpu", dtype, requires_grad=args.grad)
        samples = [s for s, _ in zip(samples, range(args.samples))]
    except Exception as e:  # noqa: BLE001 - the test's own preparation fails
        return result | {"state": "skipped", "notes": [f"samples: {e}"[:300]]}
    for sample in samples:
        state, note = run_sample(op, sample, dtype, args)
        result["states"].append(state)
        if note:
            result["notes"].append(note)
    worst = [s for s in ("crash", "wrong", "error", "fallback", "native", "no graph", "skipped") if s in result["states"]]
    result["state"] = worst[0] if worst else "skipped"
    return result


def run_sample(op, sample, dtype, args):
    import torch

    try:
        torch.manual_seed(1)
        expected = call(op, sample, args, lambda f: f)
    except Exception as e:  # noqa: BLE001
        return "skipped", f"eager: {e}"[:300]
    for state, options in (("native", {}), ("fallback", {"fallback": True})):
        torch._dynamo.reset()
        ran = Counter()
        try:
            torch.manual_seed(1)
            actual = call(op, sample, args, lambda f: torch.compile(f, backend=counting(ran, options), fullgraph=True))
        except Exception as e:  # noqa: BLE001
            text = f"{type(e).__name__}: {e}"
            if not ran:
                return "no graph", note_of(e)
            unsupported = "UnsupportedOps" in text
            note = reason(text)
            if unsupported and state == "native":
                first = note
                continue
            return "error", note
        if not ran:
            return "no graph", None
        problem = differs(op, sample, dtype, args, expected, actual)
        if problem:
            return "wrong", f"{state}: {problem}"[:600]
        return state, (first if state == "fallback" else None)
    return "error", note


def counting(ran: Counter, options: dict):
    from rc.torch.backend import rc

    def backend(gm, inputs):
        ran["graphs"] += 1
        return rc(gm, inputs, options=options)

    return backend


def note_of(e) -> str:
    return f"{type(e).__name__}: {str(e).splitlines()[0]}"[:200]


def reason(text: str) -> str:
    lines = [l.strip() for l in text.splitlines() if l.strip()]
    ops = [l for l in lines if l.startswith(("aten.", "prims.", "higher_order", "_operator", "torch.", "<"))]
    return "; ".join(ops)[:500] if ops else " ".join(lines)[:500]


def call(op, sample, args, wrap):
    """The operation's results, and its gradients where they are asked for."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_map

    fresh = lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
    inputs, extra, kwargs = tree_map(fresh, (sample.input, sample.args, sample.kwargs))
    f = wrap(lambda *a, **k: op(*a, **k))
    out = f(inputs, *extra, **kwargs)
    if not args.grad:
        return out
    out = sample.output_process_fn_grad(out)
    outs = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [x for x in tree_flatten((inputs, extra, kwargs))[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.manual_seed(2)
    weights = [torch.randn_like(o) for o in outs]
    grads = torch.autograd.grad(outs, leaves, weights, allow_unused=True) if outs and leaves else ()
    return out, grads


def differs(op, sample, dtype, args, expected, actual) -> str | None:
    import torch
    from torch.utils._pytree import tree_flatten

    a, b = tree_flatten(actual)[0], tree_flatten(expected)[0]
    if len(a) != len(b):
        return f"{len(a)} results, {len(b)} expected"
    reference = None
    for i, (x, y) in enumerate(zip(a, b)):
        if not isinstance(y, torch.Tensor):
            if x != y and not (isinstance(x, float) and x != x and y != y):
                return f"result {i} is {x}, {y} expected"
            continue
        if not isinstance(x, torch.Tensor) or x.dtype != y.dtype or x.shape != y.shape:
            return f"result {i} is {getattr(x, 'dtype', type(x))} {list(getattr(x, 'shape', []))}, {y.dtype} {list(y.shape)} expected"
        if op.name in UNINITIALIZED or op.name.split(".")[-1] in UNINITIALIZED:
            continue
        if close(x, y):
            continue
        if RANDOM.search(op.name) or sample.kwargs.get("dropout_p"):
            if moments_agree(x, y):
                continue
            return f"result {i}: moments differ"
        if op.name in ("sort", "argsort", "topk") and not x.is_floating_point() and same_order(op, sample, x, y):
            continue
        if reference is None:
            reference = in_float64(op, sample, args)
        if i < len(reference) and no_worse(x, y, reference[i]):
            continue
        return f"result {i}: {difference(x, y)}"
    return None


def close(x, y) -> bool:
    import torch

    try:
        torch.testing.assert_close(x, y, equal_nan=True)
        return True
    except AssertionError:
        return False


def difference(x, y) -> str:
    import torch

    try:
        torch.testing.assert_close(x, y, equal_nan=True)
    except AssertionError as e:
        return " ".join(str(e).split())
    return "equal"


def moments_agree(x, y) -> bool:
    import torch

    if x.numel() < 30:
        return True
    x, y = x.to(torch.float64), y.to(torch.float64)
    spread = max(y.std(unbiased=False).item(), x.std(unbiased=False).item(), 1e-6)
    return abs(x.mean() - y.mean()).item() <= 6 * spread / max(x.numel(), 1) ** 0.5 + 1e-6


def same_order(op, sample, x, y) -> bool:
    """Whether two lists of places name equal elements: equal ones may come in any order."""
    numbers = [a for a in (*sample.args, *sample.kwargs.values()) if isinstance(a, int) and not isinstance(a, bool)]
    at = 1 if op.name == "topk" else 0
    dim = sample.kwargs.get("dim", numbers[at] if len(numbers) > at and "dim" not in sample.kwargs else -1)
    v = sample.input.detach()
    return v.dim() == 0 or close(v.gather(dim, x), v.gather(dim, y))


def in_float64(op, sample, args) -> list:
    """The results in float64, the reference for what rounding explains."""
    import torch
    from torch.utils._pytree import tree_flatten

    narrow = (torch.float32, torch.float16, torch.bfloat16)
    wide = sample.transform(lambda x: x.detach().double().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) and x.dtype in narrow else x)
    try:
        torch.manual_seed(1)
        return tree_flatten(call(op, wide, args, lambda f: f))[0]
    except Exception:  # noqa: BLE001 - not every operation takes float64
        return []


def no_worse(x, y, reference) -> bool:
    """Whether rc's error is within four times eager's, or a few units of the dtype's rounding."""
    import torch

    if not isinstance(reference, torch.Tensor) or not x.is_floating_point() or reference.is_complex() or reference.shape != x.shape:
        return False
    r = reference.detach().double()
    mine, eager = (x.detach().double() - r).abs(), (y.detach().double() - r).abs()
    same = (x.isnan() & r.isnan()) | (x.double() == r) | (x.isnan() & y.isnan()) | (x == y)
    scale = r[r.isfinite()].abs().max().item() if r.isfinite().any() else 1.0
    allowed = 4 * eager[eager.isfinite()].max().item() if eager.isfinite().any() else 0.0
    allowed = max(allowed, 16 * torch.finfo(x.dtype).eps * scale)
    return bool((same | (mine <= allowed)).all())


# The parent.


class Worker:
    def __init__(self, argv):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker", *argv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
        self.index, self.since = None, time.time()
        self.ready = False

    def give(self, index):
        self.index, self.since = index, time.time()
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()


def main():
    args, argv = arguments()
    if args.worker:
        return worker(args)
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    todo = [i for i, op in enumerate(op_db) if re.search(args.ops, name_of(op))]
    if args.limit:
        todo = todo[:: max(1, len(todo) // args.limit)]
    results, done = {}, 0
    queue = list(reversed(todo))
    workers = [Worker(argv) for _ in range(min(args.jobs, len(queue)))]
    while len(results) < len(todo):
        for k, w in enumerate(workers):
            if w.index is None and w.ready and queue:
                w.give(queue.pop())
        readable, _, _ = select.select([w.process.stdout for w in workers], [], [], 1.0)
        for k, w in enumerate(workers):
            line = w.process.stdout.readline() if w.process.stdout in readable else None
            if line is not None and line.strip() == "ready":
                w.ready = True
                continue
            late = w.index is not None and time.time() - w.since > args.timeout
            if line:
                results[w.index], w.index = json.loads(line), None
            elif line == "" or late:
                w.process.kill()
                code = w.process.wait()
                if w.index is not None:
                    why = "no answer in time" if late else f"the process ended with {code}"
                    results[w.index] = {"name": name_of(op_db[w.index]), "state": "crash", "states": ["crash"], "notes": [why]}
                workers[k] = Worker(argv)
        if len(results) > done:
            done = len(results)
            last = list(results.values())[-1]
            if last["state"] in ("wrong", "error", "crash"):
                print(f"\r{last['state']}: {last['name']}: {'; '.join(last['notes'][:2])}", file=sys.stderr)
            print(f"\r{done}/{len(todo)} {last['name'][:50]:50s} {last['state']:10s}", end="", file=sys.stderr, flush=True)
    for w in workers:
        w.process.kill()
    print(file=sys.stderr)
    report([results[i] for i in todo], args)


def report(results, args):
    counts = Counter(r["state"] for r in results)
    samples = Counter(s for r in results for s in r["states"])
    print(summary(counts, samples))
    for state in ("crash", "wrong", "error"):
        for r in results:
            if r["state"] == state:
                print(f"{state}: {r['name']}: {'; '.join(r['notes'][:2])}")
    print("\nwhat falls back, by reason:")
    why = Counter(note for r in results if r["state"] == "fallback" for note in r["notes"][:1])
    for note, n in why.most_common(60):
        print(f"{n:4d} {note}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=0)
    if args.table:
        with open(args.table, "w") as f:
            f.write(page(results, counts, samples, args))


def summary(counts, samples) -> str:
    judged = sum(counts[s] for s in STATES if s not in ("no graph", "skipped"))
    lines = [f"{'':10s} {'operations':>12s} {'samples':>9s}"]
    for s in STATES:
        share = f"({100 * counts[s] / judged:.1f}%)" if judged and s not in ("no graph", "skipped") else ""
        lines.append(f"{s:10s} {counts[s]:12d} {samples[s]:9d} {share}")
    return "\n".join(lines)


def page(results, counts, samples, args) -> str:
    import torch

    what = f"first {args.samples} samples" if args.samples > 1 else "first sample"
    grad = " and gradients" if args.grad else ""
    out = ["<!-- Made by bench/torch_opinfo.py; run it again to change it. -->", "", "# PyTorch's operators through rc", ""]
    out += [f"PyTorch {torch.__version__}'s operator tests (OpInfo) on the CPU, {args.dtype}, each operation's {what}{grad}, with",
            "`fullgraph=True`, compared with eager. *Native* is all rc's compiled code; with *fallback*, some ATen operations run in PyTorch.", ""]  # fmt: skip
    out += ["| | operations | samples |", "|---|---|---|"]
    out += [f"| {s} | {counts[s]} | {samples[s]} |" for s in STATES]
    for state in ("wrong", "error", "crash", "fallback"):
        rows = [r for r in results if r["state"] == state]
        if rows:
            out += ["", f"## {state.capitalize()}", ""]
            out += [f"- `{r['name']}`: {r['notes'][0].replace('|', '/')[:200] if r['notes'] else ''}" for r in rows]
    out += ["", "## Native", "", ", ".join(f"`{r['name']}`" for r in results if r["state"] == "native"), ""]
    return "\n".join(out)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ops", default="", help="a regular expression that names match")
    p.add_argument("--limit", type=int, default=0, help="about this many operations, evenly spread")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--samples", type=int, default=1)
    p.add_argument("--grad", action="store_true")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--timeout", type=float, default=60)
    p.add_argument("--table")
    p.add_argument("--json")
    p.add_argument("--worker", action="store_true")
    args = p.parse_args()
    argv = ["--dtype", args.dtype, "--samples", str(args.samples)] + (["--grad"] if args.grad else [])
    return args, argv


if __name__ == "__main__":
    main()
