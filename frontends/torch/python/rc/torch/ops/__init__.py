"""ATen operations as rc's: a table from operation to translation, filled by one file for each family."""

from rc.torch.ops.table import TABLE, translates_copies, translation
from rc.torch.ops import attention_cuda, bags, bits, control, convolution, create, elementwise, index, norm, pool, product  # noqa: F401
from rc.torch.ops import random, reduce, resize, shape, sort, special  # noqa: F401

translates_copies()

__all__ = ["TABLE", "random", "translation"]
