#!/usr/bin/env bash
# Lowers a graph to CUDA in readable steps, prints what comes out, then runs it on this CPU against float64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
example=${1:-examples/mlp.ir}
bin=${CARGO_TARGET_DIR:-target}/release

show() {
  printf '\n\033[1m$ %s\033[0m\n' "$*"
  "$@"
}

show cat "$example"
show "$bin/rc-opt" --fuse --lower-cuda "$example"
show "$bin/rc-run" "$example" --compare=float64
