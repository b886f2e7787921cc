"""Hugging Face's accelerate, which `Trainer` compiles by, takes the names of backends that it lists: rc is one of them once `rc.torch` is imported, before or after."""

from __future__ import annotations

import importlib.util
import sys

MODULE = "accelerate.utils.dataclasses"


def _list(module) -> None:
    """Adds rc to a module's backends."""
    backends = getattr(module, "DynamoBackend", None)
    if backends is None or "RC" in backends._value2member_map_:
        return
    member = str.__new__(backends, "RC")
    member._name_ = member._value_ = "RC"
    backends._member_names_.append("RC")
    backends._member_map_["RC"] = backends._value2member_map_["RC"] = member


class _Later:
    """Adds it when the module is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _list(module)

            spec.loader.exec_module = exec_module
        return spec


def introduce() -> None:
    if MODULE in sys.modules:
        _list(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, _Later())
