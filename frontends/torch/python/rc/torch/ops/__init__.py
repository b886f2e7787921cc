"""ATen operations as rc's: a table from operation to translation, filled by one file for each family."""

from rc.torch.ops.table import TABLE, translation
from rc.torch.ops import attention_cuda, bags, bits, convolution, create, elementwise, index, norm, pool, product, random  # noqa: F401
from rc.torch.ops import reduce, resize, shape, sort, special  # noqa: F401

__all__ = ["TABLE", "random", "translation"]
