"""rc's PyTorch frontend: `torch.compile(model, backend="rc")`."""

from rc.torch import accelerate
from rc.torch.errors import UnsupportedOps
from rc.torch.explain import Explanation, explain, graphs, variants
from rc.torch.export import export, package
from rc.torch.minify import Minified, minify
from rc.torch.options import Options
from rc.torch.warmup import warmup
from rc.torch.weights import free_kept, kept_bytes

__all__ = [
    "Explanation",
    "Minified",
    "Options",
    "UnsupportedOps",
    "explain",
    "export",
    "free_kept",
    "graphs",
    "kept_bytes",
    "minify",
    "package",
    "variants",
    "warmup",
]

accelerate.introduce()
