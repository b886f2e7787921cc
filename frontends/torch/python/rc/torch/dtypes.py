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

FLOATS = ("f64", "f32", "f16", "bf16")


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def compute(dtype: str) -> str:
    """The type in which PyTorch computes elements of `dtype`: float32 for narrower floats."""
    return "f32" if dtype in ("f16", "bf16") else dtype
