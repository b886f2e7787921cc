"""PyTorch's own operator tests (OpInfo) through `torch.compile(…, backend="rc", fullgraph=True)`, compared with eager.

    python bench/torch_opinfo.py [--ops REGEX] [--dtypes float32,bfloat16] [--samples N] [--grad] [--device cuda] [--jobs N]
    python bench/torch_opinfo.py --samples all              # every sample; ends, or is ended, and goes on at the next call
    python bench/torch_opinfo.py --tables --jobs 16         # all runs of docs/torch-ops.md: some five minutes on 16 cores
    python bench/torch_opinfo.py --report                   # writes docs/torch-ops.md from what has run

Samples run in worker processes, so that a crash is one sample's. Results are kept in a folder (--store): what is there is not run again,
but for --again REGEX, and --again-bad for what was wrong, an error or a crash. A sample is

    native    all of it is rc's compiled code, and the results are right
    fallback  right, with some operations run by PyTorch (options={"fallback": True})
    wrong     results differ from eager by more than the dtype allows (and, measured against float64, by much more than eager does)
    error     does not compile; crash: the process died or hung
    no graph  Dynamo had nothing to compile, or PyTorch cannot trace the operation, or run its graph rightly (backend="aot_eager" fails or is as wrong)

and an operation counts by its worst. Results of random operations are judged by dtype, shape and moments; those of uninitialized memory
by dtype and shape.
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
from dataclasses import dataclass
from pathlib import Path

from opinfo import report
from opinfo.store import Store

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Task:
    """An operation's samples of one kind of run: those up to `stop`, or all."""

    store: Store
    op: str
    stop: int | None

    @property
    def next(self) -> int:
        return self.store.ops[self.op].next if self.op in self.store.ops else 0

    @property
    def done(self) -> bool:
        op = self.store.ops.get(self.op)
        return op is not None and (op.all or (self.stop is not None and op.next >= self.stop))

    def request(self) -> dict:
        store = self.store
        return {"op": self.op, "dtype": store.dtype, "device": store.device, "grad": store.grad, "start": self.next, "stop": self.stop}


class Worker:
    """A process that runs one task at a time."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
        self.task, self.sample, self.since, self.ready, self.text = None, 0, time.time(), False, b""

    def give(self, task: Task):
        self.task, self.sample, self.since = task, task.next, time.time()
        self.process.stdin.write((json.dumps(task.request()) + "\n").encode())

    def lines(self) -> list[dict] | None:
        """What it has said since; None where it has ended."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return None
        *whole, self.text = (self.text + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def end(self) -> int:
        self.process.kill()
        return self.process.wait()


class Run:
    """All tasks, in their order, on some workers."""

    def __init__(self, tasks: list[Task], args):
        self.args = args
        self.queue = [task for task in reversed(tasks) if not task.done]
        self.total, self.ended = len(self.queue), 0
        self.workers = [Worker() for _ in range(min(args.jobs, len(self.queue)))]

    def run(self):
        while self.ended < self.total:
            for w in self.workers:
                if w.task is None and w.ready and self.queue:
                    w.give(self.queue.pop())
            readable, _, _ = select.select([w.process.stdout for w in self.workers], [], [], 1.0)
            for k, w in enumerate(self.workers):
                lines = w.lines() if w.process.stdout in readable else []
                for line in lines or []:
                    self._heard(w, line)
                late = w.task is not None and time.time() - w.since > self.args.timeout
                if lines is None or late:
                    self._lost(w, late)
                    self.workers[k] = Worker()
        for w in self.workers:
            w.end()
        print(file=sys.stderr)

    def _heard(self, w: Worker, line: dict):
        if "ready" in line:
            w.ready = True
            return
        w.task.store.add(line)
        if "sample" in line:
            w.sample, w.since = line["sample"] + 1, time.time()
            if line["state"] in ("wrong", "error"):
                print(f"\r{w.task.store.title}: {line['state']}: {line['op']} {line['sample']}: {line['note']}", file=sys.stderr)
            return
        self._next(w)

    def _next(self, w: Worker):
        self.ended += 1
        print(f"\r{self.ended}/{self.total} {w.task.store.title} {w.task.op[:50]:50s}", end="", file=sys.stderr, flush=True)
        w.task = None

    def _lost(self, w: Worker, late: bool):
        code = w.end()
        if w.task is None:
            if not w.ready:
                sys.exit(f"a worker ends with {code} before it is ready: run `{' '.join(w.process.args)}` to see why")
            return
        why = f"no answer in {self.args.timeout:.0f} s" if late else f"the process ended with {code}"
        w.task.store.add({"op": w.task.op, "sample": w.sample, "state": "crash", "note": why})
        print(f"\r{w.task.store.title}: crash: {w.task.op} {w.sample}: {why}", file=sys.stderr)
        if w.task.done:
            self._next(w)
        else:
            # The samples after it are a new worker's.
            self.queue.append(w.task)


def main():
    args = arguments()
    if args.worker:
        from opinfo.worker import serve

        return serve()
    warnings.filterwarnings("ignore")
    if not args.report:
        from opinfo.names import operations

        todo = [name for name in operations() if re.search(args.ops, name)]
        if args.limit:
            todo = todo[:: max(1, len(todo) // args.limit)]
        tasks = []
        for device, dtype, grad, samples in kinds(args):
            store = Store(args.store, device, dtype, grad)
            for name in todo:
                if name in store.ops and again(store.ops[name], name, args):
                    store.add({"op": name, "forget": True})
                tasks.append(Task(store, name, None if samples == "all" else int(samples)))
        Run(tasks, args).run()
        for store in dict.fromkeys(task.store for task in tasks):
            print(report.summary(store), end="\n\n")
    elif not args.page:
        args.page = ROOT / "docs" / "torch-ops.md"
    if args.page:
        args.page.write_text(report.page(report.stores(args.store)))


def kinds(args) -> list[tuple]:
    """The kinds of runs that are asked for: (device, element type, gradients, samples)."""
    if not args.tables:
        return [(args.device, dtype, args.grad, args.samples) for dtype in args.dtypes.split(",")]
    import torch

    on_gpu = [("cuda", "float32", False, "1"), ("cuda", "bfloat16", False, "1")] if torch.cuda.is_available() else []
    more = [("cpu", dtype, False, "1") for dtype in report.DTYPES if dtype != "float32"]
    return [("cpu", "float32", False, "all"), ("cpu", "float32", True, "1"), *on_gpu, *more]


def again(op, name: str, args) -> bool:
    return bool(args.again and re.search(args.again, name)) or (args.again_bad and op.state in ("wrong", "error", "crash"))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ops", default="", help="a regular expression that names match")
    p.add_argument("--limit", type=int, default=0, help="about this many operations, evenly spread")
    p.add_argument("--dtypes", default="float32")
    p.add_argument("--device", default="cpu")
    p.add_argument("--samples", default="1", help='how many of each operation, or "all"')
    p.add_argument("--tables", action="store_true", help="all the runs of docs/torch-ops.md: every float32 sample, others' first; CUDA where a GPU is")
    p.add_argument("--grad", action="store_true", help="gradients too")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--timeout", type=float, default=120, help="seconds for a sample")
    p.add_argument("--store", type=Path, default=ROOT / "target" / "opinfo", help="the folder of results")
    p.add_argument("--again", help="operations whose results are forgotten, a regular expression")
    p.add_argument("--again-bad", action="store_true", help="forgets operations that were wrong, an error or a crash")
    p.add_argument("--page", type=Path, help="a file for the tables of all that is in the store")
    p.add_argument("--report", action="store_true", help="runs nothing: writes the page")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


if __name__ == "__main__":
    main()
