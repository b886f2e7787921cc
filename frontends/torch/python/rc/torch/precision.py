"""What the products of float32 may be rounded to: on CUDA, PyTorch's settings let them be TF32, in convolutions by default."""

from __future__ import annotations

import torch


def _settings() -> dict[str, str]:
    backends = torch.backends
    return {"matmul": backends.cuda.matmul.fp32_precision, "conv": backends.cudnn.conv.fp32_precision}


def setting() -> str:
    """All that there is to say, of which code depends."""
    return repr(_settings())


def of(kind: str, device: torch.device, *dtypes: str) -> str | None:
    """The attribute `precision` of a product ("matmul") or a convolution ("conv") of operands of these types."""
    rounds = device.type == "cuda" and all(dtype == "f32" for dtype in dtypes)
    return "tf32" if rounds and _settings()[kind] == "tf32" else None
