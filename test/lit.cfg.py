# The suite by LLVM's lit: `lit test`. Programs are those of RC_BIN, or of target/release; a test runs in the repository's root.

import inspect
import os
import pathlib
import shutil

import lit.formats

root = pathlib.Path(__file__).resolve().parent.parent
programs = pathlib.Path(os.environ.get("RC_BIN", root / "target/release")).resolve()
llvm = pathlib.Path(os.environ.get("RC_LLVM_BIN", "/usr/lib/llvm-22/bin"))

# A failure that is expected is exit code 1: no panic, no signal. With --crash it is one of these. lit traces commands; this one is not
# traced, as tests read what goes to standard error.
NOT = """not() ( { set +x; } 2>/dev/null; crash=; if [ "$1" = --crash ]; then crash=1; shift; fi; "$@"; code=$?; \
if [ $crash ]; then [ $code -ge 101 ]; else [ $code -eq 1 ]; fi; )"""

config.name = "rc"
config.suffixes = [".ir"]
config.excludes = ["Inputs"]
# bash runs the tests: lit's own shell has no functions. From LLVM 23 on that has to be asked for twice.
bash = {"execute_external": True, "force_execute_external": True}
bash = {name: bash[name] for name in inspect.signature(lit.formats.ShTest).parameters if name in bash}
config.test_format = lit.formats.ShTest(**bash, preamble_commands=[f"cd {root}", "set -o pipefail", NOT])
config.test_source_root = str(root / "test")
config.test_exec_root = os.environ.get("RC_LIT_OUTPUT", str(root / "target/lit"))
config.environment["PATH"] = os.pathsep.join([str(programs), str(llvm), os.environ["PATH"]])
config.environment["LC_ALL"] = "C.UTF-8"
config.environment["RUST_BACKTRACE"] = "0"

flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
ptxas = [os.environ.get("RC_PTXAS"), *root.glob(".venv-ptxas/lib/*/site-packages/nvidia/*/bin/ptxas"), shutil.which("ptxas")]
ptxas = next((str(p) for p in ptxas if p), None)
if ptxas:
    config.environment["PATH"] = os.path.dirname(ptxas) + os.pathsep + config.environment["PATH"]
there = {
    "gpu": os.path.exists("/dev/nvidiactl"),
    "ptxas": ptxas is not None,
    "mlir-opt": (llvm / "mlir-opt").exists(),
    "avx2": " avx2 " in flags,
    "avx512": " avx512f " in flags,
}
config.available_features |= {name for name, is_there in there.items() if is_there}
