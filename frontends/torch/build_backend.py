"""maturin, with a look beforehand at what the build needs: without LLVM and MLIR it would end in a crate's panic after minutes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from maturin import *  # noqa: F403 - the hooks of a build backend
from maturin import build_editable as _editable
from maturin import build_wheel as _wheel
from maturin import prepare_metadata_for_build_wheel as _metadata

VERSION = "22"
ROOT = Path(__file__).resolve().parents[2]


class MissingTool(SystemExit):
    """What is missing, and what to install; pip shows it as the build's last lines."""

    def __init__(self, what: str, *hints: str):
        super().__init__("\n".join([f"error: rc-torch cannot be built: {what}", *(f"  help: {hint}" for hint in hints)]))


def prefix() -> Path:
    """Where LLVM is: what the environment says, else what the repository's settings for cargo say."""
    name = "MLIR_SYS_220_PREFIX"
    config = ROOT / ".cargo" / "config.toml"
    text = config.read_text() if config.exists() else ""
    found = re.search(rf'^{name}\s*=\s*"([^"]+)"', text, re.M)
    return Path(os.environ.get(name) or (found[1] if found else f"/usr/lib/llvm-{VERSION}"))


def check() -> None:
    """Raises `MissingTool` where cargo, LLVM or MLIR is missing."""
    if shutil.which("cargo") is None:
        raise MissingTool("cargo was not found", "install Rust 1.90 or newer from https://rustup.rs")
    install = (
        "`make setup` in the repository's root installs LLVM 22 with MLIR on Debian",
        "elsewhere, set MLIR_SYS_220_PREFIX and TABLEGEN_220_PREFIX to where LLVM 22 is installed, with MLIR and the development files",
    )
    at = prefix()
    config = at / "bin" / "llvm-config"
    if not config.exists():
        raise MissingTool(f"there is no LLVM {VERSION} in {at} (no {config})", *install)
    done = subprocess.run([config, "--version"], capture_output=True, text=True)
    if done.returncode != 0 or done.stdout.split(".")[0] != VERSION:
        raise MissingTool(f"{at} has LLVM {done.stdout.strip() or '?'}, and {VERSION} is needed", *install)
    if not (at / "include" / "mlir-c" / "IR.h").exists():
        raise MissingTool(f"the LLVM in {at} has no MLIR (no include/mlir-c)", *install)


def prepare_metadata_for_build_wheel(*args, **kwargs):
    check()
    return _metadata(*args, **kwargs)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(*args, **kwargs):
    check()
    return _wheel(*args, **kwargs)


def build_editable(*args, **kwargs):
    check()
    return _editable(*args, **kwargs)
