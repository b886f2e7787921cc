"""rc's PyTorch frontend: `torch.compile(model, backend="rc")`."""

from rc.torch.errors import UnsupportedOps
from rc.torch.options import Options

__all__ = ["Options", "UnsupportedOps"]
