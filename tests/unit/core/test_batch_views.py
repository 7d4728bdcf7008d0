"""Handles under another shape: no kernel, no copy, and their memory is not given to anything else while they live."""

import numpy as np
import pytest
import trueno
from trueno.errors import BatchError, ParameterError, ShapeError

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]


@pytest.fixture(params=[*BACKENDS, "fake"])
def backend(request):
    if request.param == "fake":
        request.getfixturevalue("fake")
    return request.param


def test_uploads_and_results_under_other_shapes(backend):
    with trueno.Batch(backend) as b:
        x = b.upload(X)
        y = b.relu(x.reshape((2, -1)))
        z = b.transpose(y.reshape([4, 6]))
        views = [y.reshape(24), z.reshape((2, 3, 4)), x.reshape((3, 8)).reshape((8, 3))]
        b.execute()
        relu = np.maximum(X, 0)
        for h, want in ((y, relu.reshape(2, 12)), (z, relu.reshape(4, 6).T), (views[0], relu.reshape(24)),
                        (views[1], relu.reshape(4, 6).T.reshape(2, 3, 4)), (views[2], X.reshape(8, 3))):  # fmt: skip
            assert h.shape == want.shape
            np.testing.assert_array_equal(b.read(h), want)
        assert b.counts.kernels == 2
        b.update(x, -X)
        b.execute()
        np.testing.assert_array_equal(b.read(views[0]), np.maximum(-X, 0).reshape(24))


def test_memory_is_not_reused_while_a_view_is_read(backend):
    with trueno.Batch(backend) as b:
        x = b.upload(X)
        first = b.transpose(x)
        view = first.reshape((6, 4))
        del first
        others = x
        for _ in range(4):
            others = b.transpose(b.transpose(others))
        total = b.add(b.transpose(others), b.transpose(view))
        b.execute()
        b.execute()
        np.testing.assert_array_equal(b.read(total), X.T + X.T.reshape(6, 4).T)


def test_what_is_around_a_view_still_fuses(backend):
    with trueno.Batch(backend) as b:
        h = b.scale(b.relu(b.upload(X)), 2.0)
        h = b.add(b.exp(h.reshape((24,))), 1.0)
        b.execute()
        np.testing.assert_allclose(b.read(h), np.exp(2 * np.maximum(X, 0)).reshape(24) + 1, rtol=1e-6)
        assert b.counts.kernels == 2
        assert str(b).splitlines()[0].endswith("4 ops in 2 kernels")
        assert "exp: reshape gives a view, and no kernel fuses with it" in str(b)


def test_a_result_that_was_fused_away_is_read_under_another_shape():
    with trueno.Batch("scalar") as b:
        h = b.relu(b.upload(X))
        view = h.reshape((4, 6))
        y = b.neg(h)
        b.execute()
        np.testing.assert_array_equal(b.read(view), np.maximum(X, 0).reshape(4, 6))
        np.testing.assert_array_equal(b.read(y), -np.maximum(X, 0))


def test_errors():
    q = trueno.quantize(np.ones((2, 32), np.float32), "q8_0")
    cache = np.zeros((1, 4, 2, 8), np.float32)
    with trueno.Batch("scalar") as b:
        h = b.upload(X)
        for shape in ((5, 5), (-1, 5), (-1, -1), (-24,), ()):
            with pytest.raises(ShapeError, match=r"h has shape \(6, 4\), 24 elements"):
                h.reshape(shape)
        with pytest.raises(ShapeError, match="66 axes are asked for, but an array has at most 64"):
            h.reshape((1,) * 64 + (6, 4))
        for shape in ("ab", (2.0, 12), None):
            with pytest.raises(ParameterError, match="give whole numbers"):
                h.reshape(shape)
        with pytest.raises(ParameterError, match="h holds q8_0, whose rows have one shape"):
            b.upload(q).reshape((1, -1))
        with pytest.raises(BatchError, match="not executed yet"):
            b.read(h.reshape((24,)))
        pages = b.upload(trueno.Pages(cache))
        b.kv_cache_scatter(pages, b.upload(np.ones((1, 2, 8), np.float32)), b.upload(np.zeros(1, np.int64)))
        with pytest.raises(ParameterError, match="h holds f32"):
            pages.reshape((-1,))
    with pytest.raises(BatchError, match="closed"):
        h.reshape((24,))
