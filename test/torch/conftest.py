"""What every test of the PyTorch frontend begins with."""

import os
import tempfile

import pytest
import torch

# The user's cache is not the tests', and those of the compiler are to compile.
os.environ["RC_CACHE_DIR"] = tempfile.mkdtemp(prefix="rc-test-cache-")
os.environ.setdefault("RC_CACHE", "off")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
