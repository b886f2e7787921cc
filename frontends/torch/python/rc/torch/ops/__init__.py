"""ATen operations as rc's: a table from operation to translation, filled by one file for each family."""

from rc.torch.ops.table import TABLE
from rc.torch.ops import attention_cuda, convolution, create, elementwise, index, norm, product, random, reduce, shape, sort, special  # noqa: F401

__all__ = ["TABLE", "random"]
