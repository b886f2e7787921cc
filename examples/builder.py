"""A small network, built, compiled and run from Python without PyTorch: python examples/builder.py"""

import numpy as np

import rc


def network(hidden: int = 16) -> rc.Module:
    """Digits' probabilities for images of 8 times 8 pixels, any number of them up to 1024."""
    f = rc.Function(
        "main",
        x=rc.tensor("n, 64"),
        w1=rc.tensor((hidden, 64), constant=True),
        b1=rc.tensor((hidden,), constant=True),
        w2=rc.tensor((10, hidden), constant=True),
        symbols={"n": (1, 1024)},
    )
    x, w1, b1, w2 = f.args
    h = rc.ops.tensor.linear(x, w1, b1)
    h = rc.ops.core.max(h, f.constant(0.0, h.dtype, h.shape)).named("h")
    return f.returns(rc.ops.tensor.softmax(rc.ops.tensor.linear(h, w2), dim=1))


def reference(x, w1, b1, w2):
    z = np.maximum(x.astype(np.float64) @ w1.T + b1, 0) @ w2.T
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main() -> None:
    g = np.random.default_rng(0)
    weights = {name: g.standard_normal(shape).astype(np.float32) for name, shape in [("w1", (16, 64)), ("b1", (16,)), ("w2", (10, 16))]}
    module = network()
    print(module)
    model = module.compile()
    print(model.signature)
    for rows in (1, 5):
        x = g.standard_normal((rows, 64)).astype(np.float32)
        y = np.asarray(model(x, **weights))
        np.testing.assert_allclose(y, reference(x, **weights), rtol=1e-4, atol=1e-6)
        print(f"{rows} images: {y.argmax(axis=1)}")


if __name__ == "__main__":
    main()
