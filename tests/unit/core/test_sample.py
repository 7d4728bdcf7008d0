"""sample on every backend of the host, against the chain of samplers written out token by token."""

import itertools
import math

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.errors import ParameterError, ShapeError
from trueno.judge.bound import judge
from trueno.judge.structured import structured_bound
from trueno.ops import TABLE

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]


def chain(logits, r, temperature, top_k, top_p, min_p):
    """As llama.cpp: sorted candidates, each sampler cuts the list, and the last walks along it."""
    candidates = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return candidates[0]
    if top_k:
        candidates = candidates[:top_k]
    sizes = [math.exp(logits[i] - logits[candidates[0]]) for i in candidates]
    if top_p < 1:
        total, reached = math.fsum(sizes), 0.0
        for count, size in enumerate(sizes, 1):
            reached += size / total
            if reached >= top_p:
                candidates = candidates[:count]
                break
    candidates = [i for i, size in zip(candidates, sizes, strict=False) if size >= min_p]
    sizes = [math.exp((logits[i] - logits[candidates[0]]) / temperature) for i in candidates]
    total, reached = math.fsum(sizes), 0.0
    for i, size in zip(candidates, sizes, strict=True):
        reached += size / total
        if reached > r:
            return i
    return candidates[-1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 64, 65, 1500])
def test_against_the_chain(backend, dtype, n):
    rng = np.random.default_rng([7, n])
    filters = itertools.product((0.0, 0.3, 1.0, 2.0), (0, 3, 200, 1200), (1.0, 0.9, 0.2, 0.0), (0.0, 0.05, 1.0))
    for temperature, top_k, top_p, min_p in filters:
        logits, r = (3 * rng.normal(size=(4, n))).astype(dtype), rng.random(4).astype(dtype)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        with trueno.use(backend):
            got = trueno.sample(logits, r, **given)
        assert got.dtype == np.int64
        want = [chain(row.tolist(), float(one), *given.values()) for row, one in zip(logits, r, strict=True)]
        np.testing.assert_array_equal(got, want, err_msg=str(given))


@pytest.mark.parametrize("backend", BACKENDS)
def test_flat_logits_need_all_tokens(backend):
    """Equal logits: the token is the position, whatever is ranked at first."""
    r = (np.arange(20) + 0.5) / 20 + 1e-9
    with trueno.use(backend):
        np.testing.assert_array_equal(trueno.sample(np.ones(2000), r), np.arange(50, 2000, 100))
        np.testing.assert_array_equal(trueno.sample(np.ones(2000), r, top_p=0.5), np.arange(25, 1000, 50))
        np.testing.assert_array_equal(
            trueno.sample(np.ones(2000), r, min_p=0.5, temperature=9.0), np.arange(50, 2000, 100)
        )
        np.testing.assert_array_equal(trueno.sample(np.ones(2000), r, top_k=200), np.arange(5, 200, 10))
        np.testing.assert_array_equal(trueno.sample(np.ones(2000), r, top_k=1200), np.arange(30, 1200, 60))
        steps = np.repeat(np.log([4.0, 2.0, 1.0]), 700)
        np.testing.assert_array_equal(
            trueno.sample(steps, r[[0, 10, 18, 19]], top_k=1400, top_p=0.75), [19, 413, 756, 835]
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_edges(backend):
    x = np.array([[0.5, 2.0, 2.0, -np.inf, 1.0]], np.float32)
    with trueno.use(backend):
        draw = trueno.sample
        ends = draw(np.repeat(x, 5, 0), np.array([-3.0, np.nan, 0.0, 1.0, np.inf], np.float32))
        np.testing.assert_array_equal(ends, [1, 1, 1, 0, 0])  # the least likely that has a probability
        nan, inf = x.copy(), x.copy()
        nan[0, 3], inf[0, [0, 4]] = np.nan, np.inf
        assert draw(nan, [0.9]) == draw(nan, [0.9], temperature=0.0) == 3
        np.testing.assert_array_equal(draw(np.repeat(inf, 2, 0), np.array([0.4, 0.6], np.float32)), [0, 4])
        np.testing.assert_array_equal(draw(np.full((2, 4), -np.inf), np.array([0.3, 0.8])), [1, 3])
        assert draw(x, [0.999], temperature=1e-300) == 2
        assert draw(x[0], 0.5).shape == ()
        assert draw(x[0], np.zeros((3, 2), np.float32)).shape == (3, 2)
        assert draw(x[:0], np.zeros(0, np.float32)).shape == (0,)
        out = np.empty(1, np.int64)
        assert draw(x, np.zeros(1, np.float32), out=out) is out
        assert out == 1
        with trueno.Batch(backend) as b:
            logits, r = b.upload(np.repeat(x, 3, 0)), b.upload(np.array([0.0, 0.5, 0.95], np.float32))
            token = b.sample(logits, r, top_k=2)
            b.execute()
            np.testing.assert_array_equal(b.read(token), [1, 2, 2])
            b.update(r, np.array([0.9, 0.1, 0.3], np.float32))
            b.execute()
            np.testing.assert_array_equal(b.read(token), [2, 1, 1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_wrong_is_named(backend):
    x, r = np.zeros((2, 5), np.float32), np.zeros(2, np.float32)
    with trueno.use(backend):
        for given, text in (
            ({"temperature": -1.0}, "sample: temperature is -1.0, but 0 <= temperature <= 1e18 must hold"),
            ({"top_k": -1}, "sample: top_k is -1, but 0 <= top_k"),
            ({"top_p": 1.5}, "sample: top_p is 1.5, but 0 <= top_p <= 1 must hold"),
            ({"min_p": float("nan")}, "sample: min_p is nan, but 0 <= min_p <= 1 must hold"),
        ):
            with pytest.raises(ParameterError, match=text):
                trueno.sample(x, r, **given)
        with pytest.raises(ShapeError, match="sample: n is 0, but n >= 1 must hold"):
            trueno.sample(x[:, :0], r)
        with pytest.raises(ShapeError, match="sample: r has 3 along axis -1, but logits has 2"):
            trueno.sample(x, np.zeros(3, np.float32))


def test_the_judge_allows_what_the_errors_of_sums_do():
    """r on the border of two tokens may draw either; a token whose part is far from r is wrong."""
    row = np.log(np.array([0.5, 0.25, 0.125, 0.125]))
    (border,) = structured_bound(TABLE["sample"], [row, np.array(0.75)], {"top_k": 0}, np.float64, (1.0, 1.0, 0.0))
    assert border.allowed.tolist() == [[False, True, True, False]]
    (inside,) = structured_bound(TABLE["sample"], [row, np.array(0.6)], {"top_k": 0}, np.float64, (1.0, 1.0, 0.0))
    assert inside.allowed.tolist() == [[False, True, False, False]]
    assert judge(np.array(1), inside)
    assert not judge(np.array(0), inside)
    (cut,) = structured_bound(TABLE["sample"], [row, np.array(0.99)], {"top_k": 0}, np.float64, (1.0, 0.75, 0.0))
    assert cut.allowed.tolist() == [[False, True, True, False]], "the third token may be kept or not"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_call_over_a_whole_vocabulary_is_right(backend):
    """The scratch that a row needs depends on its numbers, and grows in several steps."""
    rng = np.random.default_rng(fresh_seed())
    logits = (0.5 * rng.normal(size=(1, 128_256))).astype(np.float32)
    r = rng.random(1).astype(np.float32)
    (allowed,) = structured_bound(TABLE["sample"], [logits, r], {"top_k": 0}, np.float32, (1.0, 0.9, 0.0))
    for _ in range(2):
        with trueno.use(backend):
            assert judge(trueno.sample(logits, r, top_p=0.9), allowed)


def test_temperatures_that_overflow_are_errors():
    for temperature in (float("inf"), 1e-310):
        with pytest.raises(ParameterError, match="temperature"):
            trueno.sample(np.zeros(4, np.float32), np.float32(0.5), temperature=temperature)
