#!/usr/bin/env python3
"""Reduces the failing modules of test/reduce/ by rc-reduce and by mlir-reduce, the same test for both.

    python3 bench/reduce.py target/release [--only=NAME] [--mlir=FOLDER]

Both get the test as a command that runs rc-opt on every candidate; mlir-reduce works on the generic form. Sizes are operations and bytes
of the generic form; runs are those of the command. `rc, itself` is rc-reduce with the test in process (--still-fails), where it knows
from an error where to look.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tests(only):
    for path in sorted((ROOT / "test/reduce").glob("*.ir")):
        head = path.read_text().split("\n", 1)[0]
        found = re.match(r"// TEST: (fails|runs) (.*)", head)
        if found and (not only or only in path.stem):
            yield path, *found.groups()


def command(kind, text, rc_opt):
    """A shell command that holds where it ends with 0; %s is the module."""
    if kind == "fails":
        pipeline, error = text.rsplit(": ", 1)
        return f"{rc_opt} --pass-pipeline={shlex.quote(pipeline)} %s -o /dev/null 2>&1 | grep -q {shlex.quote(error)}"
    return text.replace("rc-opt", str(rc_opt), 1)


def script(folder, body):
    path = folder / "test.sh"
    path.write_text(f"#!/bin/bash\necho >> {folder}/runs\n{body}\n")
    path.chmod(0o755)
    return path


def size(path, rc_opt):
    generic = subprocess.run([rc_opt, "--print-op-generic", path], capture_output=True, text=True, check=True).stdout
    ops = len(re.findall(r'^\s*(?:%\S.* = )?"', generic, re.M))
    return ops - ('"builtin.module"' in generic), len(generic)


def measure(folder, run):
    (folder / "runs").write_text("")
    start = time.monotonic()
    done = subprocess.run(run, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().split("\n")[-1]
    return (folder / "runs").read_text().count("\n"), time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="the folder with rc-opt and rc-reduce")
    parser.add_argument("--only", default="", help="modules whose name has this in it")
    parser.add_argument("--mlir", type=Path, default=Path("/usr/lib/llvm-22/bin"), help="the folder with mlir-reduce")
    options = parser.parse_args()
    rc_opt, rc_reduce = (options.bin / n for n in ("rc-opt", "rc-reduce"))
    mlir = {n: options.mlir / n for n in ("mlir-reduce", "mlir-opt")}
    with_mlir = all(p.exists() for p in mlir.values())
    if not with_mlir:
        print(f"note: {options.mlir} has no mlir-reduce; rc-reduce alone", file=sys.stderr)
    rc_opt = rc_opt.resolve()
    print(f"{'module':18} {'':11} {'ops':>6} {'bytes':>8} {'runs':>6} {'s':>7}")
    for path, kind, text in tests(options.only):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            test = command(kind, text, rc_opt).replace("%t", f"{folder}/t.$$")
            small = folder / "small.ir"
            row = lambda name, ops, size, runs="", seconds="": print(
                f"{path.stem if not name else '':18} {name:11} {ops:6} {size:8} {runs:>6} {seconds:>7}", flush=True)
            row("", *size(path, rc_opt))

            def report(name, run):
                runs, seconds = measure(folder, run)
                if runs is None:
                    print(f"{'':18} {name:11} failed: {seconds}")
                else:
                    row(name, *size(small, rc_opt), runs, f"{seconds:.1f}")

            ours = script(folder, test.replace("%s", '"$1"'))
            report("rc", [rc_reduce, path, f"--test={ours} %s", "--jobs=1", "-o", small, "--quiet"])
            if kind == "fails":
                run = [rc_reduce, path, f"--still-fails={text.rsplit(': ', 1)[0]}", "--jobs=1", "-o", small]
                done = subprocess.run(run, capture_output=True, text=True)
                runs = re.search(r"(\d+) runs", done.stderr)
                row("rc, itself", *size(small, rc_opt), runs.group(1) if runs else "?")
            if with_mlir:
                generic, out = folder / "generic.mlir", folder / "out.mlir"
                generic.write_bytes(subprocess.run([rc_opt, "--print-op-generic", path], capture_output=True, check=True).stdout)
                # mlir-reduce prints functions in their own form, and takes a failing command for one that holds.
                back = f"{mlir['mlir-opt']} --allow-unregistered-dialect --mlir-print-op-generic"
                theirs = script(folder, f'{back} "$1" -o "$1.ir" 2>/dev/null || exit 0\n'
                                        f"if {test.replace('%s', chr(34) + '$1.ir' + chr(34))}; then code=1; else code=0; fi\nrm -f \"$1.ir\"\nexit $code")
                run = f"{mlir['mlir-reduce']} --allow-unregistered-dialect --reduction-tree=test={theirs} {generic} -o {out} && {back} {out} -o {small}"
                report("mlir-reduce", ["bash", "-c", run])


if __name__ == "__main__":
    main()
