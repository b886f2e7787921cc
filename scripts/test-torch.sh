#!/usr/bin/env bash
# Compares rc with PyTorch: sets up .venv-torch, builds the programs and the Python package, runs test/torch: torch.compile's
# backend, and whole models by rc-run. Arguments go to test/torch/test_gpt2.py (`--only symbolic`). Nothing is downloaded but
# packages from PyPI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/venv-torch.sh
source scripts/venv-torch.sh
cargo build --release --locked --package rc-tools --package rc-examples
install_rc
# Two at a time: a test compiles on one core.
"$PYTHON" -m pytest -q -n 2 test/torch
bin=${CARGO_TARGET_DIR:-target}/release
"$PYTHON" test/torch/test_gpt2.py "$bin" --work "$bin/../torch" "$@"
