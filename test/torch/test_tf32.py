"""Which products of float32 may be rounded to TF32: as PyTorch's settings say, on CUDA alone."""

from types import SimpleNamespace

import pytest
import torch

from rc.torch import precision
from rc.torch.ops import convolution

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


class Size:
    """A size that is no number when a graph is translated."""

    def __floordiv__(self, _):
        return self


@pytest.fixture
def settings():
    """PyTorch's settings, put back afterwards."""
    conv, matmul = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = conv.fp32_precision, matmul.fp32_precision
    yield conv, matmul
    conv.fp32_precision, matmul.fp32_precision = before


def test_convolutions_may_be_rounded_by_default(settings):
    assert precision.of("conv", CUDA, "f32", "f32") == "tf32"
    assert precision.of("matmul", CUDA, "f32", "f32") is None


def test_only_float32_on_cuda_is_rounded(settings):
    assert precision.of("conv", CPU, "f32", "f32") is None
    assert precision.of("conv", CUDA, "bf16", "bf16") is None
    assert precision.of("conv", CUDA, "f32", "f64") is None


def test_each_setting_is_followed(settings):
    conv, matmul = settings
    before = precision.setting()
    matmul.fp32_precision, conv.fp32_precision = "tf32", "ieee"
    assert precision.of("matmul", CUDA, "f32", "f32") == "tf32"
    assert precision.of("conv", CUDA, "f32", "f32") is None
    assert precision.setting() != before, "programs that another process compiled are found by it"


@pytest.mark.parametrize(
    ("weights", "groups", "strides", "kind"),
    [
        ((64, 3, 7, 7), 1, [2, 2], "conv"),
        ((64, 64, 1, 1), 1, [1, 1], "conv"),
        ((768, 3, 16, 16), 1, [16, 16], "matmul"),
        ((2, 1, 3, 3), 1, [1, 1], None),
        ((32, 1, 3, 3), 32, [1, 1], None),
        ((3, 3, 5, 5), 1, [1, 1], None),
        ((Size(), Size(), 3, 3), 1, [1, 1], "conv"),
        ((Size(), 1, 3, 3), 1, [1, 1], None),
    ],
)
def test_a_convolution_is_rounded_where_matrix_units_serve(weights, groups, strides, kind):
    asked = SimpleNamespace(precision=lambda kind, *_: kind)
    w = SimpleNamespace(shape=weights)
    assert convolution._precision(asked, None, w, strides, [0, 0], [1, 1], groups) == kind
