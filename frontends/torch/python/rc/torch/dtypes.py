"""Element types: PyTorch's and rc's names for them."""

import torch

TO_RC = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "ui8",
    torch.bool: "i1",
}
TO_TORCH = {name: dtype for dtype, name in TO_RC.items()}

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The types of the parts of complex numbers."""


def element(dtype: torch.dtype) -> str | None:
    """rc's name for an element, or for the parts of a complex one; None where rc has no such elements."""
    return TO_RC.get(PARTS.get(dtype, dtype))


FLOATS = ("f64", "f32", "f16", "bf16")


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def compute(dtype: str) -> str:
    """The type in which PyTorch computes elements of `dtype`: float32 for narrower floats."""
    return "f32" if dtype in ("f16", "bf16") else dtype
