"""ATen operations as rc's: a table from operation to translation, filled by one file for each family."""

from rc.torch.ops.table import COMPLEX, TABLE, translates_copies, translation
from rc.torch.ops import attention_cuda, bags, bits, control, convolution, create, elementwise, index, norm, pool, product  # noqa: F401
from rc.torch.ops import random, reduce, resize, sample, shape, sort, special  # noqa: F401

translates_copies()

from rc.torch.ops import complexes  # noqa: E402, F401 - it builds on the translations of real tensors

__all__ = ["COMPLEX", "TABLE", "random", "translation"]
