#!/usr/bin/env bash
# Installs what building and testing rc needs on Debian 12, and only what is missing:
# LLVM 22 with MLIR (Debian packages), and NVIDIA's ptxas (a PyPI wheel in .venv-ptxas).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MIN_CARGO_MINOR=90
PTXAS_WHEEL='nvidia-cuda-nvcc==13.*'

# What mlir-sys links and its binding generator reads, LLVM's FileCheck and mlir-opt for the tests, a C++ linker.
PACKAGES=(
  g++
  llvm-22-dev libmlir-22-dev libpolly-22-dev mlir-22-tools llvm-22-tools
  libclang1-22 libclang-common-22-dev
  libzstd-dev zlib1g-dev libxml2-dev libz3-dev
)

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  for hint in "$@"; do printf '  %s\n' "$hint" >&2; done
  exit 1
}

check_cargo() {
  command -v cargo >/dev/null 2>&1 ||
    fail 'cargo was not found' "Install Rust 1.$MIN_CARGO_MINOR or newer from https://rustup.rs, open a new shell and run this again."
  local version minor
  version=$(cargo --version) || fail 'cargo does not run' "Try 'cargo --version'."
  minor=$(sed -E 's/^cargo 1\.([0-9]+).*/\1/' <<<"$version")
  [[ $minor =~ ^[0-9]+$ && $minor -ge $MIN_CARGO_MINOR ]] ||
    fail "$version is too old; rc needs 1.$MIN_CARGO_MINOR" "Run 'rustup update stable'."
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
  command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 ||
    fail 'this is not a Debian system (no apt-get)' \
      'rc builds against LLVM 22 with MLIR. Install these, or what your system calls them, and set' \
      'MLIR_SYS_220_PREFIX and TABLEGEN_220_PREFIX in .cargo/config.toml:' "${PACKAGES[*]}"
  local missing=() package
  for package in "${PACKAGES[@]}"; do installed "$package" || missing+=("$package"); done
  python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
  [ ${#missing[@]} -gt 0 ] || return 0

  say "will install these Debian packages (LLVM 22, about 1.6 GB on disk): ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      fail 'installing packages needs root' 'As root, run:' "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    say 'sudo may ask for your password'
    sudo=(sudo)
  fi
  # apt-get update exits 0 even where nothing could be fetched, unless told otherwise.
  "${sudo[@]}" apt-get update -qq -o APT::Update::Error-Mode=any ||
    say 'warning: some package lists could not be fetched; going on with what there is'
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 ||
      fail "Debian's package lists do not have $package" \
        'Is there a network, and are bookworm and bookworm-security (LLVM 22 is there) among the sources in /etc/apt?'
  done
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
    fail 'apt-get could not install the packages' 'Its messages above say why; without a network they read "Failed to fetch".'
}

install_ptxas() {
  if [ -n "${RC_PTXAS:-}" ]; then
    [ -x "$RC_PTXAS" ] || fail "RC_PTXAS=$RC_PTXAS is not an executable file"
    return 0
  fi
  compgen -G '.venv-ptxas/lib/python3*/site-packages/nvidia/*/bin/ptxas' >/dev/null && return 0
  command -v ptxas >/dev/null 2>&1 && return 0
  say "will install NVIDIA's ptxas (PyPI: $PTXAS_WHEEL) in .venv-ptxas; tests assemble PTX with it"
  rm -rf .venv-ptxas
  python3 -m venv .venv-ptxas || fail 'python3 could not make a virtual environment' "Install Debian's python3-venv."
  .venv-ptxas/bin/pip install --quiet --disable-pip-version-check --no-deps "$PTXAS_WHEEL" ||
    fail "pip could not install $PTXAS_WHEEL" 'Is there a network that reaches PyPI? Or set RC_PTXAS to a ptxas of CUDA 12.3 or newer.'
}

fetch_crates() {
  local target=x86_64-unknown-linux-gnu
  cargo fetch --locked --quiet --offline --target "$target" 2>/dev/null && return 0
  say 'will fetch the crates that Cargo.lock names'
  cargo fetch --locked --quiet --target "$target" ||
    fail 'cargo could not fetch the crates' 'Is there a network that reaches crates.io?'
}

check_cargo
install_packages
install_ptxas
fetch_crates
