"""Modules from Python: built, parsed, passed on, and what is wrong with them."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rc
from rc.ops import _make

PACKAGE = Path(__file__).parents[2] / "frontends" / "torch" / "python" / "rc"


def test_nothing_needs_pytorch():
    code = "import rc, sys; assert not {'torch', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions():
    said = subprocess.run([sys.executable, "-m", "rc", "--version"], check=True, capture_output=True, text=True).stdout
    assert re.match(rf"rc {re.escape(rc.__version__)} \(.*LLVM 22\.", said) and "sm_90a" in said and "x86-64-v3" in said


def test_a_function_is_text_and_back(mlp):
    assert mlp.functions == ["main"]
    assert "tensor.linear %x, %w" in str(mlp) and "#rc.symbols<n = [0, 64, 1]>" in str(mlp)
    assert str(rc.parse(str(mlp))) == str(mlp)


def test_passes_give_new_modules(mlp):
    before = str(mlp)
    fused = mlp.run("decompose,canonicalize,fuse")
    assert "core.fusion" in str(fused) and str(mlp) == before
    assert "ptx" in str(mlp.lower("sm_90a")) and "fuse" in rc.pipeline("sm_90a")


def test_arithmetic_and_constants():
    f = rc.Function("main", x=rc.tensor("n, 3"), k=rc.tensor("n, 3", "i32"), symbols={"n": (1, 8)})
    x, k = f.args
    table = f.constant(np.arange(3, dtype=np.float32))
    row = rc.ops.core.broadcast(table, dims=[1], out=x.type)
    y = (2.0 - x) * row / (x + 0.5) + -x
    assert repr(y) == "<rc.Value of type tensor<n x 3 x f32>>"
    model = f.returns(y, k * 3 - 1).compile()
    x, k = np.float32([[1, 2, 3], [-4, 0, 6]]), np.int32([[1, 2, 3], [-4, 0, 6]])
    got, ints = model(x, k)
    np.testing.assert_allclose(got, (2 - x) * np.float32([0, 1, 2]) / (x + 0.5) + -x, rtol=1e-6)
    np.testing.assert_array_equal(ints, k * 3 - 1)


def test_functions_call_functions():
    then = rc.Function("double", x=rc.tensor("4"))
    otherwise = rc.Function("negate", x=rc.tensor("4"))
    called = [then.returns(then["x"] + then["x"]), otherwise.returns(-otherwise["x"])]
    f = rc.Function("main", x=rc.tensor("4"))
    total = rc.ops.core.reduce(f["x"], dims=[0], kind="add")
    above = rc.ops.core.compare(total, f.constant(0.0), kind="gt")
    (y,) = rc.ops.core.if_(above, [f["x"]], then="double", else_="negate", out=[rc.tensor("4")])
    module = f.returns(y, calls=called)
    assert module.functions == ["main", "double", "negate"]
    model = module.compile()
    for x in (np.float32([1, 2, 3, 4]), np.float32([-1, -2, -3, -4])):
        np.testing.assert_array_equal(model(x), 2 * x if x.sum() > 0 else -x)


def test_operations_without_operands_take_the_function():
    f = rc.Function("main", x=rc.tensor("n", "i64"), symbols={"n": (1, 8)})
    y = rc.ops.core.iota(f, dim=0, out=f["x"].type)
    np.testing.assert_array_equal(f.returns(y + f["x"]).compile()(np.int64([5, 5, 5])), [5, 6, 7])


def test_what_is_wrong_is_said_with_its_place():
    with pytest.raises(rc.RcError) as error:
        rc.parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  func.return %y\n}\n", "model.ir")
    assert "model.ir:2:15" in str(error.value) and "^" in str(error.value)
    assert error.value.diagnostics[0][0]
    with pytest.raises(rc.RcError, match="unknown pass|no pass|nothing"):
        rc.parse("func.func @main() { func.return }").run("nothing-of-the-kind")

    f = rc.Function("main", x=rc.tensor("2, 3"), y=rc.tensor("3, 2"))
    with pytest.raises(rc.RcError) as error:
        f.returns(rc.ops.core.dot(*f.args, lhs_contract=[1], rhs_contract=[1], out=rc.tensor("2, 3")))
    assert re.search(rf"{re.escape(__file__)}:\d+", str(error.value)) and "contracted dimensions" in str(error.value)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda f: rc.Function("main", x="f32"), "give rc.tensor"),
        (lambda f: rc.Function("main", x=rc.tensor("2", "f33")), "'f33' is no element type"),
        (lambda f: rc.tensor("2, %"), "is no shape"),
        (lambda f: rc.Function("main", x=rc.tensor("n")).returns(), "'n'"),
        (lambda f: rc.Function("main", symbols={"n": 5}), "least, greatest"),
        (lambda f: f["x"] + rc.Function("other", x=rc.tensor("2"))["x"], "a value of the function 'other'"),
        (lambda f: rc.ops.core.add(f["x"], 1.0), "takes values as operands, not float"),
        (lambda f: rc.ops.core.iota(f["x"], dim=0, out=rc.tensor("2", "i64")), "takes the function first"),
        (lambda f: rc.ops.core.reduce(f["x"], dims=[0]), "missing a required argument: 'kind'"),
        (lambda f: rc.ops.core.reduce(f["x"], dims=[0], kind="sum"), "one of"),
        (lambda f: rc.ops.core.reduce(f["x"], dims="0", kind="add"), "int"),
        (lambda f: f.returns(1.0), "no value of the function"),
        (lambda f: f.constant(np.float32([1]), "f64"), "convert it first"),
    ],
)
def test_what_a_frontend_gets_wrong(wrong, message):
    f = rc.Function("main", x=rc.tensor("2"))
    with pytest.raises((TypeError, ValueError, rc.RcError), match=message):
        wrong(f)


def test_a_function_is_finished_once():
    f = rc.Function("main", x=rc.tensor("2"))
    f.returns(f["x"])
    with pytest.raises(TypeError, match="finished"):
        f.returns(f["x"])


@pytest.mark.parametrize("dialect", ["core", "tensor"])
def test_stubs_are_those_of_the_declarations(dialect):
    """`RC_UPDATE=1` writes them."""
    path, expected = PACKAGE / "ops" / f"{dialect}.pyi", _make.stubs(dialect)
    if os.environ.get("RC_UPDATE"):
        path.write_text(expected)
    assert path.read_text() == expected


def test_the_stub_of_the_native_half_has_its_names():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    members = lambda body: {n.name for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    public = {name for name in dir(rc._native) if not name.startswith("_")}
    assert members(tree.body) == public
    for node in tree.body:
        missing = members(node.body) - set(dir(getattr(rc._native, node.name))) if isinstance(node, ast.ClassDef) else set()
        assert missing <= {"__getattr__"}, node.name


def test_every_operation_has_a_signature_and_a_description():
    assert len(vars(rc.ops.core)) > 80 and len(vars(rc.ops.tensor)) > 50
    dot = rc.ops.core.dot
    assert repr(dot).startswith("core.dot(lhs: 'Value', rhs: 'Value', *, lhs_batch: 'Sequence[int] | None' = None")
    assert dot.__doc__.startswith("Sums products over contracted dimensions") and "acc: The accumulation type." in dot.__doc__
