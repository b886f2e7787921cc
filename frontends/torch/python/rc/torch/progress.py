"""A line on the terminal while something takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

PATIENCE = 1.5
"""Seconds before the line appears."""


@contextlib.contextmanager
def progress(what: str):
    """Says on standard error, where that is a terminal, what is being done and for how long, and takes the line away at the end."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    shown = threading.Thread(target=_show, args=(what, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(what: str, done: threading.Event):
    start = time.perf_counter()
    if done.wait(PATIENCE):
        return
    while True:
        sys.stderr.write(f"\r{what}: {time.perf_counter() - start:.0f} s")
        sys.stderr.flush()
        if done.wait(1):
            break
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
