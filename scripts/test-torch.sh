#!/usr/bin/env bash
# Compares rc with PyTorch on whole models: sets up .venv-torch, builds the programs, runs test/torch.
# Arguments go to test/torch/test_gpt2.py (`--only symbolic`). Nothing is downloaded but packages from PyPI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/venv-torch.sh
source scripts/venv-torch.sh
cargo build --release --locked --package rc-tools --package rc-examples
bin=${CARGO_TARGET_DIR:-target}/release
"$PYTHON" test/torch/test_gpt2.py "$bin" --work "$bin/../torch" "$@"
