"""Compiled functions on arrays of any library."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import rc


def reference(x, w, b):
    return np.maximum(x @ w.T + b, 0)


def arrays(rows, seed=0):
    g = np.random.default_rng(seed)
    return [g.standard_normal(shape).astype(np.float32) for shape in ((rows, 3), (2, 3), (2,))]


@pytest.fixture(scope="module")
def model(mlp):
    return mlp.compile()


@pytest.fixture(scope="module")
def same():
    """Gives its argument back, as a copy, for any type of elements."""

    def make(dtype, shape="n, m"):
        f = rc.Function("main", x=rc.tensor(shape, dtype), symbols={"n": (0, 64), "m": (0, 64)} if shape else {})
        y = rc.ops.core.transpose(f["x"], perm=[0, 1]) if shape else f["x"]
        return f.returns(y).compile()

    return make


def test_the_signature(model):
    assert str(model.signature) == (
        "symbol n: 0 to 64\nargument x: tensor<n x 3 x f32>\nargument w: tensor<2 x 3 x f32>\nargument b: tensor<2 x f32>\n"
        "result 0 tensor<n x 2 x f32>"
    )
    assert model.device == "cpu" and [name for name, _ in model.signature.arguments] == ["x", "w", "b"]


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_calls(model, rows):
    x, w, b = arrays(rows)
    got = model(x, w, b)
    assert got.shape == (rows, 2) and got.dtype == "f32" and got.device == "cpu"
    np.testing.assert_allclose(got, reference(x, w, b), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model(x, b=b, w=w), got)
    (first,) = model.run(x, w, b)
    np.testing.assert_array_equal(first, got)


def test_results_are_not_copied(model):
    got = model(*arrays(4))
    seen, again = np.asarray(got), got.numpy()
    assert seen.ctypes.data == again.ctypes.data == np.from_dlpack(got).ctypes.data
    seen[0, 0] = 7
    assert again[0, 0] == 7
    kept = seen.copy()
    del got
    # Later calls leave it what it is.
    for seed in range(3):
        model(*arrays(4, seed))
    np.testing.assert_array_equal(seen, kept)
    assert np.array(model(*arrays(4)), copy=True).flags.owndata
    assert np.asarray(model(*arrays(4)), dtype=np.float64).dtype == np.float64


def test_one_result_goes_to_an_array_of_the_callers(model):
    out = np.full((4, 2), 7, np.float32)
    assert model.run(*arrays(4), out=out)[0] is out
    np.testing.assert_allclose(out, reference(*arrays(4)), rtol=1e-5, atol=1e-6)
    with pytest.raises(rc.RcError) as wrong:
        model.run(*arrays(4), out=np.zeros((4, 3), np.float32))
    assert str(wrong.value) == "result 0 is given as f32 of shape [4, 3], and is f32 of shape [4, 2]"
    assert rc.RcError.__module__ == "rc"


def test_results_are_arguments(model):
    x, w, b = arrays(4)
    w2 = np.float32([[1, 2], [3, 4]])
    f = rc.Function("main", x=rc.tensor("4, 2"), w=rc.tensor("2, 2"))
    second = f.returns(rc.ops.tensor.linear(*f.args)).compile()
    np.testing.assert_allclose(second(model(x, w, b), w2), reference(x, w, b) @ w2.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_every_type_of_elements(same, dtype):
    x = (np.arange(12).reshape(3, 4) % 5 - 2 if dtype not in "u1?" else np.arange(12).reshape(3, 4) % 2).astype(dtype)
    name = {"f": "f", "i": "i", "u": "ui"}.get(dtype[0], "i") + (str(8 * int(dtype[1])) if dtype != "?" else "1")
    got = same(name)(x)
    np.testing.assert_array_equal(np.asarray(got), x)
    assert np.asarray(got).dtype == x.dtype
    np.testing.assert_array_equal(np.from_dlpack(got), x)


def test_scalars(same):
    assert np.asarray(same("f32", "")(np.float32(3))) == 3


class Exported:
    """An array that only has DLPack, of the version before the one that says what may be written to."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        if "max_version" in keywords:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arguments_of_any_layout(same):
    wide = np.arange(48, dtype=np.float32).reshape(4, 12)
    flat = np.zeros(49, np.uint8)
    odd = flat[1:].view(np.float32).reshape(3, 4)
    odd[:] = np.arange(12).reshape(3, 4)
    constant = wide.copy()
    constant.flags.writeable = False
    for x in (wide, wide[:, ::3], wide[::-1], wide.T, odd, constant, wide[:, :0], np.broadcast_to(wide[0], (5, 12))):
        np.testing.assert_array_equal(same("f32")(x), x)
    for x in (wide, wide[:, ::3], wide.T):
        np.testing.assert_array_equal(same("f32")(Exported(x)), x)


def test_bf16(same):
    types = pytest.importorskip("ml_dtypes")
    x = np.arange(12).reshape(3, 4).astype(types.bfloat16)
    got = same("bf16")(x)
    assert got.dtype == "bf16" and np.asarray(got).dtype == types.bfloat16
    np.testing.assert_array_equal(np.asarray(got), x)


def test_results_where_the_caller_wants_them(model):
    x, w, b = arrays(4)
    out = np.empty((4, 2), np.float32)
    assert model.run(x, w, b, out=[out])[0] is out
    np.testing.assert_allclose(out, reference(x, w, b), rtol=1e-5, atol=1e-6)
    constant = out.copy()
    constant.flags.writeable = False
    for wrong, message in [
        ([], "has 1 results, 0 were given"),
        ([np.empty((4, 3), np.float32)], r"result 0 is given as f32 of shape \[4, 3\], and is f32 of shape \[4, 2\]"),
        ([np.empty((4, 2))], "is given as f64"),
        ([np.empty((2, 4), np.float32).T], "row-major"),
        ([constant], "cannot be written to"),
        ([x.reshape(-1)[:8].reshape(4, 2)], "result 0 and argument 0 share memory"),
    ]:
        with pytest.raises(rc.RcError, match=message):
            model.run(x, w, b, out=wrong)


def test_what_a_call_gets_wrong(model):
    x, w, b = arrays(4)
    for args, message in [
        ((x, w), "takes 3 arguments, 2 were given"),
        ((x, w, b, b), "takes 3 arguments, 4 were given"),
        ((x.astype(np.float64), w, b), r"argument 0 \(x\) .* was given an array of f64"),
        ((x, w[:, :2], b), r"argument 1 \(w\) .* has the shape \[2, 2\] here, where \[2, 3\] is expected"),
        ((x, w, b[None]), r"argument 2 \(b\) .* was given an array of shape \[1, 2\]"),
        ((np.zeros((65, 3), np.float32), w, b), "the symbol 'n' is 65, outside of its range 0 to 64"),
        ((x.astype(np.complex64), w, b), r"argument 0 \(x\) has elements of <c8"),
        ((x.astype(">f4"), w, b), "has elements of >f4"),
    ]:
        with pytest.raises(rc.RcError, match=message):
            model(*args)
    for args, message in [(([1.0], w, b), r"argument 0 \(x\) is a list"), ((x, w, 3.0), r"argument 2 \(b\) is a float")]:
        with pytest.raises(TypeError, match=message):
            model(*args)
    for named, message in [({"b": b}, "'w' was not given"), ({"w": w, "b": b, "c": b}, "'c' is not one of x, w, b"), ({"x": x, "w": w, "b": b}, "by position too")]:
        with pytest.raises(TypeError, match=message):
            model(x, **named)
    np.testing.assert_allclose(model(x, w, b), reference(x, w, b), rtol=1e-5, atol=1e-6)


def test_other_devices(mlp):
    with pytest.raises(rc.RcError, match="there is no device 'tpu'"):
        mlp.compile("tpu")
    with pytest.raises(rc.RcError, match="GPU"):
        mlp.compile("cuda:97")

    class Elsewhere(Exported):
        def __dlpack_device__(self):
            return (2, 0)

    x, w, b = arrays(4)
    model, out = mlp.compile(), np.empty((4, 2), np.float32)
    with pytest.raises(rc.RcError, match=r"argument 0 \(x\) lies on another device"):
        model(Elsewhere(x), w, b)
    with pytest.raises(rc.RcError, match="not supported: a stream for code on the CPU"):
        model.run(x, w, b, out=[out], stream=0)
    with pytest.raises(TypeError, match="give `out`"):
        model.run(x, w, b, stream=0)
    with pytest.raises(TypeError, match="a str is no stream"):
        model.run(x, w, b, out=[out], stream="0")


def test_types_of_results(model):
    kinds = [kind for _, kind in model.signature.arguments]
    assert model.result_types(rc.tensor((7, 3)), *kinds[1:]) == [rc.tensor((7, 2))]
    with pytest.raises(rc.RcError, match=r"argument 1 \(w\)"):
        model.result_types(rc.tensor((7, 3)), rc.tensor((7, 3)), kinds[2])


def test_threads(model):
    failures = []

    def work(seed):
        for i in range(50):
            given = arrays(1 + (seed + i) % 9, seed)
            try:
                np.testing.assert_allclose(model(*given), reference(*given), rtol=1e-5, atol=1e-6)
            except Exception as error:
                failures.append((seed, i, error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


FORKS = """
import os, signal, sys
import numpy as np
import rc

path, module = sys.argv[1], rc.read(sys.argv[2])
args = [np.ones(shape, np.float32) for shape in ((5, 3), (2, 3), (2,))]
loaded = rc.load(path)
expected = np.asarray(loaded(*args))
child = os.fork()
if child == 0:
    signal.alarm(60)
    for model in (loaded, rc.load(path), module.compile()):
        np.testing.assert_array_equal(model(*args), expected)
    os._exit(0)
print("the child's status:", os.waitpid(child, 0)[1])
"""


def test_a_process_that_was_forked_loads_and_compiles(mlp, tmp_path):
    """It has none of its parent's threads."""
    path, text = tmp_path / "mlp.rcp", tmp_path / "mlp.ir"
    mlp.package(path)
    text.write_text(str(mlp))
    done = subprocess.run([sys.executable, "-c", FORKS, path, text], capture_output=True, text=True)
    assert done.stdout == "the child's status: 0\n", done.stdout + done.stderr


def test_packages(mlp, tmp_path, model):
    x, w, b = arrays(5)
    path = tmp_path / "model.rcp"
    mlp.package(path, targets=["x86-64-v3", "host", "sm_90a"], weights={"w": w, "b": b})
    loaded = rc.load(path)
    assert [name for name, _ in loaded.signature.arguments] == ["x"]
    np.testing.assert_allclose(loaded(x), reference(x, w, b), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rc.load(path, "main", "cpu")(x), loaded(x))
    for options, message in [({"function": "other"}, "no function @other; it has main"), ({"device": "cuda:97"}, "GPU")]:
        with pytest.raises(rc.RcError, match=message):
            rc.load(path, **options)
    with pytest.raises(rc.RcError, match="absent.rcp"):
        rc.load(tmp_path / "absent.rcp")
    with pytest.raises(rc.RcError, match="'v'|named v|v"):
        mlp.package(path, weights={"v": w})
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.rcp").write_bytes(damaged)
    with pytest.raises(rc.RcError, match="damaged.rcp"):
        rc.load(tmp_path / "damaged.rcp")(x)
