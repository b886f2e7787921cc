#!/usr/bin/env bash
# Tests `import rc` without PyTorch: builds the wheel, installs it in a virtual environment with NumPy alone, runs test/python there.
# PROFILE=dev builds faster; WHEEL=FILE tests one that is built. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NUMPY=(numpy==2.4.6 ml_dtypes pytest==9.2.0)
target=${CARGO_TARGET_DIR:-target}
venv=$target/venv-python

python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "${NUMPY[@]}" || {
  printf 'test-python: error: pip could not install %s\n  Is there a network that reaches PyPI?\n' "${NUMPY[*]}" >&2
  exit 1
}
if [ -z "${WHEEL:-}" ]; then
  "$venv/bin/pip" install --quiet --disable-pip-version-check maturin==1.16.0
  rm -rf "$target/wheels-python"
  "$venv/bin/python" -m maturin build --profile "${PROFILE:-release}" --locked --quiet --compatibility off \
    --manifest-path frontends/torch/Cargo.toml --out "$target/wheels-python"
  WHEEL=$(echo "$target"/wheels-python/*.whl)
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$WHEEL"
"$venv/bin/python" -c 'import torch' 2>/dev/null && { echo 'test-python: error: the virtual environment has PyTorch' >&2; exit 1; }
"$venv/bin/python" -m pytest -q test/python "$@"
