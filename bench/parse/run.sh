#!/usr/bin/env bash
# Parse, verify and print of a generic-form file, rc-opt beside mlir-opt on the same text: user and system
# time (the least of several runs), and rc-opt's memory for an operation.
#
#   bench/parse/run.sh [operations]          RC_OPT and RC_MLIR_OPT name the programs, RC_RUNS the repetitions
set -euo pipefail
cd "$(dirname "$0")/../.."

ops=${1:-200000}
runs=${RC_RUNS:-5}
rc_opt=${RC_OPT:-target/release/rc-opt}
mlir_opt=${RC_MLIR_OPT:-/usr/lib/llvm-22/bin/mlir-opt}
for tool in "$rc_opt" "$mlir_opt"; do
  [ -x "$tool" ] || { echo "error: no $tool; run 'make build'" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 bench/gen_generic.py "$ops" >"$work/in.mlir"
echo 'module {}' >"$work/empty.mlir"

python3 - "$work" "$runs" "$rc_opt" "$mlir_opt" <<'PY'
import os, re, resource, subprocess, sys

work, runs, rc_opt, mlir_opt = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
rc = [rc_opt, "--allow-unregistered-dialect", "--print-op-generic"]
mlir = [mlir_opt, "--allow-unregistered-dialect", "--mlir-print-op-generic"]

def run(command, name):
    """User and system seconds of one run."""
    child = subprocess.Popen(command + [f"{work}/{name}", "-o", f"{work}/out.mlir"])
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"error: {command[0]} fails")
    return usage.ru_utime + usage.ru_stime

def peak(command, name):
    """Peak KiB of one run. By GNU time, as a child of this process counts this one's memory too."""
    if not os.access("/usr/bin/time", os.X_OK):
        return None
    timed = ["/usr/bin/time", "-f", "%M", *command, f"{work}/{name}", "-o", f"{work}/out.mlir"]
    return int(subprocess.run(timed, stderr=subprocess.PIPE, check=True).stderr.split()[-1])

def per_op(command):
    """Bytes an operation takes beyond an empty module and the file's size."""
    peaks = peak(command, "in.mlir"), peak(command, "empty.mlir")
    if None in peaks:
        return "memory: needs /usr/bin/time"
    return f"{((peaks[0] - peaks[1]) * 1024 - size) / ops:6.0f} bytes/op"

size = os.path.getsize(f"{work}/in.mlir")
ops = len(re.findall(rb'^ *(?:%[\w:]+ = )?"', open(f"{work}/in.mlir", "rb").read(), re.M))
rc_time = min(run(rc, "in.mlir") for _ in range(runs))
mlir_time = min(run(mlir, "in.mlir") for _ in range(runs))
print(f"{ops} operations, {size / 1e6:.1f} MB, parse + verify + print, least of {runs} runs")
print(f"rc-opt    {rc_time * 1e3:7.0f} ms   {per_op(rc)}")
print(f"mlir-opt  {mlir_time * 1e3:7.0f} ms   {per_op(mlir)}")
print(f"ratio     {mlir_time / rc_time:7.2f}")
PY
