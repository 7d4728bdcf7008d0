"""concatenate on every backend of the host, against NumPy."""

import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, ParameterError, ShapeError

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_every_axis(backend, dtype):
    rng = np.random.default_rng(2)
    with trueno.use(backend):
        for shape in ((7,), (3, 4), (2, 3, 5), (1, 1, 2, 9)):
            for axis in range(-len(shape), len(shape)):
                a = rng.normal(size=shape).astype(dtype)
                for size in (1, 4, 0):
                    b = np.repeat(a.take([0], axis), size, axis)
                    got = trueno.concatenate(a, b, axis=axis)
                    assert got.dtype == dtype
                    np.testing.assert_array_equal(got, np.concatenate((a, b), axis))
                    np.testing.assert_array_equal(trueno.concatenate(b, a, axis=axis), np.concatenate((b, a), axis))


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_and_batches(backend):
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(300, 64)).astype(np.float32), rng.normal(size=(200, 64)).astype(np.float32)
    a[0, 0], b[-1, -1] = np.nan, -0.0
    want = np.concatenate((a, b))
    with trueno.use(backend):
        out = np.empty_like(want)
        assert trueno.concatenate(a, b, out=out) is out
        assert out.tobytes() == want.tobytes()
        np.testing.assert_array_equal(trueno.concatenate(a.T, b.T, axis=1), want.T)
        np.testing.assert_array_equal(trueno.concatenate(out[:300], out[300:], out=out), want)
    with trueno.Batch(backend) as batch:
        first, second = batch.upload(a), batch.upload(b)
        joined = batch.concatenate(first, batch.neg(second))
        whole = batch.keep(batch.concatenate(joined, first))
        total = batch.scale(whole, 2.0)
        batch.execute()
        np.testing.assert_array_equal(batch.read(whole), np.concatenate((a, -b, a)))
        np.testing.assert_array_equal(batch.read(total), 2 * np.concatenate((a, -b, a)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("rows", "first", "second"), [(1, 70_001, 40_003), (1, 3, 90_000), (3, 50_001, 1), (5, 0, 40_000)]
)
def test_few_long_rows(backend, rows, first, second):
    """Rows that several threads share: where parts end, nothing is lost, whichever operand is cut."""
    a, b = (np.random.default_rng(n).normal(size=(rows, n)).astype(np.float32) for n in (first, second))
    out = np.full((rows, first + second + 1), np.nan, np.float32)
    with trueno.use(backend):
        np.testing.assert_array_equal(trueno.concatenate(a, b, axis=1), np.concatenate((a, b), 1))
        part = out.reshape(-1)[: rows * (first + second)].reshape(rows, -1)
        trueno.concatenate(a, b, axis=1, out=part)
    np.testing.assert_array_equal(part, np.concatenate((a, b), 1))
    assert np.isnan(out.reshape(-1)[part.size :]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_wrong_is_named(backend):
    x = np.zeros((2, 5), np.float32)
    with trueno.use(backend):
        for _ in range(2):  # the second call finds a plan
            with pytest.raises(
                ShapeError, match="concatenate: b has 4 along axis 1, but a has 5; only axis 0 may differ"
            ):
                trueno.concatenate(x, x[:, :4])
            with pytest.raises(ShapeError, match=r"concatenate: a has shape \(2, 5\) and b \(5,\)"):
                trueno.concatenate(x, x[0])
            with pytest.raises(ShapeError, match=r"concatenate: axis is 2, but a has 2 dimension"):
                trueno.concatenate(x, x, axis=2)
            with pytest.raises(ParameterError, match=r"concatenate: axis is 0\.0; it must be int"):
                trueno.concatenate(x, x, axis=0.0)
            with pytest.raises(DtypeError, match="concatenate: b is float64, but a is float32"):
                trueno.concatenate(x, x.astype(np.float64))
            trueno.concatenate(x, x)
