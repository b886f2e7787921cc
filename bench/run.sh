#!/usr/bin/env bash
# rc beside its peers, in one run on this machine: what the CPU runs, and with a GPU what that runs.
# Every figure is a median with what the hardware allows beside it; see the head of each program for how it is measured. Pictures of the CPU's tables lie
# in the target folder's bench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/venv-torch.sh
source scripts/venv-torch.sh
install_bench
cargo build --release --locked --package rc-tools --package rc-examples
bin=${CARGO_TARGET_DIR:-target}/release
install_rc

"$PYTHON" bench/gpt2.py "$bin" --device=cpu --case=1x128
"$PYTHON" bench/gpt2_training.py "$bin"
"$PYTHON" bench/kernels_cpu.py "$bin"
"$PYTHON" bench/models_cpu.py "$bin"
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
  cargo build --release --locked --package rc-bench
  "$PYTHON" bench/gpt2.py "$bin" --device=cuda --case=1x128 --case=4x1024
  "$PYTHON" bench/gpt2_training.py "$bin" --device=cuda --batch=4 --length=1024
  "$PYTHON" bench/products_cuda.py "$bin"
  "$PYTHON" bench/memory_cuda.py "$bin"
  "$PYTHON" bench/kernels_cuda.py "$bin"
else
  echo 'skipped: GPT-2 and kernels on CUDA (no GPU here)'
fi
RC_OPT=$bin/rc-opt bash bench/parse/run.sh
