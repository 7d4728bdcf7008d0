"""attention on every backend of the host, against PyTorch in float64."""

import tracemalloc

import numpy as np
import pytest
import trueno
from trueno.errors import ParameterError, ShapeError
from unit.attention import by_torch

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
SHAPES = [  # t, s, hq, hk, d, e: below, at and above the sizes of tiles and blocks
    (1, 1, 1, 1, 1, 1),
    (5, 5, 2, 2, 8, 8),
    (48, 128, 4, 4, 32, 32),
    (70, 70, 4, 2, 64, 64),
    (1, 300, 14, 2, 64, 64),
    (200, 130, 2, 1, 7, 5),
    (33, 300, 3, 3, 40, 48),
    (129, 129, 3, 1, 64, 33),
]


def operands(rng, t, s, hq, hk, d, e, lead=(), dtype=np.float32):
    return tuple(rng.normal(size=(*lead, n, h, w)).astype(dtype) for n, h, w in ((t, hq, d), (s, hk, d), (s, hk, e)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "given", [{}, {"window": 20}, {"softcap": 3.0}, {"window": 150, "scale": 0.25, "softcap": 30.0}], ids=str
)
def test_against_pytorch(backend, shape, given):
    rng = np.random.default_rng([4, *shape])
    for dtype, allowed in ((np.float32, 6e-6), (np.float64, 2e-14)):
        q, k, v = operands(rng, *shape, lead=(2,), dtype=dtype)
        for causal in (False, True):
            with trueno.use(backend):
                got = trueno.attention(q, k, v, causal=causal, **given)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, by_torch(q, k, v, causal, **given), rtol=0, atol=allowed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_of_any_size(backend):
    """Scores of thousands, all equal, far apart from block to block, and capped near 0, where tanh x is x."""
    rng = np.random.default_rng(7)
    q, k, v = operands(rng, 9, 400, 2, 1, 16, 8, dtype=np.float64)
    k[130:140] *= 40
    k[390] *= 300
    for scale, softcap in ((30.0, 0.0), (1e-9, 0.0), (1e-3, 5.0), (1.0, 1e5), (50.0, 2.0)):
        for dtype, allowed in ((np.float32, 3e-6), (np.float64, 1e-14)):
            size = scale * np.abs(q).sum(-1).max() * np.abs(k).max()
            sizes = min(size, softcap) if softcap else size
            x = tuple(a.astype(dtype) for a in (q, k, v))
            with trueno.use(backend):
                got = trueno.attention(*x, scale=scale, softcap=softcap)
            np.testing.assert_allclose(got, by_torch(*x, scale=scale, softcap=softcap), atol=allowed * (1 + sizes))
            assert (np.abs(got) <= np.abs(v).max() * (1 + allowed)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_reaches_the_rows_that_see_it(backend):
    rng = np.random.default_rng(11)
    q, k, v = operands(rng, 150, 150, 2, 2, 16, 16)
    q[7, 1, 3] = np.nan
    with trueno.use(backend):
        got = trueno.attention(q, k, v, causal=True)
    assert np.isnan(got[7, 1]).all()
    got[7, 1] = 0
    assert np.isfinite(got).all()
    k[20, 0, 5] = v[140, 1, 2] = np.nan
    with trueno.use(backend):
        got = trueno.attention(np.nan_to_num(q), k, v, causal=True)
    assert np.isnan(got[20:, 0]).all()
    assert np.isnan(got[140:, 1, 2]).all()
    assert np.isfinite(got[:, 1, 3:]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_and_batches(backend):
    rng = np.random.default_rng(2)
    q, k, v = operands(rng, 40, 60, 4, 2, 32, 32, lead=(3,))
    with trueno.use(backend):
        whole = trueno.attention(q, k, v, causal=True)
        np.testing.assert_array_equal(whole[1], trueno.attention(q[1], k[1], v[1], causal=True))
        shared = trueno.attention(q, k[0], v[0], causal=True)
        np.testing.assert_array_equal(shared[2], trueno.attention(q[2], k[0], v[0], causal=True))
        strided = trueno.attention(q[:, :, ::3], k, v, causal=True)
        np.testing.assert_allclose(strided, whole[:, :, ::3], rtol=0, atol=1e-6)
        five = trueno.attention(q[:, None], k[:, None], v[:, None], causal=True)
        np.testing.assert_array_equal(five[:, 0], whole)
        out = np.empty_like(whole)
        assert trueno.attention(q, k, v, causal=True, out=out) is out
        np.testing.assert_array_equal(out, whole)
        assert trueno.attention(q, k, v, causal=True, out=q) is q
        np.testing.assert_array_equal(q, whole)
        with trueno.Batch(backend) as b:
            handles = [b.upload(x) for x in (out, k, v)]
            h = b.add(b.attention(*handles, causal=True), 1.0)
            b.execute()
            np.testing.assert_array_equal(b.read(h), trueno.attention(out, k, v, causal=True) + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_array_has_all_scores(backend):
    q, k, v = operands(np.random.default_rng(0), 2048, 2048, 2, 2, 4, 4)
    with trueno.use(backend):
        trueno.attention(q[:2], k[:2], v[:2])
        tracemalloc.start()
        trueno.attention(q, k, v, causal=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < q.shape[0] * k.shape[0] * q.shape[1] * 4 * 0.9, f"{peak} bytes"


def test_what_is_wrong_is_named():
    q, k, v = (np.zeros(shape, np.float32) for shape in ((3, 6, 8), (5, 2, 8), (5, 2, 4)))
    with pytest.raises(ShapeError, match=r"attention: hq is 5, hk is 2, but .* must hold"):
        trueno.attention(q[:, :5], k, v)
    with pytest.raises(ShapeError, match=r"attention: v\[s\] is 4, but k\[s\] is 5"):
        trueno.attention(q, k, v[:4])
    with pytest.raises(ShapeError, match=r"attention: k\[d\] is 7, but q\[d\] is 8"):
        trueno.attention(q, k[..., :7], v)
    with pytest.raises(ParameterError, match="window is -1, but 0 <= window"):
        trueno.attention(q, k, v, window=-1)
    trueno.attention(q, k, v, causal=True)
    with pytest.raises(ParameterError, match="causal is 1; it must be bool"):
        trueno.attention(q, k, v, causal=1)
