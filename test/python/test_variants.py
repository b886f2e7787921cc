"""Programs for ranges of sizes, and for buckets, of modules that are compiled here."""

import numpy as np
import pytest

import rc

ROWS = """func.func @main(%x: tensor<n x 5 x f32>, %w: tensor<7x5xf32>) -> tensor<n x 7 x f32> attributes {rc.symbols = #rc.symbols<n = [1, 512, 1]>} {
  %y = tensor.linear %x, %w : tensor<n x 7 x f32>
  func.return %y
}"""


def check(model, rows):
    g = np.random.default_rng(rows)
    x, w = g.standard_normal((rows, 5), np.float32), g.standard_normal((7, 5), np.float32)
    expected = x.astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose(model(x, w), expected, rtol=1e-4, atol=1e-5)
    out = np.empty((rows, 7), np.float32)
    model.run(x, w, out=[out])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_sizes_that_come_back_get_programs():
    model = rc.parse(ROWS).compile(variants=1)
    check(model, 100)
    with pytest.warns(RuntimeWarning, match="further sizes .n = 7."):
        check(model, 7)
    check(model, 300)
    lines = model.variants()
    assert lines[0] == "all sizes: 5 calls" and lines[1].startswith("n = 100: 1 call, made at call 2"), lines
    assert lines[2] == "no more are made: the limit is 1"


def test_sizes_are_filled_up_to_buckets():
    model = rc.parse(ROWS).compile(variants=8, buckets=[16, 64])
    for rows in (3, 16, 17, 64, 65):
        check(model, rows)
    lines = model.variants()
    assert lines[0] == "all sizes: 2 calls" and len(lines) == 3, lines
    assert lines[1].endswith("filled up to n = 16") and lines[2].endswith("filled up to n = 64")


def test_none_are_made_where_none_are_asked_for():
    model = rc.parse(ROWS).compile()
    for rows in (3, 3, 3):
        check(model, rows)
    assert model.variants() == []
