"""The memory of large results on a CPU: kept for the next call, unless somebody has it."""

import torch

import rc.torch


def compiled():
    torch._dynamo.reset()
    rc.torch.free_kept()
    return torch.compile(lambda x: x * 2 + 1, backend="rc", dynamic=False)


def test_memory_of_a_result_that_was_let_go_is_used_again():
    f, x = compiled(), torch.randn(1024, 512)
    first = f(x).data_ptr()
    assert f(x).data_ptr() == first
    assert rc.torch.kept_bytes() == x.nbytes
    rc.torch.free_kept()
    assert rc.torch.kept_bytes() == 0
    torch.testing.assert_close(f(x), x * 2 + 1)


def test_results_that_somebody_has_stay():
    f, xs = compiled(), [torch.randn(1024, 512) for _ in range(6)]
    whole, view = f(xs[0]), f(xs[1])[3:, 5:]
    array, storage = f(xs[2]).numpy(), f(xs[3]).untyped_storage()
    others = [f(x) for x in xs]
    assert len({y.data_ptr() for y in others}) == len(others)
    torch.testing.assert_close(whole, xs[0] * 2 + 1)
    torch.testing.assert_close(view, (xs[1] * 2 + 1)[3:, 5:])
    torch.testing.assert_close(torch.from_numpy(array), xs[2] * 2 + 1)
    torch.testing.assert_close(torch.empty(0).set_(storage, 0, (1024, 512)), xs[3] * 2 + 1)
    for x, y in zip(xs, others):
        torch.testing.assert_close(y, x * 2 + 1)


def test_a_loop_that_holds_the_last_result_needs_two_memories():
    f, x, places = compiled(), torch.randn(1024, 512), set()
    y = None
    for _ in range(6):
        y = f(x)
        places.add(y.data_ptr())
    assert len(places) == 2


def test_memory_that_lies_elsewhere_now_is_not_used():
    f, x = compiled(), torch.randn(1024, 512)
    y = f(x)
    y.untyped_storage().resize_(0)
    del y
    torch.testing.assert_close(f(x), x * 2 + 1)
    y = f(x)
    y.share_memory_()
    shared = y.data_ptr()
    del y
    y = f(x)
    assert y.data_ptr() != shared and not y.is_shared()
    torch.testing.assert_close(y, x * 2 + 1)


def test_results_may_be_written_to_resized_and_differentiated():
    f, x = compiled(), torch.randn(1024, 512)
    for _ in range(3):
        y = f(x)
        assert y._version == 0 and y.is_leaf and not y.requires_grad
        y.add_(1)
        torch.testing.assert_close(y, x * 2 + 2)
        y.requires_grad_()
        (y * y).sum().backward()
        torch.testing.assert_close(y.grad, 2 * y.detach())
        y.detach().resize_(2048, 1024)
        del y
    with torch.inference_mode():
        assert f(x).is_inference()
        torch.testing.assert_close(f(x), x * 2 + 1)


def test_symbolic_sizes():
    torch._dynamo.reset()
    rc.torch.free_kept()
    f = torch.compile(lambda x: x * 2 + 1, backend="rc", dynamic=True)
    for rows in (1024, 1024, 1400, 1024, 1400):
        x = torch.randn(rows, 300)
        torch.testing.assert_close(f(x), x * 2 + 1)
        assert rc.torch.kept_bytes() in (0, x.nbytes)


def test_steps_of_training_keep_none():
    torch._dynamo.reset()
    rc.torch.free_kept()
    layer = torch.nn.Linear(512, 1024)
    step = torch.compile(lambda x: layer(x).relu().sum(), backend="rc", dynamic=False)
    for _ in range(2):
        step(torch.randn(1024, 512)).backward()
    assert rc.torch.kept_bytes() == 0
