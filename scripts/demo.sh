#!/usr/bin/env bash
# Lowers a graph to CUDA in readable steps, prints what comes out, then runs it on this CPU against float64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
example=${1:-examples/mlp.ir}
bin=${CARGO_TARGET_DIR:-target}/release
ptx=$(mktemp --suffix=.ptx)
trap 'rm -f "$ptx"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  say "\$ $*"
  "$@"
}

say "The graph, $example:"
cat "$example"

say 'Fused: each core.fusion becomes one kernel.'
show "$bin/rc-opt" --fuse "$example"

say 'Lowered to CUDA: a host program, and each kernel as PTX (lines are cut here).'
show "$bin/rc-opt" --fuse --lower-cuda "$example" | cut -c1-180

say 'The PTX itself (its first 60 lines):'
show "$bin/rc-opt" --fuse --lower-cuda --emit=ptx "$example" -o "$ptx"
sed -n '1,60p' "$ptx"
printf '… %d lines in all, %d kernels\n' "$(wc -l <"$ptx")" "$(grep -c '\.visible \.entry' "$ptx")"

say 'Compiled for this CPU and run on random inputs; beside the interpreter in float64:'
show "$bin/rc-run" "$example" --compare=float64
