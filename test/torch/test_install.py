"""`pip install .` says what is missing before it builds anything."""

import importlib.util
from pathlib import Path

import pytest

BACKEND = Path(__file__).resolve().parents[2] / "frontends" / "torch" / "build_backend.py"


@pytest.fixture
def backend():
    pytest.importorskip("maturin")
    spec = importlib.util.spec_from_file_location("build_backend", BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def llvm(at: Path, version: str, mlir: bool = True) -> Path:
    """What looks like an installed LLVM."""
    config = at / "bin" / "llvm-config"
    config.parent.mkdir(parents=True)
    config.write_text(f"#!/bin/sh\necho {version}\n")
    config.chmod(0o755)
    if mlir:
        (at / "include" / "mlir-c").mkdir(parents=True)
        (at / "include" / "mlir-c" / "IR.h").touch()
    return at


@pytest.mark.parametrize(
    "version, mlir, expected",
    [(None, False, "there is no LLVM 22 in"), ("19.1.7", True, "has LLVM 19.1.7, and 22 is needed"), ("22.1.0", False, "has no MLIR")],
)
def test_what_is_missing(backend, monkeypatch, tmp_path, version, mlir, expected):
    monkeypatch.setenv("MLIR_SYS_220_PREFIX", str(llvm(tmp_path / "llvm", version, mlir) if version else tmp_path))
    for hook in (backend.build_wheel, backend.build_editable, backend.prepare_metadata_for_build_wheel):
        with pytest.raises(SystemExit, match=expected) as error:
            hook(str(tmp_path))
        assert "help: `make setup`" in str(error.value) and "MLIR_SYS_220_PREFIX" in str(error.value)


def test_no_cargo(backend, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="cargo was not found"):
        backend.check()


def test_nothing_is_missing(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("MLIR_SYS_220_PREFIX", str(llvm(tmp_path / "llvm", "22.1.8")))
    monkeypatch.setattr(backend.shutil, "which", lambda name: name)
    backend.check()
