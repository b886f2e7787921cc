"""Modules: programs at any stage."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rc import _native
from rc.model import Model


class Module:
    """A program, from tensors to machine code. Passes give new modules; a module itself never changes."""

    def __init__(self, native: _native.Module):
        self._module = native
        self.remarks: list[str] = []
        """What the passes that made it said."""

    def text(self, locations: bool = False) -> str:
        """The module as text, which `parse` reads."""
        return self._module.text(locations)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<rc.Module of {', '.join(self.functions) or 'no functions'}>"

    @property
    def functions(self) -> list[str]:
        """What its functions are called."""
        return self._module.functions()

    def run(self, passes: str, target: str | None = None) -> Module:
        """The module as passes leave it: `"decompose,canonicalize,fuse{max-ops=64}"`. `target`, as `host`, `x86-64-v3` or `sm_90a`, is the
        processor that they are for."""
        native, remarks = self._module.passes(passes, target)
        module = Module(native)
        module.remarks = remarks
        return module

    def lower(self, target: str = "host") -> Module:
        """The module with machine code for a processor, which need not be one of this machine."""
        return self.run(_native.pipeline(target), target)

    def compile(self, device: str = "cpu", variants: int = 0, behind: bool = False, buckets: Sequence[int] = ()) -> Model:
        """The first function, ready to run on `cpu`, `cuda` or `cuda:1`. Compiled code is kept in rc's cache on disk.

        `variants`: of a function of symbolic sizes, how many programs may be compiled for ranges of sizes that calls come back to, beside the one for all
        sizes. Each takes its time at the second call of such sizes, or, `behind`, another thread's, while the one for all sizes serves. `Model.variants`
        lists them. With `buckets=[128, 256]`, sizes are filled up to the next of these where no row of a result depends on others; it is a warning where
        the function does not allow it. Each takes what is declared constant from the first call that it serves."""
        return Model(self._module.model(device, (variants, behind, list(buckets))))

    def package(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] = ("host",),
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes a package for these processors, with arrays as the values of the arguments of their names."""
        self._module.write(os.fspath(path), list(targets), list((weights or {}).items()))


def parse(text: str, name: str = "<string>") -> Module:
    """The module that a text says. `name` is what errors call it."""
    return Module(_native.Module.parse(text, name))


def read(path: str | os.PathLike[str]) -> Module:
    """The module in a file."""
    with open(path, encoding="utf-8") as file:
        return parse(file.read(), os.fspath(path))
