"""The operations, by dialect: `rc.ops.core.add(x, y)`, `rc.ops.tensor.softmax(x, dim=1)`.

The functions are made from the operations' declarations: operands in order, then attributes by name. `out` is the type of the result, or a list of types,
where an operation does not infer it from its operands. An operation without operands takes the function first.
"""

from rc.ops import core, tensor
from rc.ops._make import Operation

__all__ = ["Operation", "core", "tensor"]
