"""`rc.Model` on PyTorch's tensors, by DLPack: on the CPU, and on a stream of a GPU."""

import pytest
import torch

import rc

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def module() -> rc.Module:
    """Two matrix products, of which the second follows from constants alone."""
    f = rc.Function(
        "main",
        x=rc.tensor("n, 48"),
        w=rc.tensor("32, 48", constant=True),
        v=rc.tensor("32, 48", constant=True),
        symbols={"n": (1, 256)},
    )
    x, w, v = f.args
    return f.returns(rc.ops.tensor.softmax(rc.ops.tensor.linear(x, w + v), dim=1), x * 2.0)


def reference(x, w, v):
    return torch.softmax(x.double() @ (w + v).double().T, 1).float(), x * 2


def tensors(rows, device="cpu", seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g).to(device) for shape in ((rows, 48), (32, 48), (32, 48))]


def check(results, expected):
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(result), value, rtol=1e-4, atol=1e-5)


def test_tensors_on_the_cpu():
    model = module().compile()
    x, w, v = tensors(7)
    results = [torch.from_dlpack(result) for result in model.run(x, w, v)]
    check(results, reference(x, w, v))
    out = [torch.empty(7, 32), torch.empty(7, 48)]
    model.run(x.t().contiguous().t(), w, v, out=out)
    check(out, reference(x, w, v))


@needs_gpu
def test_arrays_of_the_host_on_a_gpu():
    model = module().compile("cuda")
    assert model.device == "cuda:0"
    _, w, v = tensors(1)
    for rows in (1, 7, 256, 7):
        x = tensors(rows, seed=rows)[0]
        check([torch.from_dlpack(result) for result in model.run(x, w, v)], reference(x, w, v))


@needs_gpu
@pytest.mark.parametrize("package", [False, True])
def test_tensors_of_a_gpu_on_a_stream(package, tmp_path):
    x, w, v = tensors(1, "cuda")
    given = [w, v]
    if package:
        path = tmp_path / "model.rcp"
        module().package(path, targets=["sm_90a"], weights={"w": w.cpu(), "v": v.cpu()})
        model, given = rc.load(path, device="cuda"), []
    else:
        model = module().compile("cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for rows in (1, 7, 256, 7):
                x = tensors(rows, "cuda", seed=rows)[0]
                out = [torch.empty(rows, 32, device="cuda"), torch.empty(rows, 48, device="cuda")]
                model.run(x, *given, out=out, stream=stream)
                check([y.cpu() for y in out], [y.cpu() for y in reference(x, w, v)])
    torch.cuda.synchronize()


@needs_gpu
def test_what_a_call_on_a_stream_gets_wrong():
    model = module().compile("cuda")
    x, w, v = tensors(4, "cuda")
    out = [torch.empty(4, 32, device="cuda"), torch.empty(4, 48, device="cuda")]
    wide = torch.empty(4, 96, device="cuda")
    for args, results, message in [
        ((x.cpu(), w, v), out, r"argument 0 \(x\) is a Tensor on the CPU"),
        ((x, w, v), [out[0].cpu(), out[1]], "result 0 is a Tensor on the CPU"),
        ((wide[:, ::2], w, v), out, r"argument 0 \(x\) is not row-major"),
        ((x, w), out, "takes 3 arguments, 2 were given"),
        ((x.double(), w, v), out, "was given an array of f64"),
        ((x, w[:5], v), out, r"argument 1 \(w\)"),
        ((x, w, v), out[:1], "has 2 results, 1 were given"),
        ((x, w, v), [out[0][:2], out[1]], r"result 0 is given as f32 of shape \[2, 32\]"),
        ((x, w, v), [out[0], x], "result 1 and argument 0 share memory"),
        ((torch.empty(4 * 48 + 1, device="cuda")[1:].view(4, 48), w, v), out, "no multiple of 16"),
    ]:
        with pytest.raises(rc.RcError, match=message):
            model.run(*args, out=results, stream=torch.cuda.current_stream())
    with pytest.raises(rc.RcError, match=r"argument 0 \(x\) lies on another device"):
        model.run(x, w, v)
    model.run(x, w, v, out=out, stream=torch.cuda.current_stream())
    check([y.cpu() for y in out], [y.cpu() for y in reference(x, w, v)])
