"""Element types: PyTorch's and rc's names for them."""

import functools

import torch
from torch.utils._python_dispatch import _disable_current_modes

TO_RC = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
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


NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
"""Floats that PyTorch computes with in float32."""

FLOATS = ("f64", "f32", *NARROW)


INTEGERS = {"f64": "i64", "f32": "i32", "f16": "i16", "bf16": "i16", "f8E4M3FN": "i8", "f8E5M2": "i8"}
"""The signed integers of a float's width."""


@functools.cache
def saturates() -> bool:
    """Whether this PyTorch converts what is too large to the largest float8_e4m3fn, as rc does, and not to NaN, as PyTorch 2.11 does."""
    with _disable_current_modes():
        return bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isfinite())


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def compute(dtype: str) -> str:
    """The type in which PyTorch computes elements of `dtype`: float32 for narrower floats."""
    return "f32" if dtype in NARROW else dtype
