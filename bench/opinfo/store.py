"""What has run, kept in a file of JSON lines for each kind of run, so that a run goes on where the last one ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

STATES = ("native", "fallback", "wrong", "error", "crash", "no graph", "skipped")
WORST = ("crash", "wrong", "error", "fallback", "native", "no graph", "skipped")


@dataclass
class Op:
    """An operation's samples so far."""

    samples: dict[int, dict] = field(default_factory=dict)
    all: bool = False
    """Whether these are all that there are."""
    note: str | None = None

    @property
    def next(self) -> int:
        return max(self.samples, default=-1) + 1

    @property
    def state(self) -> str:
        """The worst of its samples."""
        found = {s["state"] for s in self.samples.values()}
        return next((s for s in WORST if s in found), "skipped")

    def notes(self, state: str) -> list[str]:
        return [s["note"] for s in self.samples.values() if s["state"] == state and s.get("note")]


class Store:
    """The results of a kind of run: a device, an element type, with or without gradients."""

    def __init__(self, folder: Path, device: str, dtype: str, grad: bool):
        self.device, self.dtype, self.grad = device, dtype, grad
        self.path = folder / f"{device}-{dtype}{'-grad' if grad else ''}.jsonl"
        self.ops: dict[str, Op] = {}
        self.torch: set[str] = set()
        """Versions of PyTorch that its samples ran on."""
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._apply(json.loads(line))

    @property
    def title(self) -> str:
        return self.dtype + (", gradients" if self.grad else "") + ("" if self.device == "cpu" else f", {self.device}")

    def _apply(self, line: dict):
        op = self.ops.setdefault(line["op"], Op())
        if "forget" in line:
            self.ops[line["op"]] = Op()
        elif "sample" in line:
            op.samples[line["sample"]] = line
        else:
            op.all, op.note = line["all"], line.get("note")
            self.torch.update({line["torch"].split("+")[0]} if "torch" in line else ())

    def add(self, line: dict):
        self._apply(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as f:
            f.write(json.dumps(line) + "\n")

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each state, how many operations and how many samples."""
        ops, samples = dict.fromkeys(STATES, 0), dict.fromkeys(STATES, 0)
        for op in self.ops.values():
            ops[op.state] += 1
            for s in op.samples.values():
                samples[s["state"]] += 1
        return {s: (ops[s], samples[s]) for s in STATES}
