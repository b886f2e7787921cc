"""rc, a compiler of tensor graphs: parse or build modules, run passes, compile, load and run.

    f = rc.Function("main", x=rc.tensor("n, 784"), w=rc.tensor("10, 784"), symbols={"n": (1, 1024)})
    x, w = f.args
    module = f.returns(rc.ops.tensor.softmax(rc.ops.tensor.linear(x, w), dim=1))
    model = module.compile()
    y = model(images, weights)          # arrays of NumPy or of whatever has DLPack, in place
    numpy.asarray(y)                    # without a copy

The PyTorch frontend is `rc.torch`; nothing else needs PyTorch.
"""

from rc import ops
from rc._native import Array, Dim, RcError, pipeline, versions
from rc.function import Function, Value
from rc.model import Model, Signature, Symbol, load
from rc.module import Module, parse, read
from rc.types import Shape, Size, TensorType, tensor

__version__ = versions().split()[0]

__all__ = [
    "Array",
    "Dim",
    "Function",
    "Model",
    "Module",
    "RcError",
    "Shape",
    "Signature",
    "Size",
    "Symbol",
    "TensorType",
    "Value",
    "load",
    "ops",
    "parse",
    "pipeline",
    "read",
    "tensor",
    "versions",
]
