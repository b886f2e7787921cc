"""Work that a thread does while its caller goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Behind:
    """What another thread computes. A process that is forked meanwhile has none of its parent's threads, and computes it anew."""

    def __init__(self, work: Callable):
        self.work, self.process = work, os.getpid()
        self.future = ThreadPoolExecutor(1).submit(work)

    def result(self):
        """What was computed, once it is; or the error that was raised."""
        if self.process != os.getpid() and not self.future.done():
            self.__init__(self.work)
        return self.future.result()
