"""Arenas beside their lower bounds, and what planning takes of compiling, for graphs in text.

    RC_DUMP=graphs python MODEL.py          # torch.compile(…, backend="rc") writes each graph as text
    bench/plans.py target/release/rc-opt --target cuda graphs/*.ir

For each planned function of two launches or more: bytes of its buffers, the arena, the lower bound, their ratio; for each file the share of all passes' time, machine code included, that
`plan-buffers` has. The exit status is 1 where a ratio is above 1.01, or a file's share above 5 %.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

PASSES = "decompose,canonicalize,cse,dce,layout,hoist-constants,in-parts,{spread}fuse,cse,lower-kernel,plan-buffers,{last}"
SPREAD = "align-products,cse,split-scans,order-scatters,split-sorts,"
PLANNED = re.compile(r"(\d+) buffers of (.+?) bytes in all lie in an arena of (.+?) bytes; .*?no plan needs less than (\d+)")
PLACES = re.compile(r"greatest values (\d+) were planned")


def run(tool, path, target):
    passes = PASSES.format(spread=SPREAD if target == "cuda" else "", last=f"lower-{target}")
    command = [tool, f"--target={target}", "--no-verify-each", "--remarks", "--timing", f"--pass-pipeline={passes}", path, "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{path}: " + "\n".join(done.stderr.splitlines()[-8:]))
    return done.stderr


def share(text):
    """Seconds of planning, and of all passes."""
    times = re.findall(r"^ *([\d.]+) \( *[\d.]+%\)  (\S.*)$", text, re.M)
    of = lambda wanted: sum(float(seconds) for seconds, name in times if name.strip() == wanted)
    return of("plan-buffers"), of("Total")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", help="rc-opt, of a release build")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--target", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    worst, slow = 1.0, False
    for path in options.files:
        text = run(options.tool, path, options.target)
        for found in PLANNED.finditer(text):
            count, total, size, bound = found[1], found[2], found[3], int(found[4])
            planned = int(size) if size.isdigit() else int(PLACES.search(found[0])[1])
            ratio = planned / bound if bound else 1.0
            worst = max(worst, ratio)
            print(f"{Path(path).name:36} {count:>5} buffers {planned / 2**20:10.1f} MiB, bound {bound / 2**20:10.1f} MiB: {ratio:.5f}", flush=True)
        planning, every = share(text)
        slow |= planning > 0.05 * every
        print(f"{Path(path).name:36} planning {1e3 * planning:8.1f} ms of {1e3 * every:10.1f} ms: {100 * planning / max(every, 1e-9):.1f} %", flush=True)
    sys.exit(int(worst > 1.01 or slow))


if __name__ == "__main__":
    main()
