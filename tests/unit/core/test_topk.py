"""topk on every backend of the host, against Python's own sort."""

import math

import numpy as np
import pytest
import trueno
from trueno.errors import OutError, ParameterError, ShapeError

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
SIZES = [  # n, k: each way of each kernel, below and at its limits
    (1, 1), (5, 5), (16, 1), (17, 12), (64, 8), (64, 13), (100, 40), (128, 8), (255, 64), (256, 64), (257, 65),
    (600, 3), (1000, 1000), (3001, 32), (3001, 33), (5000, 700),
]  # fmt: skip


def expected(row, k):
    order = sorted(range(len(row)), key=lambda i: (0, 0, i) if math.isnan(row[i]) else (1, -row[i], i))
    return np.array(order[:k])


def rows(rng, n):
    """Random, tied, special, equal, and sorted both ways."""
    x = rng.normal(size=(8, n))
    x[1] = np.rint(2 * x[1])
    x[2][rng.random(n) < 0.3] = -np.inf
    x[2][rng.random(n) < 0.1] = np.inf
    x[3][rng.random(n) < 0.2] = np.nan
    x[3][rng.random(n) < 0.2] = -np.nan
    x[4] = rng.choice([0.0, -0.0], n)
    x[5], x[6] = np.sort(x[5]), -np.sort(x[6])
    x[7][::16] += 50  # the largest are all in one lane
    return x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_against_a_sort(backend, dtype, size):
    n, k = size
    x = rows(np.random.default_rng([3, n, k]), n).astype(dtype)
    with trueno.use(backend):
        values, indices = trueno.topk(x, k)
        first = trueno.argmax(x)
    assert values.dtype == dtype and indices.dtype == np.int64
    for r, row in enumerate(x):
        np.testing.assert_array_equal(indices[r], expected(row.tolist(), k), err_msg=f"row {r}")
        assert values[r].tobytes() == row[indices[r]].tobytes()
    np.testing.assert_array_equal(indices[:, 0], first)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_and_results(backend):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 3, 50)).astype(np.float32)
    with trueno.use(backend):
        values, indices = trueno.topk(x, 7)
        assert values.shape == indices.shape == (2, 3, 7)
        np.testing.assert_array_equal(values, -np.sort(-x, axis=-1)[..., :7])
        one = trueno.topk(x[1, 2], k=7)
        np.testing.assert_array_equal(one[1], indices[1, 2])
        np.testing.assert_array_equal(trueno.topk(x[:, :, ::-1], 7)[1], 49 - indices)
        out = np.empty((2, 3, 7), np.float32), np.empty((2, 3, 7), np.int64)
        assert trueno.topk(x, 7, out=out)[1] is out[1]
        np.testing.assert_array_equal(out[1], indices)
        assert trueno.topk(x[:0], 7)[0].shape == (0, 3, 7)
        half = trueno.topk(x.astype(np.float16), 7)
        assert half[0].dtype == np.float16
        np.testing.assert_array_equal(half[0], -np.sort(-x.astype(np.float16), axis=-1)[..., :7])
        with trueno.Batch(backend) as b:
            v, i = b.topk(b.upload(x), 7)
            total = b.sum(v)
            b.execute()
            np.testing.assert_array_equal(b.read(i), indices)
            np.testing.assert_allclose(b.read(total), values.sum(-1), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_wrong_is_named(backend):
    x = np.zeros((2, 5), np.float32)
    with trueno.use(backend):
        for _ in range(2):  # the second call finds a plan
            with pytest.raises(ShapeError, match="topk: n is 5, k is 6, but k <= n must hold"):
                trueno.topk(x, 6)
            with pytest.raises(ParameterError, match="topk: k is 0, but 1 <= k <= 1e18 must hold"):
                trueno.topk(x, 0)
            with pytest.raises(ParameterError, match="topk: k is True; it must be int"):
                trueno.topk(x, True)
            with pytest.raises(ParameterError, match=r"topk: k is 2\.0; it must be int"):
                trueno.topk(x, 2.0)
            with pytest.raises(OutError, match="indices"):
                trueno.topk(x, 2, out=(np.empty((2, 2), np.float32), np.empty((2, 3), np.int64)))
            trueno.topk(x, 5)
