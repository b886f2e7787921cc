"""What a call of a compiled function does beside running kernels: its arguments' memory, and when AOTAutograd's wrappers are left out."""

import pytest
import torch
from rc._native import Program
from rc.torch.backend import rc
from torch import nn


def compiled(f, **kwargs):
    """The function, and a list that gets what the backend gave to Dynamo."""
    given = []

    def backend(gm, inputs):
        given.append(rc(gm, inputs))
        return given[-1]

    return torch.compile(f, backend=backend, fullgraph=True, **kwargs), given


def check(f, *args, bare=True, **kwargs):
    g, given = compiled(f, **kwargs)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(g(*args), f(*args))
    assert [isinstance(x, Program) for x in given] == [bare]
    return g


def test_plain_graphs_are_called_without_wrappers():
    check(lambda x, y: (x + y, x * y), torch.randn(3, 5), torch.randn(5))
    check(nn.Linear(7, 3), torch.randn(2, 7))


def test_mutation_aliases_and_gradients_keep_the_wrappers():
    x = torch.randn(3, 5)
    check(lambda x: x.t(), x, bare=False)
    check(lambda x: (x[1:], x + 1), x, bare=False)
    f, given = compiled(lambda x: x.add_(1))
    y = x.clone()
    assert f(y) is y and torch.equal(y, x + 1) and not isinstance(given[0], Program)
    f, given = compiled(lambda x: x.sin())
    y = x.clone().requires_grad_()
    f(y).sum().backward()
    torch.testing.assert_close(y.grad, x.cos())
    assert not isinstance(given[0], Program)


def test_results_of_plain_graphs_need_no_gradient():
    f, _ = compiled(lambda x: x * 2)
    y = f(torch.randn(3))
    assert y.is_leaf and not y.requires_grad and y.grad_fn is None


def test_memory_that_moves():
    model = nn.Linear(4, 4)
    f = check(model, torch.randn(3, 4))
    with torch.no_grad():
        model.weight.data = torch.randn(4, 4)
        x = torch.randn(3, 4)
        torch.testing.assert_close(f(x), model(x))
        model.weight.set_(torch.randn(4, 4))
        torch.testing.assert_close(f(x), model(x))
        model.load_state_dict({"weight": torch.randn(4, 4), "bias": torch.randn(4)}, assign=True)
        torch.testing.assert_close(f(x), model(x))


def test_layouts_that_change_between_calls():
    program = check(lambda x: x * 2 + 1, torch.randn(4, 4))
    backend = lambda gm, inputs: rc(gm, inputs)
    g = torch.compile(lambda x: x.cumsum(0) * 2, backend=backend, fullgraph=True, dynamic=True)
    base = torch.randn(64)
    for x in (base[:16].view(4, 4), base[16:32].view(4, 4).t(), base[:32].view(8, 4)[::2], base.as_strided((4, 4), (0, 1), 3)):
        torch.testing.assert_close(g(x), x.cumsum(0) * 2)
        torch.testing.assert_close(program(x), x * 2 + 1)


def test_the_program_checks_what_it_is_given():
    f, given = compiled(lambda x, y: x @ y)
    f(torch.randn(3, 4), torch.randn(4, 5))
    program = given[0]
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    torch.testing.assert_close(program(x, y)[0], x @ y)
    boxed = [x, y]
    torch.testing.assert_close(program(boxed)[0], x @ y)
    assert boxed == []
    with pytest.raises(TypeError, match="argument 1 is missing: 1 were given"):
        program(x)
    with pytest.raises(TypeError, match="argument 0: expected elements of type f32"):
        program(x.double(), y)
    with pytest.raises(TypeError, match="rank 2"):
        program(x[0], y)
    with pytest.raises(Exception, match="5, where 4"):
        program(torch.randn(3, 5), y)
    with pytest.raises(Exception):
        program(x, "y")
    torch.testing.assert_close(program(x, y)[0], x @ y)


def test_constants_and_seeds_are_the_programs_own():
    table = torch.randn(2000)
    check(lambda x: table[x], torch.tensor([1, 5, 1999]))
    f, given = compiled(lambda x: nn.functional.dropout(x + table, 0.5))
    x = torch.ones(2000)
    a, b = f(x), f(x)
    assert isinstance(given[0], Program) and not torch.equal(a, b)
    torch.manual_seed(3)
    a = f(x)
    torch.manual_seed(3)
    assert torch.equal(f(x), a)


class Wrapped(torch.Tensor):
    """A tensor of a class of the user's."""


# In place: each changes the tensor that a program was called with before, and is one that it takes.
CHANGES = {
    "data": lambda x: setattr(x, "data", torch.randn(4, 4)),
    "set_": lambda x: x.set_(torch.randn(4, 4)),
    "set_ with an offset": lambda x: x.set_(torch.randn(64).untyped_storage(), 7, (4, 4), (4, 1)),
    "storage that moves": lambda x: x.data.resize_(100000),
    "t_": lambda x: x.t_(),
    "as_strided_": lambda x: x.as_strided_((4, 4), (0, 1)),
    "written": lambda x: x.normal_(),
    "resize_ and back": lambda x: x.requires_grad_(False).resize_(1000).resize_(4, 4),
    "swapped": lambda x: torch.utils.swap_tensors(x, type(x)(torch.randn(4, 4))),
}


@pytest.fixture(scope="module")
def program():
    f, given = compiled(lambda x: x * 2 + 1)
    f(torch.randn(4, 4))
    return given[0]


@pytest.mark.parametrize("kind", [torch.Tensor, nn.Parameter, nn.Buffer, Wrapped])
@pytest.mark.parametrize("change", CHANGES)
def test_arguments_that_are_changed_in_place(program, kind, change):
    with torch.no_grad():
        make = lambda: torch.randn(4, 4).as_subclass(Wrapped) if kind is Wrapped else kind(torch.randn(4, 4))
        x = make()
        for _ in range(2):
            torch.testing.assert_close(program(x)[0], x.as_subclass(torch.Tensor) * 2 + 1)
            if change != "swapped" or kind is not Wrapped:
                CHANGES[change](x)
            torch.testing.assert_close(program(x)[0], x.as_subclass(torch.Tensor) * 2 + 1)


def test_arguments_that_become_what_a_program_does_not_take(program):
    whole = torch.randn(4, 4)
    becomes = [
        (whole.view(torch.int32), "elements of type f32"),  # The same memory.
        (whole.flatten(), "rank 2"),
        (whole[:3], "3, where 4"),
        (torch.empty(4, 4, dtype=torch.float8_e4m3fn), "elements of type f32|float8"),
    ]
    for other, message in becomes:
        x = torch.Tensor(whole)
        torch.testing.assert_close(program(x)[0], whole * 2 + 1)
        x.data = other
        with pytest.raises(Exception, match=message):
            program(x)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(whole)
    with pytest.raises(TypeError, match="a tensor without memory"):
        program(fake)
    for other in (whole.to_sparse(), torch.empty(4, 4, device="meta"), None, 1, "x", nn.Linear(2, 2), torch.Tensor):
        with pytest.raises(Exception):
            program(other)
    torch.testing.assert_close(program(whole)[0], whole * 2 + 1)


DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 float8_e4m3fn float8_e5m2".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_each_type_are_read(dtype):
    dtype = getattr(torch, dtype)
    for shape in ((), (0, 3), (3, 1, 2)):
        x = torch.randint(0, 2, shape).to(dtype)
        check(lambda x: torch.stack([x, x]), x)
