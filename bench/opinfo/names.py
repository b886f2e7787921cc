"""The operations of PyTorch's database by name."""


def name_of(op) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def operations() -> dict:
    from torch.testing._internal.common_methods_invocations import op_db

    return {name_of(op): op for op in op_db}
