#!/usr/bin/env python3
"""How much of other people's MLIR rc reads: every module below some folders that `mlir-opt` takes, in its generic form, through rc-opt and back.

    bench/interop.py target/release/rc-opt llvm-project/mlir/test/IR xdsl/tests/filecheck

A module counts as equal where `mlir-opt` prints the same of what rc-opt prints as of the module itself, or as of its own text. Modules that `mlir-opt` does not take (tests of
errors, dialects that it does not have) do not count. Exit code 1: less than --least percent come back equal.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

GENERIC = ["--allow-unregistered-dialect", "--mlir-print-op-generic"]


def run(command, text):
    """What a command writes, and whether it succeeds, with what it says."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "", "takes more than 60 s"
    except UnicodeDecodeError:
        return "", "writes what is not UTF-8"
    return done.stdout, None if done.returncode == 0 else done.stderr or f"exit code {done.returncode}"


def reason(said):
    """The first error, without names and numbers."""
    line = next((line for line in said.splitlines() if "error" in line or "panicked" in line), said.strip().split("\n")[0])
    line = re.sub(r"^.*?error: ", "", line)
    return re.sub(r"'[^']*'|[0-9]+", "_", line)[:120]


def try_module(text, rc_opt, mlir_opt):
    """(kind, why): not counted, equal, or what went wrong."""
    before, error = run([mlir_opt, *GENERIC], text)
    if error:
        return "skipped", ""
    through, error = run([rc_opt, "--allow-unregistered-dialect", "--print-op-generic"], before)
    if error:
        return "not read", reason(error)
    after, error = run([mlir_opt, *GENERIC], through)
    if error:
        return "not read back", reason(error)
    # Some modules (two maps that print alike) come back different from mlir-opt, too.
    equal = after == before or after == run([mlir_opt, *GENERIC], before)[0]
    return ("equal", "") if equal else ("different", "comes back different")


def modules(folders):
    for folder in folders:
        for file in sorted(pathlib.Path(folder).rglob("*.mlir")):
            text = file.read_text(errors="replace")
            for number, piece in enumerate(re.split(r"^// -----.*$", text, flags=re.MULTILINE)):
                yield f"{file}:{number}", piece


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rc_opt")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--mlir-opt", default="/usr/lib/llvm-22/bin/mlir-opt")
    parser.add_argument("--least", type=float, default=95.0, help="percent that have to come back equal")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the generic forms of modules that do not come back equal")
    options = parser.parse_args()

    all_modules = list(modules(options.folders))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda m: try_module(m[1], options.rc_opt, options.mlir_opt), all_modules))
    counted = [(name, text, kind, why) for (name, text), (kind, why) in zip(all_modules, outcomes) if kind != "skipped"]
    equal = sum(kind == "equal" for _, _, kind, _ in counted)
    reasons = collections.defaultdict(list)
    for name, text, kind, why in counted:
        if kind != "equal":
            reasons[f"{kind}: {why}"].append(name)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                generic, _ = run([options.mlir_opt, *GENERIC], text)
                (options.keep / (re.sub(r"\W+", "_", name) + ".mlir")).write_text(generic)
    percent = 100 * equal / max(len(counted), 1)
    print(f"{equal} of {len(counted)} modules come back equal, {percent:.1f} % ({len(all_modules) - len(counted)} are not taken by mlir-opt)")
    for why, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
        print(f"{len(names):5} {why}; as {names[0]}")
    return 0 if counted and percent >= options.least else 1


sys.exit(main())
