"""Sinks and masks of attention on every backend of the host, against PyTorch in float64."""

import numpy as np
import pytest
import trueno
from trueno.errors import ParameterError, ShapeError
from unit.attention import by_torch

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
SHAPES = [  # t, s, hq, hk, d, e: below, at and above the sizes of tiles and blocks
    (1, 1, 1, 1, 1, 1),
    (5, 7, 4, 2, 8, 8),
    (1, 300, 14, 2, 64, 64),
    (130, 200, 2, 1, 7, 5),
    (129, 129, 3, 1, 64, 33),
]
WAYS = [{}, {"causal": True}, {"causal": True, "window": 20}, {"softcap": 3.0, "scale": 0.5}]
ALLOWED = [(np.float32, 6e-6), (np.float64, 2e-14)]


def operands(rng, t, s, hq, hk, d, e, lead=(2,), dtype=np.float64):
    return tuple(rng.normal(size=(*lead, n, h, w)).astype(dtype) for n, h, w in ((t, hq, d), (s, hk, d), (s, hk, e)))


def masks(rng, t, s, hq):
    """Of every shape that is broadcast to two problems, some hiding a fifth of the keys, one all keys of a query."""
    for shape in ((1, 1, s), (hq, 1, s), (1, t, s), (hq, t, s), (2, 1, 1, s), (1, 1, t, s), (2, hq, t, s)):
        yield np.where(rng.random(shape) < 0.2, -np.inf, 3 * rng.normal(size=shape))
    mask = np.zeros((1, t, s))
    mask[:, t // 2] = -np.inf
    yield mask


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("given", WAYS, ids=str)
def test_sinks_against_pytorch(backend, shape, given):
    rng = np.random.default_rng([6, *shape])
    wide = operands(rng, *shape)
    for dtype, allowed in ALLOWED:
        q, k, v = (x.astype(dtype) for x in wide)
        for sinks in (rng.normal(size=shape[2]), np.full(shape[2], 9.0), np.full(shape[2], -np.inf)):
            with trueno.use(backend):
                y = trueno.attention_sinks(q, k, v, sinks.astype(dtype), **given)
            assert y.dtype == dtype
            want = by_torch(q, k, v, **given, sinks=sinks.astype(dtype))
            np.testing.assert_allclose(y, want, rtol=0, atol=allowed)
        with trueno.use(backend):
            plain = trueno.attention(q, k, v, **given)
        np.testing.assert_array_equal(y, plain, err_msg="a sink of −Inf is none")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("given", WAYS, ids=str)
def test_masks_against_pytorch(backend, shape, given):
    rng = np.random.default_rng([5, *shape])
    wide = operands(rng, *shape)
    for mask in masks(rng, *shape[:3]):
        for dtype, allowed in ALLOWED:
            q, k, v = (x.astype(dtype) for x in wide)
            with trueno.use(backend):
                y = trueno.attention_masked(q, k, v, mask.astype(dtype), **given)
            want = by_torch(q, k, v, **given, mask=mask.astype(dtype))
            np.testing.assert_allclose(y, want, rtol=0, atol=allowed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_hides_padding(backend):
    """Of a batch of sequences of different lengths, keys beyond each one's end may be anything that is a number."""
    rng = np.random.default_rng(3)
    q, k, v = operands(rng, 1, 50, 6, 2, 16, 8, lead=(3,), dtype=np.float32)
    lengths = np.array([50, 17, 1])
    mask = np.where(np.arange(50) < lengths[:, None], 0, -np.inf).astype(np.float32)[:, None, None]
    with trueno.use(backend):
        y = trueno.attention_masked(q, k, v, mask)
        for i, n in enumerate(lengths):
            np.testing.assert_allclose(y[i], trueno.attention(q[i], k[i, :n], v[i, :n]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_in_a_mask_or_a_sink(backend):
    rng = np.random.default_rng(12)
    q, k, v = operands(rng, 70, 70, 2, 1, 16, 16, lead=(), dtype=np.float32)
    mask, sinks = np.zeros((2, 70, 70), np.float32), np.zeros(2, np.float32)
    mask[1, 40, 30], mask[0, 5, 6], sinks[1] = np.nan, np.nan, np.nan
    with trueno.use(backend):
        y = trueno.attention_masked(q, k, v, mask, causal=True)
        z = trueno.attention_sinks(q, k, v, sinks, causal=True)
    assert np.isnan(y[40, 1]).all(), "query 40 of head 1 sees key 30"
    y[40, 1] = 0
    assert np.isfinite(y).all(), "query 5 does not see key 6"
    assert np.isnan(z[:, 1]).all() and np.isfinite(z[:, 0]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("t, s, window", [(5, 3, 0), (31, 16, 0), (200, 90, 7)])
def test_a_query_without_keys_gives_zero_whatever_its_sink(backend, dtype, t, s, window, rng):
    q, k, v = operands(rng, t, s, 4, 2, 8, 8, lead=(), dtype=dtype)
    sinks = np.array([0.5, np.nan, -np.inf, 1e30], dtype)
    with trueno.use(backend):
        y = trueno.attention_sinks(q, k, v, sinks, causal=True, window=window)
    assert (y[: t - s] == 0).all(), "these queries come before the first key"
    assert np.isnan(y[t - s :, 1]).all() and np.isfinite(y[:, [0, 2, 3]]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_and_batches(backend):
    rng = np.random.default_rng(2)
    q, k, v = operands(rng, 40, 60, 4, 2, 32, 32, lead=(3,), dtype=np.float32)
    mask, sinks = rng.normal(size=(3, 4, 40, 60)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    with trueno.use(backend):
        whole = trueno.attention_masked(q, k, v, mask, causal=True)
        strided = np.repeat(mask, 2, -1)[..., ::2]
        np.testing.assert_array_equal(trueno.attention_masked(q, k, v, strided, causal=True), whole)
        one = trueno.attention_masked(q[:1], k[:1], v[:1], mask, causal=True)
        np.testing.assert_array_equal(one[0], whole[0])
        np.testing.assert_array_equal(one[2], trueno.attention_masked(q[0], k[0], v[0], mask[2], causal=True))
        out = np.empty_like(whole)
        assert trueno.attention_masked(q, k, v, mask, causal=True, out=out) is out
        np.testing.assert_array_equal(out, whole)
        both = trueno.attention_sinks(q, k, v, np.repeat(sinks, 2)[::2], causal=True)
        with trueno.Batch(backend) as b:
            handles = [b.upload(x) for x in (q, k, v)]
            masked = b.attention_masked(*handles, b.upload(mask), causal=True)
            sunk = b.attention_sinks(*handles, b.upload(sinks), causal=True)
            for _ in range(3):
                b.execute()
                np.testing.assert_array_equal(b.read(masked), whole)
                np.testing.assert_array_equal(b.read(sunk), both)


def test_what_is_wrong_is_named():
    q, k, v = (np.zeros(shape, np.float32) for shape in ((3, 6, 8), (5, 2, 8), (5, 2, 4)))
    with pytest.raises(ShapeError, match=r"attention_sinks: sinks\[hq\] is 2, but q\[hq\] is 6"):
        trueno.attention_sinks(q, k, v, np.zeros(2, np.float32))
    for shape, message in (
        ((2, 3, 5), r"m is 2, hq is 6, but m == 1 or m == hq must hold|hq is 6, m is 2, but m == 1 or m == hq"),
        ((1, 2, 5), "but r == 1 or r == t must hold"),
        ((1, 3, 4), r"mask\[s\] is 4, but k\[s\] is 5"),
        ((3, 5), r"mask\[...,m,r,s\] needs at least 3 dimension"),
    ):
        with pytest.raises(ShapeError, match=f"attention_masked: .*{message}"):
            trueno.attention_masked(q, k, v, np.zeros(shape, np.float32))
    with pytest.raises(ParameterError, match="attention_masked: window is -1, but 0 <= window"):
        trueno.attention_masked(q, k, v, np.zeros((1, 1, 5), np.float32), window=-1)
