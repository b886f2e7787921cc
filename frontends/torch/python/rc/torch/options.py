"""Options of `torch.compile(…, backend="rc", options={…})`."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, fields
from pathlib import Path

import torch

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""What `mode=` may be, as PyTorch names them."""

INDUCTORS = {
    "triton.cudagraphs": 'options={"graphs": True}',
    "trace.enabled": 'options={"dump": "a directory"}',
    "trace.graph_diagram": 'options={"dump": "a directory"}',
    "max_autotune": 'mode="max-autotune"',
    "max_autotune_gemm": 'mode="max-autotune", which measures all kernels',
    "coordinate_descent_tuning": 'mode="max-autotune"',
    "epilogue_fusion": "rc always fuses what follows a product",
    "shape_padding": "rc's products take any sizes",
    "fallback_random": "rc's random numbers are its own",
    "freezing": "rc packs weights once by itself, and again when they change",
}
"""What is there in place of options of Inductor's."""


@dataclass(frozen=True)
class Options:
    """What a compile may be told."""

    fallback: bool = False
    """Operations that rc cannot compile run in PyTorch, between compiled parts, and are reported on the logger `rc.torch`."""

    dump: str | None = None
    """A directory that gets each graph as PyTorch traced it (`.fx.txt`) and as rc's text (`.ir`), what it was compiled to (`.compiled.ir`) and what the passes
    decided (`.remarks.txt`). RC_DUMP names it too."""

    graphs: bool = True
    """Launches on a GPU are CUDA graphs from the second call on, patched where a call's memory or sizes are others. `RC_GRAPHS=off` switches them off for the
    process. `rc.torch.graphs()` says what became of them."""

    emulate_precision_casts: bool = False
    """Rounds to 16 bits after each operation on bfloat16 and float16, as eager does. Without it, a kernel keeps the precision of float32 between
    its operations and rounds what it stores, as Inductor does; casts that the program asks for round in any case."""

    differentiate: bool = True
    """rc differentiates graphs of training itself, where it knows PyTorch's derivative of every operation. False: AOTAutograd does, as for the other
    graphs."""

    tune: bool = False
    """The best few schedules of each kernel are measured, and the fastest is taken: `mode="max-autotune"`, and without `graphs`
    `mode="max-autotune-no-cudagraphs"`."""

    tuning_file: str | None = None
    """The file of measured schedules, text to commit: with `tune` what it does not have is measured and added to it; without, it is only read. By
    default, with `tune`, `rc/torch.tuning` in the user's cache folder."""

    variants: int | None = None
    """Of a graph with symbolic sizes: how many programs may be compiled for ranges of sizes that calls come back to, beside the one for all sizes. By
    default 8 on a GPU and with `buckets`, else none: on a CPU each keeps what it computes of weights for itself. Each takes its time at the second call of such
    sizes. None is compiled while a CUDA graph is captured. `rc.torch.variants()` lists them."""

    behind: bool = False
    """Programs for ranges of sizes are compiled by another thread, while the one for all sizes serves."""

    buckets: tuple[int, ...] = ()
    """`[128, 256, 512]`: of a graph with symbolic sizes, sizes are filled up to the next of these, and each program is for one of them. It is a
    warning where rows of a result depend on one another, as in attention."""

    memory_limit: int | None = None
    """Bytes that the intermediate results of each graph take at most. Values are computed again where they are used to keep it; it is an error where that
    is not enough. Arguments, weights and results are not counted."""

    def programs(self, device: torch.device) -> tuple[int, bool, list[int]]:
        """How many programs for ranges of sizes there may be on a device, whether behind the calls, and for which buckets."""
        some = 8 if device.type != "cpu" or self.buckets else 0
        return some if self.variants is None else self.variants, self.behind, list(self.buckets)

    def measured(self) -> str | None:
        """The file of measured schedules to compile with, if any. The folder of the default one is made."""
        if self.tuning_file is not None or not self.tune:
            return self.tuning_file
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rc"
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder / "torch.tuning")

    @staticmethod
    def of(options: dict | None, mode: str | None) -> Options:
        if mode not in (None, *MODES):
            near = difflib.get_close_matches(mode, MODES, 1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; there are {', '.join(MODES)}"
            raise ValueError(f'rc has no mode "{mode}"{hint}')
        if mode is not None and mode.startswith("max-autotune"):
            options = {"tune": True, "graphs": mode == "max-autotune", **(options or {})}
        known = [f.name for f in fields(Options)]
        for name in options or {}:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f'; did you mean "{near[0]}"?' if near else f"; there are {', '.join(known)}"
                hint = f", which is Inductor's: {INDUCTORS[name]}" if name in INDUCTORS else hint
                raise ValueError(f'rc has no option "{name}"{hint}')
        chosen = Options(**{**(options or {}), "buckets": tuple((options or {}).get("buckets") or ())})
        for field in fields(Options):
            given = getattr(chosen, field.name)
            takes, fits = _TAKES.get(field.name) or _TAKES.get(field.type, (None, lambda _: True))
            if given is not None and not fits(given):
                raise ValueError(f"rc's option {field.name} is {takes}, not {given!r}")
        for bucket in chosen.buckets:
            if type(bucket) is not int or not 0 < bucket < 2**63:
                raise ValueError(f"rc's option buckets is a list of sizes from 1 to 2**63 - 1, not {chosen.buckets!r}")
        return chosen


_TAKES = {
    "bool": ("True or False", lambda given: type(given) is bool),
    "str | None": ("a path as text", lambda given: isinstance(given, str)),
    "variants": ("how many programs, from 0 to 2**31 - 1", lambda given: type(given) is int and 0 <= given < 2**31),
    "memory_limit": ("a number of bytes from 1 to 2**63 - 1", lambda given: type(given) is int and 0 < given < 2**63),
}
"""What an option may be besides None, by its name or its type."""


def dumps(options: Options) -> str | None:
    """The directory that gets graphs as text, where there is to be one: TORCH_COMPILE_DEBUG=1 has one in PyTorch's own."""
    directory = options.dump or os.environ.get("RC_DUMP")
    if not directory and os.environ.get("TORCH_COMPILE_DEBUG") == "1":
        directory = os.path.join(torch._dynamo.utils.get_debug_dir(), "rc")
    return directory or None
