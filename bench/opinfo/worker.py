"""Runs samples: reads requests as lines of JSON (`Task.request` in bench/torch_opinfo.py) and writes a line for each sample."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter

import torch

# Before PyTorch's test library, which freezes such settings.
torch.backends.cudnn.allow_tf32 = False

from torch.testing._internal import common_methods_invocations  # noqa: E402

from opinfo.judge import call, differs  # noqa: E402
from opinfo.names import operations  # noqa: E402


class Reports(logging.Handler):
    """What the frontend says about operations that run in PyTorch."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record):
        self.seen.append(record.getMessage().split(" (at ")[0].replace(" runs in PyTorch", ""))


def serve():
    warnings.filterwarnings("ignore")
    # Dynamo cannot trace the fresh generators that some operations' tests wrap around them; the seed is set here instead.
    common_methods_invocations.wrapper_set_seed = lambda op, *a, **k: op(*a, **k)
    torch.set_num_threads(1)
    torch._dynamo.config.suppress_errors = False
    torch._logging.set_logs(all=logging.CRITICAL)
    reports = Reports()
    logger = logging.getLogger("rc.torch")
    logger.handlers, logger.propagate = [reports], False
    # The channel to the parent is a copy of stdout, which the operations may write to.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    say = lambda **line: channel.write(json.dumps(line) + "\n")
    table = operations()
    say(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        op = table[request["op"]]
        dtype = getattr(torch, request["dtype"])
        for result in run_op(op, request["start"], request["stop"], dtype, request["device"], request["grad"], reports):
            say(op=request["op"], **result)


def run_op(op, start: int, stop: int | None, dtype, device: str, grad: bool, reports: Reports):
    if dtype not in op.supported_dtypes(device) or (grad and not op.supports_autograd):
        yield {"end": 0, "all": True}
        return
    torch.manual_seed(0)
    try:
        # One more than asked for says whether there are more.
        samples = list(itertools.islice(op.sample_inputs(device, dtype, requires_grad=grad), None if stop is None else stop + 1))
    except Exception as e:  # noqa: BLE001 - the test's own preparation fails
        yield {"end": 0, "all": True, "note": f"samples: {e}"[:300]}
        return
    end = len(samples) if stop is None else min(stop, len(samples))
    for i in range(start, end):
        since = time.perf_counter()
        state, note = run_sample(op, samples[i], device, grad, reports)
        yield {"sample": i, "state": state, "note": note, "seconds": round(time.perf_counter() - since, 3)}
    yield {"end": end, "all": end == len(samples), "torch": torch.__version__}


def run_sample(op, sample, device: str, grad: bool, reports: Reports):
    try:
        torch.manual_seed(1)
        expected = call(op, sample, grad, lambda f: f)
    except Exception as e:  # noqa: BLE001
        return "skipped", f"eager: {e}"[:300]
    torch._dynamo.reset()
    ran = Counter()
    reports.seen.clear()
    try:
        torch.manual_seed(1)
        actual = call(op, sample, grad, lambda f: torch.compile(f, backend=_counting(ran), fullgraph=True))
    except Exception as e:  # noqa: BLE001
        # A graph that Dynamo cannot capture is its own; an error of eager's own backward is no one's here.
        if not ran or isinstance(without_rc(op, sample, grad), Exception):
            return "no graph", _first_line(e)
        return "error", " ".join(f"{type(e).__name__}: {e}".split())[:500]
    if not ran:
        return "no graph", None
    problem = differs(op, sample, grad, expected, actual)
    state = "fallback" if reports.seen else "native"
    own = "differentiated by rc" if grad and ran["own"] == ran["graphs"] else None
    if problem:
        traced = without_rc(op, sample, grad)
        if not isinstance(traced, Exception) and differs(op, sample, grad, traced, actual) is None:
            return "no graph", f"PyTorch's graph differs from eager: {problem}"[:300]
        return "wrong", f"{state}: {problem}"[:600]
    return state, "; ".join(dict.fromkeys(reports.seen))[:500] or own


def without_rc(op, sample, grad: bool):
    """What PyTorch makes of the graph by itself: the results, or the error that it ends with."""
    torch._dynamo.reset()
    try:
        torch.manual_seed(1)
        return call(op, sample, grad, lambda f: torch.compile(f, backend="aot_eager", fullgraph=True))
    except Exception as e:  # noqa: BLE001
        return e


def _counting(ran: Counter):
    from rc.torch.backend import rc
    from rc.torch.training import Step

    def backend(gm, inputs):
        ran["graphs"] += 1
        found = rc(gm, inputs, options={"fallback": True})
        ran["own"] += isinstance(found, Step)
        return found

    return backend


def _first_line(e) -> str:
    return f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}"[:200]
