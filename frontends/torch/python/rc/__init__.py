"""rc, a compiler of tensor graphs. The PyTorch frontend is `rc.torch`."""

from rc._native import RcError

__all__ = ["RcError"]
