#!/usr/bin/env bash
# Tests the page of `rc-opt --view` in headless Chromium, with a virtual environment that has Playwright and axe-core. Arguments go to pytest.
# PROFILE=dev builds faster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PACKAGES=(playwright==1.65.2 axe-playwright-python==0.1.8 pytest==9.2.0)
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
venv=$target/venv-view

command -v chromium >/dev/null || {
  printf 'test-view: error: chromium was not found\n  On Debian: apt-get install chromium\n' >&2
  exit 1
}
python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "${PACKAGES[@]}" || {
  printf 'test-view: error: pip could not install %s\n  Is there a network that reaches PyPI?\n' "${PACKAGES[*]}" >&2
  exit 1
}
cargo build --profile "$profile" --locked --workspace
RC_BIN=$target/$([ "$profile" = dev ] && echo debug || echo "$profile") "$venv/bin/python" -m pytest -q test/view "$@"
