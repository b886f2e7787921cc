"""The results as text, and as the page docs/torch-ops.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from opinfo.store import STATES, Store

JUDGED = ("native", "fallback", "wrong", "error", "crash")
DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool")


def stores(folder: Path) -> list[Store]:
    """All kinds of runs in a folder, in the page's order."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        device, dtype, *grad = path.stem.split("-")
        found.append(Store(folder, device, dtype, bool(grad)))
    return sorted(found, key=lambda s: (s.device, s.grad, DTYPES.index(s.dtype) if s.dtype in DTYPES else 99, s.dtype))


def summary(store: Store) -> str:
    counts = store.counts()
    judged = sum(counts[s][0] for s in JUDGED)
    lines = [f"{store.title:24s} {'operations':>12s} {'samples':>9s}"]
    for s in STATES:
        ops, samples = counts[s]
        share = f"({100 * ops / judged:.1f}%)" if judged and s in JUDGED else ""
        lines.append(f"{s:24s} {ops:12d} {samples:9d} {share}")
    own = sum("differentiated by rc" in op.notes("native") for op in store.ops.values())
    if store.grad:
        lines.append(f"{'differentiated by rc':24s} {own:12d}")
    for state in ("crash", "wrong", "error"):
        for name, op in store.ops.items():
            for i, s in op.samples.items():
                if s["state"] == state:
                    lines.append(f"{state}: {name} {i}: {s['note']}"[:300])
    why = Counter(note for op in store.ops.values() for note in {n.split(";")[0] for n in op.notes("fallback")})
    if why:
        lines += ["", "what falls back, by reason:", *(f"{n:4d} {note}" for note, n in why.most_common(60))]
    return "\n".join(lines)


def page(all_: list[Store]) -> str:
    versions = " and ".join(sorted({v for store in all_ for v in store.torch}))
    out = ["<!-- Made by bench/torch_opinfo.py; run it again to change it. -->", "", "# PyTorch's operators through rc", ""]
    out += [f"PyTorch {versions}'s operator tests (OpInfo) with `fullgraph=True`, compared with eager, and where they differ, with float64. An",
            "operation counts by its worst sample. *Native* is all rc's compiled code; with *fallback*, some ATen operations run in PyTorch",
            "(`options={\"fallback\": True}`); *wrong* differs by more than rounding; *error* does not compile; *crash* ends the process or",
            "takes too long. Apart from these are operations of which PyTorch makes no graph, or one that fails without rc too. Sizes that",
            "data gives, Fourier transforms and most of linear algebra stay PyTorch's.", ""]  # fmt: skip
    for what, index in (("Operations", 0), ("Samples", 1)):
        out += [f"## {what}", "", "| | " + " | ".join((*JUDGED, "no graph")) + " |", "|---" * (len(JUDGED) + 2) + "|"]
        for store in all_:
            counts = store.counts()
            title = store.title + (f", up to {_most(store)} of each" if index else "")
            out.append(f"| {title} | " + " | ".join(str(counts[s][index]) for s in (*JUDGED, "no graph")) + " |")
        out.append("")
    for store in all_:
        for state in ("wrong", "error", "crash"):
            rows = [(name, op) for name, op in store.ops.items() if op.notes(state)]
            if rows:
                out += [f"## {store.title}: {state}", ""]
                out += [f"- `{name}`: {_clean(op.notes(state)[0])}" for name, op in rows] + [""]
    out += _reasons(all_)
    for store in all_[:1]:
        native = [name for name, op in store.ops.items() if op.state == "native"]
        out += [f"## Native in {store.title}", "", ", ".join(f"`{name}`" for name in native), ""]
    return "\n".join(out)


def _reasons(all_: list[Store]) -> list[str]:
    """What runs in PyTorch and why: for each ATen operation and reason, the tests that meet it."""
    tests: dict[str, dict[str, None]] = {}
    for store in all_:
        for name, op in store.ops.items():
            for note in op.notes("fallback"):
                for reason in note.split("; "):
                    if not reason.startswith("<built-in"):
                        tests.setdefault(_clean(reason), {})[name] = None
    if not tests:
        return []
    out = ["## What runs in PyTorch", "", "| operation, reason | tests |", "|---|---|"]
    for reason, names in sorted(tests.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = list(names)[:6]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        out.append(f"| {reason} | {', '.join(f'`{n}`' for n in shown)}{more} |")
    return [*out, ""]


def _most(store: Store) -> int:
    """The most samples of an operation that ran."""
    return max((len(op.samples) for op in store.ops.values()), default=0)


def _clean(note: str) -> str:
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", note).replace("|", "/")[:200]
