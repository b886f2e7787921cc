"""Tests of `import rc` where there is no PyTorch: a virtual environment with NumPy alone (scripts/test-python.sh)."""

import os
import tempfile

import pytest

# The user's cache is not the tests'.
os.environ["RC_CACHE_DIR"] = tempfile.mkdtemp(prefix="rc-test-cache-")

import rc  # noqa: E402


@pytest.fixture(scope="session")
def mlp() -> rc.Module:
    f = rc.Function("main", x=rc.tensor("n, 3"), w=rc.tensor("2, 3"), b=rc.tensor("2"), symbols={"n": (0, 64)})
    x, w, b = f.args
    h = rc.ops.tensor.linear(x, w, b)
    return f.returns(rc.ops.core.max(h, f.constant(0.0, "f32", h.shape)))
